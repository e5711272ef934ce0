//! `ebbtide generate`: synthetic workloads as traces.
//!
//! | workload | file |
//! |---|---|
//! | the Segcache paper's five, fitted to Twitter's caches | `preset.rs`, on the model of `shot_noise.rs` |
//! | any Twitter cluster by number | `cluster.rs`, on the same model |
//! | zipf, uniform, scan, with churn | `plain.rs` |
//! | CacheBench's | `cachebench.rs` |
//!
//! Everything follows from the seed. Traces have whole seconds, as all formats that are read here.

mod args;
mod cachebench;
mod clock;
mod cluster;
mod export;
mod extent;
mod fitted;
mod plain;
mod play;
mod preset;
mod report;
mod shot_noise;
mod stream;
mod traits;
mod workload;

pub use args::{CountArg, ExportFormat, GenerateArgs, PlainArgs, WorkloadArgs};
pub(crate) use args::{counted, rate};
pub(crate) use play::Pace;
pub use play::PlayedBy;
pub use preset::Preset;
pub use report::GenerateReport;
pub(crate) use stream::stream;
pub use workload::Workload;
pub(crate) use workload::pool_name;

use std::io::{stderr, stdout};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::trace::{Output, STANDARD_INPUT, check_is_no_input, say_if_replaced};

/// `ebbtide generate`: writes the trace and prints a report.
pub fn run(args: GenerateArgs) -> Result<(), Error> {
    let report = generate(&args)?;
    match args.output == Path::new(STANDARD_INPUT) {
        // The trace is complete, even if the report cannot be printed.
        true => crate::report::print(&report, args.json, &mut stderr().lock()).or(Ok(())),
        false => crate::report::print(&report, args.json, &mut stdout().lock()).map_err(Error::Output),
    }
}

/// Writes the trace.
pub fn generate(args: &GenerateArgs) -> Result<GenerateReport, Error> {
    let inputs = [&args.workload.cluster_table, &args.workload.cachebench];
    let inputs: Vec<&Path> = inputs.into_iter().flatten().map(PathBuf::as_path).collect();
    check_is_no_input("--output", &args.output, &inputs)?;
    let workload = Workload::new(&args.workload)?;
    // The same arguments reproduce the trace, so an earlier one can be replaced.
    if !args.overwrite {
        say_if_replaced(&args.output);
    }
    let mut output = Output::create(&args.output, true)?;
    let written = export::write(&workload, &mut output, args.format, args.workload.requests.map_or(0, |count| count.0));
    let counts = written
        .and_then(|counts| output.finish().map(|()| counts))
        .map_err(|source| Error::Write { trace: args.output.display().to_string(), source })?;
    let (keys, footprint_bytes) = workload.size().unwrap_or_else(|| counts.objects.size());
    let ignored = workload.ignored(PlayedBy::Trace);
    Ok(GenerateReport {
        requests: counts.requests,
        gets: counts.gets,
        sets: counts.sets,
        deletes: counts.deletes,
        other_writes: counts.requests - counts.gets - counts.sets - counts.deletes,
        seconds: counts.seconds,
        keys,
        footprint_bytes,
        note: (!ignored.is_empty()).then(|| format!("ignored: {}", ignored.join(", "))),
    })
}
