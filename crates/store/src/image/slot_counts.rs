//! Counts the slots of an image by segment, without a look at an item.
//!
//! A slot must name a place in the bytes in use of a segment of items, and a segment must have as many slots as live
//! items. So no slot leads outside the bytes that the image describes. Whether an item begins at the place is shown by
//! `checked`, or follows where the bytes were not written to since the save.

use super::checked::SegmentRecord;
use crate::index::Slot;
use crate::segment::{Segments, State};

/// A segment of items. Zeros stand for any other one: no slot names a place in it.
#[derive(Clone, Copy, Default)]
struct Counted {
    length: u32,
    slots: u32,
}

/// Entry `i` is the segment of number `i`.
pub(super) struct SlotCounts(Vec<Counted>);

impl SlotCounts {
    pub fn new(records: &[SegmentRecord]) -> Self {
        let last = records.iter().map(|record| record.segment.number()).max().unwrap_or(0);
        let mut segments = vec![Counted::default(); last as usize + 1];
        for record in records.iter().filter(|record| record.state == State::Sealed) {
            segments[record.segment.number() as usize].length = record.length;
        }
        Self(segments)
    }

    /// Counts a slot. False if it names no place that an item could have.
    pub fn count(&mut self, slot: Slot) -> bool {
        let at = slot.location();
        match self.0.get_mut(at.segment_number() as usize) {
            Some(segment) if at.offset() < segment.length => {
                segment.slots += 1;
                true
            }
            _ => false,
        }
    }

    /// Whether each segment has as many slots as live items.
    pub fn are_live(&self, segments: &Segments, records: &[SegmentRecord]) -> bool {
        let slots = |record: &SegmentRecord| self.0[record.segment.number() as usize].slots;
        records.iter().all(|record| segments.header(record.segment).live_items() == slots(record))
    }
}
