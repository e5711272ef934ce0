//! Which segments are in the memory budget.
//!
//! Each segment in the budget has a position from 1 to `limit`. Positions count through the frames of the store in
//! the order of its frame list, so that the last frame is the only one that may be in the budget in part. The budget
//! grows and shrinks at the topmost position: to give back the memory of another frame, that frame is made the last
//! one first.

use super::life::FreeStack;
use super::{Header, SegmentId, Segments, State};
use crate::mapping::Pages;
use crate::sync::{MutexGuard, Ordering, lock};

impl Segments {
    /// The segment at a position from 1 to `limit`.
    #[inline(always)]
    pub fn at_position(&self, position: u32) -> SegmentId {
        self.frames.at_position(position)
    }

    /// Takes `count` more segments into the budget. Returns how many there was address space for.
    pub fn admit(&self, count: u32) -> u32 {
        let mut free = lock(&self.free);
        let limit = self.limit();
        let count = self.frames.extend(limit, count.min(self.max_segments() - limit));
        for position in (limit + 1..=limit + count).rev() {
            self.put(&mut free, self.at_position(position));
        }
        self.limit.store(limit + count, Ordering::Relaxed);
        count
    }

    /// Puts the topmost segment outside the budget, if it is free.
    pub fn dismiss_top(&self) -> bool {
        let mut free = lock(&self.free);
        let limit = self.limit();
        if limit == 0 || free.length <= self.reserve() {
            return false;
        }
        let top = self.at_position(limit);
        if self.header(top).state() != State::Free {
            return false;
        }
        self.unlink_free(&mut free, top);
        self.header(top).pass_to(State::Absent);
        self.lower_limit(free, limit);
        true
    }

    /// Whether a segment stays in the budget when the limit falls to `target`, as far as that is known: of frames that
    /// other stores may have, any but the last one may be chosen next; other frames go in the order of their numbers.
    pub fn stays_within(&self, segment: SegmentId, target: u32, is_shared: bool) -> bool {
        let limit = self.limit();
        if !is_shared || limit == 0 {
            return segment.number() <= target;
        }
        self.frames.position_in_frame_of(limit, segment).is_none_or(|position| position <= target)
    }

    /// As `take` for new data, of this segment. False if it is not free, or only the reserve is.
    pub fn take_free(&self, segment: SegmentId) -> bool {
        let mut free = lock(&self.free);
        free.length > self.reserve() && self.header(segment).state() == State::Free && self.hand_out(&mut free, segment)
    }

    /// The topmost segment in the budget.
    pub fn top(&self) -> Option<SegmentId> {
        Some(self.limit()).filter(|limit| *limit > 0).map(|limit| self.at_position(limit))
    }

    /// Where the topmost segment in the budget is in its life.
    pub fn top_state(&self) -> State {
        self.top().map_or(State::Absent, |top| self.header(top).state())
    }

    /// Takes a free segment out of use in the place of the topmost one, which is not free: its memory may be used
    /// otherwise. `exchange_top` has it back.
    pub fn withhold_free(&self) -> bool {
        let mut free = lock(&self.free);
        if free.length <= self.reserve() {
            return false;
        }
        let segment = SegmentId::new(free.top);
        self.unlink_free(&mut free, segment);
        self.withhold(&mut free, segment);
        true
    }

    /// Takes a segment that has left the free stack out of use.
    pub(super) fn withhold(&self, free: &mut FreeStack, segment: SegmentId) {
        self.header(segment).pass_to(State::Absent);
        free.withheld.push(segment);
        self.withheld_count.store(free.withheld.len() as u32, Ordering::Relaxed);
    }

    /// Gives a store without segments those of an image: all are free. False if the frames are not those of `limit`
    /// segments.
    #[cfg(not(loom))]
    pub fn adopt(&self, frames: &[u32], limit: u32) -> bool {
        let mut free = lock(&self.free);
        if self.limit() != 0 || limit > self.max_segments() || !self.frames.adopt(frames, limit) {
            return false;
        }
        (1..=limit).rev().for_each(|position| self.put(&mut free, self.at_position(position)));
        self.limit.store(limit, Ordering::Relaxed);
        true
    }

