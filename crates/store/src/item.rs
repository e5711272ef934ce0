//! An item as it lies in a segment: five bytes, then the data, packed byte to byte, little-endian.
//!
//! ```text
//! byte  0      1      2      3           4        5
//!     +------+---------------------------+--------+----------------+-----+-------+
//!     | klen | vlen:20 flags:1 kind:2 0:1 | expiry | client flags   | key | value |
//!     |  u8  |            u24            |   u8   | u32, if flags=1|     |       |
//!     +------+---------------------------+--------+----------------+-----+-------+
//! ```
//! `expiry` counts units of the segment's shift from the segment's origin: see `segment::Header`. `vlen` counts the bytes
//! of the value part as it lies here, which by kind is
//! ```text
//! plain     the client's bytes
//! numeric   16 bytes: printed width u8, filler, an 8-aligned u64 (its place depends on the address), filler
//! chained   total length u32, first body segment u32, then the last bytes of the value: its tail
//! ```
//! A chained value is longer than a segment allows: its first bytes fill body segments of its own, linked by their headers.
//! Published bytes never change, except the word of a numeric item, which is atomic and written under the bucket lock.

use crate::arena::Arena;
use crate::segment::{Location, SegmentId};
use crate::sync::Ordering;

/// Bytes of metadata in front of every item.
pub const ITEM_HEADER_BYTES: u32 = 5;
/// Bytes that client flags other than zero take.
const CLIENT_FLAGS_BYTES: u32 = 4;
/// Bytes of the value part of a numeric item.
pub const NUMERIC_BYTES: u32 = 16;
/// Bytes in front of the tail of a chained item.
pub const CHAINED_PREFIX_BYTES: u32 = 8;
/// The longest key.
pub const KEY_LIMIT: usize = u8::MAX as usize;

const VALUE_LENGTH_BITS: u32 = 20;
const FLAGS_BIT: u32 = 1 << 20;
const KIND_SHIFT: u32 = 21;

/// What the value part of an item holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain = 0,
    Numeric = 1,
    Chained = 2,
}

/// The decoded first five bytes of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemHeader {
    pub key_length: u8,
    /// Bytes of the value part in the segment.
    pub value_length: u32,
    pub has_flags: bool,
    pub kind: Kind,
    /// Units of the segment's shift since the segment's origin.
    pub expiry: u8,
}

impl ItemHeader {
    pub fn encode(self) -> [u8; ITEM_HEADER_BYTES as usize] {
        assert!(self.value_length < 1 << VALUE_LENGTH_BITS, "a value part of {} bytes", self.value_length);
        let word = self.value_length | if self.has_flags { FLAGS_BIT } else { 0 } | (self.kind as u32) << KIND_SHIFT;
        let [low, middle, high, _] = word.to_le_bytes();
        [self.key_length, low, middle, high, self.expiry]
    }

    #[inline(always)]
    pub fn decode(word: u32, expiry: u8) -> Self {
        let [key_length, ..] = word.to_le_bytes();
        let rest = word >> 8;
        let kind = match rest >> KIND_SHIFT {
            0 => Kind::Plain,
            1 => Kind::Numeric,
            2 => Kind::Chained,
            other => panic!("an item of kind {other}: the segment's bytes are damaged"),
        };
        Self {
            key_length,
            value_length: rest & ((1 << VALUE_LENGTH_BITS) - 1),
            has_flags: rest & FLAGS_BIT != 0,
            kind,
            expiry,
        }
    }

    /// Bytes from the item's start to its key.
    #[inline(always)]
    pub fn key_offset(self) -> u32 {
        ITEM_HEADER_BYTES + if self.has_flags { CLIENT_FLAGS_BYTES } else { 0 }
    }

    #[inline(always)]
    pub fn value_offset(self) -> u32 {
        self.key_offset() + u32::from(self.key_length)
    }

    /// Bytes that the item takes in its segment.
    #[inline(always)]
    pub fn size(self) -> u32 {
        self.value_offset() + self.value_length
    }
}

/// An item at its place, with its header decoded.
#[derive(Clone, Copy, Debug)]
pub struct ItemAt {
    pub at: Location,
    pub header: ItemHeader,
}

/// The value part of a chained item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chained {
    /// Bytes of the whole value.
    pub total: u32,
    pub first_body: SegmentId,
}

impl ItemAt {
    /// # Safety
    /// An item must be published at `at` and stay so while the answer is used (see `Arena::slice`).
    #[inline(always)]
    pub unsafe fn read(arena: &Arena, at: Location) -> Self {
        // SAFETY: the caller's.
        let (word, expiry) = unsafe { arena.header_words(at) };
        Self { at, header: ItemHeader::decode(word, expiry) }
    }

    pub fn value_at(self) -> Location {
        self.at.plus(self.header.value_offset())
    }

    pub fn key_at(self) -> Location {
        self.at.plus(self.header.key_offset())
    }

    /// # Safety
    /// As `read`.
    #[inline(always)]
    pub unsafe fn has_key(self, arena: &Arena, key: &[u8]) -> bool {
        // SAFETY: the caller's.
        usize::from(self.header.key_length) == key.len() && unsafe { arena.equals(self.key_at(), key) }
    }

