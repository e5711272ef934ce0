//! Every crate root outside the store and the C interface forbids unsafe code; flash allows it for its devices alone.

use super::problem::Problem;
use super::source::Source;
use super::tree::Tree;
use super::workspace::Workspace;

/// Packages that may hold unsafe code; they deny undocumented blocks instead.
const UNSAFE_ALLOWED: [&str; 2] = ["ebbtide-store", "ebbtide-capi"];
const ATTRIBUTE: &str = "#![forbid(unsafe_code)]";
/// Denies unsafe code, so that one folder can allow it.
const FENCED: &str = "ebbtide-flash";
const FENCE: &str = "#![deny(unsafe_code)]";
const PERMIT: &str = "allow(unsafe_code)";
const PERMITTED: &str = "crates/flash/src/device/";

pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in workspace.packages.iter().filter(|p| p.member) {
        if UNSAFE_ALLOWED.contains(&package.name.as_str()) {
            continue;
        }
        let attribute = if package.name == FENCED { FENCE } else { ATTRIBUTE };
        for target in &package.targets {
            let root = matches!(target.kind.as_str(), "lib" | "bin" | "proc-macro");
            let text = tree.text(&target.root).unwrap_or_default();
            if root && !Source::new(text).code.contains(attribute) {
                problems.push(Problem::new(
                    &target.root,
                    1,
                    "unsafe",
                    format!("add {attribute}: unsafe code lives in the store and in {PERMITTED}"),
                ));
            }
        }
    }
    let permits = tree.with_extension("rs").filter(|(path, text)| {
        path.starts_with("crates/") && !path.starts_with(PERMITTED) && Source::new(text).code.contains(PERMIT)
    });
    problems.extend(
        permits.map(|(path, _)| Problem::new(path, 1, "unsafe", format!("{PERMIT} belongs into {PERMITTED} alone"))),
    );
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
        assert_eq!(problems("ebbtide-flash", FENCE), 0);
        assert_eq!(problems("ebbtide-flash", "pub fn f() {}"), 1);
    }

    #[test]
    fn only_devices_permit_unsafe_code() {
        let none = Workspace { packages: Vec::new() };
        let at = |path| check(&none, &Tree::sample(&[(path, "#![allow(unsafe_code)]")])).len();
        assert_eq!(at("crates/flash/src/device/ring.rs"), 0);
        assert_eq!(at("crates/flash/src/large/mod.rs"), 1);
        assert_eq!(at("crates/server/src/worker.rs"), 1);
    }
}
