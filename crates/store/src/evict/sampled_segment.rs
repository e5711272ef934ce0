//! The view of a segment by which policies choose.

use crate::segment::SegmentId;

/// A sampled segment, as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledSegment {
    pub segment: SegmentId,
    /// The age of its items: the lower, the older (see `Header::stamp`).
    pub stamp: u64,
    pub live_items: u32,
    /// Bytes of its live items, the bodies of long values included.
    pub live_bytes: u64,
    pub latest_expiry_seconds: u64,
    /// Evictions that its items have survived.
    pub rounds: u8,
}
