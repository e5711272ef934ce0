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

/// Counts a miss with the size that the write after it tells.
pub(crate) fn note_size(misses: &mut SizeMisses, sample: &AccessSample) {
    match sample.access {
        SampledAccess::Miss => misses.missed(sample.hash),
        SampledAccess::Write { bytes, .. } => misses.written(sample.hash, bytes),
        SampledAccess::Hit { .. } | SampledAccess::Removal => {}
    }
}
