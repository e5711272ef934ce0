//! What evictions keep between slices: the state that all policies share, and that of the policy of a store.

use super::candidates::PlannerState;
use super::flushed_search::FlushedSearch;
use super::history::History;
use super::jobs::{Job, JobCounts};
use super::open_destinations::OpenDestinations;
use crate::sync::{AtomicU32, AtomicU64, Mutex};
use std::sync::Arc;

/// The state of maintenance, the same for every policy.
#[derive(Default)]
pub(crate) struct MaintenanceState {
    /// Paused jobs.
    pub(super) jobs: Mutex<Vec<Job>>,
    /// Counts paused jobs and jobs at work.
    pub(super) job_counts: Arc<JobCounts>,
    /// The lock of choices: a claim needs it.
    pub(super) planner: Mutex<PlannerState>,
    /// Segments that relocations fill.
    pub(super) compacted: OpenDestinations,
    pub(crate) flushed: FlushedSearch,
    pub(super) next_maintenance_ms: AtomicU64,
    /// Compactions in a row that freed no more segments than they took; an eviction ends the row, too.
    pub(super) compactions_without_gain: AtomicU32,
}

/// The state of the eviction policy.
pub(crate) struct PolicyState {
    /// Segments that evictions fill with the items they keep.
    pub(super) survivors: OpenDestinations,
    /// What the policy remembers of keys that are not in the store.
    pub(crate) history: History,
    /// Evictions by use in a row that freed no more segments than they took while none was free for writers.
    pub(super) evictions_without_gain: AtomicU32,
}

impl PolicyState {
    pub fn new(history: History) -> Self {
        Self { survivors: OpenDestinations::default(), history, evictions_without_gain: AtomicU32::new(0) }
    }
}
