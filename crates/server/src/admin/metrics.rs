//! `/metrics`, in the text format of Prometheus. No label takes its values from clients: keys are in the JSON only.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ebbtide::{Cache, MemoryStart};
use prometheus::TextEncoder;
use prometheus::proto::{Bucket, Counter, Gauge, Histogram as Buckets, LabelPair, Metric, MetricFamily, MetricType};

use super::flash;
use super::overview::resident_bytes;
use super::routes::AdminState;
use crate::counters::CommandTotals;
use crate::observe::{CommandKind, LatencyHistogram};
use crate::shared::lock;

/// What the body is.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Buckets end at these powers of two of a nanosecond: from 1 us to 1 s, where the workers' own buckets end as well.
const OCTAVES: std::ops::RangeInclusive<u32> = 10..=30;

/// The whole page.
pub fn metrics(state: &AdminState) -> String {
    let shared = &*state.shared;
    let totals = shared.totals();
    let cache = shared.cache.stats();
    let mut page = MetricsPage::default();
    page.gauge("ebbtide_build_info", "The version that runs.", &[(&[("version", env!("CARGO_PKG_VERSION"))], 1.0)]);
    let started = state.started_unix.as_secs_f64();
    page.plain_gauge(
        "process_start_time_seconds",
        "When the server started, in seconds since the Unix epoch.",
        started,
    );
    if let Some(resident) = resident_bytes() {
        page.plain_gauge("process_resident_memory_bytes", "What the process has in memory.", resident as f64);
    }
    connections(&mut page, state, &totals);
    commands(&mut page, &totals, &cache);
    memory(&mut page, state, &cache);
    removals(&mut page, &cache);
    durations(&mut page, state);
    restart(&mut page, &shared.cache);
    flash::metrics(&mut page, state);
    // Names and labels are the literals above: the encoder finds nothing to refuse, as a test shows.
    TextEncoder::new().encode_to_string(&page.families).unwrap_or_default()
}

/// The memory file and the memory monitor.
fn restart(page: &mut MetricsPage, cache: &Cache) {
    if let Some(start) = cache.memory_start() {
        let objects = match start {
            MemoryStart::Warm { objects, .. } => *objects,
            MemoryStart::Cold { .. } => 0,
        };
        let help = "Objects that the memory file gave back at the start.";
        page.plain_gauge("ebbtide_memory_file_restored_objects", help, objects as f64);
    }
    if let Some(monitor) = cache.memory_monitor() {
        let gauges = [
            (
                "ebbtide_memory_monitor_configured_bytes",
                "Memory that the monitor may not exceed.",
                monitor.configured_bytes,
            ),
            ("ebbtide_memory_monitor_free_bytes", "Free memory of the host or its tightest group.", monitor.free_bytes),
            ("ebbtide_memory_monitor_resident_bytes", "Resident memory of the process.", monitor.resident_bytes),
        ];
        gauges.into_iter().for_each(|(name, help, bytes)| page.plain_gauge(name, help, bytes as f64));
        let stall = monitor.stall_percent.unwrap_or(0.0);
        page.plain_gauge("ebbtide_memory_monitor_stall_percent", "Time in which tasks waited for memory (PSI).", stall);
        let counters = [
            ("ebbtide_memory_monitor_shrinks_total", "Steps that lowered the memory limit.", monitor.shrinks),
            ("ebbtide_memory_monitor_grows_total", "Steps that increased the memory limit.", monitor.grows),
            ("ebbtide_memory_monitor_refused_total", "Limits that the cache refused.", monitor.refused),
            ("ebbtide_memory_monitor_unreadable_total", "Readings that failed.", monitor.unreadable),
        ];
        counters.into_iter().for_each(|(name, help, count)| page.plain_counter(name, help, count));
    }
}

