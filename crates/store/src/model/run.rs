//! Emptying a run of segments of a model: a relocation keeps all live items, an eviction those that the policy keeps.

use super::segments::{ItemShape, Life};
use super::{Object, SegmentModel};
use crate::evict::decisions::{
    Aging, Evicted, EvictionChoice, FULL_SHARE, OPEN_MAX, OPEN_SHARE, Retention, SCORE_EXPIRED, SCORE_UNLINKED,
    ScoreTotals, ScoredItem, ScoredRun,
};
use crate::segment::{SHORT_SHARE, STAMP_SHIFT, SegmentId};
use crate::time::Moment;

/// Which list of open destinations a job fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    Survivors,
    Compacted,
}

/// The destination of one job.
struct JobDestination {
    filled: Filled,
    /// Survivors are judged again: they keep the age of the run.
    keeps_age: bool,
    now: Option<SegmentId>,
    taken: usize,
}

impl SegmentModel {
    /// Copies all that is alive in a run to other segments. True.
    pub(super) fn relocate(&mut self, run: &[SegmentId], moment: Moment) -> bool {
        let mut destination = JobDestination { filled: Filled::Compacted, keeps_age: true, now: None, taken: 0 };
        let mut expired_any = false;
        for &source in run {
            let objects = std::mem::take(&mut self.segments.at_mut(source).objects);
            for (place, &number) in objects.iter().enumerate() {
                if !self.is_at(number, source, place) {
                    continue;
                }
                if self.is_expired(number, moment) {
                    expired_any = true;
                    self.unlink(number);
                } else {
                    self.copy(number, run, &mut destination, Aging::None, moment);
                }
            }
            self.segments.at_mut(source).objects = objects;
        }
        if !expired_any {
            let has_gained = run.len() > destination.taken;
            self.compactions_without_gain = if has_gained { 0 } else { self.compactions_without_gain + 1 };
        }
        self.finish(run, destination);
        true
    }

    /// Evicts a run: keeps the items that the choice keeps.
    pub(super) fn evict(&mut self, run: &[SegmentId], choice: &EvictionChoice, moment: Moment) {
        let stamp_ms = self.segments.at(run[0]).stamp >> STAMP_SHIFT;
        self.clock.set_eviction_age(moment.ms.saturating_sub(stamp_ms));
        let mut destination = JobDestination { filled: Filled::Survivors, keeps_age: false, now: None, taken: 0 };
        let (mut aging, mut threshold, mut scores) = (choice.aging, None, Vec::new());
        if choice.retention != Retention::Nothing {
            let mut totals = [ScoreTotals::default(); 256];
            for &source in run {
                self.score(source, choice.retention, (&mut scores, &mut totals), moment);
            }
            let scored = ScoredRun {
                segments: run.len(),
                segment_bytes: self.segments.capacity_bytes,
                merge_run: self.options.merge_run.into(),
                totals: &totals,
                evictions_without_gain: self.evictions_without_gain,
            };
            let found = choice.retention.threshold(&scored);
            if found.is_partial() {
                (aging, destination.keeps_age) = (Aging::None, true);
            }
            threshold = Some(found);
        }
        let mut scores = scores.into_iter();
        for &source in run {
            let objects = std::mem::take(&mut self.segments.at_mut(source).objects);
            for (place, &number) in objects.iter().enumerate() {
                let score = scores.next();
                if score == Some(SCORE_UNLINKED) || !self.is_at(number, source, place) {
                    continue;
                }
                let is_kept = match (&mut threshold, score) {
                    (Some(threshold), Some(score)) => threshold.keeps(score) && score != SCORE_EXPIRED,
                    _ => false,
                };
                match is_kept {
                    true => self.copy(number, run, &mut destination, aging, moment),
                    false => self.evict_object(number, moment),
                }
            }
            self.segments.at_mut(source).objects = objects;
        }
        let taken = destination.taken;
        self.finish(run, destination);
        if choice.retention.keeps_all_that_qualify() {
            let has_gained = run.len() > taken || self.free_for_writers() > 0;
            self.evictions_without_gain = if has_gained { 0 } else { self.evictions_without_gain.saturating_add(1) };
        }
    }

    fn score(
        &self,
        source: SegmentId,
        retention: Retention,
        (scores, totals): (&mut Vec<u8>, &mut [ScoreTotals; 256]),
        moment: Moment,
    ) {
        for (place, &number) in self.segments.at(source).objects.iter().enumerate() {
            let Object { hash, slot, shape, .. } = &self.objects[number as usize];
            let score = if !self.is_at(number, source, place) {
                SCORE_UNLINKED
            } else if self.is_expired(number, moment) {
                SCORE_EXPIRED
            } else {
                let total_bytes = shape.size + shape.body_bytes;
                let scored =
                    ScoredItem { hash: *hash, frequency: slot.frequency(), bytes: total_bytes, is_spared: false };
                let score = retention.score(self.options.objective, &self.history, scored);
                let totals = &mut totals[usize::from(score)];
                totals.items += 1;
                totals.bytes += shape.size;
                totals.total_bytes += total_bytes;
                score
            };
            scores.push(score);
        }
    }