    /// # Safety
    /// As `read`.
    pub unsafe fn flags(self, arena: &Arena) -> u32 {
        if !self.header.has_flags {
            return 0;
        }
        // SAFETY: the caller's; flags follow the header.
        let bytes = unsafe { arena.slice(self.at.plus(ITEM_HEADER_BYTES), CLIENT_FLAGS_BYTES as usize) };
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    /// # Safety
    /// As `read`, of a chained item.
    pub unsafe fn chained(self, arena: &Arena) -> Chained {
        debug_assert_eq!(self.header.kind, Kind::Chained);
        // SAFETY: the caller's; a chained value part begins with its prefix.
        let bytes = unsafe { arena.slice(self.value_at(), CHAINED_PREFIX_BYTES as usize) };
        let word = |from: usize| u32::from_le_bytes([bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]]);
        Chained { total: word(0), first_body: SegmentId::new(word(4)) }
    }

    /// Where the tail of a chained item lies, and its bytes.
    pub fn tail(self) -> (Location, u32) {
        (self.value_at().plus(CHAINED_PREFIX_BYTES), self.header.value_length - CHAINED_PREFIX_BYTES)
    }

    /// The number in a numeric item and the width in which it prints.
    ///
    /// # Safety
    /// As `read`, of a numeric item.
    pub unsafe fn number(self, arena: &Arena) -> (u64, u8) {
        debug_assert_eq!(self.header.kind, Kind::Numeric);
        // SAFETY: the caller's; the width never changes, the word is atomic.
        unsafe {
            let width = arena.slice(self.value_at(), 1)[0];
            // Pairs with the Release in `set_number`, though nothing else hangs on it.
            (arena.word(number_word(self.value_at())).load(Ordering::Acquire), width)
        }
    }

    /// # Safety
    /// As `number`, by the holder of the item's bucket lock or its unpublished owner.
    pub unsafe fn set_number(self, arena: &Arena, number: u64) {
        // SAFETY: the caller's. Pairs with the Acquire in `number`.
        unsafe { arena.word(number_word(self.value_at())).store(number, Ordering::Release) }
    }
}

/// The aligned word within the value part of a numeric item.
pub fn number_word(value: Location) -> Location {
    let offset = (value.offset() + 1).next_multiple_of(8);
    Location::new(value.segment(), offset)
}

/// The decimal number at the start of a value, as memcached 1.6 reads it with strtoull: spaces, a sign, digits, then the
/// end or a space, after which anything may follow.
pub fn parse_number(value: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| matches!(byte, b' ' | 0x09..=0x0D);
    let start = value.iter().position(|byte| !is_space(byte)).unwrap_or(value.len());
    let (negative, digits) = match &value[start..] {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 || digits.get(count).is_some_and(|byte| !is_space(byte)) {
        return None;
    }
    let number: u64 = std::str::from_utf8(&digits[..count]).ok()?.parse().ok()?;
    (!negative || number == 0).then_some(number)
}

/// The longest decimal number.
pub const NUMBER_TEXT_BYTES: usize = 20;

/// A number as text of at least `width` bytes, filled with spaces.
pub fn print_number(number: u64, width: u8, out: &mut [u8; NUMBER_TEXT_BYTES]) -> usize {
    let mut digits = [0u8; NUMBER_TEXT_BYTES];
    let mut start = NUMBER_TEXT_BYTES;
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let length = NUMBER_TEXT_BYTES - start;
    out[..length].copy_from_slice(&digits[start..]);
    let width = usize::from(width).clamp(length, NUMBER_TEXT_BYTES);
    out[length..width].fill(b' ');
    width
}

/// Bytes that `number` prints as.
pub fn number_digits(number: u64) -> u8 {
    number.checked_ilog10().unwrap_or(0) as u8 + 1
}

const _: () = assert!(ITEM_HEADER_BYTES == 5);
const _: () = assert!(1 + 7 + 8 <= NUMERIC_BYTES);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn header_bytes_are_as_drawn() {
        let header =
            ItemHeader { key_length: 3, value_length: 0xABCDE, has_flags: true, kind: Kind::Chained, expiry: 200 };
        let bytes = header.encode();
        assert_eq!(bytes, [3, 0xDE, 0xBC, 0x5A, 200]);
        let decoded = ItemHeader::decode(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]), bytes[4]);
        assert_eq!(decoded, header);
        assert_eq!(decoded.size(), 5 + 4 + 3 + 0xABCDE);
    }

    #[test]
    fn numbers_are_read_as_memcached_reads_them() {
        for (value, number) in [
            (&b"007"[..], 7),
            (b"9 ", 9),
            (b"18446744073709551615", u64::MAX),
            (b"0000000000000000000000012", 12),
            (b" 12 ", 12),
            (b"+5", 5),
            (b"1\nab", 1),
            (b"12 abc", 12),
        ] {
            assert_eq!(parse_number(value), Some(number), "{value:?}");
        }
        for bad in [&b""[..], b" ", b" abc", b"-1", b"1a", b"1.0", b"a", b"18446744073709551616"] {
            assert_eq!(parse_number(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn numbers_print_in_their_width() {
        let mut out = [0; NUMBER_TEXT_BYTES];
        let mut text = |number, width| {
            let length = print_number(number, width, &mut out);
            out[..length].to_vec()
        };
        assert_eq!(text(0, 0), b"0");
        assert_eq!(text(9, 2), b"9 ");
        assert_eq!(text(u64::MAX, 1), b"18446744073709551615");
        for number in [0, 9, 10, 99, 100, u64::MAX] {
            assert_eq!(usize::from(number_digits(number)), number.to_string().len());
        }
    }

    #[test]
    fn the_word_of_a_number_is_aligned_and_inside() {
        for offset in 0..64 {
            let value = Location::new(SegmentId::new(1), offset);
            let word = number_word(value).offset();
            assert!(word.is_multiple_of(8) && word > offset && word + 8 <= offset + NUMERIC_BYTES);
        }
    }
}
