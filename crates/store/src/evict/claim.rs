//! The claim of segments that are to be emptied: the only transition from `Sealed` to `Draining`.
//!
//! The caller has read the segment before, possibly without a lock. Since then the segment may have been emptied, freed
//! and reused, a flush may have started another generation, and a handle may hold it. So a claim checks all its
//! conditions again, under the planner lock (a `PlannerState` is only reached through it). While that lock is held, a
//! sealed segment stays sealed, its generation, stamp and latest expiry do not change, and its live items and bytes
//! only decrease. `docs/concurrency.md` has the whole protocol.

use super::candidates::{PlannedEviction, PlannerState};
use super::jobs::{Eviction, Job, Relocation};
use super::open_destinations::FULL_SHARE;
use super::policy::EvictionChoice;
use crate::epoch::Participant;
use crate::segment::{Header, SegmentId, State};
use crate::store::Store;
use crate::sync::{Ordering, lock};
use crate::time::Moment;

/// Neighbours that one compaction takes, at most.
pub(crate) const COMPACT_RUN_MAX: usize = 16;
/// A segment deserves a compaction on its own while at most this many bytes are copied for each freed byte, and at
/// least this many bytes are freed for each copied item. An overwrite of 4 KiB then costs the copies of three items,
/// one of 300 bytes those of two. More would cost more time than it gains hits (docs/design-decisions.md).
const COPIED_PER_FREED_BYTE_MAX: u64 = 3;
const FREED_BYTES_PER_ITEM_MIN: u64 = 128;
/// The limit in a store that does not evict, where a write is refused otherwise. With less of it dead, a segment would
/// fill a destination that counts as full (`open_destinations`), and nothing would be gained.
const COPIED_PER_FREED_BYTE_MAX_WITHOUT_EVICTION: u64 = FULL_SHARE as u64 - 1;
/// Items larger than this part of a segment on average leave too much of the next one empty.
const LONG_ITEM_SHARE: u64 = 4;

/// The segments to claim, and the observation that must still hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum Claim {
    /// Nothing in the segment can be alive.
    Dead(SegmentId),
    /// The policy chose the segment for eviction.
    Planned(PlannedEviction),
    /// Enough of the segment is dead that it deserves a compaction on its own.
    Sparse(SegmentId),
    /// The live items of the segment and of some that follow it in the chain fit one segment.
    Neighbours(SegmentId),
    /// Items of the segment have expired; the live ones are copied to another.
    PartlyExpired(SegmentId),
    /// The segment must be emptied, and all its live items are kept.
    Relocate(SegmentId),
}

impl Claim {
    fn first(self) -> SegmentId {
        match self {
            Self::Dead(first)
            | Self::Sparse(first)
            | Self::Neighbours(first)
            | Self::PartlyExpired(first)
            | Self::Relocate(first) => first,
            Self::Planned(PlannedEviction { choice, .. }) => choice.first,
        }
    }
}

/// Bytes that a compaction copies for each freed byte, of a segment with `items` live items of `live` bytes among
/// `written` bytes. `None` if that is too many.
pub(crate) fn copied_per_freed_byte(
    live: u64,
    items: u64,
    written: u64,
    segment_bytes: u64,
    evicts: bool,
) -> Option<f64> {
    let dead = written.saturating_sub(live);
    let is_worth = if evicts {
        live <= COPIED_PER_FREED_BYTE_MAX * dead
            && items * FREED_BYTES_PER_ITEM_MIN <= dead
            && live * LONG_ITEM_SHARE <= items * segment_bytes
    } else {
        live <= COPIED_PER_FREED_BYTE_MAX_WITHOUT_EVICTION * dead
    };
    is_worth.then(|| live as f64 / dead as f64)
}

impl Store {
    /// Claims segments for which the claim still holds: they are draining from then on. `None`, with nothing changed,
    /// if it does not hold any more, or if there is no memory for the items to keep.
    pub(super) fn claim(&self, _choosing: &PlannerState, claim: Claim, moment: Moment) -> Option<Job> {
        let first = claim.first();
        if let Claim::Dead(_) | Claim::Planned(_) | Claim::PartlyExpired(_) = claim {
            // Under the lock of the list no job adds to the segment. It may have been filled since the caller read it.
            self.seal_destination_if(first, |header| self.still_holds(claim, header, moment));
        }
        let header = self.segments.header(first);
        if header.state() != State::Sealed {
            return None;
        }
        let claim = if self.is_dead(header, moment) { Claim::Dead(first) } else { claim };
        if !self.still_holds(claim, header, moment) {
            return None;
        }
        let job = match claim {
            Claim::Dead(_) => Job::Relocation(Relocation::of_dead(self, first)),
            Claim::Planned(PlannedEviction { choice, .. }) => {
                let run = self.planned_run(&choice);
                (!run.is_empty()).then_some(())?;
                self.clock.set_eviction_age(moment.ms.saturating_sub(header.stamp_ms()));
                Job::Eviction(Eviction::new(self, run, choice.retention, choice.aging))
            }
            Claim::Sparse(_) | Claim::PartlyExpired(_) | Claim::Relocate(_) => {
                Job::Relocation(Relocation::of_live(self, vec![first], moment)?)
            }
            Claim::Neighbours(_) => {
                Job::Relocation(Relocation::of_live(self, self.fitting_neighbours(first)?, moment)?)
            }
        };
        for source in job.sources() {
            self.segments.header(*source).pass_to(State::Draining);
        }
        Some(job)
    }

