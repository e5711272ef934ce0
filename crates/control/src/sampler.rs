//! Which keys are sampled, and how many keys each represents.
//!
//! A key has a rank: a number in 0..1 by its hash, divided by the factor of its size. Keys of a rank below the
//! threshold are sampled, so a key is sampled with probability p = min(1, threshold * factor), always or never while
//! the threshold stays, and stands for 1/p keys. The factor is 1 up to the usual size and grows with larger ones: a few
//! large objects make most of the bytes, and without them distances in bytes would be guesses. When more keys are
//! sampled than there is memory for, the threshold falls (the fixed-size SHARDS of FAST'15, section 3.2). It may grow
//! again: then an object stands for as many as the lowest threshold since its last access says, which it carries along.

use crate::histogram::GROUPS;

/// Objects whose mean size is the usual size.
const USUAL_OF: u64 = 1000;
/// Maximum factor of a size: without a limit a few large objects would take all places of the sample.
const MAX_FACTOR: f64 = 64.0;
/// Factor by which the threshold is lowered when the sample is full.
const STEP: f64 = 0.85;

#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    threshold: f64,
    /// Keys are hashes already, and only their rank decides: the caller leaves out keys that are not sampled.
    prefiltered: bool,
    /// Mean size of the first objects; `None` until they have arrived.
    usual: Option<f64>,
    seen: u64,
    seen_bytes: f64,
}

impl Sampler {
    pub(crate) fn new(prefiltered: bool) -> Self {
        Self { threshold: 1.0, prefiltered, usual: None, seen: 0, seen_bytes: 0.0 }
    }

    /// The share of keys of the usual size that is sampled.
    pub(crate) fn rate(&self) -> f64 {
        self.threshold
    }

    /// Learns the usual size from the first objects, which are all sampled.
    pub(crate) fn learn(&mut self, bytes: f64) {
        if self.usual.is_none() && !self.prefiltered {
            self.seen += 1;
            self.seen_bytes += bytes;
            if self.seen == USUAL_OF {
                self.usual = Some((self.seen_bytes / self.seen as f64).max(1.0));
            }
        }
    }

    /// The probability that an object of this size is sampled at a threshold.
    fn probability(&self, threshold: f64, bytes: f64) -> f64 {
        (threshold * self.factor(bytes)).min(1.0)
    }

    /// Number of objects of this size that an object sampled at a threshold represents.
    pub(crate) fn weight_at(&self, threshold: f64, bytes: f64) -> f64 {
        1.0 / self.probability(threshold, bytes)
    }

    /// Number of objects of this size that an object sampled now represents.
    pub(crate) fn weight(&self, bytes: f64) -> f64 {
        self.weight_at(self.threshold, bytes)
    }

    pub(crate) fn takes_at(&self, threshold: f64, key: u64, bytes: f64) -> bool {
        threshold >= 1.0 || self.rank(key) < self.probability(threshold, bytes)
    }

    pub(crate) fn takes(&self, key: u64, bytes: f64) -> bool {
        self.takes_at(self.threshold, key, bytes)
    }

    fn rank(&self, key: u64) -> f64 {
        if self.prefiltered { uniform(key) } else { uniform(spread(key)) }
    }

    /// Samples fewer keys from now on.
    pub(crate) fn lower(&mut self) {
        self.threshold *= STEP;
    }

    /// Samples more keys from now on.
    pub(crate) fn increase_to(&mut self, threshold: f64) {
        self.threshold = threshold.clamp(self.threshold, 1.0);
    }

    fn factor(&self, bytes: f64) -> f64 {
        self.usual.map_or(1.0, |usual| (bytes / usual).clamp(1.0, MAX_FACTOR))
    }
}

/// A hash as a number in 0..1.
fn uniform(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

/// Which of the groups of keys it is in, for the interval.
pub(crate) fn group(key: u64) -> usize {
    (spread(key) % GROUPS as u64) as usize
}

/// Spreads small ids over all bits.
fn spread(key: u64) -> u64 {
    rapidhash::v3::rapidhash_v3(&key.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_sampled_as_the_probability_says() {
        let mut sampler = Sampler::new(false);
        (0..USUAL_OF).for_each(|_| sampler.learn(100.0));
        assert!((0..1000).all(|key| sampler.takes(key, 100.0)), "all while there is memory");
        (0..14).for_each(|_| sampler.lower());
        for (bytes, factor) in [(10.0, 1.0), (100.0, 1.0), (300.0, 3.0), (1e9, 1.0 / sampler.rate())] {
            let taken = (0..100_000).filter(|&key| sampler.takes(key, bytes)).count() as f64 / 100_000.0;
            let expected = sampler.rate() * factor;
            assert!((taken - expected).abs() < 0.01, "{bytes} bytes: {taken} of {expected}");
        }
        assert!((0..100_000).all(|key| !sampler.takes(key, 100.0) || sampler.takes(key, 200.0)));
    }
}
