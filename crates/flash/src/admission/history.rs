//! Predicts how often an object will be read from flash, by how often its key was missed before.
//!
//! ```text
//! missed  -> the filter of this hour, once more
//! offered -> how often the six filters have the key -> class -> reads per hour
//! ```
//! Six Bloom filters of an hour each, as in CacheLib's appendix C; the oldest is emptied and becomes this hour's,
//! sooner if that is full. Only requests that DRAM missed count: flash would have answered these. A filter counts up to
//! [`NAMES`] misses of a key in its hour, by different names of the key. The reads of a class are not trained
//! beforehand but measured: some of the offered keys are watched for an hour, and their misses are the estimate, from
//! the first second on. Old samples decay. A class with few watched keys takes the estimate of the next lower class,
//! and until that is known, the rate of its own misses.
//!
//! Workers record misses with atomics alone; a rotation at the same time loses a count at most. Two threads that offer
//! keys of one sample at the same time may mix them up: then one sample is wrong.

use crate::FlashHash;
use crate::bloom::Bloom;
use crate::hash::mix;
use std::array;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

const HOUR: u32 = 3600;
const HOURS: usize = 6;
const NAMES: usize = 3;
/// By the misses that are remembered, from none on.
const CLASSES: usize = HOURS * NAMES + 1;
const WATCHED_KEYS: usize = 4096;
/// Weight of the prior, in hours of a watched key.
const PRIOR_HOURS: f64 = 4.0;
/// Each hour the samples before it count this much less.
const FADE: f64 = 0.8;

pub(super) struct MissHistory {
    filters: [Bloom; HOURS],
    /// This hour's filter.
    current: AtomicUsize,
    /// Names in it, and how many it is made for.
    names: AtomicUsize,
    max_names: usize,
    watched_keys: Box<[WatchedKey]>,
    estimates: Mutex<Estimates>,
}

struct Estimates {
    /// When this hour began.
    began: Option<u32>,
    /// Hours and reads of the samples that are over, by class.
    over: [MissClass; CLASSES],
    /// Hours and reads of the samples that are watched, by class.
    watched: [MissClass; CLASSES],
    /// Reads an hour from flash.
    expected: [f64; CLASSES],
}

/// A key that was offered and is watched. Key 0 is none.
#[derive(Default)]
struct WatchedKey {
    key: AtomicU64,
    reads: AtomicU32,
    /// Time of its offer, and its class then.
    since: AtomicU32,
    class: AtomicU32,
}

#[derive(Clone, Copy, Default)]
struct MissClass {
    hours: f64,
    reads: f64,
}

impl Estimates {
    fn new() -> Self {
        let nothing = [MissClass::default(); CLASSES];
        let mut estimates = Self { began: None, over: nothing, watched: nothing, expected: [0.0; CLASSES] };
        estimates.estimate();
        estimates
    }

    fn estimate(&mut self) {
        let mut below = MissClass::default();
        for class in 0..CLASSES {
            let as_missed = class as f64 / HOURS as f64;
            let prior = (below.reads + as_missed * PRIOR_HOURS) / (below.hours + PRIOR_HOURS);
            let (over, watched) = (self.over[class], self.watched[class]);
            let hours = over.hours + watched.hours;
            self.expected[class] = (over.reads + watched.reads + prior * PRIOR_HOURS) / (hours + PRIOR_HOURS);
            // Keys that were never missed were set: they say nothing about those that were.
            if class > 0 {
                let hours = below.hours + hours;
                below = MissClass { hours, reads: hours * self.expected[class] };
            }
        }
    }
}

impl MissHistory {
    /// A history for `keys_per_hour` different missed keys.
    pub fn new(keys_per_hour: usize) -> Self {
        Self {
            filters: array::from_fn(|_| Bloom::new(keys_per_hour)),
            current: AtomicUsize::new(0),
            names: AtomicUsize::new(0),
            max_names: keys_per_hour,
            watched_keys: (0..WATCHED_KEYS).map(|_| WatchedKey::default()).collect(),
            estimates: Mutex::new(Estimates::new()),
        }
    }

