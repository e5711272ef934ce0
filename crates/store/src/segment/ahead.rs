//! Memory ahead of need: free segments that will soon be taken have their pages before a writer touches them.
//!
//! A page that is touched for the first time is cleared by the system meanwhile: a huge page takes a tenth of a
//! millisecond, on virtual machines up to six. Maintenance takes that time instead of a writer. Only anonymous memory
//! is prepared: the memory of a file is given to each segment under the lock of the free stack.
//!
//! A free segment may leave the budget while its pages are taken. Then up to an unneeded huge page is resident, until
//! another segment uses it.

#[cfg(not(loom))]
use super::SegmentId;
use super::Segments;
use super::life::FreeStack;
use crate::sync::Ordering;
#[cfg(not(loom))]
use crate::sync::lock;

/// This part of the memory in use is prepared, so that a store which holds little takes little more.
const AHEAD_SHARE: u32 = 8;
/// At most two huge pages are: one is written while the other one is cleared.
const AHEAD_BYTES_MAX: u32 = 4 << 20;

impl Segments {
    /// Free segments that shall have memory before they are taken. Models have none.
    fn ahead(&self, free: &FreeStack) -> u32 {
        if self.frames.is_in_file() || cfg!(loom) {
            return 0;
        }
        let used = self.limit().saturating_sub(free.length);
        (used / AHEAD_SHARE).min(AHEAD_BYTES_MAX / self.segment_bytes()).min(free.length)
    }

    /// A segment was taken.
    pub(super) fn note_taken(&self, free: &mut FreeStack) {
        let ahead = self.ahead(free);
        if ahead == 0 {
            return;
        }
        free.prepared = free.prepared.saturating_sub(1);
        if free.prepared < ahead.div_ceil(2) {
            self.wants_pages.store(true, Ordering::Relaxed);
        }
    }

    /// Whether `prepare_pages` has something to look at.
    #[inline(always)]
    pub fn wants_pages(&self) -> bool {
        self.wants_pages.load(Ordering::Relaxed)
    }

    /// Gives one of the free segments that are taken next memory. False if all have it.
    #[cfg(not(loom))]
    pub fn prepare_pages(&self) -> bool {
        let next = self.wants_pages().then(|| self.next_without_memory()).flatten();
        next.iter().for_each(|segment| self.frames.populate(*segment));
        next.is_some()
    }

    #[cfg(loom)]
    pub fn prepare_pages(&self) -> bool {
        false
    }

    /// The first of the free segments that are taken next which has no memory; counts as one that has it from here on.
    #[cfg(not(loom))]
    fn next_without_memory(&self) -> Option<SegmentId> {
        let mut free = lock(&self.free);
        let ahead = self.ahead(&free);
        let below = |segment: &SegmentId| SegmentId::from_link(self.header(*segment).next.load(Ordering::Relaxed));
        let mut segments = std::iter::successors(SegmentId::from_link(free.top), below).take(ahead as usize);
        match segments.find(|segment| !self.header(*segment).has_memory().swap(true, Ordering::Relaxed)) {
            Some(segment) => Some(segment),
            None => {
                free.prepared = ahead;
                self.wants_pages.store(false, Ordering::Relaxed);
                None
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::epoch::Domain;
    use crate::frames::{FrameId, Frames};
    use crate::mapping::{Pages, is_resident};
    use crate::segment::{Location, Purpose, bytes_for};
    use std::sync::Arc;

    const BYTES: u32 = bytes_for(64 << 10);
    const COUNT: u32 = 128;

    fn segments() -> Segments {
        let frames = Frames::reserve((COUNT * BYTES) as usize).unwrap();
        let count = frames.count();
        let shared = Arc::clone(&frames);
        let segments = Segments::in_frames(shared, COUNT, COUNT, BYTES, 1, Domain::new(), Pages::Small).unwrap();
        // A huge page would be resident with the first of its segments.
        (0..count).for_each(|frame| frames.advise(FrameId(frame), Pages::Small));
        segments
    }

    /// Whether the middle of a segment is resident.
    fn has_pages(segments: &Segments, segment: SegmentId) -> bool {
        // SAFETY: nothing is read.
        is_resident(unsafe { segments.arena.slice(Location::new(segment, BYTES / 2), 1).as_ptr() })
    }

    fn take(segments: &Segments, count: u32) {
        (0..count).for_each(|_| assert!(segments.take(Purpose::Write).is_some()));
    }

    #[test]
    fn pages_for_an_eighth_are_prepared() {
        let segments = segments();
        assert!(!segments.prepare_pages(), "nothing is in use");
        take(&segments, 4);
        assert!(!segments.prepare_pages(), "an eighth is less than a segment");
        take(&segments, 60);
        assert_eq!(std::iter::repeat_with(|| segments.prepare_pages()).take_while(|prepared| *prepared).count(), 8);
        let resident: Vec<_> = segments.ids().filter(|segment| has_pages(&segments, *segment)).collect();
        assert!(resident.into_iter().map(SegmentId::number).eq(65..=72), "what was taken was not touched by this test");
        assert!(!segments.wants_pages());
        take(&segments, 5);
        assert!(segments.wants_pages(), "fewer than half are left");
        assert_eq!(std::iter::repeat_with(|| segments.prepare_pages()).take_while(|prepared| *prepared).count(), 5);
    }

    #[test]
    fn what_had_memory_before_is_not_prepared_again() {
        let segments = segments();
        let taken: Vec<_> = (0..64).map(|_| segments.take(Purpose::Write).unwrap()).collect();
        taken.into_iter().for_each(|segment| segments.retire(segment));
        assert_eq!(segments.reclaim().freed, 64);
        take(&segments, 32);
        assert!(segments.wants_pages() && !segments.prepare_pages(), "the next ones were in use");
    }

    #[test]
    fn what_left_the_budget_is_prepared_anew() {
        let segments = segments();
        take(&segments, 64);
        while segments.prepare_pages() {}
        while segments.dismiss_top() {}
        segments.admit(COUNT - segments.limit());
        take(&segments, 5);
        assert!(segments.prepare_pages(), "their memory went back");
    }

    #[test]
    fn a_segment_may_be_taken_during_preparation() {
        let segments = segments();
        take(&segments, 64);
        let prepared = segments.next_without_memory().unwrap();
        assert_eq!(segments.take(Purpose::Write), Some(prepared));
        let at = Location::new(prepared, BYTES / 2);
        // SAFETY: the segment is this test's.
        unsafe { segments.arena.write(at, &[7; 64]) };
        segments.frames.populate(prepared);
        // SAFETY: as above.
        assert!(unsafe { segments.arena.slice(at, 64) == [7; 64] });
    }
}
