//! The next segments that a model empties: dead segments, compactions, then the choice of the policy. The order is that
//! of the store.

use super::SegmentModel;
use super::segments::{Life, ModelSegment};
use crate::evict::decisions::{
    COMPACT_FILL_MAX, COMPACT_RUN_MAX, COMPACTIONS_WITHOUT_GAIN_MAX, PLANNED_SHARE, PlannedEviction, SAMPLE_SEGMENTS,
    SampledSegment, choose, copied_per_freed_byte,
};
use crate::options::Options;
use crate::segment::SegmentId;
use crate::time::Moment;

/// Steps for one request of free segments: beyond that nothing more can be freed.
const MAX_STEPS: u32 = 1 << 16;

impl SegmentModel {
    /// Frees segments until `count` are free for writers. Ends: after a bounded number of steps, or when nothing is
    /// left to evict.
    pub(super) fn free_segments(&mut self, count: u32, moment: Moment) {
        let mut steps = 0;
        while self.free_for_writers() < i64::from(count) && steps < MAX_STEPS && self.run_job(moment) {
            steps += 1;
        }
    }

    /// Empties a run of segments. False if there is none.
    fn run_job(&mut self, moment: Moment) -> bool {
        self.drop_dead()
            || self.compact_sparse(moment)
            || self.evict_planned(moment)
            || self.sample(moment)
            || self.compact_sparse(moment)
            || self.evict_sampled(moment)
            || self.seal_all()
    }

    fn drop_dead(&mut self) -> bool {
        // Ends: each entry is taken once.
        while let Some(segment) = self.segments.dead.pop() {
            let found = self.segments.at(segment);
            if found.live_items == 0 && matches!(found.life, Life::Sealed | Life::Destination) {
                self.drop_segment(segment);
                return true;
            }
        }
        false
    }

    /// Looks for segments that can be emptied without loss, and empties one run. Candidates of the policy are noted.
    fn sample(&mut self, moment: Moment) -> bool {
        let count = self.segments.count();
        let mut neighbours = None;
        let mut sparse: Vec<(f64, SegmentId)> = Vec::new();
        let (mut looked, mut dead) = (0, None);
        for step in 0..count {
            let segment = SegmentId::new((self.cursor + step) % count + 1);
            let found = self.segments.at(segment);
            if found.life != Life::Sealed {
                continue;
            }
            if found.latest_expiry <= moment.seconds() {
                dead = Some(segment);
                break;
            }
            if neighbours.is_none()
                && (found.live_bytes as f64) < COMPACT_FILL_MAX * self.segments.capacity_bytes as f64
            {
                neighbours = self.fitting_neighbours(segment);
            }
            if let Some(copied) = self.copied_per_freed_byte(found) {
                sparse.push((copied, segment));
            }
            looked += 1;
            if looked >= SAMPLE_SEGMENTS {
                self.cursor = (self.cursor + step + 1) % count;
                break;
            }
        }
        sparse.sort_by(|one, other| other.0.total_cmp(&one.0));
        self.sparse = sparse.into_iter().map(|(_, segment)| segment).collect();
        if let Some(dead) = dead {
            self.drop_segment(dead);
            return true;
        }
        neighbours.is_some_and(|run| self.relocate(&run, moment))
    }

    /// Bytes that a compaction copies for each freed byte. The limits are those of items, so segments that are smaller
    /// by the sampling rate are judged as the store's.
    fn copied_per_freed_byte(&self, found: &ModelSegment) -> Option<f64> {
        let scaled = |bytes: u64| (bytes as f64 / self.sample_rate) as u64;
        let (live, items) = (scaled(found.live_bytes), scaled(found.live_items.into()));
        copied_per_freed_byte(live, items, scaled(found.written_bytes), self.layout.segment_bytes.into(), true)
    }

    fn fitting_neighbours(&self, first: SegmentId) -> Option<Vec<SegmentId>> {
        let young = self.segments.at(first).is_young();
        let mut free_bytes = self.segments.capacity_bytes;
        let run = self.segments.run(first, COMPACT_RUN_MAX, |found| {
            let fits = found.live_bytes <= free_bytes && found.is_young() == young;
            free_bytes -= if fits { found.live_bytes } else { 0 };
            fits
        });
        (run.len() >= 2).then_some(run)
    }

