//! Walks over the whole index, a few buckets at a time, beside all other operations.
//!
//! A walk visits the buckets in ascending order up to the last one in use. A key that is present from the beginning to
//! the end must be met at least once, though keys move between buckets:
//! - A split moves keys to the last bucket, which the walk has yet to visit.
//! - A displacement may move a key from a bucket ahead of the walk to one behind it. So each walk announces the bucket
//!   that it visits now or next, and a displacement that crosses an announced bucket backwards leaves a note of the
//!   key. The bucket is announced before its lock is taken: a thread that locks it after the visit sees the walk there
//!   or beyond. The walk sees the note, because it visits the bucket that the key left after that.
//!
//! Notes are bounded. When they are full, the key stays: another neighbour is displaced, or the index grows. A key that
//! moves forward from a visited bucket, or leaves a note, may be met twice.

use super::walk_cursors::{Cursor, NOWHERE};
use super::{BUCKET_SLOTS, Control, Index, Slot};
use crate::sync::{Ordering, lock};

/// A walk in progress; to be ended with `end_walk`.
#[derive(Debug)]
pub struct IndexWalk {
    number: usize,
    next: usize,
}

/// The content of a bucket, read under its lock.
pub struct WalkedBucket {
    pub bucket: usize,
    pub control: Control,
    pub slots: [Slot; BUCKET_SLOTS],
}

impl Index {
    /// Begins a walk at the first bucket. `None` if there are `WALKS_MAX` already.
    pub fn begin_walk(&self) -> Option<IndexWalk> {
        let claim =
            |cursor: &Cursor| cursor.at.compare_exchange(NOWHERE, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        let number = self.cursors.0.iter().position(claim)?;
        Some(IndexWalk { number, next: 0 })
    }

    pub fn end_walk(&self, walk: &IndexWalk) {
        let cursor = &self.cursors.0[walk.number];
        // The next walk meets the key of a late note once more than necessary.
        *lock(&cursor.notes) = Vec::new();
        cursor.at.store(NOWHERE, Ordering::Relaxed);
    }

    /// Visits the next bucket; `None` when all have been visited, after which no note is added. The items that the
    /// slots name are protected if the caller was pinned before.
    pub fn next_bucket(&self, walk: &mut IndexWalk) -> Option<WalkedBucket> {
        let bucket = walk.next;
        if bucket >= self.length() {
            return None;
        }
        self.cursors.0[walk.number].at.store(bucket as u64, Ordering::Relaxed);
        walk.next += 1;
        Some(self.read_bucket(bucket))
    }

    /// The content of a bucket, which must be within the length of the index.
    pub fn read_bucket(&self, bucket: usize) -> WalkedBucket {
        let control = self.lock_bucket(bucket);
        let slots = std::array::from_fn(|position| self.locked_slot(bucket, position));
        self.unlock_bucket(bucket, control, control.sequence());
        WalkedBucket { bucket, control, slots }
    }

    /// The next hash of a key that was moved behind the walk.
    pub fn next_moved(&self, walk: &IndexWalk) -> Option<u64> {
        lock(&self.cursors.0[walk.number].notes).pop()
    }

    /// The share of the buckets that a walk has visited.
    pub fn walk_progress(&self, walk: &IndexWalk) -> f64 {
        (walk.next as f64 / self.length() as f64).min(1.0)
    }
}
