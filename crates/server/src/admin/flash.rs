//! Flash in the JSON and in the metrics; nothing where there is none.

use ebbtide::FlashStats;
use ebbtide::flash::{Health, LaneStats, LatencyHistogram};
use prometheus::proto::{Bucket, Histogram as Buckets, Metric, MetricType};
use serde_json::{Map, Value, json};

use super::metrics::{MetricsPage, labels};
use super::routes::AdminState;
use crate::execute::health;
use crate::observe::WearRate;
use crate::shared::lock;

/// Buckets of the metrics end at these powers of two of a microsecond: 8 us to 4 s.
const OCTAVES: std::ops::RangeInclusive<u32> = 3..=22;
const PERCENTILES: [(&str, f64); 4] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p999", 99.9)];
const DAY_SECONDS: f64 = 86_400.0;

/// What `/api/overview` has under `flash`: null without flash.
pub fn overview(state: &AdminState, get_hits: u64) -> Value {
    let Some(flash) = state.shared.cache.flash_stats() else { return Value::Null };
    let (tier, wear_rate) = (&flash.tier, wear_rate(state, &flash));
    let device = &tier.device;
    json!({
        "health": health(device.health),
        "capacity_bytes": tier.capacity_bytes,
        "used_bytes": tier.large_used_bytes() + tier.small_used_bytes(),
        "memory_bytes": tier.memory_bytes,
        "objects": tier.objects,
        "hits": {
            "memory": get_hits.saturating_sub(tier.hits_large + tier.hits_small),
            "large": tier.hits_large,
            "small": tier.hits_small,
        },
        "lookups_total": lookups(&flash),
        "promoted_total": flash.promoted,
        "served_total": flash.served,
        "unchanged_total": flash.unchanged,
        "inserted_total": tier.inserts,
        "inserted_bytes_total": tier.inserted_bytes,
        "written_bytes_total": tier.written.total(),
        "written_bytes": object(&written(&flash)),
        "read_bytes_total": device.reads.bytes,
        "write_amplification": tier.write_amplification(),
        "ended": object(&flash.tier.evictions.by_cause()),
        "drops": object(&flash.tier.drops.by_reason()),
        "refusals": object(&refusals(&flash)),
        "corrupt_total": corrupt(&flash),
        "transfers": {
            "under_way": device.under_way,
            "most_under_way": device.max_under_way,
            "refused_total": device.refusals,
            "read_errors_total": device.reads.errors,
            "write_errors_total": device.writes.errors,
        },
        "latency_us": { "read": latency(&device.reads), "write": latency(&device.writes) },
        "wear": {
            "bytes_per_day": wear_rate.bytes_per_day,
            "drive_writes_per_day": wear_rate.drive_writes_per_day,
            "device_write_amplification": wear_rate.device_amplification,
            "is_measured": wear_rate.is_measured,
            // Null where the drive does not tell.
            "life_used": wear_rate.life_used,
            // Endless is null.
            "life_days": wear_rate.life_seconds / DAY_SECONDS,
        },
    })
}

/// The families of flash.
pub fn metrics(page: &mut MetricsPage, state: &AdminState) {
    let Some(flash) = state.shared.cache.flash_stats() else { return };
    space(page, &flash);
    reads(page, &flash);
    writes(page, &flash);
    device(page, &flash);
    wear(page, &wear_rate(state, &flash));
}

fn space(page: &mut MetricsPage, flash: &FlashStats) {
    let tier = &flash.tier;
    page.plain_gauge("ebbtide_flash_capacity_bytes", "What objects may take on flash.", tier.capacity_bytes as f64);
    page.gauge(
        "ebbtide_flash_used_bytes",
        "Bytes of the objects on flash, estimated from the mean of those inserted.",
        &[
            (&[("store", "large")], tier.large_used_bytes() as f64),
            (&[("store", "small")], tier.small_used_bytes() as f64),
        ],
    );
    page.gauge(
        "ebbtide_flash_objects",
        "Objects on flash, expired ones too.",
        &[(&[("store", "large")], tier.large.objects as f64), (&[("store", "small")], tier.small.objects() as f64)],
    );
    page.plain_gauge(
        "ebbtide_flash_memory_bytes",
        "Memory of the indexes and buffers of flash, of values that were read, and of dumps.",
        tier.memory_bytes as f64,
    );
    page.plain_gauge(
        "ebbtide_flash_regions_retired",
        "Regions of large objects that are not used any more, because a transfer failed.",
        tier.large.regions_retired as f64,
    );
}

