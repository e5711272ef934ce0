//! The name of a test says condition and result in a few words.

use super::problem::Problem;
use super::source::Source;

const RULE: &str = "test name";
const MAX_WORDS: usize = 8;
/// Parts of the attributes that make a function a test: `#[test]`, `#[tokio::test]`.
const ATTRIBUTES: [&str; 2] = ["#[test]", "::test]"];

pub fn check(path: &str, source: &Source) -> Vec<Problem> {
    let code = source.code.as_str();
    let attributes = ATTRIBUTES.into_iter().flat_map(|end| code.match_indices(end)).map(|(at, _)| at);
    let names = attributes.filter_map(|at| name(code, at));
    let long = names.map(|(at, name)| (at, name, words(name))).filter(|(.., words)| *words > MAX_WORDS);
    let problem = |(at, name, words): (usize, &str, usize)| {
        let advice = format!("{name} has {words} words, at most {MAX_WORDS}: name condition and result");
        Problem::new(path, source.line(at), RULE, advice)
    };
    long.map(problem).collect()
}

/// Offset and name of the first function behind an attribute.
fn name(code: &str, attribute: usize) -> Option<(usize, &str)> {
    const KEYWORD: &str = "fn ";
    let mut keywords = code[attribute..].match_indices(KEYWORD).map(|(at, _)| attribute + at);
    let start = keywords.find(|&at| code[..at].ends_with(char::is_whitespace))? + KEYWORD.len();
    let rest = &code[start..];
    let length = rest.find(|letter: char| !(letter.is_alphanumeric() || letter == '_')).unwrap_or(rest.len());
    Some((start, &rest[..length]))
}

fn words(name: &str) -> usize {
    name.split('_').filter(|word| !word.is_empty()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check("src/a.rs", &Source::new(text)).iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn test_names_have_at_most_eight_words() {
        let eight = "one_two_three_four_five_six_seven_eight";
        assert_eq!(lines(&format!("#[test]\nfn {eight}() {{}}\n")), [0; 0]);
        assert_eq!(lines(&format!("#[test]\nfn {eight}_nine() {{}}\n")), [2]);
        assert_eq!(lines(&format!("mod tests {{\n    #[test] fn {eight}_nine() {{}}\n}}\n")), [2]);
        assert_eq!(lines(&format!("#[tokio::test]\n#[should_panic]\nasync fn {eight}_nine() {{}}\n")), [3]);
        assert_eq!(lines(&format!("#[test]\nfn a() {{}}\n#[test]\nfn {eight}_nine() {{}}\n")), [4]);
    }

    #[test]
    fn other_functions_may_have_longer_names() {
        let nine = "one_two_three_four_five_six_seven_eight_nine";
        for text in [
            format!("fn {nine}() {{}}\n"),
            format!("#[test]\nfn a() {{}}\nfn {nine}() {{}}\n"),
            format!("#[cfg(test)]\nfn {nine}() {{}}\n"),
            format!("// #[test]\nfn {nine}() {{}}\n"),
            format!("#[test]\nfn a() {{ let text = \"#[test] fn {nine}\"; }}\n"),
        ] {
            assert_eq!(lines(&text), [0; 0], "{text}");
        }
    }
}
