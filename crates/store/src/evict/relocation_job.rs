//! Relocation: all live items of a run are copied to other segments; nothing is evicted.
//!
//! The memory for the copies is taken before the first item moves: an open destination of an earlier relocation in
//! which everything fits, or a free segment. With a free segment in reserve the relocation first fills what an earlier
//! one has left open. A dead segment needs no memory.

use super::destination::Age;
use super::jobs::{Candidate, Relocation, SourceRun};
use super::open_destinations::Destination;
use super::policy::Aging;
use crate::epoch::Participant;
use crate::segment::{Purpose, SegmentId};
use crate::store::Store;
use crate::sync::Ordering;
use crate::time::Moment;

impl Relocation {
    /// A relocation of live segments. `None`, and nothing has changed, if there is no memory for all that lives in
    /// them.
    pub(super) fn of_live(store: &Store, segments: Vec<SegmentId>, moment: Moment) -> Option<Self> {
        let header = |segment| store.segments.header(segment);
        let live: u32 = segments.iter().map(|source| header(*source).live_bytes()).sum();
        let latest = segments.iter().map(|source| header(*source).latest_expiry_seconds()).max();
        let latest = latest.filter(|seconds| *seconds != u64::MAX);
        let first = header(segments[0]);
        let suits = |open: &Destination| header(open.segment).is_young() == first.is_young();
        let holds_all = |open: &Destination| suits(open) && open.fit(store, live, latest).is_some();
        let compacted = &store.maintenance.compacted;
        let mut destination = compacted.take(&store.segments, first, moment, holds_all);
        let mut free = None;
        if destination.is_none() {
            free = Some(store.segments.take(Purpose::Merge)?);
            destination = compacted.take(&store.segments, first, moment, suits);
        }
        let run = SourceRun::new(&store.maintenance.job_counts, segments);
        let spare = free.map(|segment| run.start_destination(store, segment, moment, Age::Kept));
        Some(Self { run, destination, spare, has_switched_to_spare: false, is_dead: false })
    }

    /// The removal of a segment in which nothing is alive.
    pub(super) fn of_dead(store: &Store, segment: SegmentId) -> Self {
        let run = SourceRun::new(&store.maintenance.job_counts, vec![segment]);
        Self { run, destination: None, spare: None, has_switched_to_spare: false, is_dead: true }
    }

    /// Copies the live items and removes the dead ones. Returns the bytes that were copied.
    pub(super) fn apply(
        &mut self,
        store: &Store,
        participant: &Participant,
        group: &[Candidate],
        moment: Moment,
    ) -> u32 {
        let mut copied = 0;
        for candidate in group {
            let Candidate { item, hash, .. } = candidate;
            if !self.is_dead && self.copy(store, participant, candidate, moment) {
                copied += item.header.size();
            } else {
                self.run.remove(store, participant, item, *hash, moment);
            }
        }
        copied
    }

    fn copy(&mut self, store: &Store, participant: &Participant, candidate: &Candidate, moment: Moment) -> bool {
        let Candidate { item, hash, .. } = candidate;
        // An item that left the index takes no space: there is just enough for the live ones.
        let is_live =
            store.index.find(*hash, |slot| slot.location() == item.at).is_some() && store.is_live(item, moment);
        if !is_live {
            return false;
        }
        let expiry = store.expiry_seconds(item);
        let size = item.header.size();
        let fit = self.destination.as_ref().and_then(|open| open.fit(store, size, expiry));
        let Some(byte) = fit.or_else(|| self.switch_to_spare(store, size, expiry)) else { return false };
        let destination = self.destination.as_mut().expect("the item fits");
        destination.copy(store, participant, candidate, (expiry, byte), Aging::None)
    }

    /// Continues in the spare, for an item of `size` bytes; answers its expiry byte there.
    fn switch_to_spare(&mut self, store: &Store, size: u32, expiry: Option<u64>) -> Option<u8> {
        let expiry_byte = self.spare.as_ref().and_then(|spare| spare.fit(store, size, expiry))?;
        self.has_switched_to_spare = true;
        if let Some(full) = std::mem::replace(&mut self.destination, self.spare.take()) {
            self.finish_destination(store, &full);
            store.segments.seal(full.segment);
        }
        Some(expiry_byte)
    }

    /// A destination is as old as the oldest segment whose items it holds: no policy has judged them.
    fn finish_destination(&self, store: &Store, destination: &Destination) {
        self.run.chain(store, destination);
        let header = store.segments.header(destination.segment);
        header.stamp.fetch_min(self.run.oldest_stamp(store), Ordering::Relaxed);
    }

    /// All items are done: the destination takes the place of the run, and the run retires.
    pub(super) fn finish(&mut self, store: &Store) {
        for destination in [self.destination.take(), self.spare.take()].into_iter().flatten() {
            if destination.offset == 0 {
                store.segments.retire(destination.segment);
                continue;
            }
            self.finish_destination(store, &destination);
            store.maintenance.compacted.put_back(&store.segments, destination);
        }
        if !self.is_dead {
            self.run.recheck_flush(store);
        }
        // Expired bytes are free memory, also if other items remain.
        if !self.is_dead && !self.run.expired_any {
            let without_gain = &store.maintenance.compactions_without_gain;
            let has_gained = self.run.segments.len() > usize::from(self.has_switched_to_spare);
            let count = if has_gained { 0 } else { without_gain.load(Ordering::Relaxed) + 1 };
            without_gain.store(count, Ordering::Relaxed);
        }
        self.run.retire(store);
    }
}
