use crate::device::OpenError;
use std::io;
use std::path::PathBuf;

/// What goes wrong with flash. That an object is not there, or is damaged, is no error but a miss.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A transfer failed. What it was to write is not there; what it was to read may be there another time.
    #[error("{operation} of {bytes} bytes at {offset} failed: {source}")]
    Transfer { operation: &'static str, offset: u64, bytes: usize, source: io::Error },

    /// Writes may be lost at a power cut, also some that were completed.
    #[error("a sync failed: {source}")]
    Sync { source: io::Error },

    /// Options that make no sense, alone or for the area they are for.
    #[error("{0}")]
    Options(String),

    /// Less memory than the area needs.
    #[error("{0}")]
    Memory(String),

    /// A path cannot be a part of the device. What was not ours is as it was.
    #[error("{path}: {reason}")]
    Refused { path: PathBuf, reason: OpenError },

    /// What moves transfers could not be set up.
    #[error("flash cannot be read and written here: {source}")]
    Engine { source: io::Error },
}
