//! Users and their passwords, from a file of `user:password` lines.

use std::fmt;
use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use crate::Error;
use crate::reread::check_rereadable;

/// memcached reads no longer lines.
const LINE_BYTES: usize = 255;
/// A file of users is small; something else may have been named by mistake.
const FILE_BYTES: u64 = 1 << 20;

/// Where the password ends in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserFormat {
    /// At the end of the line (`-Y`).
    WholeLine,
    /// At the end of the line or the next colon, and the user may be `user@host` (`MEMCACHED_SASL_PWDB`).
    Fields,
}

/// A file of users, as last read.
pub struct UserFile {
    path: PathBuf,
    format: UserFormat,
    entries: RwLock<Vec<UserEntry>>,
}

struct UserEntry {
    user: Vec<u8>,
    password: Vec<u8>,
}

impl UserFile {
    /// Reads a file.
    ///
    /// # Errors
    /// `UserFileRead`, `UserFileEntry`.
    pub fn load(path: &Path, format: UserFormat) -> Result<Self, Error> {
        let entries = RwLock::new(read(path, format)?);
        Ok(Self { path: path.to_owned(), format, entries })
    }

    /// Reads the file again. Clients that are in stay in.
    ///
    /// # Errors
    /// As `load`; the users stay unchanged.
    pub fn reload(&self) -> Result<(), Error> {
        check_rereadable(&self.path).map_err(|source| Error::UserFileRead { path: self.path.clone(), source })?;
        let entries = read(&self.path, self.format)?;
        *self.entries.write().unwrap_or_else(PoisonError::into_inner) = entries;
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is such a user with such a password. Takes the same time for every user and password of the same
    /// lengths. Without a name or without a password there is none.
    pub fn knows(&self, user: &[u8], password: &[u8]) -> bool {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let mut known = false;
        for entry in entries.iter() {
            let is_user = is_same(user, self.name(entry, user));
            known |= is_user & is_same(password, &entry.password);
        }
        known && !user.is_empty() && !password.is_empty()
    }

    /// The name that `user` must equal: that of the entry, without its host unless the client gives a host.
    fn name<'a>(&self, entry: &'a UserEntry, user: &[u8]) -> &'a [u8] {
        let at = entry.user.iter().position(|&byte| byte == b'@');
        match at {
            Some(at) if self.format == UserFormat::Fields && !user.contains(&b'@') => &entry.user[..at],
            _ => &entry.user,
        }
    }
}

impl fmt::Debug for UserFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Compares without stopping at the first difference; only lengths show in the time.
fn is_same(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    left.iter().zip(right).fold(0, |differences, (left, right)| black_box(differences | (left ^ right))) == 0
}

fn read(path: &Path, format: UserFormat) -> Result<Vec<UserEntry>, Error> {
    let failed = |source| Error::UserFileRead { path: path.to_owned(), source };
    let mut text = Vec::new();
    File::open(path).map_err(failed)?.take(FILE_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES {
        return Err(failed(std::io::ErrorKind::FileTooLarge.into()));
    }
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let lines = text.split(|&byte| byte == b'\n').enumerate();
    lines.map(|(index, line)| entry(line, format, || (path.to_owned(), index + 1))).collect()
}

fn entry(line: &[u8], format: UserFormat, place: impl FnOnce() -> (PathBuf, usize)) -> Result<UserEntry, Error> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let colon = line.iter().position(|&byte| byte == b':');
    let reason = match colon {
        _ if line.len() > LINE_BYTES => "is longer than 255 bytes",
        _ if line.contains(&0) => "has a NUL byte in it",
        None => "Should be 'user:password'",
        Some(colon) => {
            let (user, password) = (&line[..colon], &line[colon + 1..]);
            let end = match format {
                UserFormat::WholeLine => None,
                UserFormat::Fields => password.iter().position(|&byte| byte == b':'),
            };
            let password = end.map_or(password, |end| &password[..end]);
            return Ok(UserEntry { user: user.into(), password: password.into() });
        }
    };
    let (path, line) = place();
    Err(Error::UserFileEntry { path, line, reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn load(text: &[u8], format: UserFormat) -> Result<UserFile, Error> {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text).expect("a write");
        UserFile::load(file.path(), format)
    }

    #[test]
    fn users_and_passwords_are_told_apart() {
        for text in [&b"one:1\nuser:pa:ss\n"[..], b"user:pa:ss", b"# no comment: x\r\nuser:pa:ss\r\n"] {
            let users = load(text, UserFormat::WholeLine).expect("users");
            assert!(users.knows(b"user", b"pa:ss"));
            for (user, password) in
                [(&b"user"[..], &b"pa:s"[..]), (b"user", b"pa:sS"), (b"use", b"pa:ss"), (b"one", b"pa:ss")]
            {
                assert!(!users.knows(user, password));
            }
        }
    }

    #[test]
    fn empty_names_and_passwords_are_refused() {
        let users = load(b":\n:pass\nuser:\n", UserFormat::WholeLine).expect("users");
        for (user, password) in [(&b""[..], &b""[..]), (b"", b"pass"), (b"user", b"")] {
            assert!(!users.knows(user, password));
        }
        assert!(!load(b"", UserFormat::WholeLine).expect("no users").knows(b"", b""));
    }

    #[test]
    fn fields_end_at_colons_and_hosts_are_optional() {
        let users = load(b"testuser:testpass:::::::\nme@there:mine\n", UserFormat::Fields).expect("users");
        assert!(users.knows(b"testuser", b"testpass"));
        assert!(users.knows(b"me", b"mine") && users.knows(b"me@there", b"mine"));
        assert!(!users.knows(b"me@elsewhere", b"mine") && !users.knows(b"me@", b"mine"));
        let whole = load(b"me@there:mine\n", UserFormat::WholeLine).expect("users");
        assert!(whole.knows(b"me@there", b"mine") && !whole.knows(b"me", b"mine"));
    }

    #[test]
    fn malformed_lines_are_named() {
        let long = [&b"user:"[..], &[b'p'; 251]].concat();
        for (text, expected) in
            [(&b"a:b\nnocolon\n"[..], 2), (b"\na:b\n", 1), (b"a:b\n\n", 2), (b"a:b\0\n", 1), (&long, 1)]
        {
            match load(text, UserFormat::WholeLine) {
                Err(Error::UserFileEntry { line, .. }) => assert_eq!(line, expected),
                other => panic!("{other:?}"),
            }
        }
        assert!(load(&long[..255], UserFormat::WholeLine).is_ok());
    }

    #[test]
    fn a_reload_that_fails_changes_nothing() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let write = |text: &str| std::fs::write(file.path(), text).expect("a write");
        write("a:1\n");
        let users = UserFile::load(file.path(), UserFormat::WholeLine).expect("users");
        write("b:2\n");
        users.reload().expect("a reload");
        assert!(users.knows(b"b", b"2") && !users.knows(b"a", b"1"));
        write("nocolon\n");
        assert!(matches!(users.reload(), Err(Error::UserFileEntry { .. })));
        write(&"x".repeat(FILE_BYTES as usize + 1));
        assert!(matches!(users.reload(), Err(Error::UserFileRead { .. })));
        std::fs::remove_file(file.path()).expect("the file");
        assert!(matches!(users.reload(), Err(Error::UserFileRead { .. })));
        assert!(users.knows(b"b", b"2"));
    }

    #[test]
    fn passwords_are_not_printed() {
        let text = format!("{:?}", load(b"user:secret\n", UserFormat::WholeLine).expect("users"));
        assert!(!text.contains("secret") && !text.contains("115, 101"));
    }
}
