//! Statistics of a device: counters, the depth of its queue, durations of transfers, and its health.
//!
//! Everything is counted with Relaxed atomics by the threads that submit and complete; only one order matters: a
//! pending transfer is not visible before the time of its start. The judge of the health is behind a mutex that only
//! [`DeviceMonitor::observe`] takes.

use super::health::{HealthJudge, HealthSample};
use super::histogram::AtomicHistogram;
use super::{Direction, Health, LatencyHistogram};
use Ordering::{Acquire, Relaxed, Release};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The statistics that every device keeps.
pub struct DeviceMonitor {
    opened: Instant,
    reads: DirectionCounters,
    writes: DirectionCounters,
    syncs: AtomicU64,
    sync_errors: AtomicU64,
    discards: AtomicU64,
    discards_refused: AtomicU64,
    refusals: AtomicU64,
    under_way: AtomicUsize,
    max_under_way: AtomicUsize,
    busy_poll_ns: AtomicU64,
    /// Microseconds since `opened` of the last end of a transfer, or of the last start of one while none was pending.
    progress: AtomicU64,
    judge: Mutex<HealthJudge>,
    health: AtomicU8,
}

struct DirectionCounters {
    transfers: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    latency: AtomicHistogram,
}

/// Counters of one direction.
#[derive(Clone, Debug)]
pub struct LaneStats {
    /// Transfers that completed or failed.
    pub transfers: u64,
    /// Bytes of the completed ones.
    pub bytes: u64,
    pub errors: u64,
    /// Time from the submit to the completion, of the completed ones.
    pub latencies: LatencyHistogram,
}

/// The counters of a device since it was opened.
#[derive(Clone, Debug)]
pub struct DeviceStats {
    pub reads: LaneStats,
    pub writes: LaneStats,
    pub syncs: u64,
    pub sync_errors: u64,
    /// Discards that the medium took.
    pub discards: u64,
    /// Discards that the medium refused, which have no effect.
    pub discards_refused: u64,
    /// Submits that found the queue full.
    pub refusals: u64,
    /// Pending transfers.
    pub under_way: usize,
    pub max_under_way: usize,
    /// Time in which threads that waited for their reads polled instead of sleeping.
    pub busy_poll: Duration,
    pub health: Health,
}

impl DeviceMonitor {
    pub(super) fn new() -> Self {
        Self {
            opened: Instant::now(),
            reads: DirectionCounters::new(),
            writes: DirectionCounters::new(),
            syncs: AtomicU64::new(0),
            sync_errors: AtomicU64::new(0),
            discards: AtomicU64::new(0),
            discards_refused: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            under_way: AtomicUsize::new(0),
            max_under_way: AtomicUsize::new(0),
            busy_poll_ns: AtomicU64::new(0),
            progress: AtomicU64::new(0),
            judge: Mutex::new(HealthJudge::new()),
            health: AtomicU8::new(Health::Healthy as u8),
        }
    }

    pub fn stats(&self) -> DeviceStats {
        DeviceStats {
            reads: self.reads.stats(),
            writes: self.writes.stats(),
            syncs: self.syncs.load(Relaxed),
            sync_errors: self.sync_errors.load(Relaxed),
            discards: self.discards.load(Relaxed),
            discards_refused: self.discards_refused.load(Relaxed),
            refusals: self.refusals.load(Relaxed),
            under_way: self.under_way.load(Relaxed),
            max_under_way: self.max_under_way.load(Relaxed),
            busy_poll: Duration::from_nanos(self.busy_poll_ns.load(Relaxed)),
            health: self.health(),
        }
    }

    /// Number of pending transfers.
    pub fn under_way(&self) -> usize {
        // Acquire: with the Release of a transfer that is taken.
        self.under_way.load(Acquire)
    }

    /// The health at the last observation.
    pub fn health(&self) -> Health {
        match self.health.load(Relaxed) {
            0 => Health::Healthy,
            1 => Health::Degraded,
            _ => Health::Failed,
        }
    }

