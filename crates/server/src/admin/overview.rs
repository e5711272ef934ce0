//! The JSON that the dashboard and other readers build on. Counts are since the start of the server, whatever
//! `stats reset` does.

use std::sync::MutexGuard;

use ebbtide::memcached::{Item, SegmentSnapshot};
use serde_json::{Map, Value, json};

use super::flash;
use super::state::AdminState;
use crate::observe::{HotKeys, HottestKey, LatencyHistogram, Observer, PoolWindow, Window, hottest, printable};
use crate::pools::PoolReading;
use crate::shared::Shared;
use crate::statistics::{
    self, CACHE, NOW, POOL_COMPACT, POOL_COUNTS, POOL_FLASH, POOL_MEMORY, POOL_NOW, Readings, SERVER,
};
use crate::sync::lock;
use crate::unix_time::unix_now;

/// The newest points of the history in an overview: a reader that asks each second misses none.
const POINTS: usize = 5;
/// Maximum number of hot keys in an answer.
const HOT_KEYS: usize = 20;

/// `/api/history`: the last `range_seconds`, or the same time `ago_seconds` earlier.
pub fn history(state: &AdminState, range_seconds: u64, ago_seconds: u64) -> Value {
    let (step_seconds, points) = lock(&state.observer).range(range_seconds, ago_seconds);
    json!({ "step_seconds": step_seconds, "points": points })
}

/// `/api/overview`.
pub fn overview(state: &AdminState) -> Value {
    let shared = &*state.shared;
    let readings = Readings::of(shared);
    let flash = flash::overview(state, readings.totals.get_hits);
    let (level, sentence) = lock(&shared.headline).clone();
    let ratios = shared.sizing.hit_ratios();
    let ratios = ratios.as_ref();
    let recent = *lock(&shared.recent);
    let observer = lock(&state.observer);
    let rate = recent.per_second_or_zero(Window::accesses);
    let points = observer.points();
    let mut answer = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "protocol_version": crate::VERSION,
        "pid": std::process::id(),
        "time_unix_ms": unix_now().as_millis() as u64,
        "uptime_seconds": shared.uptime().as_secs(),
        "started_unix_ms": state.started_unix.as_millis() as u64,
        "history_since_unix_ms": observer.history_since_unix_ms(),
        "history_file": shared.options.history_file.is_some(),
        "threads": shared.options.threads,
        "memory": { "resident_bytes": resident_bytes() },
        "flash": flash,
        "pools": pool_list(shared),
        "ttl_buckets": ttl_buckets(&readings.segments),
        "headline": {
            "level": level.name(),
            "sentence": sentence,
            "pool": ratios.map(|ratios| &ratios.pool),
            "hit_ratio_half_memory": ratios.map(|ratios| ratios.half),
            "hit_ratio_present_memory": ratios.map(|ratios| ratios.present),
            "hit_ratio_twice_memory": ratios.map(|ratios| ratios.twice),
        },
        "verdict": shared.sizing.verdict(),
        "division": shared.sizing.division(),
        "latency_us": latencies(&observer),
        "hot_keys_hidden": shared.keys_hidden(),
        "hot_keys": hot_keys(shared, rate),
        "events": observer.events().collect::<Vec<_>>(),
        "points": points.iter().skip(points.len().saturating_sub(POINTS)).collect::<Vec<_>>(),
    });
    statistics::insert_into(NOW, &recent, &mut answer);
    statistics::insert_into(SERVER, &readings, &mut answer);
    statistics::insert_into(CACHE, &readings, &mut answer);
    answer
}

/// `/api/pools`.
pub fn pools(state: &AdminState) -> Value {
    json!({ "pools": pool_list(&state.shared) })
}

fn pool_list(shared: &Shared) -> Vec<Value> {
    let windows = lock(&shared.recent_pools).clone();
    let window = |name: &str| windows.iter().find(|window| window.pool == name).cloned().unwrap_or_default();
    let readings = shared.pools.current().read(&shared.totals());
    readings.iter().map(|reading| pool(reading, &window(&reading.rule.name))).collect()
}

fn pool(reading: &PoolReading, window: &PoolWindow) -> Value {
    let rule = &reading.rule;
    let mut answer = json!({
        "name": rule.name,
        "prefixes": rule.prefixes.iter().map(|prefix| printable(prefix)).collect::<Vec<_>>(),
        "policy": reading.pool.as_ref().map(|pool| pool.policy().name()),
        "flash": null,
        "kind": if reading.compact.is_some() { "compact" } else { "store" },
        "negatives": null,
        "capacity": null,
    });
    statistics::insert_into(POOL_MEMORY, reading, &mut answer);
    statistics::insert_into(POOL_COUNTS, reading, &mut answer);
    statistics::insert_into(POOL_NOW, window, &mut answer);
    if let Some(flash) = &reading.flash {
        statistics::insert_into(POOL_FLASH, flash, &mut answer["flash"]);
    }
    if let Some(compact) = &reading.compact() {
        statistics::insert_into(POOL_COMPACT, compact, &mut answer);
    }
    answer
}

fn ttl_buckets(segments: &SegmentSnapshot) -> Vec<Value> {
    let buckets = segments.ttl_buckets.iter().map(|bucket| {
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

/// With the size and the TTL of the object in memory; null where it is not there, as of a key that misses.
fn hot_keys(shared: &Shared, accesses_per_second: f64) -> Vec<Value> {
    if shared.keys_hidden().is_some() {
        return Vec::new();
    }
    let workers: Vec<MutexGuard<'_, HotKeys>> = shared.samples.iter().map(|samples| lock(&samples.hot_keys)).collect();
    let found = hottest(workers.iter().map(|worker| &**worker), HOT_KEYS);
    drop(workers);
    let pools = shared.pools.current();
    let told = found.into_iter().map(|HottestKey { key, share, hit_ratio }| {
        // A key of a compact pool has no object of its own.
        let entry = pools.entries.get(pools.prefixes.find(&key));
        let item = entry.and_then(|entry| entry.pool.peek(&key).hit());
        json!({
            "key": printable(&key),
            "share": share,
            "per_second": share * accesses_per_second,
            "hit_ratio": hit_ratio,
            "bytes": item.as_ref().map(Item::stored_bytes),
            "ttl_seconds": item.as_ref().and_then(Item::ttl).map(|ttl| ttl.as_secs()),
        })
    });
    told.collect()
}

/// Resident bytes of the process; `None` if the system does not report them.
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes << 10)
}
