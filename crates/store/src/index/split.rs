//! Growth by linear hashing (Litwin 1980): buckets are split in ascending order, and the split word holds the progress.
//!
//! ```text
//! Split word   level:8 | position:56        buckets in use = 2^level + position
//! ```
//! The lock of the bucket at the position is the right to advance the split word. A splitter locks that bucket, reads
//! the word again, locks the new bucket, stores the next word, and only then moves slots. A splitter that is preempted while it moves slots delays only threads that need one of its two buckets: other
//! threads split the next bucket meanwhile. One that is preempted between its lock and its store is like any writer
//! that is preempted with a bucket lock.

use super::{BUCKET_SLOTS, Candidates, Control, Index, Items, Slot};
use crate::pause_point::{PausePoint, pause_point};
use crate::sync::{Backoff, Ordering, load_to_write};

/// The progress of growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split(u64);

const POSITION_BITS: u32 = 56;
/// Spreads the first address into the second. Any odd constant with well mixed bits does (here 2^64 / golden ratio).
const SECOND_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

impl Split {
    pub fn new(level: u32, position: usize) -> Self {
        Self(u64::from(level) << POSITION_BITS | position as u64)
    }

    pub fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub fn word(self) -> u64 {
        self.0
    }

    #[inline(always)]
    fn level(self) -> u32 {
        (self.0 >> POSITION_BITS) as u32
    }

    #[inline(always)]
    pub(super) fn position(self) -> usize {
        (self.0 & ((1 << POSITION_BITS) - 1)) as usize
    }

    /// Buckets in use.
    pub fn buckets(self) -> usize {
        (1 << self.level()) + self.position()
    }

    #[inline(always)]
    fn address(self, bits: u64) -> usize {
        let low = (bits & ((1 << self.level()) - 1)) as usize;
        let high = (bits & ((2 << self.level()) - 1)) as usize;
        if low < self.position() { high } else { low }
    }

    /// The buckets in which a key with this hash may live.
    #[inline(always)]
    pub fn candidates(self, hash: u64) -> Candidates {
        let second = (hash ^ hash >> 32).wrapping_mul(SECOND_MULTIPLIER) >> 20;
        Candidates { first: self.address(hash), second: self.address(second) }
    }

    /// Whether a key with this hash has the same candidates by a later split word. Splits and contractions in between have
    /// left it where it was, or have locked one of these buckets again (see `contract`).
    #[inline(always)]
    pub fn agrees_on(self, later: Self, hash: u64) -> bool {
        self == later || self.candidates(hash) == later.candidates(hash)
    }

    /// The word before this one; `None` if there is none.
    pub(super) fn previous(self) -> Option<Self> {
        match (self.level(), self.position()) {
            (0, 0) => None,
            (level, 0) => Some(Self::new(level - 1, (1 << (level - 1)) - 1)),
            (level, position) => Some(Self::new(level, position - 1)),
        }
    }

    fn next(self) -> Self {
        let position = self.position() + 1;
        if position == 1 << self.level() { Self::new(self.level() + 1, 0) } else { Self::new(self.level(), position) }
    }
}

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
    /// Splits the next bucket, if its lock is free.
    pub fn try_split_one(&self, items: &impl Items) -> SplitOutcome {
        let split = self.split();
        if split.buckets() as u64 >= self.paid_buckets() {
            return SplitOutcome::Unpaid;
        }
        match self.try_lock_bucket(split.position()) {
            Some(control) => self.split_locked(split, control, items),
            None => SplitOutcome::Busy,
        }
    }

    /// Splits the next bucket. Waits for its lock, at most until another thread has split it. The caller holds no bucket.
    pub fn split_one(&self, items: &impl Items) -> SplitOutcome {
        let split = self.split();
        let mut backoff = Backoff::new();
        loop {
            match self.try_split_one(items) {
                SplitOutcome::Busy if self.split() == split => backoff.wait(),
                grown => return grown,
            }
        }
    }

    /// Splits the bucket at the position of `split`, which the caller has locked, and unlocks it.
    fn split_locked(&self, split: Split, old_control: Control, items: &impl Items) -> SplitOutcome {
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
        // Only a thread with an old split word can hold the new bucket: it unlocks as soon as it has read the word again.
        let Some(new_control) = self.try_lock_bucket(new) else {
            self.unlock_bucket(old, old_control, old_control.sequence());
            return SplitOutcome::Busy;
        };
        let next = split.next();
        // Release pairs with the Acquire in `Index::split`. From now on other threads may split the buckets after this one.
        // It fails if a contraction was faster.
        if self.split.compare_exchange(split.word(), next.word(), Ordering::Release, Ordering::Relaxed).is_err() {
            self.unlock_bucket(new, new_control, new_control.sequence());
            self.unlock_bucket(old, old_control, old_control.sequence());
            return SplitOutcome::Busy;
        }
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_hash_moves_only_to_the_new_bucket() {
        let mut split = Split::new(2, 0);
        for _ in 0..60 {
            let next = split.next();
            assert_eq!((next.buckets(), next.previous()), (split.buckets() + 1, Some(split)));
            for hash in (0..2000u64).map(|i| i.wrapping_mul(0xD6E8_FEB8_6659_FD93)) {
                let (before, after) = (split.candidates(hash), next.candidates(hash));
                for (old, new) in [(before.first, after.first), (before.second, after.second)] {
                    assert!(new < next.buckets());
                    assert!(new == old || (old == split.position() && new == split.buckets()));
                }
            }
            split = next;
        }
    }
}
