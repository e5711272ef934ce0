//! The search for segments of generations that flushes have ended.
//!
//! ```text
//! word   notes, modulo 2^39 | cursor:25      cursor 0: all were found; 2^24: to begin; else the position of the segment to go on with
//! ```
//! A flush notes that there is something to find, and so does a job that moved items of an ended generation meanwhile. A
//! note begins the search anew: the count of notes in the word makes the step of a search that began before it fail. A step
//! reads the generation after the word, so it knows of every flush that was noted.

use crate::chains::Seal;
use crate::epoch::Participant;
use crate::segment::{SEGMENTS_MAX, State};
use crate::store::Store;
use crate::sync::{AtomicU64, Ordering};
use crate::time::Moment;

const CURSOR_BITS: u32 = 25;
const CURSOR_MASK: u64 = (1 << CURSOR_BITS) - 1;
const TO_BEGIN: u64 = SEGMENTS_MAX as u64 + 1;

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

    fn load(&self) -> u64 {
        // Pairs with the Release in `note`.
        self.0.load(Ordering::Acquire)
    }

    /// Runs a change of the order of segments. A search that may have looked at part of them in the old order begins anew.
    pub fn reorder<T>(&self, change: impl FnOnce() -> T) -> T {
        let before = self.load();
        let result = change();
        // A search that was over before the change has found all; one that began since then has another word.
        if before & CURSOR_MASK != 0 || self.load() != before {
            self.note();
        }
        result
    }

    /// Goes on from `word` to another cursor; answers the new word. `None` if a note or another thread came first.
    fn advance(&self, word: u64, cursor: u64) -> Option<u64> {
        let next = word & !CURSOR_MASK | cursor;
        self.0.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed).is_ok().then_some(next)
    }
}

impl Store {
    /// A slice of the removal of what was flushed, of one segment. False if there is none.
    pub(super) fn drop_flushed(&self, participant: &Participant, moment: Moment) -> bool {
        let search = &self.maintenance.flushed;
        let mut word = search.load();
        if word & CURSOR_MASK == TO_BEGIN {
            let Some(started) = search.advance(word, 1) else { return false };
            word = started;
            self.seal_open(Seal::All);
        }
        let cursor = (word & CURSOR_MASK) as u32;
        if cursor == 0 {
            return false;
        }
        // Acquire pairs with the Release in `advance_generation`.
        let generation = self.generation.load(Ordering::Acquire);
        let dropped = (cursor..=self.segments.limit()).find(|position| {
            let segment = self.segments.at_position(*position);
            let header = self.segments.header(segment);
            header.is_flushed(generation)
                && header.state() == State::Sealed
                && self.drop_segment(participant, segment, moment)
        });
        // It fails if a note came meanwhile, or another thread has gone on: then there is no harm in looking twice.
        let _ = search.advance(word, dropped.map_or(0, |position| u64::from(position) + 1));
        dropped.is_some()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::evict::Progress;
    use crate::evict::tests::set;
    use crate::options::Options;
    use crate::store::Store;
    use crate::sync::Ordering;

    #[test]
    fn a_flush_after_four_billion_others_gives_memory_back() {
        let options = Options { memory_bytes: 1 << 20, value_bytes_max: 1 << 19, ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        store.generation.store(u32::MAX.into(), Ordering::Relaxed);
        (0..100).for_each(|number| set(&store, &participant, number));
        store.flush(1000, 0);
        while store.maintain(&participant, 1000) == Progress::Working {}
        let stats = store.stats();
        assert_eq!((stats.items, stats.flushed, stats.segments_free), (0, 100, stats.segments_total));
        set(&store, &participant, 0);
        assert!(store.get(&participant, &[0; 4], store.hash(&[0; 4]), 1000).is_some());
        store.verify(&participant, 1000);
    }
}
