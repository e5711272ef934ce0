//! Replays a trace through peers as `ebbtide replay` does through ebbtide: a get that misses is followed by a set, a
//! set stores without counting, a delete deletes. Prints a line for each system and each size of memory: name, policy,
//! bytes charged per object beside key and value, memory, and misses per get (`-` where the system refuses the size).
//!
//! The crate segcache is itself; the others are simulated, to the byte.

mod clock;
mod expiries;
mod list;
mod lru;
mod memcached;
mod random;
mod sampling;
mod segcache;
mod slabs;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use lru::ProactiveLru;
use memcached::Memcached;
use sampling::{Choice, Sampling};
use slabs::SlabEviction;
use trace::{Action, Request, Trace};

/// Largest object that every system accepts, in bytes: the default of ebbtide and memcached.
const LARGEST_BYTES: u64 = 1 << 20;

/// A look-aside cache of keys that are numbered from zero. Times are seconds.
trait Cache {
    fn get(&mut self, key: u32, now: u32) -> bool;
    /// Stores the object of a request, and replaces the old one.
    fn set(&mut self, request: &Request);
    fn delete(&mut self, key: u32);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum System {
    /// Exact LRU with proactive expiry
    Proactive,
    /// Slab storage that evicts whole slabs
    Slab,
    /// memcached without its crawler
    Memcached,
    /// memcached with its crawler
    MemcachedCrawler,
    /// Redis with allkeys-lru
    Redis,
    /// Hyperbolic caching with random-sampling expiry
    Hyperbolic,
    /// The crate segcache, with merging
    Segcache,
}

#[derive(Parser)]
struct Args {
    /// Trace file, as of `ebbtide replay`
    trace: PathBuf,
    /// Bytes of memory, all-in; several with commas between them
    #[arg(long, value_delimiter = ',', required = true)]
    memory: Vec<u64>,
    /// Only these, with commas between them [default: all]
    #[arg(long, value_delimiter = ',')]
    system: Vec<System>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let trace = match Trace::read(&args.trace) {
        Ok(trace) => trace,
        Err(error) => {
            eprintln!("{}: {error}", args.trace.display());
            return ExitCode::FAILURE;
        }
    };
    let systems = if args.system.is_empty() { System::value_variants().to_vec() } else { args.system };
    for system in systems {
        for &memory in &args.memory {
            let ratio = system.miss_ratio(memory, &trace).map_or("-".to_owned(), |ratio| format!("{ratio:.6}"));
            println!("{},{memory},{ratio}", system.label());
        }
    }
    ExitCode::SUCCESS
}

impl System {
    /// Name, policy and bytes per object.
    fn label(self) -> String {
        match self {
            System::Proactive => format!("proactive,lru,{}", lru::HEADER_BYTES),
            System::Slab => format!("slab,slab eviction,{}", slabs::HEADER_BYTES),
            System::Memcached => format!("memcached,no crawler,{}", memcached::HEADER_BYTES),
            System::MemcachedCrawler => format!("memcached,crawler,{}", memcached::HEADER_BYTES),
            System::Redis => format!("redis,allkeys-lru,{}", sampling::REDIS_HEADER_BYTES),
            System::Hyperbolic => format!("sampling,hyperbolic,{}", sampling::HYPERBOLIC_HEADER_BYTES),
            System::Segcache => "segcache,merge,all-in".to_owned(),
        }
    }

    fn miss_ratio(self, memory: u64, trace: &Trace) -> Option<f64> {
        let ratio = match self {
            System::Proactive => miss_ratio(&mut ProactiveLru::new(memory, trace), trace),
            System::Slab => miss_ratio(&mut SlabEviction::new(memory, trace), trace),
            System::Memcached => miss_ratio(&mut Memcached::new(memory, trace, false), trace),
            System::MemcachedCrawler => miss_ratio(&mut Memcached::new(memory, trace, true), trace),
            System::Redis => miss_ratio(&mut Sampling::new(memory, trace, Choice::LeastRecentlyUsed), trace),
            System::Hyperbolic => miss_ratio(&mut Sampling::new(memory, trace, Choice::Hyperbolic), trace),
            System::Segcache => segcache::lowest_miss_ratio(memory, trace)?,
        };
        Some(ratio)
    }
}

/// Misses per get; 0 without gets.
fn miss_ratio(cache: &mut impl Cache, trace: &Trace) -> f64 {
    let (mut gets, mut misses) = (0u64, 0u64);
    for request in &trace.requests {
        match request.action {
            Action::Get => {
                gets += 1;
                if !cache.get(request.key, request.now) {
                    misses += 1;
                    cache.set(request);
                }
            }
            Action::Set => cache.set(request),
            Action::Delete => cache.delete(request.key),
        }
    }
    if gets == 0 { 0.0 } else { misses as f64 / gets as f64 }
}

#[cfg(test)]
mod tests;
