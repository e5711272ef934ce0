//! Predicts how often an object will be read from flash, by the hours in which its key was requested.
//!
//! ```text
//! requested -> the filter of this hour          offered -> the hours whose filters have the key -> class -> reads per hour
//! pattern: bit 0 this hour, bit 1 the one before, ... bit 5       learnt from samples of what was offered
//! ```
//! Six Bloom filters of an hour each, as in CacheLib's appendix C; the oldest is emptied and becomes this hour's. What a
//! pattern is worth is not trained beforehand but learnt: of the keys that are offered, some are watched for an hour. How many
//! of their requests DRAM could not answer, each way flash would have been read, makes the estimate of their class. Old
//! samples fade. Until there are some, a class is taken to be requested as often as it was.
//!
//! Workers record requests with atomics alone, and nothing is lost but a count when they meet a rotation. Two who offer keys of one
//! sample at the same moment may mix them up: one sample is wrong then.

use super::bloom::Bloom;
use crate::KeyHash;
use std::array;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

const HOUR: u32 = 3600;
const HOURS: usize = 6;
const CLASSES: usize = 1 << HOURS;
const SAMPLES: usize = 4096;
/// The prior counts as so many samples.
const PRIOR: f64 = 4.0;
/// Each hour the samples before it count this much less.
const FADE: f64 = 0.8;

pub(super) struct History {
    filters: [Bloom; HOURS],
    /// This hour's filter.
    current: AtomicUsize,
    samples: Box<[Sample]>,
    learnt: Mutex<Learnt>,
}

struct Learnt {
    /// When this hour began.
    began: Option<u32>,
    classes: [Class; CLASSES],
}

/// A key that was offered and is watched. Key 0 is none.
#[derive(Default)]
struct Sample {
    key: AtomicU64,
    reads: AtomicU32,
    /// When it was offered, and as what.
    since: AtomicU32,
    class: AtomicU32,
}

#[derive(Clone, Copy, Default)]
struct Class {
    samples: f64,
    reads: f64,
}

impl History {
    /// For so many different keys that are requested in an hour.
    pub fn new(keys_per_hour: usize) -> Self {
        Self {
            filters: array::from_fn(|_| Bloom::new(keys_per_hour)),
            current: AtomicUsize::new(0),
            samples: (0..SAMPLES).map(|_| Sample::default()).collect(),
            learnt: Mutex::new(Learnt { began: None, classes: [Class::default(); CLASSES] }),
        }
    }

    /// A key was requested, and DRAM had it or not.
    pub fn requested(&self, key: KeyHash, in_dram: bool) {
        self.filters[self.current.load(Relaxed)].add(key.0);
        let sample = self.sample(key);
        if !in_dram && sample.key.load(Relaxed) == key.0 {
            sample.reads.fetch_add(1, Relaxed);
        }
    }

    /// How many reads an hour the key is likely to get from flash. Watches it, if there is room.
    pub fn offer(&self, key: KeyHash, now: u32) -> f64 {
        let class = self.class(key);
        let sample = self.sample(key);
        if sample.key.load(Relaxed) == 0 {
            sample.reads.store(0, Relaxed);
            sample.since.store(now, Relaxed);
            sample.class.store(class as u32, Relaxed);
            sample.key.store(key.0, Relaxed);
        }
        self.expected(class)
    }

    /// Takes in the samples that are over, and goes on to the next hour when it is time.
    pub fn maintain(&self, now: u32) {
        let mut learnt = self.learnt.lock().unwrap();
        let began = *learnt.began.get_or_insert(now);
        for sample in &self.samples {
            if sample.key.load(Relaxed) != 0 && now.saturating_sub(sample.since.load(Relaxed)) >= HOUR {
                let class = &mut learnt.classes[sample.class.load(Relaxed) as usize];
                class.samples += 1.0;
                class.reads += f64::from(sample.reads.load(Relaxed));
                sample.key.store(0, Relaxed);
            }
        }
        let hours = now.saturating_sub(began) / HOUR;
        for _ in 0..hours.min(HOURS as u32) {
            let next = (self.current.load(Relaxed) + 1) % HOURS;
            self.filters[next].clear();
            self.current.store(next, Relaxed);
            for class in &mut learnt.classes {
                (class.samples, class.reads) = (class.samples * FADE, class.reads * FADE);
            }
        }
        learnt.began = Some(began + hours * HOUR);
    }

