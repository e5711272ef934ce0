//! When the index contracts, and how its memory goes back to the segments.
//!
//! ```text
//! load < CONTRACT_LOAD          the last buckets are merged into their parents (index::contract)
//! enough buckets unused         they leave the budget of the index; no split can have them any more; ticket
//! grace period over             their pages return to the system, and segments enter the budget
//! ```
//! Tiny objects can fill the index while their segments have space: then nothing is evicted, and the load stays above
//! the bound. If such an index stands in the way of a smaller memory, that memory is recorded (`evict_towards`):
//! maintenance evicts until the load is under the bound and the index contracts, and ends when the smaller memory would
//! hold it.
//!
//! The grace period is for readers that started with an old split word: they may still look into a bucket that is gone.
//! An index that needs memory in between has the buckets back.

use crate::budget::{LeavingBuckets, SEGMENTS_MIN, buckets_per_segment};
use crate::index::{Bucket, ContractOutcome};
use crate::segment::Header;
use crate::store::Store;
use crate::sync::{Ordering, lock};

/// The load below which the last bucket is merged into its parent: of two buckets at this load, slots of about one must
/// move to the other candidate of their key before the rest fits one bucket.
const CONTRACT_LOAD: f64 = 0.55;
/// Buckets that one slice of maintenance merges, at most.
const CONTRACT_BUCKETS: usize = 512;
/// The index keeps this part of its length for growth.
const KEPT_SHARE: u64 = 32;
/// Histories of all kinds take less than this part of a budget that has shrunk.
const HISTORIES_SHARE: u64 = 16;
/// Segments that one step returns, at most.
const RETURNED_SEGMENTS: u64 = 64;

impl Store {
    /// The smallest budget that this store reaches by evictions: it keeps the segment size of its start, and its index
    /// contracts to the length of its start, with the buckets paid for ahead of need.
    pub fn reachable_bytes(&self) -> u64 {
        let each = u64::from(self.segments.segment_bytes()) + size_of::<Header>() as u64;
        let length = self.index.min_buckets() as u64;
        let buckets = length + length / KEPT_SHARE + 2 * buckets_per_segment(self.segments.segment_bytes());
        let index_bytes = buckets * size_of::<Bucket>() as u64;
        let bytes = self.budget.unchanging_bytes() + index_bytes + u64::from(SEGMENTS_MIN) * each;
        // Histories shrink with the budget.
        let bytes = bytes + self.policy_state.history_bytes_for(bytes + bytes / HISTORIES_SHARE);
        // The store works with the budget for which it was laid out.
        bytes.min(self.options.memory_bytes)
    }

    /// Wants a smaller memory that `resize` has refused: maintenance evicts until the index has contracted enough for
    /// it. The caller tries `resize` again; a `resize` that is accepted ends this.
    pub fn evict_towards(&self, memory_bytes: u64) {
        self.budget.wanted_bytes.store(memory_bytes, Ordering::Relaxed);
    }

    /// Whether items are evicted so that the index contracts. False while it contracts by itself, where it is as short
    /// as it gets, and when it would leave a place for the wanted memory once its unused buckets are returned.
    pub(crate) fn evicts_for_index(&self) -> bool {
        let wanted_bytes = self.budget.wanted_bytes.load(Ordering::Relaxed);
        if wanted_bytes >= self.budget.memory_bytes() || self.index_load_estimate() < CONTRACT_LOAD {
            return false;
        }
        let length = self.index.length();
        // Buckets return by whole segments.
        let paid = self.index.paid_buckets();
        let each = buckets_per_segment(self.segments.segment_bytes());
        let buckets = paid - paid.saturating_sub(self.kept_buckets()) / each * each;
        let other_bytes = buckets * size_of::<Bucket>() as u64 + self.policy_state.history_bytes_for(wanted_bytes);
        let segments = self.budget.layout.segments_within(wanted_bytes, other_bytes);
        length > self.index.min_buckets() && segments < SEGMENTS_MIN
    }

    /// Buckets that the index keeps after a contraction: those paid for at the last growth stay for the next one.
    fn kept_buckets(&self) -> u64 {
        let length = self.index.length() as u64;
        length + length / KEPT_SHARE + buckets_per_segment(self.segments.segment_bytes())
    }

    /// One step of contraction. False if there is nothing to do, or nothing can be done now.
    pub(crate) fn contract_index(&self) -> bool {
        let merges = (0..CONTRACT_BUCKETS).take_while(|_| {
            self.index_load_estimate() < CONTRACT_LOAD
                && self.index.try_contract_one(self) == ContractOutcome::Contracted
        });
        let has_merged = merges.count() > 0;
        if has_merged {
            self.budget.has_contracted.store(true, Ordering::Relaxed);
        }
        self.return_index_memory() || has_merged
    }

