//! Writes that would have to wait for memory: the connection is parked, and the command is given again a little later.
//!
//! ```text
//! command -> the cache answers WouldWait -> nothing was done, the connection is parked
//!    ^                                          | the worker serves others, for a millisecond at least
//!    +------------- executed again <------------+
//!                   after the limit of what it waits for: with what memory there is, or it is refused
//! ```

use std::time::{Duration, Instant};

use ebbtide::{Error, Patience, WaitReason};

use super::Executor;
use super::flash_reads::ConnectionWait;

/// However often what a command waits for changes, it is refused after this.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The wait of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryWait {
    started: Instant,
    reason: WaitReason,
    /// When its patience changes.
    deadline: Instant,
    patience: Patience,
}

impl MemoryWait {
    fn start(reason: WaitReason, limit: Duration, now: Instant) -> Self {
        Self { started: now, reason, deadline: now + limit, patience: Patience::Whole }
    }

    /// The same wait after another try, at the time of `now`.
    fn retry_at(self, reason: WaitReason, limit: Duration, now: Instant) -> Self {
        let patience = self.patience_at(now);
        let is_same = (reason, patience) == (self.reason, self.patience);
        let deadline = if is_same { self.deadline } else { (now + limit).min(self.started + WAIT_MAX) };
        Self { started: self.started, reason, deadline, patience }
    }

    fn patience_at(self, now: Instant) -> Patience {
        match now {
            _ if now >= self.started + WAIT_MAX => Patience::Spent,
            _ if now >= self.deadline => self.patience.after(self.reason),
            _ => self.patience,
        }
    }
}

impl ConnectionWait {
    /// Parks the connection until [`ConnectionWait::retry`]. It holds no value: others' reads must not wait with it.
    pub(super) fn wait_for_memory(&mut self, reason: WaitReason, limit: Duration) {
        self.reads.release();
        let now = Instant::now();
        self.memory = Some(match self.memory {
            Some(wait) => wait.retry_at(reason, limit, now),
            None => MemoryWait::start(reason, limit, now),
        });
        self.waits_for_memory = true;
    }

    /// Whether the connection is parked for want of memory.
    pub fn waits_for_memory(&self) -> bool {
        self.waits_for_memory
    }

    /// The command is executed again.
    pub fn retry(&mut self) {
        self.waits_for_memory = false;
    }

    /// The command that has waited is over.
    pub fn end_memory_wait(&mut self) {
        self.memory = None;
        self.waits_for_memory = false;
    }

    pub(super) fn patience(&self) -> Patience {
        self.memory.map_or(Patience::Whole, |wait| wait.patience_at(Instant::now()))
    }
}

impl Executor {
    /// What came of an operation; none if it would have to wait: then nothing was done, and the connection is parked.
    #[inline]
    pub(super) fn park_if_waiting<T>(&self, outcome: Result<T, Error>) -> Option<Result<T, Error>> {
        if let Err(Error::WouldWait { reason }) = outcome {
            self.wait.borrow_mut().wait_for_memory(reason, self.cache.wait_limit(reason));
            self.counters().memory_waits.add(1);
            return None;
        }
        self.end_memory_wait();
        Some(outcome)
    }

    /// The command no longer waits for memory: the next one has a whole wait of its own.
    pub(super) fn end_memory_wait(&self) {
        let wait = &mut *self.wait.borrow_mut();
        if wait.memory.is_some() {
            wait.end_memory_wait();
            self.cache.set_patience(Patience::Whole);
        }
    }

    /// The second write of a command whose first is done, so that the command cannot be executed again: where it would
    /// wait it is refused.
    pub(super) fn without_memory_wait<T>(&self, write: impl FnOnce() -> T) -> T {
        self.cache.set_patience(Patience::Spent);
        let written = write();
        self.cache.set_patience(self.patience());
        written
    }

    /// Whether the command has parked the connection, so that it is to be given again.
    pub(super) fn is_waiting(&self) -> bool {
        self.wait.borrow().waits_for_memory
    }

    /// Of the connection that is served.
    pub(super) fn patience(&self) -> Patience {
        self.wait.borrow().patience()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_ends_by_its_limit() {
        let (started, ms) = (Instant::now(), Duration::from_millis);
        let wait = MemoryWait::start(WaitReason::Demotion, ms(50), started);
        assert_eq!(wait.patience_at(started + ms(49)), Patience::Whole);
        assert_eq!(wait.patience_at(started + ms(50)), Patience::WithoutFlash);
        let again = wait.retry_at(WaitReason::Demotion, ms(50), started + ms(30));
        assert_eq!(again.patience_at(started + ms(50)), Patience::WithoutFlash, "a try does not prolong it");
        let evicting = again.retry_at(WaitReason::Eviction, ms(2000), started + ms(60));
        assert_eq!(evicting.patience_at(started + ms(2059)), Patience::WithoutFlash, "flash is waited for no more");
        assert_eq!(evicting.patience_at(started + ms(2060)), Patience::Spent);
        let reasons = [WaitReason::Reader, WaitReason::Eviction].into_iter().cycle();
        let alternating = (1..100).zip(reasons).fold(wait, |wait, (step, reason)| {
            let now = started + ms(step * 1000);
            wait.retry_at(reason, ms(2000), now)
        });
        assert_eq!(alternating.patience_at(started + ms(99_000)), Patience::Spent);
        let soon = (1..10).zip([WaitReason::Reader, WaitReason::Eviction].into_iter().cycle());
        let soon = soon.fold(MemoryWait::start(WaitReason::Held, ms(100), started), |wait, (step, reason)| {
            wait.retry_at(reason, ms(2000), started + ms(step * 90))
        });
        assert_eq!(soon.patience_at(started + ms(900)), Patience::Whole);
    }
}
