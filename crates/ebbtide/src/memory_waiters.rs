//! Tasks that wait for memory. The maintenance thread wakes them after each of its turns: then they try again.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

/// The tasks of a cache.
#[derive(Default)]
pub(crate) struct MemoryWaiters {
    wakers: Mutex<Vec<Waker>>,
    /// Spares the maintenance thread the lock. Relaxed: a task that it misses is woken by the next turn.
    is_waiting: AtomicBool,
}

impl MemoryWaiters {
    pub fn add(&self, waker: Waker) {
        self.wakers.lock().expect("nothing panics under this lock").push(waker);
        self.is_waiting.store(true, Ordering::Relaxed);
    }

    pub fn wake_all(&self) {
        if self.is_waiting.swap(false, Ordering::Relaxed) {
            // Woken without the lock: a waker is code of the executor.
            let wakers = std::mem::take(&mut *self.wakers.lock().expect("nothing panics under this lock"));
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}
