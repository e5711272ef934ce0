//! A worker's side of observing: which reads are sampled, and what is noted of the commands in them.
//!
//! One read of a worker in so many is sampled, at random distances, about one per [`PERIOD`] and worker, every read while
//! there are few. From the moment that the read has returned, each command that it completes is timed until its answer is
//! in the output; and the keys of some are noted. A sample stands for the reads since the one before, so the sums are
//! estimates of all commands. A read that is not sampled costs two words of the worker's own.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Command;
use super::histogram::Latencies;
use super::hot_keys::HotKeys;

/// Time between two samples of a worker that is busy.
const PERIOD: Duration = Duration::from_millis(2);
/// After so long without a sample the next read is one.
const QUIET: Duration = Duration::from_millis(100);
/// The most reads that one sample stands for.
const GAP_MOST: u32 = 1 << 14;
/// Keys of one run of gets that are noted.
const KEYS_PER_RUN: usize = 8;

/// What a worker leaves for others to read.
#[derive(Default)]
pub struct Samples {
    pub latencies: Latencies,
    /// Taken by the worker for sampled commands, and now and then by the one who asks.
    pub hot_keys: Mutex<HotKeys>,
}

/// Decides, and notes; used by its worker alone.
pub struct Probe {
    enabled: bool,
    /// When the read that is being processed returned, if it is sampled.
    sampled: Cell<Option<Instant>>,
    /// What each command of the sampled read counts for.
    weight: Cell<u32>,
    /// Reads to let pass before the next sample, of those that were drawn.
    remaining: Cell<u32>,
    drawn: Cell<u32>,
    /// Reads per sample, on average.
    gap: Cell<u32>,
    last_sample: Cell<Instant>,
    random: Cell<u64>,
}

impl Probe {
    pub fn new(enabled: bool, worker: usize) -> Self {
        Self {
            enabled,
            sampled: Cell::new(None),
            weight: Cell::new(1),
            remaining: Cell::new(0),
            drawn: Cell::new(0),
            gap: Cell::new(1),
            last_sample: Cell::new(Instant::now()),
            random: Cell::new(worker as u64 ^ 0x9e37_79b9_7f4a_7c15),
        }
    }

    /// A round of events begins: after a quiet time no sample is skipped.
    pub fn begin_round(&self, now: Instant) {
        if self.remaining.get() > 0 && now.saturating_duration_since(self.last_sample.get()) > QUIET {
            self.drawn.set(self.drawn.get() - self.remaining.get());
            self.remaining.set(0);
            self.gap.set(1);
        }
    }

    /// A read has returned bytes.
    #[inline]
    pub fn after_read(&self) {
        let remaining = self.remaining.get();
        if remaining > 0 {
            self.remaining.set(remaining - 1);
            self.sampled.set(None);
        } else if self.enabled {
            self.sample(Instant::now());
        }
    }

    #[cold]
    fn sample(&self, now: Instant) {
        let since = now.saturating_duration_since(self.last_sample.replace(now));
        let gap = match self.gap.get() {
            gap if since < PERIOD / 2 => (gap * 2).min(GAP_MOST),
            gap if since > PERIOD * 2 => (gap / 2).max(1),
            gap => gap,
        };
        self.gap.set(gap);
        self.weight.set(self.drawn.get() + 1);
        self.sampled.set(Some(now));
        // Evenly from 0 to twice the mean, so that no rhythm of the traffic meets one of the samples.
        let drawn = self.next_random() % (2 * gap - 1);
        self.drawn.set(drawn);
        self.remaining.set(drawn);
    }

