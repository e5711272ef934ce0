//! Miss-ratio curves of a live cache: the gain of more memory, and the cost of less.
//!
//! ```text
//! threads of the cache -> samples of accesses (store) -> CacheProfile::update -> Profiler -> curve, what_if, verdict
//! ```
//! The curve is that of LRU by object, from stack distances of sampled keys (`ebbtide_control`). The engine keeps less
//! than all of the memory: so a size is first scaled by the share of the memory that holds live objects. The engine's
//! policy is another one: so the curve around the present memory is that of models of the engine (`live_models`), where
//! these cost little enough (`curve_joints`). The level of the curve is then set by the miss ratio that was measured,
//! where the caller has one. The curve itself gives the difference between two sizes.

use crate::byte_size::ByteSize;
use crate::curve_joints::at_level;
use crate::live_models::{CandidateCounts, LiveModels};
use crate::pool_state::PoolState;
use crate::profile_note::{AccessSizes, note};
use ebbtide_control::{Cliff, Curve, MissEntropy, Options, Point, Profiler};
use ebbtide_store::{Policy, SampledAccess};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Keys in the sample: the share of the memory that they may take, with the bytes that a key takes, and their limits.
const MEMORY_SHARE: u64 = 1000;
const SAMPLED_KEY_BYTES: u64 = 128;
const MIN_SAMPLED: u64 = 2048;
const MAX_SAMPLED: u64 = 8192;
/// The share of the memory of a cache that the keys of all its profiles may take, and bytes that they may take in any
/// case. The profile of a pool among hundreds of small ones has few keys, and says nothing before a thousand sampled
/// gets.
const MEMORY_SHARE_OF_ALL: u64 = 100;
const MIN_BYTES_OF_ALL: u64 = 1 << 20;
const MIN_SAMPLED_AMONG_MANY: u64 = 64;
/// Sampled accesses in a second, at most: the profile takes about a microsecond for each.
const MAX_SAMPLES_PER_SECOND: u64 = 8000;
/// The share of the keys that is sampled at most doubles in this time, while it and the accesses have space.
const GROWTH_MS: u64 = 10_000;
/// Age at which an access counts half.
const HALF_LIFE_MS: f64 = 1_800_000.0;
const AGING_MS: u64 = 60_000;
/// Sampled gets that a curve needs.
pub(crate) const MIN_GETS: f64 = 1000.0;
/// 97.5 % of a normal distribution lie below its mean plus this many standard deviations.
const NORMAL_975: f64 = 1.96;
/// Points of a curve, from a 64th of the memory to eight times as much.
const POINTS: usize = 37;
const OCTAVES_DOWN: f64 = 6.0;
const OCTAVES: f64 = 9.0;
/// A cache is full that uses this share of its memory, and evicts.
const FULL_SHARE: f64 = 0.9;
/// Share of the memory that holds live objects in a cache that is not full.
const USUAL_DENSITY: f64 = 0.85;
/// Looks between which evictions and misses are counted.
const RECENT_MS: u64 = 60_000;

/// The profile of a pool. While it lives the pool samples accesses; one profile of a pool at a time.
#[derive(Debug)]
pub struct CacheProfile {
    /// It does not keep the cache alive.
    pool: Arc<PoolState>,
    profiler: Profiler,
    models: LiveModels,
    /// One model for each policy that is compared.
    candidates: Option<LiveModels>,
    /// The share of the keys whose accesses are sampled.
    share: f64,
    /// When the profiler's share last changed.
    share_changed_ms: u64,
    /// No curve asks for more memory than eight times the pool's, or than this: the memory of the cache.
    cache_bytes: u64,
    /// Gets of sampled keys, and how many of them hit.
    sampled_gets: u64,
    sampled_hits: u64,
    /// All gets, by the sample.
    gets: f64,
    sizes: AccessSizes,
    flushes: u64,
    /// Milliseconds of the cache's time.
    updated_ms: u64,
    aged_ms: u64,
    dropped: u64,
    /// The updates of the last minute, oldest first.
    recent: VecDeque<Counted>,
}

