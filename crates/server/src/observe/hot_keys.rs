//! The most requested keys now: the space-saving sketch (Metwally, Agrawal, El Abbadi: "Efficient computation of
//! frequent and top-k elements in data streams", 2005) over sampled keys, weighted and decayed.
//!
//! The sketch keeps a fixed number of keys. An unknown key takes the place and the weight of the key with the smallest
//! weight; that weight bounds the error of the new key. Reports subtract it, so no key is overrated.
//!
//! A sample of a busy worker has the weight of thousands of accesses, although it shows one. A key that was sampled
//! once may have been asked for once, so it is not reported.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Number of keys in a worker's sketch: a key with more than 1/256 of the accesses is always among them.
const CAPACITY: usize = 256;
/// Samples that a key needs to be reported.
const MIN_SAMPLES: u64 = 2;
/// Part of all accesses from which on a key is hot.
const MIN_SHARE: f64 = 0.001;
/// Keys with less weight are dropped, without a visible effect on any share: an access weighs one.
const MIN_WEIGHT: f32 = 1.0 / 1024.0;

/// The keys of one worker.
#[derive(Default)]
pub struct HotKeys {
    hasher: RandomState,
    /// Parallel to each other, so that looking for a hash or for the least weight goes through little memory.
    hashes: Vec<u64>,
    weights: Vec<f32>,
    entries: Vec<HotKey>,
    total: f64,
}

struct HotKey {
    key: Vec<u8>,
    /// The most that the weight may be too high.
    error: f32,
    /// Since the key is known here: samples, gets, and hits among the gets.
    samples: u32,
    gets: f32,
    hits: f32,
}

/// A key with more accesses than others.
#[derive(Clone, Debug, PartialEq)]
pub struct HottestKey {
    pub key: Vec<u8>,
    /// The least part of all accesses that it has.
    pub share: f64,
    /// Of its gets; `None` without gets.
    pub hit_ratio: Option<f64>,
}

impl HotKeys {
    /// Counts `weight` accesses to a key. `is_hit` is of gets.
    pub fn add(&mut self, key: &[u8], weight: f64, is_hit: Option<bool>) {
        self.total += weight;
        let weight = weight as f32;
        let gets = if is_hit.is_some() { weight } else { 0.0 };
        let hits = if is_hit == Some(true) { weight } else { 0.0 };
        let hash = self.hasher.hash_one(key);
        if let Some(at) = self.find(hash, key) {
            self.weights[at] += weight;
            self.entries[at].samples = self.entries[at].samples.saturating_add(1);
            self.entries[at].gets += gets;
            self.entries[at].hits += hits;
            return;
        }
        if self.entries.len() < CAPACITY {
            self.hashes.push(hash);
            self.weights.push(weight);
            self.entries.push(HotKey { key: key.to_vec(), error: 0.0, samples: 1, gets, hits });
            return;
        }
        let min = self.weights.iter().copied().fold(f32::INFINITY, f32::min);
        let Some(at) = self.weights.iter().position(|weight| *weight == min) else { return };
        self.hashes[at] = hash;
        self.weights[at] = min + weight;
        let entry = &mut self.entries[at];
        entry.key.clear();
        entry.key.extend_from_slice(key);
        (entry.error, entry.samples, entry.gets, entry.hits) = (min, 1, gets, hits);
    }

    /// Counts accesses to keys that are not known, which lower the shares of all others.
    pub fn add_unknown(&mut self, weight: f64) {
        self.total += weight;
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let mut same = self.hashes.iter().enumerate().filter(|(_, known)| **known == hash);
        same.find(|(at, _)| self.entries[*at].key == key).map(|(at, _)| at)
    }

    /// Multiplies all weights by `factor`.
    pub fn decay(&mut self, factor: f64) {
        self.total *= factor;
        let factor = factor as f32;
        self.weights.iter_mut().for_each(|weight| *weight *= factor);
        for entry in &mut self.entries {
            entry.error *= factor;
            entry.gets *= factor;
            entry.hits *= factor;
        }
        for at in (0..self.entries.len()).rev().filter(|at| self.weights[*at] < MIN_WEIGHT).collect::<Vec<_>>() {
            self.hashes.swap_remove(at);
            self.weights.swap_remove(at);
            self.entries.swap_remove(at);
        }
        if self.entries.is_empty() {
            self.total = 0.0;
        }
    }
}

