//! Checks of the whole repository. Each module below holds one family of rules as a function from the text of the
//! files (and, where needed, the workspace that Cargo reports) to a list of problems, so that every rule can be
//! tested on small samples without a checkout.

mod arrows;
mod crates;
mod dead_files;
mod evaluation;
mod links;
mod lockfile;
mod phrases;
mod size;
mod source;
mod tree;
mod workspace;

use std::fmt;
use std::path::Path;

use self::source::Source;
use self::tree::Tree;
use self::workspace::Workspace;

/// One broken rule, shown as `file:line: rule: what to do`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Path from the repository root, with `/`.
    pub file: String,
    /// First line is 1.
    pub line: usize,
    pub rule: &'static str,
    pub advice: String,
}

impl Problem {
    fn new(file: &str, line: usize, rule: &'static str, advice: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, rule, advice: advice.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.advice)
    }
}

/// Why the rules could not be checked at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {path}: {error}")]
    Read {
        path: String,
        #[source]
        error: std::io::Error,
    },
    #[error("cannot run cargo metadata: {0}")]
    RunCargo(#[source] std::io::Error),
    #[error("cargo metadata failed for {manifest}: {message}")]
    Metadata { manifest: String, message: String },
    #[error("cargo metadata answered something unknown: {0}")]
    Json(#[from] serde_json::Error),
}

/// Checks everything under `root`; the problems come sorted by file and line.
pub fn run(root: &Path) -> Result<Vec<Problem>, Error> {
    let tree = Tree::read(root)?;
    let workspace = Workspace::load(root, &tree)?;
    let mut problems = arrows::check(&workspace);
    problems.extend(crates::check(&workspace, &tree));
    problems.extend(dead_files::check(&workspace, &tree));
    problems.extend(evaluation::check(&tree));
    problems.extend(links::check(&tree));
    problems.extend(lockfile::check(&tree));
    for (path, text) in tree.with_extension("rs") {
        let source = Source::new(text);
        problems.extend(size::check(path, &source));
        problems.extend(phrases::check(path, &source));
    }
    problems.sort();
    Ok(problems)
}
