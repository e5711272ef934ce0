//! `ebbtide capture`: a trace of a live server, from the lines that it writes for `watch`.
//!
//! | module | is |
//! |---|---|
//! | `connection` | the watching connection: lines until the time is over, or the server is gone |
//! | `line` | one line as an event |
//! | `load` | the second connection: requests that the server counts, and whether it still answers |
//! | `recorder` | events as requests: lookups that belong to stores left out, sizes and TTLs filled in |
//! | `report` | captured requests, and data that the server does not report |
//!
//! Keys are hashed under a random salt that is kept nowhere: two captures cannot be joined. The sample is by key: all
//! requests of a sampled key are in the trace.

mod connection;
mod line;
mod load;
mod recorder;
mod report;

use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::Error;
use crate::generate::CountArg;
use crate::mrc::one_byte;
use crate::top::{StatsSample, StatsSource, with_port};
use crate::trace::{
    CSV_HEADER, CapturedServer, FOUND_COLUMN, LabelBy, Labels, Output, PoolRules, PoolsBy, SAMPLE_MARK, STANDARD_INPUT,
    write_captured_line,
};
use connection::{Ended, Watched, Watching};
use recorder::{RecordedTrace, Recorder};
use report::CaptureReport;

/// Maximum number of lines per second that an Ebbtide server sends: enough for a curve after a minute.
const MAX_LINES_PER_SECOND: f64 = 20_000.0;
/// The largest sample: one key of these.
const MAX_SAMPLE: u32 = 1 << 20;

/// The arguments of `ebbtide capture`.
#[derive(Clone, Debug, clap::Args)]
pub struct CaptureArgs {
    /// The server's memcached port; HOST alone means port 11211
    #[arg(value_name = "HOST:PORT")]
    target: String,
    /// The csv trace to write; compressed if it is named .zst or .gz; - is standard output
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Replace the file if it exists
    #[arg(long, visible_alias = "force")]
    overwrite: bool,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
    /// Write the prefix of each key, or the pool of the server that it belongs to, into the column `pool`; else the
    /// trace says nothing of keys
    #[arg(long, value_name = "WHAT")]
    by: Option<PoolsBy>,
    /// The byte that ends a prefix
    #[arg(long, value_name = "CHARACTER", default_value = ":", value_parser = one_byte)]
    delimiter: u8,
    #[command(flatten)]
    options: CaptureOptions,
}

/// How much is captured.
#[derive(Clone, Debug, clap::Args)]
pub struct CaptureOptions {
    /// Seconds to capture
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    seconds: u64,
    /// Keep one key of N, by a hash of the key; auto measures the load for a second, and chooses N so that the capture
    /// fits --max-requests and an Ebbtide server writes at most 20,000 lines a second
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    sample: Sample,
    /// Requests that are kept; the capture ends when it has them
    #[arg(long, value_name = "COUNT", default_value = "10m")]
    max_requests: CountArg,
}

/// `--sample`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sample {
    Auto,
    OneOf(u32),
}

impl FromStr for Sample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("1/").unwrap_or(text).parse() {
            _ if text == "auto" => Ok(Self::Auto),
            Ok(one_of) if (1..=MAX_SAMPLE).contains(&one_of) => Ok(Self::OneOf(one_of)),
            _ => Err(format!("{text}: give auto, or N from 1 to {MAX_SAMPLE} for one key of N")),
        }
    }
}

/// A captured load.
pub(crate) struct Captured {
    pub(crate) trace: RecordedTrace,
    pub(crate) report: CaptureReport,
}

/// `ebbtide capture`.
///
/// # Errors
/// As [`capture`]. Requests captured before the server closed it are written.
pub fn run(args: &CaptureArgs) -> Result<(), Error> {
    // Opened first, so that a minute of capturing does not end with a file that cannot be written. Until the end the
    // file is none, and an older one stays.
    let mut output = Output::create(&args.output, args.overwrite)?;
    let captured = capture(&args.target, &args.options, args.by.map(|by| by.labels(args.delimiter)))?;
    let report = &captured.report;
    write_trace(&mut output, &captured)
        .and_then(|()| output.finish())
        .map_err(|source| Error::Write { trace: args.output.display().to_string(), source })?;
    let printed = match args.output == Path::new(STANDARD_INPUT) {
        true => report.print(args.json, &mut stderr().lock()).or(Ok(())),
        false => report.print(args.json, &mut stdout().lock()),
    };
    report.ended_early().and_then(|()| printed.map_err(Error::Output))
}

