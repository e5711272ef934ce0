//! `ebbtide trace info`: the portrait of a trace, as the studies of caches draw it.
//!
//! | part | answers | figure of CacheLib (OSDI 2020) |
//! |---|---|---|
//! | `popularity.rs` | Zipf's law with a flat head, the tenth with the most requests | 3 |
//! | `churn.rs` | how soon popular objects are popular no more | 4 |
//! | `objects.rs` | objects, bytes, gets and hits by size; one-hit objects, absent keys, TTLs | 5 |
//! | `arrivals.rs` | bursts, hours of the day | 6 |
//!
//! `measure.rs` joins them. Everything is exact for the whole trace, which is held in memory; only the law is a fit.

mod arrivals;
mod churn;
mod measure;
mod objects;
mod popularity;
mod report;
mod svg;

use std::io::{self, Write};
use std::path::PathBuf;

use crate::Error;
use crate::trace::loaded::LoadedTrace;
use crate::trace::{Format, ReportFile};
use measure::Portrait;
use report::PortraitReport;

/// The arguments of `ebbtide trace info`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InfoArgs {
    /// Trace file, plain or compressed with zstd or gzip; - is standard input
    trace: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Draw popularity, churn, sizes and arrivals into files in this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Replace pictures that exist without a line on standard error
    #[arg(long, visible_alias = "force")]
    overwrite: bool,
    /// Format of the trace [default: told from the content]
    #[arg(long)]
    format: Option<Format>,
    /// Refuse a trace with a malformed line instead of skipping the line
    #[arg(long)]
    strict: bool,
}

/// `ebbtide trace info`.
pub(crate) fn run(args: &InfoArgs) -> Result<(), Error> {
    if let Some(directory) = &args.svg {
        let failed = |source| Error::Write { trace: directory.display().to_string(), source };
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    let trace = LoadedTrace::read(&args.trace, args.format, args.strict, None)?;
    let portrait = Portrait::of(&trace);
    let report = PortraitReport::new(&trace, &portrait);
    if let Some(directory) = &args.svg {
        for (name, picture) in svg::draw(&trace, &portrait)? {
            let path = directory.join(name);
            let file = ReportFile::open("--svg", Some(&path), args.overwrite, &[&args.trace])?;
            file.map_or(Ok(()), |file| file.write(picture.as_bytes()))?;
        }
    }
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&report).map_err(io::Error::from)?)?;
    } else {
        report.print(&mut out)?;
    }
    Ok(())
}
