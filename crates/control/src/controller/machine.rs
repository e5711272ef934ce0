//! The controller as a state machine: a trial, or none.

use super::decision::{Decision, KeepReason};
use super::plan::{self, Plan};
use super::situation::{ControllerOptions, InvalidController, PoolReading, Situation};
use super::target::{self, Measured, Target, TargetState};
use super::trial::{History, Trial, Verdict};
use crate::division::DivisionError;

/// A direction that was undone.
#[derive(Clone, Copy, Debug, Default)]
struct Ban {
    until_seconds: f64,
    /// Undos in a row.
    undos: u32,
}

/// State of a pool between decisions.
#[derive(Clone, Debug, Default)]
struct Memory {
    name: String,
    growth: Ban,
    shrinking: Ban,
    /// Decisions in a row in which the pool had another budget than its target takes.
    off_target: u32,
}

/// A target moves memory after as many decisions in a row as found the budget wrong: two windows of measurement.
const OFF_TARGET_DECISIONS: u32 = 12;

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
            // The hit ratios of a shrinking cache do not measure a move.
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
                    self.lift_bans();
                }
                self.trial = None;
                self.start(situation)
            }
        }
    }

    /// The hit ratios have changed for another reason than memory: a running trial ends without a verdict.
    pub fn measure_anew(&mut self) {
        self.history = History::default();
        self.trial = None;
    }

    /// The controller's first decision, without changing its state: for a caller that only reports.
    ///
    /// # Errors
    /// Bounds that contradict each other.
    pub fn advise(&self, situation: &Situation<'_>) -> Result<Decision, DivisionError> {
        Ok(match self.plan(situation, None, &self.all_targets(situation))? {
            Plan::Keep(reason) => Decision::Keep(reason),
            Plan::Move { moves, bytes, .. } => Decision::Move { moves, bytes },
        })
    }

    /// The target hit ratios of the pools that have one, with the memory that each needs.
    pub fn targets(&self, situation: &Situation<'_>) -> Vec<Target> {
        self.all_targets(situation).into_iter().flatten().collect()
    }

    fn all_targets(&self, situation: &Situation<'_>) -> Vec<Option<Target>> {
        let is_measured = self.history.spans(self.options.measure_seconds) && self.trial.is_none();
        let measured: Vec<Option<Measured>> = match self.history.hit_ratios() {
            windows if is_measured && windows.len() == situation.pools.len() => {
                windows.iter().map(|window| window.measured()).collect()
            }
            _ => vec![None; situation.pools.len()],
        };
        target::targets(situation.pools, situation.total_bytes, &measured)
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

    fn plan(
        &self,
        situation: &Situation<'_>,
        direction: Option<&Trial>,
        targets: &[Option<Target>],
    ) -> Result<Plan, DivisionError> {
        let now = situation.now_seconds;
        let may = |at: usize| {
            let Some(pool) = self.pools.get(at) else { return (true, true) };
            let moved = direction.map_or(0, |trial| trial.moved_bytes(at));
            let growth = now >= pool.growth.until_seconds && moved >= 0;
            (growth, now >= pool.shrinking.until_seconds && moved <= 0)
        };
        let step_bytes = (situation.total_bytes as f64 * self.options.step_share) as u64;
        plan::plan(situation, &self.options, step_bytes, targets, may)
    }

    fn start(&mut self, situation: &Situation<'_>) -> Result<Decision, DivisionError> {
        if !self.history.spans(self.options.measure_seconds) {
            return Ok(Decision::Keep(KeepReason::Measuring));
        }
        let mut targets = self.all_targets(situation);
        self.wait_for_targets(situation, &mut targets);
        let plan = self.plan(situation, None, &targets)?;
        Ok(match plan {
            Plan::Keep(reason) => Decision::Keep(reason),
            Plan::Move { moves, bytes, serves_target } => {
                let before = self.history.hit_ratios().to_vec();
                self.trial = Some(Trial::new(situation, before, (&moves, &bytes), (targets, serves_target)));
                Decision::Move { moves, bytes }
            }
        })
    }

    /// Leaves pools as they are whose budgets were found wrong for a short time only.
    fn wait_for_targets(&mut self, situation: &Situation<'_>, targets: &mut [Option<Target>]) {
        let pools = self.pools.iter_mut().zip(situation.pools);
        for ((memory, pool), target) in pools.zip(targets) {
            let is_off = |target: &&mut Target| {
                let differs = |bytes: u64| bytes.abs_diff(pool.memory_bytes) >= self.options.min_move_bytes;
                target.budget_bytes().is_some_and(differs)
            };
            let Some(target) = target.as_mut().filter(is_off) else {
                memory.off_target = 0;
                continue;
            };
            memory.off_target += 1;
            if memory.off_target < OFF_TARGET_DECISIONS {
                target.state = TargetState::Pursued { bytes: pool.memory_bytes };
            }
        }
    }

    /// Moves more in the direction of the running trial, up to its bound, or waits for the result.
    fn extend(&mut self, situation: &Situation<'_>) -> Result<Decision, DivisionError> {
        let max_bytes = (situation.total_bytes as f64 * self.options.trial_share) as u64;
        let plan = match self.trial.as_ref().filter(|trial| trial.total_bytes() < max_bytes) {
            Some(trial) => self.plan(situation, Some(trial), trial.targets())?,
            None => Plan::Keep(KeepReason::Filling),
        };
        let Some(trial) = &mut self.trial else { return Ok(Decision::Keep(KeepReason::Filling)) };
        Ok(match plan {
            Plan::Move { moves, bytes, serves_target } if serves_target == trial.serves_target() => {
                trial.extend(situation, &moves, &bytes);
                Decision::Move { moves, bytes }
            }
            Plan::Move { .. } | Plan::Keep(_) => {
                trial.measure_when_full(situation, &self.options);
                Decision::Keep(KeepReason::Filling)
            }
        })
    }

    /// Directions that have helped are open again.
    fn lift_bans(&mut self) {
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
        Decision::Undo { moves, bytes, predicted, measured, unit: situation.unit() }
    }
}
