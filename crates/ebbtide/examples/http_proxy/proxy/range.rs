//! The `Range` header: RFC 9110, section 14.

use std::ops::Range;

/// The part of an object that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Whole,
    Part(Range<u64>),
    /// The range begins after the end of the object.
    Unsatisfiable,
}

/// A header that asks for several ranges, or is not understood, asks for the whole object: HTTP allows this.
pub fn asked(header: Option<&str>, length: u64) -> Asked {
    let Some(range) = header.and_then(|header| header.trim().strip_prefix("bytes=")) else { return Asked::Whole };
    let Some((first, last)) = range.split_once('-') else { return Asked::Whole };
    let (first, last) = (first.trim(), last.trim());
    if first.is_empty() {
        return match last.parse::<u64>() {
            Ok(0) => Asked::Unsatisfiable,
            Ok(_) if length == 0 => Asked::Unsatisfiable,
            Ok(suffix) => Asked::Part(length.saturating_sub(suffix)..length),
            Err(_) => Asked::Whole,
        };
    }
    let last = if last.is_empty() { Ok(u64::MAX) } else { last.parse::<u64>() };
    match (first.parse::<u64>(), last) {
        (Ok(first), Ok(last)) if first > last => Asked::Whole,
        (Ok(first), Ok(_)) if first >= length => Asked::Unsatisfiable,
        (Ok(first), Ok(last)) => Asked::Part(first..length.min(last.saturating_add(1))),
        _ => Asked::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_standard_says() {
        for (header, length, expected) in [
            ("bytes=0-0", 10, Asked::Part(0..1)),
            ("bytes=2-5", 10, Asked::Part(2..6)),
            ("bytes=2-", 10, Asked::Part(2..10)),
            ("bytes=2-99", 10, Asked::Part(2..10)),
            ("bytes=-3", 10, Asked::Part(7..10)),
            ("bytes=-99", 10, Asked::Part(0..10)),
            ("bytes=-0", 10, Asked::Unsatisfiable),
            ("bytes=10-", 10, Asked::Unsatisfiable),
            ("bytes=0-", 0, Asked::Unsatisfiable),
            ("bytes=-1", 0, Asked::Unsatisfiable),
            ("bytes=18446744073709551615-", 10, Asked::Unsatisfiable),
            ("bytes=0-18446744073709551615", 10, Asked::Part(0..10)),
            ("bytes=5-2", 10, Asked::Whole),
            ("bytes=0-1,3-4", 10, Asked::Whole),
            ("bytes=x-1", 10, Asked::Whole),
            ("bytes=99999999999999999999-", 10, Asked::Whole),
            ("lines=1-2", 10, Asked::Whole),
        ] {
            assert_eq!(asked(Some(header), length), expected, "{header} of {length}");
        }
        assert_eq!(asked(None, 10), Asked::Whole);
    }
}