    /// The segment of a number that came from elsewhere; `None` if there can be none.
    #[cfg(not(loom))]
    pub fn checked(&self, number: u32) -> Option<SegmentId> {
        SegmentId::from_link(number).filter(|segment| segment.index() < self.headers.length())
    }

    /// Puts the topmost segment outside the budget, if it is free, for one that is withheld, which is free from here
    /// on.
    pub fn exchange_top(&self) -> bool {
        let mut free = lock(&self.free);
        let limit = self.limit();
        let top = self.at_position(limit);
        match free.withheld.iter().position(|segment| *segment == top) {
            Some(position) => drop(free.withheld.swap_remove(position)),
            None if self.header(top).state() == State::Free => {
                let Some(segment) = free.withheld.pop() else { return false };
                self.unlink_free(&mut free, top);
                self.header(top).pass_to(State::Absent);
                self.put(&mut free, segment);
            }
            None => return false,
        }
        self.withheld_count.store(free.withheld.len() as u32, Ordering::Relaxed);
        self.lower_limit(free, limit);
        true
    }

    /// Ends a change in which the topmost segment became absent. Its frame goes back if it was the last one in it.
    fn lower_limit(&self, free: MutexGuard<'_, FreeStack>, limit: u32) {
        let top = self.at_position(limit);
        self.limit.store(limit - 1, Ordering::Relaxed);
        let emptied = self.frames.emptied_at(limit - 1);
        match emptied {
            Some(_) => {
                let place = (limit - 1) >> self.frames.shift();
                self.headers_of_frame(place).for_each(|header| header.has_memory().store(false, Ordering::Relaxed));
            }
            None if self.has_small_pages.load(Ordering::Relaxed) => {
                self.header(top).has_memory().store(false, Ordering::Relaxed);
            }
            None => {}
        }
        drop(free);
        // SAFETY: segments above the limit are absent, so no thread accesses their bytes, and only `admit`, which runs
        // under the same budget lock as this, readmits them.
        unsafe {
            match emptied {
                Some(frame) => self.frames.give_back(frame),
                None if self.has_small_pages.load(Ordering::Relaxed) => self.frames.release_from(top),
                None => {}
            }
        }
    }

    /// Frees up to `count` segments that are withheld. Returns how many.
    pub fn restore_withheld(&self, count: u32) -> u32 {
        let mut free = lock(&self.free);
        let before = free.withheld.len();
        for _ in 0..count {
            let Some(segment) = free.withheld.pop() else { break };
            self.put(&mut free, segment);
        }
        self.withheld_count.store(free.withheld.len() as u32, Ordering::Relaxed);
        (before - free.withheld.len()) as u32
    }

    /// The segments that are withheld, for `verify`.
    pub fn withheld_list(&self) -> Vec<SegmentId> {
        lock(&self.free).withheld.clone()
    }

    /// Frames that are in the budget as a whole, if all are and the last one was not chosen to be emptied: any of
    /// them may be chosen now.
    pub fn frames_to_choose_from(&self) -> u32 {
        self.frames.count_to_choose_from(self.limit())
    }

    /// The headers of the segments of a frame, by the place of the frame in the list.
    pub fn headers_of_frame(&self, place: u32) -> impl Iterator<Item = &Header> {
        self.frames.segments_at(place).map(|segment| self.header(segment))
    }

    /// The numbers of the frames in the budget, by their place in the list.
    pub fn frame_numbers(&self) -> Vec<u32> {
        self.frames.numbers(self.limit())
    }

    /// Makes the frame at this place of the list the last one, which is emptied first. False if a frame is in the
    /// budget in part by now.
    pub fn empty_frame(&self, place: u32) -> bool {
        // Under the lock that guards the limit.
        let _free = lock(&self.free);
        self.frames.make_last(place, self.limit())
    }

    /// Sets the pages with which the system backs the headers. A store on small pages returns the pages of each segment
    /// that leaves the budget, others those of whole frames.
    pub fn advise(&self, pages: Pages) {
        self.headers.advise(pages);
        self.has_small_pages.store(pages == Pages::Small, Ordering::Relaxed);
    }

    /// Asserts that the store has the frames that its positions need, and no other store has them. For `verify`.
    pub fn verify_frames(&self) {
        self.frames.verify(self.limit());
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        // SAFETY: no thread has a reference to the store any more.
        unsafe { self.frames.give_back_all(self.limit()) };
    }
}
