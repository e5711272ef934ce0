//! The client's side of RESP, the protocol of Redis, as far as the load needs it: GET, MGET, SET, APPEND, INCR,
//! DECR, DEL, and their answers.
//!
//! ```text
//! request   *2 CRLF $3 CRLF GET CRLF $1 CRLF a CRLF        an array of bulk strings
//! answers   $5 CRLF value CRLF     $-1 CRLF                a value, or none
//!           *2 CRLF and two of those                       to MGET, in the order of the keys
//!           +OK CRLF               -ERR reason CRLF
//!           :1 CRLF                                        to DEL, APPEND, INCR and DECR
//!           $-1 CRLF                                       to a SET whose NX or XX does not hold
//! ```

/// The longest line of an answer: an error.
const MAX_LINE: usize = 2048;

/// One line of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RespReply<'a> {
    /// This number of bytes and a line end follow.
    Value {
        length: u64,
    },
    Missing,
    /// This number of values follow, each present or missing.
    List(u64),
    Stored,
    /// Keys that a DEL has found, the length after an APPEND, or a number after INCR or DECR.
    Number,
    Refused(&'a [u8]),
}

/// Reads the first line in `input`: the reply and how many bytes it takes. `None` if the line is not complete; an
/// error if it is nothing that the requests here are answered with.
pub(super) fn parse(input: &[u8]) -> Result<Option<(RespReply<'_>, usize)>, String> {
    let window = &input[..input.len().min(MAX_LINE)];
    let Some(end) = window.iter().position(|&byte| byte == b'\n') else {
        return match window.len() {
            MAX_LINE => Err("a line without an end".into()),
            _ => Ok(None),
        };
    };
    let unknown = || format!("`{}`", input[..end.min(80)].escape_ascii());
    let line = input[..end].strip_suffix(b"\r").ok_or_else(unknown)?;
    let reply = match line {
        b"+OK" => RespReply::Stored,
        b"$-1" => RespReply::Missing,
        [b'$', digits @ ..] => RespReply::Value { length: number(digits).ok_or_else(unknown)? },
        [b'*', digits @ ..] => RespReply::List(number(digits).ok_or_else(unknown)?),
        [b':', digits @ ..] => {
            number(digits.strip_prefix(b"-").unwrap_or(digits)).ok_or_else(unknown)?;
            RespReply::Number
        }
        [b'-', reason @ ..] => RespReply::Refused(reason),
        _ => return Err(unknown()),
    };
    Ok(Some((reply, end + 1)))
}

fn number(digits: &[u8]) -> Option<u64> {
    match digits {
        [] => None,
        // 19 digits cannot overflow.
        _ if digits.len() > 19 => None,
        _ => digits.iter().try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0'))),
    }
}

/// Begins a GET, or an MGET of more keys than one; the keys follow, each with [`add_key`].
pub(super) fn begin_get(out: &mut Vec<u8>, keys: u16) {
    header(out, b'*', usize::from(keys) + 1);
    match keys {
        1 => out.extend_from_slice(b"$3\r\nGET\r\n"),
        _ => out.extend_from_slice(b"$4\r\nMGET\r\n"),
    }
}

pub(super) fn add_key(out: &mut Vec<u8>, key: &[u8]) {
    header(out, b'$', key.len());
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n");
}

/// A SET of bytes that are all the same, on a condition (NX or XX) if there is one; a TTL of 0 is no expiry.
pub(super) fn set(out: &mut Vec<u8>, key: &[u8], condition: Option<&str>, ttl_seconds: u32, value: (usize, u8)) {
    let expires = ttl_seconds > 0;
    header(out, b'*', 3 + usize::from(condition.is_some()) + 2 * usize::from(expires));
    add_key(out, b"SET");
    add_key(out, key);
    add_value(out, value);
    if let Some(condition) = condition {
        add_key(out, condition.as_bytes());
    }
    if expires {
        out.extend_from_slice(b"$2\r\nEX\r\n");
        add_key(out, ttl_seconds.to_string().as_bytes());
    }
}

