//! The frames of one store, in the order in which its segments are counted.
//!
//! ```text
//! place      0        1        2                 a frame is a run of segments by number
//! frame      4        0        7                 position 1 is the first segment of frame 4
//!                              ^ the last one, in which fewer segments than all may be in the budget
//! ```
//! The list changes under the lock of the free stack. It is read without: a reader that sees an old entry meets the
//! header of a segment that is absent, as headers are the store's alone.

use super::{SEGMENTS_MAX, SegmentId};
use crate::error::Error;
use crate::frames::{FRAME_BYTES, FrameId, Frames, Owner};
use crate::mapping::{Pages, Table};
use crate::sync::{AtomicU32, Ordering};
use std::sync::Arc;

pub struct FrameList {
    frames: Arc<Frames>,
    owner: Owner,
    /// Entry `i` is the frame at place `i`.
    list: Table<AtomicU32>,
    /// log2 of the segments in a frame.
    shift: u32,
    /// Frames from this number on hold segments that have no number.
    end: u32,
    /// The frame that was chosen to be emptied, plus 1; 0 is none.
    chosen: AtomicU32,
}

impl FrameList {
    pub fn new(frames: Arc<Frames>, segment_bytes: u32) -> Result<Self, Error> {
        let shift = (FRAME_BYTES / segment_bytes as usize).ilog2();
        assert_eq!((segment_bytes as usize) << shift, FRAME_BYTES, "a frame is a power of two of segments");
        let end = frames.count().min(SEGMENTS_MAX >> shift);
        let list = Table::new(end as usize, Pages::Small)?;
        Ok(Self { owner: frames.enrol(), frames, list, shift, end, chosen: AtomicU32::new(0) })
    }

    /// Segments in all frames that the store can address.
    pub fn max_segments(&self) -> u32 {
        self.end << self.shift
    }

    fn frame(&self, place: u32) -> FrameId {
        FrameId(self.list.at(place as usize).load(Ordering::Relaxed))
    }

    fn set_frame(&self, place: u32, frame: FrameId) {
        self.list.at(place as usize).store(frame.0, Ordering::Relaxed);
    }

    fn segment(&self, frame: FrameId, index: u32) -> SegmentId {
        SegmentId::new((frame.0 << self.shift) + index + 1)
    }

    #[inline(always)]
    pub fn at_position(&self, position: u32) -> SegmentId {
        let index = position - 1;
        self.segment(self.frame(index >> self.shift), index & ((1 << self.shift) - 1))
    }

    /// The position of a segment if it is in the frame of this position.
    pub fn position_in_frame_of(&self, position: u32, segment: SegmentId) -> Option<u32> {
        let (place, index) = ((position - 1) >> self.shift, segment.index() as u32);
        let is_there = index >> self.shift == self.frame(place).0;
        is_there.then(|| (place << self.shift) + (index & ((1 << self.shift) - 1)) + 1)
    }

    /// log2 of the segments in a frame.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// The numbers of the frames that the first `positions` positions need, by place.
    pub fn numbers(&self, positions: u32) -> Vec<u32> {
        (0..self.needed(positions)).map(|place| self.frame(place).0).collect()
    }

