//! The controller of a live cache: measures its pools, decides, and moves memory.
//!
//! ```text
//! access samples of each pool -> CacheProfile -> curve, rate --+
//! budgets and bounds of each pool (pools.rs) ------------------+-> Controller -> budgets -> pools.rs
//! ```
//! The caller calls [`PoolController::update`] once a second, from one thread. Every ten seconds it decides. All
//! mathematics is in `ebbtide_control::controller`.
//!
//! With `CacheBuilder::controller_policies` it also gives pools other eviction policies (`pool_policies.rs`). After
//! each change the hit ratios of memory are measured anew, so that the hits of a policy do not judge a trial of memory.

use crate::error::Error;
use crate::pool_options::DEFAULT_POOL;
use crate::pool_policies::{PoolPolicy, PoolPolicyChange};
use crate::pool_state::PoolState;
use crate::pool_wishes::PoolBudget;
use crate::pools::Pools;
use crate::profile::{CacheProfile, MIN_GETS};
use ebbtide_control::controller::{Controller, Decision, PoolReading, Situation};
use ebbtide_control::{HitRatio, Rate, memory_sizes};
use ebbtide_store::{Objective, Policy};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

pub use ebbtide_control::controller::{
    ControllerOptions, InvalidController, Move as PoolMove, Target as PoolTarget, TargetState as PoolTargetState,
};

/// Time between two decisions: a step is evicted within it.
const INTERVAL_MS: u64 = 10_000;
/// Gets of this long ago weigh half in the rate of a pool.
const RATE_HALF_LIFE_SECONDS: f64 = 60.0;
/// Time after which a pool gets a curve with fewer gets than a curve needs.
const PATIENCE_MS: u64 = 600_000;
/// Points of a curve for each doubling of the memory.
const POINTS_PER_OCTAVE: usize = 6;
/// The curve of a pool with a target hit ratio ends at this multiple of the memory of all pools.
const BEYOND_TOTAL: u64 = 4;
/// Decisions that are kept.
const KEPT: usize = 100;

/// Whether the controller moves memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ControllerMode {
    /// Decides nothing.
    Off,
    /// Says what it would do, each decision once, and moves nothing.
    DryRun,
    /// Moves memory, within the bounds of the pools.
    #[default]
    Auto,
}

/// A decision to move memory.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolDecision {
    /// Time since the start of the cache.
    pub at: Duration,
    /// Whether the memory was moved.
    pub is_applied: bool,
    /// Whether it returns memory that earlier decisions had moved without gain.
    pub is_undo: bool,
    pub moves: Vec<PoolMove>,
    /// Another policy for a pool, instead of moves.
    pub policy: Option<PoolPolicyChange>,
    /// The decision in words.
    pub reason: String,
    /// The error of the pools that refused it, in words: their memory and policies stay, and the controller measures
    /// anew before it decides again. `None` for a decision that is applied, and in a dry run.
    pub refusal: Option<String>,
}

struct ProfiledPool {
    name: String,
    profile: CacheProfile,
    /// `None` where policies stay.
    policy: Option<PoolPolicy>,
    rate: Rate,
    since_ms: u64,
}

/// The controller of a cache. It holds the pools, but no handle of the cache, and profiles all pools: a cache has one
/// at a time.
pub struct PoolController {
    pools: Arc<Pools>,
    /// Gives the clock, and the participant of changes to the whole cache.
    default_pool: Arc<PoolState>,
    /// Policies that pools may be given.
    allowed: Vec<Policy>,
    mode: ControllerMode,
    controller: Controller,
    profiled: Vec<ProfiledPool>,
    decided_ms: u64,
    total_bytes: u64,
    decisions: VecDeque<PoolDecision>,
    targets: Vec<PoolTarget>,
    state: String,
}

