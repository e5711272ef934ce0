//! Whether the cache and its pools have the right size: profiles of their accesses, taken in once a second by the admin
//! thread, and the controller that moves memory between the pools.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ebbtide::curves::{MissEntropy, SizeClassMisses};
use ebbtide::memcached::{
    ByteSize, Cache, CacheCurve, CacheProfile, ControllerMode, ControllerOptions, CurveCliff, CurvePoint,
    PoolController, PoolDecision, PoolPolicyChange, PoolTarget, PoolTargetState, Verdict,
};
use serde_json::{Value, json};

use super::headline::SizeAdvice;

/// Gets that a miss ratio needs which sets the level of a curve.
pub const MIN_CURVE_GETS: u64 = 1000;

/// The pool of keys without a rule: the whole cache if there is one pool.
pub const DEFAULT_POOL: &str = "default";

/// The profiles, and the latest verdicts for threads that do not wait for the profiles.
#[derive(Debug, Default)]
pub struct Sizing {
    controller: Mutex<Option<PoolController>>,
    latest: Mutex<LatestVerdict>,
    /// State of the controller in words; empty before its first decision, with one pool, and if it is off.
    division: Mutex<String>,
    /// Its state of the policies in words; empty if it may not change them.
    policies: Mutex<String>,
}

/// The verdict on the pool with the most gets.
#[derive(Clone, Debug, Default)]
struct LatestVerdict {
    /// Empty before any pool has a curve.
    pool: String,
    is_of_one_pool: bool,
    verdict: Option<Verdict>,
    miss_ratio: Option<f64>,
    /// How its misses spread over sizes, in words.
    miss_entropy: Option<String>,
}

/// Hit ratios of a pool by its memory.
#[derive(Clone, Debug)]
pub struct HitRatios {
    pub pool: String,
    pub half: f64,
    pub present: f64,
    pub twice: f64,
}

impl Sizing {
    /// Begins to sample the accesses of a cache.
    pub fn start(&self, cache: &Cache, mode: ControllerMode) {
        let controller = PoolController::new(cache, mode, ControllerOptions::default());
        *lock(&self.controller) = Some(controller.expect("the defaults have a meaning"));
    }

    /// Processes the samples. `gets` and `hits`: of the last minute, or of a longer time if these are few.
    /// `evicted_age_seconds`: of the sampled evictions of all pools. Returns a new decision in words.
    pub fn update(&self, gets: u64, hits: u64, evicted_age_seconds: Option<f64>) -> Option<String> {
        let mut controller = lock(&self.controller);
        let controller = controller.as_mut()?;
        let said = match controller.update() {
            Ok(decision) => decision.map(words),
            Err(error) => Some(format!("the controller of pools was refused: {error}")),
        };
        let is_of_one_pool = controller.is_of_one_pool();
        let (pool, profile) = controller.busiest().unzip();
        let miss_ratio = match is_of_one_pool {
            true => (gets >= MIN_CURVE_GETS).then(|| 1.0 - hits.min(gets) as f64 / gets as f64),
            false => profile.and_then(CacheProfile::recent_miss_ratio),
        };
        let verdict = profile.and_then(|profile| profile.verdict(miss_ratio));
        let verdict = verdict.map(|verdict| match is_of_one_pool {
            true => with_sampled_age(verdict, evicted_age_seconds),
            false => verdict,
        });
        let pool = pool.unwrap_or_default().to_owned();
        let miss_entropy = profile.and_then(CacheProfile::miss_entropy).map(|entropy| entropy.to_string());
        *lock(&self.latest) = LatestVerdict { pool, is_of_one_pool, verdict, miss_ratio, miss_entropy };
        controller.state().clone_into(&mut lock(&self.division));
        *lock(&self.policies) = policies_in_words(controller);
        said
    }

    /// The last decision of the pool controller, in words.
    pub fn division(&self) -> Option<String> {
        Some(lock(&self.division).clone()).filter(|text| !text.is_empty())
    }

