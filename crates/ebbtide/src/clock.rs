//! Where a cache's time comes from.
//!
//! Time counts in milliseconds from a second before the cache was built, so that nothing happens at zero. With the
//! system's clock, writes read it; gets use a coarse copy that the background thread refreshes every few milliseconds,
//! and read the clock itself only when the item they found may expire before the copy is fresh.
//!
//! The seconds of the system's clock begin with those of the wall clock, because expiries are kept in whole seconds:
//! then a wall-clock time is one exact second of this clock, and an expiry on flash is the same moment for the next
//! process. This clock is never behind the wall clock of its start, so no entry outlives its time. Later the two run at
//! one rate, unless the wall clock is set.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use ebbtide_store::Ttl;

/// The source of time.
///
/// ```
/// # use ebbtide::{ByteSize, Cache, Clock, InsertOptions};
/// use std::time::Duration;
///
/// let cache = Cache::builder().memory(ByteSize::mib(64)).clock(Clock::Manual).build()?;
/// cache.insert_with("k", "v", InsertOptions::new().ttl(Duration::from_secs(60)))?;
/// cache.maintain(Duration::from_secs(61));
/// assert!(cache.get("k").is_none());
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The system's monotonic clock; the cache starts a thread for its maintenance.
    #[default]
    System,
    /// Time moves only with `Cache::maintain`, which also does all maintenance: no thread is started.
    Manual,
}

/// Time begins here, or up to a second later.
const ORIGIN: Duration = Duration::from_secs(1);
/// A wall clock that is further ahead than this was set. Less is not worth ending a life a whole second early.
const STEP_MS: i128 = 50;
/// How far time may be moved in all: a thousand years, and sums of times are far from overflowing.
const SKIP_LIMIT_MS: u64 = 1000 * 366 * 86_400 * 1000;
/// How stale the coarse time may be, at the very most, without an item being served late.
const STALE_MS: u64 = 60_000;

/// Two clocks of one machine differ by less than this, unless one was set.
const ALIGN_MAX: Duration = Duration::from_secs(1);

/// Where a cache's time stood when it stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedTime {
    pub epoch_seconds: u64,
    pub now_ms: u64,
    pub skipped_ms: u64,
}

/// A moment that another process can tell its distance from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elapsed {
    /// Since 1970.
    pub wall_ms: u64,
    /// Since the machine was booted, suspended time included.
    pub boot_ms: u64,
    /// The boot's identity; 0 if the system does not tell.
    pub boot: u128,
}

impl Elapsed {
    pub fn now() -> Self {
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let identity = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self {
            wall_ms: UNIX_EPOCH.elapsed().unwrap_or_default().as_millis() as u64,
            boot_ms: boot.tv_sec as u64 * 1000 + boot.tv_nsec as u64 / 1_000_000,
            boot: u128::from_str_radix(&identity.trim().replace('-', ""), 16).unwrap_or(0),
        }
    }

    /// Time from this moment to now: within a boot by the clock that cannot be set, else by the wall clock. `None` if
    /// that was set back by more than `set_back_max` since.
    pub fn until_now(&self, set_back_max: Duration) -> Option<Duration> {
        self.until(&Self::now(), set_back_max)
    }

    fn until(&self, now: &Self, set_back_max: Duration) -> Option<Duration> {
        if self.boot == now.boot && self.boot != 0 {
            return Some(Duration::from_millis(now.boot_ms.saturating_sub(self.boot_ms)));
        }
        let set_back = Duration::from_millis(self.wall_ms.saturating_sub(now.wall_ms));
        (set_back <= set_back_max).then(|| Duration::from_millis(now.wall_ms.saturating_sub(self.wall_ms)))
    }
}

/// The system's clock that is never set.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub(crate) struct EngineClock {
    /// Nanoseconds from the system's monotonic clock to this time, modulo 2^64; `None` for a manual clock.
    ahead_ns: Option<u64>,
    epoch_seconds: u64,
    /// How far the system's clock is behind this one; only tests move it.
    skipped_ms: AtomicU64,
    coarse_ms: AtomicU64,
}

impl EngineClock {
    pub fn new(clock: Clock) -> Self {
        // In this order: this clock is then ahead of the wall clock by the time between the two looks, and not behind.
        let start_ns = (clock == Clock::System).then(monotonic_ns);
        let unix = start_ns.map_or(Duration::ZERO, |_| UNIX_EPOCH.elapsed().unwrap_or_default());
        let origin = ORIGIN + Duration::from_nanos(unix.subsec_nanos().into());
        Self {
            ahead_ns: start_ns.map(|start_ns| (origin.as_nanos() as u64).wrapping_sub(start_ns)),
            epoch_seconds: unix.as_secs().saturating_sub(ORIGIN.as_secs()),
            skipped_ms: AtomicU64::new(0),
            coarse_ms: AtomicU64::new(origin.as_millis() as u64),
        }
    }