impl PoolController {
    /// Begins to profile all pools of an engine. They may be given the allowed policies.
    ///
    /// # Errors
    /// The option without a meaning.
    pub(crate) fn of_pools(
        (pools, default_pool): (&Arc<Pools>, &Arc<PoolState>),
        allowed: &[Policy],
        mode: ControllerMode,
        options: ControllerOptions,
    ) -> Result<Self, InvalidController> {
        let mut controller = Self {
            pools: Arc::clone(pools),
            default_pool: Arc::clone(default_pool),
            allowed: allowed.to_vec(),
            mode,
            controller: Controller::new(options)?,
            profiled: Vec::new(),
            decided_ms: default_pool.clock.now_ms(),
            total_bytes: 0,
            decisions: VecDeque::new(),
            targets: Vec::new(),
            state: String::new(),
        };
        controller.follow_pools();
        Ok(controller)
    }

    pub fn mode(&self) -> ControllerMode {
        self.mode
    }

    /// Takes the samples since the last call, and decides when that is due. Returns a new decision to move memory, also
    /// one that the pools refused. With a manual clock the next maintenance moves it.
    ///
    /// # Errors
    /// `Closed` after `Cache::close`; `Configuration` for bounds of pools that contradict each other.
    pub fn update(&mut self) -> Result<Option<&PoolDecision>, Error> {
        self.follow_pools();
        self.profiled.iter_mut().for_each(|pool| pool.profile.update());
        let now_ms = self.default_pool.clock.now_ms();
        let since_ms = now_ms.saturating_sub(self.decided_ms);
        if since_ms < INTERVAL_MS || self.mode == ControllerMode::Off {
            return Ok(None);
        }
        self.decided_ms = now_ms;
        for pool in &mut self.profiled {
            pool.rate.update(pool.profile.gets() as u64, since_ms as f64 / 1000.0, RATE_HALF_LIFE_SECONDS);
        }
        if self.decide_policies(now_ms)? {
            return Ok(self.decisions.back());
        }
        if self.profiled.len() < 2 {
            return Ok(None);
        }
        self.decide(now_ms)
    }

    /// Why the policy of a pool stays, in words; `None` where no other policy is allowed.
    pub fn policy_state(&self, pool: &str) -> Option<String> {
        let pool = self.profiled.iter().find(|profiled| profiled.name == pool)?;
        pool.policy.as_ref().map(|policy| policy.state().to_string())
    }

    /// The newest decisions, oldest first.
    pub fn decisions(&self) -> impl Iterator<Item = &PoolDecision> {
        self.decisions.iter()
    }

    /// The target hit ratios of pools, with the memory that each takes, at the last decision.
    pub fn targets(&self) -> &[PoolTarget] {
        &self.targets
    }

    /// The last decision, or why nothing moves, in words; empty before that, as with one pool.
    pub fn state(&self) -> &str {
        &self.state
    }

    /// Whether all of the cache is in one pool, as far as pools are profiled.
    pub fn is_of_one_pool(&self) -> bool {
        self.pools.names().len() < 2
    }

    /// The profile of a pool.
    pub fn profile(&self, pool: &str) -> Option<&CacheProfile> {
        self.profiled.iter().find(|profiled| profiled.name == pool).map(|profiled| &profiled.profile)
    }

    /// Among the pools that have a curve the one with the most gets since the start. `None` before any has one.
    pub fn busiest(&self) -> Option<(&str, &CacheProfile)> {
        let with_curve = self.profiled.iter().filter(|pool| pool.profile.curve_gets() >= MIN_GETS);
        let busiest = with_curve.max_by(|one, other| one.profile.gets().total_cmp(&other.profile.gets()));
        busiest.map(|pool| (pool.name.as_str(), &pool.profile))
    }

