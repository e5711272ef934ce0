//! When requests arrive: their number in equal intervals, and over the hours of a day.

/// Minimum mean of requests in an interval for a dispersion.
const MIN_MEAN: f64 = 5.0;
/// Minimum number of intervals for an error of a few percent.
const MIN_INTERVALS: usize = 100;
/// Intervals of CacheLib's Fig. 6.
const FIGURE_SECONDS: u32 = 120;
/// Maximum number of intervals, however long the trace is.
const MAX_INTERVALS: u64 = 1 << 22;
const HOURS: usize = 24;
const DAY_SECONDS: u64 = 86_400;

/// How evenly requests arrive.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ArrivalDispersion {
    /// Seconds of the intervals that the dispersion is of.
    pub(super) interval_seconds: u32,
    /// Variance of the requests of an interval for each of their mean (index of dispersion): 1 if they arrive by chance
    /// (Poisson), less if they are spaced, more if they come in bursts. `None` for too few intervals.
    pub(super) dispersion: Option<f64>,
    /// As `dispersion`, for two minutes.
    pub(super) dispersion_of_two_minutes: Option<f64>,
    /// Requests of each two minutes.
    pub(super) two_minutes: Vec<u64>,
    /// Share of the requests in each hour of the day, by the trace's clock; `None` for less than a day.
    pub(super) hours: Option<[f64; HOURS]>,
}

/// Arrivals at these seconds since the first, which never fall.
pub(super) fn arrivals(seconds: &[u32], origin_seconds: u64) -> ArrivalDispersion {
    let span_seconds = seconds.last().map_or(0, |&last| u64::from(last) + 1);
    let wanted = (MIN_MEAN * span_seconds as f64 / seconds.len().max(1) as f64).ceil() as u64;
    let interval_seconds = wanted.max(span_seconds / MAX_INTERVALS).clamp(1, u64::from(u32::MAX)) as u32;
    let two_minutes = match span_seconds / u64::from(FIGURE_SECONDS) {
        0..=MAX_INTERVALS => counts(seconds, FIGURE_SECONDS),
        _ => Vec::new(),
    };
    ArrivalDispersion {
        interval_seconds,
        dispersion: dispersion(&counts(seconds, interval_seconds)),
        dispersion_of_two_minutes: dispersion(&two_minutes),
        hours: (span_seconds >= DAY_SECONDS).then(|| hours(seconds, origin_seconds)),
        two_minutes,
    }
}

/// Requests of each whole interval; the last one, which the trace may cut, is left out where there are others.
fn counts(seconds: &[u32], interval: u32) -> Vec<u64> {
    let mut counts = Vec::new();
    for second in seconds {
        let at = (second / interval) as usize;
        if at >= counts.len() {
            counts.resize(at + 1, 0);
        }
        counts[at] += 1;
    }
    if counts.len() > 1 {
        counts.pop();
    }
    counts
}

/// From the differences of neighbours (von Neumann), which a rate that changes slowly does not touch.
fn dispersion(counts: &[u64]) -> Option<f64> {
    if counts.len() < MIN_INTERVALS {
        return None;
    }
    let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let squares: f64 = counts.windows(2).map(|pair| pair[1].abs_diff(pair[0]) as f64).map(|d| d * d).sum();
    (mean > 0.0).then(|| squares / (2.0 * (counts.len() - 1) as f64) / mean)
}

fn hours(seconds: &[u32], origin_seconds: u64) -> [f64; HOURS] {
    let mut requests = [0.0; HOURS];
    for &second in seconds {
        requests[((origin_seconds + u64::from(second)) % DAY_SECONDS / 3600) as usize] += 1.0;
    }
    let total: f64 = requests.iter().sum();
    requests.map(|count| count / f64::max(total, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Random;

    /// Bursts of `size` requests at random seconds, about 50 requests a second.
    fn bursts(size: usize) -> Vec<u32> {
        let mut random = Random::new(5, 0);
        let mut seconds: Vec<u32> = (0..1_000_000 / size).map(|_| (random.next_unit() * 20_000.0) as u32).collect();
        seconds.sort_unstable();
        seconds.into_iter().flat_map(|second| std::iter::repeat_n(second, size)).collect()
    }

    #[test]
    fn the_dispersion_is_the_size_of_bursts() {
        for size in [1, 8, 40] {
            let found = arrivals(&bursts(size), 0);
            let dispersion = found.dispersion.unwrap();
            assert!((dispersion / size as f64 - 1.0).abs() < 0.05, "{size}: {dispersion}");
            assert_eq!((found.interval_seconds, found.hours), (1, None));
        }
        let even = arrivals(&(0..200_000).map(|n| n / 10).collect::<Vec<u32>>(), 0);
        assert_eq!(even.dispersion, Some(0.0));
    }

    #[test]
    fn hours_follow_the_clock_of_the_trace() {
        let nights: Vec<u32> = (0..3 * 86_400).filter(|second| second % 86_400 < 7200).collect();
        let found = arrivals(&nights, 82_800);
        let hours = found.hours.unwrap();
        assert_eq!((hours[23], hours[0], hours[1]), (0.5, 0.5, 0.0));
    }

    #[test]
    fn few_requests_have_no_dispersion() {
        for seconds in [&[][..], &[0], &[0, 50], &[0, u32::MAX]] {
            assert_eq!(arrivals(seconds, 0).dispersion.filter(|_| seconds.len() < 2), None);
        }
    }
}
