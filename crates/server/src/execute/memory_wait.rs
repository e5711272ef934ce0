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
use super::below::Pending;

/// However often what a command waits for changes, it is refused after this.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The wait of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryWait {
    begun: Instant,
    reason: WaitReason,
    /// When its patience changes.
    deadline: Instant,
    patience: Patience,
}

impl MemoryWait {
    fn begin(reason: WaitReason, limit: Duration, now: Instant) -> Self {
        Self { begun: now, reason, deadline: now + limit, patience: Patience::Whole }
    }

    /// The same wait after another try, at the time of `now`.
    fn go_on(self, reason: WaitReason, limit: Duration, now: Instant) -> Self {
        let patience = self.patience_at(now);
        let is_same = (reason, patience) == (self.reason, self.patience);
        let deadline = if is_same { self.deadline } else { (now + limit).min(self.begun + WAIT_MAX) };
        Self { begun: self.begun, reason, deadline, patience }
    }

    fn patience_at(self, now: Instant) -> Patience {
        match now {
            _ if now >= self.begun + WAIT_MAX => Patience::Spent,
            _ if now >= self.deadline => self.patience.after(self.reason),
            _ => self.patience,
        }
    }
}

impl Pending {
    /// Parks the connection until [`Pending::retry`]. It holds nothing that has landed: others' reads must not wait with it.
    pub(super) fn wait_for_memory(&mut self, reason: WaitReason, limit: Duration) {
        self.landed.clear();
        let now = Instant::now();
        self.memory = Some(match self.memory {
            Some(wait) => wait.go_on(reason, limit, now),
            None => MemoryWait::begin(reason, limit, now),
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
    pub(super) fn settled<T>(&self, outcome: Result<T, Error>) -> Option<Result<T, Error>> {
        if let Err(Error::WouldWait { reason }) = outcome {
            self.pending.borrow_mut().wait_for_memory(reason, self.cache.wait_limit(reason));
            self.counters().memory_waits.add(1);
            return None;
        }
        self.end_memory_wait();
        Some(outcome)
    }

    /// The command no longer waits for memory: the next one has a whole wait of its own.
    pub(super) fn end_memory_wait(&self) {
        let pending = &mut *self.pending.borrow_mut();
        if pending.memory.is_some() {
            pending.end_memory_wait();
            self.cache.set_patience(Patience::Whole);
        }
    }

    /// The second write of a command whose first is done, so that the command cannot be executed again: where it would wait
    /// it is refused.
    pub(super) fn without_memory_wait<T>(&self, write: impl FnOnce() -> T) -> T {
        self.cache.set_patience(Patience::Spent);
        let written = write();
        self.cache.set_patience(self.patience());
        written
    }

    /// Whether the command has parked the connection, so that it is to be given again.
    pub(super) fn is_waiting(&self) -> bool {
        self.pending.borrow().waits_for_memory
    }

    /// Of the connection that is served.
    pub(super) fn patience(&self) -> Patience {
        self.pending.borrow().patience()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_ends_by_its_limit() {
        let (begun, ms) = (Instant::now(), Duration::from_millis);
        let wait = MemoryWait::begin(WaitReason::Demotion, ms(50), begun);
        assert_eq!(wait.patience_at(begun + ms(49)), Patience::Whole);
        assert_eq!(wait.patience_at(begun + ms(50)), Patience::WithoutFlash);
        let again = wait.go_on(WaitReason::Demotion, ms(50), begun + ms(30));
        assert_eq!(again.patience_at(begun + ms(50)), Patience::WithoutFlash, "a try does not prolong it");
        let evicting = again.go_on(WaitReason::Eviction, ms(2000), begun + ms(60));
        assert_eq!(evicting.patience_at(begun + ms(2059)), Patience::WithoutFlash, "flash is waited for no more");
        assert_eq!(evicting.patience_at(begun + ms(2060)), Patience::Spent);
        let reasons = [WaitReason::Reader, WaitReason::Eviction].into_iter().cycle();
        let alternating = (1..100).zip(reasons).fold(wait, |wait, (step, reason)| {
            let now = begun + ms(step * 1000);
            wait.go_on(reason, ms(2000), now)
        });
        assert_eq!(alternating.patience_at(begun + ms(99_000)), Patience::Spent);
        let soon = (1..10).zip([WaitReason::Reader, WaitReason::Eviction].into_iter().cycle());
        let soon = soon.fold(MemoryWait::begin(WaitReason::Held, ms(100), begun), |wait, (step, reason)| {
            wait.go_on(reason, ms(2000), begun + ms(step * 90))
        });
        assert_eq!(soon.patience_at(begun + ms(900)), Patience::Whole);
    }
}
