//! Opens and locks a memory file.
//!
//! A start trusts the owner of a file and not its content: see [`open`].

use super::file_system::{MemoryFileMode, available_bytes, available_bytes_in, folder_of};
use super::superblock::{self, FRAMES_OFFSET};
use crate::byte_size::ByteSize;
use crate::error::Error;
use rustix::fs::{Access, FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a start waits for another cache to release the file: a stop writes gigabytes.
const LOCK_WAIT: Duration = Duration::from_secs(30);
const LOCK_STEP: Duration = Duration::from_millis(50);

/// A file that is locked, before the store is there.
pub(super) struct Opened {
    pub path: PathBuf,
    pub file: File,
    pub mode: MemoryFileMode,
    /// That this start has made the file, until it is in use.
    pub made: Option<MadeFile>,
}

/// A file that a start has made. Dropped before the start is done, it removes the file: a refused start leaves none.
pub(super) struct MadeFile {
    path: PathBuf,
    file: File,
}

impl MadeFile {
    /// The file stays.
    pub fn keep(mut self) {
        self.path.clear();
    }
}

impl Drop for MadeFile {
    fn drop(&mut self) {
        // The lock is held: no other process uses a file at this path.
        if is_at(&self.path, &self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

pub(super) fn refused(path: &Path, reason: impl Into<String>) -> Error {
    Error::Configuration { option: "memory_file", value: path.display().to_string(), reason: reason.into() }
}

/// The mode of a memory file at this path for `memory_bytes`, or why there can be none. Nothing is made or changed, and
/// a file in use passes.
///
/// # Errors
/// Those of [`open`], but for the wait, and a file system that is too small.
pub(crate) fn check(path: &Path, memory_bytes: u64) -> Result<MemoryFileMode, Error> {
    let refuse = |error: io::Error| refused(path, reason(&error));
    let mode = match MemoryFileMode::of_path(path) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => return Err(refuse(error)),
        mode => mode,
    };
    let available = match open_options().open(path) {
        Ok(file) => {
            check_owner(path, &file)?;
            check_content(path, &file)?;
            available_bytes(&file)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && mode.is_ok() => {
            let folder = folder_of(path);
            rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| refuse(error.into()))?;
            available_bytes_in(folder)
        }
        Err(error) => return Err(refuse(error)),
    };
    let mode = mode.map_err(refuse)?;
    check_space(path, mode, available, memory_bytes).map(|()| mode)
}

/// Whether another process holds the memory file at a path: a start waits for it.
pub fn is_held(path: &Path) -> bool {
    let is_locked = |file: File| flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
    open_options().open(path).is_ok_and(is_locked)
}

/// Refuses memory that a mapped file has no space for. `available`: the space, `None` for no bound.
pub(super) fn check_space(
    path: &Path,
    mode: MemoryFileMode,
    available: io::Result<Option<u64>>,
    memory_bytes: u64,
) -> Result<(), Error> {
    if !mode.is_mapped() {
        return Ok(());
    }
    let available = available.map_err(|error| refused(path, error.to_string()))?;
    let needed = memory_bytes + FRAMES_OFFSET;
    match available {
        Some(bytes) if bytes < needed => {
            let (bytes, needed) = (ByteSize::bytes(bytes), ByteSize::bytes(needed));
            let reason = format!(
                "its file system has {bytes} for it, and this memory needs {needed}: lower the memory, or mount it \
                 with a larger size"
            );
            Err(refused(path, reason))
        }
        _ => Ok(()),
    }
}

/// Advice where the system refuses to open the file.
fn reason(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        None => error.to_string(),
        Some(Errno::LOOP) => "it is a symbolic link; name the file itself".to_owned(),
        Some(Errno::NOENT | Errno::NOTDIR) => {
            "cannot be opened: its directory does not exist; make it, or name another path".to_owned()
        }
        Some(Errno::ISDIR) => "cannot be opened: it is a directory; name a file in it".to_owned(),
        Some(Errno::ACCESS | Errno::PERM) => {
            format!("cannot be opened: {error}: give its directory to the user of this process, or name another path")
        }
        Some(_) => format!("cannot be opened: {error}; name another path"),
    }
}

/// Opens and locks a memory file, or makes it.
///
/// # Errors
/// A file that another user could have put there or could change is refused, and so is one that another cache, of any
/// process, holds for longer than half a minute. A refused file is left as it is.
pub(super) fn open(path: &Path) -> Result<Opened, Error> {
    // Before the file is made: a refused start leaves none.
    if let Err(error) = MemoryFileMode::of_path(path)
        && error.kind() == io::ErrorKind::Unsupported
    {
        return Err(refused(path, error.to_string()));
    }
    let deadline = Instant::now() + LOCK_WAIT;
    let (file, is_made) = loop {
        let (file, is_made) = open_or_make(path)?;
        check_owner(path, &file)?;
        lock(path, &file, deadline)?;
        // While this start waited for the lock the file may have been removed or replaced. A stop into a file without
        // a name would be lost.
        if is_at(path, &file) {
            // It may have another name or mode by now.
            check_owner(path, &file)?;
            break (file, is_made);
        }
        // Ends: at the deadline.
        if Instant::now() > deadline {
            return Err(refused(path, format!("another process has replaced it for {LOCK_WAIT:?}: stop that first")));
        }
    };
    check_content(path, &file)?;
    let mode = MemoryFileMode::of(&file).map_err(|error| refused(path, error.to_string()))?;
    let cannot = |error: io::Error| refused(path, error.to_string());
    let made = is_made.then(|| file.try_clone().map(|file| MadeFile { path: path.to_owned(), file }));
    Ok(Opened { path: path.to_owned(), made: made.transpose().map_err(cannot)?, file, mode })
}

fn check_content(path: &Path, file: &File) -> Result<(), Error> {
    let reason = "it holds something else, which would be lost: name another path, or remove the file";
    if superblock::is_ours(file) { Ok(()) } else { Err(refused(path, reason)) }
}

/// Opens an existing file, and creates none.
fn open_options() -> OpenOptions {
    // NONBLOCK: a pipe would wait for its other end.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(flags.bits() as i32);
    options
}

/// The file, and whether this call has made it.
fn open_or_make(path: &Path) -> Result<(File, bool), Error> {
    let options = open_options();
    let mut file = options.open(path);
    let mut is_made = false;
    if is_error(&file, io::ErrorKind::NotFound) {
        file = options.clone().create_new(true).open(path);
        is_made = file.is_ok();
    }
    if is_error(&file, io::ErrorKind::AlreadyExists) {
        // Another start has made it since.
        file = options.open(path);
    }
    file.map(|file| (file, is_made)).map_err(|error| refused(path, reason(&error)))
}

fn is_error<T>(result: &io::Result<T>, kind: io::ErrorKind) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == kind)
}

