//! `/api/keys`: use of memory and reasons of removals, by key prefix and by size; the largest objects.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::state::AdminState;
use crate::observe::{
    Census, EvictionCounts, EvictionGroups, EvictionSketch, LargeObject, Recent, SizeClass, TrafficSketch, Window,
    prefix_name, printable, size_range, ttl_of_group,
};
use crate::sync::lock;

/// Maximum number of prefixes in an answer, those with the most memory or traffic.
const PREFIXES: usize = 20;

/// `/api/keys`.
pub fn keys(state: &AdminState) -> Value {
    let census = lock(&state.census).latest.clone();
    let empty = Census::default();
    let found = census.as_ref().unwrap_or(&empty);
    let hidden = state.shared.keys_hidden();
    let (recent, evictions) = (*lock(&state.shared.recent), lock(&state.shared.evictions.samples.groups).clone());
    let (prefixes, largest) = match hidden {
        Some(_) => (Vec::new(), Vec::new()),
        None => (prefixes(found, &state.shared.traffic(), &evictions.prefixes, &recent), largest(state, found)),
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
        "evicted": evicted(&evictions, &recent),
        "largest": largest,
    })
}

fn prefixes(census: &Census, traffic: &TrafficSketch, evictions: &EvictionSketch, recent: &Recent) -> Vec<Value> {
    let stored = &census.prefixes;
    let ([all_bytes, ..], [all_accesses, ..]) = (stored.total(), traffic.total());
    let known: HashSet<&[u8]> = stored.prefixes().chain(traffic.prefixes()).chain(evictions.prefixes()).collect();
    let mut known: Vec<&[u8]> = known.into_iter().collect();
    let weight =
        |prefix: &[u8]| stored.get(prefix)[0] / all_bytes.max(1.0) + traffic.get(prefix)[0] / all_accesses.max(1.0);
    known.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then_with(|| a.cmp(b)));
    known.truncate(PREFIXES);
    let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
    let rate = recent.per_second_or_zero(Window::accesses);
    let row = |prefix: &[u8]| {
        let [bytes, items, unread] = stored.get(prefix);
        let [_, gets, hits, sets] = traffic.get(prefix);
        let per_second = |accesses: f64| share(accesses, all_accesses).map_or(0.0, |share| share * rate);
        let mut row = json!({
            "prefix": prefix_name(prefix),
            "bytes": bytes.round(),
            "memory_share": share(bytes, all_bytes),
            "items": items.round(),
            "unread_share": share(unread, items),
            "gets_per_second": per_second(gets),
            "hit_ratio": share(hits, gets),
            "sets_per_second": per_second(sets),
        });
        insert_evictions(&mut row, evictions, prefix, recent);
        row
    };
    known.into_iter().map(row).collect()
}

/// The evictions of a group: its share of the sample, of the evictions of the last minute.
fn insert_evictions(row: &mut Value, evictions: &EvictionSketch, group: &[u8], recent: &Recent) {
    let (all, counts) = (EvictionCounts::from(evictions.total()), EvictionCounts::from(evictions.get(group)));
    let share = if all.evicted > 0.0 { counts.evicted / all.evicted } else { 0.0 };
    row["evictions_per_second"] = (share * recent.per_second_or_zero(|window| window.evictions)).into();
    row["evicted_unread_share"] = counts.unread_share().into();
    row["evicted_idle_seconds"] = counts.idle_seconds().into();
    row["evicted_age_seconds"] = counts.age_seconds().into();
}

/// Evictions by pool, size and TTL, each with the most first.
fn evicted(evictions: &EvictionGroups, recent: &Recent) -> Value {
    let list = |groups: &EvictionSketch, name: fn(&[u8]) -> Value| {
        let mut known: Vec<&[u8]> = groups.prefixes().collect();
        known.sort_by(|a, b| groups.get(b)[0].total_cmp(&groups.get(a)[0]).then_with(|| a.cmp(b)));
        let rows = known.into_iter().map(|group| {
            let mut row = name(group);
            insert_evictions(&mut row, groups, group, recent);
            row
        });
        rows.collect::<Vec<_>>()
    };
    json!({
        "pools": list(&evictions.pools, |group| json!({ "pool": String::from_utf8_lossy(group) })),
        "sizes": list(&evictions.sizes, |group| {
            let (min, max) = size_range(group.first().copied().unwrap_or(0));
            json!({ "bytes_min": min, "bytes_max": max })
        }),
        "ttls": list(&evictions.ttls, |group| {
            let range = ttl_of_group(group);
            json!({ "ttl_seconds_min": range.map_or(0, |(min, _)| min), "ttl_seconds_max": range.map(|(_, max)| max) })
        }),
    })
}

fn sizes(census: &Census) -> Vec<Value> {
    let row = |SizeClass { bytes_min, bytes_max, counts: [bytes, items, unread] }: SizeClass| {
        json!({
            "bytes_min": bytes_min,
            "bytes_max": bytes_max,
            "bytes": bytes.round(),
            "items": items.round(),
            "unread_share": unread / items,
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
            "unread": object.is_unread,
            "hit_ratio": (gets > 0.0).then_some(hits / gets),
        })
    };
    census.largest.iter().map(row).collect()
}
