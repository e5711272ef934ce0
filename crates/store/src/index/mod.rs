//! The index: from the hash of a key to the slot that holds the location of its item.
//!
//! A key has two candidate buckets and is in one of them; a new key is put into the less loaded one. The table grows by
//! linear hashing, one bucket at a time: the split word holds the level and the position of the next bucket to split. A
//! hash `h` belongs to bucket `h mod 2^level`, or `h mod 2^(level+1)` if that bucket has been split.
//!
//! Readers take no lock. They scan both candidates. A hit is final. A miss is final only if neither the control words
//! of the two buckets nor the split word have changed meanwhile (`Index::find`). Writers hold the locks of both
//! candidates (`LockedPair`), a splitter those of the old and the new bucket. Items named by slots of a locked bucket
//! stay in place while the lock is held, because unlinking takes the lock, too.

mod contract;
mod locked;
mod slot;
mod split;
mod split_turns;
mod split_word;
mod walk;
mod walk_cursors;

pub use contract::ContractOutcome;
pub use locked::{LockedPair, Placement, SlotPlace, Vacancy};
pub use slot::{BUCKET_SLOTS, Bucket, Control, FREQUENCY_EXACT, FREQUENCY_LIMIT, Slot, Tag};
pub use split::SplitOutcome;
pub use split_turns::{SplitTurn, SplitTurns};
pub use split_word::{Candidates, Split};
pub use walk::{IndexWalk, WalkedBucket};
pub use walk_cursors::WALKS_MAX;

use crate::error::Error;
#[cfg(not(loom))]
use crate::mapping::HUGE_PAGE_BYTES;
use crate::mapping::{Pages, Table};
use crate::segment::Location;
use crate::sync::{AtomicU64, Backoff, Ordering, Padded, fence, load_to_write, store_over};
use walk_cursors::WalkCursors;

/// A slot that a lookup found, and the control word that it read.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub bucket: usize,
    pub position: usize,
    pub slot: Slot,
    /// The bucket's control word, read before the slot: its sequence is the CAS token.
    pub control: Control,
}

/// Access of the index to the items that its slots name. A bucket's lock or a pin protects them.
pub trait Items {
    /// The hash of an item's key.
    fn hash_at(&self, at: Location) -> u64;

    /// Announces a call of `hash_at`.
    fn prefetch(&self, at: Location);
}

/// The hash table of the store.
pub struct Index {
    buckets: Table<Bucket>,
    split: AtomicU64,
    /// Apart from what lookups read.
    pub turns: Padded<SplitTurns>,
    /// Buckets whose memory is in the budget; the split stops there.
    paid_buckets: AtomicU64,
    /// Buckets up to here have been given pages ahead of need.
    #[cfg(not(loom))]
    populated_buckets: AtomicU64,
    cursors: WalkCursors,
    min_level: u32,
}

impl Index {
    /// An index of `2^level` buckets that can grow to `limit` buckets.
    pub fn new(level: u32, limit: usize, pages: Pages) -> Result<Self, Error> {
        assert!(1 << level <= limit, "the first level fits the limit");
        Ok(Self {
            buckets: Table::new(limit, pages)?,
            split: AtomicU64::new(Split::new(level, 0).word()),
            turns: Padded::default(),
            paid_buckets: AtomicU64::new(1 << level),
            #[cfg(not(loom))]
            populated_buckets: AtomicU64::new(0),
            cursors: WalkCursors::new(),
            min_level: level,
        })
    }

