//! Shrinking: the topmost segment is emptied and leaves the budget, for a smaller memory or a larger index. Its items
//! are relocated to a free segment. If it is a body, and the memory must get smaller or the index has no other free
//! segment, the value is moved (`value_move`). Before the first segment of a frame leaves, the frame that costs the
//! fewest copies is made the last one.

use super::claim::Claim;
use super::maintenance::{Caller, Progress};
use crate::chains::Seal;
use crate::epoch::Participant;
use crate::kill_point::{KillPoint, kill_point};
use crate::segment::{Header, SegmentId, State};
use crate::store::Store;
use crate::sync::lock;
use crate::time::Moment;

/// Frames that one choice compares.
const FRAMES_COMPARED: u32 = 16;
/// Cost of a byte that a handle holds, in copied bytes: its memory is free only when the handle is dropped.
const HELD_BYTE_COST: u64 = 64;
/// Cost of a byte of a long value, in copied bytes: all other bytes of the value are copied with it.
const BODY_BYTE_COST: u64 = 8;

impl Store {
    /// One step towards a smaller memory. False if the topmost segment cannot be emptied now. A writer moves no long
    /// value: that may take long.
    pub(super) fn shrink_top(&self, participant: &Participant, moment: Moment, caller: Caller) -> bool {
        if self.release_free_top() {
            kill_point(KillPoint::Shrink);
            return true;
        }
        self.choose_frame(participant);
        let Some(top) = self.segments.top() else { return false };
        let header = self.segments.header(top);
        match header.state() {
            State::Open => self.seal_open(Seal::Segment(top)) > 0 || self.resume_job(participant, moment),
            State::Body => match caller {
                Caller::Maintenance { may_evict } if self.wants_memory() => {
                    self.empty_body(participant, top, moment, may_evict)
                }
                Caller::Maintenance { .. } | Caller::Writer => false,
            },
            State::Sealed => self.relocate_top(participant, top, moment),
            State::Draining => self.run_or_choose_job(participant, moment, false) == Progress::Working,
            State::Absent | State::Free | State::Retired => false,
        }
    }

    /// Makes the frame that is the cheapest to empty among some the last one. Nothing, if one is being emptied.
    fn choose_frame(&self, participant: &Participant) {
        let count = self.segments.frames_to_choose_from();
        // A store with memory of its own returns no address space, and an image of it has segments by number.
        if count < 2 || !self.budget.page_rule().is_shared() {
            return;
        }
        let first = participant.random() % count;
        let places = (0..count.min(FRAMES_COMPARED)).map(|step| (first + step) % count);
        let cheapest = places.min_by_key(|place| self.cost_of_frame(*place)).expect("there are at least two");
        self.maintenance.flushed.reorder(|| self.segments.empty_frame(cheapest));
    }

    /// Bytes to copy out of a frame, and their equivalents. An estimate: writers continue meanwhile.
    fn cost_of_frame(&self, place: u32) -> u64 {
        let segment_bytes = u64::from(self.segments.segment_bytes());
        let cost = |header: &Header| match header.state() {
            State::Absent | State::Free | State::Retired => 0,
            _ if header.pins() > 0 => segment_bytes * HELD_BYTE_COST,
            State::Body => segment_bytes * BODY_BYTE_COST,
            State::Open | State::Sealed | State::Draining => u64::from(header.live_bytes()),
        };
        self.segments.headers_of_frame(place).map(cost).sum()
    }

