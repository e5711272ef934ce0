//! Everyday words in the place of the field's terms, in names and in prose (comments, messages, Markdown).

use super::problem::Problem;
use super::source::Source;

const RULE: &str = "word";
/// It has the words themselves.
const THIS_FILE: &str = "xtask/src/tidy/words.rs";

/// Refused words in lower case, with their replacements.
const REFUSED: &[(&[&str], &str)] = &[
    (&["raise", "raises", "raised", "raising"], "increase, promote, or what the code does"),
    (&["rise", "rises", "risen", "rising"], "increase, or promote"),
    (&["begun"], "started, or open"),
    (&["farewell", "farewells"], "notify of the removal"),
    (&["bell", "bells"], "waker"),
    (&["flight", "flights"], "pending reads; \"in flight\" is fine"),
    (&["errand", "errands"], "job, or request"),
    (&["shed", "sheds", "shedding"], "shrink, or evict"),
    (&["believe", "believes", "believed"], "validate, or accept"),
    (&["fate", "fates"], "decision, or result"),
    (&["mend", "mends", "mended", "mending"], "repair, rewrite, or fix"),
    (&["whoever"], "the caller, or the thread"),
    (&["room", "rooms"], "space, or memory"),
    (&["upkeep", "upkeeps"], "maintenance"),
    (&["owed"], "debt, or pending"),
    (&["forgive", "forgives", "forgiven"], "reset, or lift"),
    (&["landed"], "completed, or written"),
];
/// In names a bound is `max_` or `min_`.
const BOUNDS: [&str; 2] = ["most", "least"];
/// Words that make a superlative of the word before them, as in `least_recent`, and not a bound.
const ADJECTIVES: &[&str] = &["dense", "frequent", "gets", "recent", "recently", "used"];
/// A name of more words is a sentence, as those of tests are.
const MAX_BOUND_WORDS: usize = 4;
/// Pairs of words.
const REFUSED_PAIRS: &[(&str, &str, &str)] = &[
    ("hand", "down", "demote"),
    ("hands", "down", "demotes"),
    ("handed", "down", "demoted"),
    ("so", "many", "the number, or enough"),
];

/// Names and prose of a Rust file.
pub fn check(path: &str, source: &Source) -> Vec<Problem> {
    if path == THIS_FILE {
        return Vec::new();
    }
    let end = source.tests_start();
    let texts = [&source.text[..end], &source.code[end..]];
    let mut problems = find(path, texts[0], 0);
    // Strings in tests are exempt; names and comments in tests are not.
    let line = source.line(end) - 1;
    problems.extend(find(path, texts[1], line));
    problems.extend(find_bounds(path, &source.code));
    problems.extend(find(path, &source.comments[end..], line));
    problems
}

pub fn check_page(path: &str, text: &str) -> Vec<Problem> {
    find(path, text, 0)
}

fn find(path: &str, text: &str, lines_before: usize) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut last = String::new();
    for (number, line) in text.lines().enumerate() {
        for word in words(line) {
            let advice = advice(&last, &word);
            problems.extend(advice.map(|(found, advice)| {
                Problem::new(path, lines_before + number + 1, RULE, format!("\"{found}\": write {advice}"))
            }));
            last = word;
        }
    }
    problems
}

/// Names of code that call a bound the most or the least.
fn find_bounds(path: &str, code: &str) -> Vec<Problem> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let names = code.lines().enumerate().flat_map(|(number, line)| {
        line.split(move |letter| !is_part(letter)).filter(|name| !name.is_empty()).map(move |name| (number, name))
    });
    let bounds = names.filter(|(_, name)| is_bound(name));
    let problem = |(number, name): (usize, &str)| {
        Problem::new(path, number + 1, RULE, format!("\"{name}\": write max_ or min_ in the place of most and least"))
    };
    bounds.map(problem).collect()
}

fn is_bound(name: &str) -> bool {
    let words: Vec<String> = words(name).collect();
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let is_named = |at: usize| {
        BOUNDS.contains(&word(at)) && !ADJECTIVES.contains(&word(at + 1)) && (at == 0 || word(at - 1) != "at")
    };
    words.len() <= MAX_BOUND_WORDS && (0..words.len()).any(is_named)
}

fn advice(before: &str, word: &str) -> Option<(String, &'static str)> {
    if word == "flight" && before == "in" {
        return None;
    }
    let single = REFUSED.iter().find(|(forms, _)| forms.contains(&word)).map(|(_, advice)| (word.to_owned(), *advice));
    let pair = REFUSED_PAIRS.iter().find(|(first, second, _)| (*first, *second) == (before, word));
    single.or_else(|| pair.map(|(first, second, advice)| (format!("{first} {second}"), *advice)))
}

/// The words of a line in lower case; `snake_case` and `CamelCase` are several.
fn words(line: &str) -> impl Iterator<Item = String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut was_lower = false;
    for letter in line.chars().chain([' ']) {
        let starts = letter.is_uppercase() && was_lower;
        if (!letter.is_alphabetic() || starts) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if letter.is_alphabetic() {
            word.extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase();
    }
    words.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        let problems = check("src/a.rs", &Source::new(text));
        problems.into_iter().map(|p| (p.line, p.advice.split('"').nth(1).unwrap_or_default().to_owned())).collect()
    }

    #[test]
    fn everyday_words_are_refused() {
        for (text, word) in [
            ("fn raise_all() {}", "raise"),
            ("struct OldFlight;", "flight"),
            ("// Whoever asks.", "whoever"),
            ("let a = \"a bell rang\";", "bell"),
            ("// It is handed\n// down later.", "handed down"),
            ("/// Keep one key of so many", "so many"),
            ("#[cfg(test)]\nmod tests { fn fate() {} }", "fate"),
            ("fn has_room() {}", "room"),
            ("// in the next upkeep", "upkeep"),
            ("let owed = 1;", "owed"),
            ("fn forgive() {}", "forgive"),
            ("// It has landed.", "landed"),
            ("const TOKENS_MOST: u32 = 6;", "TOKENS_MOST"),
            ("let least_ttl = 1;", "least_ttl"),
            ("#[cfg(test)]\nmod tests { fn a() { let most = 1; } }", "most"),
            ("#[cfg(test)]\nmod tests { /* mended */ }", "mended"),
        ] {
            let found = found(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert_eq!(found[0].1, word, "{text}");
        }
    }

    #[test]
    fn only_whole_words_outside_test_texts_count() {
        for text in [
            "// praised, arise, belly, amend, fatal, watershed, headroom",
            "fn least_recent() {} fn at_most(most_used: u32) {} // the most that fits",
            "#[cfg(test)]\nmod tests { fn the_policy_that_misses_least_is_chosen() {} }",
            "let a = \"least_ttl\";",
            "fn in_flight() {} // requests in flight",
            "// by hand, and down to",
            "#[cfg(test)]\nmod tests { const A: &str = \"raise\"; }",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
        assert_eq!(check_page("docs/a.md", "# Bell\n\nfine\n").len(), 1);
    }
}
