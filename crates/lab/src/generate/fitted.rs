//! A workload of shot noise: one cache or several side by side, all requests sorted in memory.

use super::args::refused;
use super::clock::DailyClock;
use super::extent::TraceExtent;
use super::preset::Component;
use super::shot_noise::ShotEvent;
use super::traits::Traits;
use crate::Error;
use crate::trace::Request;
use crate::workload::Random;

/// The random numbers of a part's keys and times start at this stream; the stream before is of the operations.
const FIRST_STREAM: u64 = 1;
const OPERATIONS: u64 = 0;

/// All requests of a workload, with the traits of their keys.
pub(super) struct Fitted {
    seed: u64,
    clock: DailyClock,
    span_seconds: f64,
    events: Vec<ShotEvent>,
    parts: Vec<FittedPart>,
}

/// The keys of one component, numbered from `first_key`.
struct FittedPart {
    first_key: u32,
    traits: Traits,
    value_sizes: Vec<u32>,
}

impl Fitted {
    pub(super) fn new(components: Vec<Component>, span_seconds: u64, extent: &TraceExtent) -> Result<Self, Error> {
        let share = |component: &Component| (extent.requests as f64 * component.share).round() as u64;
        let keys: u64 = components.iter().map(|component| component.model.keys(share(component))).sum();
        if keys > u64::from(u32::MAX) {
            return Err(refused(
                "--requests",
                extent.requests,
                format!("they would be of {keys} keys, and 4294967295 is the most; ask for fewer"),
            ));
        }
        let span_seconds = span_seconds as f64;
        let mut events = Vec::with_capacity((extent.requests + extent.requests / 64) as usize);
        let mut parts = Vec::new();
        let mut first_key = 0;
        for (stream, component) in (FIRST_STREAM..).zip(components) {
            let mut random = Random::new(extent.seed, stream);
            let weights = component.model.weights(share(&component), &mut random);
            component.model.draw(&weights, span_seconds, first_key, &mut random, &mut events);
            let value_sizes = component.traits.value_sizes(extent.seed, first_key, &weights);
            parts.push(FittedPart { first_key, traits: component.traits, value_sizes });
            first_key += weights.len() as u32;
        }
        events.sort_unstable();
        Ok(Self { seed: extent.seed, clock: extent.clock, span_seconds, events, parts })
    }

    pub(super) fn keys(&self) -> u64 {
        self.parts.iter().map(|part| part.value_sizes.len() as u64).sum()
    }

    /// Bytes of the keys and values of all keys.
    pub(super) fn footprint_bytes(&self) -> u64 {
        let sizes = |part: &FittedPart| -> u64 {
            let size = |(key, &value): (u32, &u32)| u64::from(part.traits.key_size(self.seed, key.into()) + value);
            (part.first_key..).zip(&part.value_sizes).map(size).sum()
        };
        self.parts.iter().map(sizes).sum()
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = Request> + '_ {
        let mut random = Random::new(self.seed, OPERATIONS);
        self.events.iter().map(move |event| {
            let key = event.key();
            let part = &self.parts[self.parts.partition_point(|part| part.first_key <= key) - 1];
            Request {
                time_seconds: self.clock.second(event.seconds(self.span_seconds)),
                key: u64::from(key),
                key_size: part.traits.key_size(self.seed, key.into()),
                value_size: part.value_sizes[(key - part.first_key) as usize],
                op: part.traits.op(&mut random),
                ttl_seconds: part.traits.ttl_seconds(self.seed, key.into()),
            }
        })
    }
}
