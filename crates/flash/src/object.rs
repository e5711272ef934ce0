//! Objects on flash. An object is found by a permanent hash of its key, and returned only if its whole key matches.

use crate::device::Buffer;
use std::fmt;
use std::ops::Range;
use twox_hash::XxHash3_64;

/// The number of the first incarnation of the pool `default`. Formats on flash name an incarnation in two bytes, and
/// readers treat an object of another one as another key.
pub(crate) const FIRST_POOL: u16 = 0;

/// XXH3 of a key, 64 bits, with the salt of an incarnation of its pool as the seed: a part of the formats on flash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlashHash(pub u64);

impl FlashHash {
    /// The hash of a key of number 0, whose salt is 0.
    pub fn of(key: &[u8]) -> Self {
        Self::salted(key, 0)
    }

    pub fn salted(key: &[u8], salt: u64) -> Self {
        Self(XxHash3_64::oneshot_with_seed(salt, key))
    }
}

impl fmt::Debug for FlashHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyHash({:016x})", self.0)
    }
}

/// A key of 1 to 250 bytes, with its hash and the number of the incarnation of its pool.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    pub hash: FlashHash,
    pub pool: u16,
}

impl<'a> Key<'a> {
    /// A key of number 0.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, hash: FlashHash::of(bytes), pool: FIRST_POOL }
    }

    pub fn salted(bytes: &'a [u8], pool: u16, salt: u64) -> Self {
        Self { bytes, hash: FlashHash::salted(bytes, salt), pool }
    }
}

/// An object on its way to flash.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    pub key: Key<'a>,
    /// The parts of the value, in order.
    pub value: &'a [&'a [u8]],
    /// Opaque: returned unchanged, like the bit that follows.
    pub client_flags: u32,
    /// Whether the flags are an annotation of the cache, and not a client's.
    pub is_annotated: bool,
    /// Seconds since 1970 at which it expires; 0 for never.
    pub expiry: u32,
}

impl Object<'_> {
    pub fn value_bytes(&self) -> usize {
        self.value.iter().map(|part| part.len()).sum()
    }

    /// Whether the object expires, and has.
    pub fn is_expired(&self, now: u32) -> bool {
        has_expired(self.expiry, now)
    }
}

/// Whether an expiry has been reached; 0 never is.
pub(crate) fn has_expired(expiry: u32, now: u32) -> bool {
    expiry != 0 && expiry <= now
}

/// Identifies one version of an object while it is on flash: another version, or the same one written elsewhere, has
/// another token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u64);

/// An object that was found. Its checksum and its key were checked.
#[derive(Debug)]
pub struct FlashHit {
    pub(crate) buffer: Buffer,
    pub(crate) value: Range<usize>,
    /// Bytes of the whole value, also of a lookup of a range.
    pub value_bytes: u64,
    pub client_flags: u32,
    /// Whether the flags are an annotation of the cache, and not a client's.
    pub is_annotated: bool,
    /// Seconds since 1970 at which it expires; 0 for never.
    pub expiry: u32,
    pub token: Token,
}

impl FlashHit {
    /// The value; for a lookup of a range, the bytes of the range.
    pub fn value(&self) -> &[u8] {
        &self.buffer[self.value.clone()]
    }

    /// This hit with a range of its value.
    pub(crate) fn with_range(self, range: ByteRange) -> Self {
        let part = range.within(self.value.len());
        let begin = self.value.start;
        Self { value: begin + part.start..begin + part.end, ..self }
    }
}

/// A range of a value: `length` bytes from `offset` on, or fewer if the value ends before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    pub offset: u64,
    pub length: u64,
}

impl ByteRange {
    /// The bytes that a value of this length has in the range.
    pub fn within(self, value_bytes: usize) -> Range<usize> {
        let end = self.offset.saturating_add(self.length).min(value_bytes as u64);
        self.offset.min(value_bytes as u64) as usize..end as usize
    }
}

/// An object that a walk visits. Its key is the one on flash, and its version is the one that a lookup would have found
/// a moment ago.
#[derive(Clone, Copy, Debug)]
pub struct ScannedObject<'a> {
    pub key: Key<'a>,
    /// `None` if it would need a read of its own, and values are not wanted.
    pub value: Option<&'a [u8]>,
    pub value_bytes: u64,
    pub client_flags: u32,
    /// Whether the flags are an annotation of the cache, and not a client's.
    pub is_annotated: bool,
    /// Seconds since 1970 at which it expires; 0 for never.
    pub expiry: u32,
}

/// The content that a walk reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanContent {
    /// Keys, and values that are read with them. Values longer than a piece of the walk are not read, and their
    /// checksums are not verified.
    Keys,
    /// All values.
    Values,
}

/// Whether objects that a walk cannot read stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// They stay, and later reads may find them.
    Kept,
    /// They are given up: no lookup finds them any more.
    GivenUp,
}

/// The immediate answer of a lookup.
#[derive(Debug)]
pub enum FlashLookup {
    /// The object is absent. The completion is not called.
    Absent,
    /// The object was in RAM. The completion is not called.
    Found(FlashHit),
    /// The completion will be called, or has been.
    Reading,
}

/// Called once with what a lookup found, on whichever thread completes the read. It must not block.
pub type OnLookup = Box<dyn FnOnce(Option<FlashHit>) + Send>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_key_never_changes() {
        assert_eq!(FlashHash::of(b"").0, 0x2d06_8005_38d3_94c2);
        assert_eq!(FlashHash::of(b"ebbtide").0, 2_445_092_342_771_660_794);
    }

    #[test]
    fn a_range_ends_with_its_value() {
        let within = |offset, length| ByteRange { offset, length }.within(100);
        assert_eq!([within(0, 10), within(90, 20), within(100, 1)], [0..10, 90..100, 100..100]);
        assert_eq!([within(u64::MAX, u64::MAX), within(5, u64::MAX), within(7, 0)], [100..100, 5..100, 7..7]);
    }

    #[test]
    fn what_never_expires_does_not() {
        assert!(!has_expired(0, u32::MAX));
        assert!(!has_expired(11, 10));
        assert!(has_expired(10, 10));
    }
}
