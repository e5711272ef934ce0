//! Models of a live pool around its present memory, from the samples of its accesses.
//!
//! ```text
//! pool is full -> models of 0.7, 1 and 1.4 times the memory -> turned over twice -> they correct the curve
//!                 memory of the pool leaves the middle   -> new models; the old ones stay until these have turned over
//! ```
//!
//! With candidates there is one model for each candidate policy instead, all of the present memory: `pool_policies`
//! compares them.
//!
//! Models take memory and time, so there are none where the pool is small beside them, where it would take too many
//! accesses a second to feed them, and while the pool is not full: then less than all of the memory decides nothing.

use crate::curve_joints::corrected;
use crate::policy_models::{MAX_SEGMENTS, PolicyModels};
use ebbtide_control::Curve;
use ebbtide_store::{AccessSample, MIN_OBJECTS, MIN_OBJECTS_PER_SEGMENT, Policy, SegmentModel, Store};

/// Memories of the models, in half octaves from the present one: a trial of the controller moves less.
const HALF_OCTAVES: [i32; 3] = [-1, 0, 1];
/// Half octaves by which the memory may change until there are other models.
const MAX_DISTANCE: f64 = 0.5;
/// Sampled objects of the present memory, for each of the fewest that predict: the smallest model has 1.25 of them.
const SPARE_OBJECTS: f64 = 1.25 * std::f64::consts::SQRT_2;
/// Memory of a model for each object in it, and the part of the pool's memory that three models may take. Candidates
/// are asked for by an option, and may take as much for each three.
const BYTES_PER_OBJECT: f64 = 80.0;
const MEMORY_SHARE: f64 = 1.0 / 32.0;
/// Sampled accesses a second that feed models, at most: three models take a microsecond for one.
const MAX_ACCESSES_PER_SECOND: f64 = 2000.0;

struct ModelSet {
    models: PolicyModels,
    around_bytes: u64,
    /// The share of the keys that they see.
    rate: f64,
    /// Models, in units of three.
    threes: f64,
    number: u64,
}

/// Counters of the models of candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CandidateCounts {
    /// Tells sets of models apart: each begins to count at 0.
    pub set: u64,
    pub gets: u64,
    pub hits: Vec<(Policy, u64)>,
}

/// The models of a pool.
#[derive(Default)]
pub(crate) struct LiveModels {
    /// The policies that are compared; none: the models are of several sizes under the pool's policy.
    candidates: Vec<Policy>,
    /// Sets of models that were started.
    started: u64,
    /// Those whose ratios count.
    current: Option<ModelSet>,
    /// Those that have not turned over yet.
    filling: Option<ModelSet>,
}

impl LiveModels {
    /// Compares other policies from now on.
    pub fn set_candidates(&mut self, candidates: Vec<Policy>) {
        if self.candidates != candidates {
            (self.candidates, self.current, self.filling) = (candidates, None, None);
        }
    }

    /// Counts of the models; `None` while they fill, and of samples that are too small to predict.
    pub fn candidate_counts(&self) -> Option<CandidateCounts> {
        let set = self.current.as_ref()?;
        let (gets, hits) = set.models.counts()?;
        Some(CandidateCounts { set: set.number, gets, hits })
    }

    /// The share of the keys whose accesses the models need.
    pub fn rate(&self) -> f64 {
        self.sets().map(|set| set.rate).fold(0.0, f64::max)
    }

    pub fn note(&mut self, sample: &AccessSample, now_ms: u64) {
        self.sets_mut().for_each(|set| set.models.note(sample, now_ms));
    }

    /// All entries of the pool are gone.
    pub fn clear(&mut self) {
        (self.current, self.filling) = (None, None);
    }

    pub fn age(&mut self, factor: f64) {
        self.sets_mut().for_each(|set| set.models.age(factor));
    }

