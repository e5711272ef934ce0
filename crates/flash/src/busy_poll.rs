//! When a waiting thread polls before it sleeps.
//!
//! A wake takes tens of microseconds on a virtual machine, about as long as a read of a fast drive. Polling takes a
//! processor. So a thread polls only where polls mostly succeed, and not where another thread wants its processor:
//!
//! ```text
//! a wait begins --> at rest? sleep --> polls, for a bounded time --> completion: the next rest is half as long
//!                                                              +--> none: sleep, and rest for 1, 4, ... 1024 waits
//! ```
//! A rest grows by a factor of four and shrinks by two: so polling stops if fewer than two of three polls succeed.
//!
//! The scheduler prefers a thread that was just woken, but not one that polls: where threads compete for the
//! processors, a polling thread waits for milliseconds. So twice a second a thread samples the time in which it was
//! ready but did not run. If that is too much, it does not poll until the next sample. If it polled meanwhile, it
//! pauses for a second, and for longer each time that this happens again soon.

use std::fs;
use std::mem;
use std::time::{Duration, Instant};

/// Maximum time of polling for a read. A drive for caches reads within 100 us; a much slower one is not worth a
/// processor.
pub const MAX_READ_POLL: Duration = Duration::from_micros(200);
/// The longest rest, in waits.
const MAX_REST: u32 = 1024;
/// Time between two samples of the time lost to other threads.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum share of time lost to other threads: less than two workers and a client lose on two processors, more than
/// our own threads take from a worker with which they share one.
const MAX_LOST: f64 = 0.15;
/// Minimum pause of polling.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(8);
/// A pause is twice as long as the last one, unless that ended this multiple of its length ago.
const FORGOTTEN: u32 = 10;

/// The results of earlier polls for one kind of event.
#[derive(Debug)]
pub struct PollBackoff {
    /// Number of waits in which the thread must not poll.
    left: u32,
    next: u32,
}

impl Default for PollBackoff {
    fn default() -> Self {
        Self { left: 0, next: 1 }
    }
}

impl PollBackoff {
    /// Starts a wait: whether to poll before sleeping.
    pub fn may_poll(&mut self) -> bool {
        let is_over = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_over
    }

    /// Records whether a poll succeeded.
    pub fn record_poll(&mut self, was_answered: bool) {
        if was_answered {
            self.next = (self.next / 2).max(1);
        } else {
            self.left = self.next;
            self.next = (self.next * 4).min(MAX_REST);
        }
    }
}

/// The contention of a thread for its processor.
#[derive(Debug, Default)]
pub struct Contention {
    /// The last sample: its time, and the time lost until then.
    looked: Option<(Instant, Duration)>,
    /// Whether little was lost between the last two samples.
    is_alone: bool,
    /// Whether the thread has polled since then.
    has_asked: bool,
    /// The last pause, and when it ends.
    pause: Option<(Duration, Instant)>,
}

impl Contention {
    /// True if the thread must not poll: other threads want the processors, or that is not known. `lost` is
    /// [`run_delay`].
    pub fn forbids(&mut self, now: Instant, lost: impl FnOnce() -> Option<Duration>) -> bool {
        if self.pause.is_some_and(|(_, until)| now < until) {
            return true;
        }
        if self.looked.is_some_and(|(at, _)| now < at + SAMPLE_INTERVAL) {
            return !self.is_alone;
        }
        let has_asked = mem::take(&mut self.has_asked);
        let Some(lost) = lost() else {
            *self = Self { pause: Some((MIN_PAUSE, now + MIN_PAUSE)), ..Self::default() };
            return true;
        };
        let before = self.looked.replace((now, lost));
        // An old sample is of another load.
        let Some((at, before)) = before.filter(|(at, _)| now < *at + 2 * SAMPLE_INTERVAL) else {
            self.is_alone = false;
            return true;
        };
        self.is_alone = lost.saturating_sub(before) < (now - at).mul_f64(MAX_LOST);
        // Contention without polling may be over at the next sample.
        if has_asked && !self.is_alone {
            let pause = match self.pause {
                Some((pause, until)) if now < until + FORGOTTEN * pause => (2 * pause).min(MAX_PAUSE),
                _ => MIN_PAUSE,
            };
            self.pause = Some((pause, now + pause));
        }
        !self.is_alone
    }

    /// Records that the thread polls.
    pub fn record_polling(&mut self) {
        self.has_asked = true;
    }
}

