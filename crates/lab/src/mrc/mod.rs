//! `ebbtide mrc`: the miss ratio of a workload by the memory of its cache, under several policies.
//!
//! | policy | is computed by |
//! |---|---|
//! | `ebbtide`, `ebbtide:NAME` | the model of segments for each size, with all memory; with `--exact` a replay |
//! | `lru` | a profile (stack distances, `ebbtide_control`): one for the sizes that hold all, one for each smaller |
//! | `lru-buckets` | the stack of 100 buckets of 100 objects of the Dynacache paper |
//! | the other references | a cache simulated object by object for each size |
//!
//! References charge an object its key and its value alone. Of a trace of more objects than the sample has space for,
//! `lru` the references and the model see one key of several, in caches as much smaller, and say how far they may be
//! off; `--exact` lets them see all.

mod first_hits;
mod group;
mod modelled;
mod planning;
mod policy;
mod report;
mod simulate;
mod sizes;
mod slabs;
mod stack_distances;
mod svg;
mod tally;
mod terminal;

use std::io::{self, Write};
use std::path::PathBuf;

use ebbtide::ByteSize;

use crate::Error;
use crate::memory_size::MemorySize;
use crate::progress::Progress;
use crate::reference::Reference;
use crate::replay::each_in_order;
use crate::trace::{Format, LabelBy, ReportFile, loaded::LoadedTrace};
use crate::warmup::Warmup;
pub(crate) use first_hits::FirstHits;
use group::{By, RequestGroup};
pub(crate) use planning::{GroupLoad, TraceLoad};
use policy::CurvePolicy;
use report::{Labelled, Report};

pub(crate) use svg::{COLOURS, rounded as rounded_size};

/// The arguments of `ebbtide mrc`.
#[derive(Clone, Debug, clap::Args)]
pub struct MrcArgs {
    /// Trace file, plain or compressed with zstd or gzip; - is standard input
    pub trace: PathBuf,
    /// Policies: ebbtide (the engine with its default), ebbtide:NAME (another of its policies), or a reference by
    /// object: fifo, lru, lru:insertion=1/2 (or 1/4, 1/8), clock, sieve, slru, 2q, s3fifo, arc, lirs, w-tinylfu, lhd,
    /// gdsf, belady; or lru-buckets (LRU by the buckets of Dynacache) [default: ebbtide,lru; with --by lru]
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    policy: Vec<CurvePolicy>,
    /// Sizes of the cache (64m, or 10% of the bytes of all objects); auto is 20 from 0.1 % of them to all
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', default_value = "auto")]
    sizes: Vec<MemorySize>,
    /// A curve for each group of objects, each group with a cache of its own: size classes (octaves of bytes), prefixes
    /// of keys that are text, or the pools that the column `pool` of a csv trace names
    #[arg(long, value_name = "WHAT")]
    by: Option<By>,
    /// The byte that ends a prefix
    #[arg(long, value_name = "CHARACTER", default_value = ":", value_parser = one_byte)]
    delimiter: u8,
    /// See every key, in place of a sample of those of a large trace
    #[arg(long)]
    exact: bool,
    /// Write the points as csv
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the curves as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Replace files that exist without a line on standard error
    #[arg(long, visible_alias = "force")]
    overwrite: bool,
    /// Print one JSON object in place of a table and a plot
    #[arg(long)]
    json: bool,
    /// Format of the trace [default: told from the content]
    #[arg(long)]
    format: Option<Format>,
    /// Refuse a trace with a malformed line instead of skipping the line
    #[arg(long)]
    strict: bool,
    /// The beginning of the trace that fills the caches and does not count: requests (5m), a share of them (25%), or
    /// seconds (600s)
    #[arg(long, value_name = "COUNT|SHARE|TIME")]
    warmup: Option<Warmup>,
    /// Curves' points computed at the same time [default: the cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

/// A character of one byte.
pub(crate) fn one_byte(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        &[byte] => Ok(byte),
        _ => Err("a delimiter is one ASCII character".to_owned()),
    }
}

