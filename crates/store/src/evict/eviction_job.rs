//! Eviction: the items of a run are scored, those from a threshold on are copied, the others leave the cache.
//!
//! Two passes over the run, each of which can pause at any item:
//! - **Score.** Every item is looked up in the index: is it alive, how often was it used? A histogram of all scores
//!   gives the exact threshold from which on items fit.
//! - **Apply.** Items above the threshold are copied to a destination and their slots are pointed at the copies, under
//!   the bucket lock, if the slot still names the old copy. All other items are unlinked.
//!
//! Survivors of a run of several segments fill a segment of their own; other survivors are appended to the open
//! destination of an earlier eviction (see `open_destinations`).

use super::destination::Age;
use super::jobs::{Candidate, Eviction, Phase, RunCursor, SourceRun};
use super::objective::{CostTotals, Objective, draw_of, is_spared};
use super::open_destinations::Destination;
use super::policy::{Aging, Retention};
use super::retention::{ScoredItem, ScoredRun};
use super::scores::{SCORE_EXPIRED, SCORE_UNLINKED, ScoreThreshold, ScoreTotals};
use crate::epoch::Participant;
use crate::item::ItemAt;
use crate::segment::{Purpose, SegmentId};
use crate::store::Store;
use crate::sync::Ordering;
use crate::time::Moment;

/// The cost class of an item of a draining segment, if costs count.
fn cost_class_of(store: &Store, item: &ItemAt) -> Option<u8> {
    // SAFETY: the segment is draining and keeps its bytes.
    let flags = || unsafe { item.flags(&store.segments.arena) };
    (store.options.objective == Objective::Cost).then(|| flags().cost_class())
}

/// Whether an eviction costs an old item nothing. All calls of an eviction agree for an item.
fn is_spared_by_cost(store: &Store, item: &ItemAt, hash: u64) -> bool {
    cost_class_of(store, item).is_some_and(|class| {
        let header = store.segments.header(item.at.segment());
        let draw = draw_of(hash, header.stamp.load(Ordering::Relaxed));
        header.rounds.load(Ordering::Relaxed) > 0 && is_spared(store.policy_state.cost_scale.relative_cost(class), draw)
    })
}

impl Eviction {
    /// An eviction of segments that the caller claims: they drain before it runs.
    pub(super) fn new(store: &Store, segments: Vec<SegmentId>, retention: Retention, aging: Aging) -> Self {
        Self {
            run: SourceRun::new(&store.maintenance.job_counts, segments),
            retention,
            aging,
            phase: if retention == Retention::Nothing { Phase::Apply } else { Phase::Score },
            scores: Vec::new(),
            totals: Box::new([ScoreTotals::default(); 256]),
            costs: CostTotals::default(),
            threshold: ScoreThreshold { score: 0, dropped_at_threshold: 0 },
            is_partial: false,
            destination: None,
            segments_taken: 0,
        }
    }

    pub(super) fn score(&mut self, store: &Store, group: &[Candidate], moment: Moment) {
        for Candidate { item, hash, .. } in group {
            let found = store.index.find(*hash, |slot| slot.location() == item.at);
            let score = match found {
                None => SCORE_UNLINKED,
                Some(_) if !store.is_live(item, moment) => SCORE_EXPIRED,
                Some(found) => {
                    let footprint = store.footprint(found.slot);
                    let total_bytes = u64::from(footprint.size) + footprint.body_bytes;
                    let history = store.policy_state.history();
                    let scored = ScoredItem {
                        hash: *hash,
                        frequency: found.slot.frequency(),
                        bytes: self.bytes_by_cost(store, item, total_bytes),
                        is_spared: is_spared_by_cost(store, item, *hash),
                    };
                    let score = self.retention.score(store.options.objective, history, scored);
                    let totals = &mut self.totals[usize::from(score)];
                    totals.items += 1;
                    totals.bytes += u64::from(footprint.size);
                    totals.total_bytes += total_bytes;
                    score
                }
            };
            self.scores.push(score);
        }
    }

    /// The bytes that an item counts as.
    fn bytes_by_cost(&mut self, store: &Store, item: &ItemAt, bytes: u64) -> u64 {
        match cost_class_of(store, item) {
            Some(class) => store.policy_state.cost_scale.weigh(bytes, class, &mut self.costs),
            None => bytes,
        }
    }