    #[inline(always)]
    pub fn split(&self) -> Split {
        // Pairs with the Release in `split_locked`: a bucket that the split word includes is initialized.
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

    /// The number of buckets that fit the reserved address space.
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

    /// Buckets at the start, which is as few as there ever are.
    pub fn min_buckets(&self) -> usize {
        1 << self.min_level
    }

    /// Admits more buckets to the memory budget.
    pub fn pay_for(&self, buckets: u64) {
        self.paid_buckets.fetch_add(buckets, Ordering::Relaxed);
    }

    /// Takes the pages of buckets that are paid for from the system before a split touches them: a huge page of them.
    /// False if there are none.
    #[cfg(not(loom))]
    pub fn populate_paid(&self) -> bool {
        let first = self.populated_buckets.load(Ordering::Relaxed).max(self.length() as u64);
        let end = self.paid_buckets().min(first + (HUGE_PAGE_BYTES / size_of::<Bucket>()) as u64);
        if first >= end {
            return false;
        }
        self.buckets.populate(first as usize..end as usize);
        self.populated_buckets.store(end, Ordering::Relaxed);
        true
    }

    /// Whether a bucket is in memory.
    #[cfg(all(test, not(loom)))]
    pub fn is_resident(&self, bucket: usize) -> bool {
        crate::mapping::is_resident(std::ptr::from_ref(self.buckets.at(bucket)).cast())
    }

    #[cfg(loom)]
    pub fn populate_paid(&self) -> bool {
        false
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
        // Pairs with the Release at unlock: a thread that sees the new sequence sees the change that it counts.
        Control::from_word(self.buckets.at(bucket).control.load(Ordering::Acquire))
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

    /// Positions of a bucket's slots with a tag, as bits. Empty slots have the tag 0.
    #[inline(always)]
    fn matches(slots: &[AtomicU64; BUCKET_SLOTS], tag: Tag, load: impl Fn(&AtomicU64) -> u64) -> u32 {
        // Without a branch a slot the compiler unrolls the loop, and no branch is mispredicted for its position.
        slots.iter().rev().fold(0, |matches, slot| 2 * matches + u32::from(tag.is_of(load(slot))))
    }

    /// The first of the slots with a tag for which `read` answers.
    #[inline(always)]
    fn scan<T>(
        &self,
        bucket: usize,
        tag: Tag,
        load: impl Fn(&AtomicU64) -> u64,
        read: &mut impl FnMut(Slot) -> Option<T>,
    ) -> Option<(usize, Slot, T)> {
        let slots = &self.buckets.at(bucket).slots;
        let mut matches = Self::matches(slots, tag, &load);
        while matches != 0 {
            let position = matches.trailing_zeros() as usize;
            let slot = Slot::from_word(load(&slots[position]));
            if slot.tag() == tag
                && !slot.is_empty()
                && let Some(answer) = read(slot)
            {
                return Some((position, slot, answer));
            }
            matches &= matches - 1;
        }
        None
    }

    /// The slot of the key with this hash for which `is_it` holds: see `find_with`.
    #[inline(always)]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(Slot) -> bool) -> Option<Found> {
        self.find_with(hash, |slot| is_it(slot).then_some(())).map(|(found, ())| found)
    }

    /// The slot of the key with this hash for which `read` answers, and the answer; `None` only if at some instant
    /// during the call it was in neither bucket. `read` may read the item: the caller must be pinned. A miss that stays
    /// uncertain because other threads change the two buckets is decided under their locks.
    #[inline(always)]
    pub fn find_with<T>(&self, hash: u64, mut read: impl FnMut(Slot) -> Option<T>) -> Option<(Found, T)> {
        let tag = Tag::of(hash);
        // Pairs with the Release of the publisher: a thread that sees the slot sees the bytes of the item.
        let load = |slot: &AtomicU64| slot.load(Ordering::Acquire);
        let mut backoff = Backoff::new();
        loop {
            let split = self.split();
            let Candidates { first, second } = split.candidates(hash);
            // Two keys of five are there: its cache miss overlaps with that of the first.
            self.buckets.prefetch(second);
            let first_control = self.control(first);
            if let Some((position, slot, answer)) = self.scan(first, tag, load, &mut read) {
                return Some((Found { bucket: first, position, slot, control: first_control }, answer));
            }
            let second_control = self.control(second);
            if let Some((position, slot, answer)) = self.scan(second, tag, load, &mut read) {
                return Some((Found { bucket: second, position, slot, control: second_control }, answer));
            }
            // Orders the reads of the slots before the second reads of the control words. A read that missed a change
            // in flight has seen a store made under the lock in the other bucket, and so sees the lock or the new
            // sequence.
            fence(Ordering::Acquire);
            // The split word first: a split that undoes a contraction locks the child before it stores the word.
            if split.agrees_on(self.split(), hash)
                && first_control.proves_unchanged(self.control(first))
                && second_control.proves_unchanged(self.control(second))
            {
                return None;
            }
            if !backoff.wait_briefly() {
                return self.find_locked(hash, read);
            }
        }
    }

    /// `find` for a caller that compares tokens: the slot is the one that the bucket held at the sequence of the
    /// control word. The slot of `find` may be newer.
    pub fn find_exact(&self, hash: u64, mut is_it: impl FnMut(Slot) -> bool) -> Option<Found> {
        let found = self.find(hash, &mut is_it)?;
        // Orders the read of the slot before the second read of the control word: the thread that stored the slot after
        // the first read holds the lock, or has unlocked with a new sequence.
        fence(Ordering::Acquire);
        if found.control.proves_unchanged(self.control(found.bucket)) {
            return Some(found);
        }
        self.find_locked(hash, |slot| is_it(slot).then_some(())).map(|(found, ())| found)
    }

    /// Prefetch hints of a batch: calls `look` with every slot of the key's buckets that has its tag.
    #[inline(always)]
    pub fn each_match(&self, candidates: Candidates, hash: u64, mut look: impl FnMut(Slot)) {
        let tag = Tag::of(hash);
        for bucket in [candidates.first, candidates.second] {
            let slots = &self.buckets.at(bucket).slots;
            let load = |slot: &AtomicU64| slot.load(Ordering::Relaxed);
            let mut matches = Self::matches(slots, tag, load);
            while matches != 0 {
                let slot = Slot::from_word(load(&slots[matches.trailing_zeros() as usize]));
                if !slot.is_empty() {
                    look(slot);
                }
                matches &= matches - 1;
            }
        }
    }

    /// Counts an access to a found item: at most once per quantum, and not at all under contention. The only write of a
    /// reader to shared memory. `random` draws a uniform number, only when it is needed.
    #[inline(always)]
    pub fn count_access(&self, found: Found, quantum: u16, random: impl FnOnce() -> u32) {
        if found.slot.frequency() == FREQUENCY_LIMIT {
            return;
        }
        if found.control.last_access() == quantum {
            if found.slot.is_counted() {
                return;
            }
        } else if !self.open_quantum(found.bucket, found.control, quantum) {
            return;
        }
        let seen = Slot::from_word(found.slot.word() & Slot::UNCOUNT);
        let words = &self.buckets.at(found.bucket).slots;
        // Relaxed: nothing is ordered by the frequency, and a lost count is harmless.
        let _ = words[found.position].compare_exchange(
            seen.word(),
            seen.counted(random).word(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Opens a quantum: each item of the bucket can be counted again. False if another thread was first or holds the
    /// lock.
    #[cold]
    fn open_quantum(&self, bucket: usize, control: Control, quantum: u16) -> bool {
        if control.is_locked() {
            return false;
        }
        let bucket = self.buckets.at(bucket);
        let (old, new) = (control.word(), control.accessed(quantum).word());
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

    /// The words of a bucket, as an image keeps them: read under its lock, without the mark of the lock.
    pub fn locked_words(&self, bucket: usize) -> [u64; BUCKET_SLOTS + 1] {
        let control = self.lock_bucket(bucket);
        let mut words = [control.word(); BUCKET_SLOTS + 1];
        let slots = &self.buckets.at(bucket).slots;
        for (word, slot) in words[1..].iter_mut().zip(slots) {
            *word = slot.load(Ordering::Acquire);
        }
        self.unlock_bucket(bucket, control, control.sequence());
        words
    }

    /// The highest sequence of a bucket in use; 0 if nothing was ever changed. No sequence of a key exceeds it, also of
    /// one that was removed. The index must be quiet.
    #[cfg(not(loom))]
    pub fn highest_sequence(&self) -> u64 {
        (0..self.length()).map(|bucket| self.control(bucket).sequence()).max().unwrap_or(0)
    }

    /// Gives an index without entries the size of another one.
    pub fn restore(&self, split: Split, paid_buckets: u64) {
        self.split.store(split.word(), Ordering::Release);
        self.paid_buckets.store(paid_buckets, Ordering::Relaxed);
    }

    /// Fills a bucket of an index that no other thread knows. False if its words say that it is locked.
    pub fn restore_words(&self, bucket: usize, words: [u64; BUCKET_SLOTS + 1]) -> bool {
        let Bucket { control, slots } = self.buckets.at(bucket);
        control.store(words[0], Ordering::Relaxed);
        slots.iter().zip(&words[1..]).for_each(|(slot, word)| slot.store(*word, Ordering::Relaxed));
        !Control::from_word(words[0]).is_locked()
    }

    /// Calls `visit` with every slot that is not empty. The index must be quiet: for `verify` and statistics.
    pub fn each_slot(&self, mut visit: impl FnMut(usize, Slot)) {
        for bucket in 0..self.length() {
            assert!(!self.control(bucket).is_locked(), "bucket {bucket} is locked in a quiet index");
            for position in 0..BUCKET_SLOTS {
                let slot = Slot::from_word(self.buckets.at(bucket).slots[position].load(Ordering::Acquire));
                if !slot.is_empty() {
                    visit(bucket, slot);
                }
            }
        }
    }
}
