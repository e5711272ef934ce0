//! State of the planner between choices: the sampled segments, and the claims that it will make next.

use super::policy::EvictionChoice;
use super::sampled_segment::SampledSegment;
use crate::segment::SegmentId;

/// The sampled segments and the plans. Guarded by the planner lock, which every claim needs.
#[derive(Default)]
pub(super) struct PlannerState {
    /// Empty between two plans.
    pub views: Vec<SampledSegment>,
    /// Where the next sample begins.
    pub cursor: u32,
    /// Segments that deserved a compaction when they were sampled, the emptiest last.
    pub sparse: Vec<SparseSegment>,
    /// Evictions chosen by the policy, the next one last.
    pub planned: Vec<PlannedEviction>,
}

/// A segment that deserves a compaction on its own.
pub(super) struct SparseSegment {
    pub segment: SegmentId,
    /// Bytes to copy for each freed byte.
    pub copied: f64,
}

/// A choice of the policy, and the stamp of its first segment at that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedEviction {
    pub choice: EvictionChoice,
    pub stamp: u64,
}