    /// The newest change of a pool's policy, and why policies stay, in words.
    pub fn policies(&self) -> Option<String> {
        Some(lock(&self.policies).clone()).filter(|text| !text.is_empty())
    }

    /// The decisions as JSON, the newest first; `started_unix_ms` is when the cache's time began.
    pub fn decisions(&self, started_unix_ms: u64) -> Value {
        let controller = lock(&self.controller);
        let Some(controller) = controller.as_ref() else {
            return json!({ "controller": "off", "policies": null, "targets": [], "decisions": [] });
        };
        let mode = match controller.mode() {
            ControllerMode::Off => "off",
            ControllerMode::DryRun => "dry-run",
            ControllerMode::Auto => "auto",
        };
        let decisions = controller.decisions().map(|decision| decision_json(decision, started_unix_ms));
        let newest: Vec<Value> = decisions.collect::<Vec<_>>().into_iter().rev().collect();
        let targets: Vec<Value> = controller.targets().iter().map(target_json).collect();
        json!({
            "controller": mode, "state": self.division(), "policies": self.policies(), "targets": targets,
            "decisions": newest })
    }

    /// The verdict in a line, which begins with the pool where there are several; `None` before enough was seen, and
    /// without an admin interface.
    pub fn verdict(&self) -> Option<String> {
        let LatestVerdict { pool, is_of_one_pool, verdict, .. } = lock(&self.latest).clone();
        let verdict = verdict?;
        Some(if is_of_one_pool { verdict.to_string() } else { format!("{pool}: {verdict}") })
    }

    /// How the misses spread over sizes of objects, in a line that begins as the verdict; `None` before enough was
    /// seen.
    pub fn miss_entropy(&self) -> Option<String> {
        let LatestVerdict { pool, is_of_one_pool, miss_entropy, .. } = lock(&self.latest).clone();
        let entropy = miss_entropy?;
        Some(if is_of_one_pool { entropy } else { format!("{pool}: {entropy}") })
    }

    /// Effect of more memory.
    pub fn advice(&self) -> Option<SizeAdvice> {
        let LatestVerdict { pool, is_of_one_pool, verdict, .. } = lock(&self.latest).clone();
        let verdict = verdict?;
        let step = ByteSize::bytes(verdict.step_bytes);
        let of_pool = |word: &str| if is_of_one_pool { String::new() } else { format!(" {word} pool {pool}") };
        let text = match verdict.saved_points {
            _ if !verdict.is_full => format!("memory{} is not full.", of_pool("of")),
            points if points < 0.05 => format!("{step} more memory{} would save nothing.", of_pool("for")),
            points => {
                let misses = if is_of_one_pool { "misses" } else { "its misses" };
                format!("{step} more memory{} would save {points:.1} points of {misses}.", of_pool("for"))
            }
        };
        let saved_points = if verdict.is_full { verdict.saved_points } else { 0.0 };
        Some(SizeAdvice { text, saved_points })
    }

    /// Hit ratios of the pool of the verdict with half, the present and twice its memory; `None` before enough was
    /// seen.
    pub fn hit_ratios(&self) -> Option<HitRatios> {
        let LatestVerdict { pool, miss_ratio, .. } = lock(&self.latest).clone();
        let controller = lock(&self.controller);
        let profile = controller.as_ref()?.profile(&pool)?;
        let present = profile.curve(miss_ratio)?.present;
        let with = |bytes| Some(rounded(1.0 - profile.what_if(ByteSize::bytes(bytes), miss_ratio)?.miss_ratio));
        let (half, twice) = (with(present.memory_bytes / 2)?, with(present.memory_bytes.saturating_mul(2))?);
        Some(HitRatios { pool, half, present: rounded(1.0 - present.miss_ratio), twice })
    }