    /// Claims a segment in which nothing is alive, and runs a slice of its job. False if it cannot be claimed.
    pub(super) fn drop_segment(&self, participant: &Participant, segment: SegmentId, moment: Moment) -> bool {
        let job = self.claim(&lock(&self.maintenance.planner), Claim::Dead(segment), moment);
        job.map(|job| self.run_job_slice(participant, moment, job)).is_some()
    }

    /// Whether a claim holds for its first segment, which is sealed, or has no writer now.
    fn still_holds(&self, claim: Claim, header: &Header, moment: Moment) -> bool {
        match claim {
            Claim::Dead(_) => self.is_dead(header, moment),
            Claim::Planned(PlannedEviction { stamp, .. }) => {
                // Of a held segment the bodies of long values are freed: see `evict_held`.
                (header.pins() == 0 || header.body_bytes() > 0) && header.stamp.load(Ordering::Relaxed) == stamp
            }
            Claim::Sparse(_) => header.pins() == 0 && self.copied_per_freed_byte(header).is_some(),
            Claim::PartlyExpired(_) => header.pins() == 0 && header.expired_bytes() > 0,
            Claim::Neighbours(_) | Claim::Relocate(_) => true,
        }
    }

    /// Whether nothing in a segment is alive, nor will be without another write to it.
    pub(super) fn is_dead(&self, header: &Header, moment: Moment) -> bool {
        header.live_items() == 0
            || header.latest_expiry_seconds() <= moment.seconds()
            // Acquire pairs with the Release in `advance_generation`.
            || header.is_flushed(self.generation.load(Ordering::Acquire))
    }

    /// Bytes that a compaction of the segment copies for each freed byte. `None` if that is too many.
    pub(super) fn copied_per_freed_byte(&self, header: &Header) -> Option<f64> {
        let (live, items) = (header.live_bytes().into(), header.live_items().into());
        let segment_bytes = self.segments.segment_bytes().into();
        copied_per_freed_byte(live, items, header.write_offset().into(), segment_bytes, self.options.evicts)
    }

    /// The segments of a policy's choice that can be evicted together.
    fn planned_run(&self, choice: &EvictionChoice) -> Vec<SegmentId> {
        let first = self.segments.header(choice.first);
        // Long values free their bodies one by one: such a segment is evicted on its own, a little at a time.
        let alone = first.body_bytes() > u64::from(self.segments.segment_bytes()) || first.pins() > 0;
        let count = if alone { 1 } else { choice.count as usize };
        let may_join = |segment| segment == choice.first || self.may_join(first, segment);
        self.chains.run(&self.segments, choice.first, count, may_join)
    }

    /// The longest run from a segment on whose live items fit one segment; `None` if it has only one.
    pub(super) fn fitting_neighbours(&self, first: SegmentId) -> Option<Vec<SegmentId>> {
        let header = self.segments.header(first);
        let mut free_bytes = self.segments.segment_bytes();
        let run = self.chains.run(&self.segments, first, COMPACT_RUN_MAX, |segment| {
            let live = self.segments.header(segment).live_bytes();
            let fits = live <= free_bytes && self.may_join(header, segment);
            free_bytes -= if fits { live } else { 0 };
            fits
        });
        (run.len() >= 2).then_some(run)
    }

    /// Whether a segment may be in one run with `first`.
    fn may_join(&self, first: &Header, segment: SegmentId) -> bool {
        let header = self.segments.header(segment);
        let generation = |header: &Header| header.generation.load(Ordering::Relaxed);
        generation(header) == generation(first) && header.pins() == 0 && header.is_young() == first.is_young()
    }
}

