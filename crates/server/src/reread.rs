//! Files that a running server reads again.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::{fs, io};

/// Refuses what cannot be read twice: a pipe, by name or from a shell's `<(...)`, is empty after the start, or has its
/// next reader wait for a writer.
///
/// # Errors
/// `InvalidInput` for a pipe; why the file cannot be looked at.
pub fn check_rereadable(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.file_type().is_fifo() {
        let reason = "it is a pipe, which is read once, at the start: name a file there, or restart";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    Ok(())
}
