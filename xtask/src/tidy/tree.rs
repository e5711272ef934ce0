//! The files of the repository, as text. A plain directory walk, so that it works without git and in a checkout that
//! belongs to another user.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::error::Error;

/// Directories of generated files.
const SKIPPED: [&str; 6] = [".git", ".venv", ".pytest_cache", "__pycache__", "node_modules", "target"];

/// Files whose text some rule reads; of all others only the name is kept.
const TEXT: [&str; 4] = ["rs", "md", "lock", "toml"];

/// Paths from the root, with `/`, and their text (empty for files that no rule reads).
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    pub fn read(root: &Path) -> Result<Self, Error> {
        let mut tree = Self::default();
        tree.walk(root, "")?;
        Ok(tree)
    }

    #[cfg(test)]
    pub fn sample(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect() }
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether a file or a directory is there.
    pub fn exists(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty() || self.files.contains_key(path) || self.files.keys().any(|file| file.starts_with(&folder))
    }

    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    pub fn with_extension(&self, extension: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.rsplit_once('.').is_some_and(|(_, tail)| tail == extension))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    fn walk(&mut self, folder: &Path, prefix: &str) -> Result<(), Error> {
        let failed = |path: &Path, error| Error::Read { path: path.display().to_string(), error };
        for entry in fs::read_dir(folder).map_err(|error| failed(folder, error))? {
            let entry = entry.map_err(|error| failed(folder, error))?;
            let kind = entry.file_type().map_err(|error| failed(&entry.path(), error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            if kind.is_dir() {
                if !SKIPPED.contains(&name.as_str()) {
                    self.walk(&entry.path(), &format!("{path}/"))?;
                }
            } else if kind.is_file() {
                let text = if TEXT.iter().any(|tail| name.ends_with(&format!(".{tail}"))) {
                    fs::read_to_string(entry.path()).map_err(|error| failed(&entry.path(), error))?
                } else {
                    String::new()
                };
                self.files.insert(path, text);
            }
        }
        Ok(())
    }
}

/// Resolves `link` against the folder of `file`; `None` if it leaves the repository.
pub fn resolve(file: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = match link.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => file.split('/').collect(),
    };
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_resolve_against_the_folder_of_the_file() {
        assert_eq!(resolve("docs/a.md", "b.md").unwrap(), "docs/b.md");
        assert_eq!(resolve("docs/a.md", "../src/x.rs").unwrap(), "src/x.rs");
        assert_eq!(resolve("docs/a.md", "./").unwrap(), "docs");
        assert_eq!(resolve("docs/a.md", "/README.md").unwrap(), "README.md");
        assert_eq!(resolve("a.md", "../x"), None);
    }

    #[test]
    fn folders_exist_through_their_files() {
        let tree = Tree::sample(&[("crates/a/src/lib.rs", "")]);
        assert!(tree.exists("crates/a"));
        assert!(tree.exists("crates/a/src/lib.rs"));
        assert!(!tree.exists("crates/a/sr"));
    }
}
