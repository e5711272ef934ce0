//! Wake-ups of a background thread.
//!
//! Many writers may ask for the same thread at once. `is_woken` makes all but the first of them return after one
//! relaxed load, so that a full cache does not contend on one cache line.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// How often the coarse time is refreshed and maintenance looks for work.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// Wakes one thread, which sleeps with a timeout: a lost wake-up costs one timeout.
#[derive(Default)]
pub(crate) struct Waker {
    thread: OnceLock<Thread>,
    is_woken: AtomicBool,
}

impl Waker {
    /// Wakes the registered thread, unless it is awake already. Without a thread it does nothing.
    pub fn wake(&self) {
        if let Some(thread) = self.thread.get()
            && !self.is_woken.load(Ordering::Relaxed)
            && !self.is_woken.swap(true, Ordering::Relaxed)
        {
            thread.unpark();
        }
    }

    pub fn has_thread(&self) -> bool {
        self.thread.get().is_some()
    }

    /// Registers the calling thread as the one to wake.
    pub fn register_current_thread(&self) {
        let _ = self.thread.set(thread::current());
    }

    /// The thread is about to look for work: a later `wake` wakes it again.
    pub fn reset(&self) {
        self.is_woken.store(false, Ordering::Relaxed);
    }
}
