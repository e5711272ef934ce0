//! Numbers in human-readable form; an unknown number is a dash.

/// Placeholder for an unknown number.
pub const UNKNOWN: &str = "-";

fn shown<N>(value: Option<N>, text: impl FnOnce(N) -> String) -> String {
    value.map_or(UNKNOWN.to_owned(), text)
}

/// At least three significant digits, without trailing zeros behind the point.
pub fn digits(value: f64) -> String {
    let places = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if !(1e-9..0.995).contains(&size) => 2,
        // Of a small number the first three digits that are not 0.
        size => (2 - size.log10().floor() as i32).clamp(2, 9) as usize,
    };
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

pub fn scaled(mut value: f64, base: f64, units: &[&str]) -> String {
    let mut step = 0;
    while step + 1 < units.len() && value >= base * 0.9995 {
        value /= base;
        step += 1;
    }
    format!("{}{}", digits(value), units[step])
}

/// Exact below a hundred thousand.
pub fn count(value: Option<u64>) -> String {
    shown(value, |value| match value {
        0..100_000 => value.to_string(),
        _ => scaled(value as f64, 1000.0, &["", " k", " M", " G", " T"]),
    })
}

pub fn rate(value: Option<f64>) -> String {
    shown(value, |value| format!("{}/s", scaled(value, 1000.0, &["", " k", " M", " G"])))
}

pub fn bytes(value: Option<u64>) -> String {
    shown(value, |value| scaled(value as f64, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"]))
}

pub fn byte_rate(value: Option<f64>) -> String {
    shown(value, |value| format!("{}/s", bytes(Some(value as u64))))
}

/// A time that is given in microseconds.
pub fn micros(value: Option<f64>) -> String {
    shown(value, |value| scaled(value, 1000.0, &[" us", " ms", " s"]))
}

/// Only all is 100 %.
pub fn percent(ratio: Option<f64>) -> String {
    shown(ratio, |ratio| match ratio * 100.0 {
        value if value > 99.9 && value < 100.0 => format!("{:.2} %", (value * 100.0).floor() / 100.0),
        value => format!("{value:.1} %"),
    })
}

/// The two largest units: `3 d 4 h`.
pub fn duration(seconds: Option<u64>) -> String {
    shown(seconds, |seconds| {
        let parts =
            [(seconds / 86400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
        let first = parts.iter().position(|(value, _)| *value > 0).unwrap_or(3);
        let shown = parts[first..].iter().take(2).filter(|(value, _)| *value > 0 || first == 3);
        shown.map(|(value, unit)| format!("{value} {unit}")).collect::<Vec<_>>().join(" ")
    })
}

/// Heights from 0 to 1 as a row of bars, the newest at the right; a blank where nothing is known.
pub fn bars(heights: impl DoubleEndedIterator<Item = Option<f64>>, width: usize) -> String {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |height: Option<f64>| match height {
        Some(height) => STEPS[((height.clamp(0.0, 1.0) * 8.0) as usize).min(7)],
        None => ' ',
    };
    let newest: Vec<char> = heights.rev().take(width).map(bar).collect();
    newest.into_iter().rev().collect()
}

/// A share from 0 to 1 as a filled bar.
pub fn gauge(share: f64, width: usize) -> String {
    let filled = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    format!("{}{}", "█".repeat(filled), "░".repeat(width - filled))
}

/// The minute of a time that is given in seconds since 1970, as `2026-11-30 15:20 UTC`.
pub fn utc(unix_seconds: u64) -> String {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // Days since March 1 of the year 0: a year that begins in March has its leap day at its end.
    let days = unix_seconds / 86_400 + 719_468;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, is_next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let (hour, minute) = (unix_seconds / 3600 % 24, unix_seconds / 60 % 60);
    format!("{:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC", 400 * era + year + is_next_year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_000_000_000, "2001-09-09 01:46 UTC"),
            (1_709_251_199, "2024-02-29 23:59 UTC"),
            (1_735_689_599, "2024-12-31 23:59 UTC"),
            (1_735_689_600, "2025-01-01 00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), date);
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(count(Some(99_999)), "99999");
        assert_eq!(count(Some(123_456)), "123 k");
        assert_eq!(count(Some(4_210_000)), "4.21 M");
        assert_eq!(count(Some(999_960)), "1 M");
        assert_eq!(rate(Some(0.0)), "0/s");
        assert_eq!(rate(Some(1234.5)), "1.23 k/s");
        assert_eq!(bytes(Some(1023)), "1023 B");
        assert_eq!(bytes(Some(512 << 20)), "512 MiB");
        assert_eq!(byte_rate(Some(1.5 * 1048576.0)), "1.5 MiB/s");
        for unknown in [count(None), rate(None), bytes(None), percent(None), duration(None)] {
            assert_eq!(unknown, "-");
        }
    }

    #[test]
    fn nearly_all_is_not_all() {
        assert_eq!(percent(Some(1.0)), "100.0 %");
        assert_eq!(percent(Some(0.999_99)), "99.99 %");
        assert_eq!(percent(Some(0.9731)), "97.3 %");
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        assert_eq!(micros(Some(12.34)), "12.3 us");
        assert_eq!(micros(Some(1500.0)), "1.5 ms");
        assert_eq!(micros(Some(2_000_000.0)), "2 s");
        assert_eq!(micros(None), "-");
    }

    #[test]
    fn durations_have_two_units() {
        assert_eq!(duration(Some(0)), "0 s");
        assert_eq!(duration(Some(61)), "1 min 1 s");
        assert_eq!(duration(Some(3600)), "1 h");
        assert_eq!(duration(Some(3 * 86400 + 4 * 3600 + 5)), "3 d 4 h");
    }

    #[test]
    fn bars_keep_the_newest() {
        let heights = [Some(0.0), None, Some(0.5), Some(1.0)];
        assert_eq!(bars(heights.into_iter(), 10), "▁ ▅█");
        assert_eq!(bars(heights.into_iter(), 2), "▅█");
        assert_eq!(gauge(0.5, 4), "██░░");
        assert_eq!(gauge(7.0, 2), "██");
    }
}
