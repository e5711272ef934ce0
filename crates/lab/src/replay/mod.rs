//! `ebbtide replay`: a trace through the engine, look-aside, in the trace's own time.
//!
//! Effects of the operations (the trace carries no data, only sizes):
//!
//! | operation | effect |
//! |---|---|
//! | get, gets | counts a hit or a miss; a miss is followed by a set with the row's sizes and TTL |
//! | set, add, replace, append, prepend | as memcached: add only if absent, the last three only if present |
//! | cas | as a client that has just read: fails only if the key is absent |
//! | delete | removes the key |
//! | incr, decr | by 1; if the key is absent or holds no number, a counter of the row's value size is stored |
//!
//! Only gets count in hits, misses and the miss ratios. Time starts at the first request and moves in steps: to the
//! next second of the trace, and within a second after every 1024 requests, spread evenly as the second before it was
//! (see `batches`). With each step the cache does the maintenance that a thread does in a server, so a replay depends
//! on the trace and the seed alone, not on the speed of the machine. With flash it depends on the device, too: objects
//! that arrive faster than the device writes are dropped.

mod audit;
mod auto_division;
mod auto_policy;
mod batches;
mod cell;
mod controllers;
mod decision;
mod grid;
mod player;
mod pool_file;
mod pools;
mod report;
mod run;
mod segment_log;
mod sizes;
mod source;

pub(crate) use batches::{Batches, Routed};
pub use cell::Cell;
pub use decision::{Decision, MoveReport, PolicyReport};
pub(crate) use grid::each_in_order;
pub use grid::run;
pub use pools::{Divide, PoolReport};
pub use report::{AuditReport, ReplayReport};
pub use run::replay;
pub(crate) use run::replay_requests;

use std::path::PathBuf;

use ebbtide::{ByteSize, Objective, Policy};

use crate::flash::FlashArgs;
use crate::generate::CountArg;
use crate::memory_size::MemorySize;
use crate::trace::Format;

/// The arguments of `ebbtide replay`.
#[derive(Clone, Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("pooled").args(["pools", "cachebench"]).multiple(true)))]
pub struct ReplayArgs {
    /// Trace file, plain or compressed with zstd or gzip; - is standard input
    #[arg(required_unless_present = "cachebench")]
    pub trace: Option<PathBuf>,
    /// Replay a workload of CacheBench: a JSON file with its `test_config`, and a `cache_config` with memory and pools
    #[arg(long, value_name = "FILE", conflicts_with_all = ["trace", "format"])]
    pub cachebench: Option<PathBuf>,
    /// Requests of --cachebench, such as 20m [default: numOps of each thread]
    #[arg(long, value_name = "COUNT", requires = "cachebench")]
    pub requests: Option<CountArg>,
    /// Keys of --cachebench instead of numKeys; its cacheSizeMB is scaled with them
    #[arg(long, value_name = "COUNT", requires = "cachebench")]
    pub keys: Option<CountArg>,
    /// All the memory the cache may use, index and headers included: bytes (64m), a share of the bytes of the trace's
    /// objects (10%), or auto for 1, 3, 10 and 30 %; a share is at least 256k. Several, with commas between them, are
    /// replayed one by one [default: what --cachebench says]
    #[arg(long, value_name = "SIZE", value_delimiter = ',', required_unless_present = "cachebench")]
    pub memory: Vec<MemorySize>,
    /// Eviction policy: s3fifo, merge, fifo, random, cte, utilization, lru, lru:insertion=1/2 (or 1/4, 1/8), 2q or
    /// merge-sketch; with several, every size is replayed under each
    #[arg(long, default_value = Policy::default().name(), value_delimiter = ',')]
    pub policy: Vec<Policy>,
    /// Objective of evictions, and of --divide auto and optimal: objects (hits) or bytes (the bytes that hits serve)
    #[arg(long, default_value = Objective::default().name(), value_parser = parse_objective)]
    pub objective: Objective,
    /// Replays at the same time, where there are several [default: the cores, by the threads of each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Divide the memory among the pools of this file; the trace needs a column `pool`, or keys of text
    #[arg(long, value_name = "FILE", conflicts_with = "path")]
    pub pools: Option<PathBuf>,
    /// By what the memory is divided: the weights of the file, equally, the bytes of each pool's objects, or the hits
    /// that it earns: as a controller sees them in the replay (auto), or as the whole trace shows them before (optimal)
    #[arg(long, value_name = "HOW", requires = "pooled", default_value_t, value_enum)]
    pub divide: Divide,
    /// Policies that the controller may give to the cache, or to each pool, beside the policy that it starts with;
    /// needs one thread
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    pub controller_policies: Vec<Policy>,
    #[command(flatten)]
    pub flash: FlashArgs,
    /// Threads that share the cache; keys are divided among them
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// Format of the trace [default: told from the content]
    #[arg(long)]
    pub format: Option<Format>,
    /// Refuse a trace with a malformed line instead of skipping the line
    #[arg(long)]
    pub strict: bool,
    /// Requests at the beginning that fill the cache and count in those of flash alone; with --threads 1
    #[arg(long, value_name = "COUNT")]
    pub warmup: Option<CountArg>,
    /// Check every answer against an exact model of each key; takes about 100 bytes of memory per key of the trace
    #[arg(long)]
    pub audit: bool,
    /// Bytes of values in a segment, from 4k to 1m [default: memory / 1024, but at least memory / 64 or 64k if less]
    #[arg(long, value_name = "SIZE")]
    pub segment_size: Option<ByteSize>,
    /// Segments that one eviction merges [default: 4]
    #[arg(long, value_name = "N")]
    pub merge_run: Option<u32>,
    /// Largest value that is cached [default: 1m]
    #[arg(long, value_name = "SIZE")]
    pub max_value: Option<ByteSize>,
    /// Write a line for each segment of the cache: its TTLs, objects and bytes, and its age when it was sealed and
    /// evicted
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pools", "jobs"])]
    pub segments: Option<PathBuf>,
    /// Write the reports as a csv file, a row for each
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Replace a file of --segments that exists; that of --csv is replaced in any case, and with this option without a
    /// line on standard error
    #[arg(long, visible_alias = "force")]
    pub overwrite: bool,
    /// Seed of the key hash and of the policies' random numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print each report as one JSON object in a line
    #[arg(long)]
    pub json: bool,
}

/// The objective of a replay.
fn parse_objective(text: &str) -> Result<Objective, String> {
    match text.parse() {
        Ok(Objective::Cost) => Err("traces have no costs of entries; choose objects or bytes".to_owned()),
        Ok(objective) => Ok(objective),
        Err(error) => Err(error.to_string()),
    }
}

impl ReplayArgs {
    /// A replay of this trace under the defaults.
    pub(crate) fn of(trace: PathBuf) -> Self {
        Self {
            trace: Some(trace),
            cachebench: None,
            requests: None,
            keys: None,
            memory: Vec::new(),
            policy: Vec::new(),
            objective: Objective::default(),
            jobs: None,
            pools: None,
            divide: Divide::Static,
            controller_policies: Vec::new(),
            flash: FlashArgs::default(),
            threads: 1,
            format: None,
            strict: true,
            audit: false,
            warmup: None,
            segment_size: None,
            merge_run: None,
            max_value: None,
            segments: None,
            csv: None,
            overwrite: false,
            seed: 1,
            json: false,
        }
    }
}