    /// Time that continues from where a cache stopped, `stopped_for` ago.
    pub fn resumed(clock: Clock, saved: &SavedTime, stopped_for: Duration) -> Self {
        let SavedTime { epoch_seconds, now_ms, skipped_ms } = *saved;
        if clock == Clock::Manual {
            let coarse_ms = AtomicU64::new(now_ms);
            let skipped_ms = AtomicU64::new(0);
            return Self { ahead_ns: None, epoch_seconds: 0, skipped_ms, coarse_ms };
        }
        let start_ns = monotonic_ns();
        let since_epoch = UNIX_EPOCH.elapsed().unwrap_or_default().saturating_sub(Duration::from_secs(epoch_seconds));
        let resumed = Duration::from_millis(now_ms - skipped_ms.min(now_ms)) + stopped_for;
        // Not behind the wall clock, which slewing may have put ahead. A clock that was set is left to `until`.
        let origin = if since_epoch < resumed + ALIGN_MAX { resumed.max(since_epoch) } else { resumed };
        Self {
            ahead_ns: Some((origin.as_nanos() as u64).wrapping_sub(start_ns)),
            epoch_seconds,
            skipped_ms: AtomicU64::new(skipped_ms),
            coarse_ms: AtomicU64::new(origin.as_millis() as u64 + skipped_ms),
        }
    }

    /// State from which `resumed` continues this time, as of `now_ms`.
    pub fn saved(&self, now_ms: u64) -> SavedTime {
        SavedTime { epoch_seconds: self.epoch_seconds, now_ms, skipped_ms: self.skipped_ms() }
    }

    /// Whether time moves with `Cache::maintain` only.
    pub fn is_manual(&self) -> bool {
        self.ahead_ns.is_none()
    }

    /// The seconds since 1970 at which this time was zero. A manual clock knows of no other time: 0.
    pub fn epoch_seconds(&self) -> u64 {
        self.epoch_seconds
    }

    /// The time for a write.
    pub fn now_ms(&self) -> u64 {
        match self.ahead_ns {
            Some(ahead_ns) => monotonic_ns().wrapping_add(ahead_ns) / 1_000_000 + self.skipped_ms(),
            None => self.coarse_ms(),
        }
    }

    /// The life that ends when the wall clock reaches `unix_seconds`.
    pub fn until(&self, unix_seconds: u64) -> Ttl {
        if self.is_manual() {
            return Ttl::Until(unix_seconds);
        }
        let shown_ms = || i128::from(self.epoch_seconds * 1000 + self.now_ms());
        let earliest_ms = shown_ms();
        let wall_ms = UNIX_EPOCH.elapsed().unwrap_or_default().as_millis() as i128 + i128::from(self.skipped_ms());
        let ahead_ms = wall_ahead_ms(earliest_ms, wall_ms, shown_ms());
        Ttl::Until(second_of(unix_seconds, ahead_ms).saturating_sub(self.epoch_seconds))
    }

    /// How long a life is that begins now; `None` if it never ends.
    pub fn ttl_duration(&self, ttl: Ttl) -> Option<Duration> {
        match ttl {
            Ttl::Never => None,
            Ttl::Expired => Some(Duration::ZERO),
            Ttl::Seconds(seconds) => Some(Duration::from_secs(seconds.into())),
            Ttl::Until(seconds) => {
                Some(Duration::from_secs(seconds).saturating_sub(Duration::from_millis(self.now_ms())))
            }
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
        if self.is_manual() {
            return false;
        }
        let step_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let moved = |skipped_ms: u64| Some(skipped_ms.saturating_add(step_ms).min(SKIP_LIMIT_MS));
        let _ = self.skipped_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved);
        self.tick();
        true
    }

    /// Moves a system's clock on without a refresh of the coarse time.
    #[cfg(test)]
    pub fn skip_unnoticed(&self, time: Duration) {
        self.skipped_ms.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
    }

    /// How far `skip` has moved the clock in all.
    pub fn skipped_ms(&self) -> u64 {
        self.skipped_ms.load(Ordering::Relaxed)
    }

    /// Sets a manual clock; it never goes back.
    pub fn set(&self, since_start: Duration) -> u64 {
        let now_ms = (ORIGIN + since_start).as_millis() as u64;
        self.coarse_ms.fetch_max(now_ms, Ordering::Relaxed).max(now_ms)
    }

    /// Whether something that was alive at the coarse time has expired by now.
    #[inline(always)]
    pub fn has_expired(&self, expiry_seconds: Option<u64>) -> bool {
        expiry_seconds.is_some_and(|seconds| {
            let expiry_ms = seconds * 1000;
            !self.is_manual() && expiry_ms < self.coarse_ms() + STALE_MS && expiry_ms <= self.now_ms()
        })
    }
}

/// How far the wall clock was set ahead since the start; negative if it was set back. It showed `wall_ms` while this
/// clock showed a time from `earliest_ms` to `latest_ms`.
fn wall_ahead_ms(earliest_ms: i128, wall_ms: i128, latest_ms: i128) -> i128 {
    match wall_ms {
        _ if wall_ms > latest_ms + STEP_MS => wall_ms - latest_ms,
        _ if wall_ms < earliest_ms => wall_ms - earliest_ms,
        _ => 0,
    }
}

