//! `--divide auto` and `--divide optimal`: memory where it earns hits.
//!
//! `auto` is the controller of a live server in the trace's own time: each pool has a profiler of the replayed
//! requests, and the controller decides every ten seconds of the trace. `optimal` is the best constant division,
//! computed from the whole trace before the first request.

use std::time::Duration;

use ebbtide::memcached::{ByteSize, Cache, Objective, Policy, PolicyModels, StoreOptions, corrected_curve};
use ebbtide_control::controller::{Controller, ControllerOptions, PoolReading, Situation, Target};
use ebbtide_control::division::{self, DivisionError, Tenant};
use ebbtide_control::{Curve, HitRatio, Options, Point, Profiler, Rate, memory_sizes};

use super::decision::Decision;
use super::player::ReplayCounts;
use super::pool_file::PoolSpec;
use crate::Error;
use crate::store::ttl_of;
use crate::trace::{Op, Request};
use crate::workload::{mix, unit};

/// Time between two decisions.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);
/// Accesses of this long ago weigh half in a curve, and in a rate.
const PROFILE_HALF_LIFE_SECONDS: f64 = 1800.0;
const RATE_HALF_LIFE_SECONDS: f64 = 60.0;
/// Points of a curve for each doubling of the memory.
const POINTS_PER_OCTAVE: usize = 8;
/// Used share of memory from which on a pool that evicts counts as full.
const FULL_SHARE: f64 = 0.9;
/// Models of a pool, at most, and the memory in bytes up to which models see all keys.
const MAX_MODELS: usize = 16;
pub(super) const MODELLED_BYTES: u64 = 256 << 20;
/// The curve of a pool with a target hit ratio ends at this multiple of the memory of all pools.
const BEYOND_TOTAL: u64 = 4;
/// Part of a full pool's memory that holds keys and values, before it is measured; and bytes that an object takes
/// beside them.
const USUAL_DENSITY: f64 = 0.92;
const OBJECT_OVERHEAD_BYTES: u64 = 16;

/// A profile of one pool's requests.
pub(super) struct PoolProfile {
    profiler: Profiler,
    models: PolicyModels,
    policy: Policy,
    rate: Rate,
}

/// The controller of a replay.
pub(super) struct AutoDivision {
    controller: Controller,
    profiles: Vec<PoolProfile>,
    specs: Vec<PoolSpec>,
    floor_bytes: u64,
    total_bytes: u64,
    /// The share of the keys that the models see.
    model_rate: f64,
    objective: Objective,
    decided: Duration,
    targets: Vec<Target>,
}

/// Feeds a profiler with a request.
fn observe(profiler: &mut Profiler, request: &Request, now: u64) {
    let bytes = u64::from(request.key_size) + u64::from(request.value_size) + OBJECT_OVERHEAD_BYTES;
    let (key, ttl) = (request.key, request.ttl_seconds);
    match request.op {
        Op::Get | Op::Gets => profiler.get(key, bytes, ttl, now),
        Op::Delete => profiler.delete(key, now),
        _ => profiler.set(key, bytes, ttl, now),
    }
}

/// Feeds models with a request.
pub(super) fn model(models: &mut PolicyModels, request: &Request, now_ms: u64) {
    let (bytes, ttl) = ((request.key_size.into(), request.value_size.into()), ttl_of(request.ttl_seconds));
    let hash = mix(!request.key);
    match request.op {
        Op::Get | Op::Gets => models.get(hash, bytes, ttl, now_ms),
        Op::Delete => models.delete(hash),
        _ => models.set(hash, bytes, ttl, now_ms),
    }
}

/// The curve by memory of a profiler that counts bytes of objects, of which each byte of memory holds `density`.
fn curve(profiler: &Profiler, sizes: &[u64], density: f64) -> Curve {
    let mut objects: Vec<u64> = sizes.iter().map(|&bytes| (bytes as f64 * density) as u64).collect();
    objects.dedup();
    if objects.len() < sizes.len() {
        return Curve::default();
    }
    let point = |(point, &memory_bytes): (&Point, &u64)| Point { memory_bytes, ..*point };
    Curve::new(profiler.curve(&objects).points().iter().zip(sizes).map(point).collect())
}

