//! The way of records to the file of the log: by a front in memory and a thread, so that nobody who removes waits for the disk of the file.
//!
//! ```text
//! put -> front, and a list -> the thread, every 10 ms -> the file
//! ```
//! A write to a file waits for the disk now and then, if only because the filesystem notes the time: for as long as that does nothing. Who removes
//! something holds the locks of its key meanwhile, and the worker serves nobody. So a record is in the front when `put` returns; the file
//! has it later. When the front is full the file is waited for, a second at most, and not if the thread has
//! done nothing for one: then the log is doubted, by a mark in the front.

use super::front::{ENTRIES, Front, Write};
use super::target::Target;
use crate::device;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long records are gathered.
const GATHER: Duration = Duration::from_millis(10);
/// From so many on in the front they are not.
const CROWD: usize = ENTRIES / 2;
/// A file that takes nothing for so long is not waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// By a front, while there is one.
pub(super) struct Way {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    target: Arc<Target>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    front: Option<Front>,
    /// Of the front, and how many entries of it there are.
    generation: u64,
    used: usize,
    /// What the thread has not taken.
    waiting: Vec<Write>,
    /// The thread is at the file.
    applies: bool,
    /// How often the thread was there, and when it last was, or got something to do.
    batches: u64,
    progress: Instant,
    /// The log does not have everything, and the front says so.
    is_doubted: bool,
    /// The thread does not gather: somebody waits.
    hurries: bool,
    /// Others may open the file once nothing more comes to it.
    closes: bool,
    is_served: bool,
    ends: bool,
}

impl State {
    /// Nothing more goes to the front, or to the file.
    fn doubt(&mut self) {
        self.is_doubted = true;
        self.waiting.clear();
    }

    /// Somebody waits for the thread.
    fn is_awaited(&self) -> bool {
        self.hurries || self.closes || self.ends
    }

    fn is_busy(&self) -> bool {
        self.applies || !self.waiting.is_empty()
    }
}

