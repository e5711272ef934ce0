//! Values of flags. Surrounding blanks are dropped, because container charts pass `-m 64` as one argument; what
//! remains must be a number to the last character (memcached's atoi takes `abc` for 0).

use std::ops::RangeInclusive;

use crate::error::Error;
use ebbtide_server::ebbtide::Objective;

/// A decimal number within `range`.
pub fn number(flag: &str, text: &str, range: RangeInclusive<u64>) -> Result<u64, Error> {
    let text = text.trim();
    match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(Error::Limit(format!("{flag} {text}: give a number from {} to {}", range.start(), range.end()))),
    }
}

/// Bytes, with an optional k, m, g, t or p.
pub fn size(flag: &str, text: &str) -> Result<u64, Error> {
    let text = text.trim();
    bytes(text).map_err(|why| Error::Limit(format!("{flag} {text}: {why}")))
}

/// Bytes of a size, or the reason of its refusal.
pub fn bytes(text: &str) -> Result<u64, &'static str> {
    let text = text.trim();
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        Some((at, 't' | 'T')) => (&text[..at], 40),
        Some((at, 'p' | 'P')) => (&text[..at], 50),
        _ => (text, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err("give a number of bytes, or one with k, m, g, t or p");
    }
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or("the size is too large; give less than 16384p")
}

/// Megabytes for a plain number, as `-m` takes it; with m or g as it says.
pub fn megabytes(flag: &str, text: &str) -> Result<u64, Error> {
    let text = text.trim();
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty();
    let suffixed = text.ends_with(['m', 'M', 'g', 'G']);
    match size(flag, &if plain { format!("{text}m") } else { text.to_owned() }) {
        Ok(bytes) if plain || suffixed => Ok(bytes),
        _ => Err(Error::Limit(format!("{flag} {text}: give a number of megabytes"))),
    }
}

/// A printable character that a key can hold.
pub fn character(flag: &str, text: &str) -> Result<u8, Error> {
    match text.as_bytes() {
        [byte] if byte.is_ascii_graphic() => Ok(*byte),
        _ => Err(Error::Limit(format!("{flag} {text}: give one character"))),
    }
}

/// The mode of a unix socket.
pub fn octal(flag: &str, text: &str) -> Result<u32, Error> {
    let text = text.trim();
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(Error::Limit(format!("{flag} {text}: give an octal mode from 0 to 777"))),
    }
}

/// The objective of a server.
pub fn objective(text: &str) -> Result<Objective, String> {
    match text.parse() {
        Ok(Objective::Cost) => {
            Err("clients give no costs of entries; choose objects or bytes. A program that embeds the \
                                    cache gives them, and a pool has hit_value"
                .to_owned())
        }
        Ok(objective) => Ok(objective),
        Err(error) => Err(error.to_string()),
    }
}

/// The absolute form of a path. If there is none the path is returned unchanged, and opening it reports the reason.
pub fn absolute(path: &std::path::PathBuf) -> std::path::PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(number("-p", " 12 ", 1..=65535), Ok(12));
        for bad in ["", "12x", "-1", "65536", "0"] {
            assert!(number("-p", bad, 1..=65535).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("-I", "1k"), Ok(1024));
        assert_eq!(size("-I", "2M"), Ok(2 << 20));
        assert_eq!(size("-I", "1048576"), Ok(1 << 20));
        assert_eq!((size("--flash", "2T"), size("--flash", "1p")), (Ok(2 << 40), Ok(1 << 50)));
        for bad in ["", "k", "1kb", "-1k", "99999999999999g"] {
            assert!(size("-I", bad).is_err(), "{bad}");
        }
        for large in ["99999999t", "16777216t", "18446744073709551616"] {
            assert!(size("--flash", large).unwrap_err().to_string().contains("is too large"), "{large}");
        }
        assert_eq!(megabytes("-m", " 64"), Ok(64 << 20));
        assert_eq!(megabytes("-m", "1g"), Ok(1 << 30));
        assert!(megabytes("-m", "64k").is_err());
        assert!(megabytes("-m", "").is_err());
    }

    #[test]
    fn modes() {
        assert_eq!(octal("-a", "0766"), Ok(0o766));
        for bad in ["8", "1777", "x"] {
            assert!(octal("-a", bad).is_err(), "{bad}");
        }
    }
}
