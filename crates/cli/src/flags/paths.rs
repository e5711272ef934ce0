//! Paths of the settings, which are opened and read again after the process has changed its directory (`-d`).

use super::Settings;
use super::values::absolute;

impl Settings {
    /// Makes all paths absolute but those of TLS and of the unix socket, which are resolved where they are used.
    pub(super) fn make_paths_absolute(&mut self) {
        let files = [&mut self.auth_file, &mut self.history_file, &mut self.memory_file, &mut self.pid_file];
        files.into_iter().flatten().chain(self.flash.paths_mut()).for_each(|path| *path = absolute(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

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
