//! Controller: which pool gives memory to which other one, and when.
//!
//! ```text
//! readings --> plan: the best division, and the moves towards it --> Move
//!                        ^                                            |
//!                        |                                        more moves, up to a bound
//!                        |                                            |
//!                  kept, or undone <-- judge <-- measure <-- fill <---+
//! ```
//! [`Controller::decide`] is called at a fixed interval and returns one [`Decision`]. Moves form a **trial**: some moves
//! in the same direction, then a pause in which the receivers fill, then a measurement. A trial whose pools serve clearly
//! fewer hits than a part of what was predicted is undone, and its pools do not move in that direction for some time.
//!
//! Four rules keep a stationary load at rest. A plan must gain more than its uncertainty, and more than a share of all
//! misses. Each pair of pools must gain by itself. A trial ends before the next one starts. A failed direction waits, and
//! twice as long each time.
//!
//! The controller is pure: time and counters are arguments.

mod plan;
mod reason;
mod trial;

use plan::Plan;
pub use reason::KeepReason;
use trial::{History, Trial, Verdict};

use crate::Curve;
use crate::division::DivisionError;

/// When memory moves, and how much at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControllerOptions {
    /// Largest part of the memory that one decision moves. A twentieth is evicted within an interval without filling a
    /// core.
    pub step_share: f64,
    /// Largest part of the memory that one trial moves, and that a wrong prediction can misplace.
    pub trial_share: f64,
    /// Smallest part of all misses that a plan must avoid. Less is within the drift of a load.
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
    /// Miss ratio by budget. Empty while too little was seen: then the budget stays, or is a giver's without any gets.
    pub curve: Curve,
    /// Gets that the curve was made of.
    pub sampled_gets: f64,
    pub gets_per_second: f64,
    /// Counters since the start.
    pub gets: u64,
    pub hits: u64,
}

/// All that a decision depends on.
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
    /// Budgets of all pools.
    fn used_bytes(&self) -> u64 {
        self.pools.iter().map(|pool| pool.memory_bytes).sum()
    }
}

/// Memory that passes from one pool to another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// `None`: from memory that no pool had.
    pub from: Option<String>,
    pub to: String,
    pub bytes: u64,
    /// Predicted hits a second that the receiver gains and the giver loses.
    pub gained_hits_per_second: f64,
    pub lost_hits_per_second: f64,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Keep(KeepReason),
    /// New budgets in the order of the pools.
    Move {
        moves: Vec<Move>,
        bytes: Vec<u64>,
    },
    /// Moves that return what a trial moved, with the predicted and the measured change of hits a second.
    Undo {
        moves: Vec<Move>,
        bytes: Vec<u64>,
        predicted: f64,
        measured: f64,
    },
}

impl Decision {
    /// The new budgets, where there are any.
    pub fn bytes(&self) -> Option<&[u64]> {
        match self {
            Self::Keep(_) => None,
            Self::Move { bytes, .. } | Self::Undo { bytes, .. } => Some(bytes),
        }
    }

    /// The moves, none where the budgets stay.
    pub fn moves(&self) -> &[Move] {
        match self {
            Self::Keep(_) => &[],
            Self::Move { moves, .. } | Self::Undo { moves, .. } => moves,
        }
    }
}

/// A direction that was undone.
#[derive(Clone, Copy, Debug, Default)]
struct Ban {
    until_seconds: f64,
    /// Undos in a row.
    undos: u32,
}

/// What the controller remembers of a pool.
#[derive(Clone, Debug, Default)]
struct Memory {
    name: String,
    growth: Ban,
    shrinking: Ban,
}

/// Longest doubling of the time in which a direction is not tried again.
const MAX_RETRY_DOUBLINGS: u32 = 6;

/// Decides about the pools of one cache.
#[derive(Clone, Debug)]
pub struct Controller {
    options: ControllerOptions,
    pools: Vec<Memory>,
    history: History,
    trial: Option<Trial>,
}

impl Controller {
    /// A controller that has decided nothing.
    ///
    /// # Errors
    /// The option without a meaning.
    pub fn new(options: ControllerOptions) -> Result<Self, InvalidController> {
        let shares =
            [("step_share", options.step_share), ("trial_share", options.trial_share), ("min_gain", options.min_gain)];
        for (option, value) in shares {
            if !(value > 0.0 && value <= 1.0) {
                return Err(InvalidController { option, value, wanted: "more than 0 and at most 1" });
            }
        }
        let times = [
            ("max_fill_seconds", options.max_fill_seconds),
            ("measure_seconds", options.measure_seconds),
            ("retry_seconds", options.retry_seconds),
        ];
        for (option, value) in times {
            if !(value.is_finite() && value > 0.0) {
                return Err(InvalidController { option, value, wanted: "a time of more than 0 seconds" });
            }
        }
        Ok(Self { options, pools: Vec::new(), history: History::default(), trial: None })
    }

