//! Paths of the settings, which are opened and read again after the process has changed its directory (`-d`).

use std::path::{Path, PathBuf};

use super::Settings;
use super::values::absolute;
use crate::error::Error;

impl Settings {
    /// Makes all paths absolute but those of TLS and of the unix socket, which are resolved where they are used.
    pub(super) fn make_paths_absolute(&mut self) {
        let files = [&mut self.auth_file, &mut self.history_file, &mut self.memory_file, &mut self.pid_file];
        files.into_iter().flatten().chain(self.flash.paths_mut()).for_each(|path| *path = absolute(path));
    }

    /// Refuses one path for two of the files that the server writes.
    pub fn check_paths(&self) -> Result<(), Error> {
        let files = [
            ("-e", &self.memory_file),
            ("--history-file", &self.history_file),
            ("-P", &self.pid_file),
            ("-s", &self.unix_socket),
        ];
        let files = files.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?)));
        let mut seen: Vec<(&str, PathBuf)> = Vec::new();
        for (flag, path) in self.flash.named_paths().chain(files) {
            let place = place(path);
            // The cache itself refuses one path for two devices.
            if let Some((other, _)) = seen.iter().find(|(other, known)| *known == place && *other != flag) {
                let path = path.display();
                return Err(Error::Limit(format!(
                    "{other} and {flag}: one path for two files, {path}; give another one"
                )));
            }
            seen.push((flag, place));
        }
        Ok(())
    }
}

/// The path without links, as far as it exists.
fn place(path: &Path) -> PathBuf {
    let path = absolute(&path.to_path_buf());
    let beside = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(beside).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_becomes_absolute() {
        let file = || Some(PathBuf::from("file"));
        let mut settings = Settings {
            auth_file: file(),
            history_file: file(),
            memory_file: file(),
            pid_file: file(),
            ..Settings::default()
        };
        settings.flash.set("flash", "--flash", "disk:1g").unwrap();
        settings.flash.set("flash-deletion-log", "--flash-deletion-log", "log").unwrap();
        settings.make_paths_absolute();
        let Settings { auth_file, history_file, memory_file, pid_file, mut flash, .. } = settings;
        let files: Vec<_> = [auth_file, history_file, memory_file, pid_file].into_iter().flatten().collect();
        assert_eq!(files.len(), 4);
        let folder = std::env::current_dir().unwrap();
        assert!(files.iter().all(|path| *path == folder.join("file")), "{files:?}");
        let of_flash: Vec<&Path> = flash.paths_mut().map(|path| path.as_path()).collect();
        assert_eq!(of_flash, [folder.join("disk"), folder.join("log")]);
    }
}