fn reads(page: &mut MetricsPage, flash: &FlashStats) {
    let tier = &flash.tier;
    page.plain_counter("ebbtide_flash_lookups_total", "Keys looked for on flash.", lookups(flash));
    page.by(
        "ebbtide_flash_hits_total",
        "Keys found on flash.",
        "store",
        &[("large", tier.hits_large), ("small", tier.hits_small)],
    );
    page.plain_counter("ebbtide_flash_promoted_total", "Objects that came back to memory.", flash.promoted);
    page.plain_counter(
        "ebbtide_flash_served_total",
        "Objects that were answered from flash and did not come back.",
        flash.served,
    );
    page.plain_counter(
        "ebbtide_flash_promotions_refused_total",
        "Objects that were found and could not come back, for want of memory.",
        flash.promotions_refused,
    );
    page.plain_counter("ebbtide_flash_corrupt_total", "Reads that brought wrong bytes: misses.", corrupt(flash));
}

fn writes(page: &mut MetricsPage, flash: &FlashStats) {
    let (tier, small) = (&flash.tier, &flash.tier.small.counts);
    page.by(
        "ebbtide_flash_inserted_total",
        "Objects that were taken.",
        "store",
        &[("large", tier.large.inserts), ("small", small.inserted)],
    );
    page.by(
        "ebbtide_flash_inserted_bytes_total",
        "Bytes of these.",
        "store",
        &[("large", tier.large.inserted_bytes), ("small", small.inserted_bytes)],
    );
    page.by("ebbtide_flash_written_bytes_total", "Bytes written, by cause.", "cause", &written(flash));
    page.plain_gauge(
        "ebbtide_flash_write_amplification_ratio",
        "Bytes written for each byte inserted, since the start.",
        tier.write_amplification(),
    );
    page.plain_counter(
        "ebbtide_flash_unchanged_total",
        "Evicted objects that flash held already, so that nothing was written.",
        flash.unchanged,
    );
    page.by(
        "ebbtide_flash_refusals_total",
        "Evicted objects that admission refused, by reason.",
        "reason",
        &refusals(flash),
    );
    page.by(
        "ebbtide_flash_drops_total",
        "Evicted objects that were admitted and not taken, by reason.",
        "reason",
        &flash.tier.drops.by_reason(),
    );
    page.by(
        "ebbtide_flash_ended_total",
        "Objects that flash had and gave up, by cause.",
        "cause",
        &flash.tier.evictions.by_cause(),
    );
}

fn device(page: &mut MetricsPage, flash: &FlashStats) {
    let device = &flash.tier.device;
    let states = [Health::Healthy, Health::Degraded, Health::Failed].map(|state| (state, [("state", health(state))]));
    let samples = states.each_ref().map(|(state, pair)| (&pair[..], f64::from(u8::from(device.health == *state))));
    page.gauge("ebbtide_flash_health", "1 for the state in which the device is.", &samples);
    page.plain_gauge(
        "ebbtide_flash_transfers_under_way",
        "Reads and writes that wait for the device.",
        device.under_way as f64,
    );
    page.plain_counter(
        "ebbtide_flash_queue_refusals_total",
        "Reads and writes that found the queue of the device full.",
        device.refusals,
    );
    page.by(
        "ebbtide_flash_transferred_bytes_total",
        "Bytes that went to the device and came from it.",
        "direction",
        &[("read", device.reads.bytes), ("write", device.writes.bytes)],
    );
    page.by(
        "ebbtide_flash_transfer_errors_total",
        "Reads and writes that failed.",
        "direction",
        &[("read", device.reads.errors), ("write", device.writes.errors)],
    );
    let metrics = [("read", &device.reads), ("write", &device.writes)].map(|(direction, lane)| {
        let mut metric = Metric::from_label(labels(&[("direction", direction)]));
        metric.set_histogram(durations(&lane.latencies));
        metric
    });
    page.add(
        "ebbtide_flash_transfer_duration_seconds",
        "From the submission of a read or write until it was done.",
        MetricType::HISTOGRAM,
        metrics.to_vec(),
    );
}

