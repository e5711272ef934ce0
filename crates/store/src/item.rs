//! The format of an item in a segment: five bytes, then the data, packed without gaps, little-endian.
//!
//! ```text
//! byte  0      1      2      3           4        5
//!     +------+---------------------------+--------+----------------+----------------+-----+-------+
//!     | klen | vlen:20 flags:1 kind:2    | expiry | client flags   | extension      | key | value |
//!     |  u8  |        extended:1, u24    |   u8   | u32, if flags=1| if extended=1  |     | vlen  |
//!     +------+---------------------------+--------+----------------+----------------+-----+-------+
//!
//! extension   stale:1 won:1 copied:1 tokened:1 annotated:1 exact:1 long:1 0:1 |
//!             token u64, if tokened=1 | exact expiry, if exact=1: u16, or u32 if long=1
//! ```
//! `expiry` counts units of the segment's shift from the segment's origin: see `segment::Header`. An exact expiry adds
//! what is below a unit: see `segment::ExactExpiry`. `vlen` counts the bytes of the value part in the segment, which
//! is, by kind:
//! ```text
//! plain     the client's bytes
//! numeric   16 bytes: printed width u8, filler, an 8-aligned u64 (its place depends on the address), filler
//! chained   total length u32, first body segment u32, then the last bytes of the value: its tail
//! struct.   filler, an 8-aligned commit word, the content, spare bytes: drawn in `structured.rs`
//! ```
//! A chained value is longer than a segment: its first bytes fill body segments, linked by their headers. Published
//! bytes never change, except the word of a numeric item and the words of a structured one, which are atomic and
//! written under the bucket lock.

use crate::arena::Arena;
use crate::flags::Flags;
use crate::item_header::{CLIENT_FLAGS_BYTES, EXACT_BYTES_MASK};
pub use crate::item_header::{ITEM_HEADER_BYTES, ItemHeader, Kind, VALUE_PART_BYTES_MAX};
use crate::segment::{ExactExpiry, Header, Location, SegmentId};
use crate::sync::Ordering;

/// Bytes of the value part of a numeric item.
pub const NUMERIC_BYTES: u32 = 16;
/// Bytes in front of the tail of a chained item.
pub const CHAINED_PREFIX_BYTES: u32 = 8;
/// Where the number of its first body is in the value part.
pub const FIRST_BODY_OFFSET: u32 = 4;
/// The longest key.
pub const KEY_LIMIT: usize = u8::MAX as usize;

/// The largest extension. An item may get one at any time, so items in one piece reserve space for it.
pub const EXTENSION_BYTES_MAX: u32 = 1 + TOKEN_BYTES + ExactExpiry::BYTES_MAX as u32;
const TOKEN_BYTES: u32 = 8;
const STALE_BIT: u8 = 1;
const WON_BIT: u8 = 2;
const COPIED_BIT: u8 = 4;
const TOKENED_BIT: u8 = 8;
const ANNOTATED_BIT: u8 = 16;
const EXACT_BIT: u8 = 32;
/// With `EXACT_BIT` only.
const LONG_BIT: u8 = 64;
/// The first byte of an extension is less.
const EXTENSION_END: u8 = 128;

/// Rare metadata of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extension {
    /// The value is stale; it is served until a client has stored a new one.
    pub stale: bool,
    /// A client was told to store a new value, and no other needs to.
    pub won: bool,
    /// The item was made from a copy in the lower tier and has not changed since.
    pub copied: bool,
    /// The CAS token that a client gave the value, instead of the sequence of the bucket.
    pub token: Option<u64>,
}

impl Extension {
    /// Bytes of the extension in the segment, of an item with such flags and such an expiry.
    #[inline(always)]
    pub(crate) fn length(self, flags: Flags, exact: Option<ExactExpiry>) -> u8 {
        let token = if self.token.is_some() { TOKEN_BYTES as u8 } else { 0 };
        match token + exact.map_or(0, ExactExpiry::bytes) {
            0 => (self.stale || self.won || self.copied || flags.is_annotation()).into(),
            fields => 1 + fields,
        }
    }

