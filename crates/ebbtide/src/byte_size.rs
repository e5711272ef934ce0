//! Numbers of bytes.

use std::fmt;
use std::str::FromStr;

/// A number of bytes. More than 2^64 - 1 of them are that many.
///
/// ```
/// use ebbtide::ByteSize;
///
/// assert_eq!(ByteSize::mib(64), ByteSize::bytes(64 << 20));
/// assert_eq!("64m".parse(), Ok(ByteSize::mib(64)));
/// assert_eq!(ByteSize::mib(64).to_string(), "64 MiB");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

impl ByteSize {
    pub const fn bytes(count: u64) -> Self {
        Self(count)
    }

    pub const fn kib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 10))
    }

    pub const fn mib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 20))
    }

    pub const fn gib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 30))
    }

    pub const fn as_bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            n if n >= 1 << 30 => (1u64 << 30, "GiB"),
            n if n >= 1 << 20 => (1 << 20, "MiB"),
            n if n >= 1 << 10 => (1 << 10, "KiB"),
            n => return write!(f, "{n} B"),
        };
        if self.0.is_multiple_of(unit) {
            write!(f, "{} {name}", self.0 / unit)
        } else {
            write!(f, "{:.1} {name}", self.0 as f64 / unit as f64)
        }
    }
}

/// Why a text is not a number of bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a size: write a whole number of bytes, or one with k, m, g or t, as in 64m")]
pub struct NotASize {
    text: String,
}

impl FromStr for ByteSize {
    type Err = NotASize;

    /// `4096`, `64k`, `64m`, `4g`, `1t`; in powers of 1024, in either case, a `b` or `ib` after the letter allowed.
    fn from_str(text: &str) -> Result<Self, NotASize> {
        let refuse = || NotASize { text: text.into() };
        let lower = text.trim().to_ascii_lowercase();
        let digits = lower.bytes().take_while(u8::is_ascii_digit).count();
        let shift = match lower[digits..].trim_start().trim_end_matches('b').trim_end_matches('i') {
            "" => 0,
            "k" => 10,
            "m" => 20,
            "g" => 30,
            "t" => 40,
            _ => return Err(refuse()),
        };
        let count: u64 = lower[..digits].parse().map_err(|_| refuse())?;
        count.checked_mul(1 << shift).map(Self).ok_or_else(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::ByteSize;

    #[test]
    fn sizes_beyond_all_memory_are_the_largest() {
        let largest = ByteSize::bytes(u64::MAX);
        assert_eq!([ByteSize::kib(1 << 54), ByteSize::mib(1 << 44), ByteSize::gib(1 << 34)], [largest; 3]);
        assert_eq!(ByteSize::gib((1 << 34) - 1).as_bytes(), u64::MAX - (1 << 30) + 1);
    }

    #[test]
    fn sizes_are_read_and_shown() {
        let read = |text: &str| text.parse::<ByteSize>();
        assert_eq!(read("64m"), Ok(ByteSize::mib(64)));
        assert_eq!(read(" 4 GiB"), Ok(ByteSize::gib(4)));
        assert_eq!(read("512"), Ok(ByteSize::bytes(512)));
        assert_eq!(read("1kb"), Ok(ByteSize::kib(1)));
        for bad in ["", "m", "-1", "1.5g", "12x", "99999999999t"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert_eq!(ByteSize::mib(64).to_string(), "64 MiB");
        assert_eq!(ByteSize::bytes(1536).to_string(), "1.5 KiB");
    }
}