    fn compact_sparse(&mut self, moment: Moment) -> bool {
        while self.compactions_without_gain < COMPACTIONS_WITHOUT_GAIN_MAX {
            let Some(segment) = self.sparse.pop() else { return false };
            let found = self.segments.at(segment);
            if found.life == Life::Sealed && self.copied_per_freed_byte(found).is_some() {
                return self.relocate(&[segment], moment);
            }
        }
        false
    }

    /// Lets the policy choose among the segments, and evicts its first choice.
    fn evict_sampled(&mut self, moment: Moment) -> bool {
        let mut views = Vec::with_capacity(self.segments.count() as usize);
        for step in 0..self.segments.count() {
            let segment = SegmentId::new((self.cursor + step) % self.segments.count() + 1);
            let found = self.segments.at(segment);
            if matches!(found.life, Life::Sealed | Life::Destination) && views.len() < SAMPLE_SEGMENTS {
                views.push(view(segment, found));
            }
        }
        if views.is_empty() {
            return false;
        }
        self.history.fit(self.numbers.len() as u64);
        let max = (views.len() / PLANNED_SHARE).max(1);
        self.planned.clear();
        while self.planned.len() < max && !views.is_empty() {
            let random = self.next_random();
            let Options { policy, objective, merge_run, .. } = self.options;
            let choice = choose(policy, objective, &views, merge_run, random);
            let at = views.iter().position(|view| view.segment == choice.first).expect("it was chosen among them");
            self.planned.push(PlannedEviction { choice, stamp: views.swap_remove(at).stamp });
            if choice.count > 1 {
                break;
            }
        }
        self.planned.reverse();
        self.evict_planned(moment)
    }

    fn evict_planned(&mut self, moment: Moment) -> bool {
        while let Some(PlannedEviction { choice, stamp }) = self.planned.pop() {
            let first = self.segments.at(choice.first);
            if first.stamp != stamp || first.life == Life::Free {
                continue;
            }
            if first.life == Life::Destination {
                self.leave_destinations(choice.first);
                self.segments.at_mut(choice.first).life = Life::Sealed;
            }
            let first = self.segments.at(choice.first);
            let alone = first.body_bytes > self.segments.capacity_bytes;
            let count = if alone { 1 } else { choice.count as usize };
            let young = first.is_young();
            let run = self.segments.run(choice.first, count, |found| found.is_young() == young);
            if !run.is_empty() {
                self.compactions_without_gain = 0;
                self.evict(&run, &choice, moment);
                return true;
            }
        }
        false
    }

    /// Seals all open segments. False if there is none.
    fn seal_all(&mut self) -> bool {
        let open: Vec<SegmentId> = self.open.iter_mut().filter_map(Option::take).collect();
        self.open_count = 0;
        open.iter().for_each(|segment| self.segments.seal(*segment));
        !open.is_empty()
    }

    /// Seals open segments and destinations that have been open for long enough.
    pub(super) fn seal_due(&mut self, moment: Moment) {
        let segments = &mut self.segments;
        let mut sealed = 0;
        for open in &mut self.open {
            if let Some(segment) = open.take_if(|segment| moment.ms >= segments.at(*segment).seal_at_ms) {
                segments.seal(segment);
                sealed += 1;
            }
        }
        self.open_count -= sealed;
        for list in [&mut self.survivors, &mut self.compacted] {
            list.retain(|segment| {
                let is_due = moment.ms >= segments.at(*segment).seal_at_ms;
                if is_due {
                    segments.seal(*segment);
                }
                !is_due
            });
        }
    }

    /// A segment is emptied, or sealed: no job adds to it.
    pub(super) fn leave_destinations(&mut self, segment: SegmentId) {
        self.survivors.retain(|other| *other != segment);
        self.compacted.retain(|other| *other != segment);
    }
}

fn view(segment: SegmentId, found: &ModelSegment) -> SampledSegment {
    SampledSegment {
        segment,
        stamp: found.stamp,
        live_items: found.live_items,
        live_bytes: found.live_bytes + found.body_bytes,
        latest_expiry_seconds: found.latest_expiry,
        rounds: found.rounds,
    }
}
