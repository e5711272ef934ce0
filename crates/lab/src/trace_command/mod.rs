//! `ebbtide trace`: properties of a trace, and conversions of traces.
//!
//! | module | is |
//! |---|---|
//! | `input`, `output` | input and output of all of them |
//! | `filter`, `merge` | the requests that are kept; several traces as one |
//!
//! `info` is `portrait`. All others stream: the memory that they take does not grow with the trace, except where the
//! output is oracleGeneral.

mod filter;
mod input;
mod merge;
mod output;

use std::num::NonZeroU32;
use std::path::PathBuf;

use crate::Error;
use crate::generate::CountArg;
use crate::portrait::{self, InfoArgs};
use crate::workload::mix;
use filter::FilterArgs;
use input::{InputArgs, Source};
use merge::MergeArgs;
use output::{Destination, OutputArgs};

/// The arguments of `ebbtide trace`.
#[derive(Clone, Debug, clap::Args)]
pub struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum TraceCommand {
    /// Show what the workload is like: popularity, churn, sizes, TTLs, bursts
    Info(InfoArgs),
    /// Show the first requests
    Head(HeadArgs),
    /// Write the trace in another format, or compressed in another form
    Convert(ConvertArgs),
    /// Keep requests by operation, time, size, pool or prefix
    Filter(FilterArgs),
    /// Keep all requests of one key of N, chosen by a hash
    Sample(SampleArgs),
    /// Join traces in the order of their time
    Merge(MergeArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct HeadArgs {
    /// Trace file, plain or compressed with zstd or gzip; - is standard input
    trace: PathBuf,
    /// Requests to show
    #[arg(short = 'n', long, value_name = "COUNT", default_value = "10")]
    requests: CountArg,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct ConvertArgs {
    /// Trace file, plain or compressed with zstd or gzip; - is standard input
    trace: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct SampleArgs {
    /// Trace file, plain or compressed with zstd or gzip; - is standard input
    trace: PathBuf,
    /// Keep one key in N
    #[arg(long, value_name = "N")]
    one_of: NonZeroU32,
    /// Another seed chooses other keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ebbtide trace`.
///
/// # Errors
/// Those of reading and writing traces.
pub fn run(args: &TraceArgs) -> Result<(), Error> {
    match &args.command {
        TraceCommand::Info(args) => portrait::run(args),
        TraceCommand::Head(args) => head(args),
        TraceCommand::Convert(args) => {
            args.output.check_is_no_input(&[&args.trace])?;
            let mut source = Source::open(&args.trace, &args.input)?;
            let mut destination = Destination::create(&args.output, source.has_pools(), source.sample())?;
            while let Some(request) = source.next()? {
                destination.write(&request, source.pool())?;
            }
            destination.finish(&[&source])
        }
        TraceCommand::Filter(args) => filter::run(args),
        TraceCommand::Sample(args) => sample(args),
        TraceCommand::Merge(args) => merge::run(args),
    }
}

fn head(args: &HeadArgs) -> Result<(), Error> {
    args.output.check_is_no_input(&[&args.trace])?;
    let mut source = Source::open(&args.trace, &args.input)?;
    let mut destination = Destination::create(&args.output, source.has_pools(), source.sample())?;
    for _ in 0..args.requests.0 {
        let Some(request) = source.next()? else { break };
        destination.write(&request, source.pool())?;
    }
    destination.finish(&[&source])
}

fn sample(args: &SampleArgs) -> Result<(), Error> {
    args.output.check_is_no_input(&[&args.trace])?;
    let mut source = Source::open(&args.trace, &args.input)?;
    let sample = source.sample().saturating_mul(args.one_of.get());
    let mut destination = Destination::create(&args.output, source.has_pools(), sample)?;
    let max_hash = u64::MAX / u64::from(args.one_of.get());
    // All keys of a sample have small hashes by the salt that chose them.
    let salt = match source.sample() {
        1 => mix(args.seed),
        sample => mix(mix(args.seed) ^ u64::from(sample)),
    };
    while let Some(request) = source.next()? {
        if mix(request.key ^ salt) <= max_hash {
            destination.write(&request, source.pool())?;
        }
    }
    destination.finish(&[&source])
}
