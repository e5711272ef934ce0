//! The index: from a key's hash to the slot that says where its item lies.
//!
//! A key has two candidate buckets and lives in one of them; a new key goes to the less loaded one. The table grows by
//! linear hashing, one bucket at a time: the split word holds the level and the position of the next bucket to split, so
//! that a hash `h` belongs to bucket `h mod 2^level`, or `h mod 2^(level+1)` where that bucket is split already.
//!
//! Readers take no lock: they scan both candidates, and a hit is a hit; a miss is only believed when neither the control
//! words of the two buckets nor the split word moved meanwhile (`Index::find`). Writers hold the locks of all candidates
//! (`LockedPair`), the splitter those of the old and the new bucket. Items named by slots of a locked bucket stay alive
//! while the lock is held, because unlinking takes it too.

mod locked;
mod slot;
mod split;
mod walk;

pub use locked::{LockedPair, Placement, SlotPlace};
pub use slot::{BUCKET_SLOTS, Bucket, Control, FREQUENCY_EXACT, FREQUENCY_LIMIT, Slot, Tag};
pub use split::{Split, SplitOutcome};
pub use walk::{IndexWalk, WALKS_MAX, WalkedBucket};

use crate::error::Error;
use crate::mapping::{Pages, Table};
use crate::segment::Location;
use crate::sync::{AtomicU64, Backoff, Ordering, fence, load_to_write, store_over};
use walk::WalkCursors;

/// The two buckets in which a key may live; they can be the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidates {
    pub first: usize,
    pub second: usize,
}

/// A slot that a lookup found, with what it saw there.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub bucket: usize,
    pub position: usize,
    pub slot: Slot,
    /// The bucket's control word, read before the slot: its sequence is the CAS token.
    pub control: Control,
}

/// What the index asks of the items that its slots name. A bucket's lock or a pin protects them.
pub trait Items {
    /// The hash of an item's key.
    fn hash_at(&self, at: Location) -> u64;

    /// Says that the hash will be asked for.
    fn prefetch(&self, at: Location);
}

/// The hash table of the store.
pub struct Index {
    buckets: Table<Bucket>,
    split: AtomicU64,
    /// Buckets whose memory is in the budget; the split stops there.
    paid_buckets: AtomicU64,
    cursors: WalkCursors,
}

impl Index {
    /// An index of `2^level` buckets that can grow to `limit` buckets.
    pub fn new(level: u32, limit: usize, pages: Pages) -> Result<Self, Error> {
        assert!(1 << level <= limit, "the first level fits the limit");
        Ok(Self {
            buckets: Table::new(limit, pages)?,
            split: AtomicU64::new(Split::new(level, 0).word()),
            paid_buckets: AtomicU64::new(1 << level),
            cursors: WalkCursors::new(),
        })
    }

    #[inline(always)]
    pub fn split(&self) -> Split {
        // Pairs with the Release in `split_locked`: a bucket that the split word admits is initialized.
        Split::from_word(self.split.load(Ordering::Acquire))
    }

    /// Buckets in use.
    pub fn length(&self) -> usize {
        self.split().buckets()
    }

    /// Slots in use and empty.
    pub fn capacity(&self) -> u64 {
        (self.length() * BUCKET_SLOTS) as u64
    }

    /// The most buckets there is address space for.
    pub fn limit(&self) -> usize {
        self.buckets.length()
    }

    /// Says with which pages the system shall back the buckets.
    pub fn advise(&self, pages: Pages) {
        self.buckets.advise(pages);
    }

    pub fn paid_buckets(&self) -> u64 {
        self.paid_buckets.load(Ordering::Relaxed)
    }

