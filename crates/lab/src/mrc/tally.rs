//! Counts of a simulation, and the interval of a miss ratio that was sampled.

use ebbtide_control::Point;

/// Number of groups of keys, whose differences give the error of a sample.
const GROUPS: usize = 16;
/// 97.5 % of a normal distribution lie below its mean plus this many standard deviations.
const NORMAL_975: f64 = 1.96;

/// Hits and misses of gets and of their bytes, of each group of keys.
#[derive(Default)]
pub(super) struct Tally {
    gets: Counted,
    bytes: Counted,
}

/// Gets and misses by groups of keys, or their bytes.
#[derive(Default)]
struct Counted {
    asked: [f64; GROUPS],
    missed: [f64; GROUPS],
}

/// A ratio and its 95 % interval.
struct Estimate {
    ratio: f64,
    low: f64,
    high: f64,
}

impl Counted {
    fn add(&mut self, hit: bool, amount: f64, group: usize) {
        self.asked[group] += amount;
        self.missed[group] += if hit { 0.0 } else { amount };
    }

    /// The ratio of the sums, and its error by how far the groups are from it (Cochran, Sampling Techniques, 6.3).
    fn estimate(&self, sampled: bool) -> Estimate {
        let asked = self.asked.iter().sum::<f64>().max(1.0);
        let ratio = self.missed.iter().sum::<f64>() / asked;
        let squares = self.asked.iter().zip(&self.missed).map(|(asked, missed)| (missed - ratio * asked).powi(2));
        let variance = squares.sum::<f64>() * GROUPS as f64 / (GROUPS - 1) as f64;
        Estimate::of(ratio, if sampled { NORMAL_975 * variance.sqrt() / asked } else { 0.0 })
    }

    /// The miss ratio and its interval where the total of the whole trace is known: `asked`, `rate` of it sampled.
    fn estimate_of_all(&self, rate: f64, asked: f64, error: f64) -> Estimate {
        let asked = asked.max(1.0) * rate;
        let missed = self.missed.iter().sum::<f64>();
        let mean = missed / GROUPS as f64;
        let squares = self.missed.iter().map(|missed| (missed - mean).powi(2)).sum::<f64>();
        let variance = squares * GROUPS as f64 / (GROUPS - 1) as f64;
        let sampled = if rate < 1.0 { NORMAL_975 * variance.sqrt() / asked } else { 0.0 };
        Estimate::of((missed / asked).min(1.0), sampled + error)
    }
}

impl Estimate {
    fn of(ratio: f64, error: f64) -> Self {
        Self { ratio, low: (ratio - error).max(0.0), high: (ratio + error).min(1.0) }
    }
}

impl Tally {
    /// Counts a get of a key with this hash.
    pub(super) fn add(&mut self, hit: bool, bytes: u64, hash: u64) {
        let group = hash as usize % GROUPS;
        self.gets.add(hit, 1.0, group);
        self.bytes.add(hit, bytes as f64, group);
    }

    /// The ratios of the gets that were counted.
    pub(super) fn point(&self, memory_bytes: u64, sampled: bool) -> Point {
        point(memory_bytes, &self.gets.estimate(sampled), &self.bytes.estimate(sampled))
    }

    /// The same where the gets of all keys are known. The keys that most gets ask for hit, whatever the sample has of
    /// them, so only the misses are multiplied (Waldspurger and others, FAST'15, section 3.2). `error` is the part of
    /// the interval that no sample explains.
    pub(super) fn point_of_all(&self, memory_bytes: u64, rate: f64, all: AllGets, error: f64) -> Point {
        let of_gets = self.gets.estimate_of_all(rate, all.gets, error);
        point(memory_bytes, &of_gets, &self.bytes.estimate_of_all(rate, all.bytes, error))
    }
}

fn point(memory_bytes: u64, of_gets: &Estimate, of_bytes: &Estimate) -> Point {
    Point {
        memory_bytes,
        miss_ratio: of_gets.ratio,
        low: of_gets.low,
        high: of_gets.high,
        byte_miss_ratio: of_bytes.ratio,
        byte_low: of_bytes.low,
        byte_high: of_bytes.high,
    }
}

/// The gets of all keys, of a sample and others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AllGets {
    pub(super) gets: f64,
    pub(super) bytes: f64,
}
