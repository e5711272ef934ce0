//! The list of sealed segments in which nothing lives any more, so that a choice finds them without a look at all segments.
//!
//! A stack, linked through the headers. Whoever takes the last item out of a sealed segment pushes it, with a bucket locked
//! perhaps, so there is no mutex; so does whoever seals a segment that is empty by then. Only one thread pops at a time. A segment
//! is in it once at most (`is_listed`). It may have been emptied by somebody else, and have another life, when it is popped: an
//! entry says where to look, not what is there.

use super::{SegmentId, Segments};
use crate::sync::{AtomicU32, Ordering};

/// The segment on top, as a link.
#[derive(Default)]
pub struct DeadStack(AtomicU32);

impl Segments {
    /// The owner of an open segment is done with it.
    pub fn seal(&self, segment: SegmentId) {
        if self.header(segment).seal() {
            self.note_dead(segment);
        }
    }

    /// The last item of a sealed segment is gone.
    pub fn note_dead(&self, segment: SegmentId) {
        let header = self.header(segment);
        // AcqRel pairs with the swap in `take_dead`: if the segment is listed, it is looked at after this.
        if header.is_listed().swap(true, Ordering::AcqRel) {
            return;
        }
        let push = |top| {
            header.dead_link().store(top, Ordering::Relaxed);
            Some(segment.number())
        };
        // Release pairs with the Acquire in `take_dead`: the link. It ends: a failed try is a push or a pop of another thread.
        let _ = self.dead.0.fetch_update(Ordering::Release, Ordering::Relaxed, push);
    }

    /// A segment in which nothing lived at some time since it was listed. Only one thread may call this at a time.
    pub fn take_dead(&self) -> Option<SegmentId> {
        let top = &self.dead.0;
        // Nobody else pops, so what is on top stays in the stack until this does, and its link stands still.
        let pop = |top| Some(self.header(SegmentId::from_link(top)?).dead_link().load(Ordering::Relaxed));
        // Acquire pairs with the Release in `note_dead`. It ends: a failed try is a push.
        let taken = top.fetch_update(Ordering::Acquire, Ordering::Acquire, pop).ok().map(SegmentId::new)?;
        // AcqRel pairs with the swap in `note_dead`.
        self.header(taken).is_listed().swap(false, Ordering::AcqRel);
        Some(taken)
    }
}
