//! Cargo.lock names only the standard registry, never a mirror.

use super::problem::Problem;
use super::tree::Tree;

const STANDARD: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.with_extension("lock") {
        if !path.ends_with("Cargo.lock") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let Some(source) = line.strip_prefix("source = ") else {
                continue;
            };
            if source.trim_matches('"') != STANDARD {
                problems.push(Problem::new(
                    path,
                    number + 1,
                    "registry",
                    format!("{source} is not the standard registry; lock again without a mirror"),
                ));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_standard_registry_passes() {
        let good = format!("[[package]]\nname = \"a\"\nsource = \"{STANDARD}\"\n");
        assert_eq!(check(&Tree::sample(&[("Cargo.lock", &good)])), []);
        let bad = good.replace("github.com", "mirror.example");
        let problems = check(&Tree::sample(&[("Cargo.lock", &bad)]));
        assert_eq!((problems.len(), problems[0].line), (1, 3));
    }
}
