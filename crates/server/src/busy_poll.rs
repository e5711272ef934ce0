//! Whether a worker that has nothing to do asks its poll again and again before it sleeps.
//!
//! To be woken takes tens of microseconds on a virtual machine, about what a fast drive takes for a read. To ask takes a processor. So a
//! worker asks only where that is not in vain as a rule, and not where somebody else wants its processor:
//!
//! ```text
//! a wait begins --> at rest? sleep --> asks, for `Awaited::most` at most --> something came: the next rest is half as long
//!                                                                 +--> in vain: sleep, and rest for 1, 4, 16, ... 1024 waits
//! ```
//! A rest grows by four and shrinks by two: what comes in time less often than two times of three ends it.
//!
//! Who asks is no longer preferred by the scheduler, as a thread that was woken is: where threads compete for the processors, it waits for
//! milliseconds. So the time that the thread was ready and did not run is looked at, ten times a second; where it is much, nothing is asked for a second, and
//! for longer and longer if it is much again soon.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::str;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use crate::options::BusyPoll;

/// The longest rest, in waits.
const REST_MOST: u32 = 1024;
/// A worker that reads from flash also asks for requests: so many waits after one for flash at most.
const AFTER_READ: u32 = 8;
/// How often a thread looks at what it lost to others.
const LOOK: Duration = Duration::from_millis(100);
/// The share of its time that is too much: half of what was measured where two workers and a client have two processors, twice what threads of ours
/// take from a worker with which they share one.
const LOST_MOST: f64 = 0.12;
/// How long nothing is asked then.
const PAUSE_LEAST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(64);
/// A pause is twice as long as the one before, unless that is over for so many times as long.
const FORGOTTEN: u32 = 10;

impl BusyPoll {
    /// Never, if not each of so many workers can have a processor.
    pub fn with_processors_for(self, workers: usize) -> Self {
        let granted = thread::available_parallelism().map_or(1, usize::from);
        let is_bound_to =
            |set: CpuSet| (0..CpuSet::count()).filter(|&processor| set.is_set(processor) == Ok(true)).count();
        let bound = sched_getaffinity(Pid::from_raw(0)).map_or(granted, is_bound_to);
        if has_processors(workers, granted, bound) { self } else { Self::Never }
    }
}

/// Of the processors that the process is bound to, `granted` are what the quota of its control group allows. Our other threads are in that quota as well, and
/// who is over it stands still for tens of milliseconds.
fn has_processors(workers: usize, granted: usize, bound: usize) -> bool {
    if granted < bound { workers < granted } else { workers <= granted }
}

/// What a worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// A read of flash that is under way, or a request.
    Flash,
    Request,
}

impl Awaited {
    /// For how long to ask. A drive for caches reads within 100 us, and an answer brings the client's next request after a wake of
    /// the client's; what takes longer by far is not worth a processor.
    pub fn most(self) -> Duration {
        match self {
            Self::Flash => Duration::from_micros(200),
            Self::Request => Duration::from_micros(50),
        }
    }
}

/// What a worker remembers of its waits.
#[derive(Debug)]
pub struct Waits {
    policy: BusyPoll,
    flash: Rests,
    request: Rests,
    since_flash: u32,
    /// When it looked last, and what was lost until then.
    looked: Option<(Instant, Duration)>,
    /// The last pause, and when it ends.
    pause: Option<(Duration, Instant)>,
}

#[derive(Debug)]
struct Rests {
    /// Waits to sleep through.
    left: u32,
    next: u32,
}

impl Default for Rests {
    fn default() -> Self {
        Self { left: 0, next: 1 }
    }
}

impl Waits {
    pub fn new(policy: BusyPoll) -> Self {
        Self {
            policy,
            flash: Rests::default(),
            request: Rests::default(),
            since_flash: AFTER_READ,
            looked: None,
            pause: None,
        }
    }

