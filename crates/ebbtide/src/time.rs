//! Where a cache's time comes from.
//!
//! Time counts in milliseconds from a second before the cache was built, so that nothing happens at zero. With the system's
//! clock, writes read it; gets use a coarse copy that the background thread refreshes every few milliseconds, and read
//! the clock itself only when the item they found may expire before the copy is fresh.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The source of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The system's monotonic clock; the cache starts a thread for its maintenance.
    #[default]
    System,
    /// Time moves only with `Cache::maintain`, which also does all maintenance: no thread is started.
    Manual,
}

/// Time begins here.
const ORIGIN_MS: u64 = 1000;
/// How far time may be moved in all: a thousand years, and sums of times are far from overflowing.
const SKIP_LIMIT_MS: u64 = 1000 * 366 * 86_400 * 1000;
/// How stale the coarse time may be, at the very most, without an item being served late.
const STALE_MS: u64 = 60_000;

pub(crate) struct Time {
    start: Option<Instant>,
    /// How far the system's clock is behind this one; only tests move it.
    skipped_ms: AtomicU64,
    coarse_ms: AtomicU64,
}

impl Time {
    pub fn new(clock: Clock) -> Self {
        let start = (clock == Clock::System).then(Instant::now);
        Self { start, skipped_ms: AtomicU64::new(0), coarse_ms: AtomicU64::new(ORIGIN_MS) }
    }

    /// The time for a write.
    pub fn now_ms(&self) -> u64 {
        match self.start {
            Some(start) => ORIGIN_MS + start.elapsed().as_millis() as u64 + self.skipped_ms(),
            None => self.coarse_ms(),
        }
    }

    /// The time for a get: a little old.
    #[inline(always)]
    pub fn coarse_ms(&self) -> u64 {
        self.coarse_ms.load(Ordering::Relaxed)
    }

    /// Refreshes the coarse time, which never goes back: of a tick and a skip at once, the later time stays.
    pub fn tick(&self) -> u64 {
        let now_ms = self.now_ms();
        self.coarse_ms.fetch_max(now_ms, Ordering::Relaxed).max(now_ms)
    }

    /// Moves a system's clock on by up to `time`. False with a manual clock.
    pub fn skip(&self, time: Duration) -> bool {
        if self.start.is_none() {
            return false;
        }
        let step_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let moved = |skipped_ms: u64| Some(skipped_ms.saturating_add(step_ms).min(SKIP_LIMIT_MS));
        let _ = self.skipped_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved);
        self.tick();
        true
    }

    /// How far `skip` has moved the clock in all.
    pub fn skipped_ms(&self) -> u64 {
        self.skipped_ms.load(Ordering::Relaxed)
    }

    /// Sets a manual clock; it never goes back.
    pub fn set(&self, since_start: Duration) -> u64 {
        let now_ms = ORIGIN_MS + since_start.as_millis() as u64;
        self.coarse_ms.fetch_max(now_ms, Ordering::Relaxed).max(now_ms)
    }

    /// Whether something that was alive at the coarse time has expired by now.
    #[inline(always)]
    pub fn has_expired(&self, expiry_seconds: Option<u64>) -> bool {
        expiry_seconds.is_some_and(|seconds| {
            let expiry_ms = seconds * 1000;
            self.start.is_some() && expiry_ms < self.coarse_ms() + STALE_MS && expiry_ms <= self.now_ms()
        })
    }
}