    /// Bytes of a history for `keys_per_hour`.
    pub fn memory_bytes_for(keys_per_hour: usize) -> usize {
        HOURS * Bloom::memory_bytes_for(keys_per_hour) + WATCHED_KEYS * size_of::<WatchedKey>() + size_of::<Estimates>()
    }

    /// Records a request for a key that DRAM missed.
    pub fn missed(&self, key: FlashHash) {
        let filter = &self.filters[self.current.load(Relaxed)];
        if names(key).any(|name| filter.add(name)) {
            self.names.fetch_add(1, Relaxed);
        }
        let sample = self.sample(key);
        if sample.key.load(Relaxed) == key.0 {
            sample.reads.fetch_add(1, Relaxed);
        }
    }

    /// The expected reads of the key from flash per hour. Watches the key if its sample is free.
    pub fn offer(&self, key: FlashHash, now: u32) -> f64 {
        let class = self.class(key);
        let sample = self.sample(key);
        if sample.key.load(Relaxed) == 0 {
            sample.reads.store(0, Relaxed);
            sample.since.store(now, Relaxed);
            sample.class.store(class as u32, Relaxed);
            sample.key.store(key.0, Relaxed);
        }
        self.estimates.lock().unwrap().expected[class]
    }

    /// Evaluates samples, and starts the next hour when it is due or this hour's filter is full.
    pub fn maintain(&self, now: u32) {
        let mut estimates = self.estimates.lock().unwrap();
        self.update_estimates(&mut estimates, now);
        let began = *estimates.began.get_or_insert(now);
        let hours = now.saturating_sub(began) / HOUR;
        let is_full = self.names.load(Relaxed) >= self.max_names;
        for _ in 0..hours.max(is_full.into()).min(HOURS as u32) {
            let next = (self.current.load(Relaxed) + 1) % HOURS;
            self.filters[next].clear();
            self.names.store(0, Relaxed);
            self.current.store(next, Relaxed);
        }
        let next_began = if is_full { now.max(began) } else { began + hours * HOUR };
        let fade = FADE.powf(f64::from(next_began - began) / f64::from(HOUR));
        for class in &mut estimates.over {
            (class.hours, class.reads) = (class.hours * fade, class.reads * fade);
        }
        estimates.began = Some(next_began);
        estimates.estimate();
    }

    fn update_estimates(&self, estimates: &mut Estimates, now: u32) {
        estimates.watched = Default::default();
        for sample in self.watched_keys.iter().filter(|sample| sample.key.load(Relaxed) != 0) {
            let seconds = now.saturating_sub(sample.since.load(Relaxed));
            let is_over = seconds >= HOUR;
            let classes = if is_over { &mut estimates.over } else { &mut estimates.watched };
            let class = &mut classes[sample.class.load(Relaxed) as usize];
            class.hours += f64::from(seconds) / f64::from(HOUR);
            class.reads += f64::from(sample.reads.load(Relaxed));
            if is_over {
                sample.key.store(0, Relaxed);
            }
        }
    }

    /// The number of remembered misses of the key.
    fn class(&self, key: FlashHash) -> usize {
        let misses = |filter: &Bloom| names(key).take_while(|&name| filter.has(name)).count();
        self.filters.iter().map(misses).sum()
    }

    fn sample(&self, key: FlashHash) -> &WatchedKey {
        &self.watched_keys[key.0 as usize % WATCHED_KEYS]
    }
}

