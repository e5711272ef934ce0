//! The one memory number: its parts, and its changes.
//!
//! ```text
//! memory = fixed tables + histories + index + limit x (segment + header)
//! ```
//! Segments at the positions `1..=limit` are in the budget (see `segment::limit`). When the index grows, it takes the
//! memory of the topmost segment, and when the memory is made smaller, the topmost segments go: their items move down
//! (see `evict::shrink`), and their pages go back to the system in whole frames, or one by one in a small store that
//! shares the machine's memory with others. The open limit and the histories of policies follow the memory; the size of
//! segments and the division of TTLs are those of the start.

use crate::budget::{LeavingBuckets, MemoryLayout, SEGMENTS_MIN, buckets_per_segment, open_limit};
use crate::error::Error;
use crate::evict::{HISTORY_SHARE, History, Objective, Policy};
use crate::index::{Bucket, Index};
use crate::kill_point::{KillPoint, kill_point};
use crate::options::{MEMORY_BYTES_MIN, Options};
use crate::segment::{Header, Segments, State};
use crate::store::Store;
use crate::sync::{Ordering, lock};

/// Gives the index back the buckets that are about to leave it. False if there are none.
fn take_back(leaving: &mut Option<LeavingBuckets>, index: &Index) -> bool {
    leaving.take().map(|leaving| index.pay_for(leaving.count)).is_some()
}

impl Store {
    /// Turns the memory of a segment into space for an index that is to grow now: of the topmost one, or, if that is in
    /// use, of any free one, until the topmost one is empty. False if no segment is free for writers.
    pub(crate) fn pay_for_index(&self) -> bool {
        let mut changing = lock(&self.budget.changing);
        if self.index.paid_buckets() > self.index.length() as u64 {
            return true;
        }
        let done = take_back(&mut changing, &self.index)
            || self.turn_into_index(|segments| segments.dismiss_top() || segments.withhold_free());
        self.budget.index_waits.store(!done, Ordering::Relaxed);
        done
    }

    /// As `pay_for_index`, ahead of need: with the topmost segment only, unless that is a body, which costs much to
    /// move. If the topmost one is in use otherwise, or none is free, asks maintenance to empty it, and returns false.
    pub(crate) fn prepay_for_index(&self) -> bool {
        let mut changing = lock(&self.budget.changing);
        let done = take_back(&mut changing, &self.index)
            || self.turn_into_index(|segments| {
                segments.dismiss_top() || segments.top_state() == State::Body && segments.withhold_free()
            });
        self.budget.index_waits.store(!done, Ordering::Relaxed);
        done
    }

    /// Why the index did not grow: segments that become free help it, or nothing does.
    pub(crate) fn index_refusal(&self) -> Error {
        if self.index.paid_buckets() + buckets_per_segment(self.segments.segment_bytes()) > self.index.limit() as u64 {
            return Error::IndexFull { buckets: self.index.length() as u64 };
        }
        Error::NeedSegment
    }

    /// Admits the buckets that fit a segment to the budget if `give_up` finds a segment to release for them.
    fn turn_into_index(&self, give_up: impl FnOnce(&Segments) -> bool) -> bool {
        let buckets = buckets_per_segment(self.segments.segment_bytes());
        if self.index.paid_buckets() + buckets > self.index.limit() as u64 || !give_up(&self.segments) {
            return false;
        }
        self.index.pay_for(buckets);
        let index_bytes = self.index.paid_buckets() * size_of::<Bucket>() as u64;
        // Where the memory is being made smaller, fewer segments fit it now than when that began.
        let fit = self.budget.segments_within(self.budget.memory_bytes(), index_bytes);
        self.budget.target.fetch_min(fit.min(self.segments.usable()), Ordering::Relaxed);
        true
    }

    /// Whether the topmost segment is wanted back: by a smaller memory or by the index, or for one that is withheld,
    /// unless it is a body, which stays for that.
    pub fn needs_shrink(&self) -> bool {
        let exchanges = || self.segments.limit() > self.budget.target.load(Ordering::Relaxed);
        self.wants_memory() || exchanges() && self.segments.top_state() != State::Body
    }

