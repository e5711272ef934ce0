use std::io::{self, Write};

use serde::Serialize;

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub name: &'static str,
    pub verdict: Verdict,
    /// The value, in words.
    pub found: String,
    /// The change to make, and how; `None` if no change is needed.
    pub advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    /// The setting works; another one would work better.
    Advice,
    /// The setting does not work, or will fail soon.
    Problem,
}

impl Finding {
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, found: found.into(), advice: None }
    }

    pub fn advice(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Advice, found: found.into(), advice: Some(advice.into()) }
    }

    pub fn problem(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Problem, found: found.into(), advice: Some(advice.into()) }
    }
}

/// One JSON object, or a line for each finding and one below it for its advice.
pub fn print(findings: &[Finding], json: bool, out: &mut impl Write) -> io::Result<()> {
    if json {
        let problems = findings.iter().filter(|finding| finding.verdict == Verdict::Problem).count();
        let report = serde_json::json!({ "problems": problems, "findings": findings });
        return writeln!(out, "{report}");
    }
    for finding in findings {
        let verdict = match finding.verdict {
            Verdict::Ok => "ok",
            Verdict::Advice => "advice",
            Verdict::Problem => "PROBLEM",
        };
        writeln!(out, "{verdict:<8} {:<16} {}", finding.name, finding.found)?;
        if let Some(advice) = &finding.advice {
            writeln!(out, "{:<8} {:<16} -> {advice}", "", "")?;
        }
    }
    Ok(())
}
