//! Where a cache's time comes from.
//!
//! Time counts in milliseconds from a second before the cache was built, so that nothing happens at zero. With the system's
//! clock, writes read it; gets use a coarse copy that the background thread refreshes every few milliseconds, and read
//! the clock itself only when the item they found may expire before the copy is fresh.
//!
//! Over flash, where expiries are kept in seconds since 1970, time begins up to a second later, so that its seconds begin with
//! those: then an expiry is the same moment in both, also for the next process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// The source of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The system's monotonic clock; the cache starts a thread for its maintenance.
    #[default]
    System,
    /// Time moves only with `Cache::maintain`, which also does all maintenance: no thread is started.
    Manual,
}

/// Time begins here, or up to a second later.
const ORIGIN_MS: u64 = 1000;
/// How far time may be moved in all: a thousand years, and sums of times are far from overflowing.
const SKIP_LIMIT_MS: u64 = 1000 * 366 * 86_400 * 1000;
/// How stale the coarse time may be, at the very most, without an item being served late.
const STALE_MS: u64 = 60_000;

pub(crate) struct Time {
    start: Option<Instant>,
    origin_ms: u64,
    epoch_seconds: u64,
    /// How far the system's clock is behind this one; only tests move it.
    skipped_ms: AtomicU64,
    coarse_ms: AtomicU64,
}

impl Time {
    pub fn new(clock: Clock) -> Self {
        Self::beginning((clock == Clock::System).then(Instant::now), Duration::ZERO)
    }

    /// A time whose seconds begin with those since 1970, where it is the system's.
    pub fn over_flash(clock: Clock) -> Self {
        // In this order: what an earlier process has left is then not late.
        match clock {
            Clock::System => Self::beginning(Some(Instant::now()), UNIX_EPOCH.elapsed().unwrap_or_default()),
            Clock::Manual => Self::new(clock),
        }
    }

    fn beginning(start: Option<Instant>, unix: Duration) -> Self {
        let origin_ms = ORIGIN_MS + u64::from(unix.subsec_millis());
        Self {
            start,
            origin_ms,
            epoch_seconds: unix.as_secs().saturating_sub(ORIGIN_MS / 1000),
            skipped_ms: AtomicU64::new(0),
            coarse_ms: AtomicU64::new(origin_ms),
        }
    }

    /// Over flash: the seconds since 1970 at which this time was zero. A manual clock knows of no other time: 0.
    pub fn epoch_seconds(&self) -> u64 {
        self.epoch_seconds
    }

    /// The time for a write.
    pub fn now_ms(&self) -> u64 {
        match self.start {
            Some(start) => self.origin_ms + start.elapsed().as_millis() as u64 + self.skipped_ms(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn unix_ms() -> u128 {
        UNIX_EPOCH.elapsed().unwrap().as_millis()
    }

    #[test]
    fn over_flash_seconds_begin_with_those_since_1970() {
        let ahead = (0..5).map(|_| {
            std::thread::sleep(Duration::from_millis(137));
            let before = unix_ms();
            let time = Time::over_flash(Clock::System);
            assert!((1000..2000).contains(&time.coarse_ms()));
            let now = u128::from(time.epoch_seconds()) * 1000 + u128::from(time.now_ms());
            assert!(now >= before, "late: {now} after {before}");
            now - unix_ms().min(now)
        });
        assert!(ahead.min().unwrap() < 100);
        let manual = Time::over_flash(Clock::Manual);
        assert_eq!((manual.epoch_seconds(), manual.now_ms()), (0, 1000));
    }
}