fn connections(page: &mut MetricsPage, state: &AdminState, totals: &CommandTotals) {
    let shared = &*state.shared;
    let open = lock(&shared.connections).len();
    page.plain_gauge("ebbtide_connections", "Connections that are open.", open as f64);
    let limit = shared.options.max_connections as f64;
    page.plain_gauge("ebbtide_connections_limit", "Connections that may be open (-c).", limit);
    let accepted = shared.accepted.load(Ordering::Relaxed);
    page.plain_counter("ebbtide_connections_accepted_total", "Connections taken.", accepted);
    let rejected = shared.rejected.load(Ordering::Relaxed);
    page.plain_counter("ebbtide_connections_rejected_total", "Connections refused above the limit.", rejected);
    let idle = totals.idle_kicks;
    page.plain_counter("ebbtide_connections_idle_closed_total", "Connections closed because they were idle.", idle);
    page.counter(
        "ebbtide_busy_poll_seconds_total",
        "Time in which workers asked for news instead of sleeping (--busy-poll), of all together.",
        &[(&[], Duration::from_nanos(totals.busy_poll_ns).as_secs_f64())],
    );
    let waits = totals.memory_waits;
    page.plain_counter(
        "ebbtide_memory_waits_total",
        "Commands put off because they would have waited for memory.",
        waits,
    );
    page.plain_counter("ebbtide_network_received_bytes_total", "Bytes read from clients.", totals.bytes_read);
    page.plain_counter("ebbtide_network_sent_bytes_total", "Bytes written to clients.", totals.bytes_written);
}

fn commands(page: &mut MetricsPage, totals: &CommandTotals, cache: &ebbtide::Stats) {
    let results = [
        ("get", "hit", totals.get_hits),
        ("get", "miss", totals.get_misses),
        ("touch", "hit", totals.touch_hits),
        ("touch", "miss", totals.touch_misses),
        ("delete", "hit", totals.delete_hits),
        ("delete", "miss", totals.delete_misses),
        ("incr", "hit", totals.incr_hits),
        ("incr", "miss", totals.incr_misses),
        ("decr", "hit", totals.decr_hits),
        ("decr", "miss", totals.decr_misses),
        ("cas", "hit", totals.cas_hits),
        ("cas", "miss", totals.cas_misses),
        ("cas", "mismatch", totals.cas_badval),
    ];
    let labels = results.map(|(command, result, _)| [("command", command), ("result", result)]);
    let samples: Vec<MetricSample<'_>> =
        labels.iter().zip(&results).map(|(labels, result)| (labels.as_slice(), result.2 as f64)).collect();
    page.counter("ebbtide_commands_total", "Keys asked for, by command and result; gat counts as touch.", &samples);
    page.by(
        "ebbtide_stores_total",
        "Storage commands by result.",
        "result",
        &[
            ("stored", cache.stored_total),
            ("not_stored", totals.not_stored),
            ("too_large", totals.store_too_large),
            ("out_of_memory", totals.store_no_memory),
        ],
    );
    page.by(
        "ebbtide_dead_found_total",
        "Lookups that missed because what they found had expired or was flushed.",
        "reason",
        &[("expired", cache.expired_found), ("flushed", cache.flushed_found)],
    );
    page.plain_counter("ebbtide_flushes_total", "flush_all commands.", totals.flush_commands);
}

fn memory(page: &mut MetricsPage, state: &AdminState, cache: &ebbtide::Stats) {
    let census = state.shared.cache.segment_snapshot();
    page.plain_gauge("ebbtide_items", "Objects in the index.", cache.items as f64);
    page.plain_gauge("ebbtide_memory_limit_bytes", "The memory limit (-m).", cache.memory_limit_bytes as f64);
    page.plain_gauge("ebbtide_memory_used_bytes", "All but the free segments.", cache.memory_used_bytes as f64);
    page.gauge(
        "ebbtide_memory_bytes",
        "The memory limit by what it is used for.",
        &[
            (&[("use", "live")], census.live_bytes as f64),
            (&[("use", "expired")], census.expired_bytes as f64),
            (&[("use", "dead")], census.dead_bytes as f64),
            (&[("use", "index")], census.index_bytes as f64),
            (&[("use", "metadata")], census.metadata_bytes as f64),
            (&[("use", "free")], census.free_bytes as f64),
        ],
    );
    page.plain_gauge("ebbtide_index_load_ratio", "Slots of the index in use, over all.", cache.index_load);
    page.plain_gauge("ebbtide_pinned_bytes", "Memory held for answers on their way out.", cache.pinned_bytes as f64);
    page.plain_gauge("ebbtide_upload_bytes", "Memory of long values that are arriving.", cache.upload_bytes as f64);
    page.gauge(
        "ebbtide_segments",
        "Segments by state.",
        &[
            (&[("state", "free")], census.segments_free as f64),
            (&[("state", "open")], census.segments_open as f64),
            (&[("state", "sealed")], census.segments_sealed as f64),
            (&[("state", "retired")], census.segments_retired as f64),
        ],
    );
}

