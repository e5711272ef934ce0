//! Latencies of each second as a log of HDR histograms: the interval log of HdrHistogram, which HdrHistogramVisualizer,
//! hdr-plot and the libraries of all languages read. Values are in nanoseconds, tagged `get`, `set` and
//! `delete`.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogWriter, IntervalLogWriterBuilder, Tag};
use hdrhistogram::serialization::{V2DeflateSerializeError, V2DeflateSerializer};

use super::interval::Interval;
use crate::Error;
use crate::trace::Output;

/// Runs `load` with a sink for its intervals, which writes the log where there is a path.
pub(super) fn with_log<T>(
    path: Option<&Path>,
    overwrite: bool,
    load: impl FnOnce(&mut dyn FnMut(Duration, Duration, &Interval) -> Result<(), Error>) -> Result<T, Error>,
) -> Result<T, Error> {
    let Some(path) = path else { return load(&mut |_, _, _| Ok(())) };
    let mut output = Output::create(path, overwrite)?;
    let failed = |source| Error::Write { trace: path.display().to_string(), source };
    let mut serializer = V2DeflateSerializer::new();
    let started = SystemTime::now();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("ebbtide bench; values in nanoseconds")
        .with_start_time(started)
        .with_base_time(started)
        .begin_log_with(&mut output, &mut serializer)
        .map_err(failed)?;
    let mut has_intervals = false;
    let mut write = |start: Duration, length: Duration, interval: &Interval| {
        has_intervals = true;
        let Interval { get_latency, set_latency, delete_latency, .. } = interval;
        for (tag, histogram) in [("get", get_latency), ("set", set_latency), ("delete", delete_latency)] {
            write_interval(&mut log, (start, length), tag, histogram).map_err(failed)?;
        }
        Ok(())
    };
    let result = load(&mut write);
    drop(log);
    // Of a load that a server ends early the log has the seconds until then.
    if result.is_ok() || has_intervals {
        output.finish().map_err(failed)?;
    }
    result
}

fn write_interval(
    log: &mut IntervalLogWriter<'_, '_, impl Write, V2DeflateSerializer>,
    (start, length): (Duration, Duration),
    tag: &str,
    histogram: &Histogram<u64>,
) -> std::io::Result<()> {
    use hdrhistogram::serialization::interval_log::IntervalLogWriterError as Refusal;
    if histogram.is_empty() {
        return Ok(());
    }
    match log.write_histogram(histogram, start, length, Tag::new(tag)) {
        Ok(()) => Ok(()),
        Err(Refusal::IoError(error) | Refusal::SerializeError(V2DeflateSerializeError::IoError(error))) => Err(error),
        Err(Refusal::SerializeError(error)) => Err(std::io::Error::other(error.to_string())),
    }
}
