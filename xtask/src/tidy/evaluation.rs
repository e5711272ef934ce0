//! `docs/evaluation.md` has a row for each table and figure of the papers, a status for each row, and a place to look
//! at for each that is measured.

use super::problem::Problem;
use super::tree::{Tree, resolve};

const PAGE: &str = "docs/evaluation.md";
/// Chapters of the page, by how their heading begins, and how their rows begin.
const LIST: [(&str, &[&str]); 5] = [
    (
        "Segcache (",
        &[
            "Table 1", "Table 2", "Table 3", "Fig. 1", "Fig. 2", "Fig. 3", "Fig. 4", "Fig. 5a", "Fig. 5b", "Fig. 6",
            "Fig. 7", "Fig. 8", "Fig. 9", "Fig. 10a", "Fig. 10b", "Fig. 10c",
        ],
    ),
    (
        "Segcache, the post",
        &[
            "Expired objects",
            "Design",
            "Sharing metadata",
            "Macro management",
            "Memory efficiency",
            "Throughput of one thread",
            "Scalability",
        ],
    ),
    (
        "CacheLib",
        &[
            "Fig. 1",
            "Fig. 2",
            "Fig. 3",
            "Fig. 4",
            "Fig. 5",
            "Fig. 6",
            "Fig. 7",
            "Fig. 8",
            "Fig. 9",
            "Fig. 10",
            "Fig. 11",
            "Fig. 12",
            "Fig. 13",
            "Fig. 14",
            "Fig. 15",
            "Fig. 16",
            "Table 1",
            "Appendix A",
            "Appendix B",
            "Appendix C",
        ],
    ),
    ("Dynacache", &["Table 1", "Table 2", "Fig. 1", "Fig. 2", "Fig. 3"]),
    (
        "extstore",
        &[
            "db to cache",
            "cache hit rate",
            "cache size",
            "extstore breakdown",
            "even distribution",
            "three tests of gets by clients and threads",
            "latency of the tests",
            "RAM per item on flash",
            "cost of RAM",
        ],
    ),
];

pub fn check(tree: &Tree) -> Vec<Problem> {
    let Some(page) = tree.text(PAGE) else {
        return vec![Problem::new(PAGE, 1, "evaluation", "the page is missing")];
    };
    let mut problems = Vec::new();
    for (chapter, labels) in LIST {
        let rows = rows(page, chapter);
        for label in labels {
            let count = rows.iter().filter(|row| row.label == *label).count();
            if count != 1 {
                let advice = format!("{chapter}: {label} has {count} rows: give it one");
                problems.push(Problem::new(PAGE, 1, "evaluation", advice));
            }
        }
        for row in rows {
            if !labels.contains(&row.label) {
                let advice = format!("{} is not in the list of {chapter}: correct one of the two", row.label);
                problems.push(Problem::new(PAGE, row.line, "evaluation", advice));
            }
            let is_measured = match row.status {
                "measured" | "in part" => true,
                "not yet" | "background" => false,
                other => {
                    let advice = format!("{other:?} is no status: measured, in part, not yet, or background");
                    problems.push(Problem::new(PAGE, row.line, "evaluation", advice));
                    continue;
                }
            };
            if is_measured && row.links().next().is_none() {
                problems.push(Problem::new(PAGE, row.line, "evaluation", "name the place of the numbers"));
            }
            for link in row.links().filter(|link| !leads_to_a_heading(tree, link)) {
                let advice = format!("{link} is no heading: correct it");
                problems.push(Problem::new(PAGE, row.line, "evaluation", advice));
            }
        }
    }
    problems
}

struct Row<'a> {
    line: usize,
    label: &'a str,
    status: &'a str,
    place: &'a str,
}

impl<'a> Row<'a> {
    fn links(&self) -> impl Iterator<Item = &'a str> {
        self.place.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0))
    }
}

/// The rows of the table under the heading that begins so. A label ends at the first comma of its cell.
fn rows<'a>(page: &'a str, chapter: &str) -> Vec<Row<'a>> {
    let is_of_chapter = |line: &str| line.strip_prefix("## ").is_some_and(|heading| heading.starts_with(chapter));
    let lines = page.lines().enumerate().skip_while(|(_, line)| !is_of_chapter(line)).skip(1);
    let table = lines.take_while(|(_, line)| !line.starts_with("## ")).filter(|(_, line)| line.starts_with("| "));
    table
        .skip(1)
        .map(|(number, line)| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
            let label = cell(0).split(',').next().unwrap_or_default();
            Row { line: number + 1, label, status: cell(3), place: cell(4) }
        })
        .collect()
}

/// Whether a link that names a heading of a page names one that is there.
fn leads_to_a_heading(tree: &Tree, link: &str) -> bool {
    let Some((file, anchor)) = link.split_once('#') else { return true };
    let page = resolve(PAGE, file).and_then(|path| tree.text(&path));
    page.is_some_and(|text| text.lines().any(|line| line.starts_with('#') && anchor_of(line) == anchor))
}

/// How links name a heading.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: (&str, &str) = ("docs/benchmarks.md", "# B\n\n## Flash: hit ratio\n");

    /// Advice for a page with a good row for each label, after `change` of its text.
    fn advice(change: impl Fn(String) -> String) -> Vec<String> {
        let mut page = String::from("# Page\n");
        for (chapter, labels) in LIST {
            page += &format!("\n## {chapter}\n\n| what | reported | here | status | where |\n|---|---|---|---|---|\n");
            for label in labels {
                page += &format!("| {label}, x | y | z | measured | [n](benchmarks.md#flash-hit-ratio) |\n");
            }
        }
        let tree = Tree::sample(&[(PAGE, &change(page)), NUMBERS]);
        check(&tree).into_iter().map(|problem| problem.advice).collect()
    }

    #[test]
    fn a_complete_page_passes() {
        assert_eq!(advice(|page| page), [""; 0]);
        assert_eq!(check(&Tree::sample(&[NUMBERS]))[0].advice, "the page is missing");
    }

    #[test]
    fn a_missing_and_an_unknown_row_are_named() {
        let found = advice(|page| page.replacen("| Fig. 15,", "| Fig. 17,", 1));
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("CacheLib: Fig. 15 has 0 rows"), "{found:?}");
        assert!(found[1].starts_with("Fig. 17 is not in the list of CacheLib"), "{found:?}");
        let twice = advice(|page| page.replacen("| Fig. 8,", "| Fig. 9,", 1));
        assert!(twice.iter().any(|text| text.contains("Fig. 9 has 2 rows")), "{twice:?}");
    }

    #[test]
    fn a_measured_row_names_a_heading_that_exists() {
        let unknown = advice(|page| page.replacen("#flash-hit-ratio", "#none", 1));
        assert_eq!(unknown, ["benchmarks.md#none is no heading: correct it"]);
        let nowhere = advice(|page| page.replacen("[n](benchmarks.md#flash-hit-ratio)", "", 1));
        assert_eq!(nowhere, ["name the place of the numbers"]);
        assert_eq!(
            advice(|page| page.replacen("measured | [n](benchmarks.md#flash-hit-ratio)", "not yet | ", 1)),
            [""; 0]
        );
        let odd = advice(|page| page.replacen("| measured |", "| soon |", 1));
        assert!(odd[0].starts_with("\"soon\" is no status"), "{odd:?}");
    }
}
