//! The points of curves: a profile, a simulation by object, or a replay through the engine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ebbtide::ByteSize;
use ebbtide_control::{Curve, Options, Point, Profiler};

use super::group::RequestGroup;
use super::policy::CurvePolicy;
use super::report::Labelled;
use crate::Error;
use crate::reference::{Cache, Reference};
use crate::replay::{self, ReplayArgs, replay_requests};
use crate::trace::Op;
use crate::trace::loaded::{LoadedTrace, Step, is_get};
use crate::workload::mix;

/// Largest value that an engine takes by default.
const DEFAULT_MAX_VALUE: u64 = 1 << 20;
/// Objects that a simulation of a reference looks at, where there are more; and how many groups of them tell its error.
const SAMPLED_OBJECTS: usize = 64 << 10;
const GROUPS: usize = 16;
/// 97.5 % of a normal distribution lie below its mean plus this many standard deviations.
const NORMAL_975: f64 = 1.96;

/// What is computed at once: of `lru` all sizes that hold every object, else one.
pub(super) struct CurveCell {
    pub(super) policy: CurvePolicy,
    sizes: Vec<u64>,
}

/// What a cell came to.
pub(super) enum Found {
    Points(Vec<Point>),
    /// The engine cannot be that small.
    TooSmall {
        memory_bytes: u64,
    },
}

/// The cells of a policy, by ascending size.
pub(super) fn cells(policy: CurvePolicy, workload: &LoadedTrace, sizes: &[u64]) -> Vec<CurveCell> {
    let largest = workload.steps.iter().map(Step::bytes).max().unwrap_or(0);
    let together = match policy {
        CurvePolicy::Reference(Reference::Lru) => sizes.partition_point(|&size| size < largest),
        _ => sizes.len(),
    };
    let alone = sizes[..together].iter().map(|&size| CurveCell { policy, sizes: vec![size] });
    let rest = (together < sizes.len()).then(|| CurveCell { policy, sizes: sizes[together..].to_vec() });
    alone.chain(rest).collect()
}

impl CurveCell {
    pub(super) fn compute(&self, workload: &LoadedTrace, exact: bool) -> Result<Found, Error> {
        match self.policy {
            CurvePolicy::Reference(Reference::Lru) => Ok(Found::Points(profiled(workload, &self.sizes, exact))),
            CurvePolicy::Reference(reference) => {
                Ok(Found::Points(self.sizes.iter().map(|&size| simulated(workload, reference, size, exact)).collect()))
            }
            CurvePolicy::Engine(policy) => replayed(workload, policy, self.sizes[0]),
        }
    }
}

/// The curve of a policy from what its cells came to.
pub(super) fn joined(policy: CurvePolicy, group: Option<RequestGroup>, gets: u64, found: Vec<Found>) -> Labelled {
    let (mut points, mut too_small) = (Vec::new(), Vec::new());
    for found in found {
        match found {
            Found::Points(more) => points.extend(more),
            Found::TooSmall { memory_bytes } => too_small.push(memory_bytes),
        }
    }
    let note = too_small.last().map(|&bytes| format!("no engine of {} or less", ByteSize::bytes(bytes)));
    Labelled { policy: policy.to_string(), group, curve: Curve::new(points), gets: gets as f64, note }
}

/// The points of LRU. An object that is larger than the cache is refused, as by the other references. That it would empty
/// the cache is what stack distances say, so it stays out of the profile, and its gets are misses.
fn profiled(workload: &LoadedTrace, sizes: &[u64], exact: bool) -> Vec<Point> {
    let fits = |step: &Step| sizes.first().is_some_and(|&size| step.bytes() <= size);
    let mut profiler = Profiler::new(if exact { Options::exact() } else { Options::default() });
    profile(workload, fits, Step::bytes, &mut profiler);
    let (mut gets, mut bytes, mut refused, mut refused_bytes) = (0.0, 0.0, 0.0, 0.0);
    for step in workload.steps.iter().filter(|step| is_get(step.op)) {
        gets += 1.0;
        bytes += step.bytes() as f64;
        if !fits(step) {
            refused += 1.0;
            refused_bytes += step.bytes() as f64;
        }
    }
    let with = |ratio: f64, refused: f64, all: f64| ratio + (1.0 - ratio) * refused / f64::max(all, 1.0);
    if refused == gets {
        let point = |&memory_bytes| Point { memory_bytes, miss_ratio: 1.0, low: 1.0, high: 1.0, byte_miss_ratio: 1.0 };
        return sizes.iter().map(point).collect();
    }
    let point = |point: &Point| Point {
        memory_bytes: point.memory_bytes,
        miss_ratio: with(point.miss_ratio, refused, gets),
        low: with(point.low, refused, gets),
        high: with(point.high, refused, gets),
        byte_miss_ratio: with(point.byte_miss_ratio, refused_bytes, bytes),
    };
    profiler.curve(sizes).points().iter().map(point).collect()
}