/// Counters at the time of an update.
#[derive(Clone, Copy, Debug)]
struct Counted {
    at_ms: u64,
    /// Objects that left memory to make space, also to flash.
    displaced: u64,
    sampled_gets: u64,
    sampled_hits: u64,
    /// All lookups by calls of the library, sampled or not. The server's are not counted here: 0.
    lookup_hits: u64,
    lookup_misses: u64,
}

/// The curve of a cache.
#[derive(Clone, Debug)]
pub struct CacheCurve {
    /// By ascending memory; one of them is the present limit.
    pub points: Vec<CurvePoint>,
    pub present: CurvePoint,
    /// Whether the cache is full, so that less memory costs hits.
    pub is_full: bool,
    /// How long objects stay in memory before they are evicted, also to flash; `None` where none is.
    pub evicted_after: Option<Duration>,
    /// How the misses spread over sizes of objects; `None` before a hundred sampled misses were followed by a write.
    pub miss_entropy: Option<MissEntropy>,
    /// Keys in the sample, and the share of all keys that they are.
    pub sampled_keys: usize,
    pub sample_rate: f64,
    /// Accesses that were dropped because buffers were full.
    pub dropped_samples: u64,
}

/// A stretch of the curve on which memory earns nothing until much more of it is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurveCliff {
    pub from_bytes: u64,
    pub to_bytes: u64,
    /// The furthest that the miss ratio lies above the convex hull.
    pub height: f64,
}

impl CacheCurve {
    /// The points of the lower convex hull, by ascending memory.
    pub fn hull(&self) -> Vec<CurvePoint> {
        let of_hull = self.by_memory().hull();
        let is_on = |point: &&CurvePoint| of_hull.iter().any(|on| on.memory_bytes == point.memory_bytes);
        self.points.iter().filter(is_on).copied().collect()
    }

    /// Stretches that lie above the hull by more than 0.02, the lowest memory first.
    pub fn cliffs(&self) -> Vec<CurveCliff> {
        let cliffs = self.by_memory().cliffs().into_iter();
        cliffs.map(|Cliff { from_bytes, to_bytes, height }| CurveCliff { from_bytes, to_bytes, height }).collect()
    }

    /// Hits for each get that one more MiB earns at this memory, by the slope of the hull there.
    pub fn marginal_hits_per_mib(&self, memory_bytes: u64) -> f64 {
        self.by_memory().marginal_hits_per_mib(memory_bytes)
    }

    fn by_memory(&self) -> Curve {
        let point = |point: &CurvePoint| Point::exact(point.memory_bytes, point.miss_ratio, point.miss_ratio);
        Curve::new(self.points.iter().map(point).collect())
    }
}

/// The miss ratio that a memory limit would have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    pub memory_bytes: u64,
    pub miss_ratio: f64,
    /// The 95 % interval of the sample.
    pub low: f64,
    pub high: f64,
}

/// Judgement of the size of a cache. `Display` writes it as a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    pub is_full: bool,
    pub miss_ratio: f64,
    pub evicted_after: Option<Duration>,
    pub step_bytes: u64,
    /// Percentage points of misses that a step more would save, and a step less would cost.
    pub saved_points: f64,
    pub cost_points: f64,
}

impl CacheProfile {
    /// Begins to sample the accesses of a pool.
    pub(crate) fn of_state(pool: &Arc<PoolState>) -> Self {
        let PoolState { store, clock, .. } = &**pool;
        let now_ms = clock.now_ms();
        store.sample_accesses(1.0);
        Self {
            pool: Arc::clone(pool),
            profiler: Profiler::new(Options::live(max_sampled(pool) as usize)),
            models: LiveModels::default(),
            candidates: None,
            share: 1.0,
            share_changed_ms: now_ms,
            cache_bytes: 0,
            sampled_gets: 0,
            sampled_hits: 0,
            gets: 0.0,
            sizes: AccessSizes::default(),
            flushes: store.flushes(),
            updated_ms: now_ms,
            aged_ms: now_ms,
            dropped: 0,
            recent: VecDeque::new(),
        }
    }

