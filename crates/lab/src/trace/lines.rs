//! Lines of a text trace. A byte order mark, blank lines and comments (`#` first) are passed over, but counted.

use std::io::{self, BufRead, Read};

/// U+FEFF in UTF-8, which some editors and spreadsheets put first.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Longer lines are no trace lines; they are passed over without being held in memory.
pub(super) const MAX_LINE: usize = 64 << 10;

/// One line, or the reason why there is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TraceLine<'a> {
    /// Without its line end (`\n` or `\r\n`).
    Text(&'a [u8]),
    TooLong,
    End,
}

/// Cuts a stream into lines of bounded length.
pub(super) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, line: Vec::new(), number: 0 }
    }

    /// The number of the line returned last, counted from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The next line with content. Ends: every turn of the loop reads input.
    pub(super) fn next(&mut self) -> io::Result<TraceLine<'_>> {
        loop {
            let found = self.read_line()?;
            if found != LineFound::Text {
                return Ok(if found == LineFound::End { TraceLine::End } else { TraceLine::TooLong });
            }
            if !says_nothing(&self.line) {
                return Ok(TraceLine::Text(&self.line));
            }
        }
    }

    fn read_line(&mut self) -> io::Result<LineFound> {
        self.line.clear();
        let limit = MAX_LINE as u64 + 2;
        let read = self.input.by_ref().take(limit).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(LineFound::End);
        }
        self.number += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if self.line.len() > MAX_LINE {
            self.input.skip_until(b'\n')?;
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        if self.line.len() > MAX_LINE {
            return Ok(LineFound::TooLong);
        }
        if self.number == 1 && self.line.starts_with(BYTE_ORDER_MARK) {
            self.line.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(LineFound::Text)
    }
}

/// Content of the buffer after `read_line`.
#[derive(PartialEq, Eq)]
enum LineFound {
    Text,
    TooLong,
    End,
}

/// Whether a line is blank or a comment.
fn says_nothing(line: &[u8]) -> bool {
    line.iter().find(|byte| !byte.is_ascii_whitespace()).is_none_or(|&first| first == b'#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_lf_crlf_or_file_end() {
        let mut lines = Lines::new(&b"a\r\nb\nc"[..]);
        for expected in ["a", "b", "c"] {
            assert_eq!(lines.next().unwrap(), TraceLine::Text(expected.as_bytes()));
        }
        assert_eq!(lines.number(), 3);
        assert_eq!(lines.next().unwrap(), TraceLine::End);
    }

    #[test]
    fn lines_that_say_nothing_are_counted_only() {
        let mut lines = Lines::new(&b"\xEF\xBB\xBF\n# comment\na\n \t\r\n  # another\n\xEF\xBB\xBFb\n\n"[..]);
        assert_eq!(lines.next().unwrap(), TraceLine::Text(b"a"));
        assert_eq!(lines.number(), 3);
        assert_eq!(lines.next().unwrap(), TraceLine::Text(b"\xEF\xBB\xBFb"), "a mark is the file's first bytes only");
        assert_eq!(lines.number(), 6);
        assert_eq!(lines.next().unwrap(), TraceLine::End);
        let mut marked = Lines::new(&b"\xEF\xBB\xBFa"[..]);
        assert_eq!(marked.next().unwrap(), TraceLine::Text(b"a"));
    }

    #[test]
    fn a_line_too_long_is_passed_over() {
        for extra in [1, 2, 3, 10, 1 << 20] {
            let mut text = vec![b'x'; MAX_LINE + extra];
            text.extend_from_slice(b"\nnext\n");
            let mut lines = Lines::new(&text[..]);
            assert_eq!(lines.next().unwrap(), TraceLine::TooLong);
            assert_eq!(lines.next().unwrap(), TraceLine::Text(b"next"));
            assert!(lines.line.capacity() < 4 * MAX_LINE);
        }
        let exact = [&vec![b'x'; MAX_LINE][..], b"\r\n"].concat();
        let mut lines = Lines::new(&exact[..]);
        assert!(matches!(lines.next().unwrap(), TraceLine::Text(t) if t.len() == MAX_LINE));
    }
}
