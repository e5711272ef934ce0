//! The file behind frames: it holds their bytes, so that another process can continue with them.
//!
//! The file is sparse. A part of it has memory from `allocate` until `punch`, and only such a part may be read or
//! written: an access to another part would end the process by SIGBUS where the file system is full. While the file is
//! kept, at the start until its content is taken over and after a clean stop, nothing is punched.
//!
//! The caller has locked the file (`flock`), for as long as the frames are mapped. A forked process has the descriptor,
//! too, and with it the lock: so the process that uses the file unlocks it, and does not only close it.

use crate::process::Process;
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

pub struct FrameFile {
    file: File,
    /// Where the frames begin in the file.
    offset: u64,
    is_kept: AtomicBool,
    /// Whether the content was ever not kept: before, the start that has locked the file may go on with it.
    was_used: AtomicBool,
    /// Parts for which the file system had no memory.
    refused: AtomicU64,
    /// The process that has locked the file.
    process: Process,
}

impl FrameFile {
    pub fn new(file: File, offset: u64) -> Self {
        let (is_kept, was_used) = (AtomicBool::new(true), AtomicBool::new(false));
        Self { file, offset, is_kept, was_used, refused: AtomicU64::new(0), process: Process::this() }
    }

    /// Says whether the content of the file is kept as it is.
    pub fn keep(&self, is_kept: bool) {
        if !is_kept {
            // Relaxed: it is read when nobody else has the file.
            self.was_used.store(true, Ordering::Relaxed);
        }
        // Relaxed: the caller changes this while no other thread gives memory back.
        self.is_kept.store(is_kept, Ordering::Relaxed);
    }

    /// Gives a part memory, if it has none yet, and leaves its bytes as they are.
    ///
    /// # Errors
    /// The file system is full, or knows no such call.
    pub fn allocate(&self, from: usize, bytes: usize) -> io::Result<()> {
        // Relaxed: a counter.
        self.call(0, from, bytes).inspect_err(|_| _ = self.refused.fetch_add(1, Ordering::Relaxed))
    }

    /// How often `allocate` has failed.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Gives the memory of a part back to the file system. The part reads as zero afterwards.
    pub fn punch(&self, from: usize, bytes: usize) {
        if bytes > 0 && !self.is_kept.load(Ordering::Relaxed) {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            let punched = self.call(mode, from, bytes);
            assert!(punched.is_ok(), "a hole in the memory file: {punched:?}");
        }
    }

    fn call(&self, mode: i32, from: usize, bytes: usize) -> io::Result<()> {
        let signed = |number: u64| i64::try_from(number).expect("a file has fewer than 2^63 bytes");
        let (from, bytes) = (signed(self.offset + from as u64), signed(bytes as u64));
        loop {
            // SAFETY: the call reads no memory of ours, and the descriptor is open as long as self.
            if unsafe { libc::fallocate(self.file.as_raw_fd(), mode, from, bytes) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            // Ends: a signal is handled between two calls.
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Drop for FrameFile {
    fn drop(&mut self) {
        if self.was_used.load(Ordering::Relaxed) && self.process == Process::this() {
            // SAFETY: the descriptor is open as long as self. It does not fail for a locked file.
            unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
        }
    }
}
