//! What the planner remembers between its choices: the segments that it has seen, and what it will claim next.

use super::policy::{EvictionChoice, SegmentView};
use crate::segment::SegmentId;

/// What a choice needs besides the store, kept between choices.
#[derive(Default)]
pub(super) struct PlannerState {
    pub views: Vec<SegmentView>,
    /// Where the next sample begins.
    pub cursor: u32,
    /// Segments that were worth a compaction of their own when they were looked at, the emptiest last.
    pub sparse: Vec<SparseSegment>,
    /// What the policy has chosen to evict, the next one last.
    pub planned: Vec<PlannedEviction>,
}

/// A segment worth a compaction of its own.
pub(super) struct SparseSegment {
    pub segment: SegmentId,
    /// Bytes to copy for each that is had.
    pub copied: f64,
}

/// A choice of the policy, and the stamp that its first segment had.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedEviction {
    pub choice: EvictionChoice,
    pub stamp: u64,
}
