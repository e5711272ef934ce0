//! Answers of the text protocol: the fixed lines, and writers for answers that carry data.

pub const LINE_END: &[u8] = b"\r\n";
pub const END: &[u8] = b"END\r\n";
pub const STORED: &[u8] = b"STORED\r\n";
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
pub const EXISTS: &[u8] = b"EXISTS\r\n";
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
pub const DELETED: &[u8] = b"DELETED\r\n";
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
pub const OK: &[u8] = b"OK\r\n";
pub const RESET: &[u8] = b"RESET\r\n";

pub const ERROR: &[u8] = b"ERROR\r\n";
pub const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
pub const BAD_DATA_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
pub const INVALID_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
pub const INVALID_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
pub const STRUCTURED: &[u8] = b"CLIENT_ERROR cannot append to or prepend to a structured value\r\n";
pub const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
pub const INVALID_SHUTDOWN_MODE: &[u8] = b"CLIENT_ERROR invalid shutdown mode\r\n";
pub const SHUTDOWN_NOT_ENABLED: &[u8] = b"ERROR: shutdown not enabled\r\n";
pub const FLUSH_NOT_ALLOWED: &[u8] = b"CLIENT_ERROR flush_all not allowed\r\n";
pub const TLS_NOT_ENABLED: &[u8] = b"Error TLS not enabled\r\n";
pub const TOO_MANY_CONNECTIONS: &[u8] = b"ERROR Too many open connections\r\n";

pub const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
pub const AUTHENTICATION_FAILURE: &[u8] = b"CLIENT_ERROR authentication failure\r\n";
pub const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad authentication token format\r\n";
pub const TOKEN_TOO_LONG: &[u8] = b"CLIENT_ERROR auth token too long\r\n";
pub const BAD_TERMINATION: &[u8] = b"CLIENT_ERROR bad command line termination\r\n";
/// The end of an mgdump, and a meta get's miss.
pub const META_END: &[u8] = b"EN\r\n";
pub const DETAIL_USAGE: &[u8] = b"CLIENT_ERROR usage: stats detail on|off|dump\r\n";
pub const BUSY: &[u8] = b"BUSY currently processing crawler request\r\n";
pub const DUMP_NOT_ALLOWED: &[u8] = b"ERROR metadump not allowed\r\n";
pub const KEY_DUMP_NOT_ALLOWED: &[u8] = b"ERROR key dump not allowed\r\n";
pub const CACHEDUMP_NOT_ALLOWED: &[u8] = b"CLIENT_ERROR stats cachedump not allowed\r\n";
pub const DETAIL_NOT_ALLOWED: &[u8] = b"CLIENT_ERROR stats detail not allowed\r\n";
pub const BAD_LINE: &[u8] = b"CLIENT_ERROR bad command line\r\n";
pub const ILLEGAL_CLASS: &[u8] = b"CLIENT_ERROR Illegal slab id\r\n";
pub const WATCH_NOT_ALLOWED: &[u8] = b"CLIENT_ERROR watch commands not allowed\r\n";
pub const TOO_MANY_WATCHERS: &[u8] = b"WATCHER_TOO_MANY log watcher limit reached\r\n";
pub const BAD_CLASS: &[u8] = b"BADCLASS invalid class id\r\n";
pub const UNKNOWN_CRAWLER_ERROR: &[u8] = b"ERROR an unknown error happened\r\n";
pub const WINDOW_BOUNDS: &[u8] = b"CLIENT_ERROR automove window too low or too high\r\n";
pub const SLEEP_TOO_LONG: &[u8] = b"CLIENT_ERROR sleep must be one second or less\r\n";
pub const SHARES_TOO_LARGE: &[u8] = b"ERROR hot and warm pcts must not exceed 80\r\n";
pub const FACTORS_TOO_SMALL: &[u8] = b"ERROR hot/warm age factors must be greater than 0\r\n";
pub const SAME_CLASS: &[u8] = b"SAME src and dst class are identical\r\n";
pub const BAD_CLASSES: &[u8] = b"BADCLASS invalid src or dst class id\r\n";
pub const NO_SPARE_PAGES: &[u8] = b"NOSPARE source class has no spare pages\r\n";
pub const INVALID_FLAG: &[u8] = b"CLIENT_ERROR invalid flag\r\n";
pub const DUPLICATE_FLAG: &[u8] = b"CLIENT_ERROR duplicate flag\r\n";
pub const INVALID_OR_DUPLICATE_FLAG: &[u8] = b"CLIENT_ERROR invalid or duplicate flag\r\n";
pub const BAD_FLAG_NUMBER: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";
pub const BAD_KEY_ENCODING: &[u8] = b"CLIENT_ERROR error decoding key\r\n";
pub const OPAQUE_TOO_LONG: &[u8] = b"CLIENT_ERROR opaque token too long\r\n";
pub const TOO_MANY_FLAGS: &[u8] = b"CLIENT_ERROR options flags are too long\r\n";
pub const SET_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ms M token\r\n";
pub const ARITHMETIC_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ma M token\r\n";
pub const INVALID_INITIAL: &[u8] = b"CLIENT_ERROR invalid numeric initial value\r\n";
pub const INVALID_META_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta value\r\n";
pub const META_NO_OP: &[u8] = b"MN\r\n";

pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
pub const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory\r\n";
pub const OUT_OF_MEMORY_STORING: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
pub const OUT_OF_MEMORY_READING: &[u8] = b"SERVER_ERROR Out of memory during read\r\n";
pub const OUT_OF_MEMORY_WRITING: &[u8] = b"SERVER_ERROR out of memory writing get response\r\n";

pub const MEMORY_LIMIT_TOO_SMALL: &[u8] = b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n";
pub const MEMORY_LIMIT_NOT_MEGABYTES: &[u8] = b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n";
pub const MEMORY_LIMIT_OUT_OF_BOUNDS: &[u8] = b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n";

/// Decimal digits of the largest number.
const DIGITS_MAX: usize = 20;
/// Bytes of the longest end of a value header: three numbers, each behind a space, and the line end.
const HEADER_END_MAX: usize = 3 * (1 + DIGITS_MAX) + LINE_END.len();

/// `VALUE key flags length[ cas]` and its line end; the data and [`LINE_END`] follow.
#[inline]
pub fn value_header(out: &mut Vec<u8>, key: &[u8], flags: u32, length: usize, cas: Option<u64>) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    // From its last byte on: where a number ends is known, and where it begins is not.
    let mut end = [b' '; HEADER_END_MAX];
    let mut start = HEADER_END_MAX - LINE_END.len();
    end[start..].copy_from_slice(LINE_END);
    if let Some(cas) = cas {
        start = number_before(&mut end, start, cas) - 1;
    }
    start = number_before(&mut end, start, length as u64) - 1;
    start = number_before(&mut end, start, u64::from(flags)) - 1;
    out.extend_from_slice(&end[start..]);
}

/// The new value after incr or decr.
pub fn number_line(out: &mut Vec<u8>, value: u64) {
    number(out, value);
    out.extend_from_slice(LINE_END);
}

/// `VERSION x.y.z`.
pub fn version(out: &mut Vec<u8>, version: &str) {
    out.extend_from_slice(b"VERSION ");
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(LINE_END);
}

/// `STAT name value`.
pub fn stat(out: &mut Vec<u8>, name: &str, value: impl std::fmt::Display) {
    use std::io::Write;
    write!(out, "STAT {name} {value}\r\n").expect("a Vec takes all that is written to it");
}

/// A flag of a meta answer: a space and its letter; its number or text follows.
#[inline]
pub fn meta_flag(out: &mut Vec<u8>, letter: u8) {
    out.extend_from_slice(&[b' ', letter]);
}

/// The flag k with a key, in base64 and with the flag b if the key was given so.
pub fn meta_key(out: &mut Vec<u8>, key: &[u8], is_base64: bool) {
    meta_flag(out, b'k');
    if is_base64 {
        crate::encoding::base64_encode(out, key);
        meta_flag(out, b'b');
    } else {
        out.extend_from_slice(key);
    }
}

/// A decimal number.
#[inline]
pub fn number(out: &mut Vec<u8>, value: u64) {
    if value < 10 {
        out.push(b'0' + value as u8);
        return;
    }
    let mut digits = [0; DIGITS_MAX];
    let start = number_before(&mut digits, DIGITS_MAX, value);
    out.extend_from_slice(&digits[start..]);
}

/// Writes a decimal number that ends before `end`. Returns where it begins.
#[inline(always)]
fn number_before(bytes: &mut [u8], mut end: usize, mut value: u64) -> usize {
    loop {
        end -= 1;
        bytes[end] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_plain_decimal() {
        for value in [0, 1, 9, 10, 99, 100, 4096, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            number(&mut out, value);
            assert_eq!(out, value.to_string().into_bytes());
        }
    }

    #[test]
    fn value_headers_carry_the_token_only_when_asked() {
        let mut out = Vec::new();
        value_header(&mut out, b"k", 7, 12, None);
        value_header(&mut out, b"k", 0, 0, Some(42));
        assert_eq!(out, b"VALUE k 7 12\r\nVALUE k 0 0 42\r\n");
        out.clear();
        value_header(&mut out, b"k", u32::MAX, usize::MAX, Some(u64::MAX));
        assert_eq!(out, format!("VALUE k {} {} {}\r\n", u32::MAX, usize::MAX, u64::MAX).into_bytes());
    }
}
