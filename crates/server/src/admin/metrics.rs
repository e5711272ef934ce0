//! `/metrics`, in the text format of Prometheus. No label takes its values from clients: keys are in the JSON only.

use ebbtide::memcached::{Cache, MemoryStart};
use prometheus::TextEncoder;
use prometheus::proto::{Bucket, Histogram as Buckets, Metric, MetricType};

use super::flash;
use super::metrics_page::{MetricsPage, labels};
use super::overview::resident_bytes;
use super::state::AdminState;
use crate::observe::{CommandKind, LatencyHistogram};
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
    durations(&mut page, state);
    restart(&mut page, &state.shared.cache);
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
