//! Decimal arguments as memcached reads them: with `strtoul` and friends.
//!
//! The number may have leading white space and a sign, and may be followed by white space and anything after that.
//! A negative number read as unsigned wraps around, and is refused only when the result has its top bit set. A
//! number too large for 64 bits is refused; one too large for 32 bits is cut to its low 32 bits.

/// C's `isspace`, of which a token can hold all but the space and the line end.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// The sign (true if negative) and magnitude of the number at the start of `token`.
fn signed_magnitude(token: &[u8]) -> Option<(bool, u64)> {
    let start = token.iter().position(|&b| !is_space(b))?;
    let (negative, digits) = match token[start] {
        b'-' => (true, &token[start + 1..]),
        b'+' => (false, &token[start + 1..]),
        _ => (false, &token[start..]),
    };
    let mut magnitude: u64 = 0;
    let mut length = 0;
    for &byte in digits {
        if !byte.is_ascii_digit() {
            break;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
        length += 1;
    }
    let ends_well = digits.get(length).is_none_or(|&b| is_space(b));
    (length > 0 && ends_well).then_some((negative, magnitude))
}

/// An unsigned 64-bit argument (`safe_strtoull`).
pub fn unsigned64(token: &[u8]) -> Option<u64> {
    let (negative, magnitude) = signed_magnitude(token)?;
    let value = if negative { magnitude.wrapping_neg() } else { magnitude };
    let refused = value >> 63 == 1 && token.contains(&b'-');
    (!refused).then_some(value)
}

/// An unsigned 32-bit argument (`safe_strtoul`): parsed with 64 bits, then cut.
pub fn unsigned32(token: &[u8]) -> Option<u32> {
    unsigned64(token).map(|value| value as u32)
}

/// A signed 32-bit argument (`safe_strtol`): parsed with 64 bits, then cut.
pub fn signed32(token: &[u8]) -> Option<i32> {
    let (negative, magnitude) = signed_magnitude(token)?;
    let limit = i64::MAX as u64 + u64::from(negative);
    (magnitude <= limit).then(|| {
        let value = if negative { magnitude.wrapping_neg() } else { magnitude };
        value as i32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_numbers_follow_strtoul() {
        assert_eq!(unsigned64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned64(b"18446744073709551616"), None);
        assert_eq!(unsigned64(b"+7"), Some(7));
        assert_eq!(unsigned64(b"\t7"), Some(7));
        assert_eq!(unsigned64(b"7\tx"), Some(7));
        assert_eq!(unsigned64(b"7x"), None);
        assert_eq!(unsigned64(b"-1"), None);
        assert_eq!(unsigned64(b"-18446744073709551615"), Some(1));
        assert_eq!(unsigned64(b"18446744073709551615\t-"), None);
        assert_eq!(unsigned64(b""), None);
        assert_eq!(unsigned64(b"+"), None);
        assert_eq!(unsigned32(b"4294967297"), Some(1));
    }

    #[test]
    fn signed_numbers_follow_strtol() {
        assert_eq!(signed32(b"-1"), Some(-1));
        assert_eq!(signed32(b"4294967295"), Some(-1));
        assert_eq!(signed32(b"9223372036854775807"), Some(-1));
        assert_eq!(signed32(b"9223372036854775808"), None);
        assert_eq!(signed32(b"-9223372036854775808"), Some(0));
        assert_eq!(signed32(b"-9223372036854775809"), None);
        assert_eq!(signed32(b"--1"), None);
    }
}
