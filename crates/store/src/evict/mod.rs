//! Eviction, expiry and compaction: the maintenance that returns segments to the free list.
//!
//! ```text
//! maintenance   which step is due                      state: what steps keep between slices
//!     |
//!   plan  ->  claim  ->  execute  ->  relocation_job, eviction_job
//!     |         |           |
//!  candidates  Sealed     a slice of a job: items are copied (relocate) or leave the index
//!  policy      -> Draining
//! ```
//! Imports go in the direction of the arrows. A relocation keeps everything that is alive (expiry, flush, compaction,
//! shrinking); an eviction scores items for a policy. Before anything alive is evicted, dead segments are dropped, and
//! segments with much dead memory are compacted.

mod candidates;
mod claim;
mod destination;
#[cfg(all(test, not(loom)))]
mod destination_tests;
#[cfg(not(loom))]
mod drain;
mod eviction_job;
mod execute;
mod expiry;
mod flushed;
mod flushed_search;
mod ghosts;
mod history;
#[cfg(not(loom))]
mod idle_demotion;
mod insertion;
#[cfg(all(test, not(loom)))]
mod interleaved_tests;
#[cfg(all(test, not(loom)))]
mod job_tests;
mod jobs;
#[cfg(all(test, loom))]
mod loom_tests;
mod maintenance;
mod objective;
mod open_destinations;
mod plan;
mod policy;
mod relocate;
mod relocation_job;
mod removal;
mod resizable;
mod retention;
mod return_rates;
mod sampled_segment;
mod scores;
mod seal;
mod shrink;
mod sketch;
mod source_run;
mod state;
mod value_move;

#[cfg(not(loom))]
pub use drain::Drain;
pub use history::History;
#[cfg(not(loom))]
pub use idle_demotion::IdleDemotion;
pub use insertion::InsertionPoint;
pub use maintenance::{Blocker, Progress};
pub use objective::{Objective, UnknownObjective, cost_class};
pub use policy::{Policy, UnknownPolicy};
pub(crate) use removal::RemovalNotice;
pub use removal::{Cause, RemovalListeners, Removed};
pub(crate) use state::{HISTORY_SHARE, MaintenanceState, PolicyState};
/// The decisions and limits that the model of segments shares with the store.
#[cfg(not(loom))]
pub(crate) mod decisions {
    pub(crate) use super::candidates::PlannedEviction;
    pub(crate) use super::claim::{COMPACT_RUN_MAX, copied_per_freed_byte};
    pub(crate) use super::expiry::EXPIRED_SHARE;
    pub(crate) use super::maintenance::FREE_TARGET_SHARE;
    pub(crate) use super::open_destinations::{FULL_SHARE, OPEN_MAX, OPEN_SHARE};
    pub(crate) use super::plan::{COMPACT_FILL_MAX, COMPACTIONS_WITHOUT_GAIN_MAX, PLANNED_SHARE, SAMPLE_SEGMENTS};
    pub(crate) use super::policy::{Aging, EvictionChoice, Retention, choose};
    pub(crate) use super::retention::{ScoredItem, ScoredRun};
    pub(crate) use super::return_rates::Evicted;
    pub(crate) use super::sampled_segment::SampledSegment;
    pub(crate) use super::scores::{SCORE_EXPIRED, SCORE_UNLINKED, ScoreTotals};
}
