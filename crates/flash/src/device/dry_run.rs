//! Checks whether paths could be opened, without changing anything: reasons to refuse a start are found before it
//! creates a file.

use super::open_error::OpenError;
use super::path::{self, DevicePath, FreeSpace, PathKind};
use crate::Error;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file that a path names, whatever the path's spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FileIdentity {
    Node {
        device: u64,
        number: u64,
    },
    BlockDevice(u64),
    /// A missing file: its folder, and its name there.
    Absent {
        device: u64,
        number: u64,
        name: OsString,
    },
}

impl FileIdentity {
    /// `None` if the folder is missing.
    fn of(path: &Path) -> Option<Self> {
        if let Ok(metadata) = fs::metadata(path) {
            return Some(match path::kind_of(path) {
                Ok(PathKind::BlockDevice) => Self::BlockDevice(metadata.rdev()),
                _ => Self::Node { device: metadata.dev(), number: metadata.ino() },
            });
        }
        let folder = fs::metadata(path::folder_of(path)).ok()?;
        Some(Self::Absent { device: folder.dev(), number: folder.ino(), name: path.file_name()?.to_owned() })
    }
}

/// Whether each of these could be opened and prepared, and all together. Waits for a moment for a path in use, as a
/// start does.
pub(super) fn check_paths(paths: &[(PathBuf, u64)]) -> Result<(), Error> {
    let mut places = Vec::new();
    let mut taken = HashMap::new();
    for (path, bytes) in paths {
        let refused = |reason| Error::Refused { path: path.clone(), reason };
        path::check_size(*bytes, paths.len() == 1).map_err(refused)?;
        path::kind_of(path).map_err(refused)?;
        let place = FileIdentity::of(path);
        if place.is_some() && places.contains(&place) {
            return Err(refused(OpenError::InUse));
        }
        places.push(place);
        let Some(FreeSpace { filesystem, needed, free }) = DevicePath::check(path, *bytes).map_err(refused)? else {
            continue;
        };
        let before: &mut u64 = taken.entry(filesystem).or_default();
        let free = free.saturating_sub(*before);
        if needed > free {
            return Err(refused(OpenError::Full { needed, free }));
        }
        *before += needed;
    }
    Ok(())
}

/// Whether a file beside the paths of a device could be locked: it is none of them, and no other process has locked it.
/// A failed open is not reported here.
pub(crate) fn check_beside(path: &Path, paths: &[(PathBuf, u64)]) -> Result<(), Error> {
    let in_use = || Err(Error::Refused { path: path.to_owned(), reason: OpenError::InUse });
    let place = FileIdentity::of(path);
    if place.is_some() && paths.iter().any(|(other, _)| FileIdentity::of(other) == place) {
        return in_use();
    }
    // The open must not wait for a pipe.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).write(true).custom_flags(nonblocking).open(path);
    match file.map(|file| path::lock(&file)) {
        Ok(Err(error)) if error.kind() == ErrorKind::WouldBlock => in_use(),
        _ => Ok(()),
    }
}