/// Captures the load of a server; `by` labels the requests.
///
/// # Errors
/// Errors of the connection, and [`Error::Idle`] if no request was seen.
pub(crate) fn capture(target: &str, options: &CaptureOptions, by: Option<LabelBy>) -> Result<Captured, Error> {
    let target = with_port(target);
    let mut source = StatsSource::new(target.clone());
    let first = source.sample()?;
    let sample = match options.sample {
        Sample::OneOf(one_of) => one_of,
        Sample::Auto => {
            std::thread::sleep(Duration::from_secs(1));
            let second = source.sample()?;
            let seconds = (second.taken - first.taken).as_secs_f64();
            let rate = second.requests().saturating_sub(first.requests()) as f64 / seconds;
            one_key_of(rate, options, first.is_ours())
        }
    };
    let labels = by.map(|by| labels(by, &first)).transpose()?;
    let mut watching = Watching::start(&target, first.is_ours(), sample)?;
    let mut recorder = Recorder::new(watching.stream(), sample, labels);
    let max_requests = usize::try_from(options.max_requests.0).unwrap_or(usize::MAX);
    let watched = watching.read(Duration::from_secs(options.seconds), max_requests, &mut recorder, source)?;
    let after = match watched.ended {
        Ended::Closed(_) => None,
        _ => StatsSource::new(target.clone()).sample().ok(),
    };
    let server = described(&first, after.as_ref(), &watched);
    let names = (target.as_str(), first.server());
    let report = CaptureReport::new(names, watching.stream(), (sample, server), watched, &mut recorder);
    if report.requests == 0 {
        report.ended_early()?;
        return Err(Error::Idle { target, seconds: options.seconds });
    }
    Ok(Captured { trace: recorder.into_trace(), report })
}

/// The server by its statistics before the capture and after it; a server that is gone has none after it.
fn described(before: &StatsSample, after: Option<&StatsSample>, watched: &Watched) -> CapturedServer {
    let last = after.unwrap_or(before);
    let has_flash = last.number("extstore_limit_maxbytes").is_some();
    CapturedServer {
        items_before: before.number("curr_items"),
        evictions: last.number("evictions"),
        item_bytes: last.number("bytes").filter(|_| !has_flash),
        memory_bytes: last.number("limit_maxbytes"),
        hits: watched.load.hits,
        misses: watched.load.misses,
    }
}

/// Labels of the keys of a server.
///
/// # Errors
/// A server without statistics of pools, if pools are requested.
fn labels(by: LabelBy, server: &StatsSample) -> Result<Labels, Error> {
    let rule = |(prefix, pool): (&str, &str)| {
        let mut bytes = Vec::new();
        line::decoded(prefix.as_bytes(), &mut bytes);
        (bytes, pool.to_owned())
    };
    let mut rules: Vec<_> = server.pool_prefixes().map(rule).collect();
    if by == LabelBy::Pool && rules.is_empty() {
        let reason = format!("{} has no pools with prefixes; give --by prefix", server.server());
        return Err(Error::Configuration { option: "--by", value: "pool".to_owned(), reason });
    }
    rules.push((Vec::new(), "default".to_owned()));
    Ok(Labels::of_keys(by, PoolRules::new(rules)))
}

/// The smallest power of two with which a load of `rate` requests a second fits.
fn one_key_of(rate: f64, options: &CaptureOptions, is_ours: bool) -> u32 {
    let for_requests = rate * options.seconds as f64 / options.max_requests.0 as f64;
    let for_lines = if is_ours { rate / MAX_LINES_PER_SECOND } else { 1.0 };
    let wanted = for_requests.max(for_lines).clamp(1.0, f64::from(MAX_SAMPLE));
    (wanted.ceil() as u32).next_power_of_two()
}

/// The trace, after comments that describe it. They hold no name of a server, because traces are shared.
fn write_trace(output: &mut Output, captured: &Captured) -> std::io::Result<()> {
    let report = &captured.report;
    write!(output, "# ebbtide capture: {SAMPLE_MARK}{} seconds={:.0}", report.sample, report.seconds)?;
    if let Some(rate) = report.requests_per_second {
        write!(output, " requests_per_second={rate:.0}")?;
    }
    writeln!(output, "{}", report.described)?;
    for note in &report.notes {
        writeln!(output, "# {note}")?;
    }
    let RecordedTrace { requests, found, labels, label_names } = &captured.trace;
    let pool_column: &[u8] = if label_names.is_empty() { b"" } else { b",pool" };
    output.write_all(&[CSV_HEADER, pool_column, FOUND_COLUMN, b"\n"].concat())?;
    let names: Vec<String> = label_names.iter().map(|name| name.replace(',', "%2C")).collect();
    requests.iter().zip(found).enumerate().try_for_each(|(number, (request, found))| {
        let pool = labels.get(number).map(|&label| names[label as usize].as_str());
        write_captured_line(request, pool, *found, output)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_one_key_of_a_number() {
        assert_eq!(("auto".parse(), "8".parse()), (Ok(Sample::Auto), Ok(Sample::OneOf(8))));
        assert_eq!("1/100".parse(), Ok(Sample::OneOf(100)));
        for refused in ["0", "", "x", "1/0", "-1", "1048577"] {
            assert!(refused.parse::<Sample>().is_err(), "{refused}");
        }
    }

    #[test]
    fn the_sample_follows_the_load() {
        let options = CaptureOptions { seconds: 60, sample: Sample::Auto, max_requests: CountArg(6_000_000) };
        for (rate, ours, other) in [(0.0, 1, 1), (20_000.0, 1, 1), (21_000.0, 2, 1), (500_000.0, 32, 8)] {
            assert_eq!((one_key_of(rate, &options, true), one_key_of(rate, &options, false)), (ours, other), "{rate}");
        }
    }
}
