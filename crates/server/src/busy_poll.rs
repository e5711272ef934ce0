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
//! milliseconds. So the time that the thread was ready and did not run is looked at, twice a second. Nothing is asked until the next look where it is much, and
//! where it is much beside asking for a second, and for longer and longer if that happens again soon.

use std::fs::File;
use std::mem;
use std::os::unix::fs::FileExt;
use std::str;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use crate::options::BusyPoll;

/// The longest rest, in waits.
const REST_MOST: u32 = 1024;
/// How many waits after the end of a read of flash a worker still counts as one that reads from flash. A read that never ends does not count.
const AFTER_READ: u32 = 8;
/// How often a thread looks at what it lost to others.
const LOOK: Duration = Duration::from_millis(500);
/// The share of its time that is too much: less than was measured where two workers and a client have two processors, more than what threads of ours
/// take from a worker with which they share one.
const LOST_MOST: f64 = 0.15;
/// How long nothing is asked then.
const PAUSE_LEAST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(8);
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
    /// Waits since a read of flash ended.
    since_read: u32,
    contention: Contention,
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
            since_read: AFTER_READ,
            contention: Contention::default(),
        }
    }

    /// A wait begins: whether to ask before sleeping. `lost` is [`RunDelay::read`].
    pub fn asks(&mut self, awaited: Awaited, now: Instant, lost: impl FnOnce() -> Duration) -> bool {
        self.since_read = self.since_read.saturating_add(1);
        let wants = match self.policy {
            BusyPoll::Never => false,
            BusyPoll::Auto => self.since_read <= AFTER_READ,
            BusyPoll::Always => true,
        };
        if !wants || self.contention.forbids(now, lost) {
            return false;
        }
        let rests = self.rests(awaited);
        let rested = rests.left == 0;
        rests.left = rests.left.saturating_sub(1);
        self.contention.has_asked |= rested;
        rested
    }

    /// A read of flash has ended.
    pub fn read_ended(&mut self) {
        self.since_read = 0;
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

    fn rests(&mut self, awaited: Awaited) -> &mut Rests {
        match awaited {
            Awaited::Flash => &mut self.flash,
            Awaited::Request => &mut self.request,
        }
    }
}

/// What a worker knows of other threads that want its processor.
#[derive(Debug, Default)]
struct Contention {
    /// When it looked last, and what was lost until then.
    looked: Option<(Instant, Duration)>,
    /// Whether little was lost between the last two looks.
    is_alone: bool,
    /// Whether it has asked since then.
    has_asked: bool,
    /// The last pause, and when it ends.
    pause: Option<(Duration, Instant)>,
}

