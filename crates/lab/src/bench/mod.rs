//! `ebbtide bench`: synthetic load on the engine in process, or on any memcached or Redis server.
//!
//! Every thread draws requests by its own stream of the seed: a get of `--batch` keys, or a set, as `--get-ratio` says,
//! or the next of `--trace`, `--preset` or `--cachebench`, each operation as what it is: an append appends, an incr
//! counts. With `--fill` each key that misses is set next, as a look-aside client does, and so is an absent counter.
//!
//! The keys of a workload with several pools begin with `pool0:`, `pool1:` and so on. In process each has its pool; a
//! server may have pools of these prefixes.
//!
//! In process, requests are drawn ahead in chunks and only their execution is timed, for drawing a Zipf rank costs
//! about as much as a get; one request in 32 has its latency taken. Against a server, every connection keeps
//! `--pipeline` requests in flight and the latency is from the write of a request to the arrival of its whole answer:
//! a closed loop, which does not see what waits before a client that would send at its own pace. With `--rate` the
//! loop is open: requests are due by the clock, and their latency counts from then on (`schedule.rs`).

mod answers;
mod args;
mod connection;
mod dialect;
mod drive;
mod feed;
mod interval;
mod latency_log;
mod load;
mod load_kind;
mod local;
mod objects;
mod plan;
mod remote;
mod report;
mod resp;
mod schedule;
mod share;
mod table;
mod tally;

pub use args::{Arrivals, BenchArgs, Dialect};
pub use report::{BenchPoolReport, BenchReport, DrawnReport, Latency, LatencyBucket, PaceReport};
pub use tally::OtherWrites;

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

use self::args::MAX_RELATIVE_TTL;
use self::plan::Plan;
use crate::Error;
use crate::trace::{ReportFile, check_is_no_input};

/// `ebbtide bench`: prints the report.
pub fn run(args: BenchArgs) -> Result<(), Error> {
    args.flash.warn_of_old_spellings();
    let inputs: Vec<&Path> = [&args.trace, &args.cachebench].into_iter().flatten().map(PathBuf::as_path).collect();
    args.hdr.iter().try_for_each(|path| check_is_no_input("--hdr", path, &inputs))?;
    let csv = ReportFile::open("--csv", args.csv.as_deref(), args.overwrite, &inputs)?;
    let report = bench(&args)?;
    if let Some(csv) = csv {
        csv.write(crate::report::csv(&[&report])?.as_bytes())?;
    }
    let out = &mut stdout().lock();
    match args.target {
        Some(_) if !args.json => table::print(&report, out)?,
        _ => crate::report::print(&report, args.json, out)?,
    }
    if !args.json {
        writeln!(out, "{}", report.conclusion())?;
    }
    Ok(())
}

/// Runs the load.
pub fn bench(args: &BenchArgs) -> Result<BenchReport, Error> {
    check(args)?;
    let plan = Plan::new(args)?;
    match &args.target {
        Some(target) => remote::bench(&plan, target),
        None => local::bench(&plan),
    }
}

fn check(args: &BenchArgs) -> Result<(), Error> {
    let refuse =
        |option, value: String, reason: &str| Err(Error::Configuration { option, value, reason: reason.into() });
    if !(0.0..=1.0).contains(&args.get_ratio) {
        return refuse("--get-ratio", args.get_ratio.to_string(), "it is from 0 to 1");
    }
    if !(args.exponent >= 0.0 && args.exponent.is_finite()) {
        return refuse("--exponent", args.exponent.to_string(), "it is at least 0");
    }
    if !(args.seconds > 0.0 && args.seconds < 1e9) {
        return refuse("--seconds", args.seconds.to_string(), "it is more than 0");
    }
    if args.target.is_none() {
        return match (args.connections, args.rate) {
            (Some(n), _) => refuse("--connections", n.to_string(), "it needs --target"),
            (_, Some(rate)) => refuse("--rate", rate.to_string(), "it needs --target"),
            _ if args.pipeline > 1 => refuse("--pipeline", args.pipeline.to_string(), "it needs --target"),
            _ if args.protocol != Dialect::default() => {
                refuse("--protocol", args.protocol.name().into(), "it needs --target")
            }
            _ => Ok(()),
        };
    }
    if let Some(path) = &args.flash.path {
        return refuse("--flash", path.display().to_string(), "a server, which --target names, has its own");
    }
    if let Some(rate) = args.rate.filter(|rate| !(0.001..=1e9).contains(rate)) {
        return refuse("--rate", rate.to_string(), "it is from 0.001 to 1000000000");
    }
    if args.ttl > MAX_RELATIVE_TTL {
        let reason = "servers read TTLs of more than 2592000 s as absolute times";
        return refuse("--ttl", args.ttl.to_string(), reason);
    }
    match args.connections {
        Some(n) if n < usize::from(args.threads) => {
            refuse("--connections", n.to_string(), "every thread needs one connection at least")
        }
        _ => Ok(()),
    }
}