/// Names of the first miss in an hour, the second, and so on.
fn names(key: FlashHash) -> impl Iterator<Item = u64> {
    (0..NAMES as u64).map(move |n| mix(key.0.wrapping_add(n)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    fn key(i: u64) -> FlashHash {
        FlashHash(mix(i + 1))
    }

    fn expected(history: &MissHistory, class: usize) -> f64 {
        history.estimates.lock().unwrap().expected[class]
    }

    #[test]
    fn history_remembers_misses_of_six_hours() {
        let history = MissHistory::new(1000);
        history.maintain(0);
        for _ in 0..5 {
            history.missed(key(1));
        }
        for hour in 0..8 {
            history.maintain(hour * HOUR);
            assert_eq!(history.class(key(1)), if hour < 6 { NAMES } else { 0 }, "after {hour} hours");
            assert_eq!(history.class(key(2)), 0);
            if hour < 7 {
                history.missed(key(3));
            }
        }
        assert_eq!(history.class(key(3)), 5, "of seven hours two are over");
        history.maintain(100 * HOUR);
        assert_eq!(history.class(key(3)), 0, "a long pause forgets all");
    }

    #[test]
    fn a_full_filter_ends_its_hour() {
        let history = MissHistory::new(100);
        history.maintain(0);
        for second in 1..=12 {
            (0..50).for_each(|i| history.missed(key(u64::from(second) * 50 + i)));
            history.maintain(second);
        }
        let remembered = |second: u64| (0..50).filter(|i| history.class(key(second * 50 + i)) > 0).count();
        assert!(
            (1..=2).all(|second| remembered(second) < 10),
            "two seconds fill a filter, and the sixth took the first one's place"
        );
        assert!((3..=12).all(|second| remembered(second) == 50));
    }

    #[test]
    fn more_misses_predict_more_reads() {
        let history = MissHistory::new(1000);
        for hour in 0..6 {
            history.maintain(hour * HOUR);
            history.missed(key(1));
            if hour == 3 {
                history.missed(key(2));
                history.missed(key(3));
                history.missed(key(3));
            }
        }
        let expected: Vec<f64> = [1, 3, 2, 4].map(|i| history.offer(key(i), 5 * HOUR)).into();
        assert!(expected.is_sorted_by(|a, b| a > b), "{expected:?}");
    }

    #[test]
    fn expected_reads_of_a_class_follow_its_samples() {
        let history = MissHistory::new(100_000);
        // Keys missed once in an hour are never read again; keys never missed are read three times.
        let fresh = |hour: u32, i: u64| key(10_000 * u64::from(hour) + i);
        for hour in 0..4 {
            history.maintain(hour * HOUR);
            (0..500).for_each(|i| history.missed(fresh(hour, i)));
            for i in 0..1000 {
                history.offer(fresh(hour, i), hour * HOUR);
            }
            (500..1000).for_each(|i| (0..3).for_each(|_| history.missed(fresh(hour, i))));
            history.maintain(hour * HOUR + HOUR / 2);
            let (worthless, worthy) = (expected(&history, 1), expected(&history, 0));
            // At the half of the first hour the count is extrapolated: six reads an hour. Complete hours have three.
            assert!(worthless < 0.05 && (3.0..6.1).contains(&worthy), "hour {hour}: {worthless} {worthy}");
            assert!(hour > 0 || worthy > 5.5, "{worthy}");
        }
        history.maintain(4 * HOUR);
        assert!((2.8..3.1).contains(&expected(&history, 0)), "{}", expected(&history, 0));
    }

    #[test]
    fn a_class_with_few_samples_inherits_expected_reads() {
        let history = MissHistory::new(10_000);
        assert_eq!(expected(&history, 6), 1.0, "as often as it was missed");
        history.maintain(0);
        for i in 0..2000 {
            history.missed(key(i));
            history.offer(key(i), 0);
        }
        history.maintain(HOUR);
        assert!((1..6).all(|class| expected(&history, class) < 0.01), "those missed once were never read");
        for i in 0..3 {
            (0..12).for_each(|_| history.missed(key(10_000 + i)));
            assert_eq!(history.offer(key(10_000 + i), HOUR), expected(&history, NAMES));
            (0..9).for_each(|_| history.missed(key(10_000 + i)));
        }
        history.maintain(2 * HOUR);
        assert!(expected(&history, NAMES) > 3.0 && expected(&history, NAMES - 1) < 0.01);
    }

    #[test]
    fn a_sample_is_counted_once_after_an_hour() {
        let history = MissHistory::new(1000);
        history.maintain(0);
        history.offer(key(1), 0);
        history.missed(key(1));
        history.maintain(HOUR - 1);
        assert_eq!(history.estimates.lock().unwrap().over[0].hours, 0.0);
        for now in [HOUR, HOUR + 1] {
            history.maintain(now);
            history.missed(key(1));
            let MissClass { hours, reads } = history.estimates.lock().unwrap().over[0];
            assert_eq!((hours, reads), (FADE, FADE));
        }
    }
}
