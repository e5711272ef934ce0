//! No circle of imports between the files of a crate, but in the folders that are listed with a reason.
//!
//! A file imports another one when it names something of it by a path: in a `use`, or inline (`crate::a::f()`,
//! `super::X`, `child::f()`). A name is followed through re-exports to the file that defines it, so `lib.rs` and
//! `mod.rs` files that only map and re-export are in no circle. Test modules are left out.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{Crate, Module};
use super::problem::Problem;
use super::tree::Tree;
use super::workspace::Workspace;

const RULE: &str = "circle";

/// Folders with circles, the maximum of files in them, and why.
const ALLOWED: &[(&str, usize, &str)] = &[
    ("crates/cli/src/config/", 3, "what the formats of files give lies beside the function that reads them"),
    ("crates/cli/src/flags", 3, "the settings and the options that set them"),
    ("crates/flash/src/device/", 9, "the trait of a device names the rings, which hold the disk"),
    ("crates/protocol/src/", 4, "a request and the parsers that make it"),
    ("crates/store/src/", 4, "hooks of a store are called with items, and an item borrows its store"),
];

pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Problem> {
    check_against(workspace, tree, ALLOWED)
}

fn check_against(workspace: &Workspace, tree: &Tree, allowed: &[(&str, usize, &str)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
    let packages = workspace.packages.iter().filter(|package| package.member);
    for target in packages.flat_map(|package| &package.targets) {
        if !matches!(target.kind.as_str(), "lib" | "bin") || tree.text(&target.root).is_none() {
            continue;
        }
        for circle in circles(&imports(&Crate::read(&target.root, tree))) {
            let folder = allowed.iter().find(|(folder, ..)| circle.iter().all(|file| file.starts_with(folder)));
            match folder {
                Some((folder, ..)) => *counted.entry(folder).or_default() += circle.len(),
                None => problems.push(problem(&circle)),
            }
        }
    }
    for (folder, max, _) in allowed {
        match counted.get(folder).copied().unwrap_or_default() {
            0 => problems.push(Problem::new(folder, 1, RULE, "no circle is left: remove it from the list")),
            files if files > *max => {
                let advice =
                    format!("{files} files import each other in circles, at most {max}: move the misplaced item");
                problems.push(Problem::new(folder, 1, RULE, advice));
            }
            _ => {}
        }
    }
    problems
}

fn problem(circle: &[String]) -> Problem {
    let advice = format!("imports in a circle: {}; move the misplaced item", circle.join(", "));
    Problem::new(&circle[0], 1, RULE, advice)
}

/// Which file imports which.
fn imports(krate: &Crate) -> BTreeMap<String, BTreeSet<String>> {
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (at, module) in &krate.modules {
        for path in mentions(module) {
            if let Some(file) = krate.file_of(at, &path).filter(|file| *file != module.file) {
                graph.entry(module.file.clone()).or_default().insert(file);
            }
        }
    }
    graph
}

/// The paths that make a module import others: all but those that it only passes on.
fn mentions(module: &Module) -> impl Iterator<Item = Vec<String>> {
    let uses = module.uses.iter().filter(|import| !import.is_public || module.words.contains(&import.name));
    uses.map(|import| import.path.clone()).chain(module.paths.iter().cloned())
}

/// The strongly connected parts of more than one file, each sorted. Two files are in one if each reaches the other.
fn circles(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|file| (file.as_str(), reach(graph, file))).collect();
    let mut circles: Vec<Vec<String>> = Vec::new();
    for file in graph.keys() {
        if circles.iter().flatten().any(|other| other == file) {
            continue;
        }
        let back = |other: &&&str| reached.get(**other).is_some_and(|files| files.contains(file.as_str()));
        let circle: Vec<String> = reached[file.as_str()].iter().filter(back).map(|other| (*other).to_owned()).collect();
        if circle.len() > 1 {
            circles.push(circle);
        }
    }
    circles
}

fn reach<'a>(graph: &'a BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut queue: Vec<&str> = graph[from].iter().map(String::as_str).collect();
    while let Some(file) = queue.pop() {
        if reached.insert(file) {
            queue.extend(graph.get(file).into_iter().flatten().map(String::as_str));
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::super::workspace::{Package, Target};
    use super::*;

    const ROOT: &str = "crates/a/src/lib.rs";

    fn found(allowed: &[(&str, usize, &str)], files: &[(&str, &str)]) -> Vec<String> {
        let workspace = Workspace {
            packages: vec![Package {
                name: "a".to_owned(),
                manifest: "crates/a/Cargo.toml".to_owned(),
                member: true,
                dependencies: Vec::new(),
                targets: vec![Target { kind: "lib".to_owned(), root: ROOT.to_owned() }],
            }],
        };
        let files: Vec<_> = files.iter().map(|(path, text)| (format!("crates/a/src/{path}"), *text)).collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        check_against(&workspace, &Tree::sample(&files), allowed).into_iter().map(|problem| problem.advice).collect()
    }

    #[test]
    fn files_that_use_each_other_are_circles() {
        for (one, other) in [
            ("use crate::b::B;", "use crate::{Error, a::{self, A}};\nfn f() { a::f() }"),
            ("use super::b::{B as C, D};", "fn f() -> super::a::A { crate::a::f() }"),
            ("fn f() { crate::b::f::<u8>() }", "use crate::a::*;"),
        ] {
            let problems = found(&[], &[("lib.rs", "mod a; mod b; pub struct Error;"), ("a.rs", one), ("b.rs", other)]);
            assert_eq!(problems.len(), 1, "{one} {other}: {problems:?}");
            assert!(problems[0].contains("crates/a/src/a.rs, crates/a/src/b.rs;"), "{problems:?}");
        }
    }

    #[test]
    fn names_are_followed_through_re_exports() {
        let root = "mod a; mod b; mod error;\npub use error::Error;\npub use b::B;";
        let files =
            [("lib.rs", root), ("a.rs", "use crate::{B, Error};"), ("b.rs", "use crate::Error;"), ("error.rs", "")];
        assert_eq!(found(&[], &files), [""; 0]);
        let circle = [("lib.rs", root), ("a.rs", "use crate::B;"), ("b.rs", "use crate::a::A;"), ("error.rs", "")];
        assert_eq!(found(&[], &circle).len(), 1);
        // A file that uses its re-exports is no map.
        let user = "mod a;\npub use a::A;\npub struct S(A);";
        assert_eq!(found(&[], &[("lib.rs", user), ("a.rs", "use crate::S;")]).len(), 1);
    }

    #[test]
    fn tests_and_other_crates_make_no_circle() {
        let test = "use std::fmt;\n#[cfg(test)]\nuse crate::b::B;\n#[cfg(test)]\nmod tests { use crate::b::B; }";
        let files = [
            ("lib.rs", "mod a; mod b;\n#[cfg(test)]\nmod model_tests;"),
            ("a.rs", test),
            ("b.rs", "use crate::a::A; // crate::b"),
            ("model_tests.rs", "use crate::a::A;"),
        ];
        assert_eq!(found(&[], &files), [""; 0]);
    }

    #[test]
    fn listed_circles_may_only_shrink() {
        let circle = [("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")];
        assert_eq!(found(&[("crates/a/src", 2, "why")], &circle), [""; 0]);
        assert!(found(&[("crates/a/src", 1, "why")], &circle)[0].contains("2 files"));
        assert_eq!(found(&[("crates/b/src", 2, "why")], &circle).len(), 2);
        let none = [("lib.rs", "mod a;"), ("a.rs", "")];
        assert!(found(&[("crates/a/src", 2, "why")], &none)[0].contains("remove it"));
    }
}
