//! A type name means one thing: one file of a crate defines it, and those of `UNIQUE` one file of all crates.
//!
//! In a crate those count that all of it sees (`pub`, `pub(crate)`). Types of the same name in one file are variants
//! of one type for different builds.

use std::collections::BTreeMap;

use super::problem::Problem;
use super::source::Source;
use super::tree::Tree;

const RULE: &str = "type name";

/// Names that no two types of the workspace have, not even private ones.
const UNIQUE: [&str; 10] =
    ["Choice", "Division", "Held", "Layout", "Lookup", "Need", "Place", "Shape", "Store", "Walk"];

/// Names that two files of a crate define, and why.
const ALLOWED: [(&str, &[&str], &str); 2] = [
    (
        "crates/ebbtide",
        &["Cache", "CacheBuilder", "CompactPool", "FlashStats", "Pool", "WeakCache"],
        "the library's interface and the server's",
    ),
    ("crates/flash", &["Options", "Recovered"], "large objects and small ones, named by module"),
];

pub fn check(tree: &Tree) -> Vec<Problem> {
    // By crate ("": all of them) and name: the files that define a type.
    let mut files: BTreeMap<(&str, String), Vec<(&str, usize)>> = BTreeMap::new();
    for (path, text) in tree.with_extension("rs") {
        let Some((krate, file)) = path.split_once("/src/") else { continue };
        if !krate.starts_with("crates/") || file.contains("tests/") || file.ends_with("tests.rs") {
            continue;
        }
        let source = Source::new(text);
        let end = source.tests_start();
        for (line, code) in source.code[..end].lines().enumerate() {
            let Some((is_shared, name)) = definition(code) else { continue };
            let is_listed = ALLOWED.iter().any(|(of, names, _)| *of == krate && names.contains(&name));
            let scopes = [(UNIQUE.contains(&name), ""), (is_shared && !is_listed, krate)];
            for (_, scope) in scopes.into_iter().filter(|(counts, _)| *counts) {
                let found = files.entry((scope, name.to_owned())).or_default();
                if found.last().is_none_or(|(last, _)| *last != path) {
                    found.push((path, line + 1));
                }
            }
        }
    }
    let doubled = files.iter().filter(|(_, found)| found.len() > 1);
    let problem = |((_, name), found): (&(&str, String), &Vec<(&str, usize)>)| {
        let (path, line) = found[1];
        Problem::new(path, line, RULE, format!("{} defines {name}, too: give one of them another name", found[0].0))
    };
    doubled.map(problem).collect()
}

/// The type that a line defines, and whether all of its crate sees it. Types in functions, traits and inner modules are
/// left out: their lines are indented.
fn definition(line: &str) -> Option<(bool, &str)> {
    let (visibility, rest) = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest[1..].split_once(") ")?,
        Some(rest) => ("crate", rest.trim_start()),
        None => ("", line),
    };
    let (keyword, rest) = rest.split_once(' ')?;
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
    matches!(keyword, "struct" | "enum" | "trait" | "type" | "union").then_some((visibility == "crate", &rest[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::sample(files)).into_iter().map(|problem| format!("{}:{}", problem.file, problem.line)).collect()
    }

    #[test]
    fn a_second_definition_in_a_crate_is_refused() {
        let one = ("crates/a/src/one.rs", "pub struct Cell;");
        for other in ["\npub(crate) enum Cell { A }", "\npub type Cell = u8;", "\npub trait Cell<T> {}"] {
            assert_eq!(found(&[one, ("crates/a/src/two.rs", other)]), ["crates/a/src/two.rs:2"], "{other}");
        }
    }

    #[test]
    fn only_public_types_of_one_crate_count() {
        let one = ("crates/a/src/one.rs", "pub struct Cell;");
        for (path, text) in [
            ("crates/a/src/two.rs", "struct Cell;"),
            ("crates/a/src/two.rs", "pub(super) struct Cell;"),
            ("crates/a/src/two.rs", "impl A {\n    pub type Cell = u8;\n}"),
            ("crates/a/src/two.rs", "#[cfg(test)]\nmod tests {\npub struct Cell;\n}"),
            ("crates/a/src/tests/two.rs", "pub struct Cell;"),
            ("crates/a/src/one.rs", "#[cfg(a)]\npub struct Cell;\n#[cfg(b)]\npub struct Cell;"),
            ("crates/b/src/two.rs", "pub struct Cell;"),
        ] {
            assert_eq!(found(&[one, (path, text)]), [""; 0], "{text}");
        }
        let options = "pub struct Options;";
        assert_eq!(found(&[("crates/flash/src/a.rs", options), ("crates/flash/src/b.rs", options)]), [""; 0]);
    }

    #[test]
    fn some_names_are_unique_in_the_workspace() {
        let files = [("crates/a/src/a.rs", "struct Shape;"), ("crates/b/src/b.rs", "pub(super) enum Shape {}")];
        assert_eq!(found(&files), ["crates/b/src/b.rs:1"]);
    }
}
