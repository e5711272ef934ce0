//! A locked set: its entries are changed in a copy, which is written back when the lock is released.

use super::layout::{SET_BYTES_MAX, SetControl};
use super::words::{KeyWords, SetRef};
use crate::sync::{Backoff, Ordering, fence, load_to_write, store_over};

/// A set under its lock. Dropping it writes the changes and unlocks the set.
pub struct LockedSet<'t> {
    set: SetRef<'t>,
    before: SetControl,
    bytes: [u8; SET_BYTES_MAX],
    used: usize,
    negatives: u32,
    /// Bytes of the set that differ, from its first.
    dirty_bytes: usize,
    /// Whether readers and tickets must see a change.
    is_changed: bool,
}

/// An entry outside of its set.
#[derive(Clone, Copy)]
pub struct Entry<'e> {
    pub bytes: &'e [u8],
    pub is_negative: bool,
}

impl<'t> LockedSet<'t> {
    pub fn lock(set: SetRef<'t>) -> Self {
        let mut backoff = Backoff::new();
        // Ends: the holder of a set's lock waits for no other thread but the walk of a resize, which waits for sets
        // behind or before all that it holds.
        loop {
            let control = SetControl(load_to_write(set.control(), Ordering::Relaxed));
            if !control.is_locked()
                && let Some(edit) = Self::lock_if(set, control)
            {
                return edit;
            }
            backoff.wait();
        }
    }

    /// Locks the set if its control word is still this one.
    pub fn lock_if(set: SetRef<'t>, control: SetControl) -> Option<Self> {
        let locked = control.0 | SetControl::LOCK;
        // Acquire pairs with the Release in `drop`: the words of the last change.
        set.control().compare_exchange(control.0, locked, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // Pairs with the fence in `read_consistently`: the lock comes before the words.
        fence(Ordering::Release);
        let mut bytes = [0; SET_BYTES_MAX];
        let used = control.used();
        set.load(&mut bytes, used * set.layout.entry_bytes);
        let negatives = control.negatives();
        Some(Self { set, before: control, bytes, used, negatives, dirty_bytes: 0, is_changed: false })
    }

    pub fn before(&self) -> SetControl {
        self.before
    }

    pub fn used(&self) -> usize {
        self.used
    }

    pub fn is_full(&self) -> bool {
        self.used == self.set.layout.ways
    }

    pub fn find(&self, key: &KeyWords) -> Option<usize> {
        // No entry has moved in the words yet: the copy is written back at the end.
        debug_assert_eq!(self.dirty_bytes, 0, "the set was changed before the search");
        self.set.find(key, self.used)
    }

    pub fn is_negative(&self, position: usize) -> bool {
        self.negatives >> position & 1 != 0
    }

    pub fn entry(&self, position: usize) -> &[u8] {
        let bytes = self.set.layout.entry_bytes;
        &self.bytes[position * bytes..][..bytes]
    }

    pub fn remove(&mut self, position: usize) {
        let bytes = self.set.layout.entry_bytes;
        self.bytes.copy_within((position + 1) * bytes..self.used * bytes, position * bytes);
        let negatives = u64::from(self.negatives);
        let before = negatives & ((1 << position) - 1);
        self.negatives = (before | negatives >> (position + 1) << position) as u32;
        self.dirty_bytes = self.dirty_bytes.max(self.used * bytes);
        self.used -= 1;
        self.is_changed = true;
    }

    /// Inserts an entry before the one at this position. The set must not be full.
    pub fn insert(&mut self, position: usize, entry: Entry<'_>) {
        assert!(!self.is_full() && position <= self.used, "no place for an entry");
        let bytes = self.set.layout.entry_bytes;
        self.bytes.copy_within(position * bytes..self.used * bytes, (position + 1) * bytes);
        self.bytes[position * bytes..][..bytes].copy_from_slice(entry.bytes);
        let negatives = u64::from(self.negatives);
        let before = negatives & ((1 << position) - 1);
        let here = u64::from(entry.is_negative) << position;
        self.negatives = (before | here | negatives >> position << (position + 1)) as u32;
        self.used += 1;
        self.dirty_bytes = self.dirty_bytes.max(self.used * bytes);
        self.is_changed = true;
    }

    /// Makes an entry the one that was used last.
    pub fn promote(&mut self, position: usize) {
        let bytes = self.set.layout.entry_bytes;
        let is_negative = self.is_negative(position);
        self.bytes[..(position + 1) * bytes].rotate_right(bytes);
        let negatives = u64::from(self.negatives);
        let before = negatives & ((1 << position) - 1);
        let after = negatives >> (position + 1) << (position + 1);
        self.negatives = (after | before << 1 | u64::from(is_negative)) as u32;
        self.dirty_bytes = self.dirty_bytes.max((position + 1) * bytes);
        self.is_changed = true;
    }

    pub fn clear(&mut self) {
        (self.used, self.negatives, self.is_changed) = (0, 0, true);
    }

    /// Tickets of this set are void, though no entry changes.
    pub fn void_tickets(&mut self) {
        self.is_changed = true;
    }
}

impl Drop for LockedSet<'_> {
    fn drop(&mut self) {
        let after = match self.is_changed {
            true => self.before.changed_to(self.used, self.negatives),
            false => self.before,
        };
        self.set.store(&self.bytes, self.dirty_bytes);
        // Release pairs with the Acquire in `lock_if` and `read_consistently`.
        store_over(self.set.control(), after.0, Ordering::Release);
    }
}
