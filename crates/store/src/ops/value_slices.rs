//! The pieces of a value that is longer than a segment, or its only one.

use crate::segment::{Location, SegmentId, Segments};
use crate::sync::Ordering;

/// The pieces of a value, from the first.
pub struct ValueSlices<'i> {
    pub(super) segments: &'i Segments,
    /// The next body.
    pub(super) body: Option<SegmentId>,
    /// Bytes of the value in that body and those behind it.
    pub(super) left: u32,
    pub(super) last: Option<&'i [u8]>,
}

impl<'i> Iterator for ValueSlices<'i> {
    type Item = &'i [u8];

    #[inline]
    fn next(&mut self) -> Option<&'i [u8]> {
        let Some(body) = self.body else { return self.last.take() };
        let length = self.left.min(self.segments.segment_bytes());
        self.body = self.segments.next_body(body);
        self.left -= length;
        // SAFETY: the pin of the hit protects the bodies as long as the hit is borrowed.
        Some(unsafe { self.segments.arena.slice(Location::new(body, 0), length as usize) })
    }
}

impl Segments {
    /// The next body of the value.
    pub(crate) fn next_body(&self, body: SegmentId) -> Option<SegmentId> {
        SegmentId::from_link(self.header(body).next.load(Ordering::Relaxed))
    }

    /// Calls `visit` with each body segment of a value with `bytes` in bodies, and the bytes in it.
    pub(crate) fn each_body(&self, first: SegmentId, bytes: u32, mut visit: impl FnMut(SegmentId, u32)) {
        let mut left = bytes;
        let mut at = Some(first);
        while let Some(segment) = at {
            let length = left.min(self.segment_bytes());
            visit(segment, length);
            left -= length;
            at = self.next_body(segment);
        }
        assert_eq!(left, 0, "the bodies of a value hold its bytes");
    }
}