    pub fn memory_bytes(&self) -> usize {
        self.filters.iter().map(Bloom::memory_bytes).sum::<usize>() + size_of_val(&*self.samples) + size_of::<Learnt>()
    }

    fn class(&self, key: KeyHash) -> usize {
        let current = self.current.load(Relaxed);
        let has = |age: usize| self.filters[(current + HOURS - age) % HOURS].has(key.0);
        (0..HOURS).map(|age| usize::from(has(age)) << age).sum()
    }

    fn expected(&self, class: usize) -> f64 {
        let prior = class.count_ones() as f64 / HOURS as f64;
        let Class { samples, reads } = self.learnt.lock().unwrap().classes[class];
        (reads + prior * PRIOR) / (samples + PRIOR)
    }

    fn sample(&self, key: KeyHash) -> &Sample {
        &self.samples[key.0 as usize % SAMPLES]
    }
}

#[cfg(test)]
mod tests {
    use super::super::bloom::mix;
    use super::*;

    fn key(i: u64) -> KeyHash {
        KeyHash(mix(i + 1))
    }

    #[test]
    fn the_hours_of_requests_are_remembered_for_six() {
        let history = History::new(1000);
        history.maintain(0);
        history.requested(key(1), true);
        for hour in 0..8 {
            history.maintain(hour * HOUR);
            let expected = if hour < 6 { 1 << hour } else { 0 };
            assert_eq!(history.class(key(1)), expected, "after {hour} hours");
            assert_eq!(history.class(key(2)), 0);
        }
        history.requested(key(1), true);
        history.maintain(100 * HOUR);
        assert_eq!(history.class(key(1)), 0, "a long pause forgets all");
    }

    #[test]
    fn who_was_requested_more_often_is_expected_to_be_read_more() {
        let history = History::new(1000);
        for hour in 0..6 {
            history.maintain(hour * HOUR);
            history.requested(key(1), true);
            if hour == 3 {
                history.requested(key(2), true);
            }
        }
        let expected: Vec<f64> = (1..=3).map(|i| history.offer(key(i), 5 * HOUR)).collect();
        assert!(expected.is_sorted_by(|a, b| a > b), "{expected:?}");
    }

    #[test]
    fn what_a_pattern_is_worth_is_learnt() {
        let history = History::new(100_000);
        history.maintain(0);
        // Keys that were requested this hour are never read again; others are, from flash three times and from DRAM often.
        let (seen, unseen) = (0..500, 1000..1500);
        for hour in 0..4 {
            let now = hour * HOUR;
            history.maintain(now);
            seen.clone().for_each(|i| history.requested(key(10_000 * u64::from(hour) + i), true));
            for i in seen.clone().chain(unseen.clone()) {
                history.offer(key(10_000 * u64::from(hour) + i), now);
            }
            for i in unseen.clone() {
                let key = key(10_000 * u64::from(hour) + i);
                (0..3).for_each(|_| history.requested(key, false));
                (0..9).for_each(|_| history.requested(key, true));
            }
        }
        history.maintain(4 * HOUR);
        let (worthless, worthy) = (history.expected(1), history.expected(0));
        assert!(worthless < 0.05 && (2.8..3.1).contains(&worthy), "{worthless} {worthy}");
    }

    #[test]
    fn a_sample_is_watched_for_an_hour_and_counts_once() {
        let history = History::new(1000);
        history.maintain(0);
        history.offer(key(1), 0);
        history.requested(key(1), false);
        history.maintain(HOUR - 1);
        assert_eq!(history.learnt.lock().unwrap().classes[0].samples, 0.0);
        for now in [HOUR, HOUR + 1] {
            history.maintain(now);
            history.requested(key(1), false);
            let Class { samples, reads } = history.learnt.lock().unwrap().classes[0];
            assert_eq!((samples, reads), (FADE, FADE));
        }
    }

    #[test]
    fn its_memory_is_that_of_its_filters_and_samples() {
        let (small, large) = (History::new(1 << 10).memory_bytes(), History::new(1 << 20).memory_bytes());
        assert_eq!(large - small, 6 * ((1 << 20) - (1 << 10)) * 12 / 8);
    }
}
