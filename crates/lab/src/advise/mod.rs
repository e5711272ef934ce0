//! `ebbtide advise`: the DRAM and flash that a workload deserves, with costs and savings.
//!
//! | module | is |
//! |---|---|
//! | `flags` | sizes of a plan as flags of the server |
//! | `plan` | one cache: hits, price, load on device, network and backend |
//! | `planner` | plans for a trace on this hardware |
//! | `pools`, `pool_flags` | the memory that pools or prefixes deserve; flags of a server with these pools |
//! | `open_questions` | answers that a capture of a warm server does not carry |
//! | `search` | the cheapest cache for a hit ratio, the best for a budget |
//! | `slabs` | the same memory in a memcached with slab classes |
//! | `units` | bytes, money and ratios in words |
//! | `report`, `html` | text, JSON and a page |

mod flags;
mod html;
mod open_questions;
mod plan;
mod planner;
mod pool_flags;
mod pools;
mod report;
mod search;
mod slabs;
mod units;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use ebbtide::ByteSize;

use crate::Error;
use crate::capture::{CaptureOptions, capture};
use crate::generate::rate;
use crate::mrc::{TraceLoad, one_byte};
use crate::trace::loaded::LoadedTrace;
use crate::trace::{Format, PoolsBy, ReportFile, STANDARD_INPUT};
use crate::warmup::Warmup;
use flags::{MAX_DRAM, MIN_DRAM};
use plan::{Demand, Hardware, Latencies, Overheads};
use planner::Planner;
use report::Advice;
use search::Budget;

/// Limits of prices and other numbers: beyond them the results are no numbers.
const MIN_NUMBER: f64 = 1e-9;
const MAX_NUMBER: f64 = 1e12;
/// Percent of spare space with which a drive can move pages: below, the formula of its writes has no meaning.
const MIN_SPARE: f64 = 1.0;

/// The arguments of `ebbtide advise`.
#[derive(Clone, Debug, clap::Args)]
pub struct AdviseArgs {
    /// Trace file, plain or compressed with zstd or gzip; - is standard input
    #[arg(required_unless_present = "live", conflicts_with = "live")]
    trace: Option<PathBuf>,
    /// In place of a trace, capture the load of this server first, as `ebbtide capture` does
    #[arg(long, value_name = "HOST:PORT")]
    live: Option<String>,
    #[command(flatten)]
    capture: CaptureOptions,
    /// Hit ratio that is wanted (0.95 or 95%)
    #[arg(long, value_name = "RATIO")]
    hit_ratio: Option<Ratio>,
    /// Money that may be spent on DRAM and flash
    #[arg(long, value_name = "MONEY")]
    budget: Option<f64>,
    /// Price of a GiB of DRAM
    #[arg(long, value_name = "MONEY", default_value_t = 5.0)]
    dram_price: f64,
    /// Price of a GiB of flash; a sixth of DRAM's, in the middle of 4 to 8 (Dormando 2018)
    #[arg(long, value_name = "MONEY", default_value_t = 0.8)]
    flash_price: f64,
    /// Unit of --budget and of all prices
    #[arg(long, value_name = "NAME", default_value = "USD")]
    currency: String,
    /// Reads that the flash device serves in a second
    #[arg(long, value_name = "COUNT", default_value_t = 400_000.0, value_parser = rate)]
    flash_iops: f64,
    /// Drive writes a day that the flash device is rated for
    #[arg(long, value_name = "COUNT", default_value_t = 1.0)]
    flash_dwpd: f64,
    /// Years of that rating
    #[arg(long, value_name = "YEARS", default_value_t = 5.0)]
    flash_years: f64,
    /// Size of the drive that the flash is a part of: its writes wear all of the drive [default: the flash]
    #[arg(long, value_name = "SIZE")]
    flash_drive: Option<ByteSize>,
    /// Percent of the flash that the device has beside it and nobody writes to
    #[arg(long, value_name = "PERCENT", default_value_t = 7.0)]
    flash_spare: f64,
    /// Gigabits in a second that the network carries
    #[arg(long, value_name = "GBIT", default_value_t = 10.0)]
    network: f64,
    /// Milliseconds of a hit in DRAM
    #[arg(long, value_name = "MS", default_value_t = 0.1)]
    hit_ms: f64,
    /// Milliseconds of a hit on flash
    #[arg(long, value_name = "MS", default_value_t = 0.3)]
    flash_hit_ms: f64,
    /// Milliseconds of a miss, with the load from the backend
    #[arg(long, value_name = "MS", default_value_t = 10.0)]
    miss_ms: f64,
    /// Gets in a second of the real load, where the trace is a sample of it [default: those of the trace]
    #[arg(long, value_name = "COUNT", value_parser = rate)]
    gets_per_second: Option<f64>,
    /// Divide the memory among the prefixes of keys, or the pools, where it earns hits
    #[arg(long, value_name = "WHAT")]
    by: Option<PoolsBy>,
    /// The byte that ends a prefix
    #[arg(long, value_name = "CHARACTER", default_value = ":", value_parser = one_byte)]
    delimiter: u8,
    /// The memory that --by divides [default: that of --hit-ratio or --budget, else a quarter of the objects' bytes]
    #[arg(long, value_name = "SIZE", requires = "by")]
    memory: Option<ByteSize>,
    /// Growth factor of memcached's slab classes to compare with
    #[arg(long, value_name = "FACTOR", default_value_t = 1.25)]
    slab_factor: f64,
    /// Bytes of the smallest chunk; 64 with a factor of 2 gives the classes of 64 x 2^i bytes
    #[arg(long, value_name = "BYTES", default_value_t = 96)]
    slab_chunk: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Write a page to read and to send
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Replace a page that exists without a line on standard error
    #[arg(long, visible_alias = "force")]
    overwrite: bool,
    /// Format of the trace [default: told from the content]
    #[arg(long)]
    format: Option<Format>,
    /// The beginning of the trace that fills the caches and does not count: requests (5m), a share of them (25%), or
    /// seconds (600s)
    #[arg(long, value_name = "COUNT|SHARE|TIME")]
    warmup: Option<Warmup>,
}