fn wear(page: &mut MetricsPage, wear_rate: &WearRate) {
    page.plain_gauge(
        "ebbtide_flash_drive_writes_per_day",
        "How often a day flash is written over, at the pace of the last hour.",
        wear_rate.drive_writes_per_day,
    );
    page.plain_gauge(
        "ebbtide_flash_device_write_amplification_ratio",
        "Bytes that the drive writes for each that it is given; estimated, unless it tells.",
        wear_rate.device_amplification,
    );
    page.plain_gauge(
        "ebbtide_flash_projected_life_seconds",
        "How long the drive lasts at this pace, a new one unless it tells; +Inf if nothing is written.",
        wear_rate.life_seconds,
    );
    page.plain_gauge(
        "ebbtide_flash_drive_life_used_ratio",
        "The part of its life that the drive says it has used; NaN if it does not tell.",
        wear_rate.life_used.unwrap_or(f64::NAN),
    );
}

fn wear_rate(state: &AdminState, flash: &FlashStats) -> WearRate {
    let rating = state.shared.options.flash_rating;
    lock(&state.observer).wear_rate(flash.tier.capacity_bytes, rating)
}

fn lookups(flash: &FlashStats) -> u64 {
    // What is not among the large ones is looked for among the small ones.
    flash.tier.hits_large + flash.tier.small.counts.lookups
}

fn corrupt(flash: &FlashStats) -> u64 {
    let (large, small) = (&flash.tier.large, &flash.tier.small.counts);
    large.misses_corrupt + large.scans_corrupt + small.corrupt_pages
}

fn written(flash: &FlashStats) -> [(&'static str, u64); 7] {
    let written = &flash.tier.written;
    [
        ("large_objects", written.large_objects),
        ("large_again", written.large_again),
        ("large_frames", written.large_frames),
        ("small_log", written.small_log),
        ("small_pages", written.small_pages),
        ("small_zeros", written.small_zeros),
        ("superblock", written.superblock),
    ]
}

fn refusals(flash: &FlashStats) -> [(&'static str, u64); 5] {
    let admission = &flash.tier.admission;
    [
        ("expires_soon", admission.refused_expires_soon),
        ("too_small", admission.refused_too_small),
        ("policy", admission.refused_by_policy),
        ("budget", admission.refused_by_budget),
        ("displaced", flash.tier.displaced),
    ]
}

fn object(pairs: &[(&str, u64)]) -> Map<String, Value> {
    pairs.iter().map(|(name, number)| ((*name).to_string(), Value::from(*number))).collect()
}

fn latency(lane: &LaneStats) -> Map<String, Value> {
    let micros = |percent| lane.latencies.percentile(percent).map(|latency| latency.as_micros() as u64);
    let percentiles = PERCENTILES.map(|(name, percent)| (name.to_string(), Value::from(micros(percent))));
    percentiles.into_iter().chain([("count".to_string(), Value::from(lane.latencies.count()))]).collect()
}

/// The sum is of the ends of buckets, an eighth too high at most.
fn durations(latencies: &LatencyHistogram) -> Buckets {
    let buckets = OCTAVES.map(|octave| {
        let end_us = 1u128 << octave;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(end_us as f64 / 1e6);
        let within = latencies.buckets().filter(|(limit, _)| limit.as_micros() < end_us);
        bucket.set_cumulative_count(within.map(|(_, count)| count).sum());
        bucket
    });
    let mut histogram = Buckets::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(latencies.count());
    let sum = latencies.buckets().map(|(limit, count)| limit.as_secs_f64() * count as f64);
    histogram.set_sample_sum(sum.sum());
    histogram
}