/// The time in which the calling thread was ready but did not run, since its start, as Linux counts it. `None` if the
/// kernel does not provide it, or no file descriptor is left to read it.
pub fn run_delay() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    // Nanoseconds on a processor, nanoseconds ready, turns.
    let ready = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(ready))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of polls in `count` waits; `was_answered` decides which of them succeed.
    fn asks(backoff: &mut PollBackoff, count: u32, was_answered: impl Fn(u32) -> bool) -> u32 {
        let mut asked = 0;
        for wait in 0..count {
            if backoff.may_poll() {
                asked += 1;
                backoff.record_poll(was_answered(wait));
            }
        }
        asked
    }

    #[test]
    fn vain_polls_rest_longer_and_successful_ones_continue() {
        let mut backoff = PollBackoff::default();
        assert_eq!(asks(&mut backoff, 1000, |_| true), 1000);
        assert_eq!(asks(&mut backoff, 7 + 1 + 4 + 16 + 64 + 256 + 1024, |_| false), 7);
        let vain = asks(&mut backoff, 100 * MAX_REST, |_| false);
        assert!((99..=101).contains(&vain), "{vain}");
        // It notices when something comes again, and then asks each time.
        asks(&mut backoff, 20 * MAX_REST, |_| true);
        assert_eq!(asks(&mut backoff, 1000, |_| true), 1000);
    }

    #[test]
    fn polling_continues_at_three_hits_of_four() {
        let often = asks(&mut PollBackoff::default(), 10_000, |wait| wait % 4 != 0);
        assert!(often > 7000, "{often}");
        // A hash of the number, so that the rests do not select special ones.
        let rarely = asks(&mut PollBackoff::default(), 1_000_000, |wait| wait.wrapping_mul(0x9e37_79b9) >> 31 == 0);
        assert!(rarely < 50_000, "{rarely}");
    }

    /// Waits of a millisecond each.
    struct World {
        contention: Contention,
        now: Instant,
        lost: Duration,
    }

    impl World {
        fn new() -> Self {
            Self { contention: Contention::default(), now: Instant::now(), lost: Duration::ZERO }
        }

        /// Whether it asks in the next one, while these shares of the time are lost when it does and when it sleeps.
        fn asks(&mut self, asking: f64, sleeping: f64) -> bool {
            let wait = Duration::from_millis(1);
            let asks = !self.contention.forbids(self.now, || Some(self.lost));
            if asks {
                self.contention.record_polling();
            }
            self.now += wait;
            self.lost += wait.mul_f64(if asks { asking } else { sleeping });
            asks
        }

        /// In how many of the waits of this time it asks.
        fn count(&mut self, time: Duration, asking: f64, sleeping: f64) -> usize {
            (0..time.as_millis()).filter(|_| self.asks(asking, sleeping)).count()
        }
    }

    const LITTLE: f64 = 0.9 * MAX_LOST;
    const MUCH: f64 = 1.1 * MAX_LOST;

    #[test]
    fn polling_requires_known_low_contention() {
        let mut world = World::new();
        assert_eq!(world.count(SAMPLE_INTERVAL, LITTLE, LITTLE), 0);
        let minute = Duration::from_secs(60);
        assert_eq!(world.count(minute, LITTLE, LITTLE), minute.as_millis() as usize);
        // If much is lost in any case, polling stops at the next sample, and starts again at one after the contention
        // ends.
        world.count(2 * SAMPLE_INTERVAL, MUCH, MUCH);
        world.count(MIN_PAUSE, MUCH, MUCH);
        assert_eq!(world.count(minute, MUCH, MUCH), 0);
        assert!(world.count(minute, 0.0, 0.0) > 0);
        // After a time without waits it does not know.
        world.now += minute;
        assert!(!world.asks(0.0, 0.0));
    }

    #[test]
    fn contention_from_polling_doubles_pauses() {
        let mut world = World::new();
        let pause = |world: &mut World| {
            while !world.asks(MUCH, 0.0) {}
            while world.asks(MUCH, 0.0) {}
            let started = world.now;
            while !world.asks(MUCH, 0.0) {}
            // Until it knows it sleeps as well.
            (world.now - started - SAMPLE_INTERVAL).as_secs()
        };
        assert_eq!([(); 5].map(|()| pause(&mut world)), [1, 2, 4, 8, 8]);
        // When it has asked for long, a pause is short again.
        world.count((FORGOTTEN + 1) * MAX_PAUSE, 0.0, 0.0);
        assert_eq!(pause(&mut world), 1);
    }

    #[test]
    fn polls_before_a_gap_cause_no_pause() {
        let mut world = World::new();
        world.count(4 * SAMPLE_INTERVAL, 0.0, 0.0);
        world.now += Duration::from_secs(60);
        // It sleeps through a crowd, and asks when that is over.
        assert_eq!(world.count(SAMPLE_INTERVAL + Duration::from_millis(2), MUCH, MUCH), 0);
        assert!(world.count(SAMPLE_INTERVAL + Duration::from_millis(10), 0.0, 0.0) > 0);
    }

    #[test]
    fn unknown_contention_forbids_polling() {
        let (mut contention, started) = (Contention::default(), Instant::now());
        let asks = |tenths: &u64| {
            let known = (*tenths != 20).then_some(Duration::ZERO);
            !contention.forbids(started + Duration::from_millis(100 * tenths), || known)
        };
        let asked: Vec<u64> = (0..40).filter(asks).collect();
        // Half a second until it knows, also after the pause.
        assert_eq!(asked, (5..20).chain(35..40).collect::<Vec<_>>());
    }

    #[test]
    fn a_shared_processor_shows_run_delay() {
        let thread = || {
            let started = Instant::now();
            while started.elapsed() < Duration::from_millis(300) {
                std::hint::spin_loop();
            }
            run_delay().expect("Linux tells")
        };
        // One thread more than processors: together they lose the time of one. If a quota of time limits the
        // processors, contention may take longer to show.
        let processors = std::thread::available_parallelism().unwrap().get();
        let mut lost = Duration::ZERO;
        for _ in 0..100 {
            let threads: Vec<_> = (0..=processors).map(|_| std::thread::spawn(thread)).collect();
            lost += threads.into_iter().map(|thread| thread.join().unwrap()).sum::<Duration>();
            if lost > Duration::from_millis(100) {
                return;
            }
        }
        panic!("only {lost:?}");
    }
}