/// A share of all gets.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ratio(f64);

impl FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = match text.strip_suffix('%') {
            Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
            None => text.parse(),
        };
        let ratio = number.ok().filter(|ratio| *ratio > 0.0 && *ratio < 1.0);
        ratio.map(Self).ok_or_else(|| format!("{text}: give a ratio above 0 and below 1, or a percentage"))
    }
}

/// `ebbtide advise`.
///
/// # Errors
/// Those of reading a trace, and arguments that contradict each other.
pub fn run(args: &AdviseArgs) -> Result<(), Error> {
    check(args)?;
    let inputs: Vec<&Path> = args.trace.iter().map(PathBuf::as_path).collect();
    let page = ReportFile::open("--html", args.html.as_deref(), args.overwrite, &inputs)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let (workload, ended) = workload(args)?;
    let mut load = TraceLoad::of(workload.with_gets()?.after(args.warmup)?, jobs)?;
    let (wanted, money) = (args.hit_ratio.map(|ratio| ratio.0), args.budget);
    load.begin_lower(jobs, |first| {
        wanted.is_some_and(|wanted| first.miss_ratio < 1.0 - wanted)
            || money.is_some_and(|money| search::dram_bytes(money, args.dram_price) < first.memory_bytes as f64)
    })?;
    let mut advice = advise(args, &load, jobs)?;
    advice.caveats.extend(ended.as_ref().map(Error::to_string));
    if let Some(page) = page {
        // A clock before 1970 has no date to tell.
        let made = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        page.write(html::page(&advice, &load, made.as_secs())?.as_bytes())?;
    }
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string(&advice).map_err(io::Error::from)?)?,
        false => report::text(&advice, &mut out)?,
    }
    ended.map_or(Ok(()), Err)
}