impl Way {
    /// Straight to the file.
    pub fn new(target: Arc<Target>) -> Self {
        let state = State {
            front: None,
            generation: 0,
            used: 0,
            waiting: Vec::new(),
            applies: false,
            batches: 0,
            progress: Instant::now(),
            is_doubted: false,
            hurries: false,
            closes: false,
            is_served: false,
            ends: false,
        };
        let shared = Shared { target, state: Mutex::new(state), changed: Condvar::new() };
        Self { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    /// Starts the thread.
    pub fn serve(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name("ebbtide-removal".to_owned()).spawn(move || shared.serve())?;
        *self.thread.lock().unwrap() = Some(thread);
        self.shared.state().is_served = true;
        Ok(())
    }

    /// By this front from now on, which is new.
    pub fn take(&self, front: Front) {
        self.shared.state().front = Some(front);
    }

    /// Has the front take a write. False if there is none.
    ///
    /// # Errors
    ///
    /// The front, or the file in a second, takes nothing: the log is not to be believed.
    pub fn put(&self, write: Write) -> io::Result<bool> {
        let mut state = self.shared.state();
        if state.front.is_none() {
            return Ok(false);
        }
        if state.used == ENTRIES {
            state = self.shared.wait_for_room(state);
        }
        if state.is_doubted || state.used == ENTRIES {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let State { front, generation, used, .. } = &*state;
        front.as_ref().expect("it was there, and is taken away by nobody who does not hold all rings").append(
            *generation,
            *used,
            &write,
        )?;
        state.used += 1;
        if !state.is_busy() {
            state.progress = Instant::now();
        }
        state.waiting.push(write);
        if state.waiting.len() == 1 || state.used == CROWD {
            self.shared.changed.notify_all();
        }
        Ok(true)
    }

    /// Whether the log does not have everything, since the file did not take it.
    pub fn is_doubted(&self) -> bool {
        self.shared.state().is_doubted
    }

    /// How long the file has taken nothing though there is something for it.
    pub fn waits(&self) -> Duration {
        let state = self.shared.state();
        if state.is_busy() { state.progress.elapsed() } else { Duration::ZERO }
    }

    /// Has the front say that the log does not have everything. False if there is no front, or it takes nothing.
    pub fn doubt(&self) -> bool {
        let mut state = self.shared.state();
        let is_said = state.front.as_ref().is_some_and(|front| front.doubt().is_ok());
        if is_said {
            state.doubt();
            self.shared.changed.notify_all();
        }
        is_said
    }

    /// Waits until the file has everything, but not for longer than this. Whether it has.
    pub fn drain(&self, most: Duration) -> bool {
        self.hurry(most, u64::MAX)
    }

    /// The same, but what comes meanwhile is not waited for.
    pub fn bring(&self, most: Duration) -> bool {
        // The one that is under way, and the next.
        self.hurry(most, 2)
    }

    fn hurry(&self, most: Duration, batches: u64) -> bool {
        let mut state = self.shared.state();
        state.hurries = true;
        self.shared.changed.notify_all();
        let enough = state.batches.saturating_add(batches);
        let is_busy = |state: &mut State| state.is_busy() && state.batches < enough;
        let (mut state, timeout) = self.shared.changed.wait_timeout_while(state, most, is_busy).unwrap();
        state.hurries = false;
        !timeout.timed_out()
    }

    /// Lets others open the file and the front: now, if the file has everything within this, or else when it has.
    pub fn close(&self, most: Duration) {
        let mut state = self.shared.state();
        if !state.is_served {
            return self.shared.unlock(&state);
        }
        state.closes = true;
        self.shared.changed.notify_all();
        drop(self.shared.changed.wait_timeout_while(state, most, |state| state.closes).unwrap());
    }

    #[cfg(test)]
    pub fn unlock(&self) {
        self.shared.unlock(&self.shared.state());
    }

    #[cfg(test)]
    pub fn kill(&self) {
        let mut state = self.shared.state();
        state.waiting.clear();
        state.ends = true;
        let state = self.shared.changed.wait_while(state, |state| state.applies).unwrap();
        self.shared.unlock(&state);
    }

    /// Straight to the file again, which has everything.
    pub fn take_front(&self) -> Option<Front> {
        self.shared.state().front.take()
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.shared.state().ends = true;
        self.shared.changed.notify_all();
        let is_idle = self.drain(PATIENCE);
        let thread = self.thread.lock().unwrap().take();
        // One that waits for the file cannot be waited for.
        if let Some(thread) = thread.filter(|_| is_idle) {
            thread.join().expect("it does not panic");
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn unlock(&self, state: &State) {
        state.front.iter().for_each(Front::unlock);
        device::unlock(&self.target.file);
    }

    fn wait_for_room<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.hurries = true;
        self.changed.notify_all();
        let begun = Instant::now();
        let has_time = |since: Instant| since.elapsed() < PATIENCE;
        while state.used == ENTRIES && !state.is_doubted && has_time(state.progress) && has_time(begun) {
            state = self.changed.wait_timeout(state, GATHER).unwrap().0;
        }
        state.hurries = false;
        state
    }

    /// The thread: to the file with what is in the front.
    fn serve(&self) {
        let mut state = self.state();
        loop {
            let is_idle = |state: &mut State| !state.is_busy() && !state.ends && !state.closes;
            state = self.changed.wait_while(state, is_idle).unwrap();
            let gathers = |state: &mut State| state.used < CROWD && !state.is_awaited();
            state = self.changed.wait_timeout_while(state, GATHER, gathers).unwrap().0;
            if state.is_busy() {
                state = self.step(state);
            } else if mem::take(&mut state.closes) {
                self.unlock(&state);
            } else if state.ends {
                return;
            }
            self.changed.notify_all();
        }
    }

    /// Takes what waits to the file.
    fn step<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let writes = mem::take(&mut state.waiting);
        state.applies = true;
        drop(state);
        let applied = self.target.apply(&writes);
        state = self.state();
        state.applies = false;
        state.batches += 1;
        state.progress = Instant::now();
        if applied.is_err() {
            // Its memory is reserved, so the front takes the mark.
            state.front.iter().for_each(|front| drop(front.doubt()));
            state.doubt();
        } else if state.waiting.is_empty() {
            (state.generation, state.used) = (state.generation + 1, 0);
        }
        state
    }
}