/// `ebbtide mrc`.
pub fn run(args: &MrcArgs) -> Result<(), Error> {
    let labels = match args.by {
        Some(By::Prefix) => Some(LabelBy::Prefix(args.delimiter)),
        Some(By::Pool) => Some(LabelBy::Pool),
        Some(By::Class) | None => None,
    };
    let file =
        |option, path: &Option<PathBuf>| ReportFile::open(option, path.as_deref(), args.overwrite, &[&args.trace]);
    let (csv, picture) = (file("--csv", &args.csv)?, file("--svg", &args.svg)?);
    let workload = LoadedTrace::read(&args.trace, args.format, args.strict, labels)?.with_gets()?;
    let workload = workload.after(args.warmup)?;
    let sizes = sizes::resolve(&args.sizes, workload.footprint_bytes)?;
    let groups = args.by.map(|by| group::split(&workload, by));
    let parts: Vec<CurveInput<'_>> = match &groups {
        None => vec![CurveInput { group: None, workload: &workload }],
        Some(groups) => groups.iter().map(|(group, part)| CurveInput { group: Some(group), workload: part }).collect(),
    };
    let report = Report::new(&workload, args.exact, curves(args, &parts, &sizes)?);
    if let Some(csv) = csv {
        csv.write(report.csv().as_bytes())?;
    }
    if let Some(picture) = picture {
        picture.write(svg::draw(&report)?.as_bytes())?;
    }
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&report).map_err(io::Error::from)?)?;
    } else {
        report.table(&mut out)?;
        terminal::draw(&report, &mut out)?;
        if let Some(sentence) = report.conclusion() {
            writeln!(out, "\n{sentence}")?;
        }
    }
    Ok(())
}

/// The requests that curves are of: all, or those of a group.
struct CurveInput<'a> {
    group: Option<&'a RequestGroup>,
    workload: &'a LoadedTrace,
}

/// The policies in their order. One that is named twice, or by both of its names, has one curve.
fn policies(args: &MrcArgs) -> Vec<CurvePolicy> {
    let lru = CurvePolicy::Reference(Reference::Lru);
    let named = match (args.policy.as_slice(), args.by) {
        ([], None) => &[CurvePolicy::Engine(ebbtide::Policy::default()), lru][..],
        ([], Some(_)) => &[lru],
        (named, _) => named,
    };
    let mut policies: Vec<CurvePolicy> = Vec::new();
    for &policy in named {
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    policies
}

/// One curve for each part and policy, in their order.
fn curves(args: &MrcArgs, parts: &[CurveInput<'_>], sizes: &[u64]) -> Result<Vec<Labelled>, Error> {
    let policies = policies(args);
    let lines: Vec<_> = parts.iter().flat_map(|part| policies.iter().map(move |&policy| (part, policy))).collect();
    let cells: Vec<_> = lines
        .iter()
        .enumerate()
        .flat_map(|(line, (part, policy))| {
            simulate::cells(*policy, part.workload, sizes).into_iter().map(move |cell| (line, cell))
        })
        .collect();
    let jobs = args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let progress = Progress::new("points", cells.len() as u64);
    let mut done = 0;
    let mut points: Vec<Vec<simulate::Found>> = lines.iter().map(|_| Vec::new()).collect();
    each_in_order(
        cells.len(),
        jobs,
        |index| {
            let (line, cell) = &cells[index];
            cell.compute(lines[*line].0.workload, args.exact)
        },
        |index, found| {
            done += 1;
            progress.show(done, done);
            points[cells[index].0].push(found?);
            Ok(())
        },
    )?;
    progress.finish();
    let refusal = points.iter().flatten().rev().find_map(|found| match found {
        simulate::Found::Refused { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    let joined = lines
        .iter()
        .zip(points)
        .map(|((part, policy), found)| simulate::joined(*policy, part.group.cloned(), part.workload, found));
    let curves: Vec<_> = joined.collect();
    if curves.iter().all(|labelled| labelled.curve.points().is_empty()) {
        return Err(Error::Configuration {
            option: "--sizes",
            value: ByteSize::bytes(sizes.last().copied().unwrap_or(0)).to_string(),
            reason: format!(
                "there is no engine of any of the sizes ({}); give other ones, or a policy that is no engine's",
                refusal.unwrap_or_default()
            ),
        });
    }
    Ok(curves)
}
