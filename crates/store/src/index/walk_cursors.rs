//! The announcements of walks over the index, and the notes that displacements leave for them (see `walk`).

use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// Concurrent walks, at most.
pub const WALKS_MAX: usize = if cfg!(loom) { 1 } else { 8 };
/// Notes of a walk, at most: 128 KiB of them.
const NOTES_MAX: usize = if cfg!(loom) { 1 } else { 16 << 10 };
/// The announcement without a walk.
pub(super) const NOWHERE: u64 = u64::MAX;

/// The announcements of all walks.
pub struct WalkCursors(pub(super) [Cursor; WALKS_MAX]);

pub(super) struct Cursor {
    pub at: AtomicU64,
    /// Hashes of keys that were moved behind the walk. The holder of this lock waits for nothing.
    pub notes: Mutex<Vec<u64>>,
}

impl WalkCursors {
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| Cursor { at: AtomicU64::new(NOWHERE), notes: Mutex::default() }))
    }

    /// Whether a key may be moved between two buckets, both locked by the caller.
    pub fn may_move(&self, from: usize, to: usize) -> bool {
        self.crossed(from, to).all(|cursor| lock(&cursor.notes).len() < NOTES_MAX)
    }

    /// Leaves a note for each walk that is crossed when the key with this hash moves between two buckets, both locked
    /// by the caller.
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
