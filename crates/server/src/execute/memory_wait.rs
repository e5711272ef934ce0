//! Writes that would wait for memory: the connection is parked, and the command is executed again later.
//!
//! ```text
//! command -> the cache answers WouldWait -> nothing was done, the connection is parked
//!    ^                                          | the worker serves others, for a millisecond or longer
//!    +------------- executed again <------------+
//!                   after the time limit of its reason: without the wait, or it is refused
//! ```

use ebbtide::memcached::{Error, Patience};

use super::Executor;

impl Executor {
    /// Passes the result of an operation on, or parks the connection and returns `None` when the operation would wait
    /// for memory and has done nothing.
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

    /// Ends the command's wait for memory, so that the next command starts with full patience.
    pub(super) fn end_memory_wait(&self) {
        let wait = &mut *self.wait.borrow_mut();
        if wait.memory.is_some() {
            wait.end_memory_wait();
            self.set_patience(Patience::Whole);
        }
    }

    /// Runs the second write of a command. The first one is done, so the command cannot be executed again: a write that
    /// would wait is refused.
    pub(super) fn without_memory_wait<T>(&self, write: impl FnOnce() -> T) -> T {
        self.set_patience(Patience::Spent);
        let written = write();
        self.set_patience(self.patience());
        written
    }

    /// True when the command has parked the connection for memory, so that the session gives it again.
    pub(super) fn is_waiting(&self) -> bool {
        self.wait.borrow().waits_for_memory
    }

    /// The patience of the current connection.
    pub(super) fn patience(&self) -> Patience {
        self.wait.borrow().patience()
    }
}
