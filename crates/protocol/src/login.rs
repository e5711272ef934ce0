//! Authentication in the text protocol: a client that has not logged in sends a set of any key with the value
//! `user password`.
//!
//! ```text
//! set <any> <any> <any> <length> [...]\r\n
//! <user> <password>\r\n
//! ```
//! The password is everything after the first blank and may contain blanks.
//!
//! The parser keeps no state: pass the bytes that it did not consume again, followed by those that have arrived since.

use crate::LINE_LIMIT;
use crate::number::unsigned32;
use crate::request::Keys;

/// Longest value that is accepted, in bytes. Names and passwords are shorter.
pub const TOKEN_LIMIT: usize = 8 << 10;

/// Result of parsing the front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login<'a> {
    Token {
        user: &'a [u8],
        password: &'a [u8],
    },
    /// Anything but a set.
    Unauthenticated,
    /// As `Unauthenticated`, and the connection is closed: a set whose length is not a number, so that the end of its
    /// value is unknown.
    UnknownLength,
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

/// Parses the front of `input`. Returns the result and the number of bytes consumed.
pub fn next(input: &[u8]) -> (Login<'_>, usize) {
    let Some(end) = memchr::memchr(b'\n', input) else {
        return match input.len() {
            ..=LINE_LIMIT => (Login::NeedMore, 0),
            _ => (Login::Close, input.len()),
        };
    };
    let value = &input[end + 1..];
    let length = match announced(&input[..end]) {
        None => return (Login::Unauthenticated, end + 1),
        Some(None) => return (Login::UnknownLength, input.len()),
        Some(Some(length)) => length,
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
    match memchr::memchr(b' ', value) {
        Some(blank) => (Login::Token { user: &value[..blank], password: &value[blank + 1..] }, consumed),
        None => (Login::BadToken, consumed),
    }
}

/// Length of the value if the line is a set with a length; `Some(None)` if the length is not a number.
fn announced(line: &[u8]) -> Option<Option<usize>> {
    let mut words = Keys::new(line.strip_suffix(b"\r").unwrap_or(line));
    let is_set = words.next()? == b"set";
    let length = words.nth(3).filter(|_| is_set)?;
    Some(unsigned32(length).map(|length| length as usize))
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
        ] {
            assert_eq!(next(input), (OK, input.len()), "{}", String::from_utf8_lossy(input));
            for short in 0..input.len() {
                assert_eq!(next(&input[..short]), (Login::NeedMore, 0));
            }
        }
    }

    #[test]
    fn a_password_is_all_behind_the_first_blank() {
        for (value, user, password) in [
            ("user a b", "user", "a b"),
            ("user  pass ", "user", " pass "),
            (" user pass", "", "user pass"),
            ("user ", "user", ""),
            (" ", "", ""),
            ("user pass\0ab", "user", "pass\0ab"),
        ] {
            let input = format!("set x 0 0 {}\r\n{value}\r\n", value.len());
            let expected = Login::Token { user: user.as_bytes(), password: password.as_bytes() };
            assert_eq!(next(input.as_bytes()), (expected, input.len()), "{value:?}");
        }
    }

    #[test]
    fn a_length_that_is_no_number_closes() {
        for length in ["-1", "a", "+9", "9x", "4294967305", "18446744073709551625"] {
            let input = format!("set x 0 0 {length}\r\nuser pass\r\n");
            assert_eq!(next(input.as_bytes()), (Login::UnknownLength, input.len()), "{length}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for line in
            [&b"get x\r\n"[..], b"\r\n", b"\n", b"\0\n", b"SET x 0 0 9\r\n", b"cas x 0 0 9 1\r\n", b"set x 0 0\r\n"]
        {
            assert_eq!(next(line), (Login::Unauthenticated, line.len()), "{}", String::from_utf8_lossy(line));
        }
        for (input, expected) in [
            (&b"set x 0 0 8\r\nuserpass\r\n"[..], Login::BadToken),
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
