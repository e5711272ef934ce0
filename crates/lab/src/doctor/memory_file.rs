//! The memory file of a server: its file system, size, owner and mode, and whether there is space for a save.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ebbtide::ByteSize;
use ebbtide::memcached::MemoryFileMode;

use super::finding::Finding;

const NAME: &str = "memory file";
/// A file system in memory that maps no memory file, as statfs(2) numbers it.
const RAMFS: u64 = 0x8584_58F6;

pub fn examine(path: &Path, memory: ByteSize) -> Finding {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let filesystem = match rustix::fs::statfs(folder) {
        Ok(filesystem) => filesystem,
        Err(error) => {
            return Finding::problem(NAME, format!("{}: {error}", folder.display()), "name a folder that is there");
        }
    };
    let mode = match MemoryFileMode::of_path(path) {
        Ok(mode) => mode,
        Err(error) => {
            let advice = match error.kind() {
                io::ErrorKind::Unsupported => "mount a tmpfs with huge=always, and name a file there",
                _ => "name a readable path",
            };
            return Finding::problem(NAME, format!("{}: {error}", path.display()), advice);
        }
    };
    let is_mapped = mode != MemoryFileMode::Saved;
    let is_memory = is_mapped || filesystem.f_type as u64 == RAMFS;
    let free = ByteSize::bytes(filesystem.f_bavail.saturating_mul(filesystem.f_bsize as u64));
    let file = match fs::symlink_metadata(path) {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            return Finding::problem(NAME, format!("{}: {error}", path.display()), "name a file that can be opened");
        }
    };
    let state = file.as_ref().map_or("new".to_owned(), |file| {
        let (size, mode) = (ByteSize::bytes(file.len()), file.mode() & 0o7777);
        format!("{size}, owner {}, mode {mode:04o}", file.uid())
    });
    let found = format!("{}: {mode}, {state}, {free} free", path.display());
    if let Some(advice) = file.as_ref().and_then(refusal) {
        return Finding::problem(NAME, found, advice);
    }
    let held = file.map_or(0, |file| file.blocks() * 512);
    match free.as_bytes() + held < memory.as_bytes() {
        true if is_mapped => Finding::problem(
            NAME,
            found,
            format!("the cache lies in it and needs {memory}: mount the file system with a larger size, or lower -m"),
        ),
        true => Finding::problem(NAME, found, format!("a save needs up to {memory}: free space, or lower -m")),
        false if mode == (MemoryFileMode::Mapped { has_huge_pages: false }) => {
            Finding::advice(NAME, found, "mount the file system with huge=always: lookups miss fewer TLB entries")
        }
        false if is_memory && !is_mapped => {
            Finding::advice(NAME, found, "a save needs the memory again: name a file on a disk, or on a tmpfs")
        }
        false => Finding::ok(NAME, found),
    }
}

/// Why a start refuses a file, and the remedy.
fn refusal(file: &Metadata) -> Option<String> {
    let user = rustix::process::geteuid().as_raw();
    match () {
        () if file.is_symlink() => Some("name the file itself, not a symbolic link".to_owned()),
        () if !file.is_file() => Some("name a regular file".to_owned()),
        () if file.nlink() != 1 => Some(format!("it has {} names: remove the others", file.nlink())),
        () if file.mode() & 0o022 != 0 => Some("others may write to it: chmod go-w".to_owned()),
        () if file.uid() != user => Some(format!("this check runs as user {user}: the server must run as its owner")),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn files_that_a_start_refuses_are_problems() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory");
        let look = |path: &Path, memory| examine(path, ByteSize::bytes(memory));
        assert_ne!(look(&path, 4096).verdict, Verdict::Problem);
        assert!(look(&path, 4096).found.contains("new"));
        let advice = look(&path, 1 << 60).advice.unwrap();
        assert!(advice.contains("a save needs up to") || advice.contains("the cache lies in it"), "{advice}");
        fs::write(&path, [0; 100]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let found = look(&path, 4096);
        assert!(found.verdict != Verdict::Problem && found.found.contains("mode 0600"), "{found:?}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).unwrap();
        assert!(look(&path, 4096).advice.unwrap().contains("chmod go-w"));
        symlink(&path, folder.path().join("link")).unwrap();
        assert!(look(&folder.path().join("link"), 4096).advice.unwrap().contains("symbolic link"));
        assert!(look(folder.path(), 4096).advice.unwrap().contains("regular file"));
        assert_eq!(look(&folder.path().join("absent/file"), 4096).verdict, Verdict::Problem);
    }
}
