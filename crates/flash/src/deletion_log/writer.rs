//! Writes records to the file of the log, by a WAL buffer in memory and a thread, so that removals do not wait for the
//! disk of the file.
//!
//! ```text
//! put -> WAL buffer, and a list -> the thread, every 10 ms -> the file
//! ```
//! A write to a file sometimes waits for the disk, if only because the filesystem updates a time: for as long as the
//! disk stalls. Meanwhile a removal holds the locks of its key, and its worker serves no other client. So a record is
//! in the WAL buffer when `append` returns, and reaches the file later. If the WAL buffer is full, `append` waits for
//! the file, for at most a second. It does not wait if the thread has made no progress for a second: then the log is
//! marked as incomplete in the WAL buffer.

use super::log_file::LogFile;
use super::wal_buffer::{ENTRIES, LogWrite, WalBuffer};
use crate::device;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time for which records are gathered into a batch.
const GATHER_TIME: Duration = Duration::from_millis(10);
/// Entries in the WAL buffer from which on records are not gathered.
const CROWDED_ENTRIES: usize = ENTRIES / 2;
/// Time without progress after which no thread waits for the file.
pub(super) const MAX_STALL: Duration = Duration::from_secs(1);

/// Writes to the log, by a WAL buffer while there is one.
pub(super) struct LogWriter {
    shared: Arc<WriterShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct WriterShared {
    log_file: Arc<LogFile>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    wal_buffer: Option<WalBuffer>,
    /// Generation of the entries in the WAL buffer. `used`: their number.
    generation: u64,
    used: usize,
    /// Writes that the thread has not taken yet.
    pending: Vec<LogWrite>,
    /// The thread is writing to the file.
    is_applying: bool,
    /// Number of batches that the thread has written. `progress`: when it finished the last one, or got work after
    /// being idle.
    batches: u64,
    progress: Instant,
    /// The log is incomplete, and the WAL buffer has the mark.
    is_invalid: bool,
    /// A thread waits for the file, so records are not gathered.
    is_hurried: bool,
    /// The file is to be unlocked after its last write.
    is_closing: bool,
    is_served: bool,
    is_ending: bool,
}

impl State {
    /// Drops all pending and later writes.
    fn invalidate(&mut self) {
        self.is_invalid = true;
        self.pending.clear();
    }

    /// Whether a caller waits for the thread.
    fn is_awaited(&self) -> bool {
        self.is_hurried || self.is_closing || self.is_ending
    }

