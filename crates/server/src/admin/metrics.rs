//! `/metrics`, in the text format of Prometheus. No label takes its values from clients: keys are in the JSON only.

use ebbtide::memcached::{Cache, MemoryStart};
use prometheus::TextEncoder;
use prometheus::proto::{Bucket, Histogram as Buckets, Metric, MetricType};

use super::flash;
use super::metrics_page::{MetricSample, MetricsPage, labels};
use super::overview::resident_bytes;
use super::state::AdminState;
use crate::observe::{CommandKind, LatencyHistogram};
use crate::pools::PoolReading;
use crate::shared::Shared;
use crate::statistics::{CACHE, Readings, SERVER};

/// What the body is.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Buckets end at these powers of two of a nanosecond: from 1 us to 1 s, where the workers' own buckets end as well.
const OCTAVES: std::ops::RangeInclusive<u32> = 10..=30;

/// The whole page.
pub fn metrics(state: &AdminState) -> String {
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
    let readings = Readings::of(&state.shared);
    page.add_rows(SERVER, &readings);
    page.add_rows(CACHE, &readings);
    pools(&mut page, &state.shared);
    durations(&mut page, state);
    restart(&mut page, &state.shared.cache);
    flash::metrics(&mut page, state);
    // Names and labels are the literals above: the encoder finds nothing to refuse, as a test shows.
    TextEncoder::new().encode_to_string(&page.families).unwrap_or_default()
}

/// Name, help and value of a metric of pools.
type PoolMetric = (&'static str, &'static str, fn(&PoolReading) -> u64);

/// Each pool, by name.
fn pools(page: &mut MetricsPage, shared: &Shared) {
    let readings = shared.pools.current().read(&shared.totals());
    let labels: Vec<[(&str, &str); 1]> =
        readings.iter().map(|reading| [("pool", reading.rule.name.as_str())]).collect();
    let samples = |read: fn(&PoolReading) -> u64| -> Vec<MetricSample<'_>> {
        labels.iter().zip(&readings).map(|(labels, reading)| (&labels[..], read(reading) as f64)).collect()
    };
    let gauges: [PoolMetric; 3] = [
        ("ebbtide_pool_memory_limit_bytes", "Memory that the pool may use.", |r| r.stats.memory_limit_bytes),
        ("ebbtide_pool_memory_used_bytes", "Memory of the pool but for free segments.", |r| r.stats.memory_used_bytes),
        ("ebbtide_pool_items", "Objects in the pool.", |r| r.stats.items),
    ];
    gauges.into_iter().for_each(|(name, help, read)| page.gauge(name, help, &samples(read)));
    let of_compact: Vec<_> =
        labels.iter().zip(&readings).filter_map(|(label, reading)| Some((label, reading.compact?))).collect();
    let negatives: Vec<MetricSample<'_>> =
        of_compact.iter().map(|(label, compact)| (&label[..], compact.negatives as f64)).collect();
    if !negatives.is_empty() {
        page.gauge("ebbtide_pool_negatives", "Negative results in the compact pool.", &negatives);
    }
    let of_gets: Vec<[(&str, &str); 2]> =
        labels.iter().flat_map(|[label]| [[*label, ("result", "hit")], [*label, ("result", "miss")]]).collect();
    let gets = readings.iter().flat_map(|reading| [reading.totals.gets.hits, reading.totals.gets.misses]);
    let gets: Vec<MetricSample<'_>> = of_gets.iter().zip(gets).map(|(label, n)| (&label[..], n as f64)).collect();
    page.counter("ebbtide_pool_gets_total", "Gets of keys of the pool, by result.", &gets);
    let counters: [PoolMetric; 3] = [
        ("ebbtide_pool_stores_total", "Values stored in the pool.", |r| r.totals.stored),
        ("ebbtide_pool_evictions_total", "Objects of the pool that were alive and had to go.", |r| r.totals.evictions),
        ("ebbtide_pool_expirations_total", "Dead objects of the pool whose memory was taken back.", |r| {
            r.totals.expired
        }),
    ];
    counters.into_iter().for_each(|(name, help, read)| page.counter(name, help, &samples(read)));
    if readings.iter().all(|reading| reading.flash.is_none()) {
        return;
    }
    let bytes = samples(|r| r.flash.unwrap_or_default().bytes);
    page.gauge("ebbtide_pool_flash_bytes", "Bytes of the pool on flash: written and not reclaimed.", &bytes);
    let bytes = samples(|r| r.flash.unwrap_or_default().index_bytes);
    page.gauge("ebbtide_pool_flash_index_bytes", "Memory of the index of flash for objects of the pool.", &bytes);
    let counters: [PoolMetric; 3] = [
        ("ebbtide_pool_flash_hits_total", "Lookups that found an object of the pool on flash.", |r| {
            r.flash.unwrap_or_default().hits
        }),
        ("ebbtide_pool_flash_written_bytes_total", "Bytes of keys and values of the pool that went to flash.", |r| {
            r.flash.unwrap_or_default().written_bytes
        }),
        ("ebbtide_pool_flash_refusals_total", "Objects that flash refused for the share of the pool.", |r| {
            r.flash.unwrap_or_default().refused_by_share
        }),
    ];
    counters.into_iter().for_each(|(name, help, read)| page.counter(name, help, &samples(read)));
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
            (
                "ebbtide_memory_monitor_wanted_bytes",
                "Memory limit that the last step aimed at.",
                monitor.last_step.map_or(0, |step| step.wanted_bytes),
            ),
            (
                "ebbtide_memory_monitor_reached_bytes",
                "Memory limit that the last step reached.",
                monitor.last_step.map_or(0, |step| step.reached_bytes),
            ),
        ];
        gauges.into_iter().for_each(|(name, help, bytes)| page.plain_gauge(name, help, bytes as f64));
        let stall = monitor.stall_percent.unwrap_or(0.0);
        page.plain_gauge("ebbtide_memory_monitor_stall_percent", "Time in which tasks waited for memory (PSI).", stall);
        let counters = [
            ("ebbtide_memory_monitor_shrinks_total", "Steps that lowered the memory limit.", monitor.shrinks),
            ("ebbtide_memory_monitor_grows_total", "Steps that increased the memory limit.", monitor.grows),
            ("ebbtide_memory_monitor_refused_total", "Steps that moved nothing.", monitor.refused),
            ("ebbtide_memory_monitor_unreadable_total", "Readings that failed.", monitor.unreadable),
        ];
        counters.into_iter().for_each(|(name, help, count)| page.plain_counter(name, help, count));
    }
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
