//! The state of the search for segments of generations that flushes have ended.
//!
//! ```text
//! word   notes, modulo 2^39 | cursor:25      cursor 0: all were found; 2^24: to begin; else the number of the segment to go on with
//! ```
//! A flush notes that there is something to find, and so does a job that moved items of an ended generation meanwhile. A
//! note begins the search anew: the count of notes in the word makes the step of a search that began before it fail. A step
//! reads the generation after the word, so it knows of every flush that was noted.

use crate::segment::SEGMENTS_MAX;
use crate::sync::{AtomicU64, Ordering};

const CURSOR_BITS: u32 = 25;
pub(super) const CURSOR_MASK: u64 = (1 << CURSOR_BITS) - 1;
pub(super) const TO_BEGIN: u64 = SEGMENTS_MAX as u64 + 1;

/// See the drawing above.
#[derive(Default)]
pub(crate) struct FlushedSearch(AtomicU64);

impl FlushedSearch {
    /// Something of an ended generation may be there: it is looked for from the first segment on.
    pub fn note(&self) {
        let noted = |word: u64| Some(((word >> CURSOR_BITS) + 1) << CURSOR_BITS | TO_BEGIN);
        // Release pairs with the Acquire in `load`: the flush, and what was sealed before the note, are seen.
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, noted).expect("every word is counted up");
    }

    pub fn load(&self) -> u64 {
        // Pairs with the Release in `note`.
        self.0.load(Ordering::Acquire)
    }

    /// Goes on from `word` to another cursor; answers the new word. `None` if a note or another thread came first.
    pub fn advance(&self, word: u64, cursor: u64) -> Option<u64> {
        let next = word & !CURSOR_MASK | cursor;
        self.0.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed).is_ok().then_some(next)
    }
}