/// Keys of several sketches, the hottest first.
pub fn hottest<'a>(workers: impl Iterator<Item = &'a HotKeys>, max: usize) -> Vec<HottestKey> {
    let mut total = 0.0;
    // Samples; weight without the error, gets, hits.
    let mut sum: HashMap<&[u8], (u64, [f64; 3])> = HashMap::new();
    for worker in workers {
        total += worker.total;
        for (entry, weight) in worker.entries.iter().zip(&worker.weights) {
            let counts = [weight - entry.error, entry.gets, entry.hits];
            let (samples, known) = sum.entry(&entry.key).or_default();
            *samples += u64::from(entry.samples);
            known.iter_mut().zip(counts).for_each(|(sum, count)| *sum += f64::from(count));
        }
    }
    let is_told = |samples: u64, weight: f64| samples >= MIN_SAMPLES && weight > 0.0 && weight >= MIN_SHARE * total;
    let mut keys: Vec<_> = sum.into_iter().filter(|(_, (samples, [weight, ..]))| is_told(*samples, *weight)).collect();
    keys.sort_by(|(a_key, (_, [a, ..])), (b_key, (_, [b, ..]))| b.total_cmp(a).then_with(|| a_key.cmp(b_key)));
    keys.truncate(max);
    let told = keys.into_iter().map(|(key, (_, [weight, gets, hits]))| HottestKey {
        key: key.to_vec(),
        share: weight / total,
        hit_ratio: (gets > 0.0).then(|| (hits / gets).min(1.0)),
    });
    told.collect()
}

/// A key as text: bytes that are not printable ASCII are escaped as in a C string.
pub fn printable(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(sketches: &[HotKeys]) -> Vec<(String, f64)> {
        hottest(sketches.iter(), 20).into_iter().map(|hot| (printable(&hot.key), hot.share)).collect()
    }

    #[test]
    fn frequent_keys_are_found_and_not_overrated() {
        let mut sketches = [HotKeys::default(), HotKeys::default()];
        for round in 0..40_000u32 {
            let sketch = &mut sketches[round as usize % 2];
            sketch.add(format!("rare-{round}").as_bytes(), 1.0, None);
            if round % 4 < 2 {
                sketch.add(b"hot", 1.0, Some(round % 8 < 1));
            }
            if round % 10 == 0 {
                sketch.add(b"warm", 2.0, None);
            }
        }
        let found = shares(&sketches);
        assert_eq!((found[0].0.as_str(), found[1].0.as_str()), ("hot", "warm"));
        let all = 40_000.0 + 20_000.0 + 8000.0;
        for ((_, share), real) in found.iter().zip([20_000.0 / all, 8000.0 / all]) {
            assert!(*share <= real + 1e-9 && *share > real - 2.0 / CAPACITY as f64, "{share} of {real}");
        }
        assert!(found.len() <= 20);
        // One of the four rounds of eight in which the key is read has a hit; writes are no gets.
        let hottest = hottest(sketches.iter(), 2);
        assert!(hottest[0].hit_ratio.is_some_and(|ratio| (ratio - 0.25).abs() < 0.02), "{hottest:?}");
        assert_eq!(hottest[1].hit_ratio, None);
    }

    #[test]
    fn what_is_hot_now_overtakes_what_was() {
        let mut sketches = [HotKeys::default()];
        sketches[0].add(b"old", 1000.0, None);
        for _ in 0..100 {
            sketches[0].decay(0.9);
        }
        sketches[0].add(b"new", 0.5, None);
        sketches[0].add(b"new", 0.5, None);
        let found = shares(&sketches);
        assert_eq!(found[0].0, "new");
        assert!(found[0].1 > 0.9);
    }

    #[test]
    fn what_nobody_asks_for_any_more_is_forgotten() {
        let mut sketches = [HotKeys::default()];
        for key in ["old", "other"].repeat(2) {
            sketches[0].add(key.as_bytes(), 5e5, None);
        }
        assert_eq!(shares(&sketches).len(), 2);
        for second in 0..20_000 {
            sketches[0].decay(0.933);
            let found = shares(&sketches);
            assert!(found.iter().all(|(_, share)| *share <= 0.500_1), "{second}: {found:?}");
        }
        assert!(shares(&sketches).is_empty());
        sketches[0].add(b"new", 1.0, None);
        assert!(shares(&sketches).is_empty(), "one sample shows one access");
        sketches[0].add(b"new", 1.0, None);
        assert_eq!(shares(&sketches), [("new".to_string(), 1.0)]);
    }

    #[test]
    fn keys_sampled_once_are_not_hot() {
        let mut sketches = [HotKeys::default(), HotKeys::default()];
        for number in 0..1000 {
            sketches[number % 2].add(format!("written-once-{number}").as_bytes(), 250.0, None);
        }
        assert!(shares(&sketches).is_empty());
        // Once on each of two workers.
        sketches.iter_mut().for_each(|sketch| sketch.add(b"hot", 250.0, None));
        assert_eq!(shares(&sketches), [("hot".to_owned(), 500.0 / 250_500.0)]);
    }

    #[test]
    fn a_small_share_is_not_hot() {
        let mut sketch = HotKeys::default();
        for _ in 0..2 {
            sketch.add(b"cold", 4.0, Some(true));
            sketch.add(b"warm", 6.0, Some(true));
        }
        sketch.add_unknown(9980.0);
        assert_eq!(shares(&[sketch]), [("warm".to_owned(), 0.0012)]);
    }

    #[test]
    fn keys_are_shown_as_text() {
        assert_eq!(printable(b"user:1\xff\"\\\n"), "user:1\\xff\\\"\\\\\\n");
        assert!(shares(&[]).is_empty());
    }
}
