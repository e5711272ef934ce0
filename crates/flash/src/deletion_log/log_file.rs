//! The file of the log, as the threads that write records to it, or make it useless, have it.

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

    /// The same with another file.
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

    /// Erases the run in the head: no superblock goes with the file any more. Whether the file took that.
    pub fn erase_run(&self) -> bool {
        let erased = self.file.write_all_at(&self.invalid_head, 0).and_then(|()| self.file.sync_data());
        // It may be the file as it was opened that takes nothing.
        erased.or_else(|_| self.erase_run_anew()).is_ok()
    }

    fn erase_run_anew(&self) -> io::Result<()> {
        // Not waiting for a pipe that may be there by now.
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().write(true).custom_flags(nonblocking).open(&self.path)?;
        // Another one's may be there by now.
        if identity_of(&file)? != self.identity {
            return Err(io::ErrorKind::NotFound.into());
        }
        file.write_all_at(&self.invalid_head, 0)?;
        file.sync_data()
    }

    /// Writes, those that lie side by side at once.
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

/// What the file does to a thread that writes records to it.
#[cfg(test)]
#[derive(Default)]
pub(super) struct TestFaults {
    pub stalls: AtomicBool,
    /// Somebody has come with records since this was cleared.
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

/// Tells a file apart from all others there are.
fn identity_of(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}
