//! Checks of the whole repository. Each module below holds one family of rules as a function from the text of the
//! files (and, where needed, the workspace that Cargo reports) to a list of problems, so that every rule can be
//! tested on small samples without a checkout.

mod arrows;
mod circles;
mod crates;
mod dead_files;
mod error;
mod evaluation;
mod first_words;
mod links;
mod lockfile;
mod modules;
mod phrases;
mod printing;
mod problem;
mod size;
mod source;
mod test_names;
mod tree;
mod type_names;
mod width;
mod words;
mod workspace;

use std::path::Path;

pub use self::error::Error;
pub use self::problem::Problem;
use self::source::Source;
use self::tree::Tree;
use self::workspace::Workspace;

/// Checks everything under `root`; the problems come sorted by file and line.
pub fn run(root: &Path) -> Result<Vec<Problem>, Error> {
    let tree = Tree::read(root)?;
    let workspace = Workspace::load(root, &tree)?;
    let mut problems = arrows::check(&workspace);
    problems.extend(circles::check(&workspace, &tree));
    problems.extend(crates::check(&workspace, &tree));
    problems.extend(dead_files::check(&workspace, &tree));
    problems.extend(evaluation::check(&tree));
    problems.extend(links::check(&tree));
    problems.extend(lockfile::check(&tree));
    problems.extend(type_names::check(&tree));
    for (path, text) in tree.with_extension("rs") {
        let source = Source::new(text);
        problems.extend(first_words::check(path, &source));
        problems.extend(size::check(path, &source));
        problems.extend(phrases::check(path, &source));
        problems.extend(printing::check(path, &source));
        problems.extend(test_names::check(path, &source));
        problems.extend(width::check(path, &source));
        problems.extend(words::check(path, &source));
    }
    for (path, text) in tree.with_extension("md") {
        problems.extend(width::check_page(path, text));
        problems.extend(words::check_page(path, text));
    }
    problems.sort();
    Ok(problems)
}