    /// Whether the memory of a segment is wanted, rather than only the place of one that is withheld.
    pub(crate) fn wants_memory(&self) -> bool {
        self.segments.usable() > self.budget.target.load(Ordering::Relaxed)
            || self.budget.index_waits.load(Ordering::Relaxed)
    }

    /// Releases the topmost segment if it is free and wanted. A withheld one does not matter: the limit falls below it.
    pub(crate) fn release_free_top(&self) -> bool {
        if self.budget.index_waits.load(Ordering::Relaxed) && self.prepay_for_index() {
            return true;
        }
        let _changing = lock(&self.budget.changing);
        let target = self.budget.target.load(Ordering::Relaxed);
        let is_released = self.segments.usable() > target && self.segments.dismiss_top()
            || self.segments.limit() > target && self.segments.exchange_top();
        if is_released {
            self.fit_histories();
        }
        is_released
    }

    /// Has the histories follow the budget: they shrink at once, and grow when the segments have left whose memory they
    /// take. The caller holds the lock of the budget.
    fn fit_histories(&self) {
        self.policy_state.resize_histories(self.budget.memory_bytes(), self.resize_done());
    }

    /// Minimum memory at the start of a store with these options, whatever their memory.
    pub fn start_bytes(options: &Options) -> u64 {
        MemoryLayout::start_bytes(options).max(options.value_bytes_max.saturating_mul(2))
    }

    /// Changes the memory budget. A larger one is in force at once; towards a smaller one maintenance moves, as
    /// `resize_done` tells.
    pub fn resize(&self, memory_bytes: u64) -> Result<(), Error> {
        let changing = lock(&self.budget.changing);
        self.set_budget(memory_bytes, changing.as_ref(), 0)
    }

    /// As `resize`, for a caller that holds the lock of the budget, and is about to add a history of these bytes.
    fn set_budget(&self, memory_bytes: u64, leaving: Option<&LeavingBuckets>, added_bytes: u64) -> Result<(), Error> {
        let history_bytes = self.policy_state.history_bytes_for(memory_bytes) + added_bytes;
        let segments = self.segments_of(memory_bytes, leaving, history_bytes)?;
        let limit = self.segments.limit();
        if segments > limit {
            let admitted = self.segments.admit(segments - limit);
            if limit + admitted < segments {
                // Admitted segments are above the target, so maintenance takes them back.
                let reason = format!("the address space that other stores leave holds {admitted} more segments");
                return Err(Error::Options { option: "memory", value: memory_bytes.to_string(), reason });
            }
        }
        kill_point(KillPoint::Resize);
        self.budget.memory_bytes.store(memory_bytes, Ordering::Relaxed);
        self.budget.wanted_bytes.store(u64::MAX, Ordering::Relaxed);
        self.budget.target.store(segments, Ordering::Relaxed);
        self.segments.restore_withheld(segments.saturating_sub(self.segments.usable()));
        self.fit_histories();
        self.budget.set_history_bytes(history_bytes);
        self.chains.set_open_limit(open_limit(memory_bytes, self.segments.segment_bytes()));
        let pages = self.budget.page_rule().pages(memory_bytes);
        self.index.advise(pages);
        self.segments.advise(pages);
        Ok(())
    }

    /// Whether `resize` would accept this memory, as far as that depends on the contents of the store.
    pub fn check_resize(&self, memory_bytes: u64) -> Result<(), Error> {
        let changing = lock(&self.budget.changing);
        let history_bytes = self.policy_state.history_bytes_for(memory_bytes);
        self.segments_of(memory_bytes, changing.as_ref(), history_bytes).map(drop)
    }

