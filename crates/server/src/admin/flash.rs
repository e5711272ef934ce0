//! Flash in the JSON and in the metrics; nothing where there is none.

use ebbtide::flash::{LaneStats, LatencyHistogram};
use ebbtide::memcached::FlashStats;
use prometheus::proto::{Bucket, Histogram as Buckets, Metric, MetricType};
use serde_json::{Map, Value, json};

use super::metrics_page::{MetricsPage, labels};
use super::state::AdminState;
use crate::extstore_counts::health;
use crate::observe::WearRate;
use crate::statistics::{self, FLASH, WEAR};
use crate::sync::lock;

/// Buckets of the metrics end at these powers of two of a microsecond: 8 us to 4 s.
const OCTAVES: std::ops::RangeInclusive<u32> = 3..=22;
const PERCENTILES: [(&str, f64); 4] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p999", 99.9)];

/// Value of `flash` in `/api/overview`: null without flash.
pub fn overview(state: &AdminState, get_hits: u64) -> Value {
    let Some(flash) = state.shared.cache.flash_stats() else { return Value::Null };
    let (tier, wear_rate) = (&flash.tier, wear_rate(state, &flash));
    let device = &tier.device;
    let mut answer = json!({
        "health": health(device.health),
        "hits": { "memory": get_hits.saturating_sub(tier.hits_large + tier.hits_small) },
        "latency_us": { "read": latency(&device.reads), "write": latency(&device.writes) },
        "wear": { "is_measured": wear_rate.is_measured },
    });
    statistics::insert_into(WEAR, &wear_rate, &mut answer["wear"]);
    statistics::insert_into(FLASH, &flash, &mut answer);
    answer
}

/// The families of flash.
pub fn metrics(page: &mut MetricsPage, state: &AdminState) {
    let Some(flash) = state.shared.cache.flash_stats() else { return };
    page.add_rows(FLASH, &flash);
    transfer_durations(page, &flash);
    page.add_rows(WEAR, &wear_rate(state, &flash));
}

fn transfer_durations(page: &mut MetricsPage, flash: &FlashStats) {
    let device = &flash.tier.device;
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

fn wear_rate(state: &AdminState, flash: &FlashStats) -> WearRate {
    let rating = state.shared.options.flash_rating;
    lock(&state.observer).wear_rate(flash.tier.capacity_bytes, rating)
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