    /// The segments of the frame at a place.
    pub fn segments_at(&self, place: u32) -> impl Iterator<Item = SegmentId> + use<'_> {
        let frame = self.frame(place);
        (0..1 << self.shift).map(move |index| self.segment(frame, index))
    }

    /// Frames that the first `positions` positions need.
    fn needed(&self, positions: u32) -> u32 {
        positions.div_ceil(1 << self.shift)
    }

    /// Takes the frames that `count` more positions after `limit` need. Returns the number that has frames.
    pub fn extend(&self, limit: u32, count: u32) -> u32 {
        let (before, wanted) = (self.needed(limit), self.needed(limit + count));
        let mut places = before;
        while places < wanted {
            let Some(frame) = self.frames.take(self.owner, self.end) else { break };
            self.set_frame(places, frame);
            places += 1;
        }
        let count = count.min((places << self.shift) - limit);
        self.chosen.store(0, Ordering::Relaxed);
        self.advise(limit, limit + count);
        count
    }

    /// Takes the frames of an image, in this order, for `positions` positions of a store that has none yet. False if
    /// they are not those of the positions, or another store has one of them.
    #[cfg(not(loom))]
    pub fn adopt(&self, frames: &[u32], positions: u32) -> bool {
        if frames.len() != self.needed(positions) as usize || frames.iter().any(|frame| *frame >= self.end) {
            return false;
        }
        if !self.frames.adopt(self.owner, frames) {
            return false;
        }
        (0..).zip(frames).for_each(|(place, frame)| self.set_frame(place, FrameId(*frame)));
        self.advise(0, positions);
        true
    }

    /// Gives a segment memory. False if the file system has none.
    pub fn allocate(&self, segment: SegmentId) -> bool {
        let bytes = FRAME_BYTES >> self.shift;
        self.frames.allocate(segment.index() * bytes, bytes)
    }

    /// Takes the memory of a segment from the system before it is touched.
    #[cfg(not(loom))]
    pub fn populate(&self, segment: SegmentId) {
        let bytes = FRAME_BYTES >> self.shift;
        self.frames.populate(segment.index() * bytes, bytes);
    }

    /// Whether segments need memory of a file.
    pub fn is_in_file(&self) -> bool {
        self.frames.is_in_file()
    }

    /// A frame that is in the budget in part has small pages: a huge one would be resident as a whole.
    #[cfg(not(loom))]
    fn advise(&self, before: u32, limit: u32) {
        let is_whole = |positions: u32| positions.is_multiple_of(1 << self.shift);
        if before == limit {
            return;
        }
        if !is_whole(before) && limit >> self.shift > before >> self.shift {
            self.frames.advise(self.frame(before >> self.shift), Pages::Huge);
        }
        if !is_whole(limit) {
            self.frames.advise(self.frame(limit >> self.shift), Pages::Small);
        }
    }

    #[cfg(loom)]
    fn advise(&self, _before: u32, _limit: u32) {}

    /// The frame in which no segment is in the budget any more, now that the limit has fallen to this position.
    pub fn emptied_at(&self, limit: u32) -> Option<FrameId> {
        limit.is_multiple_of(1 << self.shift).then(|| self.frame(limit >> self.shift))
    }

    /// # Safety
    /// All segments of the frame are absent, and it is not in the list any more.
    pub unsafe fn give_back(&self, frame: FrameId) {
        if self.chosen.load(Ordering::Relaxed) == frame.0 + 1 {
            self.chosen.store(0, Ordering::Relaxed);
        }
        // SAFETY: the caller's: no thread accesses the bytes of an absent segment.
        unsafe { self.frames.give_back(self.owner, frame) };
    }

    /// Returns the pages of a segment and of those behind it in its frame. Small segments share pages with the next
    /// one: pages released before do not count for them.
    ///
    /// # Safety
    /// These segments are absent, the frame is this store's, and no `admit` runs.
    pub unsafe fn release_from(&self, segment: SegmentId) {
        let index = segment.index() as u32;
        let start = (index & ((1 << self.shift) - 1)) as usize * (FRAME_BYTES >> self.shift);
        // SAFETY: the caller's.
        unsafe { self.frames.release(FrameId(index >> self.shift), start, FRAME_BYTES) };
    }

    /// Returns all frames.
    ///
    /// # Safety
    /// No thread uses the store any more.
    pub unsafe fn give_back_all(&self, limit: u32) {
        // The last holder of the address space returns all of it at once.
        let is_shared = self.frames.lent_count() > self.needed(limit) || Arc::strong_count(&self.frames) > 2;
        for place in (0..self.needed(limit)).filter(|_| is_shared) {
            // SAFETY: the caller's.
            unsafe { self.give_back(self.frame(place)) };
        }
    }

    /// How many frames can be chosen to be emptied next: none while one is in the budget in part, or is chosen already.
    pub fn count_to_choose_from(&self, limit: u32) -> u32 {
        let is_whole = limit.is_multiple_of(1 << self.shift);
        if is_whole && self.chosen.load(Ordering::Relaxed) == 0 { limit >> self.shift } else { 0 }
    }

    /// Moves the frame at a place to the end of the list, as the one to be emptied. The caller holds the lock of the
    /// free stack.
    pub fn make_last(&self, place: u32, limit: u32) -> bool {
        let count = self.count_to_choose_from(limit);
        if place >= count {
            return false;
        }
        let (chosen, last) = (self.frame(place), self.frame(count - 1));
        self.set_frame(place, last);
        self.set_frame(count - 1, chosen);
        self.chosen.store(chosen.0 + 1, Ordering::Relaxed);
        true
    }

    pub fn verify(&self, limit: u32) {
        let mut listed: Vec<_> = (0..self.needed(limit)).map(|place| self.frame(place)).collect();
        listed.sort_unstable();
        assert_eq!(listed, self.frames.lent_to(self.owner), "the frames of a store are those that were lent to it");
    }
}