    /// Relocates the live items of a segment to a free one. False if there is none, so that an eviction must come
    /// first, or if the segment cannot be claimed any more.
    fn relocate_top(&self, participant: &Participant, segment: SegmentId, moment: Moment) -> bool {
        let job = self.claim(&lock(&self.maintenance.planner), Claim::Relocate(segment), moment);
        let Some(job) = job else { return false };
        self.pause_job(job);
        self.run_or_choose_job(participant, moment, false) == Progress::Working
    }
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests {
    use super::*;
    use crate::engine_memory::EngineMemory;
    use crate::ops::{Mode, Write};
    use crate::options::Options;
    use crate::segment::{Header, Purpose, bytes_for};
    use crate::sync::Ordering;
    use crate::ttl::Ttl;
    use std::sync::Arc;

    const SEGMENT_SIZE: u32 = 4 << 10;
    /// Memory of two segments of such a store with their headers.
    pub const TWO_SEGMENTS_BYTES: u64 = 2 * (bytes_for(SEGMENT_SIZE) as u64 + size_of::<Header>() as u64);

    /// A store with few free segments, the topmost on top, and the segments that are taken.
    pub fn store_with_its_top_first(evicts: bool) -> (Arc<Store>, Participant, Vec<SegmentId>) {
        let segment_size = Some(SEGMENT_SIZE);
        let options =
            Options { memory_bytes: 1 << 20, segment_size, value_bytes_max: 1 << 18, evicts, ..Options::default() };
        let store = Arc::new(Store::new(options).unwrap());
        let participant = store.participate();
        let mut taken: Vec<_> = std::iter::from_fn(|| store.segments.take(Purpose::Merge)).collect();
        taken.split_off(taken.len() - 8).into_iter().for_each(|segment| store.segments.retire(segment));
        store.segments.reclaim();
        (store, participant, taken)
    }

    #[test]
    fn the_cheapest_frame_is_emptied_first() {
        let options = Options { memory_bytes: 16 << 20, value_bytes_max: 1 << 18, ..Options::default() };
        let memory = EngineMemory::reserve(16 << 20, 1).unwrap();
        let store = Store::build(options, &memory).unwrap();
        let participant = memory.participate();
        let hash = |number: u32| store.hash(&number.to_le_bytes());
        for number in 0..30_000u32 {
            let (key, ttl) = (number.to_le_bytes(), Ttl::Never);
            let hash = hash(number);
            let write = Write { key: &key, hash, value: &[7; 500], flags: 0.into(), ttl, mode: Mode::Set, token: None };
            store.write(&participant, &write, 1000).unwrap();
        }
        let frame_of = |number: u32| {
            let item = store.get(&participant, &number.to_le_bytes(), hash(number), 1000)?;
            Some(item.item_at().at.segment().index() / 32)
        };
        // All but some keys of two frames in the middle are deleted, so that their segments are neither full nor dead.
        let is_emptied = |frame: usize| frame == 2 || frame == 4;
        let in_middle: Vec<_> = (0..30_000).filter(|number| frame_of(*number).is_some_and(is_emptied)).collect();
        assert!(in_middle.len() > 6000);
        for number in in_middle.iter().filter(|number| **number % 10 > 0) {
            store.delete(&participant, &number.to_le_bytes(), hash(*number), 1000);
        }
        let items = store.stats().items;
        // Less by the last frame, which is in the budget in part, and one more.
        store.resize(12 << 20).unwrap();
        while !store.resize_done() {
            store.maintain(&participant, 1000);
        }
        let left = |frame: &usize| !store.segments.ids().any(|segment| segment.index() / 32 == *frame);
        let left: Vec<_> = (0..7).filter(left).collect();
        assert!(left == [2] || left == [4], "the frames {left:?} have left");
        assert_eq!((store.stats().items, store.stats().evictions), (items, 0), "what lived in it was moved");
        store.verify(&participant, 1000);
    }

    #[test]
    fn free_segments_keep_values_from_the_index() {
        let (store, participant, held) = store_with_its_top_first(true);
        let hash = store.hash(b"long");
        let mut upload = store.upload(b"long", hash, 0.into(), 10_000).unwrap();
        upload.write(&mut &[1; 10_000][..]).unwrap();
        upload.finish(&participant, Ttl::Never, Mode::Set, None, 1000).unwrap();
        drop(upload);
        held.iter().for_each(|segment| store.segments.retire(*segment));
        store.segments.reclaim();
        let (limit, paid) = (store.segments.limit(), store.index.paid_buckets());
        assert_eq!(store.segments.header(SegmentId::new(limit)).state(), State::Body);
        for pays in [Store::prepay_for_index, Store::pay_for_index] {
            pays(&store);
            (0..3).for_each(|_| store.grow_index());
            while store.maintain(&participant, 1000) == crate::evict::Progress::Working {}
        }
        assert!(
            store.index.paid_buckets() > paid && !store.needs_shrink(),
            "maintenance is not asked for what it cannot do"
        );
        assert!(store.get(&participant, b"long", hash, 1000).is_some(), "{:?}", store.stats());
        store.verify(&participant, 1000);
        // When memory is short the value is dropped, and the index gets the segment.
        while store.segments.withhold_free() {}
        while !store.prepay_for_index() && store.maintain(&participant, 1000) == crate::evict::Progress::Working {}
        assert!(store.get(&participant, b"long", hash, 1000).is_none());
        store.verify(&participant, 1000);
    }

    #[test]
    fn an_upload_in_the_way_seals_nothing() {
        let (store, participant, held) = store_with_its_top_first(true);
        let mut upload = store.upload(b"long", store.hash(b"long"), 0.into(), 10_000).unwrap();
        upload.write(&mut &[1; 100][..]).unwrap();
        let key = b"short";
        let write = Write {
            key,
            hash: store.hash(key),
            value: b"",
            flags: 0.into(),
            ttl: Ttl::Never,
            mode: Mode::Set,
            token: None,
        };
        store.write(&participant, &write, 1000).unwrap();
        assert_eq!(store.segments.header(SegmentId::new(store.segments.limit())).is_body.load(Ordering::Relaxed), 1);
        store.resize((1 << 20) - TWO_SEGMENTS_BYTES).unwrap();
        while store.maintain(&participant, 1000) == crate::evict::Progress::Working {}
        assert!(!store.resize_done());
        assert_eq!(store.stats().segments_open, 1, "the segment of the short one");
        drop(upload);
        held.iter().for_each(|segment| store.segments.retire(*segment));
        while store.maintain(&participant, 1000) == crate::evict::Progress::Working {}
        assert!(store.resize_done());
        store.verify(&participant, 1000);
    }
}
