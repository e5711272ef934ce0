//! The file of the log, shared by the threads that write records to it or erase its run.

use super::wal_buffer::LogWrite;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
#[cfg(test)]
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};
#[cfg(test)]
use std::{thread, time::Duration};

pub(super) struct LogFile {
    pub file: File,
    path: PathBuf,
    identity: (u64, u64),
    /// A head without a run.
    invalid_head: Vec<u8>,
    #[cfg(test)]
    pub test_faults: Arc<TestFaults>,
}

impl LogFile {
    pub fn new(file: File, path: &Path, invalid_head: Vec<u8>) -> io::Result<Self> {
        let identity = identity_of(&file)?;
        Ok(Self {
            file,
            path: path.to_owned(),
            identity,
            invalid_head,
            #[cfg(test)]
            test_faults: Arc::default(),
        })
    }

    /// A copy with another file.
    #[cfg(test)]
    pub fn with_file(&self, file: File) -> Self {
        Self {
            file,
            path: self.path.clone(),
            identity: self.identity,
            invalid_head: self.invalid_head.clone(),
            test_faults: Arc::default(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Erases the run in the head, so no superblock matches the file. Returns whether the write succeeded.
    pub fn erase_run(&self) -> bool {
        let erased = self.file.write_all_at(&self.invalid_head, 0).and_then(|()| self.file.sync_data());
        // The open file may refuse writes that the file opened again accepts.
        erased.or_else(|_| self.erase_run_anew()).is_ok()
    }

    fn erase_run_anew(&self) -> io::Result<()> {
        // The open must not wait if a pipe has replaced the file.
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().write(true).custom_flags(nonblocking).open(&self.path)?;
        // Another file may have replaced it.
        if identity_of(&file)? != self.identity {
            return Err(io::ErrorKind::NotFound.into());
        }
        file.write_all_at(&self.invalid_head, 0)?;
        file.sync_data()
    }

    /// Applies writes; adjacent ones are merged.
    pub fn apply(&self, writes: &[LogWrite]) -> io::Result<()> {
        #[cfg(test)]
        self.test_faults.apply()?;
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

/// Faults for a thread that writes records to the file.
#[cfg(test)]
#[derive(Default)]
pub(super) struct TestFaults {
    pub stalls: AtomicBool,
    /// A thread has tried to write records since this was cleared.
    pub is_reached: AtomicBool,
    pub delay_ms: AtomicU64,
    pub fails: AtomicBool,
}

#[cfg(test)]
impl TestFaults {
    fn apply(&self) -> io::Result<()> {
        self.is_reached.store(true, Relaxed);
        while self.stalls.load(Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(self.delay_ms.load(Relaxed)));
        if self.fails.load(Relaxed) { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
    }
}

/// Device and inode of a file, which identify it.
fn identity_of(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}
