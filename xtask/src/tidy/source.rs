//! Rust text split into code and comments.
//!
//! `code` and `comments` have the length and the line ends of the text; text of the other kind, and the inside of
//! string and character literals, is blank. So a rule can search for words and count braces without being misled by a
//! brace in a string or a keyword in a comment, and offsets mean the same in all three.

use std::ops::Range;

#[derive(Debug)]
pub struct Source<'a> {
    pub text: &'a str,
    pub code: String,
    pub comments: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Code,
    Comment,
    Literal,
}

impl<'a> Source<'a> {
    pub fn new(text: &'a str) -> Self {
        let mut code = vec![b' '; text.len()];
        let mut comments = code.clone();
        for (class, range) in pieces(text.as_bytes()) {
            match class {
                Class::Code => code[range.clone()].copy_from_slice(&text.as_bytes()[range]),
                Class::Comment => comments[range.clone()].copy_from_slice(&text.as_bytes()[range]),
                Class::Literal => {}
            }
        }
        for (at, byte) in text.bytes().enumerate() {
            if byte == b'\n' {
                code[at] = b'\n';
                comments[at] = b'\n';
            }
        }
        Self {
            text,
            code: String::from_utf8_lossy(&code).into_owned(),
            comments: String::from_utf8_lossy(&comments).into_owned(),
        }
    }

    /// Line of a byte offset; the first is 1.
    pub fn line(&self, offset: usize) -> usize {
        1 + self.text.as_bytes()[..offset].iter().filter(|b| **b == b'\n').count()
    }

    /// Offset where the unit tests at the end of the file begin, else the length of the file.
    pub fn tests_start(&self) -> usize {
        let mut offset = 0;
        for line in self.code.split_inclusive('\n') {
            if line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test") {
                let rest = self.code[offset + line.len()..].trim_start();
                // A declaration of a file of tests (`mod a;`) is not their beginning.
                if rest.starts_with("mod ") && rest.find(['{', ';']).is_some_and(|at| rest[at..].starts_with('{')) {
                    return offset;
                }
            }
            offset += line.len();
        }
        self.code.len()
    }
}

/// Whether `word` stands at `at` with no letter, digit or underscore on either side.
pub fn is_word(text: &str, at: usize, word: &str) -> bool {
    let inside = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let bytes = text.as_bytes();
    text[at..].starts_with(word)
        && !inside(at.checked_sub(1).and_then(|i| bytes.get(i)))
        && !inside(bytes.get(at + word.len()))
}

fn pieces(text: &[u8]) -> Vec<(Class, Range<usize>)> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let (class, end) = piece(text, at);
        pieces.push((class, at..end));
        at = end;
    }
    pieces
}

/// The class and the end of the piece that starts at `at`.
fn piece(text: &[u8], at: usize) -> (Class, usize) {
    let rest = &text[at..];
    if rest.starts_with(b"//") {
        let length = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
        return (Class::Comment, at + length);
    }
    if rest.starts_with(b"/*") {
        return (Class::Comment, at + block_comment(rest));
    }
    match rest[0] {
        b'"' => (Class::Literal, at + quoted(rest, b'"')),
        b'\'' => match character(rest) {
            Some(length) => (Class::Literal, at + length),
            None => (Class::Code, at + 1),
        },
        byte if byte.is_ascii_alphabetic() || byte == b'_' => {
            let length = rest.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_')).unwrap_or(rest.len());
            match &rest[..length] {
                b"r" | b"br" | b"cr" => match raw(&rest[length..]) {
                    Some(literal) => (Class::Literal, at + length + literal),
                    None => (Class::Code, at + length),
                },
                _ => (Class::Code, at + length),
            }
        }
        _ => (Class::Code, at + 1),
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// Length of a literal that starts with a quote and may hold escapes.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of a character literal, or `None` for a lifetime or label.
fn character(rest: &[u8]) -> Option<usize> {
    match rest.get(1)? {
        b'\\' => Some(quoted(rest, b'\'')),
        byte => {
            let width = match byte {
                0..=0x7f => 1,
                0..=0xdf => 2,
                0..=0xef => 3,
                _ => 4,
            };
            (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
        }
    }
}

/// Length of the rest of a raw string whose prefix has been read, or `None` for a raw identifier or plain name.
fn raw(rest: &[u8]) -> Option<usize> {
    let hashes = rest.iter().take_while(|b| **b == b'#').count();
    if rest.get(hashes) != Some(&b'"') {
        return None;
    }
    let end: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = &rest[hashes + 1..];
    let length = body.windows(end.len()).position(|w| w == end);
    Some(hashes + 1 + length.map_or(body.len(), |l| l + end.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_comments_are_told_apart() {
        let text = "let a = \"// {\"; // why }\nlet b = '{'; /* x /* y */ z */ let c: &'a str = r#\"\"}\"#;\n";
        let source = Source::new(text);
        assert_eq!(source.code.len(), text.len());
        assert!(!source.code.contains(['{', '}']));
        assert!(source.code.contains("let c: &'a str"));
        assert!(source.comments.contains("// why }"));
        assert!(source.comments.contains("/* x /* y */ z */"));
        assert!(!source.comments.contains("let"));
    }

    #[test]
    fn quoted_and_escaped_quotes_open_no_strings() {
        let source = Source::new(r#"let q = '"'; let e = "\""; let n = b'\''; fn f() {}"#);
        assert!(source.code.contains("fn f() {}"));
        assert!(Source::new("let r#fn = 1; f(r, 'é')").code.contains("f(r,"));
    }

    #[test]
    fn the_tests_at_the_end_are_found() {
        let source = Source::new("fn a() {}\n#[cfg(test)]\nfn b() {}\n\n#[cfg(test)]\nmod tests {}\n");
        assert_eq!(source.line(source.tests_start()), 5);
        let declared = Source::new("#[cfg(test)]\nmod a;\nfn a() {}\n");
        assert_eq!(declared.tests_start(), declared.code.len());
        assert_eq!(Source::new("fn a() {}\n").tests_start(), 10);
    }
}
