//! A file that is written until a deadline.
//!
//! Bytes are made durable in steps while more are written, so that the last step takes no long time after the deadline.

use std::fs::File;
use std::io::{self, Write};
use std::time::Instant;

/// Bytes that are made durable at once.
const STEP_BYTES: usize = 64 << 20;

pub(super) struct BoundedFile<'f> {
    file: &'f File,
    deadline: Instant,
    /// Bytes that were not made durable.
    written: usize,
}

impl<'f> BoundedFile<'f> {
    pub fn new(file: &'f File, deadline: Instant) -> Self {
        Self { file, deadline, written: 0 }
    }
}

impl Write for BoundedFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if Instant::now() >= self.deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let written = self.file.write(bytes)?;
        self.written += written;
        if self.written >= STEP_BYTES {
            self.file.sync_data()?;
            self.written = 0;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
