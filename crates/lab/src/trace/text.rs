//! The two text formats with fixed columns, and the numbers in all of them.

use std::io::{self, Write};

use rapidhash::v3::rapidhash_v3;

use super::{Op, Request};

pub(crate) const CSV_HEADER: &[u8] = b"timestamp_s,key_id,key_size,value_size,op,ttl_s";

/// Name of the last column of a captured trace, with the comma before it.
pub(crate) const FOUND_COLUMN: &[u8] = b",found";

/// Whether a line is the header of the `csv` format, and which of the columns `pool` and `found` follow.
pub(super) fn csv_header(line: &[u8]) -> Option<CsvHeader> {
    let optional = line.trim_ascii().strip_prefix(CSV_HEADER)?;
    let (optional, has_found) = match optional.strip_suffix(FOUND_COLUMN) {
        Some(before) => (before, true),
        None => (optional, false),
    };
    match optional {
        b"" => Some(CsvHeader { has_pool: false, has_found }),
        b",pool" => Some(CsvHeader { has_pool: true, has_found }),
        _ => None,
    }
}

/// The optional columns of a `csv` trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CsvHeader {
    pub(super) has_pool: bool,
    /// Whether the server had the object of a get: 1 or 0, empty for other requests.
    pub(super) has_found: bool,
}

/// The line without its column `found`, and that column. A line without the column is not cut.
pub(super) fn without_found(line: &[u8], header: CsvHeader) -> Result<(&[u8], Option<bool>), Fault> {
    if !header.has_found {
        return Ok((line, None));
    }
    let comma = line.iter().rposition(|&byte| byte == b',').ok_or("1 column instead of 7 or 8")?;
    match line[comma + 1..].trim_ascii() {
        b"1" => Ok((&line[..comma], Some(true))),
        b"0" => Ok((&line[..comma], Some(false))),
        b"" => Ok((&line[..comma], None)),
        other => Err(format!("found `{}` is neither 0 nor 1", excerpt(other))),
    }
}

/// Writes a line of the `csv` format, with its seventh column if there is a pool.
pub(crate) fn write_csv_line(request: &Request, pool: Option<&str>, out: &mut impl Write) -> io::Result<()> {
    write_columns(request, pool, out)?;
    writeln!(out)
}

/// Writes a line of the `csv` format with the column `found`.
pub(crate) fn write_captured_line(
    request: &Request,
    pool: Option<&str>,
    found: Option<bool>,
    out: &mut impl Write,
) -> io::Result<()> {
    write_columns(request, pool, out)?;
    writeln!(out, ",{}", found.map_or("", |found| if found { "1" } else { "0" }))
}

fn write_columns(request: &Request, pool: Option<&str>, out: &mut impl Write) -> io::Result<()> {
    let Request { time_seconds, key, key_size, value_size, op, ttl_seconds } = request;
    write!(out, "{time_seconds},{key},{key_size},{value_size},{},{ttl_seconds}", op.name())?;
    pool.map_or(Ok(()), |pool| write!(out, ",{pool}"))
}

/// Whether a line names the columns of Twitter's traces. The published files have none, but exports of them do.
pub(super) fn is_twitter_header(line: &[u8]) -> bool {
    let names: Vec<_> = line.split(|&byte| byte == b',').map(|name| name.trim_ascii().to_ascii_lowercase()).collect();
    let [time, _key, _key_size, _value_size, _client, op, ttl] = names.as_slice() else {
        return false;
    };
    time.starts_with(b"time") && op.starts_with(b"op") && ttl == b"ttl"
}

/// Error in a line.
pub(super) type Fault = String;

/// A line of the `csv` format, and its pool, empty where the trace has none.
pub(super) fn parse_csv(line: &[u8], header: CsvHeader) -> Result<(Request, &[u8]), Fault> {
    let ([time, key, key_size, value_size, op, ttl], pool) = if header.has_pool {
        let [time, key, key_size, value_size, op, ttl, pool] = columns(line)?;
        ([time, key, key_size, value_size, op, ttl], pool)
    } else {
        (columns(line)?, &line[..0])
    };
    let request = Request {
        time_seconds: number(time, "timestamp_s")?,
        key: number(key, "key_id")?,
        key_size: size(key_size, "key_size")?,
        value_size: size(value_size, "value_size")?,
        op: operation(op)?,
        ttl_seconds: ttl_seconds(ttl)?,
    };
    Ok((request, pool))
}