/// The trace, or the load of a live server. If the server disconnects early, the requests until then count, and the
/// second part is the error.
fn workload(args: &AdviseArgs) -> Result<(LoadedTrace, Option<Error>), Error> {
    let labels = args.by.map(|by| by.labels(args.delimiter));
    let (None, Some(target)) = (&args.trace, &args.live) else {
        let trace = args.trace.as_deref().unwrap_or(Path::new(STANDARD_INPUT));
        return Ok((LoadedTrace::read(trace, args.format, false, labels)?, None));
    };
    let captured = capture(target, &args.capture, labels)?;
    // The advice goes to standard output, even if this report cannot be printed.
    let _ = captured.report.print(false, &mut io::stderr().lock());
    let (trace, server) = (captured.trace, (captured.report.sample, captured.report.described));
    let loaded = LoadedTrace::of_requests(target.clone(), "a capture", &trace.requests, &trace.found, server);
    Ok((loaded.with_labels(trace.labels, trace.label_names), captured.report.ended_early().err()))
}

/// Remarks on arguments that make parts of the advice useless.
fn contradictions(args: &AdviseArgs, load: &TraceLoad) -> Vec<String> {
    let mut remarks = Vec::new();
    if args.flash_hit_ms > args.miss_ms {
        remarks
            .push(format!("a hit on flash, {} ms, takes longer than a miss, {} ms", args.flash_hit_ms, args.miss_ms));
    }
    if let Some(drive) = args.flash_drive {
        remarks.push(format!("no flash larger than the drive of --flash-drive, {drive}, is advised"));
    }
    let enough = load.engine.points().last().map_or(0.0, |point| point.memory_bytes as f64);
    if args.budget.is_some_and(|money| search::dram_bytes(money, args.dram_price) > enough) {
        let enough = units::size(enough);
        remarks.push(format!("--budget buys more DRAM than all objects need, {enough}: the rest of it earns nothing"));
    }
    remarks
}

/// A number without hundreds of digits.
fn shown(number: f64) -> String {
    if number == 0.0 || (MIN_NUMBER..=MAX_NUMBER).contains(&number.abs()) {
        number.to_string()
    } else {
        format!("{number:e}")
    }
}

fn check(args: &AdviseArgs) -> Result<(), Error> {
    let positive = [
        ("--dram-price", args.dram_price),
        ("--flash-price", args.flash_price),
        ("--flash-iops", args.flash_iops),
        ("--flash-dwpd", args.flash_dwpd),
        ("--flash-years", args.flash_years),
        ("--network", args.network),
        ("--budget", args.budget.unwrap_or(1.0)),
        ("--gets-per-second", args.gets_per_second.unwrap_or(1.0)),
    ];
    for (option, number) in positive {
        if !(MIN_NUMBER..=MAX_NUMBER).contains(&number) {
            let reason = format!("give a number from {MIN_NUMBER:e} to {MAX_NUMBER:e}");
            return Err(Error::Configuration { option, value: shown(number), reason });
        }
    }
    let not_negative = [("--hit-ms", args.hit_ms), ("--flash-hit-ms", args.flash_hit_ms), ("--miss-ms", args.miss_ms)];
    for (option, number) in not_negative {
        if !(0.0..=MAX_NUMBER).contains(&number) {
            let reason = format!("give a number from 0 to {MAX_NUMBER:e}");
            return Err(Error::Configuration { option, value: shown(number), reason });
        }
    }
    if !(MIN_SPARE..=MAX_NUMBER).contains(&args.flash_spare) {
        let reason = format!("a drive that is full cannot be written: give {MIN_SPARE} percent or more");
        return Err(Error::Configuration { option: "--flash-spare", value: shown(args.flash_spare), reason });
    }
    if args.hit_ms > args.miss_ms {
        let reason = format!("a miss takes longer than a hit, of --hit-ms {}", shown(args.hit_ms));
        return Err(Error::Configuration { option: "--miss-ms", value: shown(args.miss_ms), reason });
    }
    let sizes = [("--memory", args.memory, MIN_DRAM), ("--flash-drive", args.flash_drive, search::MIN_FLASH)];
    for (option, size, min) in sizes {
        if let Some(size) = size.filter(|size| (size.as_bytes() as f64) < min) {
            let reason = format!("no cache has less than {}", units::size(min));
            return Err(Error::Configuration { option, value: size.to_string(), reason });
        }
    }
    if let Some(size) = args.memory.filter(|size| size.as_bytes() > MAX_DRAM) {
        let reason = format!("no cache has more than {}", units::size(MAX_DRAM as f64));
        return Err(Error::Configuration { option: "--memory", value: size.to_string(), reason });
    }
    check_slabs(args)
}

