//! Segments: fixed blocks of memory that items are appended to, and that are emptied as a whole.

mod ahead;
mod dead_stack;
mod exact_expiry;
mod frame_list;
mod header;
mod life;
mod limit;
mod state;

pub use exact_expiry::ExactExpiry;
#[cfg(not(loom))]
pub use header::HeaderWords;
pub use header::{Header, NO_EXPIRY, STAMP_SHIFT};
pub use life::{Purpose, SHORT_SHARE, Segments, reserve, reserve_max};
pub use state::State;

use std::num::NonZeroU32;

/// Bits of a segment's number in a slot.
const SEGMENT_BITS: u32 = 23;
/// Bits of an offset within a segment.
const OFFSET_BITS: u32 = 21;
/// The largest size of a segment in the options.
pub const SEGMENT_SIZE_MAX: u32 = 1 << 20;
/// The smallest size of a segment in the options.
pub const SEGMENT_SIZE_MIN: u32 = 4 << 10;
/// A segment is longer than its size by this part of it, for keys and headers.
const SIZE_PART: u32 = 64;
/// The largest number of segments.
pub const SEGMENTS_MAX: u32 = (1 << SEGMENT_BITS) - 1;

/// Bytes of a segment of this size (see `Options::segment_size`).
pub const fn bytes_for(size: u32) -> u32 {
    size + size / SIZE_PART
}

const _: () = assert!(bytes_for(SEGMENT_SIZE_MAX) < 1 << OFFSET_BITS);

/// The number of a segment, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(NonZeroU32);

impl SegmentId {
    #[inline(always)]
    pub fn new(number: u32) -> Self {
        Self(NonZeroU32::new(number).expect("segments are numbered from 1"))
    }

    /// A link in a header or a word: 0 is none.
    pub fn from_link(link: u32) -> Option<Self> {
        NonZeroU32::new(link).map(Self)
    }

    #[inline(always)]
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// The index in a table.
    #[inline(always)]
    pub fn index(self) -> usize {
        self.number() as usize - 1
    }
}

/// The address of an item: a segment and the offset of a byte in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location(u64);

impl std::fmt::Debug for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{}", self.0 >> OFFSET_BITS, self.offset())
    }
}

impl Location {
    #[inline(always)]
    pub fn new(segment: SegmentId, offset: u32) -> Self {
        debug_assert!(offset < 1 << OFFSET_BITS);
        Self(u64::from(segment.number()) << OFFSET_BITS | u64::from(offset))
    }

    #[inline(always)]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline(always)]
    pub fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub fn segment(self) -> SegmentId {
        SegmentId::new(self.segment_number())
    }

    /// The number of the segment; 0, which no segment has, only in bits from outside.
    #[inline(always)]
    pub fn segment_number(self) -> u32 {
        (self.0 >> OFFSET_BITS) as u32
    }

    #[inline(always)]
    pub fn offset(self) -> u32 {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as u32
    }

    /// The byte `bytes` further on in the same segment, at most the end of the segment.
    #[inline(always)]
    pub fn plus(self, bytes: u32) -> Self {
        Self::new(self.segment(), self.offset() + bytes)
    }
}