    /// The curve of a pool as JSON, with the point at `memory_bytes`, if given. `None` if there is no such pool.
    pub fn curve(&self, pool: &str, memory_bytes: Option<u64>) -> Option<Value> {
        let LatestVerdict { pool: latest, verdict, miss_ratio, .. } = lock(&self.latest).clone();
        let controller = lock(&self.controller);
        let Some(controller) = controller.as_ref() else { return Some(no_curve(pool, "no pool is profiled")) };
        let profile = controller.profile(pool)?;
        let (verdict, miss_ratio) = match pool == latest {
            true => (verdict, miss_ratio),
            false => {
                let miss_ratio = profile.recent_miss_ratio();
                (profile.verdict(miss_ratio), miss_ratio)
            }
        };
        let what_if = memory_bytes.and_then(|bytes| profile.what_if(ByteSize::bytes(bytes), miss_ratio));
        let policy = if profile.is_modelled() { "ebbtide" } else { "lru" };
        let Some(curve) = profile.curve(miss_ratio) else {
            return Some(no_curve(pool, "too few gets were sampled yet"));
        };
        let evicted_after = verdict.as_ref().map_or(curve.evicted_after, |verdict| verdict.evicted_after);
        Some(json!({
            "pool": pool,
            "policy": policy,
            "verdict": verdict.map(|verdict| verdict.to_string()),
            "full": curve.is_full,
            "measured_miss_ratio": miss_ratio.map(rounded),
            "miss_entropy": curve.miss_entropy.as_ref().map(entropy),
            "evicted_after_seconds": evicted_after.map(|after| rounded(after.as_secs_f64())),
            "present": with_marginal(&curve, &[curve.present]).pop(),
            "points": with_marginal(&curve, &curve.points),
            "hull": with_marginal(&curve, &curve.hull()),
            "cliffs": curve.cliffs().iter().map(cliff).collect::<Vec<_>>(),
            "what_if": what_if.as_ref().map(point),
            "sampled_keys": curve.sampled_keys,
            "sample_rate": rounded(curve.sample_rate),
            "dropped_samples": curve.dropped_samples,
        }))
    }
}

/// The verdict with the age that the sampled evictions had, in place of the estimate from their number.
fn with_sampled_age(verdict: Verdict, age_seconds: Option<f64>) -> Verdict {
    let sampled = age_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Verdict { evicted_after: verdict.evicted_after.map(|estimate| sampled.unwrap_or(estimate)), ..verdict }
}

/// The newest change of a policy, and the state of the pool `default`.
fn policies_in_words(controller: &PoolController) -> String {
    let is_made = |decision: &&PoolDecision| decision.refusal.is_none();
    let changes: Vec<_> =
        controller.decisions().filter(is_made).filter_map(|decision| decision.policy.as_ref()).collect();
    let state = controller.policy_state(DEFAULT_POOL);
    let texts = changes.last().map(ToString::to_string).into_iter();
    texts.chain(state.map(|state| format!("{DEFAULT_POOL}: {state}"))).collect::<Vec<_>>().join("; ")
}

/// A decision in words, for the log and the events.
fn words(decision: &PoolDecision) -> String {
    match &decision.refusal {
        Some(refusal) => format!("pools (refused): {}; {refusal}", decision.reason),
        None if decision.is_applied => format!("pools: {}", decision.reason),
        None => format!("pools (dry run): {}", decision.reason),
    }
}

fn decision_json(decision: &PoolDecision, started_unix_ms: u64) -> Value {
    let step = |step: &ebbtide::memcached::PoolMove| {
        json!({
            "from": step.from,
            "to": step.to,
            "bytes": step.bytes,
            "gained_hits_per_second": step.gained_hits_per_second,
            "lost_hits_per_second": step.lost_hits_per_second,
            "gained_bytes_per_second": step.gained_bytes_per_second,
            "lost_bytes_per_second": step.lost_bytes_per_second,
            "cliff_to_bytes": step.cliff_to_bytes,
        })
    };
    json!({
        "time_unix_ms": started_unix_ms + decision.at.as_millis() as u64,
        "applied": decision.is_applied,
        "undo": decision.is_undo,
        "moves": decision.moves.iter().map(step).collect::<Vec<_>>(),
        "policy": decision.policy.as_ref().map(policy_json),
        "reason": decision.reason,
        "refusal": decision.refusal,
    })
}

