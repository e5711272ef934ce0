//! When the index contracts, and how its memory goes back to the segments.
//!
//! ```text
//! load < CONTRACT_LOAD          the last buckets are merged into their parents (index::contract)
//! enough buckets unused         they leave the budget of the index; no split can have them any more; ticket
//! grace period over             their pages return to the system, and segments enter the budget
//! ```
//! The grace period is for readers that started with an old split word: they may still look into a bucket that is gone.
//! An index that needs memory in between has the buckets back.

use crate::budget::{LeavingBuckets, buckets_per_segment};
use crate::index::{Bucket, ContractOutcome};
use crate::store::Store;
use crate::sync::{Ordering, lock};

/// The load below which the last bucket is merged into its parent: of two buckets at this load, slots of about one must
/// move to the other candidate of their key before the rest fits one bucket.
const CONTRACT_LOAD: f64 = 0.55;
/// Buckets that one slice of maintenance merges, at most.
const CONTRACT_BUCKETS: usize = 512;
/// The index keeps this part of its length for growth.
const KEPT_SHARE: u64 = 32;
/// Segments that one step returns, at most.
const RETURNED_SEGMENTS: u64 = 64;

impl Store {
    /// One step of contraction. False if there is nothing to do, or nothing can be done now.
    pub(crate) fn contract_index(&self) -> bool {
        let merges = (0..CONTRACT_BUCKETS).take_while(|_| {
            self.index_load_estimate() < CONTRACT_LOAD
                && self.index.try_contract_one(self) == ContractOutcome::Contracted
        });
        let has_contracted = merges.count() > 0;
        self.return_index_memory() || has_contracted
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
        let each = buckets_per_segment(self.segments.segment_bytes());
        let mut leaving = lock(&self.budget.changing);
        let length = self.index.length() as u64;
        // What was paid for at the last growth stays for the next one.
        let kept = length + length / KEPT_SHARE + each;
        let count = self.index.paid_buckets().saturating_sub(kept) / each * each;
        let count = count.min(RETURNED_SEGMENTS * each);
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
        let fit = self.budget.layout.segments_within(self.budget.memory_bytes(), index_bytes);
        let missing = fit.saturating_sub(self.segments.usable());
        let restored = self.segments.restore_withheld(missing);
        self.segments.admit(missing - restored);
        self.budget.target.store(fit.min(self.segments.usable()), Ordering::Relaxed);
        true
    }
}
