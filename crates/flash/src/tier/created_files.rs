//! Files that an opening made: a start that is refused leaves none behind.

use std::fs;
use std::path::{Path, PathBuf};

/// Removed with it, unless they are kept.
#[derive(Default)]
pub(super) struct CreatedFiles(Vec<PathBuf>);

impl CreatedFiles {
    pub fn of<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        Self(paths.map(Path::to_owned).collect())
    }

    /// Another one, if it was made.
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