/// A line of Twitter's traces. Keys may hold commas, so the columns behind the key are counted from the end. Only
/// writes carry a TTL there, and gets that missed carry a value size of 0; both are taken as they are.
/// The second part of the result is the key's text.
pub(super) fn parse_twitter(line: &[u8]) -> Result<(Request, &[u8]), Fault> {
    let mut from_end = line.rsplitn(6, |&byte| byte == b',');
    let mut column = || from_end.next().unwrap_or_default();
    let (ttl, op, _client, value_size, key_size) = (column(), column(), column(), column(), column());
    let mut front = column().splitn(2, |&byte| byte == b',');
    let (Some(time), Some(key)) = (front.next(), front.next()) else {
        return Err("fewer than 7 columns".into());
    };
    let request = Request {
        time_seconds: number(time, "timestamp")?,
        key: hash_key(key)?,
        key_size: size(key_size, "key size")?,
        value_size: size(value_size, "value size")?,
        op: operation(op)?,
        ttl_seconds: ttl_seconds(ttl)?,
    };
    Ok((request, key))
}

/// The id of a key that is a string.
pub(super) fn hash_key(key: &[u8]) -> Result<u64, Fault> {
    if key.is_empty() {
        return Err("the key is empty".into());
    }
    Ok(rapidhash_v3(key))
}

pub(super) fn operation(name: &[u8]) -> Result<Op, Fault> {
    Op::from_name(name).ok_or_else(|| format!("unknown operation `{}`", excerpt(name)))
}

/// A TTL; those beyond 2^32 s (136 years) count as that.
pub(super) fn ttl_seconds(text: &[u8]) -> Result<u32, Fault> {
    let seconds = number(text, "TTL")?;
    Ok(u32::try_from(seconds).unwrap_or(u32::MAX))
}

pub(super) fn size(text: &[u8], column: &str) -> Result<u32, Fault> {
    let bytes = number(text, column)?;
    u32::try_from(bytes).map_err(|_| format!("{column} `{bytes}` is more than 2^32"))
}

pub(super) fn number(text: &[u8], column: &str) -> Result<u64, Fault> {
    let digits = text.trim_ascii();
    let value = digits.iter().try_fold(0u64, |value, &digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    });
    match value {
        Some(value) if !digits.is_empty() => Ok(value),
        _ => Err(format!("{column} `{}` is not a number", excerpt(text))),
    }
}

fn columns<const N: usize>(line: &[u8]) -> Result<[&[u8]; N], Fault> {
    let mut columns = [&line[..0]; N];
    let mut found = 0;
    for text in line.split(|&byte| byte == b',') {
        if let Some(column) = columns.get_mut(found) {
            *column = text;
        }
        found += 1;
    }
    if found != N {
        return Err(format!("{found} columns instead of {N}"));
    }
    Ok(columns)
}