    /// The segments of a budget, beside the index as it is, and histories of these bytes.
    fn segments_of(
        &self,
        memory_bytes: u64,
        leaving: Option<&LeavingBuckets>,
        history_bytes: u64,
    ) -> Result<u32, Error> {
        let refuse = |reason: String| Err(Error::Options { option: "memory", value: memory_bytes.to_string(), reason });
        let min = MEMORY_BYTES_MIN.max(self.options.value_bytes_max.saturating_mul(2));
        if memory_bytes < min {
            return refuse(format!(
                "this cache needs at least {min} bytes, for values of up to {}",
                self.options.value_bytes_max
            ));
        }
        let leaving = leaving.map_or(0, |leaving| leaving.count);
        let index_bytes = (self.index.paid_buckets() + leaving) * size_of::<Bucket>() as u64;
        let segments = self.budget.layout.segments_within(memory_bytes, index_bytes + history_bytes);
        // The part of a segment that the ceiling may have behind its last whole one holds index.
        let (max_segments, segment_bytes) = (self.segments.max_segments(), u64::from(self.segments.segment_bytes()));
        if memory_bytes / segment_bytes > max_segments.into() {
            let max = u64::from(max_segments) * segment_bytes;
            return refuse(format!("address space was reserved for {max} bytes at the start"));
        }
        if segments < SEGMENTS_MIN {
            let beside = format!("{SEGMENTS_MIN} segments must fit beside it");
            return refuse(format!("the index takes {index_bytes} bytes already, and {beside}"));
        }
        Ok(segments)
    }

    /// Gives a store without segments the budget of an image: this memory, and a number of segments in these frames, of
    /// which some are withheld. They are more than fit the memory where the image was written while a smaller one was
    /// being reached: maintenance continues that. False if another store has one of the frames.
    #[cfg(not(loom))]
    pub(crate) fn restore_budget(&self, memory_bytes: u64, (frames, limit): (&[u32], u32), withheld: u32) -> bool {
        let _changing = lock(&self.budget.changing);
        self.budget.memory_bytes.store(memory_bytes, Ordering::Relaxed);
        self.budget.set_history_bytes(self.policy_state.history_bytes());
        self.chains.set_open_limit(open_limit(memory_bytes, self.segments.segment_bytes()));
        let index_bytes = self.index.paid_buckets() * size_of::<Bucket>() as u64;
        let fit = self.budget.segments_within(memory_bytes, index_bytes);
        self.budget.target.store(fit.min(limit.saturating_sub(withheld)), Ordering::Relaxed);
        self.segments.adopt(frames, limit)
    }

    /// The memory budget.
    pub fn memory_bytes(&self) -> u64 {
        self.budget.memory_bytes()
    }

    /// The objective of evictions.
    pub fn objective(&self) -> Objective {
        self.options.objective
    }

    /// The eviction policy.
    pub fn policy(&self) -> Policy {
        self.policy_state.policy()
    }

    /// Evicts by another policy from now on. Items keep their ages and frequencies. The first policy that remembers
    /// evicted keys begins with no memory of them, in up to a 256th of the budget, which segments give. A policy that
    /// is used again remembers the keys of its last use.
    ///
    /// # Errors
    /// `Options` if the budget does not hold the history beside the index: the policy stays.
    pub fn set_policy(&self, policy: Policy) -> Result<(), Error> {
        let _switching = lock(&self.policy_state.switching);
        if !self.policy_state.has_history_of(policy) {
            // The budget is read under its lock: with an older number a resize beside this one would be lost.
            let changing = lock(&self.budget.changing);
            let memory_bytes = self.memory_bytes();
            let history_bytes = memory_bytes / HISTORY_SHARE;
            let history = History::new(policy, history_bytes, self.max_history_bytes())?;
            self.set_budget(memory_bytes, changing.as_ref(), history.present_bytes())?;
            self.policy_state.add_history(policy, history);
        }
        self.policy_state.switch_to(policy);
        Ok(())
    }

    /// Bytes of the history of a policy at the largest budget.
    fn max_history_bytes(&self) -> u64 {
        self.options.effective_memory_bytes_max() / HISTORY_SHARE
    }

