//! Decisions of a controller during a replay.

use std::time::Duration;

use ebbtide_control::PolicyChange;
use ebbtide_control::controller::Decision as Choice;
use serde::Serialize;

/// A change of the division, or of a pool's policy, during a replay. The names of the fields are the names in the JSON
/// object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// Time of the trace.
    pub seconds: f64,
    /// Whether it returns memory that earlier moves had misplaced.
    pub is_undo: bool,
    pub moves: Vec<MoveReport>,
    /// The decision in words.
    pub reason: String,
    /// Another policy for a pool, instead of moves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyReport>,
}

/// Memory that passed from a pool to another one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MoveReport {
    pub from: Option<String>,
    pub to: String,
    pub bytes: u64,
    pub gained_hits_per_second: f64,
    pub lost_hits_per_second: f64,
    /// With `--objective bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gained_bytes_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_bytes_per_second: Option<f64>,
    /// Where the receiver stays inside a cliff of its curve: the memory at which the cliff ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cliff_to_bytes: Option<u64>,
}

/// Another policy for a pool, with modelled miss ratios; that before an undo is the measured one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyReport {
    pub pool: String,
    pub from: String,
    pub to: String,
    pub miss_ratio_before: f64,
    pub miss_ratio_after: f64,
    /// Gets behind this measurement.
    pub gets: u64,
}

impl Decision {
    pub(super) fn of_division(now: Duration, choice: &Choice) -> Self {
        let step = |step: &ebbtide_control::controller::Move| MoveReport {
            from: step.from.clone(),
            to: step.to.clone(),
            bytes: step.bytes,
            gained_hits_per_second: step.gained_hits_per_second,
            lost_hits_per_second: step.lost_hits_per_second,
            gained_bytes_per_second: step.gained_bytes_per_second,
            lost_bytes_per_second: step.lost_bytes_per_second,
            cliff_to_bytes: step.cliff_to_bytes,
        };
        Self {
            seconds: now.as_secs_f64(),
            is_undo: matches!(choice, Choice::Undo { .. }),
            moves: choice.moves().iter().map(step).collect(),
            reason: choice.to_string(),
            policy: None,
        }
    }

    pub(super) fn of_policy(now: Duration, pool: &str, change: PolicyChange) -> Self {
        Decision {
            seconds: now.as_secs_f64(),
            is_undo: change.is_undo,
            moves: Vec::new(),
            reason: format!("{pool}: {change}"),
            policy: Some(PolicyReport {
                pool: pool.to_owned(),
                from: change.from,
                to: change.to,
                miss_ratio_before: change.miss_ratio_before,
                miss_ratio_after: change.miss_ratio_after,
                gets: change.gets,
            }),
        }
    }
}