    fn next_random(&self) -> u32 {
        // xorshift64* (Vigna, 2016): its upper half is the good one.
        let mut word = self.random.get();
        word ^= word >> 12;
        word ^= word << 25;
        word ^= word >> 27;
        self.random.set(word);
        (word.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// Whether the commands that are being executed are to be noted.
    #[inline]
    pub fn is_sampling(&self) -> bool {
        self.sampled.get().is_some()
    }

    /// A sampled command has been answered.
    pub fn note(&self, samples: &Samples, command: Command, key: Option<&[u8]>) {
        let Some(read_at) = self.sampled.get() else { return };
        let weight = self.weight.get();
        samples.latencies.add(command, read_at.elapsed().as_nanos() as u64, weight.into());
        if let Some(key) = key {
            samples.hot_keys.lock().unwrap_or_else(PoisonError::into_inner).add(key, weight.into());
        }
    }

    /// A run of sampled gets has been answered, `commands` of them complete.
    pub fn note_gets(&self, samples: &Samples, keys: &[&[u8]], commands: usize) {
        let Some(read_at) = self.sampled.get() else { return };
        let weight = self.weight.get();
        let nanoseconds = read_at.elapsed().as_nanos() as u64;
        samples.latencies.add(Command::Get, nanoseconds, u64::from(weight) * commands as u64);
        let step = keys.len().div_ceil(KEYS_PER_RUN).max(1);
        let first = self.next_random() as usize % step;
        let mut hot_keys = samples.hot_keys.lock().unwrap_or_else(PoisonError::into_inner);
        for key in keys.iter().skip(first).step_by(step) {
            hot_keys.add(key, f64::from(weight) * step as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::histogram::Histogram;
    use super::super::hot_keys::hottest;
    use super::*;

    /// Reads of one command each, `nanoseconds` apart; answers how many were sampled.
    fn read(probe: &Probe, samples: &Samples, now: &mut Instant, count: u32, apart: Duration) -> u32 {
        let mut sampled = 0;
        for _ in 0..count {
            *now += apart;
            probe.begin_round(*now);
            if probe.remaining.get() > 0 {
                probe.after_read();
            } else {
                probe.sample(*now);
                sampled += 1;
                probe.note(samples, Command::Set, Some(b"k"));
            }
        }
        sampled
    }

    #[test]
    fn busy_workers_sample_rarely_and_quiet_ones_everything() {
        let (probe, samples) = (Probe::new(true, 0), Samples::default());
        let mut now = Instant::now();
        let busy = read(&probe, &samples, &mut now, 1_000_000, Duration::from_micros(10));
        assert!((2500..20_000).contains(&busy), "{busy} samples in 10 s");
        now += QUIET;
        let quiet = read(&probe, &samples, &mut now, 50, Duration::from_millis(10));
        assert_eq!(quiet, 50);
        let count = Histogram::sum([&samples.latencies].into_iter(), Command::Set).count();
        assert!((990_000..=1_000_050).contains(&count), "{count}");
    }

    #[test]
    fn a_disabled_probe_samples_nothing() {
        let (probe, samples) = (Probe::new(false, 0), Samples::default());
        for _ in 0..10 {
            probe.after_read();
            assert!(!probe.is_sampling());
            probe.note(&samples, Command::Get, Some(b"k"));
        }
        assert_eq!(Histogram::sum([&samples.latencies].into_iter(), Command::Get).count(), 0);
    }

    #[test]
    fn keys_of_long_runs_are_noted_in_part_and_count_for_all() {
        let (probe, samples) = (Probe::new(true, 0), Samples::default());
        for _ in 0..200 {
            probe.sample(Instant::now());
            probe.weight.set(1);
            probe.note_gets(&samples, &[b"a".as_slice(), b"b", b"b", b"b"].repeat(16), 10);
        }
        let found = hottest([&*samples.hot_keys.lock().unwrap()].into_iter(), 5);
        let share = |at: usize| found[at].1;
        assert_eq!((found[0].0.as_slice(), found[1].0.as_slice()), (b"b".as_slice(), b"a".as_slice()));
        assert!((0.6..0.9).contains(&share(0)) && (0.1..0.4).contains(&share(1)), "{found:?}");
        assert_eq!(Histogram::sum([&samples.latencies].into_iter(), Command::Get).count(), 2000);
    }
}
