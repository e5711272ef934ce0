//! The run of a job, step by step: its next items, the removal of an item, and its retirement.

use super::jobs::{Candidate, SourceRun};
use super::scores::SCORE_UNLINKED;
use crate::epoch::Participant;
use crate::index::Items;
use crate::item::ItemAt;
use crate::segment::Location;
use crate::stats::Counter;
use crate::store::Store;
use crate::sync::Ordering;
use crate::time::Moment;

/// How far ahead of the item that is looked at the memory is fetched.
const FETCH_AHEAD_BYTES: u32 = 1024;

impl SourceRun {
    /// The next items that may still be in the index, with their buckets prefetched: at most `size`, and none after
    /// those that have `bytes` together. `scores` holds the score of each item of the run, if it has been scored.
    pub(super) fn next_group(&mut self, store: &Store, size: usize, bytes: u32, scores: &[u8]) -> Vec<Candidate> {
        let mut group = Vec::with_capacity(size);
        let mut group_bytes = 0;
        while group.len() < size && group_bytes < bytes {
            let Some(&segment) = self.segments.get(self.cursor.source) else { break };
            if self.cursor.offset >= store.segments.header(segment).write_offset() {
                self.cursor.source += 1;
                self.cursor.offset = 0;
                continue;
            }
            let at = Location::new(segment, self.cursor.offset);
            // SAFETY: the job owns its draining segments: they keep their bytes until it retires them.
            let item = unsafe { ItemAt::read(&store.segments.arena, at) };
            store.segments.arena.prefetch(at.plus(FETCH_AHEAD_BYTES));
            self.cursor.offset += item.header.size();
            let score = scores.get(self.cursor.item).copied();
            self.cursor.item += 1;
            if score == Some(SCORE_UNLINKED) {
                continue;
            }
            let hash = store.hash_at(at);
            store.index.prefetch(hash);
            group_bytes += item.header.size();
            group.push(Candidate { item, hash, score });
        }
        group
    }

    /// Removes an item that is not kept, if it is still in the index.
    pub(super) fn remove(
        &mut self,
        store: &Store,
        participant: &Participant,
        item: &ItemAt,
        hash: u64,
        moment: Moment,
    ) {
        match store.unlink(participant, item, hash, moment) {
            Some(true) => self.lost_any = true,
            Some(false) => self.expired_any = true,
            None => {}
        }
    }

    /// A search for flushed segments that ran beside the job has passed the open destinations of the job: it starts
    /// again.
    pub(super) fn recheck_flush(&self, store: &Store) {
        // Acquire pairs with the Release in `advance_generation`.
        if store.segments.header(self.first()).is_flushed(store.generation.load(Ordering::Acquire)) {
            store.maintenance.flushed.note();
        }
    }

    /// Takes the emptied segments out of their chain and retires them.
    pub(super) fn retire(&self, store: &Store) {
        let counter = match (self.lost_any, self.expired_any) {
            (true, _) => Counter::SegmentsEvicted,
            (false, true) => Counter::SegmentsExpired,
            (false, false) => Counter::SegmentsCompacted,
        };
        for &segment in &self.segments {
            store.chains.remove(&store.segments, segment);
            debug_assert_eq!(store.segments.header(segment).live_items(), 0, "an emptied segment");
            store.segments.retire(segment);
        }
        store.counters.add(0, counter, self.segments.len() as u64);
    }
}