#[cfg(test)]
impl Store {
    /// A job that empties a segment and keeps its live items.
    pub(super) fn claim_relocation(&self, segment: SegmentId, moment: Moment) -> Option<Job> {
        self.claim(&lock(&self.maintenance.planner), Claim::Relocate(segment), moment)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::chains::Seal;
    use crate::evict::policy::{Aging, Retention};
    use crate::ops::{Mode, Write};
    use crate::options::Options;
    use crate::ttl::Ttl;

    fn store() -> (Store, Participant) {
        let options =
            Options { memory_bytes: 1 << 20, segment_size: Some(4 << 10), value_bytes_max: 3900, ..Options::default() };
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        (store, participant)
    }

    /// Sealed segments, consecutive in their chain, that hold one value of the given length each.
    fn sealed(store: &Store, participant: &Participant, bytes: &[usize]) -> Vec<SegmentId> {
        let segment_of = |(number, bytes): (usize, &usize)| {
            let key = number.to_le_bytes();
            let (hash, value) = (store.hash(&key), vec![7; *bytes]);
            let (flags, ttl, mode, token) = (0.into(), Ttl::seconds(1000), Mode::Set, None);
            let write = Write { key: &key, hash, value: &value, flags, ttl, mode, token };
            store.write(participant, &write, 1000).unwrap();
            store.seal_open(Seal::All);
            store.get(participant, &key, hash, 1000).unwrap().item_at().at.segment()
        };
        bytes.iter().enumerate().map(segment_of).collect()
    }

    fn delete(store: &Store, participant: &Participant, number: usize) {
        let key = number.to_le_bytes();
        assert!(store.delete(participant, &key, store.hash(&key), 1000));
    }

    /// The number of segments that a claim takes at 1000 ms. They are emptied.
    fn taken(store: &Store, participant: &Participant, claim: Claim) -> usize {
        let moment = store.moment(1000);
        let job = store.claim(&lock(&store.maintenance.planner), claim, moment);
        let Some(mut job) = job else { return 0 };
        assert!(job.sources().iter().all(|source| store.segments.header(*source).state() == State::Draining));
        let count = job.sources().len();
        while !job.run(store, participant, moment, 1) {}
        count
    }

    fn planned(store: &Store, first: SegmentId, count: u32) -> PlannedEviction {
        let stamp = store.segments.header(first).stamp.load(Ordering::Relaxed);
        PlannedEviction {
            choice: EvictionChoice { first, count, retention: Retention::Nothing, aging: Aging::None },
            stamp,
        }
    }

    #[test]
    fn a_plan_claims_only_its_segment() {
        let (store, participant) = store();
        let all = sealed(&store, &participant, &[100; 5]);
        let header = |at: usize| store.segments.header(all[at]);
        let plan = planned(&store, all[0], 4);
        header(0).pin();
        assert_eq!(taken(&store, &participant, Claim::Planned(plan)), 0, "a handle holds it");
        header(0).unpin();
        let other = PlannedEviction { stamp: plan.stamp + 1, ..plan };
        assert_eq!(taken(&store, &participant, Claim::Planned(other)), 0, "it is another life");
        header(2).pin();
        assert_eq!(taken(&store, &participant, Claim::Planned(plan)), 2, "a handle holds the third");
        header(2).unpin();
        assert_eq!((store.stats().items, store.stats().evictions), (3, 2));
        header(3).rounds.store(1, Ordering::Relaxed);
        assert_eq!(taken(&store, &participant, Claim::Planned(planned(&store, all[2], 3))), 1, "the fourth is old");
        store.verify(&participant, 1000);
    }

    #[test]
    fn a_compaction_claims_only_sparse_segments() {
        let (store, participant) = store();
        let all = sealed(&store, &participant, &[3000, 1500, 1500, 100, 3000]);
        let header = |at: usize| store.segments.header(all[at]);
        let neighbours = |at: usize| taken(&store, &participant, Claim::Neighbours(all[at]));
        assert_eq!(neighbours(0), 0, "they do not fit one segment");
        header(2).pin();
        assert_eq!(neighbours(1), 0, "a handle holds the second");
        header(2).unpin();
        assert_eq!(neighbours(1), 3);
        assert_eq!(neighbours(1), 0, "they are not there any more");
        assert_eq!(taken(&store, &participant, Claim::Sparse(all[0])), 0, "nothing in it is dead");
        assert_eq!((store.stats().items, store.stats().evictions), (5, 0));
        store.verify(&participant, 1000);
    }

    #[test]
    fn items_dead_since_the_choice_need_no_memory() {
        let (store, participant) = store();
        let all = sealed(&store, &participant, &[100; 3]);
        let taken_segments: Vec<_> =
            std::iter::from_fn(|| store.segments.take(crate::segment::Purpose::Merge)).collect();
        assert_eq!(taken(&store, &participant, Claim::Relocate(all[0])), 0, "no segment is free");
        delete(&store, &participant, 0);
        assert_eq!(taken(&store, &participant, Claim::Relocate(all[0])), 1);
        assert_eq!(taken(&store, &participant, Claim::Dead(all[1])), 0, "it is alive");
        store.flush(1000, 0);
        assert_eq!(taken(&store, &participant, Claim::Planned(planned(&store, all[1], 2))), 1, "one is dropped whole");
        assert_eq!((store.stats().flushed, store.stats().evictions), (1, 0));
        taken_segments.into_iter().for_each(|segment| store.segments.retire(segment));
        store.verify(&participant, 1000);
    }
}
