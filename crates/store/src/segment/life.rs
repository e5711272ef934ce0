//! The segments of a store: their memory, their headers, and the rules for taking one.
//!
//! `limit` segments are in the memory budget (see `limit`). The free ones form a stack, lowest positions first at the
//! start, so that memory that was never needed is never touched and the topmost segment can be given back. The stack is
//! linked both ways, because the topmost segment may lie anywhere in it. A retired segment becomes free when its ticket
//! is older than every pin and no handle holds it (see `epoch`).

use super::dead_stack::DeadStack;
use super::frame_list::FrameList;
use super::{Header, SegmentId, State};
use crate::arena::Arena;
use crate::epoch::{Domain, Ticket};
use crate::error::Error;
use crate::frames::Frames;
use crate::mapping::{Pages, Table};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, lock};
use std::sync::Arc;

/// Segments that only evictions may take, so that a merge always has a destination: one for each `WRITERS_PER_RESERVED`
/// writers, which evict at the same time when they are out of memory, but at most one part in `RESERVE_SHARE` of all.
const WRITERS_PER_RESERVED: usize = 2;
const RESERVE_SHARE: u32 = 128;

/// Segments are short while fewer than this share of them are free.
pub const SHORT_SHARE: u32 = 8;

/// Purpose of taking a free segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// New data; leaves the reserve alone.
    Write,
    /// The destination of an eviction.
    Merge,
}

/// All segments of a store.
pub struct Segments {
    pub arena: Arena,
    pub(super) headers: Table<Header>,
    pub(super) frames: FrameList,
    pub(super) has_small_pages: AtomicBool,
    /// Whether the next free segments may lack memory; see `ahead`.
    pub(super) wants_pages: AtomicBool,
    segment_bytes: u32,
    max_segments: u32,
    reserve_max: u32,
    pub(super) free: Mutex<FreeStack>,
    free_count: AtomicU32,
    pub(super) limit: AtomicU32,
    pub(super) withheld_count: AtomicU32,
    retired: Mutex<Vec<RetiredRun>>,
    dead: DeadStack,
    domain: Arc<Domain>,
    pinned_bytes: AtomicU64,
}

#[derive(Default)]
pub(super) struct FreeStack {
    pub(super) top: u32,
    pub(super) length: u32,
    /// From the top down, segments that are known to have memory.
    pub(super) prepared: u32,
    /// Segments up to the limit whose memory is used otherwise: see `withhold_free`.
    pub(super) withheld: Vec<SegmentId>,
}

/// A retired segment, with the bodies that follow it if it is one.
struct RetiredRun {
    ticket: Ticket,
    first: SegmentId,
}

/// Result of `Segments::reclaim`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reclaimed {
    pub freed: u32,
    /// Retired segments, or whole values, whose grace period lasts; without those retired meanwhile.
    pub waiting: u32,
}

/// The bound of `reserve` for this many threads that write at once.
pub fn reserve_max(writers: usize) -> u32 {
    u32::try_from(writers / WRITERS_PER_RESERVED).unwrap_or(u32::MAX).max(1)
}

/// Free segments that writers leave to evictions, of `limit` segments.
pub fn reserve(limit: u32, reserve_max: u32) -> u32 {
    (limit / RESERVE_SHARE).clamp(1, reserve_max)
}

impl Segments {
    /// Segments in address space of their own.
    #[cfg(test)]
    pub fn new(max: u32, limit: u32, segment_bytes: u32, writers: usize, domain: Arc<Domain>) -> Result<Self, Error> {
        let frames = Frames::reserve(max as usize * segment_bytes as usize)?;
        Self::in_frames(frames, max, limit, segment_bytes, writers, domain, Pages::Huge)
    }

    /// `limit` segments, of at most `max`, in address space that other stores may share, into which `writers` threads
    /// write at once. `pages`: for the headers.
    pub fn in_frames(
        frames: Arc<Frames>,
        max: u32,
        limit: u32,
        segment_bytes: u32,
        writers: usize,
        domain: Arc<Domain>,
        pages: Pages,
    ) -> Result<Self, Error> {
        let list = FrameList::new(Arc::clone(&frames), segment_bytes)?;
        let segments = Self {
            reserve_max: reserve_max(writers),
            arena: Arena::new(frames, segment_bytes),
            headers: Table::new(list.max_segments() as usize, pages)?,
            max_segments: max.min(list.max_segments()),
            frames: list,
            has_small_pages: AtomicBool::new(pages == Pages::Small),
            wants_pages: AtomicBool::new(false),
            segment_bytes,
            free: Mutex::default(),
            free_count: AtomicU32::new(0),
            limit: AtomicU32::new(0),
            withheld_count: AtomicU32::new(0),
            retired: Mutex::default(),
            dead: DeadStack::default(),
            domain,
            pinned_bytes: AtomicU64::new(0),
        };
        segments.admit(limit);
        Ok(segments)
    }

