//! A file that is written until a deadline.
//!
//! Bytes are made durable in steps while more are written, so that the last step takes no long time after the deadline.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// Bytes that are made durable at once.
const STEP_BYTES: usize = 64 << 20;

pub(super) struct BoundedFile<'f> {
    file: &'f File,
    deadline: Instant,
    /// Bytes that were not made durable.
    written: Cell<usize>,
}

impl<'f> BoundedFile<'f> {
    pub fn new(file: &'f File, deadline: Instant) -> Self {
        Self { file, deadline, written: Cell::new(0) }
    }

    /// Writes all bytes at an offset of the file, beside the stream.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check_time()?;
        self.file.write_all_at(bytes, offset)?;
        self.note(bytes.len())
    }

    pub fn check_time(&self) -> io::Result<()> {
        if Instant::now() >= self.deadline { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    fn note(&self, bytes: usize) -> io::Result<()> {
        self.written.set(self.written.get() + bytes);
        if self.written.get() >= STEP_BYTES {
            self.file.sync_data()?;
            self.written.set(0);
        }
        Ok(())
    }
}

impl Write for &BoundedFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check_time()?;
        let mut file = self.file;
        let written = file.write(bytes)?;
        self.note(written)?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
