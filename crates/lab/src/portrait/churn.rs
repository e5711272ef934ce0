//! How soon popular objects stop being popular.
//!
//! Two measures answer two questions. **Still popular** is CacheLib's (OSDI 2020, Fig. 4): the share of the
//! tenth of an hour's objects with the most requests that is in the top tenth x hours later, too. Where objects
//! have few requests an hour, chance alone moves them out of it. **Replaced per hour** leaves chance out: S(k)
//! is the share of popular objects of a minute that are asked for in the minute k minutes later. Chance lowers
//! S at each k alike, and only replacement makes it fall with k, so S(60) is compared with S(0), which the
//! first minutes lead back to.

/// A lag of minutes, of which S(0) is extrapolated.
const NEAR_MINUTES: std::ops::RangeInclusive<u32> = 2..=12;
const HOUR_MINUTES: u32 = 60;
/// Minimum number of popular objects at which S(0) differs from chance.
const MIN_POPULAR: f64 = 1000.0;
/// Two years: the time of a longer trace has another unit.
const MAX_SECONDS: u32 = 2 * 366 * 86_400;
/// Hours that the figure shows.
const MAX_HOURS: u32 = 24;

/// Changes of popularity.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Churn {
    /// Share of the popular objects that others replace within an hour; `None` for a trace of less than two hours.
    pub(super) replaced_per_hour: Option<f64>,
    /// By hours, from 0: the share that is still in the top tenth.
    pub(super) still_popular: Vec<f64>,
}

/// An object in an interval, and its requests there.
#[derive(Clone, Copy, Debug)]
struct KeyInterval {
    key: u32,
    interval: u32,
    requests: u32,
}

/// Churn of requests (key, second), in any order.
pub(super) fn churn(requests: impl Iterator<Item = (u32, u32)> + Clone) -> Churn {
    let last = requests.clone().map(|(_, second)| second).max().unwrap_or(0);
    if last > MAX_SECONDS {
        return Churn { replaced_per_hour: None, still_popular: Vec::new() };
    }
    let minutes = cells(requests.clone(), 60);
    let hours = cells(requests, 3600);
    Churn { replaced_per_hour: replaced_per_hour(&minutes), still_popular: still_popular(&hours) }
}

/// Sorted by key, then by interval.
fn cells(requests: impl Iterator<Item = (u32, u32)>, seconds: u32) -> Vec<KeyInterval> {
    let mut words: Vec<u64> =
        requests.map(|(key, second)| u64::from(key) << 32 | u64::from(second / seconds)).collect();
    words.sort_unstable();
    let mut cells: Vec<KeyInterval> = Vec::new();
    for word in words {
        let (key, interval) = ((word >> 32) as u32, word as u32);
        match cells.last_mut() {
            Some(last) if last.key == key && last.interval == interval => last.requests += 1,
            _ => cells.push(KeyInterval { key, interval, requests: 1 }),
        }
    }
    cells
}

/// Requests that an object needs in each interval to be in its top tenth. Where several objects have that many, the
/// tenth is a little more.
fn thresholds(cells: &[KeyInterval]) -> Vec<u32> {
    let intervals = cells.iter().map(|cell| cell.interval as usize + 1).max().unwrap_or(0);
    let mut requests: Vec<Vec<u32>> = vec![Vec::new(); intervals];
    cells.iter().for_each(|cell| requests[cell.interval as usize].push(cell.requests));
    let threshold = |mut requests: Vec<u32>| {
        let tenth = (requests.len() / 10).min(requests.len().saturating_sub(1));
        match requests.as_mut_slice() {
            [] => u32::MAX,
            some => *some.select_nth_unstable_by(tenth, |one, other| other.cmp(one)).1,
        }
    };
    requests.into_iter().map(threshold).collect()
}