    fn is_busy(&self) -> bool {
        self.is_applying || !self.pending.is_empty()
    }
}

impl LogWriter {
    /// A writer without a WAL buffer: records are written directly to the file.
    pub fn new(log_file: Arc<LogFile>) -> Self {
        let state = State {
            wal_buffer: None,
            generation: 0,
            used: 0,
            pending: Vec::new(),
            is_applying: false,
            batches: 0,
            progress: Instant::now(),
            is_invalid: false,
            is_hurried: false,
            is_closing: false,
            is_served: false,
            is_ending: false,
        };
        let shared = WriterShared { log_file, state: Mutex::new(state), changed: Condvar::new() };
        Self { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    /// Starts the thread.
    pub fn serve(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name("ebbtide-dellog".to_owned()).spawn(move || shared.serve())?;
        *self.thread.lock().unwrap() = Some(thread);
        self.shared.state().is_served = true;
        Ok(())
    }

    /// Uses this new WAL buffer from now on.
    pub fn take(&self, wal_buffer: WalBuffer) {
        self.shared.state().wal_buffer = Some(wal_buffer);
    }

    /// Appends a write to the WAL buffer. False if there is none.
    ///
    /// # Errors
    ///
    /// The WAL buffer refuses the write, or the file makes no progress within a second: the log must be invalidated.
    pub fn append(&self, write: LogWrite) -> io::Result<bool> {
        let mut state = self.shared.state();
        if state.wal_buffer.is_none() {
            return Ok(false);
        }
        if state.used == ENTRIES {
            state = self.shared.wait_for_entry(state);
        }
        if state.is_invalid || state.used == ENTRIES {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let State { wal_buffer, generation, used, .. } = &*state;
        wal_buffer.as_ref().expect("it was there, and is taken away by nobody who does not hold all rings").append(
            *generation,
            *used,
            &write,
        )?;
        state.used += 1;
        if !state.is_busy() {
            state.progress = Instant::now();
        }
        state.pending.push(write);
        if state.pending.len() == 1 || state.used == CROWDED_ENTRIES {
            self.shared.changed.notify_all();
        }
        Ok(true)
    }

    /// Whether the log is incomplete because a write to the file failed.
    pub fn is_invalid(&self) -> bool {
        self.shared.state().is_invalid
    }

    /// How long the file has completed no write although there are pending ones.
    pub fn stalled_for(&self) -> Duration {
        let state = self.shared.state();
        if state.is_busy() { state.progress.elapsed() } else { Duration::ZERO }
    }

    /// Marks the log as incomplete in the WAL buffer. False if there is none, or it refuses the mark.
    pub fn invalidate(&self) -> bool {
        let mut state = self.shared.state();
        let is_said = state.wal_buffer.as_ref().is_some_and(|wal_buffer| wal_buffer.invalidate().is_ok());
        if is_said {
            state.invalidate();
            self.shared.changed.notify_all();
        }
        is_said
    }

    /// Waits until the file has all writes, for at most `max`. Returns whether it has them.
    pub fn drain(&self, max: Duration) -> bool {
        self.flush_batches(max, u64::MAX)
    }

    /// As [`LogWriter::drain`], without waiting for writes that are appended meanwhile.
    pub fn flush_pending(&self, max: Duration) -> bool {
        // The current batch and the next one.
        self.flush_batches(max, 2)
    }

    fn flush_batches(&self, max: Duration, batches: u64) -> bool {
        let mut state = self.shared.state();
        state.is_hurried = true;
        self.shared.changed.notify_all();
        let enough = state.batches.saturating_add(batches);
        let is_busy = |state: &mut State| state.is_busy() && state.batches < enough;
        let (mut state, timeout) = self.shared.changed.wait_timeout_while(state, max, is_busy).unwrap();
        state.is_hurried = false;
        !timeout.timed_out()
    }

    /// Unlocks the file and the WAL buffer once the file has all writes. Waits for that at most `max`.
    pub fn close(&self, max: Duration) {
        let mut state = self.shared.state();
        if !state.is_served {
            return self.shared.unlock(&state);
        }
        state.is_closing = true;
        self.shared.changed.notify_all();
        drop(self.shared.changed.wait_timeout_while(state, max, |state| state.is_closing).unwrap());
    }

    #[cfg(test)]
    pub fn unlock(&self) {
        self.shared.unlock(&self.shared.state());
    }

    #[cfg(test)]
    pub fn kill(&self) {
        let mut state = self.shared.state();
        state.pending.clear();
        state.is_ending = true;
        let state = self.shared.changed.wait_while(state, |state| state.is_applying).unwrap();
        self.shared.unlock(&state);
    }

    /// Ends the use of the WAL buffer, whose writes the file must have: later records are written directly to the file.
    pub fn take_wal_buffer(&self) -> Option<WalBuffer> {
        self.shared.state().wal_buffer.take()
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.shared.state().is_ending = true;
        self.shared.changed.notify_all();
        let is_idle = self.drain(MAX_STALL);
        let thread = self.thread.lock().unwrap().take();
        // A thread that waits for the file is not joined.
        if let Some(thread) = thread.filter(|_| is_idle) {
            thread.join().expect("it does not panic");
        }
    }
}

impl WriterShared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn unlock(&self, state: &State) {
        state.wal_buffer.iter().for_each(WalBuffer::unlock);
        device::unlock(&self.log_file.file);
    }

    fn wait_for_entry<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.is_hurried = true;
        self.changed.notify_all();
        let started = Instant::now();
        let has_time = |since: Instant| since.elapsed() < MAX_STALL;
        while state.used == ENTRIES && !state.is_invalid && has_time(state.progress) && has_time(started) {
            state = self.changed.wait_timeout(state, GATHER_TIME).unwrap().0;
        }
        state.is_hurried = false;
        state
    }

    /// The thread: applies the writes of the WAL buffer to the file.
    fn serve(&self) {
        let mut state = self.state();
        loop {
            let is_idle = |state: &mut State| !state.is_busy() && !state.is_ending && !state.is_closing;
            state = self.changed.wait_while(state, is_idle).unwrap();
            let gathers = |state: &mut State| state.used < CROWDED_ENTRIES && !state.is_awaited();
            state = self.changed.wait_timeout_while(state, GATHER_TIME, gathers).unwrap().0;
            if state.is_busy() {
                state = self.step(state);
            } else if mem::take(&mut state.is_closing) {
                self.unlock(&state);
            } else if state.is_ending {
                return;
            }
            self.changed.notify_all();
        }
    }

    /// Writes all pending writes to the file.
    fn step<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let writes = mem::take(&mut state.pending);
        state.is_applying = true;
        drop(state);
        let applied = self.log_file.apply(&writes);
        state = self.state();
        state.is_applying = false;
        state.batches += 1;
        state.progress = Instant::now();
        if applied.is_err() {
            // The memory of the WAL buffer is reserved, so it accepts the mark.
            state.wal_buffer.iter().for_each(|wal_buffer| drop(wal_buffer.invalidate()));
            state.invalidate();
        } else if state.pending.is_empty() {
            (state.generation, state.used) = (state.generation + 1, 0);
        }
        state
    }
}