    /// Bounds the sample of a pool that is one of `profiles` of a cache with this memory.
    pub(crate) fn share_memory(&mut self, profiles: usize, cache_bytes: u64) {
        let all = (cache_bytes / MEMORY_SHARE_OF_ALL).max(MIN_BYTES_OF_ALL);
        let each = all / SAMPLED_KEY_BYTES / profiles.max(1) as u64;
        let max = max_sampled(&self.pool).min(each.max(MIN_SAMPLED_AMONG_MANY));
        self.profiler.limit_sampled(max as usize);
        self.cache_bytes = cache_bytes;
    }

    /// Takes the samples since the last call. Call it about once a second: buffers are short.
    pub fn update(&mut self) {
        let PoolState { store, clock, .. } = &*self.pool;
        let now_ms = clock.now_ms();
        let flushes = store.flushes();
        if flushes != self.flushes {
            self.flushes = flushes;
            self.profiler.clear();
            self.models.clear();
            self.candidates.iter_mut().for_each(LiveModels::clear);
        }
        let (profiler, models, candidates) = (&mut self.profiler, &mut self.models, &mut self.candidates);
        let sizes = &mut self.sizes;
        let (mut all, mut taken, mut hits, mut gets) = (0u64, 0u64, 0, 0);
        let rate = profiler.sample_rate();
        let dropped = store.take_access_samples(|sample| {
            all += 1;
            taken += u64::from(is_within(sample.hash, rate));
            models.note(&sample, now_ms);
            candidates.iter_mut().for_each(|models| models.note(&sample, now_ms));
            hits += u64::from(matches!(sample.access, SampledAccess::Hit { .. }));
            gets += u64::from(matches!(sample.access, SampledAccess::Hit { .. } | SampledAccess::Miss));
            sizes.note(&sample);
            note(profiler, sample, now_ms / 1000);
        });
        (self.sampled_gets, self.sampled_hits) = (self.sampled_gets + gets, self.sampled_hits + hits);
        self.gets += gets as f64 / self.share;
        let seconds = now_ms.saturating_sub(self.updated_ms).max(1000) as f64 / 1000.0;
        let accesses_per_second = (all + dropped) as f64 / self.share / seconds;
        self.dropped += dropped;
        self.adapt_share(
            rate,
            MAX_SAMPLES_PER_SECOND as f64 * seconds / (taken + dropped).max(1) as f64,
            dropped,
            now_ms,
        );
        let is_full = self.is_full();
        let store = &*self.pool.store;
        let models = std::iter::once(&mut self.models).chain(&mut self.candidates);
        models.into_iter().for_each(|models| models.update(store, is_full, accesses_per_second, now_ms));
        let rate_of_candidates = self.candidates.as_ref().map_or(0.0, LiveModels::rate);
        self.share = self.profiler.sample_rate().max(self.models.rate()).max(rate_of_candidates);
        store.sample_accesses(self.share);
        self.updated_ms = now_ms;
        let since_aging = now_ms.saturating_sub(self.aged_ms);
        if since_aging >= AGING_MS {
            let kept = (-std::f64::consts::LN_2 * since_aging as f64 / HALF_LIFE_MS).exp();
            self.profiler.age(kept);
            self.models.age(kept);
            self.sizes.age(kept);
            self.aged_ms = now_ms;
        }
        self.count_recent(now_ms);
    }