    /// A wait begins: whether to ask before sleeping. `lost` is [`RunDelay::read`].
    pub fn asks(&mut self, awaited: Awaited, now: Instant, lost: impl FnOnce() -> Duration) -> bool {
        self.since_flash = match awaited {
            Awaited::Flash => 0,
            Awaited::Request => self.since_flash.saturating_add(1),
        };
        let wants = match self.policy {
            BusyPoll::Never => false,
            BusyPoll::Auto => self.since_flash <= AFTER_READ,
            BusyPoll::Always => true,
        };
        if !wants || self.pauses(now, lost) {
            return false;
        }
        let rests = self.rests(awaited);
        let rested = rests.left == 0;
        rests.left = rests.left.saturating_sub(1);
        rested
    }

    /// It has asked, and something came in time, or not.
    pub fn asked(&mut self, awaited: Awaited, came: bool) {
        let rests = self.rests(awaited);
        if came {
            rests.next = (rests.next / 2).max(1);
        } else {
            rests.left = rests.next;
            rests.next = (rests.next * 4).min(REST_MOST);
        }
    }

    /// Whether others want the processors.
    fn pauses(&mut self, now: Instant, lost: impl FnOnce() -> Duration) -> bool {
        if self.pause.is_some_and(|(_, until)| now < until) {
            return true;
        }
        if self.looked.is_some_and(|(at, _)| now < at + LOOK) {
            return false;
        }
        let lost = lost();
        // What was long ago is of another load.
        let lately = self.looked.replace((now, lost)).filter(|(at, _)| now < *at + 2 * LOOK);
        let Some((at, before)) = lately else { return false };
        if lost.saturating_sub(before) < (now - at).mul_f64(LOST_MOST) {
            return false;
        }
        let pause = match self.pause {
            Some((pause, until)) if now < until + FORGOTTEN * pause => (2 * pause).min(PAUSE_MOST),
            _ => PAUSE_LEAST,
        };
        self.pause = Some((pause, now + pause));
        true
    }

    fn rests(&mut self, awaited: Awaited) -> &mut Rests {
        match awaited {
            Awaited::Flash => &mut self.flash,
            Awaited::Request => &mut self.request,
        }
    }
}

/// For how long a thread was ready and did not run, as Linux counts it.
pub struct RunDelay(Option<File>);

