//! Files that an opening created. A start that is refused removes them.

use std::fs;
use std::path::{Path, PathBuf};

/// Paths of created files, which are removed when this is dropped, unless it is disarmed.
#[derive(Default)]
pub(super) struct CreatedFiles(Vec<PathBuf>);

impl CreatedFiles {
    pub fn of<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        Self(paths.map(Path::to_owned).collect())
    }

    /// Adds a file, if it was created.
    pub fn record_arrival(&mut self, path: &Path, is_created: bool) {
        self.0.extend(is_created.then(|| path.to_owned()));
    }

    pub fn disarm(&mut self) {
        self.0.clear();
    }
}

impl Drop for CreatedFiles {
    fn drop(&mut self) {
        self.0.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}