    /// Decides, and remembers the decision: the caller either applies it, or drops the controller.
    ///
    /// # Errors
    /// Bounds that contradict each other.
    pub fn decide(&mut self, situation: &Situation<'_>) -> Result<Decision, DivisionError> {
        plan::check_bounds(situation.pools)?;
        self.recognize(situation.pools);
        self.history.note(situation, self.options.measure_seconds);
        if situation.is_shrinking || situation.used_bytes() > situation.total_bytes {
            // The hit ratios of a shrinking cache say nothing about a move.
            self.trial = None;
            return Ok(Decision::Keep(KeepReason::Shrinking));
        }
        let Some(trial) = &self.trial else {
            return self.start(situation);
        };
        match trial.verdict(situation, &self.options) {
            Verdict::Filling => self.extend(situation),
            Verdict::Measuring => Ok(Decision::Keep(KeepReason::Measuring)),
            Verdict::Failed { predicted, measured } => Ok(self.undo(situation, predicted, measured)),
            verdict @ (Verdict::Helped | Verdict::Unknown) => {
                if verdict == Verdict::Helped {
                    self.forgive();
                }
                self.trial = None;
                self.start(situation)
            }
        }
    }

    /// What the controller would do first, without a memory of it: for a caller that only reports.
    ///
    /// # Errors
    /// Bounds that contradict each other.
    pub fn advise(&self, situation: &Situation<'_>) -> Result<Decision, DivisionError> {
        Ok(match self.plan(situation, None)? {
            Plan::Keep(reason) => Decision::Keep(reason),
            Plan::Move { moves, bytes } => Decision::Move { moves, bytes },
        })
    }

    /// Forgets everything when pools were added or removed.
    fn recognize(&mut self, pools: &[PoolReading]) {
        let are_known = self.pools.len() == pools.len()
            && self.pools.iter().zip(pools).all(|(known, pool)| known.name == pool.name);
        if !are_known {
            let fresh = |pool: &PoolReading| Memory { name: pool.name.clone(), ..Memory::default() };
            self.pools = pools.iter().map(fresh).collect();
            self.history = History::default();
            self.trial = None;
        }
    }

    fn plan(&self, situation: &Situation<'_>, direction: Option<&Trial>) -> Result<Plan, DivisionError> {
        let now = situation.now_seconds;
        let may = |at: usize| {
            let Some(pool) = self.pools.get(at) else { return (true, true) };
            let moved = direction.map_or(0, |trial| trial.moved_bytes(at));
            let growth = now >= pool.growth.until_seconds && moved >= 0;
            (growth, now >= pool.shrinking.until_seconds && moved <= 0)
        };
        let step_bytes = (situation.total_bytes as f64 * self.options.step_share) as u64;
        plan::plan(situation, &self.options, step_bytes, may)
    }

    fn start(&mut self, situation: &Situation<'_>) -> Result<Decision, DivisionError> {
        if !self.history.spans(self.options.measure_seconds) {
            return Ok(Decision::Keep(KeepReason::Measuring));
        }
        let plan = self.plan(situation, None)?;
        Ok(match plan {
            Plan::Keep(reason) => Decision::Keep(reason),
            Plan::Move { moves, bytes } => {
                self.trial = Some(Trial::new(situation, self.history.hit_ratios(), &moves, &bytes));
                Decision::Move { moves, bytes }
            }
        })
    }

    /// Moves more in the direction of the running trial, up to its bound, or waits for the result.
    fn extend(&mut self, situation: &Situation<'_>) -> Result<Decision, DivisionError> {
        let max_bytes = (situation.total_bytes as f64 * self.options.trial_share) as u64;
        let plan = match self.trial.as_ref().filter(|trial| trial.total_bytes() < max_bytes) {
            Some(trial) => self.plan(situation, Some(trial))?,
            None => Plan::Keep(KeepReason::Filling),
        };
        let Some(trial) = &mut self.trial else { return Ok(Decision::Keep(KeepReason::Filling)) };
        Ok(match plan {
            Plan::Move { moves, bytes } => {
                trial.extend(situation, &moves, &bytes);
                Decision::Move { moves, bytes }
            }
            Plan::Keep(_) => {
                trial.measure_when_full(situation, &self.options);
                Decision::Keep(KeepReason::Filling)
            }
        })
    }

    /// Directions that have helped are open again.
    fn forgive(&mut self) {
        let Some(trial) = &self.trial else { return };
        for (at, pool) in self.pools.iter_mut().enumerate() {
            match trial.moved_bytes(at) {
                1.. => pool.growth = Ban::default(),
                0 => {}
                _ => pool.shrinking = Ban::default(),
            }
        }
    }

    fn undo(&mut self, situation: &Situation<'_>, predicted: f64, measured: f64) -> Decision {
        let Some(trial) = self.trial.take() else { return Decision::Keep(KeepReason::Measuring) };
        let now = situation.now_seconds;
        for (at, pool) in self.pools.iter_mut().enumerate() {
            let ban = match trial.moved_bytes(at) {
                1.. => &mut pool.growth,
                0 => continue,
                _ => &mut pool.shrinking,
            };
            let doubled = self.options.retry_seconds * f64::from(1u32 << ban.undos.min(MAX_RETRY_DOUBLINGS));
            *ban = Ban { until_seconds: now + doubled, undos: ban.undos + 1 };
        }
        let (moves, bytes) = trial.returned(situation);
        Decision::Undo { moves, bytes, predicted, measured }
    }
}
