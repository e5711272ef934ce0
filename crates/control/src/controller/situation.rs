//! Inputs of a decision.

use super::decision::GainUnit;
use crate::Curve;

/// When memory moves, and how much at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControllerOptions {
    /// Largest part of the memory that one decision moves. A twentieth is evicted within an interval without filling a
    /// core.
    pub step_share: f64,
    /// Largest part of the memory that one trial moves, and that a wrong prediction can misplace.
    pub trial_share: f64,
    /// Smallest part of the avoidable misses that a plan must avoid: of those that each pool would not have with the
    /// whole memory. Less is within the drift of a load.
    pub min_gain: f64,
    /// Smallest move: less than a few segments changes nothing.
    pub min_move_bytes: u64,
    /// Longest time in which receivers fill, and time in which the result is measured.
    pub max_fill_seconds: f64,
    pub measure_seconds: f64,
    /// Time in which a direction that was undone is not tried again. It doubles with each undo, up to 64 times.
    pub retry_seconds: f64,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            step_share: 0.05,
            trial_share: 0.2,
            min_gain: 0.01,
            min_move_bytes: 64 << 10,
            max_fill_seconds: 180.0,
            measure_seconds: 60.0,
            retry_seconds: 600.0,
        }
    }
}

/// An option without a meaning.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{option} {value}: give {wanted}")]
pub struct InvalidController {
    pub option: &'static str,
    pub value: f64,
    pub wanted: &'static str,
}

/// A pool at one moment.
#[derive(Clone, Debug)]
pub struct PoolReading {
    pub name: String,
    /// Budget, and how much of it is in use.
    pub memory_bytes: u64,
    pub used_bytes: u64,
    /// Bounds of the budget.
    pub min_bytes: u64,
    pub max_bytes: u64,
    /// A pool that was sized by hand: its budget stays.
    pub is_fixed: bool,
    /// Value of a hit, relative to those of other pools.
    pub hit_value: f64,
    /// Where the division maximizes the bytes that hits serve: those of the object of an access, on average. `None` for
    /// all pools where it maximizes hits.
    pub bytes_of_hit: Option<f64>,
    /// Hit ratio for which the pool shall have memory before others share the rest.
    pub target_hit_ratio: Option<f64>,
    /// Miss ratio by budget. Empty while too little was seen: then the budget stays, or is a giver's without any gets.
    pub curve: Curve,
    /// Gets that the curve was made of.
    pub sampled_gets: f64,
    pub gets_per_second: f64,
    /// Counters since the start.
    pub gets: u64,
    pub hits: u64,
}

impl PoolReading {
    /// Value of a hit in the unit of the division.
    pub(super) fn value(&self) -> f64 {
        self.hit_value * self.bytes_of_hit.unwrap_or(1.0)
    }
}

/// Inputs of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// Must not fall.
    pub now_seconds: f64,
    /// Memory of all pools.
    pub total_bytes: u64,
    /// Whether the memory monitor, or a caller, is shrinking the cache.
    pub is_shrinking: bool,
    pub pools: &'a [PoolReading],
}

impl Situation<'_> {
    pub(super) fn unit(&self) -> GainUnit {
        let counts_bytes = self.pools.iter().any(|pool| pool.bytes_of_hit.is_some());
        if counts_bytes { GainUnit::Bytes } else { GainUnit::Hits }
    }

    /// Budgets of all pools.
    pub(super) fn used_bytes(&self) -> u64 {
        self.pools.iter().map(|pool| pool.memory_bytes).sum()
    }
}
