//! The way of records to the file of the log: by a front in memory and a thread, so that nobody who removes waits for the disk of the file.
//!
//! ```text
//! put -> front, and a list -> the thread, every 10 ms -> the file
//! ```
//! A write to a file waits for the disk now and then, if only because the filesystem notes the time: for as long as that does nothing. Who removes
//! something holds the locks of its key meanwhile, and the worker serves nobody. So a record is in the front when `put` returns; the file
//! has it later. When the front is full the file is waited for, but not if the thread has done nothing for a second: then the log is lost.

use super::front::{ENTRIES, Front, Write};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long records are gathered.
const GATHER: Duration = Duration::from_millis(10);
/// From so many on in the front they are not.
const CROWD: usize = ENTRIES / 2;
/// A file that takes nothing for so long is not waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// The file of the log.
pub(super) struct Target {
    pub file: File,
    path: PathBuf,
    identity: (u64, u64),
    /// A head that no restart believes.
    useless_head: Vec<u8>,
    /// Whoever holds it keeps the file from taking anything.
    #[cfg(test)]
    pub gate: Arc<Mutex<()>>,
}

impl Target {
    pub fn new(file: File, path: &Path, useless_head: Vec<u8>) -> io::Result<Self> {
        let identity = identity_of(&file)?;
        Ok(Self {
            file,
            path: path.to_owned(),
            identity,
            useless_head,
            #[cfg(test)]
            gate: Arc::default(),
        })
    }

    /// The same with another file.
    #[cfg(test)]
    pub fn with_file(&self, file: File) -> Self {
        Self {
            file,
            path: self.path.clone(),
            identity: self.identity,
            useless_head: self.useless_head.clone(),
            gate: Arc::default(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sees to it that no restart believes the file.
    pub fn spoil(&self) {
        let spoilt = self.file.write_all_at(&self.useless_head, 0).and_then(|()| self.file.sync_data());
        if spoilt.is_err() {
            // It may be the file as it was opened that takes nothing.
            let _ = self.spoil_anew();
        }
    }

    fn spoil_anew(&self) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        // Another one's may be there by now.
        if identity_of(&file)? == self.identity {
            file.write_all_at(&self.useless_head, 0)?;
            file.sync_data()?;
        }
        Ok(())
    }

    /// Writes, those that lie side by side at once.
    pub fn apply(&self, writes: &[Write]) -> io::Result<()> {
        #[cfg(test)]
        let _open = self.gate.lock().unwrap();
        let mut bytes = Vec::new();
        let mut rest = writes.iter().peekable();
        while let Some(first) = rest.next() {
            bytes.clear();
            bytes.extend_from_slice(first.bytes());
            while let Some(next) = rest.next_if(|next| next.offset == first.offset + bytes.len() as u64) {
                bytes.extend_from_slice(next.bytes());
            }
            self.file.write_all_at(&bytes, first.offset)?;
        }
        Ok(())
    }
}

/// Tells a file apart from all others there are.
fn identity_of(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}

impl State {
    fn is_busy(&self) -> bool {
        self.applies || !self.waiting.is_empty()
    }
}

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
    /// When the thread has ended something, or got something to do.
    progress: Instant,
    /// The log does not have everything. The file is to be spoilt.
    is_lost: bool,
    /// The thread does not gather: somebody waits.
    hurries: bool,
    ends: bool,
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
            progress: Instant::now(),
            is_lost: false,
            hurries: false,
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
        if state.is_lost || state.used == ENTRIES {
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
    pub fn is_lost(&self) -> bool {
        self.shared.state().is_lost
    }

    /// How long the file has taken nothing though there is something for it.
    pub fn waits(&self) -> Duration {
        let state = self.shared.state();
        if state.is_busy() { state.progress.elapsed() } else { Duration::ZERO }
    }

    /// Has the front say that the log does not have everything, and the thread the file. False if there is no front, or it takes nothing.
    pub fn lose(&self) -> bool {
        let mut state = self.shared.state();
        let is_said = state.front.as_ref().is_some_and(|front| front.lose().is_ok());
        if is_said {
            state.is_lost = true;
            state.waiting.clear();
            self.shared.changed.notify_all();
        }
        is_said
    }

    /// Waits until the file has everything, but not for longer than this. Whether it has.
    pub fn drain(&self, most: Duration) -> bool {
        let mut state = self.shared.state();
        state.hurries = true;
        self.shared.changed.notify_all();
        let is_busy = |state: &mut State| !state.is_lost && state.is_busy();
        let (mut state, timeout) = self.shared.changed.wait_timeout_while(state, most, is_busy).unwrap();
        state.hurries = false;
        !timeout.timed_out()
    }

    /// Lets others open the front.
    pub fn unlock_front(&self) {
        self.shared.state().front.iter().for_each(Front::unlock);
    }

    #[cfg(test)]
    pub fn kill(&self) {
        let mut state = self.shared.state();
        state.waiting.clear();
        state.ends = true;
        drop(self.shared.changed.wait_while(state, |state| state.applies).unwrap());
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

    fn wait_for_room<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.hurries = true;
        self.changed.notify_all();
        while state.used == ENTRIES && !state.is_lost && state.progress.elapsed() < PATIENCE {
            state = self.changed.wait_timeout(state, GATHER).unwrap().0;
        }
        state.hurries = false;
        state
    }

    /// The thread: to the file with what is in the front.
    fn serve(&self) {
        let mut state = self.state();
        loop {
            let is_idle = |state: &mut State| state.waiting.is_empty() && !state.is_lost && !state.ends;
            state = self.changed.wait_while(state, is_idle).unwrap();
            let gathers = |state: &mut State| state.used < CROWD && !state.hurries && !state.is_lost && !state.ends;
            state = self.changed.wait_timeout_while(state, GATHER, gathers).unwrap().0;
            if state.is_lost {
                drop(state);
                self.target.spoil();
                return;
            }
            let writes = mem::take(&mut state.waiting);
            if writes.is_empty() {
                return;
            }
            state.applies = true;
            drop(state);
            let applied = self.target.apply(&writes);
            state = self.state();
            state.applies = false;
            state.progress = Instant::now();
            if applied.is_err() {
                // A front that does not say so belongs to a file that will.
                state.front.iter().for_each(|front| drop(front.lose()));
                state.is_lost = true;
                state.waiting.clear();
            } else if state.waiting.is_empty() {
                (state.generation, state.used) = (state.generation + 1, 0);
            }
            self.changed.notify_all();
        }
    }
}
