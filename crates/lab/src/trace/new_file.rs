//! A file that is written beside its place, and takes it when it is complete.
//!
//! ```text
//! create -> file without a name in the folder -- finish -> name in the folder -> rename to the place
//!                 |
//!                 +-- failure or signal -> no file; the place has what it had
//! ```
//! On a file system without such files (`O_TMPFILE`) the file has a hidden name from the start, which a failure
//! removes and a signal leaves. A device or a pipe is written to as it is.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, linkat};

use super::STANDARD_INPUT;
use crate::Error;

/// A file that is not complete before [`NewFile::finish`].
pub(crate) struct NewFile {
    file: File,
    /// `None` unless it is a regular file.
    pending: Option<Pending>,
}

struct Pending {
    place: PathBuf,
    overwrite: bool,
    /// Where the file has a name already.
    hidden: Option<PathBuf>,
}

impl NewFile {
    /// Creates a file. One that holds data is replaced only if `overwrite`.
    ///
    /// # Errors
    /// [`Error::Exists`], and those of a folder or file that may not be written.
    pub(crate) fn create(path: &Path, overwrite: bool) -> Result<Self, Error> {
        let name = || path.display().to_string();
        Self::open(path, overwrite).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => Error::Exists { path: name() },
            _ => Error::Write { trace: name(), source },
        })
    }

    fn open(path: &Path, overwrite: bool) -> io::Result<Self> {
        let existing = path.metadata().ok();
        // A descriptor of this process is open already, whatever it is.
        let is_descriptor = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"].iter().any(|of| path.starts_with(of));
        if is_descriptor || existing.as_ref().is_some_and(|metadata| !metadata.is_file()) {
            return Ok(Self { file: OpenOptions::new().write(true).open(path)?, pending: None });
        }
        let overwrite = overwrite || existing.as_ref().is_some_and(|metadata| metadata.len() == 0);
        if existing.is_some() && !overwrite {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let place = target(path);
        let (file, hidden) = beside(&place)?;
        let new = Self { file, pending: Some(Pending { place: place.clone(), overwrite, hidden }) };
        if let Some(existing) = existing {
            // A file that must not be written must not be replaced either.
            OpenOptions::new().write(true).open(&place)?;
            // Not every file system has permissions.
            new.file.set_permissions(existing.permissions()).ok();
        }
        Ok(new)
    }

    /// Gives the file its place.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let Some(Pending { place, overwrite, hidden }) = self.pending.take() else { return self.file.flush() };
        let hidden = match hidden {
            None if !overwrite => return link(&self.file, &place),
            None => {
                let hidden = hidden_name(&place);
                link(&self.file, &hidden)?;
                hidden
            }
            Some(hidden) => hidden,
        };
        let moved = match !overwrite && place.symlink_metadata().is_ok() {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => fs::rename(&hidden, &place),
        };
        if moved.is_err() {
            fs::remove_file(&hidden).ok();
        }
        moved
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(hidden) = self.pending.take().and_then(|pending| pending.hidden) {
            fs::remove_file(hidden).ok();
        }
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The file that a link names, so that the link stays.
fn target(path: &Path) -> PathBuf {
    let read = || fs::read_link(path).map(|target| path.parent().unwrap_or(Path::new("")).join(target));
    path.canonicalize().or_else(|_| read()).unwrap_or_else(|_| path.to_owned())
}

fn folder(place: &Path) -> &Path {
    place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn hidden_name(place: &Path) -> PathBuf {
    folder(place).join(format!(".ebbtide-{:016x}", RandomState::new().hash_one(std::process::id())))
}

/// A file in the folder of the place, and its name if it has one.
fn beside(place: &Path) -> io::Result<(File, Option<PathBuf>)> {
    if let Ok(file) = without_name(folder(place)) {
        return Ok((file, None));
    }
    let hidden = hidden_name(place);
    Ok((OpenOptions::new().write(true).create_new(true).open(&hidden)?, Some(hidden)))
}

fn without_name(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE.bits().cast_signed();
    let file = OpenOptions::new().write(true).custom_flags(flags).open(folder)?;
    // The name is given through /proc, which a sandbox may lack.
    descriptor(&file).metadata().map(|_| file)
}

fn descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn link(file: &File, name: &Path) -> io::Result<()> {
    Ok(linkat(CWD, descriptor(file), CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

/// Refuses an output that is one of the inputs, by whatever name.
///
/// # Errors
/// [`Error::Configuration`], which names both.
pub(crate) fn check_is_no_input(option: &'static str, output: &Path, inputs: &[&Path]) -> Result<(), Error> {
    let identity = |path: &Path, standard: &str| {
        let path = if path == Path::new(STANDARD_INPUT) { Path::new(standard) } else { path };
        let metadata = path.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((metadata.dev(), metadata.ino()))
    };
    let Some(of_output) = identity(output, "/dev/stdout") else { return Ok(()) };
    match inputs.iter().find(|input| identity(input, "/dev/stdin") == Some(of_output)) {
        None => Ok(()),
        Some(input) => {
            let reason = format!("this is the same file as {}, which is read; name another file", input.display());
            Err(Error::Configuration { option, value: output.display().to_string(), reason })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_failure_leaves_only_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
        fs::write(&old, "old").unwrap();
        for path in [&old, &new] {
            let mut file = NewFile::create(path, true).unwrap();
            file.write_all(b"half").unwrap();
            assert_eq!(names(folder.path()), ["old"], "nothing is seen before the end");
            drop(file);
        }
        assert_eq!((names(folder.path()), fs::read(&old).unwrap()), (vec!["old".to_owned()], b"old".to_vec()));
    }

    #[test]
    fn a_complete_file_replaces_the_old_keeping_mode() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let mut new = NewFile::create(&link, true).unwrap();
        new.write_all(b"new").unwrap();
        new.finish().unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink(), "a link stays one");
        assert_eq!((fs::read(&file).unwrap(), file.metadata().unwrap().mode() & 0o777), (b"new".to_vec(), 0o600));
        assert_eq!(names(folder.path()), ["file", "link"]);
    }

    #[test]
    fn a_file_that_came_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for hidden in [None, Some(hidden_name(&path))] {
            let (file, found) = match &hidden {
                Some(hidden) => (File::create(hidden).unwrap(), Some(hidden.clone())),
                None => beside(&path).unwrap(),
            };
            let pending = Pending { place: path.clone(), overwrite: false, hidden: found };
            fs::write(&path, "other").unwrap();
            let refusal = NewFile { file, pending: Some(pending) }.finish().unwrap_err();
            assert_eq!(refusal.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!((names(folder.path()), fs::read(&path).unwrap()), (vec!["file".to_owned()], b"other".to_vec()));
        }
    }

    #[test]
    fn an_input_is_known_by_all_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, hard, other] = ["file", "link", "hard", "other"].map(|name| folder.path().join(name));
        fs::write(&file, "trace").unwrap();
        fs::write(&other, "trace").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        fs::hard_link(&file, &hard).unwrap();
        let check = |output: &Path| check_is_no_input("--output", output, &[&other, &file]);
        for output in [&file, &link, &hard, &folder.path().join("./file")] {
            let refusal = check(output).unwrap_err().to_string();
            let both = [output, &file].map(|path| path.display().to_string());
            assert!(refusal.starts_with("--output ") && both.iter().all(|path| refusal.contains(path)), "{refusal}");
        }
        assert!(check(&folder.path().join("new")).is_ok() && check(Path::new("/dev/null")).is_ok());
    }
}