fn policy_json(changed: &PoolPolicyChange) -> Value {
    let PoolPolicyChange { pool, change } = changed;
    json!({
        "pool": pool,
        "from": change.from,
        "to": change.to,
        "miss_ratio_before": rounded(change.miss_ratio_before),
        "miss_ratio_after": rounded(change.miss_ratio_after),
        "gets": change.gets,
    })
}

fn no_curve(pool: &str, note: &str) -> Value {
    json!({ "pool": pool, "verdict": null, "points": [], "note": note })
}

fn target_json(target: &PoolTarget) -> Value {
    let (needed_bytes, available_bytes) = match target.state {
        PoolTargetState::Pursued { bytes } => (Some(bytes), None),
        PoolTargetState::TooLittle { needed_bytes, available_bytes } => (Some(needed_bytes), Some(available_bytes)),
        PoolTargetState::NotPursued | PoolTargetState::OutOfReach { .. } => (None, None),
    };
    json!({
        "pool": target.pool,
        "target_hit_ratio": target.hit_ratio,
        "pursued": target.is_pursued(),
        "needed_bytes": needed_bytes,
        "available_bytes": available_bytes,
        "reason": target.to_string(),
    })
}

/// Locks also a poisoned mutex: its data is consistent, because each update is one assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Points as JSON, each with the hits that one more MiB earns.
fn with_marginal(curve: &CacheCurve, points: &[CurvePoint]) -> Vec<Value> {
    let marginal = |of: &CurvePoint| {
        let mut value = point(of);
        value["marginal_hits_per_mib"] = json!(rounded(curve.marginal_hits_per_mib(of.memory_bytes)));
        value
    };
    points.iter().map(marginal).collect()
}

fn entropy(entropy: &MissEntropy) -> Value {
    let class = |class: &SizeClassMisses| json!({ "from_bytes": class.from_bytes, "share": rounded(class.share) });
    json!({
        "bits": rounded(entropy.bits),
        "meaning": entropy.to_string(),
        "classes": entropy.classes.iter().map(class).collect::<Vec<_>>(),
    })
}

fn cliff(cliff: &CurveCliff) -> Value {
    let CurveCliff { from_bytes, to_bytes, height } = *cliff;
    json!({ "from_bytes": from_bytes, "to_bytes": to_bytes, "height": rounded(height) })
}

fn point(point: &CurvePoint) -> Value {
    let CurvePoint { memory_bytes, miss_ratio, low, high } = *point;
    json!({ "memory_bytes": memory_bytes, "miss_ratio": rounded(miss_ratio), "low": rounded(low), "high": rounded(high) })
}

/// Eight decimals: more are none of the sample.
fn rounded(ratio: f64) -> f64 {
    (ratio * 1e8).round() / 1e8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_has_the_age_of_sampled_evictions() {
        let estimate = Some(Duration::from_secs(240));
        let (step_bytes, saved_points, cost_points) = (1 << 20, 1.0, 1.0);
        let verdict =
            Verdict { is_full: true, miss_ratio: 0.5, evicted_after: estimate, step_bytes, saved_points, cost_points };
        let age = |verdict, seconds| with_sampled_age(verdict, seconds).evicted_after;
        assert_eq!(age(verdict, Some(19.0)), Some(Duration::from_secs(19)));
        assert_eq!(age(verdict, None), estimate);
        assert_eq!(age(Verdict { evicted_after: None, ..verdict }, Some(19.0)), None, "nothing is evicted now");
    }
}
