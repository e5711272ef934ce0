//! The floors of the house: which of our crates may import which.
//!
//! ```text
//! floor 3   cli
//! floor 2   server   lab   capi   python
//! floor 1   ebbtide
//! floor 0   store  flash  control  protocol
//! beside    testkit (only as a dev-dependency), fuzz, xtask
//! ```

use super::problem::Problem;
use super::workspace::{Kind, Workspace};

const RULE: &str = "arrow";
const TESTKIT: &str = "ebbtide-testkit";
/// Features that no shipping build has: only a dev-dependency may ask for them.
const TEST_FEATURES: [&str; 3] = ["kill-points", "pause-points", "test-devices"];

/// Every package of the workspace, with the packages of ours that it may import.
const ALLOWED: [(&str, &[&str]); 13] = [
    // The server takes the cache that the flags describe.
    ("ebbtide-cli", &["ebbtide-server", "ebbtide-lab"]),
    ("ebbtide-server", &["ebbtide", "ebbtide-protocol"]),
    ("ebbtide-lab", &["ebbtide", "ebbtide-protocol", "ebbtide-control"]),
    ("ebbtide", &["ebbtide-store", "ebbtide-flash", "ebbtide-control"]),
    ("ebbtide-store", &[]),
    ("ebbtide-flash", &[]),
    ("ebbtide-control", &[]),
    ("ebbtide-protocol", &[]),
    ("ebbtide-capi", &["ebbtide"]),
    ("ebbtide-python", &["ebbtide"]),
    (TESTKIT, &["ebbtide", "ebbtide-store"]),
    ("ebbtide-fuzz", &["ebbtide", "ebbtide-lab", "ebbtide-protocol", "ebbtide-store"]),
    ("xtask", &[]),
];

pub fn check(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in workspace.packages.iter().filter(|p| p.member) {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
            problems.push(Problem::new(
                &package.manifest,
                1,
                RULE,
                format!("{} has no floor; give it one in xtask/src/tidy/arrows.rs", package.name),
            ));
            continue;
        };
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let ours = workspace.packages.iter().any(|p| p.name == name);
            let fine = allowed.contains(&name) || (name == TESTKIT && dependency.kind == Kind::Dev);
            if ours && !fine {
                let advice = if name == TESTKIT {
                    format!("{name} is for tests: move it to [dev-dependencies]")
                } else {
                    format!(
                        "{} must not import {name}; it may import {}",
                        package.name,
                        if allowed.is_empty() { "nothing of ours".to_owned() } else { allowed.join(", ") }
                    )
                };
                problems.push(Problem::new(&package.manifest, 1, RULE, advice));
            }
            let is_for_tests = |feature: &&String| TEST_FEATURES.contains(&feature.as_str());
            if let Some(feature) =
                dependency.features.iter().find(is_for_tests).filter(|_| dependency.kind != Kind::Dev)
            {
                let advice = format!("{name}'s feature {feature} is for tests: ask for it in [dev-dependencies]");
                problems.push(Problem::new(&package.manifest, 1, RULE, advice));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::workspace::{Dependency, Package};
    use super::*;

    fn workspace(arrows: &[(&str, &str, Kind)]) -> Workspace {
        let mut names: Vec<&str> = arrows.iter().flat_map(|a| [a.0, a.1]).collect();
        names.sort();
        names.dedup();
        Workspace {
            packages: names
                .iter()
                .map(|name| Package {
                    name: (*name).to_owned(),
                    manifest: format!("crates/{name}/Cargo.toml"),
                    member: true,
                    dependencies: arrows
                        .iter()
                        .filter(|a| a.0 == *name)
                        .map(|a| Dependency { name: a.1.to_owned(), kind: a.2, features: Vec::new() })
                        .collect(),
                    targets: Vec::new(),
                })
                .collect(),
        }
    }

    fn count(arrows: &[(&str, &str, Kind)]) -> usize {
        check(&workspace(arrows)).len()
    }

    #[test]
    fn the_house_stands() {
        assert_eq!(
            count(&[
                ("ebbtide-cli", "ebbtide-server", Kind::Normal),
                ("ebbtide-server", "ebbtide-protocol", Kind::Normal),
                ("ebbtide", "ebbtide-store", Kind::Normal),
                ("ebbtide-lab", "ebbtide-control", Kind::Normal),
                ("ebbtide-store", TESTKIT, Kind::Dev),
                (TESTKIT, "ebbtide", Kind::Normal),
            ]),
            0
        );
    }

    #[test]
    fn arrows_upward_and_sideways_are_refused() {
        for (from, to, kind) in [
            ("ebbtide-store", "ebbtide", Kind::Normal),
            ("ebbtide-store", "ebbtide-protocol", Kind::Dev),
            ("ebbtide", "ebbtide-protocol", Kind::Normal),
            ("ebbtide-server", "ebbtide-lab", Kind::Normal),
            ("ebbtide-server", "ebbtide-store", Kind::Build),
            ("ebbtide-cli", "ebbtide-store", Kind::Normal),
            ("ebbtide-store", TESTKIT, Kind::Normal),
        ] {
            assert_eq!(count(&[(from, to, kind)]), 1, "{from} -> {to}");
        }
    }

    #[test]
    fn only_dev_dependencies_have_features_for_tests() {
        for (kind, feature, expected) in
            [(Kind::Normal, "test-devices", 1), (Kind::Dev, "kill-points", 0), (Kind::Normal, "serde", 0)]
        {
            let mut workspace = workspace(&[("ebbtide", "ebbtide-store", kind)]);
            let ours = workspace.packages.iter_mut().find(|package| package.name == "ebbtide").unwrap();
            ours.dependencies[0].features.push(feature.to_owned());
            assert_eq!(check(&workspace).len(), expected, "{kind:?} {feature}");
        }
    }

    #[test]
    fn a_crate_without_a_floor_is_named() {
        let problems = check(&workspace(&[("ebbtide-new", "ebbtide", Kind::Normal)]));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].advice.contains("ebbtide-new has no floor"));
    }
}