    /// Judges the device; called about once a second. `beside` is the time for which other writes to its filesystem
    /// have waited.
    pub fn observe(&self, now: Instant, beside: Duration) -> Health {
        let now = now.saturating_duration_since(self.opened);
        let is_busy = self.under_way.load(Acquire) > 0;
        let progress = Duration::from_micros(self.progress.load(Relaxed));
        let sample = HealthSample {
            finished: self.reads.transfers.load(Relaxed) + self.writes.transfers.load(Relaxed),
            errors: self.reads.errors.load(Relaxed) + self.writes.errors.load(Relaxed) + self.sync_errors.load(Relaxed),
            idle: if is_busy { now.saturating_sub(progress) } else { Duration::ZERO }.max(beside),
        };
        let health = self.judge.lock().unwrap().observe(sample, now);
        self.health.store(health as u8, Relaxed);
        health
    }

    /// Writes that completed or failed.
    pub fn completed_writes(&self) -> u64 {
        self.writes.transfers.load(Relaxed)
    }

    /// Counts the start of a transfer.
    pub(super) fn begin(&self, now: Instant) {
        if self.under_way.load(Relaxed) == 0 {
            self.note_progress(now);
        }
        // Partner: `observe`, which must not see the transfer without that note.
        let before = self.under_way.fetch_add(1, Release);
        self.max_under_way.fetch_max(before + 1, Relaxed);
    }

    /// Counts the end of a transfer that started at `began`.
    pub(super) fn end(
        &self,
        direction: Direction,
        bytes: usize,
        result: &io::Result<()>,
        began: Instant,
        now: Instant,
    ) {
        let lane = match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        };
        lane.transfers.fetch_add(1, Relaxed);
        match result {
            Ok(()) => {
                lane.bytes.fetch_add(bytes as u64, Relaxed);
                lane.latency.add(now.saturating_duration_since(began));
            }
            Err(_) => {
                lane.errors.fetch_add(1, Relaxed);
            }
        }
        self.note_progress(now);
        self.under_way.fetch_sub(1, Relaxed);
    }

    pub(super) fn busy_polled(&self, time: Duration) {
        self.busy_poll_ns.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refusals.fetch_add(1, Relaxed);
    }

    pub(super) fn synced(&self, is_good: bool) {
        self.syncs.fetch_add(1, Relaxed);
        self.sync_errors.fetch_add(u64::from(!is_good), Relaxed);
    }

    pub(super) fn discarded(&self, is_taken: bool) {
        let counter = if is_taken { &self.discards } else { &self.discards_refused };
        counter.fetch_add(1, Relaxed);
    }

    fn note_progress(&self, now: Instant) {
        let since = now.saturating_duration_since(self.opened).as_micros() as u64;
        self.progress.fetch_max(since, Relaxed);
    }
}

impl DirectionCounters {
    fn new() -> Self {
        Self {
            transfers: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            latency: AtomicHistogram::new(),
        }
    }

