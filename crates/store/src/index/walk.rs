//! Walks over the whole index beside everything else that happens to it, a few buckets at a time.
//!
//! A walk visits the buckets in ascending order up to the last one in use. A key that is there all the time must be met at
//! least once, though keys move between buckets:
//! - A split moves keys to the last bucket, which the walk has yet to visit.
//! - A displacement may move a key from a bucket ahead of the walk to one behind it. So each walk announces the bucket
//!   that it visits or will visit next, and a displacement that crosses an announced bucket backwards leaves a note of the
//!   key for the walk. The bucket is announced before its lock is taken: whoever locks it after its visit sees the walk
//!   there or beyond. The walk sees the note, as it visits the bucket that the key left after that.
//!
//! Notes are bounded. When there is no room for one, the key stays where it is: another neighbour leaves, or the index
//! grows. A key that moves forward from a visited bucket, or leaves a note, may be met twice.

use super::{BUCKET_SLOTS, Control, Index, Slot};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// Walks at a time.
pub const WALKS_MAX: usize = if cfg!(loom) { 1 } else { 8 };
/// Notes that a walk keeps: 128 KiB of them.
const NOTES_MAX: usize = if cfg!(loom) { 1 } else { 16 << 10 };
/// The announcement of a walk that is not under way.
const NOWHERE: u64 = u64::MAX;

/// The announcements of all walks.
pub struct WalkCursors([Cursor; WALKS_MAX]);

struct Cursor {
    at: AtomicU64,
    /// Hashes of keys that were moved behind the walk. Whoever holds this waits for nobody.
    notes: Mutex<Vec<u64>>,
}

/// A walk under way; to be given back with `end_walk`.
#[derive(Debug)]
pub struct IndexWalk {
    number: usize,
    next: usize,
}

/// A bucket as it was under its lock.
pub struct WalkedBucket {
    pub bucket: usize,
    pub control: Control,
    pub slots: [Slot; BUCKET_SLOTS],
}

impl WalkCursors {
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| Cursor { at: AtomicU64::new(NOWHERE), notes: Mutex::default() }))
    }

    /// Whether a key may move between two buckets, both of which the caller has locked.
    pub fn may_move(&self, from: usize, to: usize) -> bool {
        self.crossed(from, to).all(|cursor| lock(&cursor.notes).len() < NOTES_MAX)
    }

    /// Notes that the key with this hash moves between two buckets, both of which the caller has locked, for the walks that
    /// it passes.
    pub fn note_move(&self, hash: u64, from: usize, to: usize) {
        self.crossed(from, to).for_each(|cursor| lock(&cursor.notes).push(hash));
    }

    fn crossed(&self, from: usize, to: usize) -> impl Iterator<Item = &Cursor> {
        self.0.iter().filter(move |cursor| {
            // Relaxed: if `to` was visited, its lock has made the announcement visible.
            let at = cursor.at.load(Ordering::Relaxed);
            to as u64 <= at && at <= from as u64
        })
    }
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
        // A note that still comes is met by the next walk once more than it must be.
        *lock(&cursor.notes) = Vec::new();
        cursor.at.store(NOWHERE, Ordering::Relaxed);
    }

    /// Visits the next bucket; `None` when all have been visited, and then the notes are the last. What the slots name is
    /// protected if the caller was pinned before.
    pub fn next_bucket(&self, walk: &mut IndexWalk) -> Option<WalkedBucket> {
        let bucket = walk.next;
        if bucket >= self.length() {
            return None;
        }
        self.cursors.0[walk.number].at.store(bucket as u64, Ordering::Relaxed);
        let control = self.lock_bucket(bucket);
        let slots = std::array::from_fn(|position| self.locked_slot(bucket, position));
        self.unlock_bucket(bucket, control, control.sequence());
        walk.next += 1;
        Some(WalkedBucket { bucket, control, slots })
    }

    /// The next hash of a key that was moved behind the walk.
    pub fn next_moved(&self, walk: &IndexWalk) -> Option<u64> {
        lock(&self.cursors.0[walk.number].notes).pop()
    }

    /// The share of the buckets that a walk has visited.
    pub fn walk_progress(&self, walk: &IndexWalk) -> f64 {
        walk.next as f64 / self.length() as f64
    }
}
