//! Growth of the index: its load stays where a key finds a slot, and it gets memory before it needs it.
//!
//! An insert that had to displace a neighbour looks at the load. Above `GROWTH_LOAD` it splits a bucket if its lock is
//! free; above `CROWDED_LOAD` it splits one in any case, so that the load does not grow while a thread that splits is
//! preempted. An insert that still finds no slot splits buckets until there is one (`Store::publish`).

use crate::index::SplitOutcome;
use crate::store::Store;

/// The load above which the index grows when a key finds no free slot.
const GROWTH_LOAD: f64 = 0.88;
/// The load above which a thread waits for the bucket that it has to split.
const CROWDED_LOAD: f64 = 0.9;
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

    /// Splits buckets after an insert that displaced a neighbour, as the load demands.
    pub(crate) fn split_if_crowded(&self) {
        let load = self.index_load_estimate();
        if load < GROWTH_LOAD {
            return;
        }
        if load < CROWDED_LOAD {
            let grown = self.index.try_split_one(self);
            if grown == SplitOutcome::Unpaid && self.pay_for_index() {
                self.index.try_split_one(self);
            }
            return;
        }
        // Ends: each `Busy` is a bucket that another thread has split or merged, and no more are split than the index
        // has memory for.
        while self.split_bucket() == SplitOutcome::Busy && self.index_load_estimate() >= CROWDED_LOAD {}
    }

    /// Has the index grow by one bucket, split by this thread or another. False if there is no memory for it.
    pub(crate) fn grow_index(&self) -> bool {
        self.split_bucket() != SplitOutcome::Unpaid
    }

    /// Splits a bucket, for which it waits, and pays for it.
    fn split_bucket(&self) -> SplitOutcome {
        loop {
            match self.index.split_one(self) {
                // Ends: if the paid buckets are gone when this thread looks, others have split that many buckets.
                SplitOutcome::Unpaid if self.pay_for_index() => {}
                grown => return grown,
            }
        }
    }
}