impl AutoDivision {
    /// `template`: the options of all pools, but for the policy of those that have one.
    pub(super) fn new(
        specs: Vec<PoolSpec>,
        floor_bytes: u64,
        total: ByteSize,
        template: &StoreOptions,
    ) -> Result<Self, Error> {
        let controller = Controller::new(ControllerOptions::default()).map_err(|error| Error::Configuration {
            option: "--divide",
            value: "auto".to_owned(),
            reason: error.to_string(),
        })?;
        let model_rate = (MODELLED_BYTES as f64 / total.as_bytes() as f64).min(1.0);
        let per_octave = [2, 1]
            .into_iter()
            .find(|per_octave| memory_sizes(floor_bytes, total.as_bytes(), *per_octave).len() <= MAX_MODELS);
        let sizes = memory_sizes(floor_bytes, total.as_bytes(), per_octave.unwrap_or(1));
        let profile = |spec: &PoolSpec| {
            let policy = spec.policy.unwrap_or(template.policy);
            let cells = sizes.iter().map(|&memory_bytes| (memory_bytes, policy));
            let models = PolicyModels::new(template, model_rate, cells);
            PoolProfile { profiler: Profiler::new(Options::default()), models, policy, rate: Rate::default() }
        };
        let profiles = specs.iter().map(profile).collect();
        Ok(Self {
            controller,
            profiles,
            specs,
            floor_bytes,
            total_bytes: total.as_bytes(),
            model_rate,
            objective: template.objective,
            decided: Duration::ZERO,
            targets: Vec::new(),
        })
    }

    /// Memory for the target hit ratio of a pool, in words.
    pub(super) fn target(&self, pool: &str) -> Option<String> {
        self.targets.iter().find(|target| target.pool == pool).map(Target::to_string)
    }

    /// Observes a request of this pool before it is replayed.
    pub(super) fn observe(&mut self, request: &Request, pool: usize, now_seconds: u64) {
        observe(&mut self.profiles[pool].profiler, request, now_seconds);
        if self.model_rate >= 1.0 || unit(mix(request.key)) <= self.model_rate {
            model(&mut self.profiles[pool].models, request, now_seconds * 1000);
        }
    }

    /// The hit ratios have changed for another reason than memory. The curves stay those of the first policy.
    pub(super) fn measure_anew(&mut self) {
        self.controller.measure_anew();
    }

    /// Decides, when it is time, and changes the memory of the caches. Answers the decision.
    pub(super) fn advance(
        &mut self,
        now: Duration,
        caches: &[Cache],
        counts: &[&ReplayCounts],
    ) -> Result<Option<Decision>, Error> {
        let now_ms = now.as_millis() as u64;
        self.profiles.iter_mut().for_each(|profile| profile.models.maintain(now_ms));
        let since = now.saturating_sub(self.decided);
        if since < INTERVAL {
            return Ok(None);
        }
        self.decided = now;
        for (profile, counts) in self.profiles.iter_mut().zip(counts) {
            let seconds = since.as_secs_f64();
            profile.rate.update(counts.hits + counts.misses, seconds, RATE_HALF_LIFE_SECONDS);
            let kept = (-std::f64::consts::LN_2 * seconds / PROFILE_HALF_LIFE_SECONDS).exp();
            profile.profiler.age(kept);
            profile.models.age(kept);
        }
        let pools: Vec<PoolReading> = (0..caches.len()).map(|at| self.reading(at, &caches[at], counts[at])).collect();
        let situation = Situation {
            now_seconds: now.as_secs_f64(),
            total_bytes: self.total_bytes,
            is_shrinking: false,
            pools: &pools,
        };
        self.targets = self.controller.targets(&situation);
        let choice = self.controller.decide(&situation).map_err(refused)?;
        let Some(bytes) = choice.bytes() else { return Ok(None) };
        // Shrinking pools first: the sum never exceeds the total.
        let mut order: Vec<usize> = (0..caches.len()).collect();
        order.sort_by_key(|&at| bytes[at] > pools[at].memory_bytes);
        for at in order.into_iter().filter(|&at| bytes[at] != pools[at].memory_bytes) {
            caches[at].resize(ByteSize::bytes(bytes[at])).map_err(Error::Cache)?;
        }
        Ok(Some(Decision::of_division(now, &choice)))
    }

