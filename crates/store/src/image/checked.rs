//! Checks what an image says against the bytes of its segments.
//!
//! ```text
//! segment    checksum over the bytes in use -> in a segment of items: whole items up to the write offset
//! slot       item within its segment -> tag and bucket of its key -> bodies that hold its value
//! ```
//! Nothing is read outside the segments of the image, whatever the bytes are.

use super::checksum;
use crate::hash::KeyHash;
use crate::index::{Slot, Split, Tag};
use crate::item::{ItemAt, Kind};
use crate::segment::{Location, SegmentId, Segments, State};
use std::collections::HashMap;

/// A segment as an image has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentRecord {
    pub segment: SegmentId,
    pub state: State,
    /// Bytes in use.
    pub length: u32,
    pub checksum: u64,
    /// Of a body: the next one, and the hash of its value's key.
    pub next: Option<SegmentId>,
    pub owner_hash: u64,
}

/// The segments of an image, with headers and bytes in place.
pub(super) struct CheckedSegments<'s> {
    pub segments: &'s Segments,
    pub hash: &'s KeyHash,
    pub records: HashMap<SegmentId, SegmentRecord>,
}

impl CheckedSegments<'_> {
    /// Whether the bytes of a segment are those that were saved.
    pub fn is_intact(&self, record: &SegmentRecord) -> bool {
        // SAFETY: the bytes have memory, and nobody changes them.
        let bytes = unsafe { self.segments.arena.slice(Location::new(record.segment, 0), record.length as usize) };
        checksum(record.segment, bytes) == record.checksum
            && (record.state == State::Body || self.has_whole_items(record))
    }

    fn has_whole_items(&self, record: &SegmentRecord) -> bool {
        let mut offset = 0;
        // Ends: an item has at least one byte.
        while offset < record.length {
            let at = Location::new(record.segment, offset);
            // SAFETY: the bytes up to the length have memory, and nobody changes them.
            let item = unsafe { ItemAt::read_within(&self.segments.arena, at, record.length) };
            let Some(item) = item else { return false };
            offset += item.header.size();
        }
        offset == record.length
    }

    /// Announces a call of `fits`.
    pub fn prefetch(&self, slot: Slot) {
        self.segments.arena.prefetch(slot.location());
    }

    /// Whether a slot of a bucket names an item of an intact segment whose key belongs there.
    pub fn fits(&self, slot: Slot, bucket: usize, split: Split) -> bool {
        let Some(segment) = self.segments.checked(slot.location().segment_link()) else { return false };
        let header = self.segments.header(segment);
        if header.state() != State::Sealed {
            return false;
        }
        // SAFETY: as in `has_whole_items`.
        let item = unsafe { ItemAt::read_within(&self.segments.arena, slot.location(), header.write_offset()) };
        let Some(item) = item else { return false };
        // SAFETY: the item is within the bytes of its segment.
        let key = unsafe { self.segments.arena.slice(item.key_at(), item.header.key_length.into()) };
        let hash = self.hash.hash(key);
        let candidates = split.candidates(hash);
        Tag::of(hash) == slot.tag()
            && (candidates.first == bucket || candidates.second == bucket)
            && (item.header.kind != Kind::Chained || self.has_bodies(&item, hash))
    }

    /// Whether the bodies of a value are its own, and as many as its bytes fill.
    fn has_bodies(&self, item: &ItemAt, hash: u64) -> bool {
        // SAFETY: the item is within the bytes of its segment, and has the prefix of a chained one.
        let (total, first) = unsafe { item.chained_words(&self.segments.arena) };
        let tail = item.tail().1;
        let body = |segment: SegmentId| {
            let record = self.records.get(&segment)?;
            (record.state == State::Body && record.owner_hash == hash).then_some(record)
        };
        let bodies =
            std::iter::successors(SegmentId::from_link(first).and_then(body), |record| record.next.and_then(body));
        let wanted = total.saturating_sub(tail).div_ceil(self.segments.segment_bytes()) as usize;
        // Ends: no body is followed by one before it (see `check_bodies` in `load`).
        wanted > 0 && bodies.count() == wanted
    }
}
