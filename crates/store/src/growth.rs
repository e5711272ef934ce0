//! Growth of the index: its load stays where a key finds a slot, and it gets memory before it needs it.
//!
//! An insert that had to displace a neighbour looks at the load, and so does one that finds a turn at splitting taken
//! (`index::SplitTurns`). Above `GROWTH_LOAD` it takes a turn and splits a bucket, if no other thread has a turn and
//! the bucket is not locked. Above `CROWDED_LOAD` its key is counted. It takes a turn and splits a bucket for each
//! `KEYS_PER_SPLIT` counted keys, or it waits for the turn of another thread, which does so for both. An insert that
//! finds no slot queues for a turn and splits buckets until there is one (`Store::publish`).

use crate::index::{SplitOutcome, SplitTurn};
use crate::store::Store;

/// The load above which the index grows when a key finds no free slot.
const GROWTH_LOAD: f64 = 0.88;
/// The load above which each key is counted, and a thread waits for the bucket that it has to split.
const CROWDED_LOAD: f64 = 0.9;
/// Counted keys for which one bucket is split. A split makes place for six keys at this load: for four counted ones,
/// and for inserts that are not counted, as they displace no neighbour and find no turn taken.
const KEYS_PER_SPLIT: u64 = 4;
/// The load from which on it is given memory to grow into.
const PREPARE_LOAD: f64 = 0.85;
/// How much: this part of its length.
const PREPARE_SHARE: u64 = 32;
/// Segments that one slice of maintenance turns into memory for the index, at most.
const PREPARE_SEGMENTS: usize = 16;

impl Store {
    /// Slots in use over slots.
    pub(crate) fn index_load(&self) -> f64 {
        self.counters.items() as f64 / self.index.capacity() as f64
    }

    /// As `index_load`, from one word of the counters, for paths that must not sum all of them.
    pub(crate) fn index_load_estimate(&self) -> f64 {
        self.counters.items_estimate() as f64 / self.index.capacity() as f64
    }

    /// Gives an index that will soon grow memory to grow into, and has the system clear it. False if there was nothing
    /// to do, or nothing could be done.
    pub(crate) fn prepare_index(&self) -> bool {
        let wanted = || {
            let length = self.index.length() as u64;
            length + length / PREPARE_SHARE
        };
        if self.index_load_estimate() < PREPARE_LOAD {
            return false;
        }
        let paid =
            (0..PREPARE_SEGMENTS).take_while(|_| self.index.paid_buckets() < wanted() && self.prepay_for_index());
        paid.count() > 0 || self.index.populate_paid()
    }

    /// Takes part in the growth after an insert that displaced a neighbour, or found a turn taken, as the load demands.
    /// Waits for the turn of another thread once at most. The caller holds neither a bucket nor a stripe.
    pub(crate) fn grow_if_crowded(&self) {
        let load = self.index_load_estimate();
        if load < GROWTH_LOAD {
            return;
        }
        let is_crowded = load >= CROWDED_LOAD;
        if is_crowded {
            self.index.turns.count_key();
        }
        match self.index.turns.try_take() {
            Some(turn) if is_crowded => self.split_for_keys(turn),
            Some(turn) => self.try_split(turn),
            None if is_crowded => self.index.turns.wait_for_taken(),
            None => {}
        }
    }

    /// Splits a bucket if its lock is free.
    fn try_split(&self, turn: SplitTurn<'_>) {
        // The load is less than the one at which keys are counted.
        turn.discount(u64::MAX);
        if self.index.paid_buckets() > self.index.length() as u64 || self.pay_for_index() {
            self.index.try_split_one(self, || drop(turn));
        }
    }