    /// Profiles the pools that there are.
    fn follow_pools(&mut self) {
        // A profile holds its pool: that of a removed pool is dropped.
        let pools_before = self.profiled.len();
        self.profiled.retain(|pool| !pool.profile.is_removed());
        let mut has_changed = self.profiled.len() != pools_before;
        let now_ms = self.default_pool.clock.now_ms();
        for pool in self.pools.present() {
            let name = pool.name.to_string();
            let is_left_out = self.mode == ControllerMode::Off && name != DEFAULT_POOL;
            if is_left_out || self.profiled.iter().any(|pool| pool.name == name) {
                continue;
            }
            let has_choice = self.mode != ControllerMode::Off && !self.allowed.is_empty();
            let policy = has_choice.then(|| PoolPolicy::new(&self.allowed, pool.store.policy()));
            let profile = CacheProfile::of_state(&pool);
            self.profiled.push(ProfiledPool { name, profile, policy, rate: Rate::default(), since_ms: now_ms });
            has_changed = true;
        }
        if has_changed {
            let (profiles, bytes) = (self.profiled.len(), self.pools.memory_bytes());
            self.profiled.iter_mut().for_each(|pool| pool.profile.share_memory(profiles, bytes));
        }
    }

    /// Gives the first pool another policy for which one is due. One at a time: the others are due ten seconds later.
    fn decide_policies(&mut self, now_ms: u64) -> Result<bool, Error> {
        let mut found = None;
        for pool in &mut self.profiled {
            let (Some(policy), Ok(state)) = (&mut pool.policy, self.pools.find(&pool.name)) else { continue };
            let Some((to, change)) = policy.decide(&state, &mut pool.profile, now_ms) else { continue };
            if self.mode != ControllerMode::Auto {
                policy.forget_change();
            }
            found = Some((state, to, PoolPolicyChange { pool: pool.name.clone(), change }));
            break;
        }
        let Some((state, to, change)) = found else { return Ok(false) };
        let is_applied = self.mode == ControllerMode::Auto;
        // A dry run does not repeat itself.
        let said = |decision: &PoolDecision| match &decision.policy {
            Some(said) => said.pool == change.pool && said.change.to == change.change.to,
            None => false,
        };
        if !is_applied && self.decisions.iter().any(said) {
            return Ok(false);
        }
        let mut refusal = None;
        if is_applied {
            let policy =
                self.profiled.iter_mut().find(|pool| pool.name == change.pool).and_then(|pool| pool.policy.as_mut());
            let policy = policy.expect("it has just decided");
            refusal = policy.note_applied(state.set_policy(to), now_ms)?;
            if refusal.is_none() {
                self.controller.measure_anew();
            }
        }
        self.keep(PoolDecision {
            at: Duration::from_millis(now_ms),
            is_applied: is_applied && refusal.is_none(),
            is_undo: change.change.is_undo,
            moves: Vec::new(),
            reason: change.to_string(),
            policy: Some(change),
            refusal: refusal.map(|error| error.to_string()),
        });
        Ok(true)
    }

    /// Adds a decision to the newest ones.
    fn keep(&mut self, decision: PoolDecision) {
        if self.decisions.len() == KEPT {
            self.decisions.pop_front();
        }
        self.decisions.push_back(decision);
    }