    fn return_index_memory(&self) -> bool {
        let ticket = lock(&self.budget.changing).as_ref().map(|leaving| leaving.ticket);
        match ticket {
            // Outside of the lock, because it may have to make a fence.
            Some(ticket) => ticket < self.domain.safe_below(ticket) && self.finish_return(),
            None => self.begin_return(),
        }
    }

    /// Takes unused buckets at the end of the index out of its budget.
    fn begin_return(&self) -> bool {
        if !self.budget.has_contracted.load(Ordering::Relaxed) {
            // Unused buckets were paid for ahead of need.
            return false;
        }
        let each = buckets_per_segment(self.segments.segment_bytes());
        let mut leaving = lock(&self.budget.changing);
        let count = self.index.paid_buckets().saturating_sub(self.kept_buckets()) / each * each;
        let count = count.min(RETURNED_SEGMENTS * each);
        if count == 0 {
            self.budget.has_contracted.store(false, Ordering::Relaxed);
        }
        if leaving.is_some() || count == 0 || !self.index.try_unpay(count) {
            return false;
        }
        *leaving = Some(LeavingBuckets { first: self.index.paid_buckets(), count, ticket: self.domain.retire() });
        true
    }

    /// Returns the pages of buckets that no reader can look into any more, and admits segments in their place.
    fn finish_return(&self) -> bool {
        let mut changing = lock(&self.budget.changing);
        let Some(leaving) = changing.take() else { return false };
        if !self.index.release(leaving.first as usize, leaving.count as usize) {
            *changing = Some(leaving);
            return false;
        }
        let index_bytes = self.index.paid_buckets() * size_of::<Bucket>() as u64;
        let fit = self.budget.segments_within(self.budget.memory_bytes(), index_bytes);
        let missing = fit.saturating_sub(self.segments.usable());
        let restored = self.segments.restore_withheld(missing);
        self.segments.admit(missing - restored);
        self.budget.target.store(fit.min(self.segments.usable()), Ordering::Relaxed);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::engine_memory::EngineMemory;
    use crate::epoch::Participant;
    use crate::evict::Progress;
    use crate::ops::{Mode, Write};
    use crate::options::Options;
    use crate::segment::{SegmentId, State};
    use crate::ttl::Ttl;
    use ebbtide_testkit::seeds;

    fn set(store: &Store, participant: &Participant, number: u32) {
        let key = number.to_le_bytes();
        let (hash, ttl) = (store.hash(&key), Ttl::Never);
        let write = Write { key: &key, hash, value: b"", flags: 0.into(), ttl, mode: Mode::Set, token: None };
        while store.write(participant, &write, 1000).is_err() {
            assert_ne!(store.evict(participant, 1000), Progress::Stuck);
        }
    }

    fn is_there(store: &Store, participant: &Participant, number: u32) -> bool {
        let key = number.to_le_bytes();
        store.get(participant, &key, store.hash(&key), 1000).is_some()
    }

    fn settle(store: &Store, participant: &Participant) {
        while store.maintain(participant, 1000) == Progress::Working {}
    }

    #[test]
    fn a_sparse_index_returns_its_memory() {
        let options = Options { memory_bytes: 32 << 20, value_bytes_max: 1 << 20, ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let (buckets, limit) = (store.index.paid_buckets(), store.segments.limit());
        (0..400_000).for_each(|number| set(&store, &participant, number));
        settle(&store, &participant);
        let (grown, full) = (store.index.paid_buckets(), store.index.length());
        assert!(full > 60_000 && store.segments.limit() + 50 < limit, "{:?}", store.stats());
        // Every tenth key stays, and is there at each step.
        for number in (0..400_000u32).filter(|number| number % 10 > 0) {
            let key = number.to_le_bytes();
            store.delete(&participant, &key, store.hash(&key), 1000);
        }
        while store.maintain(&participant, 1000) == Progress::Working {
            assert!(is_there(&store, &participant, 7_770));
        }
        assert!(store.index_load() >= 0.5, "{}", store.index_load());
        assert!(store.index.paid_buckets() < grown / 5, "{} of {grown} buckets are paid", store.index.paid_buckets());
        assert!(store.segments.limit() + 20 > limit);
        assert!((0..400_000).step_by(10).all(|number| is_there(&store, &participant, number)));
        store.verify(&participant, 1000);
        // Returned memory can be used: the index grows and contracts again.
        (0..400_000).for_each(|number| set(&store, &participant, number));
        assert!((0..400_000).all(|number| is_there(&store, &participant, number)));
        assert!(store.index.paid_buckets() > grown * 9 / 10);
        store.verify(&participant, 1000);
        store.flush(1000, 0);
        settle(&store, &participant);
        assert_eq!(store.index.length() as u64, buckets, "an empty index is as small as at the start");
        store.verify(&participant, 1000);
    }

    #[test]
    fn growing_and_shrinking_back_leaves_no_trace() {
        // To 1 GiB in the long run.
        let growth = 1_u64 << seeds(6, 8).end;
        let memory = EngineMemory::reserve(growth * (4 << 20), 1).unwrap();
        let options = Options { memory_bytes: 4 << 20, value_bytes_max: 1 << 18, ..Options::default() };
        let store = Store::build(options, &memory).unwrap();
        let participant = memory.participate();
        let look = || (store.index.length(), store.index.paid_buckets(), store.segments.limit(), memory.lent_bytes());
        let before = look();
        store.resize(growth * (4 << 20)).unwrap();
        (0..growth as u32 * 23_500).for_each(|number| set(&store, &participant, number));
        assert!(memory.lent_bytes() > growth * (2 << 20) && store.index.length() as u64 > growth * 3125);
        store.flush(1000, 0);
        settle(&store, &participant);
        store.resize(4 << 20).unwrap();
        while !store.resize_done() {
            store.maintain(&participant, 1000);
        }
        settle(&store, &participant);
        let after = look();
        assert_eq!((after.0, after.3), (before.0, before.3));
        assert!(after.1 <= before.1 + 2 * buckets_per_segment(store.segments.segment_bytes()), "{before:?}, {after:?}");
        assert!(after.2 + 2 >= before.2, "{before:?}, {after:?}");
        store.verify(&participant, 1000);
    }

    /// A store whose index leaves no place for the memory that is wanted, which is answered.
    fn store_with_an_index_in_the_way() -> (Store, Participant, u64) {
        let options = Options { memory_bytes: 32 << 20, value_bytes_max: 1 << 18, ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        (0..600_000).for_each(|number| set(&store, &participant, number));
        settle(&store, &participant);
        assert_eq!(store.stats().evictions, 0);
        let wanted_bytes = 4 << 20;
        assert!(store.resize(wanted_bytes).is_err(), "{:?}", store.stats());
        (store, participant, wanted_bytes)
    }

    #[test]
    fn a_wanted_memory_is_reached_by_evictions() {
        let (store, participant, wanted_bytes) = store_with_an_index_in_the_way();
        settle(&store, &participant);
        assert_eq!(store.stats().evictions, 0, "a refusal evicts nothing");
        store.evict_towards(wanted_bytes);
        settle(&store, &participant);
        let items = store.stats().items;
        assert!(items > 60_000, "{items}: no more than it takes");
        store.resize(wanted_bytes).unwrap();
        settle(&store, &participant);
        assert!(store.resize_done());
        store.verify(&participant, 1000);
        // A larger target ends it.
        let (store, participant, wanted_bytes) = store_with_an_index_in_the_way();
        store.evict_towards(wanted_bytes);
        store.evict_towards(32 << 20);
        settle(&store, &participant);
        assert_eq!(store.stats().evictions, 0);
    }

    /// Memories that leave just 16 segments beside the index that is wanted, but not beside one of a segment more.
    #[test]
    fn a_memory_with_the_last_segment_is_reached() {
        for wanted_bytes in [5_155_000, 5_158_000, 5_161_000] {
            let (store, participant, _) = store_with_an_index_in_the_way();
            store.resize(wanted_bytes).unwrap_err();
            store.evict_towards(wanted_bytes);
            settle(&store, &participant);
            store.resize(wanted_bytes).unwrap_or_else(|error| panic!("{error}: {:?}", store.stats()));
            settle(&store, &participant);
            assert!(store.resize_done(), "{wanted_bytes}");
            store.verify(&participant, 1000);
        }
    }

    #[test]
    fn handles_on_all_segments_end_the_evictions() {
        let (store, participant, wanted_bytes) = store_with_an_index_in_the_way();
        let is_in_use =
            |segment: &SegmentId| matches!(store.segments.header(*segment).state(), State::Open | State::Sealed);
        let held: Vec<_> = store.segments.ids().filter(is_in_use).collect();
        held.iter().for_each(|segment| store.segments.pin(*segment, 1, u64::MAX).unwrap());
        store.evict_towards(wanted_bytes);
        settle(&store, &participant);
        assert_eq!(store.stats().evictions, 0);
        held.iter().for_each(|segment| store.segments.unpin(*segment, 1));
        settle(&store, &participant);
        store.resize(wanted_bytes).unwrap();
        settle(&store, &participant);
        store.verify(&participant, 1000);
    }
}