/// Refuses a file that another user could have put there or could change.
fn check_owner(path: &Path, file: &File) -> Result<(), Error> {
    let metadata = file.metadata().map_err(|error| refused(path, format!("cannot be looked at: {error}")))?;
    let user = rustix::process::geteuid().as_raw();
    let reason = match () {
        () if !metadata.is_file() => "it is no regular file; name another path".to_owned(),
        () if metadata.nlink() > 1 => format!(
            "it has {} names, and a memory file has one: remove the others (`find -samefile`), or name another path",
            metadata.nlink()
        ),
        () if metadata.uid() != user => {
            format!(
                "it belongs to user {}, this process is user {user}: remove it, or change its owner",
                metadata.uid()
            )
        }
        () if metadata.mode() & 0o022 != 0 => "others may write to it: chmod go-w".to_owned(),
        () => return Ok(()),
    };
    Err(refused(path, reason))
}

/// The process that holds the lock of a file, as far as the system tells.
pub(super) fn holder(file: &File) -> Option<u32> {
    let inode = file.metadata().ok()?.ino().to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        // 1: FLOCK ADVISORY WRITE <process> <major>:<minor>:<inode> 0 EOF
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, place, ..] = words[..] else { return None };
        (place.rsplit(':').next() == Some(&inode)).then(|| process.parse().ok()).flatten()
    })
}

pub(super) fn explain_lock(holder: Option<u32>) -> String {
    match holder {
        Some(process) if process == std::process::id() => format!(
            "this process has held it for {LOCK_WAIT:?}: drop the handles of its cache, and the values that were got \
             from it"
        ),
        Some(process) => format!("process {process} has held it for {LOCK_WAIT:?}: stop that first"),
        None => format!("another cache, of this process or another one, has held it for {LOCK_WAIT:?}: end that first"),
    }
}

fn lock(path: &Path, file: &File, deadline: Instant) -> Result<(), Error> {
    while let Err(error) = flock(file, FlockOperation::NonBlockingLockExclusive) {
        if error != Errno::WOULDBLOCK && error != Errno::INTR {
            return Err(refused(path, format!("cannot be locked: {error}")));
        }
        if Instant::now() > deadline {
            return Err(refused(path, explain_lock(holder(file))));
        }
        std::thread::sleep(LOCK_STEP);
    }
    Ok(())
}

/// Whether a path names an open file.
fn is_at(path: &Path, file: &File) -> bool {
    let (Ok(named), Ok(open)) = (path.symlink_metadata(), file.metadata()) else { return false };
    (named.dev(), named.ino()) == (open.dev(), open.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::Barrier;

    /// The number of the file that a start opens and uses.
    fn locked_inode(path: &Path) -> u64 {
        let opened = open(path).unwrap();
        if let Some(made) = opened.made {
            made.keep();
        }
        opened.file.metadata().unwrap().ino()
    }

    #[test]
    fn a_refused_start_removes_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory");
        drop(open(&path).unwrap());
        assert!(!path.exists());
        let inode = locked_inode(&path);
        drop(open(&path).unwrap());
        assert_eq!(path.metadata().unwrap().ino(), inode, "a file that was there stays");
    }

    #[test]
    fn concurrent_starts_create_and_share_one_file() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let (path, barrier) = (folder.path().join(round.to_string()), Barrier::new(2));
            let start = || {
                barrier.wait();
                locked_inode(&path)
            };
            let inodes = std::thread::scope(|scope| {
                let other = scope.spawn(start);
                [start(), other.join().unwrap()]
            });
            assert_eq!(inodes[0], inodes[1]);
        }
    }

    #[test]
    fn a_file_replaced_while_locked_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory");
        for is_replaced in [false, true] {
            let held = open(&path).unwrap();
            let waiting = Barrier::new(2);
            let opened = std::thread::scope(|scope| {
                let start = scope.spawn(|| {
                    waiting.wait();
                    open(&path)
                });
                waiting.wait();
                // Whether the other start has opened the file already or not: it must end with the one at the path.
                std::thread::sleep(LOCK_STEP);
                fs::remove_file(&path).unwrap();
                if is_replaced {
                    // The other start has made it if it was not yet waiting.
                    fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).unwrap();
                }
                drop(held);
                start.join().unwrap().unwrap()
            });
            assert!(is_at(&path, &opened.file), "replaced: {is_replaced}");
        }
    }
}
