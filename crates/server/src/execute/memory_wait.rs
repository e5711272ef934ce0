//! Writes that would have to wait for memory: the connection is parked, and the command is given again a little later.
//!
//! ```text
//! command -> the cache answers WouldWait -> nothing was done, the connection is parked
//!    ^                                          | the worker serves others, for a millisecond at least
//!    +------------- executed again <------------+
//!                   after the limit of what it waits for: with what memory there is, or it is refused
//! ```

use ebbtide::{Error, Patience};

use super::Executor;

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
