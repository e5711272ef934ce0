//! State of evictions between slices: that of all policies, and that of a store's policy.

use super::candidates::PlannerState;
use super::flushed_search::FlushedSearch;
use super::history::History;
use super::jobs::{Job, JobCounts};
use super::objective::CostScale;
use super::open_destinations::OpenDestinations;
use super::policy::{HistoryKind, Policy};
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use std::sync::{Arc, OnceLock};

/// The steps that made space for a long value.
#[derive(Default)]
pub(super) struct MoveSteps {
    /// The number of the body that is in the way.
    pub body: u32,
    pub steps: u32,
}

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
    /// Held while a long value is moved.
    pub(super) value_move: Mutex<MoveSteps>,
    /// Compactions in a row that freed no more segments than they took; an eviction ends the row, too.
    pub(super) compactions_without_gain: AtomicU32,
}

/// The state of the eviction policy, which may change while the store is in use.
///
/// The histories of policies that were in use stay: a reader may have found one just now. A policy without a history
/// has none here, either.
pub(crate) struct PolicyState {
    /// The place of the policy in `Policy::ALL`.
    policy: AtomicU32,
    /// Segments that evictions fill with the items they keep.
    pub(super) survivors: OpenDestinations,
    /// Histories of keys that are not in the store, by kind.
    histories: [OnceLock<History>; HistoryKind::COUNT],
    /// Evictions by use in a row that freed no more segments than they took while none was free for writers.
    pub(super) evictions_without_gain: AtomicU32,
    /// For the objective `cost`.
    pub(super) cost_scale: CostScale,
    /// Held while the policy changes.
    pub(crate) switching: Mutex<()>,
}

/// The share of the memory for the history of evicted keys.
pub(crate) const HISTORY_SHARE: u64 = 256;

impl PolicyState {
    pub fn new(policy: Policy, history: History) -> Self {
        let state = Self {
            policy: AtomicU32::new(place_of(policy)),
            survivors: OpenDestinations::default(),
            histories: Default::default(),
            evictions_without_gain: AtomicU32::new(0),
            cost_scale: CostScale::default(),
            switching: Mutex::default(),
        };
        state.histories[HistoryKind::None as usize].get_or_init(History::none);
        state.histories[policy.history_kind() as usize].get_or_init(|| history);
        state
    }

    /// The policy of the next choice.
    pub fn policy(&self) -> Policy {
        Policy::ALL[self.policy.load(Ordering::Relaxed) as usize]
    }

    /// The policy's history of keys that are not in the store.
    pub fn history(&self) -> &History {
        let none = || self.histories[HistoryKind::None as usize].get().expect("it is there from the start");
        self.histories[self.policy().history_kind() as usize].get().unwrap_or_else(none)
    }

    fn histories(&self) -> impl Iterator<Item = &History> {
        self.histories.iter().filter_map(OnceLock::get)
    }

    /// Bytes of all histories.
    pub fn history_bytes(&self) -> u64 {
        self.histories().map(History::present_bytes).sum()
    }

    /// Bytes of all histories of a store with this memory.
    pub fn history_bytes_for(&self, memory_bytes: u64) -> u64 {
        self.histories().map(|history| history.bytes_for(memory_bytes / HISTORY_SHARE)).sum()
    }

    /// Has the histories follow the memory of the store, as far as they need not grow or may.
    pub fn resize_histories(&self, memory_bytes: u64, may_grow: bool) {
        self.histories().for_each(|history| history.resize(memory_bytes / HISTORY_SHARE, may_grow));
    }

    /// Whether the history of a policy is there, or the policy needs none.
    pub fn has_history_of(&self, policy: Policy) -> bool {
        self.histories[policy.history_kind() as usize].get().is_some()
    }

    /// The history of this policy, unless there is one.
    pub fn add_history(&self, policy: Policy, history: History) {
        self.histories[policy.history_kind() as usize].get_or_init(|| history);
    }

    /// From now on this policy chooses, whose history is there.
    pub fn switch_to(&self, policy: Policy) {
        self.policy.store(place_of(policy), Ordering::Relaxed);
    }
}

fn place_of(policy: Policy) -> u32 {
    let place = Policy::ALL.iter().position(|other| *other == policy);
    place.expect("all policies are listed") as u32
}
