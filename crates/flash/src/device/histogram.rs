//! Histogram of the durations of transfers, in buckets that grow with the duration.
//!
//! ```text
//! microseconds   0  1 .. 7    8  9 .. 15    16  18 .. 30    32  36 .. 60    ...    up to 2^26 (67 s), and longer
//! ```
//! Each octave has eight buckets, so a percentile is at most an eighth too high. Any thread may add and read: a read
//! during adds may miss some of them.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const STEPS: usize = 8;
/// Number of octaves, up to 2^26 us. The first one, from 0 on, is not a real octave.
const OCTAVES: usize = 24;
const BUCKETS: usize = STEPS * OCTAVES;

pub(super) struct AtomicHistogram([AtomicU64; BUCKETS]);

/// Durations that were counted, by length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyHistogram([u64; BUCKETS]);

impl AtomicHistogram {
    pub fn new() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }

    pub fn add(&self, duration: Duration) {
        self.0[bucket_of(duration)].fetch_add(1, Relaxed);
    }

    pub fn read(&self) -> LatencyHistogram {
        LatencyHistogram(array::from_fn(|bucket| self.0[bucket].load(Relaxed)))
    }
}

impl LatencyHistogram {
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The duration that `percent` of the durations do not exceed, at most an eighth too high. `None` if there are
    /// none.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let count = self.count();
        let rank = ((percent / 100.0 * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut of_paths = 0;
        let bucket = self.0.iter().position(|&bucket| {
            of_paths += bucket;
            of_paths >= rank
        })?;
        Some(limit_of(bucket))
    }

    /// Each bucket with counts: its longest duration, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.0.iter().enumerate().filter(|&(_, &count)| count != 0).map(|(bucket, &count)| (limit_of(bucket), count))
    }
}

fn bucket_of(duration: Duration) -> usize {
    let micros = duration.as_micros().min(u128::from(u64::MAX)) as u64;
    if micros < STEPS as u64 {
        return micros as usize;
    }
    let shift = micros.ilog2() - STEPS.ilog2();
    let bucket = (shift as usize + 1) * STEPS + (micros >> shift) as usize - STEPS;
    bucket.min(BUCKETS - 1)
}

/// The longest duration of a bucket, in whole microseconds.
fn limit_of(bucket: usize) -> Duration {
    let micros = match bucket / STEPS {
        0 => bucket as u64,
        octave => (((STEPS + bucket % STEPS + 1) as u64) << (octave - 1)) - 1,
    };
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_limits_are_within_an_eighth_of_durations() {
        let mut before = 0;
        for micros in (0..5000).chain((5000..40_000_000).step_by(9973)) {
            let bucket = bucket_of(Duration::from_micros(micros));
            let limit = limit_of(bucket).as_micros() as u64;
            assert!(micros <= limit && limit <= micros + micros / 8, "{micros} in a bucket up to {limit}");
            assert!(bucket >= before);
            before = bucket;
        }
        assert_eq!(bucket_of(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_what_was_added() {
        let histogram = AtomicHistogram::new();
        assert_eq!(histogram.read().percentile(50.0), None);
        for millis in 1..=100 {
            histogram.add(Duration::from_millis(millis));
        }
        let latencies = histogram.read();
        assert_eq!(latencies.count(), 100);
        for (percent, millis) in [(0.0, 1.0), (1.0, 1.0), (50.0, 50.0), (99.0, 99.0), (100.0, 100.0)] {
            let found = latencies.percentile(percent).unwrap().as_secs_f64() * 1000.0;
            assert!((millis..=millis * 1.125).contains(&found), "{percent} %: {found} ms");
        }
        assert_eq!(latencies.buckets().map(|(_, count)| count).sum::<u64>(), 100);
    }
}