    /// The memory that is not free for other stores: the budget, or more while a smaller budget is being reached.
    pub fn held_bytes(&self) -> u64 {
        let changing = lock(&self.budget.changing);
        let leaving = changing.as_ref().map_or(0, |leaving| leaving.count);
        let index_bytes = (self.index.paid_buckets() + leaving) * size_of::<Bucket>() as u64;
        let each = u64::from(self.segments.segment_bytes()) + size_of::<Header>() as u64;
        let held = self.budget.fixed_bytes() + index_bytes + u64::from(self.segments.usable()) * each;
        held.max(self.budget.memory_bytes())
    }

    /// Other stores use the address space from here on: the next `resize` puts index and headers on the pages of a
    /// store among others, and a smaller budget empties the frames that cost the fewest copies.
    pub fn share_memory(&self) {
        self.budget.is_shared.store(true, Ordering::Relaxed);
    }

    /// Whether other stores use the address space, too.
    pub fn shares_memory(&self) -> bool {
        self.budget.is_shared.load(Ordering::Relaxed)
    }

    /// Whether the memory is within its budget: false while a smaller budget is being reached.
    pub fn resize_done(&self) -> bool {
        self.segments.usable() <= self.budget.target.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::budget::PageRule;
    use crate::engine_memory::EngineMemory;
    use crate::evict::{History, Progress};
    use crate::segment::Purpose;

    #[test]
    fn an_index_at_its_bound_refuses_immediately() {
        let options = Options {
            memory_bytes: 1 << 20,
            segment_size: Some(4 << 10),
            value_bytes_max: 1000,
            evicts: false,
            ..Options::default()
        };
        let mut layout = MemoryLayout::plan(&options, 0).unwrap();
        layout.index_buckets_max = 1 << layout.index_level;
        let history = History::new(options.policy, 1 << 12, 1 << 12).unwrap();
        let memory = EngineMemory::for_one(options.effective_memory_bytes_max()).unwrap();
        let store = Store::with_layout(options, layout, history, &memory, PageRule::Huge).unwrap();
        let participant = store.participate();
        let insert = |number: u32| {
            let key = number.to_le_bytes();
            let (hash, ttl) = (store.hash(&key), crate::Ttl::Never);
            let write =
                crate::Write { key: &key, hash, value: b"", flags: 0.into(), ttl, mode: crate::Mode::Set, token: None };
            store.write(&participant, &write, 1000)
        };
        let refusal = (0..10_000).find_map(|number| insert(number).err()).expect("the index has 448 slots");
        assert!(matches!(refusal, Error::IndexFull { .. }), "{refusal}");
        assert_eq!(store.evict(&participant, 1000), Progress::Ready, "memory is not what it lacks");
    }

    fn set(store: &Store, participant: &crate::epoch::Participant, numbers: std::ops::Range<u32>) {
        for number in numbers {
            let key = number.to_le_bytes();
            let (hash, ttl) = (store.hash(&key), crate::Ttl::Never);
            let write =
                crate::Write { key: &key, hash, value: b"", flags: 0.into(), ttl, mode: crate::Mode::Set, token: None };
            store.write(participant, &write, 1000).unwrap();
        }
    }

    #[test]
    fn the_index_is_paid_for_ahead_of_need() {
        let options = Options {
            memory_bytes: 64 << 20,
            segment_size: Some(4 << 10),
            value_bytes_max: 3000,
            ..Options::default()
        };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        set(&store, &participant, 0..200_000);
        while store.maintain(&participant, 1000) == Progress::Working {}
        let (paid, length) = (store.index.paid_buckets(), store.index.length() as u64);
        assert!(store.index_load() >= 0.85 && paid >= length + length / 32, "{paid} paid for {length}");
        assert!(paid < length + length / 16, "{paid} paid for {length}");
        assert!((length..paid).all(|bucket| store.index.is_resident(bucket as usize)), "no split waits for pages");
        assert!(!store.index.is_resident(store.index.limit() - 1));
        store.verify(&participant, 1000);
    }

    #[test]
    fn an_index_replaces_an_occupied_topmost_segment() {
        let options =
            Options { memory_bytes: 4 << 20, segment_size: Some(4 << 10), value_bytes_max: 3000, ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let mut taken: Vec<_> = std::iter::from_fn(|| store.segments.take(Purpose::Merge)).collect();
        let top = taken.pop().expect("a store has segments");
        assert_eq!(top.number(), store.segments.limit());
        taken.drain(..).for_each(|segment| store.segments.retire(segment));
        store.segments.reclaim();
        set(&store, &participant, 0..20_000);
        let limit = store.segments.limit();
        assert!(store.segments.usable() + 20 < limit && store.resize_done(), "the top is in use: {:?}", store.stats());
        assert_eq!(store.stats().index_replaced, 0);
        store.segments.retire(top);
        while store.maintain(&participant, 1000) == Progress::Working {}
        assert_eq!(store.segments.usable(), store.segments.limit(), "what was withheld is used again");
        assert!(store.segments.limit() < limit);
        store.verify(&participant, 1000);
    }

    /// A store whose topmost segment but one is withheld, and all others are free.
    fn with_the_second_from_the_top_withheld() -> (Store, crate::epoch::Participant) {
        let options = Options { memory_bytes: 4 << 20, value_bytes_max: 1 << 20, ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let mut taken: Vec<_> = std::iter::from_fn(|| store.segments.take(Purpose::Merge)).collect();
        let top = taken.pop().expect("a store has segments");
        // Of the free ones the last that was retired is the first to be taken.
        taken.drain(..).for_each(|segment| store.segments.retire(segment));
        store.segments.reclaim();
        let (paid, length) = (store.index.paid_buckets(), store.index.length() as u64);
        assert_eq!(paid, length);
        assert!(store.pay_for_index());
        assert_eq!(store.segments.withheld_list()[0].number() + 1, top.number());
        store.segments.retire(top);
        (store, participant)
    }

    #[test]
    fn shrinking_continues_below_a_withheld_segment() {
        let (store, participant) = with_the_second_from_the_top_withheld();
        store.resize(3 << 20).unwrap();
        while store.maintain(&participant, 1000) == Progress::Working {}
        assert!(store.resize_done(), "{:?}", store.stats());
        store.verify(&participant, 1000);
    }

    #[test]
    fn index_growth_continues_below_a_withheld_segment() {
        let (store, participant) = with_the_second_from_the_top_withheld();
        store.segments.reclaim();
        let paid = store.index.paid_buckets();
        assert!(store.prepay_for_index(), "the topmost one is free");
        assert!(!store.prepay_for_index(), "the next one is withheld");
        while store.maintain(&participant, 1000) == Progress::Working {}
        let buckets = buckets_per_segment(store.segments.segment_bytes());
        assert_eq!(store.index.paid_buckets(), paid + 2 * buckets);
        assert!(!store.needs_shrink(), "{:?}", store.stats());
        store.verify(&participant, 1000);
    }

    #[test]
    fn a_larger_memory_has_back_what_was_withheld() {
        let options = Options { memory_bytes: 2 << 20, memory_bytes_max: Some(8 << 20), ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let (limit, free) = (store.segments.limit(), store.segments.free_count());
        assert!(store.segments.withhold_free() && store.segments.withhold_free());
        assert_eq!((store.segments.usable(), store.segments.free_count()), (limit - 2, free - 2));
        store.resize(4 << 20).unwrap();
        assert_eq!(store.segments.usable(), store.segments.limit());
        assert!(store.segments.limit() > limit);
        store.verify(&participant, 1000);
    }

    #[test]
    fn a_memory_grows_to_its_ceiling() {
        let options = Options { memory_bytes: 9 << 20, memory_bytes_max: Some(16 << 20), ..Options::default() };
        let store = Store::new(options).unwrap();
        assert!(!(16_u64 << 20).is_multiple_of(store.segments.segment_bytes().into()), "a part of a segment is left");
        store.resize(16 << 20).unwrap();
        assert!(store.resize(17 << 20).is_err());
        store.verify(&store.participate(), 1000);
    }

    /// The open limit and the bytes of the histories, which count as they are.
    fn following(store: &Store) -> (u32, u64) {
        let (counted, present) = (store.budget.fixed_bytes(), store.policy_state.history_bytes());
        assert_eq!(counted, store.budget.unchanging_bytes() + present);
        (store.chains.open_limit(), present)
    }

    #[test]
    fn open_limit_and_histories_follow_the_budget() {
        for policy in [Policy::S3Fifo, Policy::TwoQ, Policy::MergeSketch] {
            let options = |memory_bytes| Options {
                memory_bytes,
                memory_bytes_max: Some(300 << 20),
                segment_size: Some(8 << 10),
                value_bytes_max: 1000,
                policy,
                ..Options::default()
            };
            let [small, large] = [1 << 20, 256 << 20].map(|bytes| following(&Store::new(options(bytes)).unwrap()));
            assert!(large.0 > 100 * small.0 / 2 && large.1 > 100 * small.1, "{small:?} {large:?}");
            let store = Store::new(options(1 << 20)).unwrap();
            let participant = store.participate();
            let reachable = store.reachable_bytes();
            store.resize(256 << 20).unwrap();
            assert_eq!(following(&store), large, "{policy:?}");
            set(&store, &participant, 0..1000);
            let grown = store.reachable_bytes();
            assert!(grown < reachable + reachable / 16, "a large history keeps no budget large: {reachable} {grown}");
            store.resize(1 << 20).unwrap();
            while store.maintain(&participant, 1000) == Progress::Working {}
            assert_eq!(following(&store), small, "{policy:?}");
            store.verify(&participant, 1000);
        }
    }

    #[test]
    fn a_history_grows_once_segments_leave() {
        let bytes = 64_u64 << 20;
        let before = bytes - (16 << 10);
        let options = Options { memory_bytes: before, memory_bytes_max: Some(2 * bytes), ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let mut taken: Vec<_> = std::iter::from_fn(|| store.segments.take(Purpose::Merge)).collect();
        let small = store.policy_state.history_bytes();
        store.resize(bytes).unwrap();
        assert!(!store.resize_done());
        assert_eq!(store.policy_state.history_bytes(), small, "its memory is in use as segments");
        taken.drain(..).for_each(|segment| store.segments.retire(segment));
        store.segments.reclaim();
        while store.maintain(&participant, 1000) == Progress::Working {}
        assert!(store.resize_done());
        assert!(following(&store).1 > small);
        store.verify(&participant, 1000);
    }

    #[test]
    fn another_policy_keeps_a_resize_beside_it() {
        let options = Options { memory_bytes: 4 << 20, policy: Policy::Fifo, ..Options::default() };
        let store = Store::new(options).unwrap();
        let changing = lock(&store.budget.changing);
        std::thread::scope(|scope| {
            let switch = scope.spawn(|| store.set_policy(Policy::S3Fifo));
            while store.policy_state.switching.try_lock().is_ok() {
                std::thread::yield_now();
            }
            // The other thread has time to reach the lock of the budget; the result is the same if it does not.
            (0..1000).for_each(|_| std::thread::yield_now());
            store.set_budget(3 << 20, changing.as_ref(), 0).unwrap();
            drop(changing);
            switch.join().unwrap().unwrap();
        });
        assert_eq!((store.policy(), store.memory_bytes()), (Policy::S3Fifo, 3 << 20));
        store.verify(&store.participate(), 1000);
    }

    #[test]
    fn index_growth_stays_within_shrinking_memory() {
        let options = Options { memory_bytes: 4 << 20, value_bytes_max: 1 << 20, ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        store.resize(2 << 20).unwrap();
        for _ in 0..10 {
            let missing = store.index.paid_buckets() - store.index.length() as u64;
            for _ in 0..missing {
                store.grow_index();
            }
            assert!(store.pay_for_index());
        }
        while store.maintain(&participant, 1000) == Progress::Working {}
        assert!(store.resize_done());
        let each = u64::from(store.segments.segment_bytes()) + size_of::<Header>() as u64;
        let index_bytes = store.index.paid_buckets() * size_of::<Bucket>() as u64;
        let all = store.budget.fixed_bytes() + index_bytes + u64::from(store.segments.limit()) * each;
        assert!(all <= 2 << 20, "{all} bytes");
        store.verify(&participant, 1000);
    }
}