    /// Admits more buckets to the memory budget.
    pub fn pay_for(&self, buckets: u64) {
        self.paid_buckets.fetch_add(buckets, Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn prefetch(&self, hash: u64) -> Candidates {
        let candidates = self.split().candidates(hash);
        self.buckets.prefetch(candidates.first);
        self.buckets.prefetch(candidates.second);
        candidates
    }

    #[inline(always)]
    fn control(&self, bucket: usize) -> Control {
        // Pairs with the Release at unlock: whoever sees the new sequence sees the change that it counts.
        Control::from_word(self.buckets.at(bucket).control.load(Ordering::Acquire))
    }

    #[inline(always)]
    fn slot(&self, bucket: usize, position: usize) -> Slot {
        // Pairs with the Release of the publisher: whoever sees the slot sees the item's bytes.
        Slot::from_word(self.buckets.at(bucket).slots[position].load(Ordering::Acquire))
    }

    /// A slot of a bucket that the caller has locked.
    #[inline(always)]
    fn locked_slot(&self, bucket: usize, position: usize) -> Slot {
        Slot::from_word(load_to_write(&self.buckets.at(bucket).slots[position], Ordering::Acquire))
    }

    fn store_slot(&self, bucket: usize, position: usize, slot: Slot) {
        // Pairs with the Acquire in `slot`.
        store_over(&self.buckets.at(bucket).slots[position], slot.word(), Ordering::Release);
    }

    #[inline(always)]
    fn scan(tag: Tag, is_it: &mut impl FnMut(Slot) -> bool, slot_at: impl Fn(usize) -> Slot) -> Option<(usize, Slot)> {
        for position in 0..BUCKET_SLOTS {
            let slot = slot_at(position);
            if slot.tag() == tag && !slot.is_empty() && is_it(slot) {
                return Some((position, slot));
            }
        }
        None
    }

    /// The slot of the key with this hash for which `is_it` holds; `None` only if there was an instant during the call at
    /// which it was in neither bucket. `is_it` may look at the item: the caller must be pinned. A miss that others' changes of
    /// the two buckets keep from being certain is looked for under their locks in the end.
    #[inline(always)]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(Slot) -> bool) -> Option<Found> {
        let tag = Tag::of(hash);
        let mut backoff = Backoff::new();
        loop {
            let split = self.split();
            let Candidates { first, second } = split.candidates(hash);
            let first_control = self.control(first);
            if let Some((position, slot)) = Self::scan(tag, &mut is_it, |position| self.slot(first, position)) {
                return Some(Found { bucket: first, position, slot, control: first_control });
            }
            let second_control = self.control(second);
            if let Some((position, slot)) = Self::scan(tag, &mut is_it, |position| self.slot(second, position)) {
                return Some(Found { bucket: second, position, slot, control: second_control });
            }
            // Orders the looks at the slots before the second looks at the control words. A look that missed a change
            // in flight saw a store made under the lock in the other bucket, and so sees the lock or the new sequence.
            fence(Ordering::Acquire);
            if first_control.proves_unchanged(self.control(first))
                && second_control.proves_unchanged(self.control(second))
                && split.agrees_on(self.split(), hash)
            {
                return None;
            }
            if !backoff.wait_briefly() {
                return self.find_locked(hash, is_it);
            }
        }
    }

    /// `find` for whoever compares tokens: the slot is what the bucket held at the sequence of the control word, where that of
    /// `find` may be newer.
    pub fn find_exact(&self, hash: u64, mut is_it: impl FnMut(Slot) -> bool) -> Option<Found> {
        let found = self.find(hash, &mut is_it)?;
        // Orders the look at the slot before the second look at the control word: whoever stored the slot after the first
        // look holds the lock, or has unlocked with a new sequence.
        fence(Ordering::Acquire);
        if found.control.proves_unchanged(self.control(found.bucket)) {
            return Some(found);
        }
        self.find_locked(hash, is_it)
    }

    /// Hints for the second stage of a batch: calls `look` with every slot of the key's buckets that carries its tag.
    #[inline(always)]
    pub fn each_match(&self, candidates: Candidates, hash: u64, mut look: impl FnMut(Slot)) {
        let tag = Tag::of(hash);
        for bucket in [candidates.first, candidates.second] {
            for position in 0..BUCKET_SLOTS {
                let slot = Slot::from_word(self.buckets.at(bucket).slots[position].load(Ordering::Relaxed));
                if slot.tag() == tag && !slot.is_empty() {
                    look(slot);
                }
            }
        }
    }

    /// Counts an access to what was found: at most once per quantum, and not at all if anything is in the way. The only
    /// write of a reader to shared memory. `random` draws a uniform number; it is called only when something is counted.
    #[inline(always)]
    pub fn count_access(&self, found: &Found, quantum: u16, random: impl FnOnce() -> u32) {
        if found.slot.frequency() == FREQUENCY_LIMIT {
            return;
        }
        if found.control.last_access() == quantum {
            if found.slot.is_counted() {
                return;
            }
        } else if !self.open_quantum(found, quantum) {
            return;
        }
        let seen = Slot::from_word(found.slot.word() & Slot::UNCOUNT);
        let words = &self.buckets.at(found.bucket).slots;
        // Relaxed: the frequency orders nothing, and a lost count does no harm.
        let _ = words[found.position].compare_exchange(
            seen.word(),
            seen.counted(random()).word(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Lets every item of the bucket be counted again. False if someone else was faster or holds the lock.
    #[cold]
    fn open_quantum(&self, found: &Found, quantum: u16) -> bool {
        if found.control.is_locked() {
            return false;
        }
        let bucket = self.buckets.at(found.bucket);
        let (old, new) = (found.control.word(), found.control.accessed(quantum).word());
        // Relaxed: as a read-modify-write it continues the release sequence of the last unlock.
        if bucket.control.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return false;
        }
        for word in &bucket.slots {
            if Slot::from_word(word.load(Ordering::Relaxed)).is_counted() {
                word.fetch_and(Slot::UNCOUNT, Ordering::Relaxed);
            }
        }
        true
    }

    /// Calls `visit` with every slot that is not empty. The index must be quiet: for `verify` and statistics.
    pub fn each_slot(&self, mut visit: impl FnMut(usize, Slot)) {
        for bucket in 0..self.length() {
            assert!(!self.control(bucket).is_locked(), "bucket {bucket} is locked in a quiet index");
            for position in 0..BUCKET_SLOTS {
                let slot = self.slot(bucket, position);
                if !slot.is_empty() {
                    visit(bucket, slot);
                }
            }
        }
    }
}
