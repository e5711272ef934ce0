//! The engine's policies by the model of segments: a point without a replay, for all keys or for a sample.

use ebbtide::Policy;
use ebbtide::memcached::{SegmentModel, StoreOptions};
use ebbtide_control::Point;

use super::tally::{AllGets, Tally};
use crate::Error;
use crate::replay::{Batches, Routed};
use crate::store::ttl_of;
use crate::trace::loaded::{LoadedTrace, Step, is_get};
use crate::trace::{Op, Request};
use crate::workload::{mix, unit};

/// A sample has at least this many of the trace's objects, or all.
const SAMPLED_OBJECTS: f64 = 65_536.0;
/// Sampled objects per segment, and in all, that a cache should hold: twice the minimum of the model.
const OBJECTS_PER_SEGMENT: f64 = 16.0;
const CACHED_OBJECTS: f64 = 8000.0;
/// A sample of more than this share costs nearly as much as all keys.
const MAX_RATE: f64 = 0.5;
/// In a cache of fewer objects a step of the engine decides about a part of all: it is replayed.
const MIN_CACHED: f64 = 1000.0;
/// The model of all keys is this near to a replay (docs/curves.md).
const MODEL_ERROR: f64 = 0.005;

/// The largest value that the engine takes in a curve: larger ones than the default are a part of the curve where
/// memory has space for them.
pub(super) fn max_value(workload: &LoadedTrace, memory_bytes: u64) -> Option<u64> {
    let largest = workload.steps.iter().map(Step::bytes).max().unwrap_or(0).min(memory_bytes / 2);
    (largest > StoreOptions::default().value_bytes_max).then_some(largest)
}

/// The share of the keys that a model of this memory needs. `None` if the cache holds too few objects for the model.
fn sample_rate(workload: &LoadedTrace, options: &StoreOptions) -> Option<f64> {
    let (segments, _) = SegmentModel::segments_of(options).ok()?;
    let objects = workload.objects().max(1) as f64;
    let mean_bytes = workload.footprint_bytes as f64 / objects;
    let cached = (options.memory_bytes as f64 / mean_bytes.max(1.0)).min(objects);
    if cached < MIN_CACHED && objects > cached {
        return None;
    }
    let needed = (OBJECTS_PER_SEGMENT * f64::from(segments)).max(CACHED_OBJECTS) / cached;
    let rate = needed.max(SAMPLED_OBJECTS / objects);
    Some(if rate > MAX_RATE { 1.0 } else { rate })
}

/// The point of a policy of the engine at this memory. `None` if the model cannot tell: the cache, or the sample in it,
/// holds too few objects, or there is no engine of this memory.
///
/// # Errors
/// Those of [`Batches`].
pub(super) fn modelled(workload: &LoadedTrace, policy: Policy, memory_bytes: u64) -> Result<Option<Point>, Error> {
    let defaults = StoreOptions::default();
    let value_bytes_max = max_value(workload, memory_bytes).unwrap_or(defaults.value_bytes_max.min(memory_bytes / 2));
    let options = StoreOptions { memory_bytes, policy, value_bytes_max, seed: 1, ..defaults };
    let Some(rate) = sample_rate(workload, &options) else { return Ok(None) };
    let Ok(mut model) = SegmentModel::new(options, rate) else { return Ok(None) };
    let (mut tally, mut all) = (Tally::default(), AllGets::default());
    let mut requests = workload.requests();
    let mut batches = Batches::new(|| Ok(requests.next().map(|request| Routed { request, pool: 0 })), true)?;
    let (mut batch, mut number) = (Vec::new(), 0);
    while let Some(now) = batches.next_batch(|Routed { request, .. }| batch.push(request))? {
        let now_ms = now.as_millis() as u64;
        model.maintain(now_ms);
        for request in batch.drain(..) {
            let is_counted = number >= workload.warmup;
            number += 1;
            if is_get(request.op) && is_counted {
                all.gets += 1.0;
                all.bytes += bytes_of(&request) as f64;
            }
            if rate >= 1.0 || unit(mix(request.key)) <= rate {
                play(&mut model, is_counted.then_some(&mut tally), &request, now_ms);
            }
        }
    }
    let is_told = model.evictions() == 0 || model.predicts();
    Ok(is_told.then(|| tally.point_of_all(memory_bytes, rate, all, MODEL_ERROR)))
}

fn bytes_of(request: &Request) -> u64 {
    u64::from(request.key_size) + u64::from(request.value_size)
}

/// Applies a request to the model, as a replay applies it to a cache. It is counted if there is a tally.
fn play(model: &mut SegmentModel, tally: Option<&mut Tally>, request: &Request, now_ms: u64) {
    let hash = mix(!request.key);
    let is_stored = match request.op {
        Op::Get | Op::Gets => {
            let hit = model.get(hash, now_ms);
            if let Some(tally) = tally {
                tally.add(hit, bytes_of(request), mix(hash));
            }
            !hit
        }
        Op::Delete => {
            model.delete(hash);
            false
        }
        Op::Add => !model.contains(hash, now_ms),
        Op::Replace | Op::Cas | Op::Append | Op::Prepend => model.contains(hash, now_ms),
        Op::Incr | Op::Decr => !model.get(hash, now_ms),
        Op::Set => true,
    };
    if is_stored {
        let (key, value) = (request.key_size.into(), request.value_size.into());
        model.set(hash, key, value, ttl_of(request.ttl_seconds), now_ms);
    }
}