    fn reading(&self, at: usize, cache: &Cache, counts: &ReplayCounts) -> PoolReading {
        let (share, profile) = (&self.specs[at].share, &self.profiles[at]);
        let stats = cache.stats();
        // The density of a pool that is not full is no measure for a full one.
        let is_full =
            stats.displaced() > 0 && stats.memory_used_bytes as f64 >= FULL_SHARE * stats.memory_limit_bytes as f64;
        let with_overhead = stats.live_bytes + stats.items * OBJECT_OVERHEAD_BYTES;
        let density = match is_full {
            true => (with_overhead as f64 / stats.memory_limit_bytes as f64).clamp(0.5, 1.0),
            false => USUAL_DENSITY,
        };
        // A target may need more memory than the total.
        let to_bytes = self.total_bytes * if share.target_hit_ratio.is_some() { BEYOND_TOTAL } else { 1 };
        PoolReading {
            name: share.name.clone(),
            memory_bytes: stats.memory_limit_bytes,
            used_bytes: stats.memory_used_bytes,
            min_bytes: share.min_bytes.max(self.floor_bytes),
            max_bytes: share.max_bytes,
            is_fixed: false,
            hit_value: share.hit_value.into(),
            bytes_of_hit: bytes_of_hit(self.objective, &profile.profiler),
            target_hit_ratio: share.target_hit_ratio.map(HitRatio::as_f64),
            curve: corrected_curve(
                &curve(&profile.profiler, &memory_sizes(self.floor_bytes, to_bytes, POINTS_PER_OCTAVE), density),
                &profile.models.miss_ratios(profile.policy),
                self.model_rate >= 1.0,
            ),
            sampled_gets: profile.profiler.gets(),
            gets_per_second: profile.rate.per_second(),
            gets: counts.hits + counts.misses,
            hits: counts.hits,
        }
    }
}

/// Bytes of key and value of the object of a get, where a division maximizes the bytes that hits serve.
fn bytes_of_hit(objective: Objective, profiler: &Profiler) -> Option<f64> {
    let mean = || profiler.mean_bytes().map_or(0.0, |bytes| bytes - OBJECT_OVERHEAD_BYTES as f64);
    (objective == Objective::Bytes).then(mean)
}

fn refused(error: DivisionError) -> Error {
    Error::Configuration { option: "--divide", value: "auto".to_owned(), reason: error.to_string() }
}

/// The best constant division for this objective, from all requests of a trace with the numbers of their pools: bytes
/// of each pool.
pub(super) fn optimal(
    specs: &[PoolSpec],
    floor_bytes: u64,
    (total, objective): (ByteSize, Objective),
    mut next: impl FnMut() -> Result<Option<(Request, usize)>, Error>,
) -> Result<Vec<u64>, Error> {
    let mut profilers: Vec<Profiler> = specs.iter().map(|_| Profiler::new(Options::exact())).collect();
    let mut now = 0;
    loop {
        match next() {
            Ok(Some((request, pool))) => {
                // The time of a profiler must not fall.
                now = request.time_seconds.max(now);
                observe(&mut profilers[pool], &request, now);
            }
            Ok(None) => break,
            Err(Error::Malformed { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let sizes = memory_sizes(floor_bytes, total.as_bytes(), POINTS_PER_OCTAVE);
    let tenant = |(spec, profiler): (&PoolSpec, &Profiler)| Tenant {
        curve: curve(profiler, &sizes, USUAL_DENSITY),
        gets: profiler.gets(),
        value: f64::from(spec.share.hit_value) * bytes_of_hit(objective, profiler).unwrap_or(1.0),
        min_bytes: spec.share.min_bytes.max(floor_bytes),
        max_bytes: spec.share.max_bytes,
    };
    let tenants: Vec<Tenant> = specs.iter().zip(&profilers).map(tenant).collect();
    let step_bytes = (total.as_bytes() / 2048).max(1);
    Ok(division::divide(&tenants, total.as_bytes(), step_bytes).map_err(refused)?.bytes)
}
