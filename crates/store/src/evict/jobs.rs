//! Jobs as data: the run of segments that a job empties, and what each of the two kinds of job knows besides.
//!
//! | job | made for | live items |
//! |---|---|---|
//! | [`Relocation`] | expiry, flush, compaction, shrinking | all are copied; there is memory for them from the start |
//! | [`Eviction`] | a policy | scored; those from a threshold on are copied, the others are evicted |
//!
//! A job is a value that any thread can run for a slice, pause and hand to another thread. Its segments are `Draining`:
//! the job owns them until it retires them.

use super::objective::CostTotals;
use super::open_destinations::Destination;
use super::policy::{Aging, Retention};
use super::scores::{ScoreThreshold, ScoreTotals};
use crate::item::ItemAt;
use crate::segment::SegmentId;
use crate::sync::{AtomicU32, Ordering};
use std::sync::Arc;

/// A run of segments that is being emptied.
pub(super) enum Job {
    Relocation(Relocation),
    Eviction(Eviction),
}

/// Copies all live items to other segments.
pub(super) struct Relocation {
    pub run: SourceRun,
    /// Where items are copied to. `None` for a dead segment, in which nothing is alive.
    pub destination: Option<Destination>,
    /// Takes over when the destination is full; holds everything that lives in the run.
    pub spare: Option<Destination>,
    pub has_switched_to_spare: bool,
    /// Whether the run was claimed because nothing in it is alive.
    pub is_dead: bool,
}

/// Copies the items that score best and evicts the others.
pub(super) struct Eviction {
    pub run: SourceRun,
    pub retention: Retention,
    pub aging: Aging,
    pub phase: Phase,
    /// One score per item of the run, in order.
    pub scores: Vec<u8>,
    pub totals: Box<[ScoreTotals; 256]>,
    /// For the objective `cost`.
    pub costs: CostTotals,
    pub threshold: ScoreThreshold,
    /// Whether only as much is freed as is needed now: survivors keep the age of the run and are judged again.
    pub is_partial: bool,
    pub destination: Option<Destination>,
    /// Free segments taken as destinations.
    pub segments_taken: usize,
}

/// The two passes over the run of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Score,
    Apply,
}

/// The segments that a job empties, its position in them, and its removals so far.
pub(super) struct SourceRun {
    pub segments: Vec<SegmentId>,
    pub cursor: RunCursor,
    /// Whether a live item was removed, and whether one was that had expired.
    pub lost_any: bool,
    pub expired_any: bool,
    _running: Running,
}

/// The next item to look at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunCursor {
    pub source: usize,
    pub offset: u32,
    pub item: usize,
}

/// An item of the run.
pub(super) struct Candidate {
    pub item: ItemAt,
    /// The hash of its key.
    pub hash: u64,
    /// `None` before scoring, and in a relocation.
    pub score: Option<u8>,
}

/// The number of jobs that exist, and of those that have ended.
#[derive(Default)]
pub(super) struct JobCounts {
    running: AtomicU32,
    ended: AtomicU32,
}

impl JobCounts {
    pub fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }

    /// Wraps around.
    pub fn ended(&self) -> u32 {
        // Acquire pairs with the Release in `Running::drop`: a thread that sees the end sees the freed segments.
        self.ended.load(Ordering::Acquire)
    }
}

/// Counts a job.
struct Running(Arc<JobCounts>);

impl Drop for Running {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `JobCounts::ended`.
        self.0.ended.fetch_add(1, Ordering::Release);
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SourceRun {
    pub fn new(counts: &Arc<JobCounts>, segments: Vec<SegmentId>) -> Self {
        counts.running.fetch_add(1, Ordering::Relaxed);
        let (cursor, running) = (RunCursor::default(), Running(Arc::clone(counts)));
        Self { segments, cursor, lost_any: false, expired_any: false, _running: running }
    }

    pub fn first(&self) -> SegmentId {
        self.segments[0]
    }
}

impl Job {
    /// The segments that the job empties.
    pub fn sources(&self) -> &[SegmentId] {
        match self {
            Self::Relocation(job) => &job.run.segments,
            Self::Eviction(job) => &job.run.segments,
        }
    }
}
