//! A worker's side of observation: which reads are sampled, and the data recorded of their commands.
//!
//! Reads of a worker are sampled at random distances, about one per [`PERIOD`] and worker; every read while there are
//! few. Each command of a sampled read is timed from the return of the read until its answer is in the output, and a
//! few of the keys are recorded. A read that is not sampled costs accesses to two words of the worker.
//!
//! ```text
//! block of 4 reads   of 8, its length chosen at the sample before
//! - S - -            - - - - - S - -           weights 4 and 8
//! ```
//! One read of each block is sampled, at a random place, with the length of the block as its weight. So each read of a
//! block has the same chance, also the first one after a pause, and the sums are estimates of all commands.

use std::cell::Cell;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::CommandKind;
use super::groups::prefix_of;
use super::histogram::CommandLatencies;
use super::hot_keys::HotKeys;
use super::traffic::{TrafficSketch, traffic_counts};
use super::watched_keys::WatchedKeys;

/// Time between two samples of a worker that is busy.
const PERIOD: Duration = Duration::from_millis(4);
/// Time without a read after which the next one is sampled, and the length of a window.
const QUIET: Duration = Duration::from_millis(100);
/// Maximum number of reads that one sample represents.
const MAX_GAP: u32 = 1 << 14;
/// Keys that are recorded of a sampled read: average and maximum.
const KEYS_PER_READ: u32 = 4;
const MAX_KEYS: u32 = 16;

/// Samples that a worker publishes to other threads.
#[derive(Default)]
pub struct Samples {
    pub latencies: CommandLatencies,
    /// The worker locks this for sampled keys, and skips the sample if a reader holds the lock: no worker waits.
    pub hot_keys: Mutex<HotKeys>,
    /// Accesses by key prefix, under the same rule.
    pub traffic: Mutex<TrafficSketch>,
    /// Gets of the largest objects, under the same rule.
    pub watched_keys: Mutex<WatchedKeys>,
}

/// Which keys of a sampled read are recorded: every n-th, where n depends on the number of keys in earlier reads.
#[derive(Default)]
struct KeyChoice {
    /// Keys of the present read, seen and noted.
    seen: Cell<u32>,
    noted: Cell<u32>,
    /// Eight times the average of those seen.
    average_8: Cell<u32>,
    step: Cell<u32>,
    /// Keys to let pass.
    wait: Cell<u32>,
}

impl KeyChoice {
    /// A sampled read begins.
    fn begin(&self, random: u32) {
        let average_8 = self.average_8.get();
        let average_8 = average_8 - average_8 / 8 + self.seen.replace(0);
        self.average_8.set(average_8);
        let step = (average_8 / 8 / KEYS_PER_READ).max(1);
        self.step.set(step);
        self.wait.set(random % step);
        self.noted.set(0);
    }

    /// Whether this key represents `step` keys; it is recorded unless [`Self::is_full`].
    fn takes(&self) -> bool {
        self.seen.set(self.seen.get() + 1);
        let wait = self.wait.get();
        if wait > 0 {
            self.wait.set(wait - 1);
            return false;
        }
        self.wait.set(self.step.get() - 1);
        self.noted.set(self.noted.get() + 1);
        true
    }

    /// Whether no more keys of this read are recorded.
    fn is_full(&self) -> bool {
        self.noted.get() > MAX_KEYS
    }
}

/// Draws and records samples; used by its worker alone.
pub struct Probe {
    enabled: bool,
    /// Byte that ends the prefix of a key.
    delimiter: u8,
    /// When the read that is being processed returned, if it is sampled.
    sampled: Cell<Option<Instant>>,
    /// Weight of each command of the sampled read.
    weight: Cell<u32>,
    /// Reads to skip before the next sample.
    remaining: Cell<u32>,
    /// Reads of the block of the next sample, and those of them that follow it.
    gap: Cell<u32>,
    behind: Cell<u32>,
    last_sample: Cell<Instant>,
    last_round: Cell<Instant>,
    /// The present window, and the reads before it.
    window_began: Cell<Instant>,
    window_reads: Cell<u64>,
    /// All reads until the next sample. Less those that remain, all reads so far.
    planned: Cell<u64>,
    keys: KeyChoice,
    /// Accesses to keys that were not recorded because there were too many in their read.
    unknown: Cell<f64>,
    random: Cell<u64>,
}

impl Probe {
    pub fn new(enabled: bool, delimiter: u8, worker: usize) -> Self {
        Self {
            enabled,
            delimiter,
            sampled: Cell::new(None),
            weight: Cell::new(1),
            remaining: Cell::new(0),
            gap: Cell::new(1),
            behind: Cell::new(0),
            last_sample: Cell::new(Instant::now()),
            last_round: Cell::new(Instant::now()),
            window_began: Cell::new(Instant::now()),
            window_reads: Cell::new(0),
            planned: Cell::new(0),
            keys: KeyChoice::default(),
            unknown: Cell::new(0.0),
            random: Cell::new(worker as u64 ^ 0x9e37_79b9_7f4a_7c15),
        }
    }

