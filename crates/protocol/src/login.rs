//! What a client of the text protocol says before it is known, when the server asks who is there: a set of any key whose
//! value is `user password`.
//!
//! ```text
//! set <any> <any> <any> <length> [...]\r\n
//! <user> <password> [...]\r\n
//! ```
//!
//! It keeps no state: what it does not consume has to be given again, with what has arrived since.

use crate::LINE_LIMIT;
use crate::number::unsigned32;
use crate::request::Keys;

/// The longest value that is waited for. Whoever announces more is no client: names and passwords are short.
pub const TOKEN_LIMIT: usize = 8 << 10;

/// What stands at the front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login<'a> {
    Token {
        user: &'a [u8],
        password: &'a [u8],
    },
    /// Anything but a set.
    Unauthenticated,
    /// The value does not end in a line end.
    BadTermination,
    /// The value is not `user password`.
    BadToken,
    /// As `BadToken`, and it is too long to be taken off the stream.
    TooLong,
    NeedMore,
    /// A line without an end, or a long one without its value.
    Close,
}

/// What stands at the front of `input`, and how many bytes of it that took.
pub fn next(input: &[u8]) -> (Login<'_>, usize) {
    let Some(end) = memchr::memchr(b'\n', input) else {
        return match input.len() {
            ..=LINE_LIMIT => (Login::NeedMore, 0),
            _ => (Login::Close, input.len()),
        };
    };
    let value = &input[end + 1..];
    let Some(length) = announced(&input[..end]) else {
        return (Login::Unauthenticated, end + 1);
    };
    if length > TOKEN_LIMIT {
        return (Login::TooLong, input.len());
    }
    let Some((value, line_end)) = value.get(..length + 2).map(|value| value.split_at(length)) else {
        return match end {
            ..=LINE_LIMIT => (Login::NeedMore, 0),
            _ => (Login::Close, input.len()),
        };
    };
    let consumed = end + 1 + length + 2;
    if line_end != b"\r\n" {
        return (Login::BadTermination, consumed);
    }
    let mut words = Keys::new(until_nul(value));
    match (words.next(), words.next()) {
        (Some(user), Some(password)) => (Login::Token { user, password }, consumed),
        _ => (Login::BadToken, consumed),
    }
}

/// The length of the value that a line announces, if it is a set.
fn announced(line: &[u8]) -> Option<usize> {
    let line = until_nul(line.strip_suffix(b"\r").unwrap_or(line));
    let mut words = Keys::new(line);
    let is_set = words.next()? == b"set";
    let length = unsigned32(words.nth(3)?)?;
    is_set.then_some(length as usize)
}

fn until_nul(text: &[u8]) -> &[u8] {
    memchr::memchr(0, text).map_or(text, |nul| &text[..nul])
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: Login<'_> = Login::Token { user: b"user", password: b"pass" };

    #[test]
    fn a_set_of_user_and_password_is_taken() {
        for input in [
            &b"set x 0 0 9\r\nuser pass\r\n"[..],
            b"set x 0 0 9\nuser pass\r\n",
            b"  set x a b 9 noreply\r\nuser pass\r\n",
            b"set x 0 0 9 0 0 0\r\nuser pass\r\n",
            b"set x 0 0 11\r\n user pass \r\n",
            b"set x 0 0 14\r\nuser pass more\r\n",
            b"set x 0 0 12\r\nuser pass\0ab\r\n",
        ] {
            assert_eq!(next(input), (OK, input.len()), "{}", String::from_utf8_lossy(input));
            for short in 0..input.len() {
                assert_eq!(next(&input[..short]), (Login::NeedMore, 0));
            }
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for line in [
            &b"get x\r\n"[..],
            b"\r\n",
            b"\n",
            b"\0\n",
            b"SET x 0 0 9\r\n",
            b"cas x 0 0 9 1\r\n",
            b"set x 0 0\r\n",
            b"set x 0 0 -1\r\n",
            b"set x 0 0 a\r\n",
            b"set x 0 0\0 9\r\n",
        ] {
            assert_eq!(next(line), (Login::Unauthenticated, line.len()), "{}", String::from_utf8_lossy(line));
        }
        for (input, expected) in [
            (&b"set x 0 0 8\r\nuserpass\r\n"[..], Login::BadToken),
            (b"set x 0 0 5\r\nuser \r\n", Login::BadToken),
            (b"set x 0 0 0\r\n\r\n", Login::BadToken),
            (b"set x 0 0 9\r\nuser pass\rx", Login::BadTermination),
        ] {
            assert_eq!(next(input), (expected, input.len()), "{}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn nothing_is_waited_for_without_bound() {
        assert_eq!(next(&[b'x'; LINE_LIMIT]), (Login::NeedMore, 0));
        assert_eq!(next(&[b'x'; LINE_LIMIT + 1]).0, Login::Close);
        assert_eq!(next(b"set x 0 0 8192\r\n"), (Login::NeedMore, 0));
        let long = [b"set x 0 0 ", &[b'0'; LINE_LIMIT][..], b"9\r\nuser pass\r\n"].concat();
        assert_eq!(next(&long), (OK, long.len()));
        assert_eq!(next(&long[..long.len() - 1]).0, Login::Close);
        assert_eq!(next(b"set x 0 0 8193\r\n").0, Login::TooLong);
        assert_eq!(next(b"set x 0 0 4294967295\r\n").0, Login::TooLong);
    }
}