    /// Keeps the counters of the last minute.
    fn count_recent(&mut self, now_ms: u64) {
        let (lookup_hits, lookup_misses) = self.pool.lookups.sums();
        self.recent.push_back(Counted {
            lookup_hits,
            lookup_misses,
            at_ms: now_ms,
            displaced: self.pool.store.counter_snapshot().displaced(),
            sampled_gets: self.sampled_gets,
            sampled_hits: self.sampled_hits,
        });
        while self.recent.front().is_some_and(|counted| now_ms.saturating_sub(counted.at_ms) > RECENT_MS) {
            self.recent.pop_front();
        }
    }

    /// Samples fewer keys or more. `max_growth`: the factor by which the sampled accesses may grow. `before`: the share
    /// of the profiler before these.
    fn adapt_share(&mut self, before: f64, max_growth: f64, dropped: u64, now_ms: u64) {
        self.profiler.limit_depth(self.deepest_bytes());
        // A sample that lost accesses sees too many misses: fewer keys are better than half of the accesses of many.
        let factor = max_growth.min(if dropped > 0 { 0.5 } else { 1.0 });
        if factor < 1.0 {
            self.profiler.limit_rate(self.profiler.sample_rate() * factor);
        } else if max_growth > 2.0 && now_ms.saturating_sub(self.share_changed_ms) >= GROWTH_MS {
            self.profiler.grow_rate(2.0f64.min(max_growth / 2.0));
        }
        if self.profiler.sample_rate() != before {
            self.share_changed_ms = now_ms;
        }
    }

    /// The curve; `None` before enough was seen. With the miss ratio that was measured the level of the curve is that.
    pub fn curve(&self, measured_miss_ratio: Option<f64>) -> Option<CacheCurve> {
        let counters = self.pool.store.counter_snapshot();
        let limit = counters.memory_limit_bytes;
        let mut sizes: Vec<u64> = (0..POINTS)
            .map(|step| limit as f64 * (OCTAVES * step as f64 / (POINTS - 1) as f64 - OCTAVES_DOWN).exp2())
            .map(|bytes| bytes.round() as u64)
            .collect();
        sizes.push(limit);
        sizes.sort_unstable();
        sizes.dedup();
        let points = self.points(&sizes, measured_miss_ratio)?;
        Some(CacheCurve {
            present: *points.iter().find(|point| point.memory_bytes == limit)?,
            points,
            is_full: self.is_full(),
            evicted_after: self.evicted_after(),
            miss_entropy: self.miss_entropy(),
            sampled_keys: self.profiler.sampled(),
            sample_rate: self.profiler.sample_rate(),
            dropped_samples: self.dropped,
        })
    }

    /// The miss ratio with this much memory; `None` before enough was seen.
    pub fn what_if(&self, memory: ByteSize, measured_miss_ratio: Option<f64>) -> Option<CurvePoint> {
        self.points(&[memory.as_bytes()], measured_miss_ratio)?.first().copied()
    }

    /// Judgement of the size of the cache; `None` before enough was seen.
    pub fn verdict(&self, measured_miss_ratio: Option<f64>) -> Option<Verdict> {
        let limit = self.pool.store.counter_snapshot().memory_limit_bytes;
        let step_bytes = 1u64 << (limit / 4).max(1).ilog2();
        let sizes = [limit.saturating_sub(step_bytes).max(1), limit, limit + step_bytes];
        let points = self.points(&sizes, measured_miss_ratio)?;
        let [less, present, more] = [0, 1, 2].map(|at| points[at].miss_ratio);
        Some(Verdict {
            is_full: self.is_full(),
            miss_ratio: present,
            evicted_after: self.evicted_after(),
            step_bytes,
            saved_points: 100.0 * (present - more),
            cost_points: 100.0 * (less - present),
        })
    }

    /// The miss ratio by budget at these sizes, which ascend. Empty while a curve would be made of too few gets.
    pub(crate) fn budget_curve(&self, sizes: &[u64], min_gets: f64) -> Curve {
        if self.curve_gets() < min_gets.max(1.0) {
            return Curve::default();
        }
        self.by_memory(sizes)
    }