    /// The encoded extension; only the first `length` bytes are used.
    fn encode(self, flags: Flags, exact: Option<ExactExpiry>) -> [u8; EXTENSION_BYTES_MAX as usize] {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let mut bytes = [0; EXTENSION_BYTES_MAX as usize];
        bytes[0] = bit(self.stale, STALE_BIT)
            | bit(self.won, WON_BIT)
            | bit(self.copied, COPIED_BIT)
            | bit(flags.is_annotation(), ANNOTATED_BIT)
            | bit(self.token.is_some(), TOKENED_BIT)
            | bit(exact.is_some(), EXACT_BIT)
            | bit(exact.is_some_and(|exact| exact.bytes() == ExactExpiry::BYTES_MAX), LONG_BIT);
        let mut fields = &mut bytes[1..];
        if let Some(token) = self.token {
            fields[..TOKEN_BYTES as usize].copy_from_slice(&token.to_le_bytes());
            fields = &mut fields[TOKEN_BYTES as usize..];
        }
        if let Some(exact) = exact {
            fields[..ExactExpiry::BYTES_MAX.into()].copy_from_slice(&exact.encode());
        }
        bytes
    }
}

/// Bytes of an extension that begins with this byte; `None` if none does.
fn length_of_extension(bits: u8) -> Option<u8> {
    let has = |bit: u8| bits & bit != 0;
    let is_sound = (1..EXTENSION_END).contains(&bits) && (has(EXACT_BIT) || !has(LONG_BIT));
    let token = if has(TOKENED_BIT) { TOKEN_BYTES as u8 } else { 0 };
    let exact = match (has(EXACT_BIT), has(LONG_BIT)) {
        (false, _) => 0,
        (true, false) => ExactExpiry::SHORT_BYTES,
        (true, true) => ExactExpiry::BYTES_MAX,
    };
    is_sound.then_some(1 + token + exact)
}

/// Optional fields of an item between its header and its key.
pub(crate) type Metadata = (Flags, Extension, Option<ExactExpiry>);

