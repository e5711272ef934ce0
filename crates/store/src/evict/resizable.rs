//! A table of a power of two entries that grows and shrinks in place, while threads read and write its entries.
//!
//! The address space for its maximum length is reserved once, so an entry never moves, and a thread with an old length
//! stays inside. A shorter table returns its pages. A longer one begins with the entries of the shorter one, followed
//! by zeros. Two exceptions: threads with an old length may write there, and the rest of the page in which the shorter
//! table ended may have former entries. So the entries are hints: a wrong one costs at most an eviction.

use crate::error::Error;
use crate::mapping::{HUGE_PAGE_BYTES, Pages, Table, Zeroed};
use crate::sync::{AtomicUsize, Ordering};

/// Tables from this size on are on huge pages: of a smaller one, a huge page would be a large part.
const HUGE_PAGES_MIN_BYTES: usize = 16 * HUGE_PAGE_BYTES;

/// The table.
pub struct ResizableTable<T> {
    entries: Table<T>,
    length: AtomicUsize,
}

impl<T: Zeroed> ResizableTable<T> {
    /// A table of `length` entries, which is a power of two, and at most `max_length`.
    pub fn new(length: usize, max_length: usize) -> Result<Self, Error> {
        let max_length = max_length.max(length);
        let entries = Table::new(max_length, Self::pages(length))?;
        debug_assert!(length.is_power_of_two());
        Ok(Self { entries, length: AtomicUsize::new(length) })
    }

    fn pages(length: usize) -> Pages {
        if length * size_of::<T>() >= HUGE_PAGES_MIN_BYTES { Pages::Huge } else { Pages::Small }
    }

    #[inline(always)]
    pub fn length(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }

    pub fn max_length(&self) -> usize {
        self.entries.length()
    }

    #[inline(always)]
    pub fn at(&self, index: usize) -> &T {
        self.entries.at(index)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.length()).map(|index| self.at(index))
    }

    /// Changes the length, to a power of two up to `max_length`. One thread at a time calls it.
    pub fn set_length(&self, length: usize) {
        assert!(length.is_power_of_two() && length <= self.max_length(), "{length} of {} entries", self.max_length());
        let before = self.length.swap(length, Ordering::Relaxed);
        if Self::pages(length) != Self::pages(before) {
            self.entries.advise(Self::pages(length));
        }
        if length < before {
            // SAFETY: threads with the old length expect any entry, zero too.
            unsafe { self.entries.release(self.entries.whole_pages(length, before)) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::AtomicU64;

    #[test]
    fn shrinking_a_table_keeps_entries_returns_pages() {
        let table = ResizableTable::<AtomicU64>::new(1024, 1 << 20).unwrap();
        table.at(7).store(1, Ordering::Relaxed);
        table.set_length(1 << 20);
        table.at(1 << 19).store(2, Ordering::Relaxed);
        assert_eq!(table.iter().map(|entry| entry.load(Ordering::Relaxed)).sum::<u64>(), 3);
        table.set_length(1024);
        assert_eq!(table.iter().count(), 1024);
        table.set_length(1 << 20);
        assert_eq!(table.at(1 << 19).load(Ordering::Relaxed), 0, "its page was returned");
        assert_eq!(table.at(7).load(Ordering::Relaxed), 1);
    }
}
