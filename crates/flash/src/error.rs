use crate::device::OpenError;
use std::io;
use std::path::PathBuf;

/// An error of flash. A missing or damaged object is a miss, not an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A transfer failed. The bytes of a write are not on the device; a read may succeed another time.
    #[error("{operation} of {bytes} bytes at {offset} failed: {source}")]
    Transfer { operation: &'static str, offset: u64, bytes: usize, source: io::Error },

    /// A power cut may lose writes, also completed ones.
    #[error("a sync failed: {source}")]
    Sync { source: io::Error },

    /// Options that are invalid, or do not fit their area.
    #[error("{0}")]
    Options(String),

    /// Less memory than the area needs.
    #[error("{0}")]
    Memory(String),

    /// A path cannot be a part of the device. Files that are not ours are unchanged.
    #[error("{path}: {reason}")]
    Refused { path: PathBuf, reason: OpenError },

    /// The engine for transfers could not be set up.
    #[error("flash cannot be read and written here: {source}")]
    Engine { source: io::Error },
}
