//! Feeds the sampled accesses of a live cache to its profiler.

use ebbtide_control::{Profiler, SizeMisses};
use ebbtide_store::{AccessSample, SampledAccess};

/// Takes in an access.
pub(crate) fn note(profiler: &mut Profiler, sample: AccessSample, now_seconds: u64) {
    let ttl = |expiry: Option<u64>| match expiry {
        None => Some(0),
        Some(at) => u32::try_from(at.saturating_sub(now_seconds)).ok().filter(|&left| left > 0),
    };
    match sample.access {
        SampledAccess::Miss => profiler.get_missed(sample.hash, now_seconds),
        SampledAccess::Removal => profiler.delete(sample.hash, now_seconds),
        SampledAccess::Hit { bytes, expiry_seconds } => {
            // In its last second it is as good as gone.
            profiler.get(sample.hash, bytes, ttl(expiry_seconds).unwrap_or(1), now_seconds);
        }
        SampledAccess::Write { bytes, expiry_seconds } => match ttl(expiry_seconds) {
            Some(ttl) => profiler.set(sample.hash, bytes, ttl, now_seconds),
            None => profiler.delete(sample.hash, now_seconds),
        },
    }
}

/// Sizes of the objects of accesses.
#[derive(Debug, Default)]
pub(crate) struct AccessSizes {
    /// Misses, with the size that the write after each tells.
    pub misses: SizeMisses,
    /// Hits and writes, and their bytes: of a look-aside load each get is one of them.
    accesses: f64,
    bytes: f64,
}

impl AccessSizes {
    pub fn note(&mut self, sample: &AccessSample) {
        match sample.access {
            SampledAccess::Miss => self.misses.missed(sample.hash),
            SampledAccess::Write { bytes, .. } => {
                self.misses.written(sample.hash, bytes);
                self.add(bytes);
            }
            SampledAccess::Hit { bytes, .. } => self.add(bytes),
            SampledAccess::Removal => {}
        }
    }

    fn add(&mut self, bytes: u64) {
        self.accesses += 1.0;
        self.bytes += bytes as f64;
    }

    /// Multiplies the weight of all accesses so far by `factor`.
    pub fn age(&mut self, factor: f64) {
        self.misses.age(factor);
        self.accesses *= factor;
        self.bytes *= factor;
    }

    /// Bytes of the object of an access, on average; `None` before any.
    pub fn mean_bytes(&self) -> Option<f64> {
        (self.accesses > 0.0).then(|| self.bytes / self.accesses)
    }
}