fn check_slabs(args: &AdviseArgs) -> Result<(), Error> {
    if !(48..=512 << 10).contains(&args.slab_chunk) {
        let reason = "give 48 bytes, the least that an item takes, to 524288".to_owned();
        return Err(Error::Configuration { option: "--slab-chunk", value: args.slab_chunk.to_string(), reason });
    }
    if !(args.slab_factor.is_finite() && args.slab_factor > 1.0) {
        let reason = "classes must grow: give a factor above 1".to_owned();
        return Err(Error::Configuration { option: "--slab-factor", value: args.slab_factor.to_string(), reason });
    }
    Ok(())
}

fn advise(args: &AdviseArgs, load: &TraceLoad, jobs: usize) -> Result<Advice, Error> {
    let rate = args.gets_per_second.unwrap_or(load.gets as f64 / load.seconds as f64);
    let object_bytes = load.footprint_bytes as f64 / load.objects.max(1) as f64;
    let planner = Planner {
        demand: Demand {
            gets_per_second: rate,
            sets_per_second: rate * load.sets as f64 / load.gets.max(1) as f64,
            hit_bytes: load.hit_bytes,
            object_bytes,
            footprint_bytes: load.footprint_bytes as f64,
        },
        overheads: Overheads::ebbtide(object_bytes),
        hardware: Hardware {
            dram_price: args.dram_price,
            flash_price: args.flash_price,
            flash_iops: args.flash_iops,
            flash_dwpd: args.flash_dwpd,
            flash_years: args.flash_years,
            flash_drive_bytes: args.flash_drive.map(|size| size.as_bytes() as f64),
            flash_spare: args.flash_spare,
            network_bits: args.network * 1e9,
        },
        latencies: Latencies { hit_ms: args.hit_ms, flash_hit_ms: args.flash_hit_ms, miss_ms: args.miss_ms },
        load,
    };
    let wanted = args.hit_ratio.map(|ratio| search::for_hit_ratio(&planner, ratio.0));
    let budget = args.budget.map(|money| search::for_budget(&planner, money));
    let of_point = |bytes: u64| planner.plan(bytes as f64, 0.0).with_flags();
    let sizes = load.sizes().map(of_point).collect();
    // The comparison with slab classes is at the memory that the question is about.
    let memory = match (&wanted, &budget) {
        (Some(wanted), _) if wanted.dram.is_some() => wanted.dram.expect("looked at above").dram_bytes,
        (_, Some(Budget { dram: Some(dram), .. })) => dram.dram_bytes,
        _ => load.footprint_bytes as f64 / 4.0,
    };
    let chunks = (f64::from(args.slab_chunk), args.slab_factor);
    let is_divisible = open_questions::is_divisible(&load.first);
    let wanted_ratio = args.hit_ratio.map(|ratio| ratio.0);
    let slabs = is_divisible.then(|| slabs::compare(load, memory as u64, chunks, wanted_ratio)).flatten();
    let (pools, undivided) = match args.by {
        None if is_divisible => (None, None),
        None => (None, Some("slab classes of a memcached: longer capture needed".to_owned())),
        Some(_) if !is_divisible => (None, Some("pools and slab classes: longer capture needed".to_owned())),
        Some(by) => {
            let memory = args.memory.map_or(memory as u64, ByteSize::as_bytes);
            let groups = match by {
                PoolsBy::Prefix => {
                    let max_pools = pool_flags::max_pools(pools::whole_mib(memory), load.longest_value_bytes());
                    load.groups(max_pools, pool_flags::is_prefix, jobs)?
                }
                // The pools are there already.
                PoolsBy::Pool => load.groups(usize::MAX, pool_flags::is_pool, jobs)?,
            };
            match pools::advise(load, &groups, (by, args.delimiter), memory, args.dram_price) {
                Ok(pools) => (Some(pools), None),
                Err(reason) => (None, Some(reason)),
            }
        }
    };
    let mut advice = Advice::new(load, planner, sizes, (wanted, budget), (slabs, pools), &args.currency);
    advice.caveats.extend(undivided);
    advice.caveats.extend(contradictions(args, load));
    Ok(advice)
}