    /// Between the passes: computes the threshold from the scores.
    pub(super) fn set_threshold(&mut self, store: &Store) {
        store.policy_state.cost_scale.note(self.costs);
        self.threshold = self.retention.threshold(&ScoredRun {
            segments: self.run.segments.len(),
            segment_bytes: store.segments.segment_bytes().into(),
            merge_run: store.options.merge_run.into(),
            totals: &self.totals,
            evictions_without_gain: store.policy_state.evictions_without_gain.load(Ordering::Relaxed),
        });
        if self.threshold.is_partial() {
            self.is_partial = true;
            self.aging = Aging::None;
        }
        self.phase = Phase::Apply;
        self.run.cursor = RunCursor::default();
    }

    /// Copies or unlinks each item. Returns the bytes that were copied.
    pub(super) fn apply(
        &mut self,
        store: &Store,
        participant: &Participant,
        group: &[Candidate],
        moment: Moment,
    ) -> u32 {
        let mut copied = 0;
        for candidate in group {
            let Candidate { item, hash, score } = candidate;
            let is_kept =
                self.is_kept(*score) && store.is_live(item, moment) && self.copy(store, participant, candidate, moment);
            if is_kept {
                copied += item.header.size();
            } else {
                self.run.remove(store, participant, item, *hash, moment);
            }
        }
        copied
    }

    fn is_kept(&mut self, score: Option<u8>) -> bool {
        match (self.retention, score) {
            (Retention::Nothing, _) => false,
            (_, None) => panic!("an item was not scored"),
            (_, Some(score)) => self.threshold.keeps(score),
        }
    }

    /// False if there is no segment for the item, or it is not in the index any more.
    fn copy(&mut self, store: &Store, participant: &Participant, candidate: &Candidate, moment: Moment) -> bool {
        let item = &candidate.item;
        let expiry = store.expiry_seconds(item);
        let size = item.header.size();
        let fit = self.destination.as_ref().and_then(|open| open.fit(store, size, expiry));
        let Some(byte) = fit.or_else(|| self.next_destination(store, size, expiry, moment)) else { return false };
        let destination = self.destination.as_mut().expect("the item fits");
        let aging = if is_spared_by_cost(store, item, candidate.hash) { Aging::None } else { self.aging };
        destination.copy(store, participant, candidate, (expiry, byte), aging)
    }

    /// Continues in another destination, for an item of `size` bytes: one that an earlier eviction has left open, or a
    /// new one. Returns the item's expiry byte there; `None` if there is no segment for it.
    fn next_destination(&mut self, store: &Store, size: u32, expiry: Option<u64>, moment: Moment) -> Option<u8> {
        let source = store.segments.header(self.run.first());
        let survivors = &store.policy_state.survivors;
        let open = if self.is_partial { None } else { survivors.take(&store.segments, source, moment, |_| true) };
        let open = open.and_then(|open| match open.fit(store, size, expiry) {
            Some(expiry_byte) => Some((open, expiry_byte)),
            None => {
                store.segments.seal(open.segment);
                None
            }
        });
        let next = open.or_else(|| {
            let age = if self.is_partial { Age::Kept } else { Age::NextRound };
            let segment = store.segments.take(Purpose::Merge)?;
            let new = self.run.start_destination(store, segment, moment, age);
            self.segments_taken += 1;
            let expiry_byte = store.segments.header(new.segment).expiry_byte(expiry);
            if expiry_byte.is_none() {
                // Another thread has seen a later time, at which this item has expired.
                store.segments.retire(new.segment);
            }
            Some((new, expiry_byte?))
        });
        let (next, expiry_byte): (Destination, u8) = next?;
        if let Some(full) = self.destination.replace(next) {
            self.run.chain(store, &full);
            store.segments.seal(full.segment);
        }
        Some(expiry_byte)
    }

    /// All items are done: the destination takes the place of the run, and the run retires.
    pub(super) fn finish(&mut self, store: &Store) {
        match self.destination.take() {
            Some(unused) if unused.offset == 0 => store.segments.retire(unused.segment),
            Some(destination) => {
                self.run.chain(store, &destination);
                if self.is_partial {
                    store.segments.seal(destination.segment);
                } else {
                    store.policy_state.survivors.put_back(&store.segments, destination);
                }
            }
            None => {}
        }
        if self.retention != Retention::Nothing {
            self.run.recheck_flush(store);
        }
        if self.retention.keeps_all_that_qualify() {
            let without_gain = &store.policy_state.evictions_without_gain;
            // A waiting writer takes each freed segment: none may be free afterwards although each eviction freed one.
            let has_gained = self.run.segments.len() > self.segments_taken || store.segments.free_for_writers() > 0;
            let count = if has_gained { 0 } else { without_gain.load(Ordering::Relaxed).saturating_add(1) };
            without_gain.store(count, Ordering::Relaxed);
        }
        self.run.retire(store);
    }
}