/// Of the cells for which `popular` holds and that have an interval `lag` later: those for which `there` holds of the
/// cell of the same key there, and how many there are.
fn later(
    cells: &[KeyInterval],
    lag: u32,
    last: u32,
    popular: impl Fn(&KeyInterval) -> bool,
    there: impl Fn(&KeyInterval) -> bool,
) -> (f64, f64) {
    let (mut found, mut all) = (0.0, 0.0);
    let mut ahead = 0;
    for cell in cells.iter().filter(|cell| cell.interval + lag < last && popular(cell)) {
        let wanted = (cell.key, cell.interval + lag);
        while cells.get(ahead).is_some_and(|other| (other.key, other.interval) < wanted) {
            ahead += 1;
        }
        all += 1.0;
        if cells.get(ahead).is_some_and(|other| (other.key, other.interval) == wanted && there(other)) {
            found += 1.0;
        }
    }
    (found, all)
}

fn replaced_per_hour(cells: &[KeyInterval]) -> Option<f64> {
    let thresholds = thresholds(cells);
    // The last interval is a part of a minute.
    let last = (thresholds.len() as u32).checked_sub(1).filter(|&last| last >= 2 * HOUR_MINUTES)?;
    let share = |lag: u32| {
        let is_popular = |cell: &KeyInterval| cell.requests >= thresholds[cell.interval as usize];
        let (found, all) = later(cells, lag, last, is_popular, |_| true);
        (found / f64::max(all, 1.0), found)
    };
    let near: Vec<(f64, f64)> = NEAR_MINUTES.map(|lag| (f64::from(lag), share(lag).0)).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| near.iter().map(of).sum::<f64>() / near.len() as f64;
    let (lag, still) = (mean(|point| point.0), mean(|point| point.1));
    let covariance: f64 = near.iter().map(|point| (point.0 - lag) * (point.1 - still)).sum();
    let variance: f64 = near.iter().map(|point| (point.0 - lag).powi(2)).sum();
    let at_once = still - covariance / variance * lag;
    let found = share(*NEAR_MINUTES.start()).1;
    (found >= MIN_POPULAR && at_once > 0.0).then(|| (1.0 - share(HOUR_MINUTES).0 / at_once).clamp(0.0, 1.0))
}

fn still_popular(cells: &[KeyInterval]) -> Vec<f64> {
    let thresholds = thresholds(cells);
    let hours = thresholds.len() as u32;
    let is_popular = |cell: &KeyInterval| cell.requests >= thresholds[cell.interval as usize];
    let still = (0..hours.min(MAX_HOURS + 1)).map(|lag| later(cells, lag, hours, is_popular, is_popular));
    still.take_while(|&(_, all)| all > 0.0).map(|(found, all)| found / all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Random;

    /// Requests of 3 h over 2,000 places, each of which gets a new key `per_hour` times an hour.
    fn requests(per_hour: f64) -> Vec<(u32, u32)> {
        let mut random = Random::new(3, 0);
        let request = |second: u32| {
            let place = (random.next_unit() * random.next_unit() * 2000.0) as u32;
            let phase = f64::from(place.wrapping_mul(2_654_435_761)) / f64::from(u32::MAX);
            let life = (f64::from(second) / 3600.0 * per_hour + phase) as u32;
            (place + life * 2000, second)
        };
        (0..3 * 3600).flat_map(|second| [second; 60]).map(request).collect()
    }

    #[test]
    fn replaced_objects_are_counted_and_chance_is_not() {
        for per_hour in [0.0, 0.1, 0.35, 0.7] {
            let churn = churn(requests(per_hour).into_iter());
            let found = churn.replaced_per_hour.unwrap();
            assert!((found - per_hour).abs() < 0.05 * per_hour + 0.01, "{per_hour}: {found}");
            assert_eq!((churn.still_popular.len(), churn.still_popular[0]), (3, 1.0));
            assert!(churn.still_popular[1] < 1.02 - per_hour, "{churn:?}");
        }
    }

    #[test]
    fn short_and_empty_traces_have_no_hourly_churn() {
        let short = churn(requests(0.5).into_iter().filter(|&(_, second)| second < 7000));
        assert_eq!(short.replaced_per_hour, None);
        assert_eq!(churn(std::iter::empty()), Churn { replaced_per_hour: None, still_popular: Vec::new() });
    }
}
