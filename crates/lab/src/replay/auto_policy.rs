//! `--controller-policies`: the eviction policy of each pool, chosen as the controller of a live server does, in the
//! trace's own time.
//!
//! A model of each candidate sees the requests as they are played, and every ten seconds of the trace the controller
//! decides. Models begin empty, as the caches do. When the memory of a pool has moved far, it gets new models; these
//! count from when they have evicted all that they held.

use std::time::Duration;

use ebbtide::memcached::{Cache, Policy, PolicyModels, StoreOptions};
use ebbtide_control::{PolicyChange, PolicyChoice, PolicyDecision, PolicyReading};

use super::auto_division::{INTERVAL, MODELLED_BYTES, model};
use super::decision::Decision;
use super::player::ReplayCounts;
use crate::Error;
use crate::trace::Request;
use crate::workload::{mix, unit};

/// Octaves by which the memory of a pool may move until there are other models.
const MAX_DISTANCE: f64 = 0.25;

/// The models of one pool, and the choice among them.
struct PoolCandidates {
    name: String,
    candidates: Vec<Policy>,
    choice: PolicyChoice,
    models: PolicyModels,
    around_bytes: u64,
    /// Sets of models that were started.
    started: u64,
    is_filling: bool,
}

/// The controller of policies of a replay.
pub(super) struct AutoPolicies {
    pools: Vec<PoolCandidates>,
    template: StoreOptions,
    /// The share of the keys that the models see.
    model_rate: f64,
    decided: Duration,
}

impl AutoPolicies {
    /// `pools`: their names, policies and memory; `template`: the options of all of them.
    pub(super) fn new(allowed: &[Policy], pools: Vec<(String, Policy, u64)>, template: StoreOptions) -> Self {
        let total_bytes: u64 = pools.iter().map(|(_, _, bytes)| bytes).sum();
        let model_rate = (MODELLED_BYTES as f64 / total_bytes.max(1) as f64).min(1.0);
        let pool = |(name, present, bytes): (String, Policy, u64)| {
            let others = allowed.iter().copied().filter(|policy| *policy != present);
            let candidates: Vec<Policy> = [present].into_iter().chain(others).collect();
            let names = candidates.iter().map(|policy| policy.name().to_owned()).collect();
            let models = models(&template, model_rate, bytes, &candidates);
            let choice = PolicyChoice::new(names);
            PoolCandidates { name, candidates, choice, models, around_bytes: bytes, started: 1, is_filling: false }
        };
        let pools = pools.into_iter().map(pool).collect();
        Self { pools, template, model_rate, decided: Duration::ZERO }
    }

    /// A request of this pool is about to be played.
    pub(super) fn observe(&mut self, request: &Request, pool: usize, now_ms: u64) {
        if self.model_rate >= 1.0 || unit(mix(request.key)) <= self.model_rate {
            model(&mut self.pools[pool].models, request, now_ms);
        }
    }

    /// Decides, when it is time, and changes the policies of the caches. Answers the decisions.
    pub(super) fn advance(
        &mut self,
        now: Duration,
        caches: &[Cache],
        counts: &[&ReplayCounts],
    ) -> Result<Vec<Decision>, Error> {
        let now_ms = now.as_millis() as u64;
        self.pools.iter_mut().for_each(|pool| pool.models.maintain(now_ms));
        if now.saturating_sub(self.decided) < INTERVAL {
            return Ok(Vec::new());
        }
        self.decided = now;
        let mut decisions = Vec::new();
        for ((pool, cache), counts) in self.pools.iter_mut().zip(caches).zip(counts) {
            pool.follow_memory(cache, &self.template, self.model_rate);
            let Some(change) = pool.decide(now, cache, counts) else { continue };
            let to = pool.candidates.iter().find(|policy| policy.name() == change.to);
            to.map_or(Ok(()), |to| cache.set_policy(*to)).map_err(Error::Cache)?;
            decisions.push(Decision::of_policy(now, &pool.name, change));
        }
        Ok(decisions)
    }
}

fn models(template: &StoreOptions, rate: f64, memory_bytes: u64, candidates: &[Policy]) -> PolicyModels {
    let options = StoreOptions { memory_bytes, ..template.clone() };
    PolicyModels::new(&options, rate, candidates.iter().map(|&policy| (memory_bytes, policy)))
}

impl PoolCandidates {
    fn follow_memory(&mut self, cache: &Cache, template: &StoreOptions, rate: f64) {
        let memory_bytes = cache.stats().memory_limit_bytes;
        if (memory_bytes as f64 / self.around_bytes as f64).log2().abs() > MAX_DISTANCE {
            self.models = models(template, rate, memory_bytes, &self.candidates);
            self.around_bytes = memory_bytes;
            self.started += 1;
            self.is_filling = true;
        }
        if self.is_filling && self.models.has_turned_over(self.around_bytes) {
            self.models.forget_counts();
            self.is_filling = false;
        }
    }

    fn decide(&mut self, now: Duration, cache: &Cache, counts: &ReplayCounts) -> Option<PolicyChange> {
        let (model_gets, hits) = self.models.counts().filter(|_| !self.is_filling)?;
        let policy = cache.policy();
        // A candidate that does not work in this memory has no model: it is as bad as no cache.
        let hits_of = |policy: &Policy| hits.iter().find(|(counted, _)| counted == policy).map_or(0, |(_, hits)| *hits);
        let model_hits: Vec<u64> = self.candidates.iter().map(hits_of).collect();
        let stats = cache.stats();
        let decision = self.choice.decide(&PolicyReading {
            now_seconds: now.as_secs_f64(),
            present: self.candidates.iter().position(|candidate| *candidate == policy)?,
            gets: counts.hits + counts.misses,
            hits: counts.hits,
            evictions: stats.displaced(),
            objects: stats.items,
            model_set: self.started,
            model_gets,
            model_hits: &model_hits,
        });
        match decision {
            PolicyDecision::Keep(_) => None,
            PolicyDecision::Change(change) => Some(change),
        }
    }
}
