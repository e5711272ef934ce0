//! Problems that rules report.

use std::fmt;

/// One broken rule, shown as `file:line: rule: what to do`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Path from the repository root, with `/`.
    pub file: String,
    /// First line is 1.
    pub line: usize,
    pub rule: &'static str,
    pub advice: String,
}

impl Problem {
    pub fn new(file: &str, line: usize, rule: &'static str, advice: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, rule, advice: advice.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.advice)
    }
}
