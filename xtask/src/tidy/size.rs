//! Files of at most 600 lines and functions of at most 70, tests not counted.

use super::problem::Problem;
use super::source::{Source, is_word};

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;

pub fn check(path: &str, source: &Source) -> Vec<Problem> {
    if path.split('/').any(|part| matches!(part, "tests" | "benches")) {
        return Vec::new();
    }
    let end = source.tests_start();
    let mut problems = Vec::new();
    let lines = source.text[..end].lines().count();
    if lines > FILE_LINES {
        problems.push(Problem::new(
            path,
            FILE_LINES + 1,
            "file-length",
            format!("{lines} lines without tests, at most {FILE_LINES}: split it along what it does"),
        ));
    }
    for (name, first, last) in functions(source, end) {
        let lines = last - first + 1;
        if lines > FUNCTION_LINES {
            problems.push(Problem::new(
                path,
                first,
                "function-length",
                format!("{name} has {lines} lines, at most {FUNCTION_LINES}: split it"),
            ));
        }
    }
    problems
}

/// Name, first line and last line of every function with a body that starts before `end`.
fn functions<'a>(source: &'a Source, end: usize) -> Vec<(&'a str, usize, usize)> {
    let code = &source.code[..end];
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if !is_word(code, at, "fn") {
            continue;
        }
        let rest = code[at + 3..].trim_start();
        let name = &rest[..rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())];
        if let (false, Some(close)) = (name.is_empty(), body_end(code, at)) {
            found.push((name, source.line(at), source.line(close)));
        }
    }
    found
}

/// Offset of the brace that closes the body of the function whose `fn` is at `at`; `None` if it has no body.
fn body_end(code: &str, at: usize) -> Option<usize> {
    let (mut nesting, mut braces) = (0_i32, 0_i32);
    for (offset, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => nesting += 1,
            b')' | b']' => nesting -= 1,
            b';' if nesting == 0 && braces == 0 => return None,
            b'{' => braces += 1,
            b'}' => {
                braces -= 1;
                // A brace inside brackets is a constant in the signature, not the body.
                if braces == 0 && nesting == 0 {
                    return Some(offset);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<(&'static str, usize)> {
        check(path, &Source::new(text)).iter().map(|p| (p.rule, p.line)).collect()
    }

    #[test]
    fn long_files_are_refused_but_for_their_tests() {
        let long = "//\n".repeat(601);
        assert_eq!(rules("src/a.rs", &long), [("file-length", 601)]);
        assert_eq!(rules("crates/a/tests/a.rs", &long), []);
        let tested = format!("{}#[cfg(test)]\nmod tests {{\n{long}}}\n", "//\n".repeat(600));
        assert_eq!(rules("src/a.rs", &tested), []);
    }

    #[test]
    fn long_functions_are_refused() {
        let body = |n| "    let _ = \"}\"; // }\n".repeat(n);
        let long = format!("struct S;\n\npub fn long(a: [u8; 4]) {{\n{}}}\n", body(69));
        assert_eq!(rules("src/a.rs", &long), [("function-length", 3)]);
        let fits = format!("pub fn fits() {{\n{}}}\n", body(68));
        assert_eq!(rules("src/a.rs", &fits), []);
    }

    #[test]
    fn pointers_and_declarations_are_no_functions() {
        let text = format!("type F = fn (u8) -> u8;\ntrait T {{ fn f(&self, a: [u8; 3]); }}\n{}", "//\n".repeat(90));
        assert_eq!(rules("src/a.rs", &text), []);
    }
}
