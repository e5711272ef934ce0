//! The identity of a process, for what a forked process must leave alone.
//!
//! The number of a process is not enough: the system gives the number of an ended process to another one, which may be
//! its descendant, and each PID namespace has numbers of its own. So forks are counted, too: a handler of
//! `pthread_atfork` adds one in the child. A bare `clone` runs no handler: then only the number differs.

use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Forks between the first process that has asked for its identity and this one. Relaxed: it changes while a process
/// has one thread.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Whether forks are counted. A `Once` would stay locked in a child that was forked during the call.
static IS_COUNTING: AtomicBool = AtomicBool::new(false);

/// Identity of a process: equal in all of its threads, and in no other process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    number: u32,
    forks: u64,
}

impl Process {
    /// The calling process.
    pub fn this() -> Self {
        if !IS_COUNTING.swap(true, Ordering::Relaxed) {
            // Without memory for the handler the numbers of processes remain.
            // SAFETY: the handler only adds to an atomic number, which any thread may do after a fork.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
        }
        Self { number: process::id(), forks: FORKS.load(Ordering::Relaxed) }
    }
}

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_reused_number_is_another_process() {
        let parent = Process::this();
        // SAFETY: the child takes no lock and no memory: it compares numbers and ends.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            // As if the system had given the child the number of its parent.
            let reused = Process { number: process::id(), ..parent };
            let is_told_apart = Process::this() != reused && Process::this() == Process::this();
            // SAFETY: it ends this process alone.
            unsafe { libc::_exit(i32::from(!is_told_apart)) };
        }
        let mut status = -1;
        // SAFETY: the status is a variable of this function.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child takes itself for its parent");
        assert_eq!(Process::this(), parent);
    }
}
