//! Contraction by linear hashing backwards: the last bucket is merged into its parent, the bucket that was split to
//! make it, and the split word goes one step back.
//!
//! ```text
//! locks                     parent, then child, by try-lock
//! split word reads the same?   no: another thread was faster
//! more than fit the parent?    slots of the two buckets move to the other candidate of their key, as in a displacement
//! note                      the keys of the child, for walks that have visited the parent and not the child
//! split word                one step back, by compare-exchange
//! each slot of the child    stored in the parent, then emptied in the child
//! unlock                    both with a sequence above those of both
//! ```
//! A reader that starts with the old split word looks into the child. It finds the key there, or an emptied slot;
//! then its second read of the split word shows the step, or a later one. A bucket that is split again may make the
//! split word what it was. So readers read the split word again before the control words: the new split has locked
//! the child before it stores the split word, and the sequence of a bucket never falls.

use super::locked::LockedPair;
use super::{Index, Items, Split};
use crate::kill_point::{KillPoint, kill_point};
use crate::pause_point::{PausePoint, pause_point};
use crate::sync::Ordering;

/// The result of a contraction by one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContractOutcome {
    /// The last bucket is gone.
    Contracted,
    /// Another thread holds one of the two buckets, has moved the split word, or walks through the index with as many
    /// notes as it may have.
    Busy,
    /// The slots of the two buckets do not fit one, and no other candidate has an empty slot.
    NoVacancy,
    /// The index has as many buckets as at the start.
    Smallest,
}

impl Index {
    /// Merges the last bucket into its parent. The caller holds no bucket.
    pub fn try_contract_one(&self, items: &impl Items) -> ContractOutcome {
        let split = self.split();
        let Some(before) = split.previous().filter(|before| before.buckets() >= self.min_buckets()) else {
            return ContractOutcome::Smallest;
        };
        let Some(mut pair) = self.try_lock_two(before.position(), before.buckets()) else {
            return ContractOutcome::Busy;
        };
        if self.split() != split {
            return ContractOutcome::Busy;
        }
        while !pair.fits_one() {
            // Ends: each move leaves one slot less in the two buckets.
            if !pair.move_one_out(items) {
                return ContractOutcome::NoVacancy;
            }
        }
        self.merge(&mut pair, (split, before), items)
    }

    /// Takes `count` buckets at the end out of the budget, if they are not in use and the lock of the bucket at the
    /// position is free. No split can have them afterwards: each reads the budget again under that lock, or under the
    /// lock of a later position, which it can only know after that.
    pub fn try_unpay(&self, count: u64) -> bool {
        let split = self.split();
        let Some(control) = self.try_lock_bucket(split.position()) else { return false };
        let paid = self.paid_buckets().saturating_sub(count);
        let is_unused = self.split() == split && split.buckets() as u64 <= paid && self.min_buckets() as u64 <= paid;
        if is_unused {
            self.paid_buckets.store(paid, Ordering::Relaxed);
        }
        self.unlock_bucket(split.position(), control, control.sequence());
        is_unused
    }

    /// Gives the pages of buckets that are not in the budget back to the system. False if another thread holds one of
    /// them.
    ///
    /// A thread with an old split word may try to lock such a bucket. It fails while the bucket is locked here, and
    /// finds it zeroed and unlocked afterwards; then it reads the split word again and unlocks.
    pub fn release(&self, first: usize, count: usize) -> bool {
        let range = self.buckets.whole_pages(first, first + count);
        for bucket in range.clone() {
            if self.try_lock_bucket(bucket).is_none() {
                for locked in range.start..bucket {
                    let control = self.control(locked);
                    self.unlock_bucket(locked, control, control.sequence());
                }
                return false;
            }
        }
        // SAFETY: zero is an unlocked, empty bucket, a valid state for all remaining accesses. The grace period of
        // readers is over, and writers hold none of the locks. Hints of writes look at slots without a pin: they follow
        // none of them, and an empty one is no hint.
        unsafe { self.buckets.release(range) };
        #[cfg(not(loom))]
        self.populated_buckets.fetch_min(first as u64, Ordering::Relaxed);
        true
    }

    fn merge(&self, pair: &mut LockedPair<'_>, (split, before): (Split, Split), items: &impl Items) -> ContractOutcome {
        let (parent, child) = (before.position(), before.buckets());
        if !self.cursors.may_move(child, parent) {
            return ContractOutcome::Busy;
        }
        // Before the split word shows a walk that the child is gone.
        let leavers: Vec<_> = pair.slots_of(child).collect();
        for slot in &leavers {
            self.cursors.note_move(items.hash_at(slot.location()), child, parent);
        }
        pause_point(PausePoint::Split);
        // Release pairs with the Acquire in `Index::split`: a thread that reads this word sees the locks of both
        // buckets. A thread that splits the next bucket at this moment holds neither of them.
        if self.split.compare_exchange(split.word(), before.word(), Ordering::Release, Ordering::Relaxed).is_err() {
            return ContractOutcome::Busy;
        }
        kill_point(KillPoint::ContractionWord);
        pair.move_all(child, parent);
        ContractOutcome::Contracted
    }
}
