//! The end of a publication in an open segment: its stripe is released before the index grows.

use crate::chains::{HeldOpen, Reservation};
use crate::segment::Segments;

/// A stripe that is held while an item is published.
pub trait HeldStripe {
    /// Ends the hold after the publication, or after one that has changed nothing.
    fn release(self, segments: &Segments, is_published: bool);
}

impl HeldStripe for Reservation<'_> {
    #[inline(always)]
    fn release(self, segments: &Segments, is_published: bool) {
        if is_published {
            self.commit(segments);
        }
    }
}

impl HeldStripe for HeldOpen<'_> {
    fn release(self, _segments: &Segments, _is_published: bool) {}
}