/// The second of this clock, counted from 1970, in which a wall clock that is `ahead_ms` ahead reaches `unix_seconds`.
/// Rounded down, so that nothing outlives its time.
fn second_of(unix_seconds: u64, ahead_ms: i128) -> u64 {
    let ms = i128::from(unix_seconds) * 1000 - ahead_ms;
    u64::try_from(ms.div_euclid(1000)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn unix_ms() -> u128 {
        UNIX_EPOCH.elapsed().unwrap().as_millis()
    }

    #[test]
    fn seconds_begin_with_those_since_1970() {
        let ahead = (0..5).map(|_| {
            std::thread::sleep(Duration::from_millis(137));
            let before = unix_ms();
            let time = EngineClock::new(Clock::System);
            assert!((1000..2000).contains(&time.coarse_ms()));
            let now = u128::from(time.epoch_seconds()) * 1000 + u128::from(time.now_ms());
            assert!(now >= before, "late: {now} after {before}");
            now - unix_ms().min(now)
        });
        assert!(ahead.min().unwrap() < 100);
        let manual = EngineClock::new(Clock::Manual);
        assert_eq!((manual.epoch_seconds(), manual.now_ms()), (0, 1000));
    }

    #[test]
    fn wall_clock_times_convert_to_engine_seconds() {
        let time = EngineClock::new(Clock::System);
        let next = UNIX_EPOCH.elapsed().unwrap().as_secs() + 1000;
        assert_eq!(time.until(next), Ttl::Until(next - time.epoch_seconds()));
        let left = time.ttl_duration(time.until(next)).unwrap();
        assert!(left > Duration::from_secs(990) && left <= Duration::from_secs(1000), "{left:?}");
        time.skip(Duration::from_millis(7300));
        assert_eq!(time.until(next), Ttl::Until(next - time.epoch_seconds()));
        assert_eq!(time.until(1), Ttl::Until(0));
        assert_eq!(EngineClock::new(Clock::Manual).until(7), Ttl::Until(7));
    }

    #[test]
    fn a_stops_length_follows_boot_or_wall_clock() {
        let at = |wall_ms, boot_ms, boot| Elapsed { wall_ms, boot_ms, boot };
        let limit = Duration::from_secs(600);
        let stop = at(1_000_000, 5000, 7);
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(stop.until(&at(1, 8000, 7), limit), ms(3000), "the wall clock was set, the boot is the same");
        assert_eq!(stop.until(&at(1_002_000, 100, 8), limit), ms(2000), "another boot");
        assert_eq!(stop.until(&at(400_000, 100, 8), limit), ms(0), "set back by ten minutes");
        assert_eq!(stop.until(&at(399_999, 100, 8), limit), None);
        assert_eq!(at(1_000_000, 5000, 0).until(&at(1_002_000, 9000, 0), limit), ms(2000), "boots have no identity");
    }

    #[test]
    fn a_resumed_time_goes_on() {
        let (started, first) = (Instant::now(), EngineClock::new(Clock::System));
        first.skip(Duration::from_secs(100));
        let saved = first.saved(first.now_ms());
        let second = EngineClock::resumed(Clock::System, &saved, Duration::from_secs(5));
        let ahead = second.now_ms() - first.now_ms();
        let passed = started.elapsed().as_millis() as u64;
        assert!((4990..6100 + passed).contains(&ahead), "{ahead} after {passed}");
        assert_eq!((second.epoch_seconds(), second.skipped_ms()), (first.epoch_seconds(), 100_000));
        assert!(second.coarse_ms() <= second.now_ms());
        let manual = EngineClock::resumed(
            Clock::Manual,
            &SavedTime { epoch_seconds: 0, now_ms: 77, skipped_ms: 0 },
            Duration::ZERO,
        );
        assert_eq!(manual.now_ms(), 77);
    }

    #[test]
    fn setting_the_wall_clock_never_delays_a_second() {
        // Read between two looks at this clock: nothing was set, however long the looks are apart.
        assert_eq!(wall_ahead_ms(5000, 5000, 5000), 0);
        assert_eq!(wall_ahead_ms(5000, 7000, 9000), 0);
        assert_eq!(wall_ahead_ms(5000, 5050, 5000), 0);
        assert_eq!(wall_ahead_ms(5000, 5051, 5000), 51);
        assert_eq!(wall_ahead_ms(5000, 4999, 5000), -1);
        assert_eq!(second_of(100, 0), 100);
        // Set ahead: the time comes earlier on this clock, rounded down to a second.
        assert_eq!((second_of(100, 51), second_of(100, 1000), second_of(100, 1001)), (99, 99, 98));
        // Set back: it comes later.
        assert_eq!((second_of(100, -999), second_of(100, -1000), second_of(100, -3_600_500)), (100, 101, 3700));
        assert_eq!(second_of(1, 5000), 0);
    }
}