    fn evict_object(&mut self, number: u32, moment: Moment) {
        let Object { hash, slot, .. } = self.objects[number as usize];
        if !self.is_expired(number, moment) {
            let segment = self.segments.at(slot.segment());
            let evicted = match segment.rounds {
                0 => Evicted::Young { uses: slot.frequency() },
                _ => Evicted::Old { age_ms: moment.ms.saturating_sub(segment.stamp >> STAMP_SHIFT) },
            };
            self.history.note_evicted(hash, evicted, moment.ms);
            self.evictions += 1;
        }
        self.unlink(number);
    }

    /// Copies an object to the destination of a job.
    fn copy(&mut self, number: u32, run: &[SegmentId], destination: &mut JobDestination, aging: Aging, moment: Moment) {
        let shape: ItemShape = self.objects[number as usize].shape;
        let now = destination.now.filter(|open| self.segments.fits(*open, shape.size));
        let segment = now.unwrap_or_else(|| self.next_destination(run, destination, shape.size, moment));
        let frequency = aging.applied_to(self.objects[number as usize].slot.frequency());
        self.leave_segment(number);
        self.place(number, segment, shape);
        let object = &mut self.objects[number as usize];
        object.slot = object.slot.moved(object.slot.location(), frequency);
    }

    /// Continues in an open destination of an earlier job, or in a free segment.
    fn next_destination(
        &mut self,
        run: &[SegmentId],
        destination: &mut JobDestination,
        size: u64,
        moment: Moment,
    ) -> SegmentId {
        let first = self.segments.at(run[0]);
        let (bucket, rounds, young) = (first.bucket, first.rounds, first.is_young());
        let is_partial = destination.filled == Filled::Survivors && destination.keeps_age;
        let segments = &self.segments;
        let suits = |segment: &SegmentId| {
            let open = segments.at(*segment);
            let same_age = destination.filled == Filled::Survivors || open.is_young() == young;
            open.bucket == bucket && moment.ms < open.seal_at_ms && same_age && !run.contains(segment)
        };
        let list = match destination.filled {
            Filled::Survivors => &mut self.survivors,
            Filled::Compacted => &mut self.compacted,
        };
        let at = if is_partial { None } else { list.iter().position(suits) };
        let taken = at.map(|at| list.remove(at));
        let next = taken.filter(|segment| self.segments.fits(*segment, size)).unwrap_or_else(|| {
            taken.iter().for_each(|full| self.segments.seal(*full));
            destination.taken += 1;
            let fills = self.free_for_writers() < i64::from(self.limit() / SHORT_SHARE);
            let seal_at_ms = moment.ms.saturating_add(self.layout.scale.open_ms(bucket, fills));
            let oldest = self.oldest_stamp(run);
            let segment = self.segments.take(Life::Destination, bucket, moment, seal_at_ms);
            let started = self.segments.at_mut(segment);
            started.rounds = if destination.keeps_age { rounds } else { rounds.saturating_add(1) };
            if destination.keeps_age {
                started.stamp = oldest;
            }
            self.segments.chain(segment, Some(run[0]));
            segment
        });
        if let Some(full) = destination.now.replace(next) {
            self.leave_job(run, full, destination.filled);
            self.segments.seal(full);
        }
        next
    }

    fn oldest_stamp(&self, run: &[SegmentId]) -> u64 {
        run.iter().map(|source| self.segments.at(*source).stamp).min().expect("a run has a segment")
    }

    /// A destination takes the place of the run in the chain; relocated items keep their age.
    fn leave_job(&mut self, run: &[SegmentId], segment: SegmentId, filled: Filled) {
        self.segments.chain_earlier(segment, run[0]);
        if filled == Filled::Compacted {
            let oldest = self.oldest_stamp(run);
            let destination = self.segments.at_mut(segment);
            destination.stamp = destination.stamp.min(oldest);
        }
    }

    /// The destination stays open for the next job, and the run is free.
    fn finish(&mut self, run: &[SegmentId], destination: JobDestination) {
        if let Some(segment) = destination.now {
            self.leave_job(run, segment, destination.filled);
            let is_partial = destination.filled == Filled::Survivors && destination.keeps_age;
            if is_partial || self.segments.is_full(segment, FULL_SHARE) {
                self.segments.seal(segment);
            } else {
                self.keep_open(segment, destination.filled);
            }
        }
        for &source in run {
            self.leave_destinations(source);
            self.segments.release(source);
        }
    }

    /// Lists an open destination. If there are too many, the fullest is sealed.
    fn keep_open(&mut self, segment: SegmentId, filled: Filled) {
        let max = (self.limit() / OPEN_SHARE).clamp(1, OPEN_MAX as u32) as usize;
        let list = match filled {
            Filled::Survivors => &mut self.survivors,
            Filled::Compacted => &mut self.compacted,
        };
        list.push(segment);
        // Ends: the list gets shorter.
        while list.len() > max {
            let written = |at: &usize| self.segments.at(list[*at]).written_bytes;
            let fullest = (0..list.len()).max_by_key(written).expect("there are more than one");
            self.segments.seal(list.remove(fullest));
        }
    }
}
