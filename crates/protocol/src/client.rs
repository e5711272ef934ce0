//! The client's side of memcached's classic text protocol, as far as the load needs it: it writes `get`, `delete`,
//! `incr`, and `set` with its relatives, and cuts the input from the server into answers.

use std::io::Write;

/// The longest line of an answer: a VALUE line with the longest key, or an error.
const MAX_LINE: usize = 2048;

/// One line of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum ClientReply<'a> {
    /// The value's bytes and a line end follow.
    Value {
        key: &'a [u8],
        length: u64,
    },
    /// The end of the values of a get.
    End,
    Stored,
    /// To a write whose condition does not hold, such as an `add` of a key that is present.
    NotStored,
    Deleted,
    /// To a delete or an `incr`: the key was not there.
    NotFound,
    /// To an `incr` or `decr`: the new value.
    Number,
    /// Any other answer to a write, and every error.
    Refused(&'a [u8]),
}

/// Reads the first line in `input`: the reply and how many bytes it takes. `None` if the line is not complete; an
/// error if this is not the protocol.
pub fn parse(input: &[u8]) -> Result<Option<(ClientReply<'_>, usize)>, String> {
    let window = &input[..input.len().min(MAX_LINE)];
    let Some(end) = memchr::memchr(b'\n', window) else {
        return match window.len() {
            MAX_LINE => Err("a line without an end".into()),
            _ => Ok(None),
        };
    };
    let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
    let reply = match line {
        b"END" => ClientReply::End,
        b"STORED" => ClientReply::Stored,
        b"DELETED" => ClientReply::Deleted,
        b"NOT_FOUND" => ClientReply::NotFound,
        b"NOT_STORED" => ClientReply::NotStored,
        b"EXISTS" | b"ERROR" => ClientReply::Refused(line),
        // 2^64 - 1 has 20 digits.
        [b'0'..=b'9', ..] if line.len() <= 20 && line.iter().all(u8::is_ascii_digit) => ClientReply::Number,
        _ if line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR") => ClientReply::Refused(line),
        _ => parse_value(line).ok_or_else(|| format!("`{}`", line[..line.len().min(80)].escape_ascii()))?,
    };
    Ok(Some((reply, end + 1)))
}

/// `VALUE <key> <flags> <bytes>`
fn parse_value(line: &[u8]) -> Option<ClientReply<'_>> {
    let words = line.strip_prefix(b"VALUE ")?;
    let (key, rest) = words.split_at(memchr::memchr(b' ', words).filter(|&length| length > 0)?);
    let rest = &rest[1..];
    let (flags, length) = rest.split_at(rest.iter().position(|&byte| byte == b' ')?);
    number(flags).filter(|&flags| flags <= u64::from(u32::MAX))?;
    Some(ClientReply::Value { key, length: number(&length[1..])? })
}

/// Digits, and nothing else; 18 of them cannot overflow.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    digits.iter().try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0')))
}

/// Begins a get; its keys follow, and then [`end_line`].
pub fn begin_get(out: &mut Vec<u8>) {
    out.extend_from_slice(b"get");
}

pub fn add_key(out: &mut Vec<u8>, key: &[u8]) {
    out.push(b' ');
    out.extend_from_slice(key);
}

pub fn end_line(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

pub fn delete(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(b"delete ");
    out.extend_from_slice(key);
    end_line(out);
}

/// `set`, `add`, `replace`, `append` or `prepend` of `length` bytes that are all the same.
pub fn store(out: &mut Vec<u8>, command: &str, key: &[u8], ttl_seconds: u32, (length, byte): (usize, u8)) {
    out.extend_from_slice(command.as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    write!(out, " 0 {ttl_seconds} {length}\r\n").expect("a Vec takes all bytes");
    out.resize(out.len() + length, byte);
    end_line(out);
}

/// `incr` or `decr` by 1.
pub fn count(out: &mut Vec<u8>, command: &str, key: &[u8]) {
    out.extend_from_slice(command.as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.extend_from_slice(b" 1\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_cut_at_their_line_ends() {
        let input = b"VALUE abc 7 1000000\r\nrest";
        let (reply, taken) = parse(input).unwrap().unwrap();
        assert_eq!(reply, ClientReply::Value { key: b"abc", length: 1_000_000 });
        assert_eq!(&input[taken..], b"rest");
        for cut in 0..21 {
            assert_eq!(parse(&input[..cut]), Ok(None));
        }
        assert_eq!(parse(b"END\r\n"), Ok(Some((ClientReply::End, 5))));
        assert_eq!(parse(b"STORED\r\n"), Ok(Some((ClientReply::Stored, 8))));
        assert_eq!(parse(b"DELETED\r\n"), Ok(Some((ClientReply::Deleted, 9))));
        assert_eq!(parse(b"NOT_FOUND\r\n"), Ok(Some((ClientReply::NotFound, 11))));
        assert_eq!(parse(b"NOT_STORED\r\n"), Ok(Some((ClientReply::NotStored, 12))));
        assert_eq!(parse(b"18446744073709551615\r\n"), Ok(Some((ClientReply::Number, 22))));
        let refused = ClientReply::Refused(b"SERVER_ERROR out of memory");
        assert_eq!(parse(b"SERVER_ERROR out of memory\r\n"), Ok(Some((refused, 28))));
    }

    #[test]
    fn what_is_not_the_protocol_is_an_error() {
        for line in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"VALUE abc 7\r\n",
            b"VALUE abc 7 -1\r\n",
            b"VALUE abc 7 1 2 3\r\n",
            b"VALUE  7 1\r\n",
            b"VALUE abc 4294967296 1\r\n",
            b"VALUE abc 7 1x\r\n",
            b"5x\r\n",
            b"184467440737095516150\r\n",
            b"VALUE abc 7 9999999999999999999\r\n",
            b"\r\n",
        ] {
            assert!(parse(line).is_err(), "{}", line.escape_ascii());
        }
        assert!(parse(&[b'x'; MAX_LINE + 1]).is_err());
    }

    #[test]
    fn commands_are_written_as_the_protocol_says() {
        let mut out = Vec::new();
        begin_get(&mut out);
        add_key(&mut out, b"a");
        add_key(&mut out, b"b");
        end_line(&mut out);
        store(&mut out, "set", b"k", 60, (3, b'.'));
        count(&mut out, "incr", b"n");
        assert_eq!(out, b"get a b\r\nset k 0 60 3\r\n...\r\nincr n 1\r\n");
    }
}