fn excerpt(text: &[u8]) -> String {
    text[..text.len().min(40)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_known_in_any_case() {
        assert_eq!(
            csv_header(b"timestamp_s,key_id,key_size,value_size,op,ttl_s "),
            Some(CsvHeader { has_pool: false, has_found: false })
        );
        assert_eq!(
            csv_header(b"timestamp_s,key_id,key_size,value_size,op,ttl_s,pool"),
            Some(CsvHeader { has_pool: true, has_found: false })
        );
        assert_eq!(csv_header(b"timestamp_s,key_id,key_size,value_size,op,ttl_s,other"), None);
        for (columns, has_pool) in [(&b""[..], false), (b",pool", true)] {
            let header = [CSV_HEADER, columns, FOUND_COLUMN].concat();
            assert_eq!(csv_header(&header), Some(CsvHeader { has_pool, has_found: true }));
        }
        assert_eq!(csv_header(b"timestamp_s,key_id,key_size,value_size,op,ttl_s,found,pool"), None);
        assert!(is_twitter_header(b"timestamp,anonymized key,key size,value size,client id,operation,TTL"));
        assert!(is_twitter_header(b"Time, Key, KeySize, ValueSize, Client, Op, TTL"));
        assert!(!is_twitter_header(b"5,a.b,20,300,7,gets,0"));
        assert!(!is_twitter_header(b"timestamp_s,key_id,key_size,value_size,op,ttl_s"));
    }

    #[test]
    fn a_csv_line() {
        let (request, pool) = parse_csv(b"3,17,16,4096,delete,60", CsvHeader::default()).unwrap();
        assert_eq!(pool, b"");
        assert_eq!(
            request,
            Request { time_seconds: 3, key: 17, key_size: 16, value_size: 4096, op: Op::Delete, ttl_seconds: 60 }
        );
    }

    #[test]
    fn malformed_csv_lines_say_what_is_wrong() {
        for (line, reason) in [
            (&b""[..], "1 columns instead of 6"),
            (b"1,2,3,4,get", "5 columns instead of 6"),
            (b"1,2,3,4,get,0,9", "7 columns instead of 6"),
            (b"x,2,3,4,get,0", "timestamp_s `x` is not a number"),
            (b"1,-2,3,4,get,0", "key_id `-2` is not a number"),
            (b"1,2,3,4294967296,get,0", "more than 2^32"),
            (b"1,2,3,4,fetch,0", "unknown operation `fetch`"),
            (b"1,2,3,4,get,", "TTL `` is not a number"),
            (b"18446744073709551616,2,3,4,get,0", "is not a number"),
        ] {
            let error = parse_csv(line, CsvHeader::default()).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_seventh_column_is_the_pool() {
        let header = CsvHeader { has_pool: true, has_found: false };
        let (request, pool) = parse_csv(b"3,17,16,4096,get,60,users", header).unwrap();
        assert_eq!((request.ttl_seconds, pool), (60, &b"users"[..]));
        let error = parse_csv(b"3,17,16,4096,get,60", header).unwrap_err();
        assert!(error.contains("6 columns instead of 7"), "{error}");
    }

    #[test]
    fn a_twitter_key_may_hold_commas() {
        let (plain, _) = parse_twitter(b"5,a.b,20,300,7,gets,0").unwrap();
        let (commas, text) = parse_twitter(b"5,a,b,c,20,300,7,gets,0").unwrap();
        assert_eq!(text, b"a,b,c");
        assert_eq!(plain.key, rapidhash_v3(b"a.b"));
        assert_eq!(commas.key, rapidhash_v3(b"a,b,c"));
        for request in [plain, commas] {
            assert_eq!(request.time_seconds, 5);
            assert_eq!((request.key_size, request.value_size), (20, 300));
            assert_eq!(request.op, Op::Gets);
        }
    }

    #[test]
    fn malformed_twitter_lines_are_refused() {
        for line in [&b"5,20,300,7,get,0"[..], b"5,,20,300,7,get,0", b"5,k,20,300,7,fetch,0", b""] {
            assert!(parse_twitter(line).is_err());
        }
    }

    #[test]
    fn a_ttl_beyond_the_range_is_the_longest() {
        assert_eq!(ttl_seconds(b"9999999999"), Ok(u32::MAX));
    }

    #[test]
    fn the_answer_of_a_captured_server_is_read() {
        let header = CsvHeader { has_pool: false, has_found: true };
        for found in [Some(true), Some(false), None] {
            let (request, _) = parse_csv(b"3,17,16,4096,get,60", CsvHeader::default()).unwrap();
            let mut line = Vec::new();
            write_captured_line(&request, None, found, &mut line).unwrap();
            let (columns, read) = without_found(line.trim_ascii_end(), header).unwrap();
            assert_eq!((parse_csv(columns, header).unwrap().0, read), (request, found));
        }
        assert!(without_found(b"3,17,16,4096,get,60,yes", header).unwrap_err().contains("neither 0 nor 1"));
        assert!(without_found(b"3", header).is_err());
    }
}
