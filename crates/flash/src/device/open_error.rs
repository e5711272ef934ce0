//! Messages to the operator about the paths of a device.

use super::BLOCK;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a path cannot be used, and what to change. Nothing was written to it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("its directory does not exist; create it, or name another path")]
    NoDirectory,
    #[error("is a directory; name a file in it")]
    IsDirectory,
    #[error("is neither a file nor a block device; name one of them")]
    OtherKind,
    #[error(
        "cannot be opened for writing ({0}); give the user that the server runs as the right to read and write it, or name another path"
    )]
    NotWritable(io::Error),
    #[error("is in use, by another server or as a mounted filesystem, or is named twice; name another path")]
    InUse,
    #[error(
        "holds what is not ours, and is left as it is; to begin anew, remove the file, or fill the first MiB of the device with zeros; or name another path"
    )]
    Foreign,
    #[error("lies on a filesystem that stores nothing, as /proc; name a path on a disk")]
    NoStorage,
    #[error("is to have {bytes} bytes, but needs {min} at least; give it a larger size")]
    TooSmall { bytes: u64, min: u64 },
    #[error("is a link to {}, and nothing is there; make that a file, or name another path", target.display())]
    Dangling { target: PathBuf },
    #[error("is to have {bytes} bytes, but the device has {has}; give it a smaller size")]
    TooLarge { bytes: u64, has: u64 },
    #[error("needs {needed} bytes more, but its filesystem has {free} left; give it a smaller size, or make space")]
    Full { needed: u64, free: u64 },
    #[error("{operation} failed: {source}")]
    Failed { operation: &'static str, source: io::Error },
}

impl OpenError {
    /// For `map_err`.
    pub(super) fn failed<E: Into<io::Error>>(operation: &'static str) -> impl Fn(E) -> Self {
        move |source| Self::Failed { operation, source: source.into() }
    }
}

/// A feature that does not work as requested.
#[derive(Debug)]
pub enum Notice {
    /// Transfers go through the page cache.
    NotDirect { path: PathBuf, reason: io::Error },
    /// The filesystem cannot reserve space: writes will fail when it is full.
    NotReserved { path: PathBuf },
    /// Threads read and write, one transfer each at a time.
    NoRing { reason: io::Error },
    /// Blocks of this path are not discarded.
    NoDiscard { path: PathBuf },
    /// Bytes after the last whole block stay unused.
    Rounded { path: PathBuf, bytes: u64, used: u64 },
    /// The paths held parts of other devices, whose data is lost.
    Relabelled,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDirect { path, reason } => {
                write!(
                    f,
                    "{}: no direct I/O here ({reason}): the page cache will hold a copy of what is read and written",
                    path.display()
                )
            }
            Self::NotReserved { path } => {
                write!(f, "{}: its filesystem cannot reserve space: writes will fail when it is full", path.display())
            }
            Self::NoRing { reason } => {
                write!(f, "no io_uring here ({reason}): flash is read and written by threads")
            }
            Self::NoDiscard { path } => {
                write!(f, "{}: reclaimed regions are not discarded: that takes a block device that can", path.display())
            }
            Self::Rounded { path, bytes, used } => {
                write!(f, "{}: {used} of the {bytes} bytes are used, which are whole blocks of {BLOCK}", path.display())
            }
            Self::Relabelled => {
                write!(
                    f,
                    "flash starts empty: its paths were used with other sizes, in another number or order, or by another version"
                )
            }
        }
    }
}
