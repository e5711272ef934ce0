//! Destinations of a job: a segment is started for a run, filled, and put into the chain in the place of the run.

use super::jobs::{Candidate, SourceRun};
use super::open_destinations::Destination;
use super::policy::Aging;
use crate::epoch::Participant;
use crate::segment::{Location, SegmentId};
use crate::stats::Counter;
use crate::store::Store;
use crate::sync::Ordering;
use crate::time::Moment;
use crate::ttl::TtlBucket;

/// The age of the items in a destination, compared with that in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// The age of the oldest segment of the run: no policy has scored the items.
    Kept,
    /// New, with one survived eviction more.
    NextRound,
}

impl Destination {
    /// The expiry byte of an item of `size` bytes in the destination; `None` if it does not fit.
    pub(super) fn fit(&self, store: &Store, size: u32, expiry: Option<u64>) -> Option<u8> {
        let fits = self.offset + size <= store.segments.segment_bytes();
        fits.then(|| store.segments.header(self.segment).expiry_byte(expiry)).flatten()
    }

    /// Copies an item to the end and points its slot at the copy. False if the item is not in the index any more.
    pub(super) fn copy(
        &mut self,
        store: &Store,
        participant: &Participant,
        candidate: &Candidate,
        (expiry, expiry_byte): (Option<u64>, u8),
        aging: Aging,
    ) -> bool {
        let Candidate { item, hash, .. } = candidate;
        let to = Location::new(self.segment, self.offset);
        let is_copied = store.relocate_item(item, *hash, to, expiry_byte, aging);
        if is_copied {
            self.offset += item.header.size();
            store.segments.header(self.segment).append(self.offset, expiry);
            store.counters.add(participant.number(), Counter::Survived, 1);
        }
        is_copied
    }
}

impl SourceRun {
    /// Starts a free segment as a destination of the run.
    pub(super) fn start_destination(&self, store: &Store, segment: SegmentId, moment: Moment, age: Age) -> Destination {
        let (header, source) = (store.segments.header(segment), store.segments.header(self.first()));
        let bucket = TtlBucket::from_index(source.ttl_bucket.load(Ordering::Relaxed).into());
        // A source may have been opened after the job's time was read; the longest expiry that its bytes hold does not
        // fit an earlier origin.
        let origin = |source: &SegmentId| store.segments.header(*source).origin_seconds.load(Ordering::Relaxed);
        let origin_ms = self.segments.iter().map(origin).max().unwrap_or(0) * 1000;
        let moment = Moment { ms: moment.ms.max(origin_ms), ..moment };
        store.chains.start(header, bucket, moment, source.generation.load(Ordering::Relaxed));
        let rounds = source.rounds.load(Ordering::Relaxed);
        match age {
            Age::Kept => {
                header.stamp.store(self.oldest_stamp(store), Ordering::Relaxed);
                header.rounds.store(rounds, Ordering::Relaxed);
            }
            Age::NextRound => header.rounds.store(rounds.saturating_add(1), Ordering::Relaxed),
        }
        let seal_at_ms = store.chains.seal_at_ms(&store.segments, bucket, moment);
        Destination { segment, offset: 0, seal_at_ms, is_chained: false }
    }

    pub(super) fn oldest_stamp(&self, store: &Store) -> u64 {
        let stamps = self.segments.iter().map(|source| store.segments.header(*source).stamp.load(Ordering::Relaxed));
        stamps.min().expect("a run has a segment")
    }

    /// Puts a destination into the chain: in front of the run, and of every other segment whose items it holds.
    pub(super) fn chain(&self, store: &Store, destination: &Destination) {
        let opened = |segment| store.segments.header(segment).opened_ms.load(Ordering::Relaxed);
        if destination.is_chained {
            if opened(destination.segment) <= opened(self.first()) {
                return;
            }
            store.chains.remove(&store.segments, destination.segment);
        }
        store.chains.insert_before(&store.segments, self.first(), destination.segment);
    }
}
