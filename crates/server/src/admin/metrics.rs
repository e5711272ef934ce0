//! `/metrics`, in the text format of Prometheus. No label takes its values from clients: keys are in the JSON only.

use ebbtide::memcached::Cache;
use prometheus::TextEncoder;
use prometheus::proto::{Bucket, Histogram as Buckets, Metric, MetricType};

use super::flash;
use super::metrics_page::{MetricsPage, labels};
use super::overview::resident_bytes;
use super::state::AdminState;
use crate::observe::{CommandKind, LatencyHistogram};
use crate::pools::PoolReading;
use crate::shared::Shared;
use crate::statistics::{
    CACHE, MEMORY_FILE, MONITOR, MemoryFileReading, POOL_COMPACT, POOL_COUNTS, POOL_FLASH, POOL_MEMORY, Readings,
    SERVER,
};

/// Media type of the body.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Buckets end at these powers of two of a nanosecond: 1 us to 1 s. The workers' buckets have the same bounds.
const OCTAVES: std::ops::RangeInclusive<u32> = 10..=30;

/// The whole page.
pub fn metrics(state: &AdminState) -> String {
    let mut page = MetricsPage::default();
    page.gauge("ebbtide_build_info", "The version that runs.", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let started = state.started_unix.as_secs_f64();
    page.gauge("process_start_time_seconds", "When the server started, in seconds since the Unix epoch.", &[], started);
    if let Some(resident) = resident_bytes() {
        page.gauge("process_resident_memory_bytes", "What the process has in memory.", &[], resident as f64);
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

/// Each pool, by name.
fn pools(page: &mut MetricsPage, shared: &Shared) {
    let readings = shared.pools.current().read(&shared.totals());
    let labels: Vec<_> = readings.iter().map(|reading| [("pool", reading.rule.name.as_str())]).collect();
    let all: Vec<(&[_], _)> = labels.iter().map(|label| &label[..]).zip(&readings).collect();
    page.add_rows_of(POOL_MEMORY, &all);
    let compact: Vec<_> = readings.iter().map(PoolReading::compact).collect();
    let of_compact: Vec<(&[_], _)> =
        labels.iter().zip(&compact).filter_map(|(label, compact)| Some((&label[..], compact.as_ref()?))).collect();
    if !of_compact.is_empty() {
        page.add_rows_of(POOL_COMPACT, &of_compact);
    }
    page.add_rows_of(POOL_COUNTS, &all);
    if readings.iter().any(|reading| reading.flash.is_some()) {
        let flash: Vec<_> = readings.iter().map(|reading| reading.flash.unwrap_or_default()).collect();
        let of_flash: Vec<(&[_], _)> = labels.iter().map(|label| &label[..]).zip(&flash).collect();
        page.add_rows_of(POOL_FLASH, &of_flash);
    }
}

/// The memory file and the memory monitor.
fn restart(page: &mut MetricsPage, cache: &Cache) {
    if let Some(file) = MemoryFileReading::of(cache) {
        page.add_rows(MEMORY_FILE, &file);
    }
    if let Some(monitor) = cache.memory_monitor() {
        page.add_rows(MONITOR, &monitor);
    }
}

fn durations(page: &mut MetricsPage, state: &AdminState) {
    let samples = || state.shared.samples.iter().map(|samples| &samples.latencies);
    let metrics = CommandKind::ALL.into_iter().map(|command| {
        let seen = LatencyHistogram::sum(samples(), command);
        let buckets = OCTAVES.map(|octave| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound((1u64 << octave) as f64 / 1e9);
            bucket.set_cumulative_count(seen.cumulative(octave));
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