/// An item at its location, with its header decoded.
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
        let header = ItemHeader::of_words(word, expiry);
        if header.is_extended() {
            // SAFETY: the caller's.
            return Self { at, header: header.with_extension(unsafe { Self::extension_length(arena, at, header) }) };
        }
        Self { at, header }
    }

    /// Reads an item of an image, which may be anything. `None` if it is none, or does not end at or before byte `end`
    /// of its segment.
    ///
    /// # Safety
    /// The bytes of the segment up to `end` must be readable as in `Arena::slice`.
    #[cfg(not(loom))]
    pub unsafe fn read_within(arena: &Arena, at: Location, end: u32) -> Option<Self> {
        if at.offset().checked_add(ITEM_HEADER_BYTES)? > end {
            return None;
        }
        // SAFETY: the header ends at or before `end`.
        let (word, _) = unsafe { arena.header_words(at) };
        let header = ItemHeader::of_words(word, 0);
        let extension_end = at.offset() + header.extension_offset() + 1;
        if header.is_extended() {
            if extension_end > end {
                return None;
            }
            // SAFETY: the byte is before `end`.
            let bits = unsafe { arena.slice(at.plus(header.extension_offset()), 1)[0] };
            let is_annotated = bits & ANNOTATED_BIT != 0;
            if length_of_extension(bits).is_none() || is_annotated && !header.has_flags() {
                return None;
            }
        }
        // SAFETY: the bytes that it decodes are before `end`, and have values that it knows.
        let item = unsafe { Self::read(arena, at) };
        let header = &item.header;
        let has_length = match header.kind() {
            Kind::Plain => true,
            Kind::Numeric => header.value_length() == NUMERIC_BYTES,
            Kind::Chained => header.value_length() >= CHAINED_PREFIX_BYTES,
            Kind::Structured => true,
        };
        let is_item = header.key_length() > 0 && has_length && at.offset() + header.size() <= end;
        // SAFETY: the item ends at or before `end`.
        let is_sound = || header.kind() != Kind::Structured || unsafe { item.is_sound(arena) };
        (is_item && is_sound()).then_some(item)
    }

    /// # Safety
    /// As `read`, of an item with an extension.
    #[cold]
    unsafe fn extension_length(arena: &Arena, at: Location, header: ItemHeader) -> u8 {
        // SAFETY: the caller's.
        let bits = unsafe { arena.slice(at.plus(header.extension_offset()), 1)[0] };
        length_of_extension(bits)
            .unwrap_or_else(|| panic!("an extension of {bits:#x}: the segment's bytes are damaged"))
    }

    /// The second in which the item expires; `None` for never. `segment` is the header of its segment.
    ///
    /// # Safety
    /// As `read`.
    #[inline(always)]
    pub unsafe fn expiry_seconds(self, arena: &Arena, segment: &Header) -> Option<u64> {
        if self.header.exact_bytes() == 0 {
            return segment.earliest_expiry_seconds(self.header.expiry());
        }
        // SAFETY: the caller's.
        segment.expiry_seconds(self.header.expiry(), unsafe { self.exact_expiry(arena) })
    }

    /// The location of the exact expiry, or where it would be.
    fn exact_at(self) -> Location {
        self.at.plus(self.header.key_offset() - u32::from(self.header.exact_bytes()))
    }

    /// # Safety
    /// As `read`.
    #[cold]
    unsafe fn exact_expiry(self, arena: &Arena) -> Option<ExactExpiry> {
        // SAFETY: the caller's.
        ExactExpiry::decode(unsafe { arena.slice(self.exact_at(), self.header.exact_bytes().into()) })
    }

    /// # Safety
    /// As `read`.
    #[inline(always)]
    pub unsafe fn extension(self, arena: &Arena) -> Extension {
        if self.header.extension_length() == 0 {
            return Extension::default();
        }
        // SAFETY: the caller's.
        unsafe { self.present_extension(arena) }
    }

    /// # Safety
    /// As `read`, of an item with an extension.
    #[cold]
    unsafe fn present_extension(self, arena: &Arena) -> Extension {
        let at = self.at.plus(self.header.extension_offset());
        // SAFETY: the caller's.
        let bytes = unsafe { arena.slice(at, self.header.extension_length().into()) };
        let has = |bit: u8| bytes[0] & bit != 0;
        let token = bytes[1..].first_chunk().filter(|_| has(TOKENED_BIT)).map(|token| u64::from_le_bytes(*token));
        Extension { stale: has(STALE_BIT), won: has(WON_BIT), copied: has(COPIED_BIT), token }
    }

    /// # Safety
    /// As `read`.
    pub unsafe fn metadata(self, arena: &Arena) -> Metadata {
        // SAFETY: the caller's.
        unsafe { (self.flags(arena), self.extension(arena), self.exact_expiry(arena)) }
    }

    /// Writes the part in front of the value: header, client flags, extension, key.
    ///
    /// # Safety
    /// The caller must own the unpublished range of the item.
    #[inline(always)]
    pub unsafe fn write_head(self, arena: &Arena, metadata: Metadata, key: &[u8]) {
        let (Self { at, header }, (flags, extension, exact)) = (self, metadata);
        debug_assert_eq!(header.has_flags(), flags.is_present());
        debug_assert_eq!(header.extension_length(), extension.length(flags, exact));
        // SAFETY: the caller's.
        unsafe {
            arena.write(at, &header.encode());
            if header.has_flags() {
                arena.write(at.plus(ITEM_HEADER_BYTES), &flags.to_parts().0.to_le_bytes());
            }
            if header.extension_length() > 0 {
                self.write_extension(arena, metadata);
            }
            arena.write(at.plus(header.key_offset()), key);
        }
    }

    /// # Safety
    /// As `write_head`.
    #[cold]
    unsafe fn write_extension(self, arena: &Arena, (flags, extension, exact): Metadata) {
        let bytes = extension.encode(flags, exact);
        let at = self.at.plus(self.header.extension_offset());
        // SAFETY: the caller's.
        unsafe { arena.write(at, &bytes[..self.header.extension_length().into()]) };
    }

    /// Gives an item another expiry, exact if the present one is.
    ///
    /// # Safety
    /// As `write_head`.
    pub unsafe fn write_expiry(self, arena: &Arena, expiry: u8, exact: Option<ExactExpiry>) {
        debug_assert_eq!(self.header.exact_bytes(), exact.map_or(0, ExactExpiry::bytes));
        // SAFETY: the caller's.
        unsafe { arena.write(self.at.plus(ITEM_HEADER_BYTES - 1), &[expiry]) };
        if let Some(exact) = exact {
            // SAFETY: the caller's.
            unsafe { arena.write(self.exact_at(), &exact.encode()[..exact.bytes().into()]) };
        }
    }

    #[inline(always)]
    pub fn value_at(self) -> Location {
        self.at.plus(self.header.value_offset())
    }

    /// # Safety
    /// As `read`.
    #[inline(always)]
    pub unsafe fn key<'a>(self, arena: &Arena) -> &'a [u8] {
        // SAFETY: the caller's.
        unsafe { arena.slice_behind(self.at, self.header.key_offset(), self.header.key_length().into()) }
    }

    /// The value part.
    ///
    /// # Safety
    /// As `read`, of an item that does not change in place.
    #[inline(always)]
    pub unsafe fn value<'a>(self, arena: &Arena) -> &'a [u8] {
        // SAFETY: the caller's.
        unsafe { arena.slice_behind(self.at, self.header.value_offset(), self.header.value_length() as usize) }
    }

    /// # Safety
    /// As `read`.
    #[inline(always)]
    pub unsafe fn has_key(self, arena: &Arena, key: &[u8]) -> bool {
        // SAFETY: the caller's.
        usize::from(self.header.key_length()) == key.len() && unsafe { self.key(arena) == key }
    }

    /// # Safety
    /// As `read`.
    #[inline]
    pub unsafe fn flags(self, arena: &Arena) -> Flags {
        if !self.header.has_flags() {
            return Flags::default();
        }
        // SAFETY: the caller's; flags follow the header.
        let bytes = unsafe { arena.slice(self.at.plus(ITEM_HEADER_BYTES), CLIENT_FLAGS_BYTES as usize) };
        let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let is_extended = self.header.extension_length() > 0;
        // SAFETY: the caller's; an extension follows the flags.
        Flags::from_parts(word, is_extended && unsafe { self.is_annotated(arena) })
    }

    /// # Safety
    /// As `read`, of an item with an extension.
    #[cold]
    unsafe fn is_annotated(self, arena: &Arena) -> bool {
        // SAFETY: the caller's.
        let bits = unsafe { arena.slice(self.at.plus(self.header.extension_offset()), 1)[0] };
        bits & ANNOTATED_BIT != 0
    }

    /// # Safety
    /// As `read`, of a chained item.
    pub unsafe fn chained(self, arena: &Arena) -> Chained {
        // SAFETY: the caller's.
        let (total, first_body) = unsafe { self.chained_words(arena) };
        Chained { total, first_body: SegmentId::new(first_body) }
    }

    /// The bytes of the whole value, and the number of its first body, which may be any in an item of an image.
    ///
    /// # Safety
    /// As `chained`.
    pub unsafe fn chained_words(self, arena: &Arena) -> (u32, u32) {
        debug_assert_eq!(self.header.kind(), Kind::Chained);
        // SAFETY: the caller's; a chained value part begins with its prefix.
        let bytes = unsafe { arena.slice(self.value_at(), CHAINED_PREFIX_BYTES as usize) };
        let word = |from: usize| u32::from_le_bytes([bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]]);
        (word(0), word(4))
    }

    /// The location of the tail of a chained item, and its bytes.
    pub fn tail(self) -> (Location, u32) {
        (self.value_at().plus(CHAINED_PREFIX_BYTES), self.header.value_length() - CHAINED_PREFIX_BYTES)
    }

    /// The number in a numeric item and its printed width.
    ///
    /// # Safety
    /// As `read`, of a numeric item.
    pub unsafe fn number(self, arena: &Arena) -> (u64, u8) {
        debug_assert_eq!(self.header.kind(), Kind::Numeric);
        // SAFETY: the caller's; the width never changes, the word is atomic.
        unsafe {
            let width = arena.slice(self.value_at(), 1)[0];
            // Pairs with the Release in `set_number`, though nothing else depends on it.
            (arena.word(number_word(self.value_at())).load(Ordering::Acquire), width)
        }
    }

    /// The atomic word of an item that changes in place: as long as it is the same, so is the value.
    ///
    /// # Safety
    /// As `read`, of an item whose kind changes in place.
    pub unsafe fn changing_word(self, arena: &Arena) -> u64 {
        // SAFETY: the caller's.
        unsafe {
            match self.header.kind() {
                Kind::Numeric => self.number(arena).0,
                _ => self.commit(arena),
            }
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

/// The decimal number at the start of a value, as memcached 1.6 parses it with strtoull: spaces, a sign, digits, then
/// the end, a NUL or a space. Anything may follow.
pub fn parse_number(value: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| matches!(byte, b' ' | 0x09..=0x0D);
    let start = value.iter().position(|byte| !is_space(byte)).unwrap_or(value.len());
    let (negative, digits) = match &value[start..] {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 || digits.get(count).is_some_and(|byte| *byte != 0 && !is_space(byte)) {
        return None;
    }
    let number: u64 = std::str::from_utf8(&digits[..count]).ok()?.parse().ok()?;
    (!negative || number == 0).then_some(number)
}

/// The length of the longest decimal number.
pub const NUMBER_TEXT_BYTES: usize = 20;

/// A number as text of at least `width` bytes, padded with spaces.
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

/// Digits of `number`.
pub fn number_digits(number: u64) -> u8 {
    number.checked_ilog10().unwrap_or(0) as u8 + 1
}

const _: () = assert!(EXTENSION_END == 2 * LONG_BIT && EXACT_BIT == 2 * ANNOTATED_BIT && TOKENED_BIT < ANNOTATED_BIT);
const _: () = assert!(ExactExpiry::SHORT_BYTES | ExactExpiry::BYTES_MAX == EXACT_BYTES_MASK);
const _: () = assert!((1 + TOKEN_BYTES as u8) & EXACT_BYTES_MASK == 0 && 1 & EXACT_BYTES_MASK == 0);
const _: () = assert!(1 + 7 + 8 <= NUMERIC_BYTES);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn header(kind: Kind, extension: Extension) -> ItemHeader {
        let extension_length = extension.length(Flags::default(), None);
        ItemHeader::new(kind, (3, 0xABCDE, extension_length), true, 200)
    }

    #[test]
    fn header_bytes_are_as_drawn() {
        let header = header(Kind::Chained, Extension::default());
        let bytes = header.encode();
        assert_eq!(bytes, [3, 0xDE, 0xBC, 0x5A, 200]);
        let fields = (header.key_length(), header.value_length(), header.has_flags(), header.kind(), header.expiry());
        assert_eq!(fields, (3, 0xABCDE, true, Kind::Chained, 200));
        assert!(!header.is_extended());
        assert_eq!(header.size(), 5 + 4 + 3 + 0xABCDE);
    }

    #[test]
    fn extensions_are_as_drawn() {
        let arena = Arena::new(crate::frames::Frames::reserve(4096).unwrap(), 4096);
        let at = Location::new(SegmentId::new(1), 100);
        let all = Extension { stale: true, won: true, copied: false, token: Some(0x0102) };
        let (client, annotation) = (Flags::from(0x0A0B0C0D), Flags::annotation(0x0A0B0C0D));
        let none = Extension::default();
        let (short, long) = (ExactExpiry::new(8600, 5), ExactExpiry::new(0x0504_0302, 17));
        for (extension, flags, exact, drawn) in [
            (none, client, None, &[][..]),
            (Extension { stale: true, ..none }, client, None, &[1]),
            (Extension { won: true, ..none }, client, None, &[2]),
            (Extension { copied: true, ..none }, client, None, &[4]),
            (Extension { token: Some(0), ..none }, client, None, &[8, 0, 0, 0, 0, 0, 0, 0, 0]),
            (all, client, None, &[11, 2, 1, 0, 0, 0, 0, 0, 0]),
            (none, annotation, None, &[16]),
            (all, annotation, None, &[27, 2, 1, 0, 0, 0, 0, 0, 0]),
            (none, client, short, &[32, 0x98, 0x21]),
            (none, annotation, long, &[112, 2, 3, 4, 5]),
            (Extension { copied: true, ..none }, client, short, &[36, 0x98, 0x21]),
            (all, client, short, &[43, 2, 1, 0, 0, 0, 0, 0, 0, 0x98, 0x21]),
            (all, annotation, long, &[123, 2, 1, 0, 0, 0, 0, 0, 0, 2, 3, 4, 5]),
        ] {
            let extension_length = extension.length(flags, exact);
            let header = ItemHeader::new(Kind::Plain, (3, 2, extension_length), true, 200);
            // SAFETY: no other thread has the arena.
            let (bytes, item) = unsafe {
                ItemAt { at, header }.write_head(&arena, (flags, extension, exact), b"key");
                (arena.slice(at, header.value_offset() as usize), ItemAt::read(&arena, at))
            };
            let extended = if drawn.is_empty() { 0x10 } else { 0x90 };
            let expected = [&[3, 2, 0, extended, 200, 0x0D, 0x0C, 0x0B, 0x0A], drawn, b"key"].concat();
            assert_eq!(bytes, expected);
            assert_eq!(item.header, header);
            // SAFETY: as above.
            assert_eq!(unsafe { item.metadata(&arena) }, (flags, extension, exact));
            // SAFETY: as above.
            let within = unsafe { ItemAt::read_within(&arena, at, at.offset() + header.size()) };
            assert_eq!(within.map(|item| item.header.size()), Some(header.size()));
            // SAFETY: as above.
            assert!(unsafe { item.has_key(&arena, b"key") });
        }
    }

    #[test]
    fn an_extension_begins_with_a_known_byte() {
        for bits in 0..=u8::MAX {
            let is_known = (1..EXTENSION_END).contains(&bits) && bits & 96 != LONG_BIT;
            assert_eq!(length_of_extension(bits).is_some(), is_known, "{bits:#x}");
        }
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
            (b"5\0", 5),
            (b"5\0x", 5),
        ] {
            assert_eq!(parse_number(value), Some(number), "{value:?}");
        }
        for bad in [&b""[..], b" ", b" abc", b"-1", b"1a", b"1.0", b"a", b"18446744073709551616", b"\0", b"\x005"] {
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
    fn a_numbers_word_is_aligned_and_inside() {
        for offset in 0..64 {
            let value = Location::new(SegmentId::new(1), offset);
            let word = number_word(value).offset();
            assert!(word.is_multiple_of(8) && word > offset && word + 8 <= offset + NUMERIC_BYTES);
        }
    }
}
