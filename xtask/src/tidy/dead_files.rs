//! Rust files that nothing compiles: not the root of a Cargo target, and not reached from one by `mod`, `#[path]` or
//! `include!`.

use std::collections::BTreeSet;

use super::problem::Problem;
use super::source::{Source, is_word};
use super::tree::{Tree, resolve};
use super::workspace::Workspace;

pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Problem> {
    let mut reached = BTreeSet::new();
    let mut queue: Vec<(String, bool)> = workspace
        .packages
        .iter()
        .flat_map(|package| &package.targets)
        .map(|target| (target.root.clone(), true))
        .collect();
    while let Some((path, root)) = queue.pop() {
        let Some(text) = tree.text(&path) else {
            continue;
        };
        if reached.insert(path.clone()) {
            queue.extend(children(&path, root, text, tree));
        }
    }
    tree.with_extension("rs")
        .filter(|(path, _)| !reached.contains(*path))
        .map(|(path, _)| {
            Problem::new(
                path,
                1,
                "dead-file",
                "no mod declaration and no Cargo target leads here: declare or delete it",
            )
        })
        .collect()
}

/// The files that `path` pulls in; the flag says whether their own modules lie beside them.
fn children(path: &str, root: bool, text: &str, tree: &Tree) -> Vec<(String, bool)> {
    let source = Source::new(text);
    let name = path.rsplit('/').next().unwrap_or(path);
    let folder = if root || name == "mod.rs" {
        path[..path.len() - name.len()].to_owned()
    } else {
        format!("{}/", path.trim_end_matches(".rs"))
    };
    let mut found = Vec::new();
    for (inline, at, module) in modules(&source.code) {
        if let Some(file) = path_attribute(&source, at) {
            let base = match inline.as_str() {
                "" => path.to_owned(),
                _ => format!("{folder}{inline}x"),
            };
            found.extend(resolve(&base, file).map(|f| (f, true)));
        } else {
            for (file, beside) in
                [(format!("{folder}{inline}{module}.rs"), false), (format!("{folder}{inline}{module}/mod.rs"), true)]
            {
                if tree.text(&file).is_some() {
                    found.push((file, beside));
                }
            }
        }
    }
    for (at, _) in source.code.match_indices("include!(") {
        let literal = source.text[at..].split('"').nth(1).unwrap_or_default();
        found.extend(resolve(path, literal).map(|file| (file, true)));
    }
    found
}

/// Every `mod name;`: the inline modules around it as a path (`a/b/`), its offset, its name.
fn modules(code: &str) -> Vec<(String, usize, &str)> {
    let mut found = Vec::new();
    let mut around: Vec<Option<&str>> = Vec::new();
    let mut pending = None;
    let mut at = 0;
    while at < code.len() {
        match code.as_bytes()[at] {
            b'{' => around.push(pending.take()),
            b'}' => {
                around.pop();
            }
            b'm' if is_word(code, at, "mod") => {
                let rest = code[at + 3..].trim_start();
                let name = &rest[..rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())];
                match rest[name.len()..].trim_start().bytes().next() {
                    Some(b';') => {
                        let inline = around.iter().flatten().map(|m| format!("{m}/")).collect();
                        found.push((inline, at, name));
                    }
                    Some(b'{') => pending = Some(name),
                    _ => {}
                }
                at += 2;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// The file that a `#[path = "..."]` right before the declaration at `at` names.
fn path_attribute<'a>(source: &Source<'a>, at: usize) -> Option<&'a str> {
    let before = &source.code[..at];
    let item = before.rfind([';', '}', '{']).map_or(0, |end| end + 1);
    let attribute = item + before[item..].find("#[path")?;
    source.text[attribute..at].split('"').nth(1)
}

#[cfg(test)]
mod tests {
    use super::super::workspace::{Package, Target};
    use super::*;

    fn dead(files: &[(&str, &str)]) -> Vec<String> {
        let workspace = Workspace {
            packages: vec![Package {
                name: "a".to_owned(),
                manifest: "Cargo.toml".to_owned(),
                member: true,
                dependencies: Vec::new(),
                targets: vec![Target { kind: "lib".to_owned(), root: "src/lib.rs".to_owned() }],
            }],
        };
        check(&workspace, &Tree::sample(files)).into_iter().map(|problem| problem.file).collect()
    }

    #[test]
    fn declared_files_live() {
        assert_eq!(
            dead(&[
                ("src/lib.rs", "mod a; pub(crate) mod b;\n#[path = \"odd/c.rs\"]\nmod c;\nmod inline { mod d; }"),
                ("src/a.rs", "mod deep;"),
                ("src/a/deep.rs", ""),
                ("src/b/mod.rs", "mod beside;"),
                ("src/b/beside.rs", "include!(\"text.rs\");"),
                ("src/b/text.rs", ""),
                ("src/odd/c.rs", ""),
                ("src/inline/d.rs", ""),
            ]),
            [""; 0]
        );
    }

    #[test]
    fn undeclared_files_are_dead() {
        assert_eq!(
            dead(&[
                ("src/lib.rs", "// mod a;\nmod b;\nmod c {}"),
                ("src/a.rs", ""),
                ("src/b.rs", ""),
                ("src/c.rs", ""),
                ("src/b/e.rs", ""),
            ]),
            ["src/a.rs", "src/b/e.rs", "src/c.rs"]
        );
    }
}
