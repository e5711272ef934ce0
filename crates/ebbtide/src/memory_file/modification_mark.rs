//! Tells whether a memory file has been written to since its stop.
//!
//! After its last write a stop sets the modification time of the file to a mark: the present second, and nanoseconds
//! drawn from the checksum of the superblock and the number of the inode.
//!
//! ```text
//! modification time    second of the mark | hash of superblock and inode, modulo 10^9
//! change time          that of the call, set by the kernel: within a second of the mark
//! ```
//! Each later write, truncation or hole sets another modification time. A program may set the mark again, as a copy
//! with the times of the file does, and the number of the inode may be that of the original: the file was written over,
//! or its file system is a new one. The change time is later then, and no program can set it.
//!
//! So with its mark, and in the boot of the stop, the file has the bytes that the stop left, and a start of a mapped
//! file reads none of its values. Two changes leave both times as they are: those by defective memory, and those by a
//! program of the same user that stores through a mapping. Both can change the memory of a running process, too. Writes
//! in the second of the stop leave the change time close enough.
//!
//! A mark is used once: a start removes it before the memory is in use. A file without one is checked as a whole.

use super::superblock::Superblock;
use crate::clock::Elapsed;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use twox_hash::XxHash3_64;

/// Seconds between a mark and the change of the file that sets it, at most.
const SET_MAX_SECONDS: u64 = 1;

/// The nanoseconds of the mark of a file with a superblock.
fn nanoseconds(inode: u64, superblock: &Superblock) -> u64 {
    XxHash3_64::oneshot_with_seed(inode, &superblock.encode()) % 1_000_000_000
}

/// Marks a file that is complete. Without a mark the next start takes longer: an error has no other effect.
pub(super) fn set(file: &File, superblock: &Superblock) {
    let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let mark = |inode| UNIX_EPOCH + Duration::from_secs(now) + Duration::from_nanos(nanoseconds(inode, superblock));
    let _ = file.metadata().and_then(|metadata| file.set_modified(mark(metadata.ino())));
}

/// Takes the mark of a file. Returns whether it had the one of its superblock, from a stop in this boot.
pub(super) fn take(file: &File, superblock: &Superblock) -> bool {
    let boot = Elapsed::now().boot;
    let is_marked = || {
        let metadata = file.metadata()?;
        let is_mark = metadata.mtime_nsec() as u64 == nanoseconds(metadata.ino(), superblock);
        io::Result::Ok(is_mark && metadata.ctime().abs_diff(metadata.mtime()) <= SET_MAX_SECONDS)
    };
    boot != 0
        && boot == superblock.stopped.boot
        && is_marked().unwrap_or(false)
        && file.set_modified(SystemTime::now()).is_ok()
}
