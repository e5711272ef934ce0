//! The list of sealed segments without a live item, so that a choice finds them without reading all headers.
//!
//! ```text
//! top -> segment -> segment -> 0        linked through `Header::dead_link`
//! ```
//! A lock-free stack: the thread that unlinks the last item of a sealed segment pushes the segment, possibly while it
//! holds a bucket lock, and so does the thread that seals an empty one. Only one thread pops at a time. A segment is
//! listed at most once (`Header::is_listed`). An entry is a hint: the segment may have been emptied and reused since it
//! was pushed.

use super::{Header, SegmentId};
use crate::sync::{AtomicU32, Ordering};

/// The segment on top, as a link.
#[derive(Default)]
pub struct DeadStack(AtomicU32);

impl DeadStack {
    /// Lists a segment, unless it is listed. `header` is its header.
    pub fn push(&self, segment: SegmentId, header: &Header) {
        // AcqRel pairs with the swap in `pop`: if the segment is listed, it is looked at after this.
        if header.is_listed().swap(true, Ordering::AcqRel) {
            return;
        }
        let push = |top| {
            header.dead_link().store(top, Ordering::Relaxed);
            Some(segment.number())
        };
        // Release pairs with the Acquire in `pop`: the link. Ends: a failed try is a push or a pop of another thread.
        let _ = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, push);
    }

    /// Takes the segment on top. Only one thread may call this at a time.
    pub fn pop<'h>(&self, header: impl Fn(SegmentId) -> &'h Header) -> Option<SegmentId> {
        // No other thread pops, so the segment on top stays in the stack until this takes it, and its link does not
        // change.
        let pop = |top| Some(header(SegmentId::from_link(top)?).dead_link().load(Ordering::Relaxed));
        // Acquire pairs with the Release in `push`. Ends: a failed try is a push.
        let taken = self.0.fetch_update(Ordering::Acquire, Ordering::Acquire, pop).ok().map(SegmentId::new)?;
        // AcqRel pairs with the swap in `push`.
        header(taken).is_listed().swap(false, Ordering::AcqRel);
        Some(taken)
    }
}
