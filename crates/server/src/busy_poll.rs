//! Whether an idle worker polls before it sleeps. `ebbtide::flash::busy_poll` holds the policy.

use std::thread;
use std::time::{Duration, Instant};

use ebbtide::flash::busy_poll::{Contention, MAX_READ_POLL, PollBackoff};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use crate::options::BusyPoll;

/// Number of waits after the end of a flash read during which a worker still counts as reading from flash. A read that
/// hangs does not count.
const AFTER_READ: u32 = 8;
/// Max time of polling for a request: after an answer the client needs a wake-up before it sends the next request.
const MAX_REQUEST_POLL: Duration = Duration::from_micros(50);

impl BusyPoll {
    /// `Never`, unless each of the workers can have a processor.
    pub fn with_processors_for(self, workers: usize) -> Self {
        let granted = thread::available_parallelism().map_or(1, usize::from);
        let is_bound_to =
            |set: CpuSet| (0..CpuSet::count()).filter(|&processor| set.is_set(processor) == Ok(true)).count();
        let bound = sched_getaffinity(Pid::from_raw(0)).map_or(granted, is_bound_to);
        if has_processors(workers, granted, bound) { self } else { Self::Never }
    }
}

/// Whether each worker has a processor, and one is spare under a quota: `granted`, the processors that the quota of the
/// control group allows, includes the other threads of the process, and a process over its quota stops for tens of
/// milliseconds. `bound`: processors that the process is bound to.
fn has_processors(workers: usize, granted: usize, bound: usize) -> bool {
    if granted < bound { workers < granted } else { workers <= granted }
}

/// Event that a worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedEvent {
    /// A pending read of flash, or a request.
    Flash,
    Request,
}

impl AwaitedEvent {
    /// Max time of polling.
    pub fn max_poll(self) -> Duration {
        match self {
            Self::Flash => MAX_READ_POLL,
            Self::Request => MAX_REQUEST_POLL,
        }
    }
}

/// The state of a worker that decides about polling.
#[derive(Debug)]
pub struct BusyPollState {
    policy: BusyPoll,
    flash: PollBackoff,
    request: PollBackoff,
    /// Waits since the end of the last read of flash.
    since_read: u32,
    contention: Contention,
}

impl BusyPollState {
    pub fn new(policy: BusyPoll) -> Self {
        Self {
            policy,
            flash: PollBackoff::default(),
            request: PollBackoff::default(),
            since_read: AFTER_READ,
            contention: Contention::default(),
        }
    }

    /// Starts a wait. True when the worker polls before it sleeps. `lost` is `run_delay`.
    pub fn asks(&mut self, awaited: AwaitedEvent, now: Instant, lost: impl FnOnce() -> Option<Duration>) -> bool {
        self.since_read = self.since_read.saturating_add(1);
        let wants = match self.policy {
            BusyPoll::Never => false,
            BusyPoll::Auto => self.since_read <= AFTER_READ,
            BusyPoll::Always => true,
        };
        let asks = wants && !self.contention.forbids(now, lost) && self.backoff(awaited).may_poll();
        if asks {
            self.contention.record_polling();
        }
        asks
    }

    /// A read of flash has ended.
    pub fn read_ended(&mut self) {
        self.since_read = 0;
    }

    /// Records the result of polling: whether something arrived in time.
    pub fn record_poll(&mut self, awaited: AwaitedEvent, was_answered: bool) {
        self.backoff(awaited).record_poll(was_answered);
    }

    fn backoff(&mut self, awaited: AwaitedEvent) -> &mut PollBackoff {
        match awaited {
            AwaitedEvent::Flash => &mut self.flash,
            AwaitedEvent::Request => &mut self.request,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AwaitedEvent::{Flash, Request};
    use super::*;
    use ebbtide::flash::busy_poll::SAMPLE_INTERVAL;

    /// A worker that is alone, in a time that does not pass.
    struct World {
        waits: BusyPollState,
        now: Instant,
    }

    impl World {
        fn new(policy: BusyPoll) -> Self {
            let mut waits = BusyPollState::new(policy);
            let started = Instant::now();
            let now = started + SAMPLE_INTERVAL;
            let forbids = [started, now].map(|now| waits.contention.forbids(now, || Some(Duration::ZERO)));
            assert_eq!(forbids, [true, false]);
            Self { waits, now }
        }

        /// Number of polls in `count` waits, in all or none of which an event arrives in time.
        fn asks(&mut self, awaited: AwaitedEvent, count: u32, was_answered: bool) -> u32 {
            let mut asked = 0;
            for _ in 0..count {
                if self.waits.asks(awaited, self.now, || Some(Duration::ZERO)) {
                    asked += 1;
                    self.waits.record_poll(awaited, was_answered);
                }
            }
            asked
        }
    }

    #[test]
    fn auto_polls_only_while_flash_reads_complete() {
        let mut world = World::new(BusyPoll::Auto);
        assert_eq!(world.asks(Request, 100, true), 0);
        world.waits.read_ended();
        assert_eq!(world.asks(Request, 100, true), AFTER_READ);
        world.waits.read_ended();
        assert_eq!(world.asks(Flash, 100, true), AFTER_READ, "none of them ended");
        let mut never = World::new(BusyPoll::Never);
        never.waits.read_ended();
        assert_eq!(never.asks(Flash, 100, true) + never.asks(Request, 100, true), 0);
    }

    #[test]
    fn vain_request_polls_do_not_limit_flash_polls() {
        let mut world = World::new(BusyPoll::Always);
        assert_eq!(world.asks(Request, 100, false), 5, "after rests of 1, 4, 16 and 64");
        assert_eq!(world.asks(Flash, 100, true), 100);
    }

    #[test]
    fn always_sleeps_where_others_want_the_processor() {
        let mut world = World::new(BusyPoll::Always);
        world.now += SAMPLE_INTERVAL;
        assert!(!world.waits.asks(Request, world.now, || Some(SAMPLE_INTERVAL)));
    }

    #[test]
    fn workers_need_a_processor_each_plus_quota_spare() {
        assert!(has_processors(1, 1, 1) && has_processors(4, 4, 4) && has_processors(3, 4, 16));
        assert!(!has_processors(2, 1, 1) && !has_processors(4, 4, 16) && !has_processors(1, 1, 16));
    }
}
