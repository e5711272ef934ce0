//! The header of an item in one word, and its fields: the bytes are drawn in `item.rs`.

/// Bytes of metadata in front of every item.
pub const ITEM_HEADER_BYTES: u32 = 5;
/// Bytes of nonzero client flags.
pub(crate) const CLIENT_FLAGS_BYTES: u32 = 4;
const VALUE_LENGTH_BITS: u32 = 20;
/// The longest value part of an item.
pub const VALUE_PART_BYTES_MAX: u32 = (1 << VALUE_LENGTH_BITS) - 1;
const FLAGS_BIT: u32 = 1 << 20;
const KIND_SHIFT: u32 = 21;
const KIND_MASK: u32 = 3;
/// Of the kinds whose values change in place.
const CHANGES_BIT: u32 = 1 << KIND_SHIFT;
const EXTENDED_BIT: u32 = 1 << 23;
/// The lengths of an exact expiry, as bits of the length of an extension: the byte and the token are none of them.
pub(crate) const EXACT_BYTES_MASK: u8 = 6;
const VALUE_LENGTH_SHIFT: u32 = 8;
const EXPIRY_SHIFT: u32 = 32;
const EXTENSION_SHIFT: u32 = 40;

/// The content of the value part of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain = 0,
    Numeric = 1,
    Chained = 2,
    Structured = 3,
}

/// The first five bytes of an item as they are in the segment, and the length of its extension. One word, which stays
/// in a register.
///
/// ```text
///  63  48 47              40 39    32 31             8 7     0
/// +------+------------------+--------+----------------+-------+
/// |  0   | extension length | expiry | vlen and bits  | klen  |
/// +------+------------------+--------+----------------+-------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ItemHeader(u64);

impl std::fmt::Debug for ItemHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ItemHeader")
            .field("kind", &self.kind())
            .field("key_length", &self.key_length())
            .field("value_length", &self.value_length())
            .field("has_flags", &self.has_flags())
            .field("expiry", &self.expiry())
            .field("extension_length", &self.extension_length())
            .finish()
    }
}

impl ItemHeader {
    /// `lengths` are those of key, value part and extension.
    #[inline(always)]
    pub fn new(kind: Kind, lengths: (u8, u32, u8), has_flags: bool, expiry: u8) -> Self {
        let (key_length, value_length, extension_length) = lengths;
        assert!(value_length <= VALUE_PART_BYTES_MAX, "a value part of {value_length} bytes");
        let rest = value_length
            | if has_flags { FLAGS_BIT } else { 0 }
            | (kind as u32) << KIND_SHIFT
            | if extension_length > 0 { EXTENDED_BIT } else { 0 };
        Self::of_words(rest << VALUE_LENGTH_SHIFT | u32::from(key_length), expiry).with_extension(extension_length)
    }

    /// The header of an item that begins with these bytes, and has no extension.
    #[inline(always)]
    pub(crate) fn of_words(word: u32, expiry: u8) -> Self {
        Self(u64::from(expiry) << EXPIRY_SHIFT | u64::from(word))
    }

    #[inline(always)]
    pub(crate) fn with_extension(self, length: u8) -> Self {
        Self(self.0 | u64::from(length) << EXTENSION_SHIFT)
    }

    /// The header with another expiry.
    pub fn with_expiry(self, expiry: u8) -> Self {
        Self(self.0 & !(0xFF << EXPIRY_SHIFT) | u64::from(expiry) << EXPIRY_SHIFT)
    }

    /// The first five bytes.
    #[inline(always)]
    pub fn encode(self) -> [u8; ITEM_HEADER_BYTES as usize] {
        let [key_length, low, middle, high, expiry, ..] = self.0.to_le_bytes();
        [key_length, low, middle, high, expiry]
    }

    #[inline(always)]
    pub fn key_length(self) -> u8 {
        self.0 as u8
    }

    /// The upper 24 bits of the first four bytes: the length of the value part, and what `item.rs` draws beside it.
    #[inline(always)]
    fn rest(self) -> u32 {
        self.0 as u32 >> VALUE_LENGTH_SHIFT
    }

    /// Bytes of the value part in the segment.
    #[inline(always)]
    pub fn value_length(self) -> u32 {
        self.rest() & VALUE_PART_BYTES_MAX
    }

    #[inline(always)]
    pub fn has_flags(self) -> bool {
        self.rest() & FLAGS_BIT != 0
    }

    #[inline(always)]
    pub fn kind(self) -> Kind {
        match self.rest() >> KIND_SHIFT & KIND_MASK {
            0 => Kind::Plain,
            1 => Kind::Numeric,
            2 => Kind::Chained,
            _ => Kind::Structured,
        }
    }

    #[inline(always)]
    pub fn is_plain(self) -> bool {
        self.rest() & KIND_MASK << KIND_SHIFT == 0
    }

    /// Whether the value changes without a new item.
    #[inline(always)]
    pub fn changes_in_place(self) -> bool {
        self.rest() & CHANGES_BIT != 0
    }

    /// Whether there is an extension, of which the first five bytes do not say the length.
    #[inline(always)]
    pub(crate) fn is_extended(self) -> bool {
        self.rest() & EXTENDED_BIT != 0
    }

    /// Units of the segment's shift since the segment's origin.
    #[inline(always)]
    pub fn expiry(self) -> u8 {
        (self.0 >> EXPIRY_SHIFT) as u8
    }

    /// Bytes of the extension; 0 if there is none.
    #[inline(always)]
    pub fn extension_length(self) -> u8 {
        (self.0 >> EXTENSION_SHIFT) as u8
    }

    /// Bytes from the start of the item to its extension, or to where it would be.
    #[inline(always)]
    pub(crate) fn extension_offset(self) -> u32 {
        ITEM_HEADER_BYTES + if self.has_flags() { CLIENT_FLAGS_BYTES } else { 0 }
    }

    /// Bytes from the item's start to its key.
    #[inline(always)]
    pub fn key_offset(self) -> u32 {
        self.extension_offset() + u32::from(self.extension_length())
    }

    /// Bytes of the exact expiry, which ends the extension; 0 if there is none.
    #[inline(always)]
    pub fn exact_bytes(self) -> u8 {
        self.extension_length() & EXACT_BYTES_MASK
    }

    #[inline(always)]
    pub fn value_offset(self) -> u32 {
        self.key_offset() + u32::from(self.key_length())
    }

    /// Bytes of the item in its segment.
    #[inline(always)]
    pub fn size(self) -> u32 {
        self.value_offset() + self.value_length()
    }
}

const _: () = assert!(ITEM_HEADER_BYTES == 5);
const _: () =
    assert!(8 << VALUE_LENGTH_BITS == 1 << 23 && EXTENDED_BIT == 1 << 23 && KIND_MASK << KIND_SHIFT == 3 << 21);
const _: () = assert!(Kind::Numeric as u32 & Kind::Structured as u32 & 1 == 1);
const _: () = assert!((Kind::Plain as u32 | Kind::Chained as u32) & 1 == 0);