    /// A round of events begins. After a quiet time, or when the block of the next sample is longer than all reads of a
    /// window, a block of one read begins. That depends on when reads come, not on which of them was sampled: a rule
    /// with the time of the last sample would sample the first read of a burst too often.
    #[inline]
    pub fn begin_round(&self, now: Instant) {
        let is_quiet = now.saturating_duration_since(self.last_round.replace(now)) > QUIET;
        if is_quiet || now.saturating_duration_since(self.window_began.get()) > QUIET {
            self.end_window(now, is_quiet);
        }
    }

    #[cold]
    fn end_window(&self, now: Instant, is_quiet: bool) {
        let reads = self.planned.get() - u64::from(self.remaining.get());
        let of_window = reads - self.window_reads.replace(reads);
        self.window_began.set(now);
        if is_quiet || u64::from(self.gap.get()) > of_window {
            self.planned.set(reads);
            self.remaining.set(0);
            self.gap.set(1);
            self.behind.set(0);
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
        let block = self.gap.get();
        let gap = match block {
            gap if since < PERIOD / 2 => (gap * 2).min(MAX_GAP),
            gap if since > PERIOD * 2 => (gap / 2).max(1),
            gap => gap,
        };
        self.weight.set(block);
        self.sampled.set(Some(now));
        self.keys.begin(self.next_random());
        let skipped = self.next_random() % gap;
        let remaining = self.behind.get() + skipped;
        self.remaining.set(remaining);
        self.planned.set(self.planned.get() + 1 + u64::from(remaining));
        self.gap.set(gap);
        self.behind.set(gap - 1 - skipped);
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
    pub fn note(&self, samples: &Samples, command: CommandKind, key: Option<&[u8]>) {
        let Some(read_at) = self.sampled.get() else { return };
        let weight = self.weight.get();
        samples.latencies.add(command, read_at.elapsed().as_nanos() as u64, weight.into());
        if let Some(key) = key {
            self.note_key(samples, key, command, |_| None);
        }
    }

    /// Records an answered run of sampled gets, `commands` of them complete. `is_there` looks a key up without counting
    /// a use; its result is taken for that of the get.
    pub fn note_gets(&self, samples: &Samples, keys: &[&[u8]], commands: usize, is_there: impl Fn(&[u8]) -> bool) {
        let Some(read_at) = self.sampled.get() else { return };
        let weight = u64::from(self.weight.get()) * commands as u64;
        samples.latencies.add(CommandKind::Get, read_at.elapsed().as_nanos() as u64, weight);
        for key in keys {
            self.note_key(samples, key, CommandKind::Get, |key| Some(is_there(key)));
        }
    }

    fn note_key(&self, samples: &Samples, key: &[u8], command: CommandKind, is_hit: impl Fn(&[u8]) -> Option<bool>) {
        if !self.keys.takes() {
            return;
        }
        let weight = f64::from(self.weight.get()) * f64::from(self.keys.step.get());
        if self.keys.is_full() {
            self.unknown.set(self.unknown.get() + weight);
            return;
        }
        let is_hit = is_hit(key);
        if let Ok(mut hot_keys) = samples.hot_keys.try_lock() {
            hot_keys.add_unknown(self.unknown.take());
            hot_keys.add(key, weight, is_hit);
        }
        if let Ok(mut traffic) = samples.traffic.try_lock() {
            traffic.add(prefix_of(key, self.delimiter), traffic_counts(command, is_hit, weight));
        }
        if let Some(is_hit) = is_hit
            && let Ok(mut watched) = samples.watched_keys.try_lock()
        {
            watched.add(key, weight, is_hit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::histogram::LatencyHistogram;
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
                probe.note(samples, CommandKind::Set, Some(b"k"));
            }
        }
        sampled
    }

    #[test]
    fn busy_workers_sample_rarely_and_quiet_ones_everything() {
        let (probe, samples) = (Probe::new(true, b':', 0), Samples::default());
        let mut now = Instant::now();
        let busy = read(&probe, &samples, &mut now, 1_000_000, Duration::from_micros(10));
        assert!((1250..10_000).contains(&busy), "{busy} samples in 10 s");
        let count = || LatencyHistogram::sum([&samples.latencies].into_iter(), CommandKind::Set).count();
        let of_busy = count();
        // All blocks but the last one are complete.
        assert!(of_busy.abs_diff(1_000_000) < 1000, "{of_busy}");
        now += QUIET;
        let quiet = read(&probe, &samples, &mut now, 50, Duration::from_millis(10));
        assert_eq!((quiet, count()), (50, of_busy + 50));
    }

    /// The shares of the first and of the last read of bursts with pauses between them, by the weights of samples.
    fn shares_in_bursts(pause: Duration, apart: Duration) -> [f64; 2] {
        const BURST: usize = 100;
        let probe = Probe::new(true, b':', 0);
        let mut now = Instant::now();
        let mut weights = [0.0; BURST];
        for _ in 0..40_000 {
            now += pause;
            for weight in &mut weights {
                now += apart;
                probe.begin_round(now);
                if probe.remaining.get() > 0 {
                    probe.after_read();
                } else {
                    probe.sample(now);
                    *weight += f64::from(probe.weight.get());
                }
            }
        }
        let all: f64 = weights.iter().sum();
        [weights[0] / all, weights[BURST - 1] / all]
    }

    #[test]
    fn no_read_of_a_burst_is_overrated() {
        for (pause_ms, apart_us) in [(1, 100), (20, 100), (50, 20), (50, 100), (95, 20), (150, 20), (150, 100)] {
            let shares = shares_in_bursts(Duration::from_millis(pause_ms), Duration::from_micros(apart_us));
            assert!(
                shares.iter().all(|share| (0.0085..0.0115).contains(share)),
                "{pause_ms} ms, {apart_us} us: {shares:?}"
            );
        }
    }

    #[test]
    fn slow_workers_sample_everything_after_a_busy_time() {
        let (probe, samples) = (Probe::new(true, b':', 0), Samples::default());
        let mut now = Instant::now();
        read(&probe, &samples, &mut now, 1_000_000, Duration::from_micros(1));
        // Reads within two windows at most.
        let before = read(&probe, &samples, &mut now, 20, Duration::from_millis(10));
        assert!(before < 20, "the block was long");
        assert_eq!(read(&probe, &samples, &mut now, 100, Duration::from_millis(10)), 100);
    }

    #[test]
    fn a_disabled_probe_samples_nothing() {
        let (probe, samples) = (Probe::new(false, b':', 0), Samples::default());
        for _ in 0..10 {
            probe.after_read();
            assert!(!probe.is_sampling());
            probe.note(&samples, CommandKind::Get, Some(b"k"));
        }
        assert_eq!(LatencyHistogram::sum([&samples.latencies].into_iter(), CommandKind::Get).count(), 0);
    }

    #[test]
    fn a_few_noted_keys_represent_many() {
        let (probe, samples) = (Probe::new(true, b':', 0), Samples::default());
        let mut noted = 0;
        for _ in 0..500 {
            probe.sample(Instant::now());
            probe.weight.set(1);
            probe.note_gets(&samples, &[b"a".as_slice(), b"b", b"b", b"b"].repeat(16), 10, |key| key == b"a");
            assert!(probe.keys.noted.get() > 0);
            noted += probe.keys.noted.get().min(MAX_KEYS);
        }
        assert!((1800..2600).contains(&noted), "{noted} of 500 reads");
        let [accesses, gets, hits, sets] = samples.traffic.lock().unwrap().get(b"");
        assert!(accesses == gets && sets == 0.0 && (0.2..0.3).contains(&(hits / gets)), "{hits} of {gets}");
        let found = hottest([&*samples.hot_keys.lock().unwrap()].into_iter(), 5);
        let share = |at: usize| found[at].share;
        assert_eq!((found[0].key.as_slice(), found[1].key.as_slice()), (b"b".as_slice(), b"a".as_slice()));
        assert_eq!((found[0].hit_ratio, found[1].hit_ratio), (Some(0.0), Some(1.0)));
        assert!((0.65..0.85).contains(&share(0)) && (0.15..0.35).contains(&share(1)), "{found:?}");
        assert_eq!(LatencyHistogram::sum([&samples.latencies].into_iter(), CommandKind::Get).count(), 5000);
    }

    #[test]
    fn a_worker_skips_samples_while_readers_lock() {
        let (probe, samples) = (Probe::new(true, b':', 0), Samples::default());
        let looking = samples.hot_keys.lock().unwrap();
        probe.sample(Instant::now());
        probe.note(&samples, CommandKind::Get, Some(b"k"));
        drop(looking);
        let found = |samples: &Samples| hottest([&*samples.hot_keys.lock().unwrap()].into_iter(), 5).len();
        probe.note(&samples, CommandKind::Get, Some(b"k"));
        assert_eq!(found(&samples), 0, "the first sample was skipped");
        probe.note(&samples, CommandKind::Get, Some(b"k"));
        assert_eq!(found(&samples), 1);
    }

    #[test]
    fn keys_of_one_batch_are_not_hot() {
        let (probe, samples) = (Probe::new(true, b':', 0), Samples::default());
        let set = |key: &str| probe.note(&samples, CommandKind::Set, Some(key.as_bytes()));
        probe.sample(Instant::now());
        probe.weight.set(1);
        set("twice");
        set("twice");
        (0..998).for_each(|number| set(&format!("once-{number}")));
        // A quarter of an eighth of 1000 keys: one of 31 is noted, and what was not recorded before is counted.
        probe.sample(Instant::now());
        probe.weight.set(1);
        (0..31).for_each(|_| set("later"));
        let found = hottest([&*samples.hot_keys.lock().unwrap()].into_iter(), 20);
        let found: Vec<_> = found.iter().map(|hot| (hot.key.as_slice(), hot.share)).collect();
        assert_eq!(found, [(&b"twice"[..], 2.0 / 1031.0)]);
    }
}
