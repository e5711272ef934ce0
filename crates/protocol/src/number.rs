//! Decimal arguments. One rule for all of them: digits only, within the limits of the type, `None` otherwise. Numbers
//! that may be negative take a minus sign. No sign, blank or other byte is accepted beside that, and nothing wraps
//! around.

/// An unsigned 64-bit argument.
pub fn unsigned64(token: &[u8]) -> Option<u64> {
    let append = |value: u64, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    };
    if token.is_empty() { None } else { token.iter().try_fold(0, append) }
}

/// An unsigned 32-bit argument.
pub fn unsigned32(token: &[u8]) -> Option<u32> {
    unsigned64(token)?.try_into().ok()
}

/// A signed 32-bit argument.
pub fn signed32(token: &[u8]) -> Option<i32> {
    let digits = token.strip_prefix(b"-");
    let magnitude = i64::try_from(unsigned64(digits.unwrap_or(token))?).ok()?;
    i32::try_from(if digits.is_some() { -magnitude } else { magnitude }).ok()
}

/// The exptime of a storage command: a signed 32-bit argument, or its bits as an unsigned one, as which libmemcached
/// sends negative times.
pub fn exptime32(token: &[u8]) -> Option<i32> {
    signed32(token).or_else(|| unsigned32(token).map(u32::cast_signed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens that no type of number accepts.
    const REFUSED: [&[u8]; 16] = [
        b"", b"+", b"-", b"+7", b" 7", b"7 ", b"\t7", b"7\t", b"7\r", b"7x", b"x", b"--1", b"-+1", b"1.0", b"0x10",
        b"7\0",
    ];

    #[test]
    fn unsigned_numbers_are_digits_within_limits() {
        assert_eq!(unsigned64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned64(b"18446744073709551616"), None);
        assert_eq!(unsigned64(b"007"), Some(7));
        assert_eq!(unsigned32(b"4294967295"), Some(u32::MAX));
        for token in [&b"4294967296"[..], b"4294967297", b"18446744073709551616", b"18446744073709551617"] {
            assert_eq!(unsigned32(token), None, "{}", token.escape_ascii());
        }
        let negative = [&b"-0"[..], b"-1", b"-9223372036854775809", b"-18446744073709551615"];
        for token in REFUSED.into_iter().chain(negative) {
            assert_eq!((unsigned64(token), unsigned32(token)), (None, None), "{}", token.escape_ascii());
        }
    }

    #[test]
    fn an_exptime_may_be_sent_as_unsigned() {
        let read = |token: &[u8]| exptime32(token);
        assert_eq!([read(b"4294967295"), read(b"2147483648"), read(b"-1")], [Some(-1), Some(i32::MIN), Some(-1)]);
        assert_eq!((read(b"60"), read(b"4294967296"), read(b"+1")), (Some(60), None, None));
    }

    #[test]
    fn signed_numbers_are_digits_within_limits() {
        assert_eq!((signed32(b"2147483647"), signed32(b"-2147483648")), (Some(i32::MAX), Some(i32::MIN)));
        assert_eq!((signed32(b"-0"), signed32(b"-1")), (Some(0), Some(-1)));
        let large =
            [&b"2147483648"[..], b"-2147483649", b"4294967295", b"9223372036854775807", b"-9223372036854775808"];
        for token in REFUSED.into_iter().chain(large).chain([&b"-18446744073709551615"[..]]) {
            assert_eq!(signed32(token), None, "{}", token.escape_ascii());
        }
    }
}