/// Feeds a profiler. The life of an object is counted from its load into an endless cache: a profiler forgets objects
/// that it does not sample, and would count their lives anew.
pub(super) fn profile(
    workload: &LoadedTrace,
    wanted: impl Fn(&Step) -> bool,
    bytes_of: impl Fn(&Step) -> u64,
    profiler: &mut Profiler,
) {
    let mut expires_at = vec![0u32; workload.objects()];
    for step in workload.steps.iter().filter(|step| wanted(step)) {
        let (key, bytes, now) = (u64::from(step.key), bytes_of(step), u64::from(step.time));
        let expires_at = &mut expires_at[step.key as usize];
        let is_there = *expires_at > step.time;
        let is_written = match step.op {
            Op::Get | Op::Gets | Op::Add => !is_there,
            Op::Replace | Op::Cas | Op::Append | Op::Prepend => is_there,
            Op::Set | Op::Incr | Op::Decr => true,
            Op::Delete => false,
        };
        if is_written {
            *expires_at = match step.ttl_seconds {
                0 => u32::MAX,
                ttl => step.time.saturating_add(ttl),
            };
        }
        let ttl = if *expires_at == u32::MAX { 0 } else { expires_at.saturating_sub(step.time) };
        match step.op {
            Op::Get | Op::Gets => profiler.get(key, bytes, ttl, now),
            Op::Delete => {
                *expires_at = 0;
                profiler.delete(key, now);
            }
            _ if is_written => profiler.set(key, bytes, ttl, now),
            _ => {}
        }
    }
}

/// A replay through the engine.
fn replayed(workload: &LoadedTrace, policy: ebbtide::Policy, memory_bytes: u64) -> Result<Found, Error> {
    let mut requests = workload.requests();
    // Objects that no default would take are a part of the curve where memory has room for them.
    let largest = workload.steps.iter().map(Step::bytes).max().unwrap_or(0).min(memory_bytes / 2);
    let max_value = (largest > DEFAULT_MAX_VALUE).then_some(ByteSize::bytes(largest));
    let args = ReplayArgs { max_value, ..ReplayArgs::of(workload.trace.clone().into()) };
    let cell = replay::Cell { number: None, memory: ByteSize::bytes(memory_bytes), policy };
    match replay_requests(|| Ok(requests.next()), &workload.trace, workload.format, &args, cell) {
        Ok(report) => {
            let miss_ratio = report.miss_ratio;
            let byte_miss_ratio = report.byte_miss_ratio;
            Ok(Found::Points(vec![Point {
                memory_bytes,
                miss_ratio,
                low: miss_ratio,
                high: miss_ratio,
                byte_miss_ratio,
            }]))
        }
        Err(Error::Cache(ebbtide::Error::Configuration { .. })) => Ok(Found::TooSmall { memory_bytes }),
        Err(error) => Err(error),
    }
}