impl Contention {
    /// Whether others want the processors, or that is not known: then nothing is to be asked.
    fn forbids(&mut self, now: Instant, lost: impl FnOnce() -> Duration) -> bool {
        if self.pause.is_some_and(|(_, until)| now < until) {
            return true;
        }
        if self.looked.is_some_and(|(at, _)| now < at + LOOK) {
            return !self.is_alone;
        }
        let lost = lost();
        let before = self.looked.replace((now, lost));
        // What was long ago is of another load.
        let Some((at, before)) = before.filter(|(at, _)| now < *at + 2 * LOOK) else {
            self.is_alone = false;
            return true;
        };
        self.is_alone = lost.saturating_sub(before) < (now - at).mul_f64(LOST_MOST);
        // What is lost without asking may be over at the next look.
        if mem::take(&mut self.has_asked) && !self.is_alone {
            let pause = match self.pause {
                Some((pause, until)) if now < until + FORGOTTEN * pause => (2 * pause).min(PAUSE_MOST),
                _ => PAUSE_LEAST,
            };
            self.pause = Some((pause, now + pause));
        }
        !self.is_alone
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

    /// One that knows that it is alone.
    fn alone(policy: BusyPoll) -> Waits {
        let looked = Some((Instant::now(), Duration::ZERO));
        Waits { contention: Contention { looked, is_alone: true, ..Contention::default() }, ..Waits::new(policy) }
    }

    /// How often it asks in so many waits, `came` says of which something comes in time. No time passes.
    fn asks(waits: &mut Waits, awaited: Awaited, count: u32, came: impl Fn(u32) -> bool) -> u32 {
        let (now, _) = waits.contention.looked.expect("it is alone");
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
        let mut waits = alone(BusyPoll::Always);
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
        let often = asks(&mut alone(BusyPoll::Always), Flash, 10_000, |wait| wait % 4 != 0);
        assert!(often > 7000, "{often}");
        let mut waits = alone(BusyPoll::Always);
        // Of all numbers, not of those that the rests fall on.
        let rarely = asks(&mut waits, Flash, 1_000_000, |wait| wait.wrapping_mul(0x9e37_79b9) >> 31 == 0);
        assert!(rarely < 50_000, "{rarely}");
    }

    #[test]
    fn auto_asks_only_beside_reads_of_flash_that_end() {
        let mut waits = alone(BusyPoll::Auto);
        assert_eq!(asks(&mut waits, Request, 100, |_| true), 0);
        waits.read_ended();
        assert_eq!(asks(&mut waits, Request, 100, |_| true), AFTER_READ);
        waits.read_ended();
        assert_eq!(asks(&mut waits, Flash, 100, |_| true), AFTER_READ, "none of them ended");
        let mut never = alone(BusyPoll::Never);
        never.read_ended();
        assert_eq!(asks(&mut never, Flash, 100, |_| true) + asks(&mut never, Request, 100, |_| true), 0);
    }

    /// Waits that all end in time, a millisecond each.
    struct World {
        waits: Waits,
        now: Instant,
        lost: Duration,
    }

    impl World {
        fn new() -> Self {
            Self { waits: Waits::new(BusyPoll::Always), now: Instant::now(), lost: Duration::ZERO }
        }

        /// Whether it asks in the next one, while these shares of the time are lost when it does and when it sleeps.
        fn asks(&mut self, asking: f64, sleeping: f64) -> bool {
            let wait = Duration::from_millis(1);
            let asks = self.waits.asks(Request, self.now, || self.lost);
            if asks {
                self.waits.asked(Request, true);
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

    const LITTLE: f64 = 0.9 * LOST_MOST;
    const MUCH: f64 = 1.1 * LOST_MOST;

    #[test]
    fn it_asks_when_it_knows_that_little_is_lost() {
        let mut world = World::new();
        assert_eq!(world.count(LOOK, LITTLE, LITTLE), 0);
        let minute = Duration::from_secs(60);
        assert_eq!(world.count(minute, LITTLE, LITTLE), minute.as_millis() as usize);
        // Where much is lost in any case it stops with the next look, and begins with one when that is over.
        world.count(2 * LOOK, MUCH, MUCH);
        world.count(PAUSE_LEAST, MUCH, MUCH);
        assert_eq!(world.count(minute, MUCH, MUCH), 0);
        assert!(world.count(minute, 0.0, 0.0) > 0);
        // After a time without waits it does not know.
        world.now += minute;
        assert!(!world.asks(0.0, 0.0));
    }

    #[test]
    fn where_asking_makes_it_lose_much_it_sleeps_for_longer_and_longer() {
        let mut world = World::new();
        let pause = |world: &mut World| {
            while !world.asks(MUCH, 0.0) {}
            while world.asks(MUCH, 0.0) {}
            let begun = world.now;
            while !world.asks(MUCH, 0.0) {}
            // Until it knows it sleeps as well.
            (world.now - begun - LOOK).as_secs()
        };
        assert_eq!([(); 5].map(|()| pause(&mut world)), [1, 2, 4, 8, 8]);
        // When it has asked for long, a pause is short again.
        world.count((FORGOTTEN + 1) * PAUSE_MOST, 0.0, 0.0);
        assert_eq!(pause(&mut world), 1);
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
