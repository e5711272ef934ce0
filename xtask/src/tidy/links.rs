//! Markdown: relative links lead somewhere, and every file in docs/ is linked from somewhere.

use std::collections::BTreeSet;

use super::problem::Problem;
use super::tree::{Tree, resolve};

pub fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut linked = BTreeSet::new();
    for (path, text) in tree.with_extension("md") {
        for (line, link) in links(text) {
            let Some(file) = relative(link) else { continue };
            match resolve(path, file) {
                Some(target) if tree.exists(&target) => {
                    if target != path {
                        linked.insert(target);
                    }
                }
                _ => problems.push(Problem::new(
                    path,
                    line,
                    "link",
                    format!("{link} leads nowhere: correct or remove it"),
                )),
            }
        }
    }
    for path in tree.paths().filter(|path| path.starts_with("docs/")) {
        if !linked.contains(path) {
            problems.push(Problem::new(path, 1, "dead-file", "no Markdown file links to it: link or delete it"));
        }
    }
    problems
}

/// The file part of a link into the repository; `None` for other sites and for places in the same file.
fn relative(link: &str) -> Option<&str> {
    let file = link.split(['#', '?']).next()?;
    let scheme = file
        .split_once(':')
        .is_some_and(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)));
    (!file.is_empty() && !scheme && !file.starts_with("//")).then_some(file)
}

/// Line and target of each inline link, image, reference and `src=` or `href=` attribute, outside of code.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for (number, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|m| start.starts_with(m));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(open), Some(close)) if open == close => fence = None,
            (Some(_), _) => {}
            (None, None) => found.extend(line_links(line).map(|link| (number + 1, link))),
        }
    }
    found
}

fn line_links(line: &str) -> impl Iterator<Item = &str> {
    let inline = line.match_indices("](").map(|(at, _)| (at + 2, ')'));
    let quoted = ["src=\"", "href=\""]
        .into_iter()
        .flat_map(move |mark| line.match_indices(mark).map(move |(at, _)| (at + mark.len(), '"')));
    let reference = line
        .starts_with('[')
        .then(|| line.split_once("]: "))
        .flatten()
        .map(|(_, target)| target.split(' ').next().unwrap_or_default());
    inline
        .chain(quoted)
        .filter(|(at, _)| line[..*at].matches('`').count().is_multiple_of(2))
        .filter_map(|(at, end)| {
            let target = &line[at..];
            let target = &target[..target.find(end)?];
            // `[text](file "title")`, and `[text](<file>)`.
            let file = target.split(' ').next()?;
            Some(file.trim_matches(['<', '>']))
        })
        .chain(reference)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::sample(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn good_links_pass() {
        let text = "[a](docs/a.md#x \"t\") ![i](<docs/i.svg>) [w](https://x.y/z) [h](#here) `[c](none)`\n\
            ```\n[code](none.md)\n```\n[r]: docs/r.md\n<img src=\"docs/p.png\">\n";
        assert_eq!(
            advice(&[
                ("README.md", text),
                ("docs/a.md", "[up](../README.md)"),
                ("docs/i.svg", ""),
                ("docs/r.md", ""),
                ("docs/p.png", ""),
            ]),
            [""; 0]
        );
    }

    #[test]
    fn broken_links_are_named_with_their_line() {
        assert_eq!(
            advice(&[("README.md", "\n[a](docs/none.md)\n[b](../../out.md)\n")]),
            [
                "README.md:2: link: docs/none.md leads nowhere: correct or remove it",
                "README.md:3: link: ../../out.md leads nowhere: correct or remove it",
            ]
        );
    }

    #[test]
    fn unlinked_documents_are_dead() {
        assert_eq!(
            advice(&[("docs/a.md", "[self](a.md)")]),
            ["docs/a.md:1: dead-file: no Markdown file links to it: link or delete it"]
        );
    }
}
