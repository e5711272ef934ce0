//! Which set a key belongs to.
//!
//! A set is a range of hashes: set `i` of `n` has the hashes from `i * 2^64 / n` on. So a larger or smaller table has
//! the same order of keys, and a resize is one walk that moves each entry a little. The walk goes from the last set to
//! the first when the table grows, and from the first to the last when it shrinks: an entry never moves to a set that
//! the walk has yet to visit.
//!
//! ```text
//! grow    from  |  0  |  1  |  2  |  3  |          a key of set 2 or 3 of `from` is in its set of `to`,
//!                        walk <-- ^ cursor 2       other keys are in their set of `from`
//!         to    | 0 | 1 | 2 | 3 | 4 | 5 |
//! ```
//! Thread safety: one thread at a time changes the shape. Between two versions only the cursor changes, under the lock
//! of the set that it passes. So the set of a key changes only under the lock of that set.

use crate::sync::{AtomicU32, AtomicU64, Backoff, Ordering, fence, store_over};

/// The sets of a table, and how far a resize has come.
pub struct Shape {
    /// Odd while `from` and `to` change.
    version: AtomicU64,
    from: AtomicU32,
    to: AtomicU32,
    cursor: AtomicU64,
}

/// A shape at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    pub version: u64,
    pub from: u32,
    pub to: u32,
    /// Growing: sets of `from` at and after it were walked. Shrinking: sets before it were.
    pub cursor: u64,
}

/// The set of a hash, among `sets` sets.
#[inline(always)]
pub fn set_of(hash: u64, sets: u32) -> u32 {
    ((u128::from(hash) * u128::from(sets)) >> 64) as u32
}

impl View {
    pub fn is_resizing(self) -> bool {
        self.from != self.to
    }

    pub fn grows(self) -> bool {
        self.to > self.from
    }

    /// Sets that may have entries.
    pub fn sets(self) -> u32 {
        self.from.max(self.to)
    }

    /// The set of a hash.
    #[inline(always)]
    pub fn locate(self, hash: u64) -> u32 {
        let set = set_of(hash, self.from);
        if self.from == self.to {
            return set;
        }
        let is_walked = if self.grows() { u64::from(set) >= self.cursor } else { u64::from(set) < self.cursor };
        if is_walked { set_of(hash, self.to) } else { set }
    }

    /// The set that the walk visits next.
    pub fn next_to_walk(self) -> Option<u32> {
        let next = if self.grows() { self.cursor.checked_sub(1)? } else { self.cursor };
        (next < u64::from(self.from)).then_some(next as u32)
    }
}

impl Shape {
    pub fn new(sets: u32) -> Self {
        Self::at(View { version: 0, from: sets, to: sets, cursor: 0 })
    }

    /// A shape that starts from a view.
    pub fn at(view: View) -> Self {
        Self {
            version: AtomicU64::new(view.version),
            from: AtomicU32::new(view.from),
            to: AtomicU32::new(view.to),
            cursor: AtomicU64::new(view.cursor),
        }
    }

    #[inline]
    pub fn view(&self) -> View {
        let mut backoff = Backoff::new();
        // Ends: the shape changes a few times in a resize.
        loop {
            // Acquire pairs with the Release in `change`: the frames of new sets are in the list. The cursor's Acquire
            // pairs with the Release in `pass`: the entries of walked sets are in their new sets.
            let version = self.version.load(Ordering::Acquire);
            let (from, to) = (self.from.load(Ordering::Relaxed), self.to.load(Ordering::Relaxed));
            let cursor = self.cursor.load(Ordering::Acquire);
            // Pairs with the fence in `change`: a value of a later change is followed by a later version.
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return View { version, from, to, cursor };
            }
            backoff.wait();
        }
    }

    /// Begins a resize.
    pub fn begin(&self, to: u32) {
        let from = self.from.load(Ordering::Relaxed);
        self.change(from, to, if to > from { u64::from(from) } else { 0 });
    }

    /// Ends a resize that has walked all sets.
    pub fn finish(&self) {
        let to = self.to.load(Ordering::Relaxed);
        self.change(to, to, 0);
    }

    fn change(&self, from: u32, to: u32, cursor: u64) {
        self.version.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `view`.
        fence(Ordering::Release);
        self.from.store(from, Ordering::Relaxed);
        self.to.store(to, Ordering::Relaxed);
        store_over(&self.cursor, cursor, Ordering::Relaxed);
        // Release pairs with the Acquire in `view`.
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The walk has visited a set, whose lock the caller holds.
    pub fn pass(&self, set: u32, grows: bool) {
        let cursor = if grows { u64::from(set) } else { u64::from(set) + 1 };
        // Release pairs with the Acquire in `view`.
        store_over(&self.cursor, cursor, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn resizes_move_keys_only_to_walked_sets() {
        let hash = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for (from, to) in [(1, 2), (4, 6), (7, 100), (100, 7), (6, 5), (2, 1)] {
            let shape = Shape::new(from);
            shape.begin(to);
            let mut walked = 0;
            while let Some(set) = shape.view().next_to_walk() {
                let before = shape.view();
                shape.pass(set, before.grows());
                let after = shape.view();
                for number in 0..2000 {
                    let hash = hash(number);
                    let is_walked = set_of(hash, from) == set;
                    assert!(is_walked || before.locate(hash) == after.locate(hash));
                    let target = set_of(hash, to);
                    let is_ordered = if to > from { target >= set } else { target <= set };
                    assert!(!is_walked || after.locate(hash) == target && is_ordered);
                }
                walked += 1;
            }
            assert_eq!(walked, from);
            shape.finish();
            assert_eq!((shape.view().from, shape.view().is_resizing()), (to, false));
        }
    }
}
