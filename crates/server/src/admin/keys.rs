//! `/api/keys`: who uses the memory, and why it leaves, by key prefix and by size; the largest objects.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::state::AdminState;
use crate::observe::{Census, EvictionSketch, LargeObject, SizeClass, TrafficSketch, prefix_name, printable};
use crate::sync::lock;

/// Prefixes that are told, those with the most memory or traffic.
const PREFIXES: usize = 20;
/// What the counts of accesses and evictions add up to after long: their decay leaves so many seconds of them.
const DECAYED_SECONDS: f64 = 1.0 / (1.0 - 0.933);

/// `/api/keys`.
pub fn keys(state: &AdminState) -> Value {
    let census = lock(&state.census).latest.clone();
    let empty = Census::default();
    let found = census.as_ref().unwrap_or(&empty);
    let hidden = state.shared.keys_hidden();
    let (prefixes, largest) = match hidden {
        Some(_) => (Vec::new(), Vec::new()),
        None => {
            let evictions = lock(&state.evictions.groups).clone();
            let rate = lock(&state.observer).key_rate();
            (prefixes(found, &traffic(state), &evictions, rate), largest(state, found))
        }
    };
    json!({
        "delimiter": char::from(state.shared.options.prefix_delimiter).to_string(),
        "hidden": hidden,
        "census": census.as_ref().map(|census| json!({
            "objects_looked_at": census.looked_at,
            "complete": census.is_complete,
        })),
        "prefixes": prefixes,
        "sizes": sizes(found),
        "largest": largest,
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
    let row = |SizeClass { bytes_min, bytes_max, counts: [bytes, items, unread] }: SizeClass| {
        json!({
            "bytes_min": bytes_min,
            "bytes_max": bytes_max,
            "bytes": bytes.round(),
            "items": items.round(),
            "never_read_share": unread / items,
        })
    };
    census.size_classes().map(row).collect()
}

/// With the share of hits among the sampled gets since the key was first among the largest; null without gets.
fn largest(state: &AdminState, census: &Census) -> Vec<Value> {
    let row = |object: &LargeObject| {
        let [gets, hits] = state.shared.samples.iter().fold([0.0; 2], |[all_gets, all_hits], samples| {
            let [gets, hits] = lock(&samples.watched_keys).get(&object.key);
            [all_gets + gets, all_hits + hits]
        });
        json!({
            "key": printable(&object.key),
            "bytes": object.bytes,
            "ttl_seconds": object.ttl.map(|ttl| ttl.as_secs()),
            "idle_seconds": object.idle.as_secs(),
            "never_read": !object.is_read,
            "hit_ratio": (gets > 0.0).then_some(hits / gets),
        })
    };
    census.largest.iter().map(row).collect()
}
