//! Comments say why the code is as it is: no history, no work log, no promises. And no test that is switched off, no
//! function that is not written.

use super::problem::Problem;
use super::source::{Source, is_word};

/// Words of a work log, in lower case; searched in comments only.
const PHRASES: [(&str, &str); 13] = [
    ("previously", "say what the code does, not what it did"),
    ("for now", "do it, or say why not"),
    ("todo", "do it, or open an issue"),
    ("fixme", "fix it, or open an issue"),
    ("xxx", "say what is meant"),
    ("this session", WORKPLACE),
    ("last session", WORKPLACE),
    ("next session", WORKPLACE),
    ("earlier session", WORKPLACE),
    ("later session", WORKPLACE),
    ("coding agent", WORKPLACE),
    ("ai agent", WORKPLACE),
    ("another agent", WORKPLACE),
];
const WORKPLACE: &str = "comments speak of the code, not of who wrote it and when";

/// Phrases that code must not contain, with advice.
const CODE: [(&str, &str); 3] = [
    ("#[ignore", "run the test or delete it"),
    ("todo!(", "write the function"),
    ("unimplemented!(", "write the function"),
];

/// Words before which the phrase for a habit of the past is a plain passive instead.
const PASSIVE: [&str; 12] = ["is", "are", "be", "was", "were", "been", "being", "not", "only", "also", "then", "get"];

pub fn check(path: &str, source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    let comments = source.comments.to_ascii_lowercase();
    let mut refuse = |at: usize, phrase: &str, advice: &str| {
        problems.push(Problem::new(path, source.line(at), "phrase", format!("\"{phrase}\": {advice}")));
    };
    for (phrase, advice) in PHRASES {
        for (at, _) in comments.match_indices(phrase) {
            if is_word(&comments, at, phrase) {
                refuse(at, phrase, advice);
            }
        }
    }
    for (at, _) in comments.match_indices("used to ") {
        let before = comments[..at].split_whitespace().next_back();
        if is_word(&comments, at, "used to") && !before.is_some_and(|w| PASSIVE.contains(&w)) {
            refuse(at, "used to", "say what the code does, not what it did");
        }
    }
    for (at, _) in comments.match_indices('#') {
        let digits = comments[at + 1..].bytes().take_while(u8::is_ascii_digit);
        let length = digits.count();
        let after = comments[at + 1 + length..].chars().next();
        if length > 0 && !after.is_some_and(char::is_alphanumeric) {
            let number = comments[at..=at + length].to_owned();
            refuse(at, &number, "give the reason, not the number of an issue");
        }
    }
    for (phrase, advice) in CODE {
        for (at, _) in source.code.match_indices(phrase) {
            refuse(at, phrase, advice);
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check("src/a.rs", &Source::new(text)).iter().map(|p| p.line).collect()
    }

    #[test]
    fn work_logs_are_refused() {
        for comment in [
            "Previously a lock.",
            "good enough for now",
            "TODO: more",
            "see #12",
            "the index used to grow",
            "changed in this session",
            "XXX",
        ] {
            assert_eq!(lines(&format!("\n// {comment}\n")), [2], "{comment}");
        }
    }

    #[test]
    fn plain_speech_passes() {
        for comment in [
            "is used to find the slot",
            "the TLS session of a client; the agent of change",
            "colour #1a2b3c, or # 5, or r#1abc",
            "performance, forward; mastodon",
        ] {
            assert_eq!(lines(&format!("// {comment}\n")), [0; 0], "{comment}");
        }
        assert_eq!(lines("let a = \"TODO #12 previously\";"), [0; 0]);
    }

    #[test]
    fn unfinished_code_is_refused() {
        assert_eq!(lines("#[ignore]\nfn a() { todo!() }\n"), [1, 2]);
        assert_eq!(lines("#[ignore = \"slow\"]\n"), [1]);
        assert_eq!(lines("fn a() { unimplemented!() }"), [1]);
        assert_eq!(lines("let a = \"todo!()\";"), [0; 0]);
    }
}