    /// The miss ratio by memory, at these sizes, which ascend.
    fn by_memory(&self, sizes: &[u64]) -> Curve {
        // A curve is joined by points of LRU that are the same for each choice of sizes.
        let joints = self.models.ratios(MIN_GETS).into_iter().map(|(memory_bytes, _)| memory_bytes);
        let mut all: Vec<u64> = joints.chain([self.deepest_bytes()]).chain(sizes.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        let curve = self.models.corrected(&self.lru_by_memory(&all), MIN_GETS);
        let is_wanted = |point: &&Point| sizes.binary_search(&point.memory_bytes).is_ok();
        Curve::new(curve.points().iter().filter(is_wanted).copied().collect())
    }

    /// The memory beyond which no curve has other misses.
    fn deepest_bytes(&self) -> u64 {
        let limit_bytes = self.pool.store.counter_snapshot().memory_limit_bytes;
        ((limit_bytes as f64 * (OCTAVES - OCTAVES_DOWN).exp2()) as u64).max(self.cache_bytes)
    }

    fn lru_by_memory(&self, sizes: &[u64]) -> Curve {
        let density = self.density();
        let scaled = |bytes: u64| (bytes as f64 * density) as u64;
        let mut objects: Vec<u64> = sizes.iter().copied().map(scaled).collect();
        // Two sizes may hold the same bytes of objects.
        objects.dedup();
        let of_objects = self.profiler.curve(&objects);
        let point = |&memory_bytes: &u64| {
            let at = objects.binary_search(&scaled(memory_bytes)).ok()?;
            of_objects.points().get(at).map(|point| Point { memory_bytes, ..*point })
        };
        Curve::new(sizes.iter().filter_map(point).collect())
    }

    /// Whether models of the engine correct the curve of LRU.
    pub fn is_modelled(&self) -> bool {
        !self.models.ratios(MIN_GETS).is_empty()
    }

    /// Compares these policies by a model of each.
    pub(crate) fn compare(&mut self, candidates: &[Policy]) {
        self.candidates.get_or_insert_default().set_candidates(candidates.to_vec());
    }

    /// Counts of the models of the compared policies; `None` while they fill, and where none are affordable.
    pub(crate) fn candidate_counts(&self) -> Option<CandidateCounts> {
        self.candidates.as_ref()?.candidate_counts()
    }

    /// All gets since the start, by the sample.
    pub(crate) fn gets(&self) -> f64 {
        self.gets
    }

    /// Gets of sampled keys since the start, and how many of them hit.
    pub(crate) fn sampled(&self) -> (u64, u64) {
        (self.sampled_gets, self.sampled_hits)
    }

    /// Bytes of the object of an access, on average; `None` before any.
    pub(crate) fn mean_bytes(&self) -> Option<f64> {
        self.sizes.mean_bytes()
    }

    /// Sampled gets that the curve is made of: older ones count less.
    pub(crate) fn curve_gets(&self) -> f64 {
        self.profiler.counted_gets()
    }

    /// The share of the gets of the last minute that found nothing in memory; `None` of few gets. Without flash the
    /// library's lookups are counted one by one. With flash, and in a server, it is that of the sample.
    pub fn recent_miss_ratio(&self) -> Option<f64> {
        let (first, last) = (self.recent.front()?, self.recent.back()?);
        let ratio = |hits: u64, gets: u64| (gets as f64 >= MIN_GETS).then(|| 1.0 - hits as f64 / gets as f64);
        let lookup_hits = last.lookup_hits - first.lookup_hits;
        let lookups = lookup_hits + last.lookup_misses - first.lookup_misses;
        let counted = ratio(lookup_hits, lookups).filter(|_| self.pool.flash.is_none());
        counted.or_else(|| ratio(last.sampled_hits - first.sampled_hits, last.sampled_gets - first.sampled_gets))
    }

    pub(crate) fn is_of(&self, pool: &Arc<PoolState>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// Whether the pool was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.pool.is_removed()
    }

    /// Points at these sizes, which ascend.
    fn points(&self, sizes: &[u64], measured_miss_ratio: Option<f64>) -> Option<Vec<CurvePoint>> {
        if self.curve_gets() < MIN_GETS {
            return None;
        }
        let limit = self.pool.store.counter_snapshot().memory_limit_bytes;
        let mut all: Vec<u64> = sizes.iter().copied().chain([limit]).collect();
        all.sort_unstable();
        all.dedup();
        let curve = self.by_memory(&all);
        let curve = match measured_miss_ratio {
            Some(measured) => at_level(&curve, limit, measured),
            None => curve,
        };
        let curve = widened(&curve, limit, self.profiler.sampled(), self.profiler.sample_rate());
        curve.points().first()?;
        Some(sizes.iter().map(|&bytes| point_at(&curve, bytes)).collect())
    }

    fn is_full(&self) -> bool {
        let counters = self.pool.store.counter_snapshot();
        counters.displaced() > 0 && counters.memory_used_bytes as f64 >= FULL_SHARE * counters.memory_limit_bytes as f64
    }

    /// Share of the memory that holds live objects.
    fn density(&self) -> f64 {
        let stats = self.pool.store.stats();
        match (self.is_full(), stats.live_bytes as f64 / stats.memory_used_bytes.max(1) as f64) {
            (true, density) if density > 0.0 => density.min(1.0),
            _ => USUAL_DENSITY,
        }
    }

    /// How the misses in memory spread over sizes of objects; `None` before enough was seen.
    pub fn miss_entropy(&self) -> Option<MissEntropy> {
        self.sizes.misses.entropy(self.pool.store.memory_bytes())
    }

    /// By Little's law: objects in memory for each one that leaves it in a second, also to flash. No object is older
    /// than the cache.
    fn evicted_after(&self) -> Option<Duration> {
        let (first, last) = (self.recent.front()?, self.recent.back()?);
        let evicted = last.displaced.saturating_sub(first.displaced);
        let seconds = last.at_ms.saturating_sub(first.at_ms) as f64 / 1000.0;
        let items = self.pool.store.counter_snapshot().items as f64;
        let age = (evicted > 0 && seconds > 0.0).then(|| Duration::from_secs_f64(items * seconds / evicted as f64));
        age.map(|age| age.min(Duration::from_millis(last.at_ms)))
    }
}

impl Drop for CacheProfile {
    fn drop(&mut self) {
        self.pool.store.sample_accesses(0.0);
    }
}

/// Keys in the sample of a pool by itself, at most.
fn max_sampled(pool: &PoolState) -> u64 {
    let memory_bytes = pool.store.memory_bytes();
    (memory_bytes / MEMORY_SHARE / SAMPLED_KEY_BYTES).clamp(MIN_SAMPLED, MAX_SAMPLED)
}

/// The point of the curve at a limit of `memory_bytes`; without memory every get misses.
fn point_at(curve: &Curve, memory_bytes: u64) -> CurvePoint {
    let point = curve.points().iter().find(|point| point.memory_bytes == memory_bytes);
    let (miss_ratio, low, high) = point.map_or((1.0, 1.0, 1.0), |point| (point.miss_ratio, point.low, point.high));
    CurvePoint { memory_bytes, miss_ratio, low, high }
}

/// The curve with the intervals of a sample of this many keys, at least. The gets between a size and the limit are a
/// share of all gets that is known as the share of something among the keys is: by the number of sampled keys, and
/// exactly if these are all.
fn widened(curve: &Curve, limit: u64, sampled_keys: usize, sample_rate: f64) -> Curve {
    let level = curve.miss_ratio_at(limit);
    let widened = |point: &Point| {
        let share = level.map_or(0.0, |level| (point.miss_ratio - level).abs().min(1.0));
        let variance = share * (1.0 - share) * (1.0 - sample_rate).max(0.0) / sampled_keys.max(1) as f64;
        let error = NORMAL_975 * variance.sqrt();
        let (low, high) = ((point.miss_ratio - error).max(0.0), (point.miss_ratio + error).min(1.0));
        Point { low: point.low.min(low), high: point.high.max(high), ..*point }
    };
    Curve::new(curve.points().iter().map(widened).collect())
}

/// Whether the key of this hash is among the share `rate` of all keys.
fn is_within(hash: u64, rate: f64) -> bool {
    (hash as f64) < rate * 18_446_744_073_709_551_616.0
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_full, miss_ratio, evicted_after, step_bytes, saved_points, cost_points } = *self;
        let (state, step) = (if is_full { "full" } else { "not full" }, ByteSize::bytes(step_bytes));
        write!(f, "{state}; {:.1} % misses; ", miss_ratio * 100.0)?;
        if let Some(after) = evicted_after {
            write!(f, "objects leave after {}; ", duration_text(after))?;
        }
        // Less than the sample can tell, or a curve that the sample bends the wrong way.
        let points = |points: f64| if points < 0.05 { "nothing".to_owned() } else { format!("{points:.1} points") };
        write!(f, "+{step} would save {}", points(saved_points))?;
        if is_full { write!(f, ", -{step} would cost {}", points(cost_points)) } else { Ok(()) }
    }
}