fn removals(page: &mut MetricsPage, cache: &ebbtide::Stats) {
    page.by(
        "ebbtide_evictions_total",
        "Objects that were alive and had to go, by reason.",
        "reason",
        &[("memory", cache.evictions.saturating_sub(cache.index_replaced)), ("index_full", cache.index_replaced)],
    );
    page.by(
        "ebbtide_expirations_total",
        "Dead objects whose memory was taken back, by reason.",
        "reason",
        &[("segment", cache.expired.saturating_sub(cache.flushed)), ("flushed", cache.flushed)],
    );
    page.by(
        "ebbtide_segments_reclaimed_total",
        "Segments given back, by what emptied them.",
        "reason",
        &[
            ("expired", cache.segments_expired),
            ("evicted", cache.segments_evicted),
            ("compacted", cache.segments_compacted),
        ],
    );
}

fn durations(page: &mut MetricsPage, state: &AdminState) {
    let samples = || state.shared.samples.iter().map(|samples| &samples.latencies);
    let metrics = CommandKind::ALL.into_iter().map(|command| {
        let seen = LatencyHistogram::sum(samples(), command);
        let buckets = OCTAVES.map(|octave| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound((1u64 << octave) as f64 / 1e9);
            bucket.set_cumulative_count(seen.below(octave));
            bucket
        });
        let mut histogram = Buckets::default();
        histogram.set_bucket(buckets.collect());
        histogram.set_sample_count(seen.count());
        histogram.set_sample_sum(seen.sum_seconds());
        let mut metric = Metric::from_label(labels(&[("command", command.name())]));
        metric.set_histogram(histogram);
        metric
    });
    let help = "From the read that completed a command until its answer was in the output; estimated from samples.";
    page.add("ebbtide_command_duration_seconds", help, MetricType::HISTOGRAM, metrics.collect());
}

/// Labels and a value.
type MetricSample<'a> = (&'a [(&'a str, &'a str)], f64);

pub fn labels(pairs: &[(&str, &str)]) -> Vec<LabelPair> {
    let label = |(name, value): &(&str, &str)| {
        let mut label = LabelPair::default();
        label.set_name((*name).to_string());
        label.set_value((*value).to_string());
        label
    };
    pairs.iter().map(label).collect()
}

/// The families in their order.
#[derive(Default)]
pub struct MetricsPage {
    families: Vec<MetricFamily>,
}

impl MetricsPage {
    pub fn add(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) {
        let mut family = MetricFamily::default();
        family.set_name(name.to_string());
        family.set_help(help.to_string());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.families.push(family);
    }

    pub fn gauge(&mut self, name: &str, help: &str, samples: &[MetricSample<'_>]) {
        let metrics = samples.iter().map(|(pairs, value)| {
            let mut gauge = Gauge::default();
            gauge.set_value(*value);
            let mut metric = Metric::from_label(labels(pairs));
            metric.set_gauge(gauge);
            metric
        });
        self.add(name, help, MetricType::GAUGE, metrics.collect());
    }

    pub fn plain_gauge(&mut self, name: &str, help: &str, value: f64) {
        self.gauge(name, help, &[(&[], value)]);
    }

    fn counter(&mut self, name: &str, help: &str, samples: &[MetricSample<'_>]) {
        let metrics = samples.iter().map(|(pairs, value)| {
            let mut counter = Counter::default();
            counter.set_value(*value);
            let mut metric = Metric::from_label(labels(pairs));
            metric.set_counter(counter);
            metric
        });
        self.add(name, help, MetricType::COUNTER, metrics.collect());
    }

    pub fn plain_counter(&mut self, name: &str, help: &str, value: u64) {
        self.counter(name, help, &[(&[], value as f64)]);
    }

    /// A counter with one label.
    pub fn by(&mut self, name: &str, help: &str, label: &str, values: &[(&str, u64)]) {
        let pairs: Vec<_> = values.iter().map(|(value, _)| [(label, *value)]).collect();
        let samples: Vec<MetricSample<'_>> =
            pairs.iter().zip(values).map(|(pair, (_, count))| (pair.as_slice(), *count as f64)).collect();
        self.counter(name, help, &samples);
    }
}
