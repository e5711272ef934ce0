//! A comment begins with its term, not with a relative clause ("What a census found" is "Result of a census").

use super::problem::Problem;
use super::source::Source;

const RULE: &str = "first word";
/// Pronouns that begin a relative clause.
const REFUSED: [&str; 2] = ["What", "Who"];

/// Lines of comments; a question is fine.
pub fn check(path: &str, source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, line) in source.comments.lines().enumerate() {
        let text = line.trim().trim_start_matches(['/', '!', '*']).trim_start();
        let first = text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
        if REFUSED.contains(&first) && !text.ends_with('?') {
            let advice = format!("\"{first}\" begins a relative clause: begin with the term, as \"Result of\"");
            problems.push(Problem::new(path, number + 1, RULE, advice));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check("src/a.rs", &Source::new(text)).iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn relative_clauses_are_refused_at_the_start() {
        for text in [
            "\n// What it found.\n",
            "\n    /// What it found; `None` before that.\n",
            "\n//! Who may read.\n",
            "\nlet a = 1; // What is left.\n",
            "\n/* What is left. */\n",
            "/// A number.\n/// What follows is dropped.\n",
        ] {
            assert_eq!(lines(text), [2], "{text}");
        }
    }

    #[test]
    fn terms_questions_and_strings_pass() {
        for text in [
            "/// Result of a census: what it found.\n",
            "//! What does it cost?\n",
            "//! # What it does not do\n",
            "// Whatever the type, whoever asks.\n",
            "let what = \"// What it found\";\n",
        ] {
            assert_eq!(lines(text), [0; 0], "{text}");
        }
    }
}