impl RunDelay {
    /// Of the calling thread.
    pub fn here() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// Since the thread began. Nothing where the kernel does not tell.
    pub fn read(&self) -> Duration {
        let mut text = [0; 64];
        let length = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        // Nanoseconds on a processor, nanoseconds ready, turns.
        let second = str::from_utf8(&text[..length]).ok().and_then(|text| text.split_ascii_whitespace().nth(1));
        Duration::from_nanos(second.and_then(|number| number.parse().ok()).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::Awaited::{Flash, Request};
    use super::*;

    /// How often it asks in so many waits, `came` says of which something comes in time.
    fn asks(waits: &mut Waits, awaited: Awaited, count: u32, came: impl Fn(u32) -> bool) -> u32 {
        let now = Instant::now();
        let mut asked = 0;
        for wait in 0..count {
            if waits.asks(awaited, now, || Duration::ZERO) {
                asked += 1;
                waits.asked(awaited, came(wait));
            }
        }
        asked
    }

    #[test]
    fn it_asks_while_something_comes_and_rests_for_longer_and_longer_when_nothing_does() {
        let mut waits = Waits::new(BusyPoll::Always);
        assert_eq!(asks(&mut waits, Request, 1000, |_| true), 1000);
        assert_eq!(asks(&mut waits, Request, 7 + 1 + 4 + 16 + 64 + 256 + 1024, |_| false), 7);
        let vain = asks(&mut waits, Request, 100 * REST_MOST, |_| false);
        assert!((99..=101).contains(&vain), "{vain}");
        // What is in vain for one is not for the other.
        assert_eq!(asks(&mut waits, Flash, 1000, |_| true), 1000);
        // It notices when something comes again, and then asks each time.
        asks(&mut waits, Request, 20 * REST_MOST, |_| true);
        assert_eq!(asks(&mut waits, Request, 1000, |_| true), 1000);
    }

    #[test]
    fn it_asks_where_three_of_four_come_and_not_where_half_do() {
        let often = asks(&mut Waits::new(BusyPoll::Always), Flash, 10_000, |wait| wait % 4 != 0);
        assert!(often > 7000, "{often}");
        let mut waits = Waits::new(BusyPoll::Always);
        // Of all numbers, not of those that the rests fall on.
        let rarely = asks(&mut waits, Flash, 1_000_000, |wait| wait.wrapping_mul(0x9e37_79b9) >> 31 == 0);
        assert!(rarely < 50_000, "{rarely}");
    }

    #[test]
    fn auto_asks_for_requests_only_beside_reads_of_flash() {
        let mut waits = Waits::new(BusyPoll::Auto);
        assert_eq!(asks(&mut waits, Request, 100, |_| true), 0);
        assert_eq!(asks(&mut waits, Flash, 100, |_| true), 100);
        assert_eq!(asks(&mut waits, Request, 100, |_| true), AFTER_READ);
        let mut never = Waits::new(BusyPoll::Never);
        assert_eq!(asks(&mut never, Flash, 100, |_| true) + asks(&mut never, Request, 100, |_| true), 0);
    }

    /// Waits that all end in time, a millisecond each from `now` on, while this share of the time is lost. Whether it asked in the last.
    fn ask_for(waits: &mut Waits, now: &mut Instant, time: Duration, lost_share: f64) -> bool {
        let begun = *now;
        let mut asked = false;
        while *now < begun + time {
            *now += Duration::from_millis(1);
            // All clocks of the test begin together.
            let lost = (*now - begun).mul_f64(lost_share);
            asked = waits.asks(Request, *now, || lost);
            if asked {
                waits.asked(Request, true);
            }
        }
        asked
    }

    #[test]
    fn where_threads_compete_it_sleeps_for_longer_and_longer() {
        let mut waits = Waits::new(BusyPoll::Always);
        let mut now = Instant::now();
        assert!(ask_for(&mut waits, &mut now, Duration::from_secs(60), 0.9 * LOST_MOST));
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
            // It looks twice to see what was lost in between, and then has the pause.
            assert!(!ask_for(&mut waits, &mut now, 4 * LOOK, 1.1 * LOST_MOST));
            let pause = Duration::from_secs(seconds);
            assert!(!ask_for(&mut waits, &mut now, pause - 4 * LOOK, 0.0), "{seconds}");
            assert!(ask_for(&mut waits, &mut now, 4 * LOOK, 0.0), "{seconds}");
        }
        // When it was alone for long, a pause is short again.
        assert!(ask_for(&mut waits, &mut now, FORGOTTEN * PAUSE_MOST, 0.0));
        assert!(!ask_for(&mut waits, &mut now, 4 * LOOK, 1.1 * LOST_MOST));
        assert!(ask_for(&mut waits, &mut now, PAUSE_LEAST, 0.0));
    }

    #[test]
    fn each_worker_needs_a_processor_and_a_quota_more() {
        assert!(has_processors(1, 1, 1) && has_processors(4, 4, 4) && has_processors(3, 4, 16));
        assert!(!has_processors(2, 1, 1) && !has_processors(4, 4, 16) && !has_processors(1, 1, 16));
    }

    #[test]
    fn a_thread_that_shares_its_processor_sees_what_it_loses() {
        let thread = || {
            let delay = RunDelay::here();
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(300) {
                std::hint::spin_loop();
            }
            delay.read()
        };
        // One more than processors: together they lose what one would need.
        let processors = std::thread::available_parallelism().unwrap().get();
        let threads: Vec<_> = (0..=processors).map(|_| std::thread::spawn(thread)).collect();
        let lost: Duration = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert!(lost > Duration::from_millis(100), "{lost:?}");
    }
}
