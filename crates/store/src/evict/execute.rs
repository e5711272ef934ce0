//! The one executor of jobs: runs a slice of a job, pauses it, resumes it.
//!
//! A slice ends after a number of items or copied bytes, so that no thread is away for long. Readers continue to read
//! the old copies until their grace period is over.

use super::jobs::{Job, Phase};
use crate::epoch::Participant;
use crate::pause_point::{PausePoint, pause_point};
use crate::store::Store;
use crate::sync::lock;
use crate::time::Moment;

/// Items of a slice: at 50 to 100 ns each it takes about 100 to 200 us.
pub(super) const SLICE_ITEMS: u32 = 1500;
/// Items of a slice above a lower tier, whose buffers take the evicted items: few, so that maintenance can wait for the
/// tier between slices.
const SLICE_ITEMS_TIERED: u32 = 64;
/// A slice ends with the group that reaches this many copied bytes: about as long as its items otherwise take.
pub(super) const SLICE_BYTES: u32 = 256 << 10;
/// Bytes of a slice above a lower tier, copied or demoted, but for the last item: the buffers of the tier may hold only
/// a few times as much, and several threads evict.
const SLICE_BYTES_TIERED: u32 = 16 << 10;
/// Items whose index lookups overlap.
const GROUP: usize = 16;

impl Job {
    /// Works through `items` items, or fewer if they are long. True when the job is done.
    pub fn run(&mut self, store: &Store, participant: &Participant, moment: Moment, items: u32) -> bool {
        let mut left = items as usize;
        let has_lower_tier = store.lower_tier.get().is_some();
        let bytes_max = if has_lower_tier { SLICE_BYTES_TIERED } else { SLICE_BYTES };
        let mut bytes = 0;
        loop {
            let size = left.min(GROUP);
            let group_max = if has_lower_tier { bytes_max - bytes } else { u32::MAX };
            let group = match self {
                Self::Relocation(job) => job.run.next_group(store, size, group_max, &[]),
                Self::Eviction(job) => job.run.next_group(store, size, group_max, &job.scores),
            };
            if group.is_empty() {
                match self {
                    Self::Eviction(job) if job.phase == Phase::Score => job.set_threshold(store),
                    Self::Eviction(job) => {
                        job.finish(store);
                        return true;
                    }
                    Self::Relocation(job) => {
                        job.finish(store);
                        return true;
                    }
                }
                continue;
            }
            left = left.saturating_sub(group.len());
            let copied = match self {
                Self::Eviction(job) if job.phase == Phase::Score => {
                    job.score(store, &group, moment);
                    None
                }
                Self::Eviction(job) => Some(job.apply(store, participant, &group, moment)),
                Self::Relocation(job) => Some(job.apply(store, participant, &group, moment)),
            };
            if let Some(copied) = copied {
                let group_bytes = || group.iter().map(|candidate| candidate.item.header.size()).sum();
                bytes += if has_lower_tier { group_bytes() } else { copied };
            }
            if left == 0 || bytes >= bytes_max {
                return false;
            }
        }
    }
}

impl Store {
    /// Runs a slice of a job, and pauses the job if it is not done.
    pub(super) fn run_job_slice(&self, participant: &Participant, moment: Moment, mut job: Job) {
        let items = if self.lower_tier.get().is_some() { SLICE_ITEMS_TIERED } else { SLICE_ITEMS };
        pause_point(PausePoint::Job);
        if !job.run(self, participant, moment, items) {
            pause_point(PausePoint::Job);
            self.pause_job(job);
        }
    }

    /// Leaves a job to the next thread that resumes one.
    pub(super) fn pause_job(&self, job: Job) {
        lock(&self.maintenance.jobs).push(job);
    }

    /// Runs a slice of a paused job. False if there is none.
    pub(super) fn resume_job(&self, participant: &Participant, moment: Moment) -> bool {
        let paused = lock(&self.maintenance.jobs).pop();
        paused.map(|job| self.run_job_slice(participant, moment, job)).is_some()
    }

    /// As `resume_job`, of a job that evicts nothing.
    pub(super) fn resume_relocation(&self, participant: &Participant, moment: Moment) -> bool {
        let paused = {
            let mut jobs = lock(&self.maintenance.jobs);
            let place = jobs.iter().rposition(|job| matches!(job, Job::Relocation(_)));
            place.map(|place| jobs.remove(place))
        };
        paused.map(|job| self.run_job_slice(participant, moment, job)).is_some()
    }
}