pub(super) fn append(out: &mut Vec<u8>, key: &[u8], value: (usize, u8)) {
    header(out, b'*', 3);
    add_key(out, b"APPEND");
    add_key(out, key);
    add_value(out, value);
}

/// A command that has one key and nothing else.
pub(super) fn of_key(out: &mut Vec<u8>, command: &str, key: &[u8]) {
    header(out, b'*', 2);
    add_key(out, command.as_bytes());
    add_key(out, key);
}

fn add_value(out: &mut Vec<u8>, (length, byte): (usize, u8)) {
    header(out, b'$', length);
    out.resize(out.len() + length, byte);
    out.extend_from_slice(b"\r\n");
}

/// `<kind><number>` and a line end.
fn header(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    let mut digits = [0; 20];
    let mut first = digits.len();
    let mut rest = number;
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_cut_at_their_line_ends() {
        assert_eq!(parse(b"$100\r\n....").unwrap(), Some((RespReply::Value { length: 100 }, 6)));
        assert_eq!(parse(b"$0\r\n\r\n").unwrap(), Some((RespReply::Value { length: 0 }, 4)));
        assert_eq!(parse(b"$-1\r\n").unwrap(), Some((RespReply::Missing, 5)));
        assert_eq!(parse(b"*50\r\n").unwrap(), Some((RespReply::List(50), 5)));
        assert_eq!(parse(b"+OK\r\n+OK\r\n").unwrap(), Some((RespReply::Stored, 5)));
        assert_eq!(parse(b":1\r\n").unwrap(), Some((RespReply::Number, 4)));
        assert_eq!(parse(b":-12\r\n").unwrap(), Some((RespReply::Number, 6)));
        let refused = RespReply::Refused(b"OOM command not allowed");
        assert_eq!(parse(b"-OOM command not allowed\r\n").unwrap(), Some((refused, 26)));
        for cut in 0..6 {
            assert_eq!(parse(&b"$100\r\n"[..cut]), Ok(None));
        }
    }

    #[test]
    fn what_is_not_the_protocol_is_an_error() {
        for line in [
            &b"VALUE abc 7 1\r\n"[..],
            b"+PONG\r\n",
            b"$\r\n",
            b"$-2\r\n",
            b"$1x\r\n",
            b"*99999999999999999999\r\n",
            b"+OK\n",
            b"\r\n",
        ] {
            assert!(parse(line).is_err(), "{}", line.escape_ascii());
        }
        assert!(parse(&[b'x'; MAX_LINE + 1]).is_err());
    }

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        begin_get(&mut out, 1);
        add_key(&mut out, b"abc");
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$3\r\nabc\r\n");
        out.clear();
        begin_get(&mut out, 10);
        add_key(&mut out, b"0123456789");
        assert_eq!(out, b"*11\r\n$4\r\nMGET\r\n$10\r\n0123456789\r\n");
        out.clear();
        of_key(&mut out, "DEL", b"k");
        assert_eq!(out, b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n");
        out.clear();
        set(&mut out, b"k", None, 0, (3, b'.'));
        set(&mut out, b"k", None, 60, (0, b'.'));
        let plain = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\n...\r\n".to_vec();
        let expiring = b"*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n$2\r\nEX\r\n$2\r\n60\r\n";
        assert_eq!(out, [plain, expiring.to_vec()].concat());
        out.clear();
        set(&mut out, b"k", Some("NX"), 0, (1, b'1'));
        append(&mut out, b"k", (2, b'.'));
        let added = b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n1\r\n$2\r\nNX\r\n".to_vec();
        assert_eq!(out, [added, b"*3\r\n$6\r\nAPPEND\r\n$1\r\nk\r\n$2\r\n..\r\n".to_vec()].concat());
    }
}