    fn decide(&mut self, now_ms: u64) -> Result<Option<&PoolDecision>, Error> {
        let (total_bytes, budgets) = self.pools.readings();
        let readings: Vec<PoolReading> =
            budgets.iter().filter_map(|budget| self.reading(budget, total_bytes, now_ms)).collect();
        if readings.len() != budgets.len() {
            // A pool was added or removed in between.
            return Ok(None);
        }
        let is_shrinking = total_bytes < std::mem::replace(&mut self.total_bytes, total_bytes);
        let now_seconds = now_ms as f64 / 1000.0;
        let situation = Situation { now_seconds, total_bytes, is_shrinking, pools: &readings };
        self.targets = self.controller.targets(&situation);
        let decided = match self.mode {
            ControllerMode::Auto => self.controller.decide(&situation),
            ControllerMode::DryRun | ControllerMode::Off => self.controller.advise(&situation),
        };
        let decision = decided.map_err(|error| Error::Configuration {
            option: "pool",
            value: "controller".to_owned(),
            reason: error.to_string(),
        })?;
        let reason = in_words(&decision, &self.targets);
        self.state.clone_from(&reason);
        let Some(bytes) = decision.bytes().filter(|_| !self.is_repeated(&decision)) else { return Ok(None) };
        let is_auto = self.mode == ControllerMode::Auto;
        let mut refusal = None;
        if is_auto {
            let participant = self.default_pool.participant();
            let _change = participant.begin_change().ok_or(Error::Closed)?;
            let names = readings.iter().map(|reading| reading.name.clone());
            refusal = self.pools.want(names.zip(bytes.iter().copied())).err().map(|error| error.to_string());
            self.default_pool.wake();
        }
        if let Some(refusal) = &refusal {
            // Nothing has moved that a trial could measure.
            self.controller.measure_anew();
            self.state = format!("nothing moves: {reason} was refused: {refusal}");
        }
        self.keep(PoolDecision {
            at: Duration::from_millis(now_ms),
            is_applied: is_auto && refusal.is_none(),
            is_undo: matches!(decision, Decision::Undo { .. }),
            moves: decision.moves().to_vec(),
            policy: None,
            reason,
            refusal,
        });
        Ok(self.decisions.back())
    }

    /// Whether a dry run has said so already: between the same pools in the same direction.
    fn is_repeated(&self, decision: &Decision) -> bool {
        let pairs = |moves: &[PoolMove]| -> Vec<(Option<String>, String)> {
            moves.iter().map(|step| (step.from.clone(), step.to.clone())).collect()
        };
        self.mode == ControllerMode::DryRun
            && self
                .decisions
                .iter()
                .rev()
                .find(|last| last.policy.is_none())
                .is_some_and(|last| pairs(&last.moves) == pairs(decision.moves()))
    }

    /// Whether the division maximizes the bytes that hits serve: as the evictions of the pool `default` do.
    fn counts_bytes(&self) -> bool {
        self.default_pool.store.objective() == Objective::Bytes
    }

    fn reading(&self, budget: &PoolBudget, total_bytes: u64, now_ms: u64) -> Option<PoolReading> {
        let (share, reachable) = (&budget.share, &budget.reachable);
        let pool = self.profiled.iter().find(|pool| pool.name == share.name)?;
        let (gets, hits) = pool.profile.sampled();
        // A target may need more memory than there is.
        let to_bytes = total_bytes * if share.target_hit_ratio.is_some() { BEYOND_TOTAL } else { 1 };
        let min_gets = if now_ms.saturating_sub(pool.since_ms) < PATIENCE_MS { MIN_GETS } else { 1.0 };
        Some(PoolReading {
            name: share.name.clone(),
            memory_bytes: budget.memory_bytes,
            used_bytes: budget.used_bytes,
            min_bytes: share.min_bytes.max(reachable.floor_bytes),
            max_bytes: reachable.max_bytes,
            is_fixed: budget.is_fixed,
            hit_value: f64::from(share.hit_value),
            bytes_of_hit: self.counts_bytes().then(|| pool.profile.mean_bytes().unwrap_or(0.0)),
            target_hit_ratio: share.target_hit_ratio.map(HitRatio::as_f64),
            curve: pool.profile.budget_curve(&memory_sizes(share.floor_bytes, to_bytes, POINTS_PER_OCTAVE), min_gets),
            sampled_gets: pool.profile.curve_gets(),
            gets_per_second: pool.rate.per_second(),
            gets,
            hits,
        })
    }
}

/// A decision, and the targets that have too little memory.
fn in_words(decision: &Decision, targets: &[PoolTarget]) -> String {
    let missed = targets.iter().filter(|target| {
        matches!(target.state, PoolTargetState::TooLittle { .. } | PoolTargetState::OutOfReach { .. })
    });
    missed.fold(decision.to_string(), |text, target| format!("{text}; {target}"))
}

impl std::fmt::Debug for PoolController {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolController").field("mode", &self.mode).field("state", &self.state).finish_non_exhaustive()
    }
}