    /// Splits a bucket for each `KEYS_PER_SPLIT` counted keys, while the load is over `CROWDED_LOAD`.
    fn split_for_keys(&self, turn: SplitTurn<'_>) {
        let goes_on = |turn: &SplitTurn<'_>| turn.has_keys() && self.index_load_estimate() >= CROWDED_LOAD;
        let mut turn = Some(turn);
        // Ends: each other thread adds one key at most while the turn lasts; then it waits.
        while turn.as_ref().is_some_and(goes_on) {
            let grown = self.split_bucket(|| {
                turn = turn.take().filter(|turn| {
                    turn.discount(KEYS_PER_SPLIT);
                    goes_on(turn)
                });
            });
            if grown == SplitOutcome::Unpaid {
                // Nothing bounds the load of an index without memory.
                turn.take().iter().for_each(|turn| turn.discount(u64::MAX));
            }
        }
    }

    /// Ends the turn of a key that had found no slot, and has been added.
    pub(crate) fn end_turn(&self, turn: SplitTurn<'_>) {
        if self.index_load_estimate() >= CROWDED_LOAD {
            self.index.turns.count_key();
            self.split_for_keys(turn);
        }
    }

    /// Has the index grow by one bucket in the turn of a key that finds no slot. False if there is no memory for it.
    pub(crate) fn grow_in_turn(&self, turn: &SplitTurn<'_>) -> bool {
        self.split_bucket(|| turn.discount(KEYS_PER_SPLIT)) != SplitOutcome::Unpaid
    }

    /// Splits a bucket, for which it waits, and pays for it.
    fn split_bucket(&self, mut advanced: impl FnMut()) -> SplitOutcome {
        loop {
            match self.index.split_one(self, &mut advanced) {
                // Ends: if the paid buckets are gone when this thread looks, others have split that many buckets.
                SplitOutcome::Unpaid if self.pay_for_index() => {}
                grown => return grown,
            }
        }
    }

    /// Has the index grow by one bucket, while no other thread does.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn grow_index(&self) {
        let (turn, _) = self.index.turns.take();
        self.grow_in_turn(&turn);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::evict::Progress;
    use crate::ops::{Mode, Write};
    use crate::options::Options;
    use crate::sync::{AtomicBool, Ordering};
    use crate::ttl::Ttl;

    fn insert_until(store: &Store, writer: u64, is_over: &AtomicBool) {
        let participant = store.participate();
        for number in (writer << 32..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
            let key = number.to_le_bytes();
            let (hash, ttl) = (store.hash(&key), Ttl::Never);
            let write = Write { key: &key, hash, value: b"v", flags: 0.into(), ttl, mode: Mode::Set, token: None };
            while store.write(&participant, &write, 1000).is_err() {
                assert_ne!(store.evict(&participant, 1000), Progress::Stuck);
            }
        }
    }

    /// Each turn lasts until all writers wait for it, as if its thread were preempted.
    #[test]
    fn a_turn_splits_for_all_that_wait() {
        const WRITERS: u64 = 12;
        let options = Options {
            memory_bytes: 4 << 20,
            segment_size: Some(16 << 10),
            value_bytes_max: 1000,
            writers: 8,
            ..Options::default()
        };
        let store = Store::new(options).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            (0..WRITERS).for_each(|writer| {
                _ = scope.spawn({
                    let (store, is_over) = (&store, &is_over);
                    move || insert_until(store, writer, is_over)
                })
            });
            let mut max_excess = f64::MIN;
            for _ in 0..200 {
                let (turn, _) = store.index.turns.take();
                let before = store.index.turns.waits();
                while store.index.turns.waits() < before + WRITERS {
                    std::thread::yield_now();
                }
                let excess = store.counters.items() as f64 - CROWDED_LOAD * store.index.capacity() as f64;
                max_excess = excess.max(max_excess);
                store.split_for_keys(turn);
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(max_excess <= 3.0 * WRITERS as f64, "{max_excess} keys over the load");
        });
        let stats = store.stats();
        assert_eq!((stats.evictions, stats.index_replaced), (0, 0), "{stats:?}");
        assert!(stats.index_load > GROWTH_LOAD - 0.05, "no more is split than that: {stats:?}");
        store.verify(&store.participate(), 1000);
    }
}
