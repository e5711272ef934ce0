//! Bytes, money and ratios in words.

use ebbtide::ByteSize;

/// Places of a percentage after the decimal point.
const MAX_PLACES: usize = 6;

pub(super) fn size(bytes: f64) -> String {
    ByteSize::bytes(bytes.max(0.0) as u64).to_string()
}

/// Two places after the decimal point, more for small amounts.
pub(super) fn money(amount: f64) -> String {
    match amount {
        1000.0.. => format!("{amount:.0}"),
        0.1.. => format!("{amount:.2}"),
        amount if amount > 0.0 => {
            let places = (2.0 - amount.log10().floor()).clamp(2.0, 12.0) as usize;
            format!("{amount:.places$}")
        }
        _ => "0".to_owned(),
    }
}

/// One place after the decimal point, more for a ratio that is not quite 1.
pub(super) fn percent(ratio: f64) -> String {
    let with = |places: usize| format!("{:.places$} %", ratio * 100.0);
    let is_rounded = |text: &String| ratio < 1.0 && text.starts_with("100");
    (1..MAX_PLACES).map(with).find(|text| !is_rounded(text)).unwrap_or_else(|| with(MAX_PLACES))
}

/// A hit ratio as the user gave it.
pub(super) fn given(ratio: f64) -> String {
    let text = format!("{:.*}", MAX_PLACES, ratio * 100.0);
    let (whole, places) = text.split_once('.').unwrap_or((&text, ""));
    format!("{whole}.{:0<1} %", places.trim_end_matches('0'))
}

/// A ratio with as many places as show that it is less than a wanted one.
pub(super) fn percent_below(ratio: f64, wanted: f64) -> String {
    let with = |places: usize| (format!("{:.places$} %", ratio * 100.0), format!("{:.places$} %", wanted * 100.0));
    let distinct = (1..MAX_PLACES).map(with).find(|(ratio, wanted)| ratio != wanted);
    distinct.map_or_else(|| with(MAX_PLACES).0, |(ratio, _)| ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_prices_keep_their_digits() {
        for (amount, text) in
            [(0.0, "0"), (12_345.6, "12346"), (12.345, "12.35"), (0.5, "0.50"), (0.00488, "0.00488"), (0.05, "0.0500")]
        {
            assert_eq!(money(amount), text);
        }
    }

    #[test]
    fn percentages_are_not_rounded_to_another_claim() {
        let shown = [(0.5, "50.0 %"), (0.9999, "99.99 %"), (0.99999, "99.999 %"), (1.0, "100.0 %"), (0.0, "0.0 %")];
        for (ratio, text) in shown {
            assert_eq!(percent(ratio), text);
        }
        for (ratio, text) in [(0.95, "95.0 %"), (0.9999, "99.99 %"), (0.95125, "95.125 %"), (1e-6, "0.0001 %")] {
            assert_eq!(given(ratio), text);
        }
        assert_eq!(percent_below(0.7281, 0.7284), "72.81 %");
        assert_eq!(percent_below(0.7, 0.95), "70.0 %");
    }
}
