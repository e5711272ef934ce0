//! `/api/keys`: who uses the memory, and why it leaves, by key prefix and by size; the largest objects.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::state::AdminState;
use crate::observe::{Census, EvictionSketch, TrafficSketch, prefix_name, printable};
use crate::sync::lock;

/// Prefixes that are told, those with the most memory or traffic.
const PREFIXES: usize = 20;
/// What the counts of accesses and evictions add up to after long: their decay leaves so many seconds of them.
const DECAYED_SECONDS: f64 = 1.0 / (1.0 - 0.933);

/// `/api/keys`.
pub fn keys(state: &AdminState) -> Value {
    let delimiter = char::from(state.shared.options.prefix_delimiter).to_string();
    if let Some(reason) = state.shared.keys_hidden() {
        return json!({ "delimiter": delimiter, "hidden": reason, "census": null, "prefixes": [], "sizes": [], "largest": [] });
    }
    let traffic = traffic(state);
    let evictions = lock(&state.evictions.groups).clone();
    let census = lock(&state.census).latest.clone();
    let rate = lock(&state.observer).key_rate();
    let empty = Census::default();
    let found = census.as_ref().unwrap_or(&empty);
    json!({
        "delimiter": delimiter,
        "hidden": null,
        "census": census.as_ref().map(|census| json!({
            "objects_looked_at": census.looked_at,
            "complete": census.is_complete,
        })),
        "prefixes": prefixes(found, &traffic, &evictions, rate),
        "sizes": sizes(found),
        "largest": largest(found),
    })
}

fn traffic(state: &AdminState) -> TrafficSketch {
    let mut sum = TrafficSketch::default();
    for samples in &state.shared.samples {
        sum.merge(&lock(&samples.traffic));
    }
    sum
}

fn prefixes(census: &Census, traffic: &TrafficSketch, evictions: &EvictionSketch, rate: f64) -> Vec<Value> {
    let stored = &census.prefixes;
    let ([all_bytes, ..], [all_accesses, ..]) = (stored.total(), traffic.total());
    let known: HashSet<&[u8]> = stored.prefixes().chain(traffic.prefixes()).chain(evictions.prefixes()).collect();
    let mut known: Vec<&[u8]> = known.into_iter().collect();
    let weight =
        |prefix: &[u8]| stored.get(prefix)[0] / all_bytes.max(1.0) + traffic.get(prefix)[0] / all_accesses.max(1.0);
    known.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then_with(|| a.cmp(b)));
    known.truncate(PREFIXES);
    let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
    let row = |prefix: &[u8]| {
        let [bytes, items, unread] = stored.get(prefix);
        let [_, gets, hits, sets] = traffic.get(prefix);
        let [evicted, evicted_unread, idle_seconds] = evictions.get(prefix);
        let per_second = |accesses: f64| share(accesses, all_accesses).map_or(0.0, |share| share * rate);
        json!({
            "prefix": prefix_name(prefix),
            "bytes": bytes.round(),
            "memory_share": share(bytes, all_bytes),
            "items": items.round(),
            "never_read_share": share(unread, items),
            "gets_per_second": per_second(gets),
            "hit_ratio": share(hits, gets),
            "sets_per_second": per_second(sets),
            "evictions_per_second": evicted / DECAYED_SECONDS,
            "evicted_never_read_share": share(evicted_unread, evicted),
            "evicted_idle_seconds": share(idle_seconds, evicted),
        })
    };
    known.into_iter().map(row).collect()
}

fn sizes(census: &Census) -> Vec<Value> {
    let classes = census.classes.iter().enumerate().filter(|(_, [_, items, _])| *items > 0.0);
    let row = |(class, [bytes, items, unread]): (usize, &[f64; 3])| {
        json!({
            "bytes_min": 1u64 << class,
            "bytes_max": (2u64 << class) - 1,
            "bytes": bytes.round(),
            "items": items.round(),
            "never_read_share": unread / items,
        })
    };
    classes.map(row).collect()
}

fn largest(census: &Census) -> Vec<Value> {
    let row = |object: &crate::observe::LargeObject| {
        json!({
            "key": printable(&object.key),
            "bytes": object.bytes,
            "ttl_seconds": object.ttl.map(|ttl| ttl.as_secs()),
            "idle_seconds": object.idle.as_secs(),
            "never_read": !object.is_read,
        })
    };
    census.largest.iter().map(row).collect()
}
