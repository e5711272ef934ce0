//! The state of the search for segments of generations that flushes have ended.
//!
//! ```text
//! word   notes, modulo 2^39 | cursor:25      cursor 0: all were found; 2^24: to begin; else the next position
//! ```
//! A flush leaves a note, and so does a job that copied items of a flushed generation meanwhile. A note restarts the
//! search: the count of notes in the word makes the step of an older search fail. A step reads the generation after the
//! word, so it knows every flush that was noted.

use crate::segment::SEGMENTS_MAX;
use crate::sync::{AtomicU64, Ordering};

const CURSOR_BITS: u32 = 25;
pub(super) const CURSOR_MASK: u64 = (1 << CURSOR_BITS) - 1;
pub(super) const TO_BEGIN: u64 = SEGMENTS_MAX as u64 + 1;

/// See the drawing above.
#[derive(Default)]
pub(crate) struct FlushedSearch(AtomicU64);

impl FlushedSearch {
    /// Flushed items may exist: the search restarts at the first segment.
    pub fn note(&self) {
        let noted = |word: u64| Some(((word >> CURSOR_BITS) + 1) << CURSOR_BITS | TO_BEGIN);
        // Release pairs with the Acquire in `load`: the flush, and segments sealed before the note.
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, noted).expect("every word is counted up");
    }

    pub fn load(&self) -> u64 {
        // Pairs with the Release in `note`.
        self.0.load(Ordering::Acquire)
    }

    /// Runs a change of the order of segments. A search that may have read part of the old order and part of the new
    /// one restarts.
    pub fn reorder<T>(&self, change: impl FnOnce() -> T) -> T {
        let before = self.load();
        let result = change();
        // A search that ended before the change has found all; one that began since then has another word.
        if before & CURSOR_MASK != 0 || self.load() != before {
            self.note();
        }
        result
    }

    /// Moves from `word` to another cursor; answers the new word. `None` if a note or another thread came first.
    pub fn advance(&self, word: u64, cursor: u64) -> Option<u64> {
        let next = word & !CURSOR_MASK | cursor;
        self.0.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed).is_ok().then_some(next)
    }
}
