//! Segments of flushed generations are found and dropped, one per call (see `flushed_search`).

use super::flushed_search::{CURSOR_MASK, TO_BEGIN};
use crate::chains::Seal;
use crate::epoch::Participant;
use crate::segment::State;
use crate::store::Store;
use crate::sync::Ordering;
use crate::time::Moment;

impl Store {
    /// Drops one flushed segment. False if there is none.
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
        // Fails after a note, or when another thread has advanced: then some segments are read twice, which is
        // harmless.
        let _ = search.advance(word, dropped.map_or(0, |position| u64::from(position) + 1));
        dropped.is_some()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::evict::Progress;
    use crate::evict::maintenance::tests::set;
    use crate::options::Options;
    use crate::store::Store;
    use crate::sync::Ordering;

    #[test]
    fn the_generation_does_not_wrap_at_32_bits() {
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