/// A reference cache in which expired objects leave at once.
struct Simulation {
    cache: Box<dyn Cache>,
    expires_at: Vec<u32>,
    expiries: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Simulation {
    fn expire(&mut self, now: u32) {
        while let Some(&Reverse((at, key))) = self.expiries.peek()
            && at <= now
        {
            self.expiries.pop();
            if self.expires_at[key as usize] == at {
                self.cache.remove(u64::from(key));
            }
        }
    }

    /// Puts the object in, or asks for it. True for a hit.
    fn access(&mut self, step: &Step, next: u64) -> bool {
        let hit = self.cache.get(u64::from(step.key), step.bytes(), next);
        if !hit && step.ttl_seconds > 0 {
            let at = step.time.saturating_add(step.ttl_seconds);
            self.expires_at[step.key as usize] = at;
            self.expiries.push(Reverse((at, step.key)));
        } else if !hit {
            self.expires_at[step.key as usize] = 0;
        }
        hit
    }

    fn write(&mut self, step: &Step, next: u64) {
        let there = self.cache.bytes_of(u64::from(step.key));
        let wanted = match step.op {
            Op::Add => there.is_none(),
            Op::Replace | Op::Cas | Op::Append | Op::Prepend => there.is_some(),
            _ => true,
        };
        if wanted {
            // Another life or size is another object in the same place, except that its use counts anew.
            if there.is_some_and(|bytes| bytes != step.bytes()) || step.ttl_seconds > 0 {
                self.cache.remove(u64::from(step.key));
            }
            self.access(step, next);
        }
    }
}

/// Simulates a reference over a sample of the keys, in a cache that is as much smaller as their bytes are fewer.
fn simulated(workload: &LoadedTrace, reference: Reference, memory_bytes: u64, exact: bool) -> Point {
    let rate = if exact { 1.0 } else { (SAMPLED_OBJECTS as f64 / workload.objects() as f64).min(1.0) };
    let sampled = |step: &&Step| rate >= 1.0 || (mix(workload.id(step.key)) >> 11) as f64 / (1u64 << 53) as f64 <= rate;
    let next = if reference == Reference::Belady { next_uses(workload) } else { Vec::new() };
    let cache_bytes = (memory_bytes as f64 * rate).max(1.0) as u64;
    let mut simulation = Simulation {
        cache: reference.cache(cache_bytes),
        expires_at: vec![0; workload.objects()],
        expiries: BinaryHeap::new(),
    };
    let mut tally = Tally::default();
    for (number, step) in workload.steps.iter().enumerate().filter(|(_, step)| sampled(step)) {
        simulation.expire(step.time);
        let next = next.get(number).copied().unwrap_or(u64::MAX);
        if is_get(step.op) {
            let hit = simulation.access(step, next);
            tally.add(hit, step.bytes(), mix(!workload.id(step.key)) as usize % GROUPS);
        } else if step.op == Op::Delete {
            simulation.cache.remove(u64::from(step.key));
        } else {
            simulation.write(step, next);
        }
    }
    tally.point(memory_bytes, rate < 1.0)
}

/// For each request the number of the next one for its key; `u64::MAX` if there is none.
fn next_uses(workload: &LoadedTrace) -> Vec<u64> {
    let mut next_of_key = vec![u64::MAX; workload.objects()];
    let mut next = vec![u64::MAX; workload.steps.len()];
    for (number, step) in workload.steps.iter().enumerate().rev() {
        next[number] = next_of_key[step.key as usize];
        next_of_key[step.key as usize] = number as u64;
    }
    next
}

/// Hits and misses, in all and of each group of keys.
#[derive(Default)]
struct Tally {
    gets: [f64; GROUPS],
    misses: [f64; GROUPS],
    bytes: f64,
    missed_bytes: f64,
}

impl Tally {
    fn add(&mut self, hit: bool, bytes: u64, group: usize) {
        let miss = if hit { 0.0 } else { 1.0 };
        self.gets[group] += 1.0;
        self.misses[group] += miss;
        self.bytes += bytes as f64;
        self.missed_bytes += miss * bytes as f64;
    }

    /// The ratio of the sums, and its error by how far the groups are from it (Cochran, Sampling Techniques, 6.3).
    fn point(&self, memory_bytes: u64, sampled: bool) -> Point {
        let gets = self.gets.iter().sum::<f64>().max(1.0);
        let miss_ratio = self.misses.iter().sum::<f64>() / gets;
        let squares = self.gets.iter().zip(&self.misses).map(|(gets, misses)| (misses - miss_ratio * gets).powi(2));
        let variance = squares.sum::<f64>() * GROUPS as f64 / (GROUPS - 1) as f64;
        let error = if sampled { NORMAL_975 * variance.sqrt() / gets } else { 0.0 };
        Point {
            memory_bytes,
            miss_ratio,
            low: (miss_ratio - error).max(0.0),
            high: (miss_ratio + error).min(1.0),
            byte_miss_ratio: self.missed_bytes / self.bytes.max(1.0),
        }
    }
}
