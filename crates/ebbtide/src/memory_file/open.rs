//! Opens and locks a memory file.
//!
//! A start trusts the owner of a file and not its content: see [`open`].

use super::medium::MemoryFileMode;
use super::superblock;
use crate::error::Error;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a start waits for another process to let go of the file: a stop writes gigabytes.
const LOCK_WAIT: Duration = Duration::from_secs(30);
const LOCK_STEP: Duration = Duration::from_millis(50);

/// A file that is locked, before the store is there.
pub(super) struct Opened {
    pub path: PathBuf,
    pub file: File,
    pub mode: MemoryFileMode,
}

pub(super) fn refused(path: &Path, reason: impl Into<String>) -> Error {
    Error::Configuration { option: "memory_file", value: path.display().to_string(), reason: reason.into() }
}

/// Opens and locks a memory file, or makes it.
///
/// # Errors
/// A file that another user could have put there or could change is refused, and so is one that another process holds
/// for longer than half a minute. A refused file is left as it is.
pub(super) fn open(path: &Path) -> Result<Opened, Error> {
    // NONBLOCK: a pipe would wait for its other end.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(flags.bits() as i32);
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => options.create_new(true).open(path),
        file => file,
    };
    let file = file.map_err(|error| {
        let reason = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::LOOP) => "it is a symbolic link; name the file itself".to_owned(),
            _ => format!("cannot be opened: {error}"),
        };
        refused(path, reason)
    })?;
    let metadata = file.metadata().map_err(|error| refused(path, format!("cannot be looked at: {error}")))?;
    let user = rustix::process::geteuid().as_raw();
    let reason = match () {
        () if !metadata.is_file() => "it is no regular file".to_owned(),
        () if metadata.nlink() != 1 => format!("it has {} names; a memory file has one", metadata.nlink()),
        () if metadata.uid() != user => {
            format!(
                "it belongs to user {}, this process is user {user}: remove it, or change its owner",
                metadata.uid()
            )
        }
        () if metadata.mode() & 0o022 != 0 => "others may write to it: chmod go-w".to_owned(),
        () => String::new(),
    };
    if !reason.is_empty() {
        return Err(refused(path, reason));
    }
    let deadline = Instant::now() + LOCK_WAIT;
    while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK && error != rustix::io::Errno::INTR {
            return Err(refused(path, format!("cannot be locked: {error}")));
        }
        if Instant::now() > deadline {
            return Err(refused(path, format!("another process has held it for {LOCK_WAIT:?}: stop that first")));
        }
        std::thread::sleep(LOCK_STEP);
    }
    if !superblock::is_ours(&file) {
        return Err(refused(
            path,
            "it holds something else, which would be lost: name another path, or remove the file",
        ));
    }
    let mode = MemoryFileMode::of(&file).map_err(|reason| refused(path, reason))?;
    Ok(Opened { path: path.to_owned(), file, mode })
}
