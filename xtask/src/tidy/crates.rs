//! Every crate root outside the store forbids unsafe code.

use super::Problem;
use super::source::Source;
use super::tree::Tree;
use super::workspace::Workspace;

/// Packages that may hold unsafe code; they deny undocumented blocks instead.
const UNSAFE_ALLOWED: [&str; 1] = ["ebbtide-store"];
const ATTRIBUTE: &str = "#![forbid(unsafe_code)]";

pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in workspace.packages.iter().filter(|p| p.member) {
        if UNSAFE_ALLOWED.contains(&package.name.as_str()) {
            continue;
        }
        for target in &package.targets {
            let root = matches!(target.kind.as_str(), "lib" | "bin" | "proc-macro");
            let text = tree.text(&target.root).unwrap_or_default();
            if root && !Source::new(text).code.contains(ATTRIBUTE) {
                problems.push(Problem::new(
                    &target.root,
                    1,
                    "unsafe",
                    format!("add {ATTRIBUTE}: unsafe code lives in the store"),
                ));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::workspace::{Package, Target};
    use super::*;

    fn problems(package: &str, text: &str) -> usize {
        let workspace = Workspace {
            packages: vec![Package {
                name: package.to_owned(),
                manifest: "Cargo.toml".to_owned(),
                member: true,
                dependencies: Vec::new(),
                targets: vec![Target { kind: "lib".to_owned(), root: "src/lib.rs".to_owned() }],
            }],
        };
        check(&workspace, &Tree::sample(&[("src/lib.rs", text)])).len()
    }

    #[test]
    fn roots_forbid_unsafe_code() {
        assert_eq!(problems("ebbtide", ATTRIBUTE), 0);
        assert_eq!(problems("ebbtide", "pub fn f() {}"), 1);
        assert_eq!(problems("ebbtide", "// #![forbid(unsafe_code)]"), 1);
        assert_eq!(problems("ebbtide-store", "pub fn f() {}"), 0);
    }
}
