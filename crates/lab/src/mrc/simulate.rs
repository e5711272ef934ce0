//! The points of curves: a profile, a simulation by object, the model of segments, or a replay through the engine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ebbtide::ByteSize;
use ebbtide_control::{Curve, Point};

use super::group::RequestGroup;
use super::modelled::{max_value, modelled};
use super::policy::CurvePolicy;
use super::report::Labelled;
use super::stack_distances::{bucketed, profiled};
use super::tally::Tally;
use crate::Error;
use crate::generate::CountArg;
use crate::reference::{Cache, Reference};
use crate::replay::{self, ReplayArgs, replay_requests};
use crate::trace::Op;
use crate::trace::loaded::{LoadedTrace, Step, is_get};
use crate::workload::mix;

/// Maximum number of objects that a simulation of a reference policy samples.
const SAMPLED_OBJECTS: usize = 64 << 10;

/// Sizes computed in one pass: of LRU all that hold the largest object, of bucketed LRU all, otherwise one.
pub(super) struct CurveCell {
    pub(super) policy: CurvePolicy,
    sizes: Vec<u64>,
}

/// Result of a cell.
pub(super) enum Found {
    Points(Vec<Point>),
    /// Of the model of segments.
    Modelled(Point),
    /// The engine refuses this memory.
    Refused {
        memory_bytes: u64,
        reason: String,
    },
}

/// The cells of a policy, by ascending size.
pub(super) fn cells(policy: CurvePolicy, workload: &LoadedTrace, sizes: &[u64]) -> Vec<CurveCell> {
    let largest = workload.steps.iter().map(Step::bytes).max().unwrap_or(0);
    let together = match policy {
        CurvePolicy::Reference(Reference::Lru) => sizes.partition_point(|&size| size < largest),
        CurvePolicy::LruBuckets => 0,
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
            CurvePolicy::LruBuckets => Ok(Found::Points(bucketed(workload, &self.sizes))),
            CurvePolicy::Engine(policy) => {
                let point = if exact { None } else { modelled(workload, policy, self.sizes[0])? };
                point.map_or_else(|| replayed(workload, policy, self.sizes[0]), |point| Ok(Found::Modelled(point)))
            }
        }
    }
}

/// The curve of a policy from the results of its cells.
pub(super) fn joined(
    policy: CurvePolicy,
    group: Option<RequestGroup>,
    workload: &LoadedTrace,
    found: Vec<Found>,
) -> Labelled {
    let (mut points, mut refused, mut modelled) = (Vec::<Point>::new(), Vec::new(), 0);
    for found in found {
        match found {
            Found::Points(more) => points.extend(more),
            Found::Modelled(point) => {
                modelled += 1;
                points.push(point);
            }
            Found::Refused { memory_bytes, reason } => refused.push((memory_bytes, reason)),
        }
    }
    let mean_bytes = workload.footprint_bytes as f64 / workload.objects().max(1) as f64;
    let first = points.first().map(|point| point.memory_bytes);
    let (below, above): (Vec<_>, Vec<_>) =
        refused.iter().partition(|(bytes, _)| first.is_none_or(|first| *bytes < first));
    let below = below.last().map(|(bytes, reason)| match first {
        Some(_) => format!("no engine of {} or less", ByteSize::bytes(*bytes)),
        None => format!("no engine of {}: {reason}", ByteSize::bytes(*bytes)),
    });
    let above = above.first().map(|(bytes, _)| format!("no engine of {} or more", ByteSize::bytes(*bytes)));
    let modelled = (modelled > 0)
        .then(|| format!("{modelled} of {} points by a model of segments; --exact replays the trace", points.len()));
    let notes: Vec<String> = below.into_iter().chain(above).chain(modelled).collect();
    let note = (!notes.is_empty()).then(|| notes.join("; "));
    Labelled {
        policy: policy.to_string(),
        group,
        curve: Curve::new(points),
        gets: workload.gets() as f64,
        mean_bytes,
        note,
    }
}

/// A replay through the engine.
fn replayed(workload: &LoadedTrace, policy: ebbtide::Policy, memory_bytes: u64) -> Result<Found, Error> {
    let mut requests = workload.requests();
    let max_value = max_value(workload, memory_bytes).map(ByteSize::bytes);
    let warmup = (workload.warmup > 0).then_some(CountArg(workload.warmup as u64));
    let args = ReplayArgs { max_value, warmup, ..ReplayArgs::of(workload.trace.clone().into()) };
    let cell = replay::Cell { number: None, memory: ByteSize::bytes(memory_bytes), policy };
    match replay_requests(|| Ok(requests.next()), &workload.trace, workload.format, &args, cell) {
        Ok(report) => {
            let point = Point::exact(memory_bytes, report.miss_ratio, report.byte_miss_ratio);
            Ok(Found::Points(vec![point]))
        }
        Err(Error::Cache(ebbtide::Error::Configuration { reason, .. })) => Ok(Found::Refused { memory_bytes, reason }),
        Err(error) => Err(error),
    }
}

/// A reference cache that removes expired objects at once.
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

    /// Inserts or gets the object. True for a hit.
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
            if number >= workload.warmup {
                tally.add(hit, step.bytes(), mix(!workload.id(step.key)));
            }
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
