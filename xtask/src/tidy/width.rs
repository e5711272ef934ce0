//! Lines of comments and of Markdown have at most 120 columns, rows of tables, code blocks and links left aside.

use super::problem::Problem;
use super::source::Source;

const RULE: &str = "width";
const MAX_COLUMNS: usize = 120;

/// Comments of a Rust file.
pub fn check(path: &str, source: &Source) -> Vec<Problem> {
    let lines = source.text.lines().zip(source.comments.lines()).enumerate();
    let wide = lines.filter(|(_, (line, comment))| !comment.trim().is_empty() && is_wide(line));
    wide.map(|(number, (line, _))| problem(path, number, line)).collect()
}

/// A page of Markdown.
pub fn check_page(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut is_code = false;
    for (number, line) in text.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") || start.starts_with("~~~") {
            is_code = !is_code;
        } else if !is_code && !start.starts_with('|') && is_wide(line) {
            problems.push(problem(path, number, line));
        }
    }
    problems
}

fn is_wide(line: &str) -> bool {
    line.chars().count() > MAX_COLUMNS && !line.contains("](") && !line.contains("://")
}

fn problem(path: &str, number: usize, line: &str) -> Problem {
    let columns = line.chars().count();
    Problem::new(path, number + 1, RULE, format!("{columns} columns, at most {MAX_COLUMNS}: break the line"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(problems: &[Problem]) -> Vec<usize> {
        problems.iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn only_wide_comments_are_refused() {
        let words = "word ".repeat(24);
        let text =
            format!("//{words}\n//! {words}\nlet a = \"{words}{words}\";\nf(); // {words}\n//{}é\n", &words[..117]);
        assert_eq!(lines(&check("src/a.rs", &Source::new(&text))), [1, 2, 4]);
    }

    #[test]
    fn tables_code_and_links_may_be_wide() {
        let wide = "x".repeat(121);
        let text = format!("{wide}\n| {wide} |\n```\n{wide}\n```\n[a]({wide})\nhttps://{wide}\n{wide}\n");
        assert_eq!(lines(&check_page("docs/a.md", &text)), [1, 8]);
    }
}