    pub fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }

    /// The most segments that there can be.
    pub fn max_segments(&self) -> u32 {
        self.max_segments
    }

    /// Segments in the budget: those at the positions up to this.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Segments in the budget that hold data or may take it.
    pub fn usable(&self) -> u32 {
        self.limit().saturating_sub(self.withheld_count.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub fn header(&self, segment: SegmentId) -> &Header {
        self.headers.at(segment.index())
    }

    #[inline(always)]
    pub fn prefetch_header(&self, segment: SegmentId) {
        self.headers.prefetch(segment.index());
    }

    /// The segments in the budget. While frames change their places a segment may be visited twice or not at all.
    pub fn ids(&self) -> impl Iterator<Item = SegmentId> + Clone + use<'_> {
        (1..=self.limit()).map(|position| self.at_position(position))
    }

    /// Segments that writers leave to evictions.
    pub fn reserve(&self) -> u32 {
        reserve(self.limit(), self.reserve_max)
    }

    /// Segments that a writer could take now.
    pub fn free_for_writers(&self) -> u32 {
        self.free_count.load(Ordering::Relaxed).saturating_sub(self.reserve())
    }

    /// Whether few segments are free.
    pub fn are_short(&self) -> bool {
        self.free_for_writers() < self.limit() / SHORT_SHARE
    }

    /// Free segments, the reserve included.
    pub fn free_count(&self) -> u32 {
        self.free_count.load(Ordering::Relaxed)
    }

    /// Segments that wait for the end of their grace period or for a handle.
    pub fn retired_count(&self) -> u32 {
        let retired = lock(&self.retired);
        retired.iter().map(|run| self.run(run.first).count() as u32).sum()
    }

    /// A free segment, now open, with a cleared header. The caller is its owner.
    pub fn take(&self, purpose: Purpose) -> Option<SegmentId> {
        let mut free = lock(&self.free);
        let kept = if purpose == Purpose::Write { self.reserve() } else { 0 };
        loop {
            if free.length <= kept {
                return None;
            }
            let segment = SegmentId::new(free.top);
            if self.hand_out(&mut free, segment) {
                return Some(segment);
            }
            // Ends: one segment less is free.
        }
    }

    /// Takes a free segment out of the stack and opens it, with a cleared header. If there is no memory for it, it is
    /// withheld, and the answer is false.
    pub(super) fn hand_out(&self, free: &mut FreeStack, segment: SegmentId) -> bool {
        let header = self.header(segment);
        self.unlink_free(free, segment);
        if !self.give_memory(segment) {
            self.withhold(free, segment);
            return false;
        }
        self.note_taken(free);
        header.reset();
        // Under the lock: `dismiss_top` looks for a free segment in the stack.
        header.pass_to(State::Open);
        true
    }

    /// Takes this segment, if it is free, for its contents in an image: open, with a cleared header. The caller is its
    /// owner, and gives it memory.
    #[cfg(not(loom))]
    pub fn take_this(&self, segment: SegmentId) -> bool {
        let mut free = lock(&self.free);
        if self.header(segment).state() != State::Free {
            return false;
        }
        let header = self.header(segment);
        self.unlink_free(&mut free, segment);
        header.reset();
        header.has_memory().store(true, Ordering::Relaxed);
        header.pass_to(State::Open);
        true
    }

    /// Allocates memory for a segment taken for its contents in an image. False if the file system has none.
    #[cfg(not(loom))]
    pub fn allocate(&self, segment: SegmentId) -> bool {
        self.frames.allocate(segment)
    }

    /// Gives a segment that is about to be used memory, under the lock of the free stack. False if it is to have it
    /// from a file system that is full.
    fn give_memory(&self, segment: SegmentId) -> bool {
        if cfg!(loom) {
            return true;
        }
        let has_memory = self.header(segment).has_memory();
        let is_given = has_memory.load(Ordering::Relaxed) || self.frames.allocate(segment);
        has_memory.store(is_given, Ordering::Relaxed);
        is_given
    }

    pub(super) fn put(&self, free: &mut FreeStack, segment: SegmentId) {
        let header = self.header(segment);
        header.previous.store(0, Ordering::Relaxed);
        header.next.store(free.top, Ordering::Relaxed);
        if let Some(top) = SegmentId::from_link(free.top) {
            self.header(top).previous.store(segment.number(), Ordering::Relaxed);
        }
        header.pass_to(State::Free);
        free.top = segment.number();
        free.length += 1;
        self.free_count.store(free.length, Ordering::Relaxed);
    }

    /// Retires a segment that no slot names any more; called by its owner. With a body all bodies that follow are
    /// retired; their readers have pinned the first.
    pub fn retire(&self, first: SegmentId) {
        for segment in self.run(first) {
            self.header(segment).pass_to(State::Retired);
        }
        lock(&self.retired).push(RetiredRun { ticket: self.domain.retire(), first });
    }

    /// A retired segment and, if it is a body, those after it.
    fn run(&self, first: SegmentId) -> impl Iterator<Item = SegmentId> + '_ {
        std::iter::successors(Some(first), |segment| {
            let header = self.header(*segment);
            let is_body = header.is_body.load(Ordering::Relaxed) == 1;
            is_body.then(|| SegmentId::from_link(header.next.load(Ordering::Relaxed))).flatten()
        })
    }

    /// Frees retired segments whose grace period is over.
    pub fn reclaim(&self) -> Reclaimed {
        // A thread that retires a segment does not wait for the fence.
        let youngest = lock(&self.retired).iter().map(|run| run.ticket).max();
        let Some(youngest) = youngest else { return Reclaimed::default() };
        let safe = self.domain.safe_below(youngest);
        let mut retired = lock(&self.retired);
        let mut free = lock(&self.free);
        let before = free.length;
        let mut waiting = 0;
        retired.retain(|run| {
            waiting += u32::from(run.ticket >= safe && run.ticket <= youngest);
            // The handle count is looked at after the grace period: a handle made under a pin is seen.
            let over = run.ticket < safe && self.header(run.first).pins() == 0;
            if over {
                let mut next = Some(run.first);
                while let Some(segment) = next {
                    let header = self.header(segment);
                    let is_body = header.is_body.load(Ordering::Relaxed) == 1;
                    next = if is_body { SegmentId::from_link(header.next.load(Ordering::Relaxed)) } else { None };
                    self.put(&mut free, segment);
                }
            }
            !over
        });
        Reclaimed { freed: free.length - before, waiting }
    }

    /// Takes a free segment out of the stack, wherever it is.
    pub(super) fn unlink_free(&self, free: &mut FreeStack, segment: SegmentId) {
        let header = self.header(segment);
        let (previous, next) = (header.previous.load(Ordering::Relaxed), header.next.load(Ordering::Relaxed));
        match SegmentId::from_link(previous) {
            Some(previous) => self.header(previous).next.store(next, Ordering::Relaxed),
            None => free.top = next,
        }
        if let Some(next) = SegmentId::from_link(next) {
            self.header(next).previous.store(previous, Ordering::Relaxed);
        }
        free.length -= 1;
        self.free_count.store(free.length, Ordering::Relaxed);
    }

    /// Seals an open segment; called by its owner.
    pub fn seal(&self, segment: SegmentId) {
        if self.header(segment).seal() {
            self.note_dead(segment);
        }
    }

    /// Lists a sealed segment whose last item is gone.
    pub fn note_dead(&self, segment: SegmentId) {
        self.dead.push(segment, self.header(segment));
    }

    /// A segment that held no live item at some time since it was listed. Only one thread may call this at a time.
    pub fn take_dead(&self) -> Option<SegmentId> {
        self.dead.pop(|segment| self.header(segment))
    }

    /// Bytes of segments that handles hold.
    pub fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes.load(Ordering::Relaxed)
    }

    /// A handle holds the segment; to be called under an epoch pin that protects it.
    pub fn pin(&self, segment: SegmentId, bytes: u64, limit: u64) -> Result<(), Error> {
        if self.header(segment).pin() == 0 {
            let pinned_bytes = self.pinned_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
            if pinned_bytes > limit {
                self.unpin(segment, bytes);
                return Err(Error::PinnedLimit { pinned_bytes, limit });
            }
        }
        Ok(())
    }

    /// Ends the pin of a handle.
    pub fn unpin(&self, segment: SegmentId, bytes: u64) {
        if self.header(segment).unpin() == 1 {
            self.pinned_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// The numbers of the free segments, for `verify`.
    pub fn free_list(&self) -> Vec<SegmentId> {
        let free = lock(&self.free);
        let link = |link: &AtomicU32| SegmentId::from_link(link.load(Ordering::Relaxed));
        let after = |segment: &SegmentId| link(&self.header(*segment).next);
        let all: Vec<_> = std::iter::successors(SegmentId::from_link(free.top), after).collect();
        let befores = std::iter::once(None).chain(all.iter().copied().map(Some));
        let is_linked = |(segment, before): (&SegmentId, _)| link(&self.header(*segment).previous) == before;
        assert!(all.iter().zip(befores).all(is_linked), "the free stack is linked both ways");
        assert_eq!(all.len(), free.length as usize, "the free stack has its length");
        all
    }

    /// The retired segments, for `verify`.
    pub fn retired_list(&self) -> Vec<SegmentId> {
        let retired = lock(&self.retired);
        retired.iter().flat_map(|run| self.run(run.first).collect::<Vec<_>>()).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::frames::FRAME_BYTES;
    use crate::segment::{Location, SEGMENT_SIZE_MIN, bytes_for};
    use crate::sync::AtomicBool;
    use std::time::{Duration, Instant};

    const BYTES: u32 = bytes_for(SEGMENT_SIZE_MIN);

    #[test]
    fn a_segment_is_taken_or_dismissed_never_both() {
        let segments = Segments::new(8, 8, BYTES, 1, Domain::new()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200_000 {
                        if let Some(segment) = segments.take(Purpose::Write) {
                            segments.retire(segment);
                        }
                        segments.reclaim();
                    }
                });
            }
            for _ in 0..1_000_000 {
                if segments.dismiss_top() {
                    segments.admit(1);
                }
            }
        });
        assert_eq!(segments.free_list().len(), 8);
    }

    #[test]
    fn dismissing_a_segment_walks_through_no_other() {
        // A walk through all below for each would take minutes.
        const COUNT: u32 = 400_000;
        let segments = Segments::new(COUNT, COUNT, BYTES, 1, Domain::new()).unwrap();
        let began = Instant::now();
        // The topmost is at the bottom of the stack.
        (0..COUNT / 2).for_each(|_| assert!(segments.dismiss_top()));
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        let numbers: Vec<_> = segments.free_list().into_iter().map(SegmentId::number).collect();
        assert!(numbers.into_iter().eq(1..=COUNT / 2));
    }

    #[test]
    fn a_handle_delays_no_later_retired_segment() {
        let segments = Segments::new(8, 8, BYTES, 1, Domain::new()).unwrap();
        let (held, later) = (segments.take(Purpose::Merge).unwrap(), segments.take(Purpose::Merge).unwrap());
        segments.pin(held, 4096, u64::MAX).unwrap();
        segments.retire(held);
        assert_eq!(segments.reclaim().freed, 0);
        segments.retire(later);
        assert_eq!(segments.reclaim().freed, 1);
        segments.unpin(held, 4096);
        assert_eq!(segments.reclaim().freed, 1);
    }

    #[test]
    fn segments_retired_after_the_fence_are_free() {
        let segments = Segments::new(64, 64, BYTES, 1, Domain::new()).unwrap();
        let is_over = AtomicBool::new(false);
        let max = std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let taken: Vec<_> = (0..4).filter_map(|_| segments.take(Purpose::Merge)).collect();
                        taken.into_iter().for_each(|segment| segments.retire(segment));
                        segments.reclaim();
                    }
                });
            }
            let max = (0..100_000).map(|_| segments.reclaim().waiting).max();
            is_over.store(true, Ordering::Relaxed);
            max
        });
        assert_eq!(max, Some(0), "nobody pins");
    }

    #[test]
    fn writers_leave_more_to_evictions_where_many_write() {
        for (count, writers, left) in [(512, 1, 1), (512, 4, 2), (512, 8, 4), (512, 64, 4), (64, 16, 1)] {
            let segments = Segments::new(count, count, BYTES, writers, Domain::new()).unwrap();
            let taken = |purpose| std::iter::from_fn(|| segments.take(purpose)).count() as u32;
            assert_eq!(segments.free_for_writers(), count - left, "of {count} with {writers}");
            assert_eq!(taken(Purpose::Write), count - left);
            assert!(!segments.dismiss_top());
            assert_eq!(taken(Purpose::Merge), left);
        }
    }

    #[test]
    fn dismissed_memory_goes_back_in_whole_frames() {
        let segments = Segments::new(512, 512, bytes_for(32 << 10), 1, Domain::new()).unwrap();
        let bytes = vec![7; bytes_for(32 << 10) as usize];
        let start = |segment| Location::new(segment, 0);
        for segment in segments.ids() {
            // SAFETY: no other thread knows the store.
            unsafe { segments.arena.write(start(segment), &bytes) };
        }
        let in_frame = FRAME_BYTES / bytes.len();
        let kept = 2 * in_frame + 1;
        while segments.limit() as usize > kept {
            assert!(segments.dismiss_top());
        }
        segments.admit(512);
        let is_kept = |segment| {
            // SAFETY: as above.
            unsafe { segments.arena.slice(start(segment), bytes.len()).iter().all(|byte| *byte == 7) }
        };
        let still_there = segments.ids().filter(|segment| is_kept(*segment)).count();
        assert_eq!(still_there, 3 * in_frame, "the frame of the topmost segment stays whole");
    }
}
