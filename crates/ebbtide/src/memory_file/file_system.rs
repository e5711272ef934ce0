//! How a memory file is used, by the file system on which it lies.

use rustix::fs::{AtFlags, StatVfs, StatxFlags, fstatfs, fstatvfs, statfs, statvfs, statx};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// File systems, as statfs(2) numbers them.
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58F6;
/// `STATX_ATTR_DAX` of statx(2): the file's bytes are memory.
const DAX: u64 = 0x0020_0000;

/// How a cache uses its memory file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryFileMode {
    /// On tmpfs, or on a file system with DAX: the values of the cache lie in the file. A stop and a start copy none.
    Mapped {
        /// Whether the file system backs the file with huge pages.
        has_huge_pages: bool,
    },
    /// On another file system: the cache lies in anonymous memory. A stop writes all of it, and a start reads it.
    Saved,
}

impl std::fmt::Display for MemoryFileMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Mapped { has_huge_pages: true } => "mapped, with huge pages",
            Self::Mapped { has_huge_pages: false } => "mapped, with small pages",
            Self::Saved => "saved at a stop",
        })
    }
}

impl MemoryFileMode {
    /// The mode of a file that may not be there yet.
    ///
    /// # Errors
    /// Neither the file nor its folder can be looked at. `Unsupported`: no memory file can lie there.
    pub fn of_path(path: &Path) -> io::Result<Self> {
        let existing = if path.symlink_metadata().is_ok() { path } else { folder_of(path) };
        let is_dax = statx(rustix::fs::CWD, existing, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)
            .is_ok_and(|attributes| attributes.stx_attributes.bits() & DAX != 0);
        let device = existing.symlink_metadata()?.dev();
        Self::on(statfs(existing)?.f_type as u64, is_dax, device)
    }

    /// The mode of an open file.
    ///
    /// # Errors
    /// As [`MemoryFileMode::of_path`].
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let attributes = statx(file.as_fd(), "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
        let is_dax = attributes.is_ok_and(|attributes| attributes.stx_attributes.bits() & DAX != 0);
        Self::on(fstatfs(file)?.f_type as u64, is_dax, file.metadata()?.dev())
    }

    fn on(kind: u64, is_dax: bool, device: u64) -> io::Result<Self> {
        match kind {
            TMPFS => Ok(Self::Mapped { has_huge_pages: has_huge_pages(device) }),
            HUGETLBFS => {
                let reason = "hugetlbfs files cannot be written: name a file on a tmpfs with huge=always";
                Err(io::Error::new(io::ErrorKind::Unsupported, reason))
            }
            kind if ebbtide_flash::device::stores_nothing(kind) => {
                let reason = "lies on a filesystem that stores nothing, as /proc; name a file on a tmpfs or a disk";
                Err(io::Error::new(io::ErrorKind::Unsupported, reason))
            }
            _ if is_dax => Ok(Self::Mapped { has_huge_pages: true }),
            _ => Ok(Self::Saved),
        }
    }

    pub fn is_mapped(self) -> bool {
        self != Self::Saved
    }
}

/// Whether the tmpfs of a device gives huge pages to files whose memory is reserved ahead of use.
fn has_huge_pages(device: u64) -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let forced = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    if forced.contains("[force]") || forced.contains("[deny]") {
        return forced.contains("[force]");
    }
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    read("/proc/self/mountinfo").lines().any(|line| is_huge_mount(line, &number))
}

/// Whether a line of mountinfo is that of a device, mounted with huge pages.
fn is_huge_mount(line: &str, device: &str) -> bool {
    let is_it = line.split(' ').nth(2) == Some(device);
    let options = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').nth(2)).unwrap_or_default();
    is_it && options.split(',').any(|option| option == "huge=always")
}

/// Bytes that a file can have: those that it has, and those that are free. `None` if the file system has no bound.
pub(super) fn available_bytes(file: &File) -> io::Result<Option<u64>> {
    let has_bytes = file.metadata()?.blocks() * 512;
    Ok(free_bytes(&fstatvfs(file)?).map(|free| free.saturating_add(has_bytes)))
}

/// As [`available_bytes`], for a file of this folder that does not exist yet.
pub(super) fn available_bytes_in(folder: &Path) -> io::Result<Option<u64>> {
    Ok(free_bytes(&statvfs(folder)?))
}

fn free_bytes(StatVfs { f_blocks, f_bavail, f_frsize, .. }: &StatVfs) -> Option<u64> {
    (*f_blocks > 0).then(|| f_bavail.saturating_mul(*f_frsize))
}

/// The folder of a file.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_those_of_the_mount() {
        let line = |huge| format!("32 25 0:28 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=16g{huge},inode64");
        assert!(is_huge_mount(&line(",huge=always"), "0:28"));
        for huge in ["", ",huge=never", ",huge=advise", ",huge=within_size"] {
            assert!(!is_huge_mount(&line(huge), "0:28"), "{huge}");
        }
        assert!(!is_huge_mount(&line(",huge=always"), "0:2"));
    }
}
