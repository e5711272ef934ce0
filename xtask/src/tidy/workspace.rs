//! Our packages, from `cargo metadata`. Separate workspaces below the root (fuzz, compare) are included because their
//! files count as reachable; their arrows do not count.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::error::Error;
use super::tree::Tree;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Normal,
    Dev,
    Build,
}

#[derive(Clone, Debug)]
pub struct Dependency {
    pub name: String,
    pub kind: Kind,
    pub features: Vec<String>,
}

/// A library, binary, test, bench or example.
#[derive(Clone, Debug)]
pub struct Target {
    pub kind: String,
    /// Path of its root file from the repository root.
    pub root: String,
}

#[derive(Clone, Debug)]
pub struct Package {
    pub name: String,
    pub manifest: String,
    /// Whether it belongs to the main workspace.
    pub member: bool,
    pub dependencies: Vec<Dependency>,
    pub targets: Vec<Target>,
}

#[derive(Debug, Default)]
pub struct Workspace {
    pub packages: Vec<Package>,
}

impl Workspace {
    pub fn load(root: &Path, tree: &Tree) -> Result<Self, Error> {
        let mut workspace = Self::default();
        workspace.read(root, "Cargo.toml", true)?;
        let manifests: Vec<&str> =
            tree.with_extension("toml").map(|(path, _)| path).filter(|path| path.ends_with("/Cargo.toml")).collect();
        for manifest in manifests {
            if !workspace.packages.iter().any(|p| p.manifest == manifest) {
                workspace.read(root, manifest, false)?;
            }
        }
        Ok(workspace)
    }

    fn read(&mut self, root: &Path, manifest: &str, member: bool) -> Result<(), Error> {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
            .arg("--manifest-path")
            .arg(root.join(manifest))
            .output()
            .map_err(Error::RunCargo)?;
        if !output.status.success() {
            return Err(Error::Metadata {
                manifest: manifest.to_owned(),
                message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            });
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        let root = root.display().to_string();
        self.packages.extend(parse(&metadata, &root, member));
        Ok(())
    }
}

fn parse(metadata: &Value, root: &str, member: bool) -> Vec<Package> {
    let relative = |value: &Value| {
        let path = value.as_str().unwrap_or_default();
        path.strip_prefix(root).unwrap_or(path).trim_start_matches('/').to_owned()
    };
    list(&metadata["packages"])
        .map(|package| Package {
            name: string(&package["name"]),
            manifest: relative(&package["manifest_path"]),
            member,
            dependencies: list(&package["dependencies"])
                .map(|dependency| Dependency {
                    name: string(&dependency["name"]),
                    kind: match dependency["kind"].as_str() {
                        Some("dev") => Kind::Dev,
                        Some("build") => Kind::Build,
                        _ => Kind::Normal,
                    },
                    features: list(&dependency["features"]).map(string).collect(),
                })
                .collect(),
            targets: list(&package["targets"])
                .map(|target| Target { kind: string(&target["kind"][0]), root: relative(&target["src_path"]) })
                .collect(),
        })
        .collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_read() {
        let metadata = serde_json::json!({"packages": [{
            "name": "a", "manifest_path": "/r/crates/a/Cargo.toml",
            "dependencies": [{"name": "b", "kind": null}, {"name": "c", "kind": "dev", "features": ["f"]}],
            "targets": [{"kind": ["lib"], "src_path": "/r/crates/a/src/lib.rs"}],
        }]});
        let packages = parse(&metadata, "/r", true);
        assert_eq!(packages[0].manifest, "crates/a/Cargo.toml");
        assert_eq!(packages[0].dependencies[0].kind, Kind::Normal);
        assert_eq!(packages[0].dependencies[1].kind, Kind::Dev);
        assert_eq!(packages[0].dependencies[1].features, ["f"]);
        assert_eq!(packages[0].targets[0].root, "crates/a/src/lib.rs");
    }
}