/// `45 s`, `6 min`, `3 h`, `2 d`.
fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let (count, unit) = match seconds {
        ..90.0 => (seconds, "s"),
        ..5400.0 => (seconds / 60.0, "min"),
        ..129_600.0 => (seconds / 3600.0, "h"),
        _ => (seconds / 86_400.0, "d"),
    };
    format!("{count:.0} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::clock::Clock;
    use crate::lookup::Lookup;

    /// Gets `keys` keys of `bytes` bytes in rounds, and writes each missed one.
    fn look_aside(cache: &Cache, keys: u32, bytes: usize, rounds: u32) -> f64 {
        let (value, mut misses) = (vec![7; bytes], 0);
        for number in (0..rounds).flat_map(|_| 0..keys) {
            let key = number.to_le_bytes();
            if matches!(cache.get(&key), Lookup::Miss) {
                misses += 1;
                cache.insert(&key, &value).apply().unwrap();
            }
        }
        f64::from(misses) / f64::from(keys * rounds)
    }

    fn profiled(memory: ByteSize) -> (Cache, CacheProfile) {
        let cache = Cache::builder().memory(memory).clock(Clock::Manual).build().unwrap();
        let profile = CacheProfile::of(&cache);
        (cache, profile)
    }

    #[test]
    fn a_loop_needs_memory_for_all_objects() {
        let (cache, mut profile) = profiled(ByteSize::mib(4));
        assert!(profile.curve(None).is_none() && profile.verdict(None).is_none(), "nothing was seen");
        // 8 MB of objects.
        for second in 1..40 {
            look_aside(&cache, 2000, 4000, 1);
            cache.maintain(Duration::from_secs(second));
            profile.update();
        }
        let at = |mib: u64| profile.what_if(ByteSize::mib(mib), None).unwrap().miss_ratio;
        assert!(at(4) > 0.95 && at(16) < 0.06, "{} {}", at(4), at(16));
        let curve = profile.curve(Some(0.8)).unwrap();
        assert!(curve.is_full && curve.present.memory_bytes == 4 << 20);
        assert!((curve.present.miss_ratio - 0.8).abs() < 1e-9, "its level is the one measured");
        assert!(curve.points.is_sorted_by(|one, next| one.memory_bytes < next.memory_bytes));
        assert!(curve.points.is_sorted_by(|one, next| one.miss_ratio >= next.miss_ratio));
        assert_eq!(curve.dropped_samples, 0);
        assert!(curve.evicted_after.is_some_and(|after| after < Duration::from_secs(60)));
    }

    #[test]
    fn no_object_leaves_older_than_the_cache() {
        let (cache, mut profile) = profiled(ByteSize::mib(4));
        look_aside(&cache, 100, 100, 1);
        let at = |at_ms, displaced| Counted {
            at_ms,
            displaced,
            sampled_gets: 0,
            sampled_hits: 0,
            lookup_hits: 0,
            lookup_misses: 0,
        };
        // One object of a hundred leaves in three seconds.
        profile.recent = VecDeque::from([at(1000, 0), at(4000, 1)]);
        assert_eq!(profile.evicted_after(), Some(Duration::from_secs(4)));
        profile.recent = VecDeque::from([at(1000, 0), at(4000, 300)]);
        assert_eq!(profile.evicted_after(), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_cache_that_holds_everything_gains_nothing() {
        let (cache, mut profile) = profiled(ByteSize::mib(16));
        for second in 1..4 {
            look_aside(&cache, 1000, 1000, 1);
            cache.maintain(Duration::from_secs(second));
            profile.update();
        }
        let verdict = profile.verdict(Some(0.01)).unwrap();
        assert!(!verdict.is_full && verdict.evicted_after.is_none() && verdict.saved_points.abs() < 0.01);
        assert_eq!(verdict.to_string(), "not full; 1.0 % misses; +4 MiB would save nothing");
    }

    #[test]
    fn removed_objects_are_misses_in_larger_caches() {
        let (cache, mut profile) = profiled(ByteSize::mib(16));
        for second in (1..60).step_by(2) {
            for number in 0..300u32 {
                let key = number.to_le_bytes();
                assert!(!cache.get(&key).is_hit());
                let life = if number % 3 == 1 { ebbtide_store::Ttl::seconds(1) } else { ebbtide_store::Ttl::Never };
                cache.insert(&key, &[7; 100]).ttl(life).apply().unwrap();
                if number % 3 == 0 {
                    cache.delete(&key);
                }
            }
            profile.update();
            cache.flush(Duration::ZERO);
            cache.maintain(Duration::from_secs(second + 1));
            profile.update();
        }
        assert_eq!(profile.what_if(ByteSize::gib(1), None).unwrap().miss_ratio, 1.0);
    }

    #[test]
    fn under_load_fewer_keys_are_sampled() {
        let (cache, mut profile) = profiled(ByteSize::mib(64));
        for second in 1..12 {
            // Fewer keys than the sample may have: only their accesses are too many.
            look_aside(&cache, 1000, 10, 30);
            cache.maintain(Duration::from_secs(second));
            profile.update();
        }
        let curve = profile.curve(None).unwrap();
        assert!(curve.sample_rate < 0.5 && curve.sampled_keys <= MAX_SAMPLED as usize, "{curve:?}");
        assert!(curve.dropped_samples > 0);
        assert!(curve.present.low <= curve.present.high && curve.present.miss_ratio < 0.3);
        drop(profile);
        look_aside(&cache, 1000, 10, 1);
        assert_eq!(cache.engine().default_pool.store.take_access_samples(|_| panic!("sampled without a profile")), 0);
    }

    #[test]
    fn verdicts_are_short() {
        let verdict = Verdict {
            is_full: true,
            miss_ratio: 0.14,
            evicted_after: Some(Duration::from_secs(360)),
            step_bytes: 64 << 20,
            saved_points: 2.1,
            cost_points: 4.0,
        };
        let text = "full; 14.0 % misses; objects leave after 6 min; +64 MiB would save 2.1 points, -64 MiB would cost 4.0 points";
        assert_eq!(verdict.to_string(), text);
        let texts = [3, 100, 7300, 400_000].map(|seconds| duration_text(Duration::from_secs(seconds)));
        assert_eq!(texts, ["3 s", "2 min", "2 h", "5 d"]);
    }
}
