//! Threads that stop at a point of a test until it releases them, as if they were preempted there.

use std::sync::{Condvar, Mutex, MutexGuard};

/// Threads that stop.
#[derive(Default)]
pub struct StoppedThreads {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Default)]
struct State {
    stopped: usize,
    are_released: bool,
}

impl StoppedThreads {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the lock")
    }

    /// Stops the calling thread until `release`.
    pub fn stop(&self) {
        let mut state = self.state();
        state.stopped += 1;
        drop(self.released.wait_while(state, |state| !state.are_released).expect("no thread panics with the lock"));
    }

    /// How many threads have stopped.
    pub fn count(&self) -> usize {
        self.state().stopped
    }

    pub fn are_released(&self) -> bool {
        self.state().are_released
    }

    /// Lets all threads go on, also those that would stop later.
    pub fn release(&self) {
        self.state().are_released = true;
        self.released.notify_all();
    }
}
