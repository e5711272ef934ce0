//! Tells whether a memory file has been written to since its stop.
//!
//! After its last write a stop sets the modification time of the file to a mark: the second of the stop, and
//! nanoseconds drawn from the checksum of the superblock and the number of the inode. Each later write, truncation or
//! hole sets another modification time, and a copy has another inode. So with its mark, and in the boot of the stop,
//! the file has the bytes that the stop left, and a start of a mapped file reads none of its values. Two changes leave
//! the mark as it is: those by defective memory, and those by a program of the same user, if it stores through a
//! mapping or sets the modification time back. Both can change the memory of a running process, too.
//!
//! A mark is used once: a start removes it before the memory is in use. A file without one is checked as a whole.

use super::superblock::Superblock;
use crate::clock::Elapsed;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use twox_hash::XxHash3_64;

/// The mark of a file with a superblock.
fn mark(file: &File, superblock: &Superblock) -> io::Result<SystemTime> {
    let inode = file.metadata()?.ino();
    let nanoseconds = XxHash3_64::oneshot_with_seed(inode, &superblock.encode()) % 1_000_000_000;
    Ok(UNIX_EPOCH + Duration::from_secs(superblock.stopped.wall_ms / 1000) + Duration::from_nanos(nanoseconds))
}

/// Marks a file that is complete. Without a mark the next start takes longer: an error has no other effect.
pub(super) fn set(file: &File, superblock: &Superblock) {
    let _ = mark(file, superblock).and_then(|mark| file.set_modified(mark));
}

/// Takes the mark of a file. Answers whether it had the one of its superblock, from a stop in this boot.
pub(super) fn take(file: &File, superblock: &Superblock) -> bool {
    let boot = Elapsed::now().boot;
    let is_marked = || io::Result::Ok(file.metadata()?.modified()? == mark(file, superblock)?);
    boot != 0
        && boot == superblock.stopped.boot
        && is_marked().unwrap_or(false)
        && file.set_modified(SystemTime::now()).is_ok()
}