    fn stats(&self) -> LaneStats {
        LaneStats {
            transfers: self.transfers.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            errors: self.errors.load(Relaxed),
            latencies: self.latency.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BLOCK, Buffer, Delivery, Device, Faults, FaultyDevice, TransferRequest, read, write};
    use super::*;

    #[test]
    fn transfers_are_counted_by_direction() {
        let device = FaultyDevice::new(4 * BLOCK, 1, Delivery::AtOnce);
        write(&device, 0, Buffer::zeroed(2 * BLOCK)).unwrap();
        read(&device, 0, Buffer::zeroed(BLOCK)).unwrap();
        device.set(Faults { read_errors: 1, sync_errors: 1, ..Faults::default() });
        assert!(read(&device, 0, Buffer::zeroed(BLOCK)).is_err());
        assert!(device.sync().is_err());
        device.discard(0, BLOCK as u64).unwrap();
        let stats = device.monitor().stats();
        assert_eq!((stats.writes.transfers, stats.writes.bytes, stats.writes.errors), (1, 2 * BLOCK as u64, 0));
        assert_eq!((stats.reads.transfers, stats.reads.bytes, stats.reads.errors), (2, BLOCK as u64, 1));
        assert_eq!((stats.writes.latencies.count(), stats.reads.latencies.count()), (1, 1));
        assert_eq!((stats.syncs, stats.sync_errors, stats.discards), (1, 1, 1));
        assert_eq!((stats.under_way, stats.max_under_way), (0, 1));
    }

    #[test]
    fn stats_show_queue_depth_and_its_maximum() {
        let device = FaultyDevice::new(BLOCK, 1, Delivery::Later { queue_depth: 3 });
        let request = || {
            let buffer = Buffer::zeroed(BLOCK);
            TransferRequest { direction: Direction::Read, offset: 0, buffer, done: Box::new(|_| ()) }
        };
        let taken = (0..5).filter(|_| device.submit(request()).is_ok()).count();
        let stats = device.monitor().stats();
        assert_eq!((taken, stats.refusals, stats.under_way), (3, 2, 3));
        device.drain();
        let stats = device.monitor().stats();
        assert_eq!((stats.under_way, stats.max_under_way), (0, 3));
    }

    #[test]
    fn a_device_that_stalls_is_degraded_then_failed() {
        let device = FaultyDevice::new(BLOCK, 1, Delivery::Later { queue_depth: 3 });
        let monitor = device.monitor();
        let after = |seconds| Instant::now() + Duration::from_secs(seconds);
        assert_eq!(monitor.observe(after(100), Duration::ZERO), Health::Healthy, "nothing to do is no stall");
        let buffer = Buffer::zeroed(BLOCK);
        let request = TransferRequest { direction: Direction::Read, offset: 0, buffer, done: Box::new(|_| ()) };
        device.submit(request).unwrap();
        assert_eq!(monitor.observe(after(1), Duration::ZERO), Health::Healthy);
        for second in 3..30 {
            assert_eq!(monitor.observe(after(second), Duration::ZERO), Health::Degraded);
        }
        assert_eq!(monitor.observe(after(31), Duration::ZERO), Health::Failed);
        assert_eq!(monitor.health(), Health::Failed);
    }

    #[test]
    fn long_waits_degrade_the_health_of_a_device() {
        let device = FaultyDevice::new(BLOCK, 1, Delivery::AtOnce);
        let opened = device.monitor().opened;
        let observe = |second| {
            let waited = Duration::from_secs(second);
            device.monitor().observe(opened + waited, waited)
        };
        let states: Vec<_> = (0..=31).map(observe).collect();
        assert_eq!(
            [0, 1, 3, 31].map(|second| states[second]),
            [Health::Healthy, Health::Healthy, Health::Degraded, Health::Failed]
        );
    }

    #[test]
    fn a_busy_device_with_progress_stays_healthy() {
        let monitor = DeviceMonitor::new();
        let after = |seconds| monitor.opened + Duration::from_secs(seconds);
        monitor.begin(after(100));
        assert_eq!(monitor.observe(after(101), Duration::ZERO), Health::Healthy);
        for second in 101..200 {
            monitor.begin(after(second));
            monitor.end(Direction::Read, BLOCK, &Ok(()), after(second - 1), after(second));
            assert_eq!(monitor.observe(after(second + 1), Duration::ZERO), Health::Healthy);
        }
    }

    #[test]
    fn a_device_that_keeps_failing_is_failed() {
        let device = FaultyDevice::new(BLOCK, 1, Delivery::AtOnce);
        device.set(Faults { read_errors: 1, ..Faults::default() });
        let monitor = device.monitor();
        assert!(read(&device, 0, Buffer::zeroed(BLOCK)).is_err());
        assert_eq!(monitor.observe(Instant::now(), Duration::ZERO), Health::Degraded);
        for _ in 0..15 {
            assert!(read(&device, 0, Buffer::zeroed(BLOCK)).is_err());
        }
        assert_eq!(monitor.observe(Instant::now(), Duration::ZERO), Health::Failed);
    }
}
