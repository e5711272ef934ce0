//! The JSON that the dashboard and other readers build on. Counts are since the start of the server, whatever
//! `stats reset` does.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use ebbtide::{SegmentSnapshot, Stats};
use serde_json::{Map, Value, json};

use super::flash;
use super::routes::{AdminState, unix_now};
use crate::counters::CommandTotals;
use crate::observe::{HotKeys, LatencyHistogram, Observer, hottest, printable};
use crate::shared::{Shared, lock};

/// What is left of a hot key's weight after a second: half of it after ten.
pub const HOT_KEYS_DECAY: f64 = 0.933;
/// Hot keys that are told.
const HOT_KEYS: usize = 20;

/// `/api/history`.
pub fn history(state: &AdminState) -> Value {
    json!({ "step_seconds": 1, "points": lock(&state.observer).points() })
}

/// `/api/overview`.
pub fn overview(state: &AdminState) -> Value {
    let shared = &*state.shared;
    let cache = shared.cache.stats();
    let census = shared.cache.segment_snapshot();
    let totals = shared.totals();
    let flash = flash::overview(state, totals.get_hits);
    let observer = lock(&state.observer);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "protocol_version": crate::VERSION,
        "pid": std::process::id(),
        "time_unix_ms": unix_now().as_millis() as u64,
        "uptime_seconds": shared.uptime().as_secs(),
        "started_unix_ms": state.started_unix.as_millis() as u64,
        "threads": shared.options.threads,
        "connections": {
            "open": lock(&shared.connections).len(),
            "limit": shared.options.max_connections,
            "accepted_total": shared.accepted.load(Ordering::Relaxed),
            "rejected_total": shared.rejected.load(Ordering::Relaxed),
        },
        "commands": commands(&totals, &cache),
        "network": { "bytes_read_total": totals.bytes_read, "bytes_written_total": totals.bytes_written },
        "items": cache.items,
        "memory": memory(&cache, &census),
        "flash": flash,
        "pools": pools(&totals, &cache, &census),
        "ttl_buckets": ttl_buckets(&census),
        "evictions": {
            "total": cache.evictions,
            "by_reason": {
                "memory": cache.evictions.saturating_sub(cache.index_replaced),
                "index_full": cache.index_replaced,
            },
        },
        "expirations": {
            "total": cache.expired,
            "by_reason": {
                "segment": cache.expired.saturating_sub(cache.flushed),
                "flushed": cache.flushed,
            },
        },
        "segments": {
            "total": cache.segments_total,
            "bytes_each": cache.segment_bytes,
            "free": census.segments_free,
            "open": census.segments_open,
            "sealed": census.segments_sealed,
            "retired": census.segments_retired,
            "expired_total": cache.segments_expired,
            "evicted_total": cache.segments_evicted,
            "compacted_total": cache.segments_compacted,
        },
        "verdict": shared.sizing.verdict(),
        "latency_us": latencies(&observer),
        "hot_keys_hidden": hidden(shared),
        "hot_keys": hot_keys(shared, observer.key_rate()),
        "events": observer.events().collect::<Vec<_>>(),
    })
}

fn commands(totals: &CommandTotals, cache: &Stats) -> Value {
    let pair = |hits: u64, misses: u64| json!({ "hits": hits, "misses": misses });
    json!({
        "get": {
            "hits": totals.get_hits,
            "misses": totals.get_misses,
            "expired": cache.expired_found,
            "flushed": cache.flushed_found,
        },
        "set": {
            "stored": cache.stored_total,
            "not_stored": totals.not_stored,
            "too_large": totals.store_too_large,
            "out_of_memory": totals.store_no_memory,
        },
        "touch": pair(totals.touch_hits, totals.touch_misses),
        "delete": pair(totals.delete_hits, totals.delete_misses),
        "incr": pair(totals.incr_hits, totals.incr_misses),
        "decr": pair(totals.decr_hits, totals.decr_misses),
        "cas": { "hits": totals.cas_hits, "misses": totals.cas_misses, "mismatches": totals.cas_badval },
        "flush": totals.flush_commands,
    })
}

fn memory(cache: &Stats, census: &SegmentSnapshot) -> Value {
    json!({
        "limit_bytes": cache.memory_limit_bytes,
        "used_bytes": cache.memory_used_bytes,
        "live_bytes": census.live_bytes,
        "expired_bytes": census.expired_bytes,
        "dead_bytes": census.dead_bytes,
        "index_bytes": census.index_bytes,
        "metadata_bytes": census.metadata_bytes,
        "free_bytes": census.free_bytes,
        "resident_bytes": resident_bytes(),
    })
}

fn pools(totals: &CommandTotals, cache: &Stats, census: &SegmentSnapshot) -> Value {
    json!([{
        "name": "default",
        "limit_bytes": cache.memory_limit_bytes,
        "used_bytes": cache.memory_used_bytes,
        "live_bytes": census.live_bytes,
        "items": cache.items,
        "hits": totals.get_hits,
        "misses": totals.get_misses,
    }])
}

fn ttl_buckets(census: &SegmentSnapshot) -> Vec<Value> {
    let buckets = census.ttl_buckets.iter().map(|bucket| {
        json!({
            "ttl_seconds_min": bucket.ttl_seconds.map_or(0, |(shortest, _)| shortest),
            "ttl_seconds_max": bucket.ttl_seconds.map(|(_, longest)| longest),
            "segments": bucket.segments,
            "segment_bytes": bucket.segment_bytes,
            "live_bytes": bucket.live_bytes,
            "expired_bytes": bucket.expired_bytes,
            "items": bucket.items,
        })
    });
    buckets.collect()
}

fn latencies(observer: &Observer) -> Map<String, Value> {
    let one = |histogram: &LatencyHistogram| {
        json!({
            "count": histogram.count(),
            "mean": histogram.mean_us(),
            "p50": histogram.quantile_us(0.5),
            "p90": histogram.quantile_us(0.9),
            "p99": histogram.quantile_us(0.99),
            "p999": histogram.quantile_us(0.999),
            "max": histogram.quantile_us(1.0),
        })
    };
    observer.latencies().map(|(command, histogram)| (command.name().to_string(), one(&histogram))).collect()
}

/// Why keys are not told, if they are not: a reader of this address may not ask the server for them.
fn hidden(shared: &Shared) -> Option<&'static str> {
    match () {
        () if shared.options.auth.is_some() => Some("clients must authenticate, and readers of this page do not"),
        () if !shared.options.allow_dump => Some("listing keys is switched off (-X)"),
        () => None,
    }
}

fn hot_keys(shared: &Shared, accesses_per_second: f64) -> Vec<Value> {
    if hidden(shared).is_some() {
        return Vec::new();
    }
    let workers: Vec<MutexGuard<'_, HotKeys>> = shared.samples.iter().map(|samples| lock(&samples.hot_keys)).collect();
    let found = hottest(workers.iter().map(|worker| &**worker), HOT_KEYS);
    drop(workers);
    let told = found.into_iter().map(
        |(key, share)| json!({ "key": printable(&key), "share": share, "per_second": share * accesses_per_second }),
    );
    told.collect()
}

/// What the process has in memory; `None` where the system does not tell.
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes << 10)
}
