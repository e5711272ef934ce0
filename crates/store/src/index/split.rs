//! Growth by linear hashing (Litwin 1980): buckets are split in ascending order, and the split word holds the progress.
//!
//! The lock of the bucket at the position is the right to advance the split word. A splitter locks that bucket, reads
//! the word again, locks the new bucket, stores the next word, and only then moves slots. A splitter that is preempted
//! while it moves slots delays only threads that need one of its two buckets: other threads split the next bucket
//! meanwhile. Threads of a store take turns (`split_turns.rs`), so that none waits for the bucket of another splitter.

use super::{BUCKET_SLOTS, Candidates, Control, Index, Items, Slot, Split};
use crate::kill_point::{KillPoint, kill_point};
use crate::pause_point::{PausePoint, pause_point};
use crate::sync::{Backoff, Ordering, load_to_write};

/// The result of an attempt to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitOutcome {
    /// This thread split one bucket.
    Split,
    /// Another thread holds the bucket that is to be split, or has split it.
    Busy,
    /// The budget has no memory for another bucket: call `Index::pay_for` first.
    Unpaid,
}

impl Index {
    /// Splits the next bucket, if its lock is free. Calls `advanced` when the index has it, before slots are moved.
    pub fn try_split_one(&self, items: &impl Items, advanced: impl FnOnce()) -> SplitOutcome {
        let split = self.split();
        if split.buckets() as u64 >= self.paid_buckets() {
            return SplitOutcome::Unpaid;
        }
        match self.try_lock_bucket(split.position()) {
            Some(control) => self.split_locked(split, control, items, advanced),
            None => SplitOutcome::Busy,
        }
    }

    /// As `try_split_one`, but waits for the lock, at most until the split word has another value. The caller holds no
    /// bucket.
    pub fn split_one(&self, items: &impl Items, mut advanced: impl FnMut()) -> SplitOutcome {
        let split = self.split();
        let mut backoff = Backoff::new();
        loop {
            match self.try_split_one(items, &mut advanced) {
                SplitOutcome::Busy if self.split() == split => backoff.wait(),
                grown => return grown,
            }
        }
    }

    /// Splits the bucket at the position of `split`, which the caller has locked, and unlocks it.
    fn split_locked(
        &self,
        split: Split,
        old_control: Control,
        items: &impl Items,
        advanced: impl FnOnce(),
    ) -> SplitOutcome {
        let (old, new) = (split.position(), split.buckets());
        // A thread that advances the split word from `split` holds this bucket: the word is stable, or it has advanced
        // already.
        if Split::from_word(load_to_write(&self.split, Ordering::Relaxed)) != split {
            self.unlock_bucket(old, old_control, old_control.sequence());
            return SplitOutcome::Busy;
        }
        if split.buckets() as u64 >= self.paid_buckets() {
            // The index has contracted, and the memory of the new bucket has another use.
            self.unlock_bucket(old, old_control, old_control.sequence());
            return SplitOutcome::Unpaid;
        }
        pause_point(PausePoint::Split);
        // Only a thread with an old split word can hold the new bucket: it unlocks as soon as it has read the word
        // again.
        let Some(new_control) = self.try_lock_bucket(new) else {
            self.unlock_bucket(old, old_control, old_control.sequence());
            return SplitOutcome::Busy;
        };
        let next = split.next();
        // Release pairs with the Acquire in `Index::split`. From now on other threads may split the buckets after
        // this one. It fails if a contraction was faster.
        if self.split.compare_exchange(split.word(), next.word(), Ordering::Release, Ordering::Relaxed).is_err() {
            self.unlock_bucket(new, new_control, new_control.sequence());
            self.unlock_bucket(old, old_control, old_control.sequence());
            return SplitOutcome::Busy;
        }
        advanced();
        kill_point(KillPoint::SplitWord);
        let slots = (0..BUCKET_SLOTS).map(|position| self.locked_slot(old, position));
        slots.filter(|slot| !slot.is_empty()).for_each(|slot| items.prefetch(slot.location()));
        let mut taken = 0;
        for position in 0..BUCKET_SLOTS {
            let slot = self.locked_slot(old, position);
            if slot.is_empty() {
                continue;
            }
            let Candidates { first, second } = next.candidates(items.hash_at(slot.location()));
            if first != old && second != old {
                assert!(first == new || second == new, "{slot:?} was in bucket {old}, none of its candidates");
                self.store_slot(new, taken, slot);
                kill_point(KillPoint::SplitSlot);
                self.store_slot(old, position, Slot::EMPTY);
                taken += 1;
            }
        }
        // A bucket that was split before may have the higher one.
        let sequence = old_control.sequence().max(new_control.sequence()) + 1;
        self.unlock_bucket(new, new_control, sequence);
        self.unlock_bucket(old, old_control, sequence);
        SplitOutcome::Split
    }
}
