//! Counts of a simulation, and the interval of a miss ratio that was sampled.

use ebbtide_control::Point;

/// Groups of keys, whose differences tell the error of a sample.
const GROUPS: usize = 16;
/// 97.5 % of a normal distribution lie below its mean plus this many standard deviations.
const NORMAL_975: f64 = 1.96;

/// Hits and misses, in all and of each group of keys.
#[derive(Default)]
pub(super) struct Tally {
    gets: [f64; GROUPS],
    misses: [f64; GROUPS],
    bytes: f64,
    missed_bytes: f64,
}

impl Tally {
    /// Counts a get of a key with this hash.
    pub(super) fn add(&mut self, hit: bool, bytes: u64, hash: u64) {
        let group = hash as usize % GROUPS;
        let miss = if hit { 0.0 } else { 1.0 };
        self.gets[group] += 1.0;
        self.misses[group] += miss;
        self.bytes += bytes as f64;
        self.missed_bytes += miss * bytes as f64;
    }

    /// The ratio of the sums, and its error by how far the groups are from it (Cochran, Sampling Techniques, 6.3).
    pub(super) fn point(&self, memory_bytes: u64, sampled: bool) -> Point {
        let gets = self.gets.iter().sum::<f64>().max(1.0);
        let miss_ratio = self.misses.iter().sum::<f64>() / gets;
        let squares = self.gets.iter().zip(&self.misses).map(|(gets, misses)| (misses - miss_ratio * gets).powi(2));
        let variance = squares.sum::<f64>() * GROUPS as f64 / (GROUPS - 1) as f64;
        let error = if sampled { NORMAL_975 * variance.sqrt() / gets } else { 0.0 };
        Point {
            memory_bytes,
            miss_ratio,
            low: (miss_ratio - error).max(0.0),
            high: (miss_ratio + error).min(1.0),
            byte_miss_ratio: self.missed_bytes / self.bytes.max(1.0),
        }
    }

    /// The same where the gets of all keys are known. The keys that most gets ask for hit, whatever the sample has of
    /// them, so only the misses are multiplied (Waldspurger and others, FAST'15, section 3.2). `error` is the part of
    /// the interval that no sample explains.
    pub(super) fn point_of_all(&self, memory_bytes: u64, rate: f64, all: AllGets, error: f64) -> Point {
        let (gets, bytes) = (all.gets.max(1.0) * rate, all.bytes.max(1.0) * rate);
        let misses = self.misses.iter().sum::<f64>();
        let mean = misses / GROUPS as f64;
        let squares = self.misses.iter().map(|misses| (misses - mean).powi(2)).sum::<f64>();
        let variance = squares * GROUPS as f64 / (GROUPS - 1) as f64;
        let sampled = if rate < 1.0 { NORMAL_975 * variance.sqrt() / gets } else { 0.0 };
        let miss_ratio = (misses / gets).min(1.0);
        Point {
            memory_bytes,
            miss_ratio,
            low: (miss_ratio - sampled - error).max(0.0),
            high: (miss_ratio + sampled + error).min(1.0),
            byte_miss_ratio: (self.missed_bytes / bytes).min(1.0),
        }
    }
}

/// The gets of all keys, of a sample and others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AllGets {
    pub(super) gets: f64,
    pub(super) bytes: f64,
}