    /// Begins and ends models as the pool needs them. To be called once a second.
    pub fn update(&mut self, store: &Store, is_full: bool, accesses_per_second: f64, now_ms: u64) {
        self.sets_mut().for_each(|set| set.models.maintain(now_ms));
        let is_too_busy =
            |set: &mut ModelSet| set.rate * accesses_per_second * set.threes > 2.0 * MAX_ACCESSES_PER_SECOND;
        self.current.take_if(is_too_busy);
        self.filling.take_if(is_too_busy);
        if let Some(mut set) = self.filling.take_if(|set| set.models.has_turned_over(set.around_bytes)) {
            set.models.forget_counts();
            self.current = Some(set);
        }
        let memory_bytes = store.memory_bytes();
        let is_near = |set: &ModelSet| {
            2.0 * (memory_bytes as f64 / set.around_bytes as f64).log2().abs() <= MAX_DISTANCE
                && (!self.candidates.is_empty() || set.models.policy() == Some(store.policy()))
        };
        self.filling.take_if(|set| !is_near(set));
        if is_full && self.filling.is_none() && !self.current.as_ref().is_some_and(is_near) {
            self.started += 1;
            let numbered = (self.started, self.candidates.as_slice());
            self.filling = ModelSet::around(store, memory_bytes, accesses_per_second, numbered);
        }
    }

    /// A curve of LRU with the levels of the models, where there are any. It has points at their memories.
    pub fn corrected(&self, lru: &Curve, min_gets: f64) -> Curve {
        corrected(lru, &self.ratios(min_gets), false)
    }

    /// Miss ratio by memory, by ascending memory, of the models that correct the curve: none of too few gets.
    pub fn ratios(&self, min_gets: f64) -> Vec<(u64, f64)> {
        let told = self.current.as_ref().filter(|set| set.models.gets() >= min_gets);
        told.map_or_else(Vec::new, ModelSet::ratios)
    }

    fn sets(&self) -> impl Iterator<Item = &ModelSet> {
        self.current.iter().chain(&self.filling)
    }

    fn sets_mut(&mut self) -> impl Iterator<Item = &mut ModelSet> {
        self.current.iter_mut().chain(&mut self.filling)
    }
}

impl ModelSet {
    /// Models around the present memory of a pool; `None` where they would cost too much.
    fn around(
        store: &Store,
        memory_bytes: u64,
        accesses_per_second: f64,
        (number, candidates): (u64, &[Policy]),
    ) -> Option<Self> {
        let options = ebbtide_store::Options { memory_bytes, ..store.options().clone() };
        let segment_size = Some(store.options().effective_segment_size());
        let options = ebbtide_store::Options { segment_size, memory_bytes_max: None, ..options };
        let (segments, _) = SegmentModel::segments_of(&options).ok()?;
        let objects = MIN_OBJECTS.max(MIN_OBJECTS_PER_SEGMENT * u64::from(segments.min(MAX_SEGMENTS)));
        let items = store.counter_snapshot().items.max(1) as f64;
        let rate = (SPARE_OBJECTS * objects as f64 / items).min(1.0);
        let memory = |half_octaves: i32| (memory_bytes as f64 * f64::from(half_octaves).exp2().sqrt()) as u64;
        let cells: Vec<(u64, Policy)> = match candidates {
            [] => HALF_OCTAVES.map(|half_octaves| (memory(half_octaves), store.policy())).to_vec(),
            candidates => candidates.iter().map(|&policy| (memory_bytes, policy)).collect(),
        };
        let threes = cells.len() as f64 / HALF_OCTAVES.len() as f64;
        let modelled = cells.iter().map(|(bytes, _)| *bytes as f64).sum::<f64>() / memory_bytes as f64;
        let is_small =
            rate * items * BYTES_PER_OBJECT * modelled > MEMORY_SHARE * threes.max(1.0) * memory_bytes as f64;
        if is_small || rate * accesses_per_second * threes > MAX_ACCESSES_PER_SECOND {
            return None;
        }
        let models = PolicyModels::new(&options, rate, cells);
        Some(Self { models, around_bytes: memory_bytes, rate, threes, number })
    }

    fn ratios(&self) -> Vec<(u64, f64)> {
        self.models.policy().map_or_else(Vec::new, |policy| self.models.miss_ratios(policy))
    }
}

impl std::fmt::Debug for LiveModels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.sets().map(|set| (set.around_bytes, set.rate, &set.models))).finish()
    }
}
