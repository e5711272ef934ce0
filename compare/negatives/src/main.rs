//! Hits and backend load with gets for keys that do not exist: `make -C compare negatives CACHEBENCH=DIRECTORY`.
//!
//! Reads the gets of a trace. A part of the keys, chosen by their hash, does not exist, so that 55.6 % of the gets are
//! for such keys (CacheLib, section 3.5). A look-aside cache of equal memory is filled in three ways:
//!
//! - `none`: the backend's answer that a key does not exist is not kept;
//! - `empty`: it is kept as an empty value;
//! - `compact`: it is kept in a compact pool of a share of the memory; a get looks there after the objects.
//!
//! All keys have 16 bytes, as those of a compact pool have one length. The first half of the gets fills the cache and
//! is not counted. Not measured: other writers, TTLs of negative results, that keys which do not exist may be less
//! popular than others.

use clap::Parser;
use ebbtide::{ByteSize, Cache, CompactPool, Error, Lookup, PoolOptions};
use ebbtide_lab::trace::{Op, TraceReader};
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;

const MIB: u64 = 1 << 20;
const POOL: &str = "absent";

#[derive(Parser)]
struct Args {
    /// Trace file, as of `ebbtide replay`
    trace: PathBuf,
    /// MiB of memory, one table for each
    #[arg(long, value_delimiter = ',', default_value = "16,32")]
    memory: Vec<u64>,
    /// Share of the gets for keys that do not exist
    #[arg(long, default_value_t = 0.556)]
    absent: f64,
    /// Percent of the memory that the compact pool has
    #[arg(long, value_delimiter = ',', default_value = "10,20,30,40,60")]
    compact: Vec<u64>,
}

struct Get {
    key: u64,
    value_bytes: u32,
    exists: bool,
}

#[derive(Clone, Copy)]
enum Mode {
    None,
    Empty,
    /// Percent of the memory.
    Compact(u64),
}

/// Gets and hits of the counted part: of keys that exist, and of others.
#[derive(Default)]
struct Counts {
    gets: [u64; 2],
    hits: [u64; 2],
}

fn mixed(key: u64) -> u64 {
    let mixed = (key ^ key >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

fn bytes(key: u64) -> [u8; 16] {
    (u128::from(mixed(key)) << 64 | u128::from(key)).to_le_bytes()
}

/// The gets of a trace. Keys are declared absent in the order of their hashes until these gets are the share.
fn load(args: &Args) -> Result<Vec<Get>, Box<dyn std::error::Error>> {
    let mut trace = TraceReader::open(&args.trace, None)?;
    let (mut gets, mut counts) = (Vec::new(), HashMap::<u64, u64>::new());
    while let Some(request) = trace.next_request()? {
        if matches!(request.op, Op::Get | Op::Gets) {
            gets.push(Get { key: request.key, value_bytes: request.value_size, exists: true });
            *counts.entry(request.key).or_default() += 1;
        }
    }
    let mut keys: Vec<(u64, u64)> = counts.into_iter().map(|(key, count)| (mixed(key), count)).collect();
    keys.sort_unstable();
    let wanted = (gets.len() as f64 * args.absent) as u64;
    let mut sum = 0;
    let first_existing = keys.iter().find(|(_, count)| {
        sum += count;
        sum > wanted
    });
    let limit = first_existing.map_or(u64::MAX, |(hash, _)| *hash);
    gets.iter_mut().for_each(|get| get.exists = mixed(get.key) >= limit);
    Ok(gets)
}

/// One look-aside get. True for a hit, of an object or of the knowledge that there is none.
fn get(cache: &Cache, negatives: Option<&CompactPool>, mode: Mode, get: &Get, value: &[u8]) -> Result<bool, Error> {
    let key = bytes(get.key);
    if let Some(is_empty) = cache.with(key, <[u8]>::is_empty) {
        assert_eq!(!is_empty, get.exists, "a value of another key");
        return Ok(true);
    }
    if let Some(negatives) = negatives
        && negatives.with(key, |_| ()) == Lookup::Negative
    {
        assert!(!get.exists, "a key that exists is negative");
        return Ok(true);
    }
    match (get.exists, mode, negatives) {
        (true, ..) => cache.insert(key, &value[..get.value_bytes.max(1) as usize])?,
        (false, _, Some(negatives)) => negatives.insert_negative(key)?,
        (false, Mode::Empty, None) => cache.insert(key, "")?,
        (false, ..) => {}
    }
    Ok(false)
}

fn replay(gets: &[Get], memory: u64, mode: Mode, value: &[u8]) -> Result<Counts, Error> {
    let builder = Cache::builder().memory(ByteSize::bytes(memory));
    let cache = match mode {
        Mode::Compact(percent) => {
            let share = ByteSize::bytes(memory * percent / 100);
            builder.pool(PoolOptions::named(POOL).compact(16, 0).min(share).max(share)).build()?
        }
        Mode::None | Mode::Empty => builder.build()?,
    };
    let negatives = matches!(mode, Mode::Compact(_)).then(|| cache.compact_pool(POOL)).transpose()?;
    let mut counts = Counts::default();
    for (number, each) in gets.iter().enumerate() {
        let is_hit = get(&cache, negatives.as_ref(), mode, each, value)?;
        if number >= gets.len() / 2 {
            counts.gets[usize::from(!each.exists)] += 1;
            counts.hits[usize::from(!each.exists)] += u64::from(is_hit);
        }
    }
    Ok(counts)
}

fn print(name: &str, counts: &Counts) {
    let (gets, hits): (u64, u64) = (counts.gets.iter().sum(), counts.hits.iter().sum());
    let ratio = |part: usize| counts.hits[part] as f64 / counts.gets[part].max(1) as f64;
    let loads = |part: usize| (counts.gets[part] - counts.hits[part]) as f64 * 1000.0 / gets.max(1) as f64;
    println!(
        "| {name} | {:.4} | {:.4} | {:.4} | {:.0} | {:.0} |",
        hits as f64 / gets.max(1) as f64,
        ratio(0),
        ratio(1),
        loads(0) + loads(1),
        loads(1)
    );
}

fn run(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let gets = load(args)?;
    let absent = gets.iter().filter(|get| !get.exists).count() as f64 / gets.len().max(1) as f64;
    println!("{} gets, {:.1} % of them for keys that do not exist", gets.len(), 100.0 * absent);
    let longest = gets.iter().map(|get| get.value_bytes).max().unwrap_or(0).max(1);
    let value = vec![b'.'; longest as usize];
    let modes = [Mode::None, Mode::Empty].into_iter().chain(args.compact.iter().map(|percent| Mode::Compact(*percent)));
    for mib in &args.memory {
        println!(
            "\n{mib} MiB\n\n| negative results | hits | of existing keys | of others | loads of 1000 gets | of others |"
        );
        println!("|---|---|---|---|---|---|");
        for mode in modes.clone() {
            let name = match mode {
                Mode::None => "none".to_owned(),
                Mode::Empty => "empty values".to_owned(),
                Mode::Compact(percent) => format!("compact pool, {percent} %"),
            };
            print(&name, &replay(&gets, mib * MIB, mode, &value)?);
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
