//! Growth by linear hashing (Litwin 1980): one bucket is split at a time, and the split word says how far that has come.
//!
//! ```text
//! Split word   level:8 | position:56        buckets in use = 2^level + position
//! ```

use super::{BUCKET_SLOTS, Candidates, Control, Index, Items, Slot};
use crate::pause::{Held, pause_point};
use crate::sync::{Ordering, load_to_write, store_over, try_lock};

/// How far growth has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split(u64);

const POSITION_BITS: u32 = 56;
/// Spreads the first address into the second; any odd constant with well mixed bits does (here 2^64 / golden ratio).
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
    fn position(self) -> usize {
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

    fn next(self) -> Self {
        let position = self.position() + 1;
        if position == 1 << self.level() { Self::new(self.level() + 1, 0) } else { Self::new(self.level(), position) }
    }
}

/// What became of an attempt to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grown {
    /// One bucket was split.
    Split,
    /// Someone else is splitting.
    Busy,
    /// The budget holds no more buckets: give the index memory (`Index::pay_for`) first.
    Unpaid,
}

impl Index {
    /// Splits the next bucket. Waits for nothing but the lock of that one bucket.
    pub fn split_one(&self, items: &impl Items) -> Grown {
        let Some(_growing) = try_lock(&self.growing) else {
            return Grown::Busy;
        };
        pause_point(Held::Split);
        let split = Split::from_word(load_to_write(&self.split, Ordering::Relaxed));
        if split.buckets() as u64 >= self.paid_buckets() {
            return Grown::Unpaid;
        }
        let (old, new) = (split.position(), split.buckets());
        let old_control = self.lock_bucket(old);
        // Nobody can address the new bucket yet: taking its lock needs no exchange, and the Release below publishes it.
        let new_control = Control::from_word(self.buckets.at(new).control.load(Ordering::Relaxed));
        assert!(!new_control.is_locked(), "bucket {new} is locked before it exists");
        self.buckets.at(new).control.store(new_control.locked().word(), Ordering::Relaxed);
        let next = split.next();
        // Pairs with the Acquire in `Index::split`.
        store_over(&self.split, next.word(), Ordering::Release);
        let slots = (0..BUCKET_SLOTS).map(|position| self.held_slot(old, position));
        slots.filter(|slot| !slot.is_empty()).for_each(|slot| items.prefetch(slot.location()));
        let mut taken = 0;
        for position in 0..BUCKET_SLOTS {
            let slot = self.held_slot(old, position);
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
        let sequence = old_control.sequence() + 1;
        self.unlock_bucket(new, new_control, sequence);
        self.unlock_bucket(old, old_control, sequence);
        Grown::Split
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
            assert_eq!(next.buckets(), split.buckets() + 1);
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
