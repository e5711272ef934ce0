//! Latencies by command: fixed log-linear buckets, eight to a power of two, so that a value is known to 6 % or better.
//!
//! A worker's histogram has one writer, the worker, which adds with a plain load and store. Any thread may read it
//! meanwhile; a sum can lack the sample that is being written.

use std::sync::atomic::{AtomicU64, Ordering};

use super::CommandKind;

/// Values below 2^MIN_OCTAVE nanoseconds share the first bucket, values from 2^MAX_OCTAVE on the last.
const MIN_OCTAVE: u32 = 8;
const MAX_OCTAVE: u32 = 36;
/// Buckets per power of two, as a power of two.
const DIVISION: u32 = 3;
const BUCKETS: usize = ((MAX_OCTAVE - MIN_OCTAVE) << DIVISION) as usize + 2;

/// The bucket of a latency.
fn bucket(nanoseconds: u64) -> usize {
    match nanoseconds.checked_ilog2() {
        None | Some(..MIN_OCTAVE) => 0,
        Some(MAX_OCTAVE..) => BUCKETS - 1,
        Some(octave) => {
            let part = (nanoseconds >> (octave - DIVISION)) as u32 & ((1 << DIVISION) - 1);
            (((octave - MIN_OCTAVE) << DIVISION) + part) as usize + 1
        }
    }
}

/// The smallest latency above a bucket, in nanoseconds.
fn end(bucket: usize) -> u64 {
    let part = bucket as u64 % (1 << DIVISION);
    let octave = MIN_OCTAVE + (bucket >> DIVISION) as u32;
    ((1 << DIVISION) + part) << (octave - DIVISION)
}

/// The latencies that one worker has seen.
pub struct CommandLatencies {
    commands: [Recorder; CommandKind::ALL.len()],
}

struct Recorder {
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Default for CommandLatencies {
    fn default() -> Self {
        let recorder =
            || Recorder { counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), sum: AtomicU64::new(0) };
        Self { commands: std::array::from_fn(|_| recorder()) }
    }
}

impl CommandLatencies {
    /// Adds `weight` commands of this latency. Only for the worker that owns the histogram.
    pub fn add(&self, command: CommandKind, nanoseconds: u64, weight: u64) {
        let recorder = &self.commands[command as usize];
        let add = |word: &AtomicU64, amount| word.store(word.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
        add(&recorder.counts[bucket(nanoseconds)], weight);
        add(&recorder.sum, nanoseconds.saturating_mul(weight));
    }
}

/// A histogram at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyHistogram {
    counts: Box<[u64]>,
    sum: u64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into(), sum: 0 }
    }
}

impl LatencyHistogram {
    /// Latencies of a command in all workers.
    pub fn sum<'a>(workers: impl Iterator<Item = &'a CommandLatencies>, command: CommandKind) -> Self {
        let mut total = Self::default();
        for worker in workers {
            let recorder = &worker.commands[command as usize];
            for (count, word) in total.counts.iter_mut().zip(&recorder.counts) {
                *count += word.load(Ordering::Relaxed);
            }
            total.sum += recorder.sum.load(Ordering::Relaxed);
        }
        total
    }

    /// Latencies recorded since an earlier reading.
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = self.counts.iter().zip(&earlier.counts).map(|(now, before)| now.saturating_sub(*before));
        Self { counts: counts.collect(), sum: self.sum.saturating_sub(earlier.sum) }
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all latencies in seconds.
    pub fn sum_seconds(&self) -> f64 {
        self.sum as f64 / 1e9
    }

    pub fn mean_us(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum as f64 / 1e3 / count as f64,
        }
    }

    /// The latency in microseconds that this share of the commands does not exceed, as the end of its bucket; 1.0 asks
    /// for the longest.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let count = self.count();
        let rank = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.map_or(0.0, |bucket| end(bucket) as f64 / 1e3)
    }

    /// Number of those that took less than 2^`octave` nanoseconds.
    pub fn cumulative(&self, octave: u32) -> u64 {
        let buckets = ((octave.clamp(MIN_OCTAVE, MAX_OCTAVE) - MIN_OCTAVE) << DIVISION) as usize + 1;
        self.counts[..buckets].iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_just_below_their_buckets_end() {
        let mut last = 0;
        for nanoseconds in (0..5000).chain((12..40).flat_map(|o| (0..40).map(move |i| (1u64 << o) + (i << (o - 6))))) {
            let bucket = bucket(nanoseconds);
            assert!(bucket >= last || nanoseconds < 5000, "{nanoseconds}");
            last = bucket;
            if nanoseconds < 1 << MAX_OCTAVE {
                assert!(nanoseconds < end(bucket), "{nanoseconds} {bucket}");
            }
            if (1 << MIN_OCTAVE..1 << MAX_OCTAVE).contains(&nanoseconds) {
                assert!(end(bucket) <= nanoseconds + nanoseconds / 8 + 1, "{nanoseconds}");
            }
        }
        assert_eq!(last, BUCKETS - 1);
    }

    #[test]
    fn quantiles_count_weights() {
        let workers = [CommandLatencies::default(), CommandLatencies::default()];
        workers[0].add(CommandKind::Get, 1000, 90);
        workers[1].add(CommandKind::Get, 100_000, 10);
        workers[1].add(CommandKind::Set, 5, 1);
        let all = LatencyHistogram::sum(workers.iter(), CommandKind::Get);
        assert_eq!((all.count(), all.sum), (100, 90 * 1000 + 10 * 100_000));
        assert!((1.0..1.13).contains(&all.quantile_us(0.5)) && (1.0..1.13).contains(&all.quantile_us(0.9)));
        assert!((100.0..113.0).contains(&all.quantile_us(0.91)) && (100.0..113.0).contains(&all.quantile_us(1.0)));
        assert_eq!(
            (all.cumulative(10), all.cumulative(16), all.cumulative(17), all.cumulative(40)),
            (90, 90, 100, 100)
        );
        assert_eq!(all.mean_us(), 10.9);
        workers[0].add(CommandKind::Get, 1000, 1);
        let later = LatencyHistogram::sum(workers.iter(), CommandKind::Get).since(&all);
        assert_eq!((later.count(), later.sum), (1, 1000));
        assert_eq!(LatencyHistogram::default().quantile_us(0.5), 0.0);
    }
}
