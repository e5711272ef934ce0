//! From arguments to requests.

use std::fmt::Display;

use super::args::{CountArg, PlainArgs, WorkloadArgs, refused};
use super::cachebench::CacheBench;
use super::clock::DailyClock;
use super::cluster;
use super::extent::TraceExtent;
use super::fitted::Fitted;
use super::plain::Plain;
use super::play::{Pace, PlayedBy};
use super::preset::{Preset, WEEK_SECONDS};
use crate::Error;
use crate::keys::MAX_KEY_SIZE;
use crate::trace::Request;
use crate::workload::{Popularity, SizeDistribution};

const DEFAULT_REQUESTS: u64 = 10_000_000;
const DEFAULT_KEYS: u64 = 1_000_000;

/// A generated request takes 8 bytes or more, and its position is written with 32 bits.
const MAX_REQUESTS: u64 = u32::MAX as u64;

/// A workload: the same requests at each call.
pub struct Workload(WorkloadKind);

enum WorkloadKind {
    Fitted(Fitted),
    Plain(Plain),
    CacheBench { bench: CacheBench, span_seconds: u64, extent: TraceExtent },
}

impl Workload {
    /// Builds the workload of the arguments. Presets and clusters draw all their requests here, 8 bytes each.
    pub fn new(args: &WorkloadArgs) -> Result<Self, Error> {
        check(args)?;
        let requests = args.requests.map(|CountArg(requests)| requests);
        let clock = if args.diurnal { DailyClock::Diurnal } else { DailyClock::Even };
        let extent = |default| -> Result<TraceExtent, Error> {
            let requests = requests.unwrap_or(default);
            match requests {
                1..=MAX_REQUESTS => Ok(TraceExtent { requests, seed: args.seed, clock }),
                _ => Err(refused("--requests", requests, format!("it is from 1 to {MAX_REQUESTS}; ask for fewer"))),
            }
        };
        let kind = if let Some(config) = &args.cachebench {
            let bench = CacheBench::read(config, args.plain.keys.map(|CountArg(keys)| keys))?;
            let extent = extent(bench.operations_in_all)?;
            // A configuration with a rate has a length of its own.
            let span_seconds = args.plain.span.or(bench.seconds).unwrap_or(WEEK_SECONDS);
            WorkloadKind::CacheBench { bench, span_seconds, extent }
        } else if let (Some(number), Some(table)) = (args.cluster, &args.cluster_table) {
            let (component, span_seconds) = cluster::read(table, number)?;
            WorkloadKind::Fitted(Fitted::new(vec![component], span_seconds, &extent(DEFAULT_REQUESTS)?)?)
        } else {
            match args.preset.unwrap_or(Preset::C) {
                Preset::Zipf => WorkloadKind::Plain(plain(&args.plain, Popularity::Zipf, extent(DEFAULT_REQUESTS)?)),
                Preset::Uniform => {
                    WorkloadKind::Plain(plain(&args.plain, Popularity::Uniform, extent(DEFAULT_REQUESTS)?))
                }
                Preset::Scan => WorkloadKind::Plain(plain(&args.plain, Popularity::Scan, extent(DEFAULT_REQUESTS)?)),
                fitted => {
                    WorkloadKind::Fitted(Fitted::new(fitted.components(), WEEK_SECONDS, &extent(DEFAULT_REQUESTS)?)?)
                }
            }
        };
        Ok(Self(kind))
    }

    /// All requests in the order of their time.
    pub fn requests(&self) -> Box<dyn Iterator<Item = Request> + '_> {
        match &self.0 {
            WorkloadKind::Fitted(fitted) => Box::new(fitted.requests()),
            WorkloadKind::Plain(plain) => Box::new(plain.requests()),
            WorkloadKind::CacheBench { bench, span_seconds, extent } => {
                Box::new(bench.requests(*span_seconds, *extent))
            }
        }
    }

    /// Distinct keys and the bytes that they have with their values, where that is known without counting.
    pub fn size(&self) -> Option<(u64, u64)> {
        match &self.0 {
            WorkloadKind::Fitted(fitted) => Some((fitted.keys(), fitted.footprint_bytes())),
            WorkloadKind::Plain(_) | WorkloadKind::CacheBench { .. } => None,
        }
    }

    /// The memory that a CacheBench configuration gives the cache, by pool, in bytes.
    ///
    /// # Errors
    /// The reason, where it gives none.
    pub(crate) fn configured_memory(&self) -> Result<Vec<u64>, String> {
        match &self.0 {
            WorkloadKind::CacheBench { bench, .. } => bench.memory(),
            WorkloadKind::Fitted(_) | WorkloadKind::Plain(_) => Err("only CacheBench's configurations give one".into()),
        }
    }

    /// The shares of the memory of the pools; none where the workload has one pool.
    ///
    /// # Errors
    /// The reason, where the configuration gives fewer than the workload has pools.
    pub(crate) fn pool_shares(&self) -> Result<&[f64], String> {
        match &self.0 {
            WorkloadKind::CacheBench { bench, .. } if self.has_pools() => bench.pool_shares(),
            _ => Ok(&[]),
        }
    }

    /// The pool of a request, where the workload has several.
    pub fn pool_of(&self, request: &Request) -> Option<String> {
        match &self.0 {
            WorkloadKind::CacheBench { bench, .. } => bench.pool_of(request.key).map(pool_name),
            WorkloadKind::Fitted(_) | WorkloadKind::Plain(_) => None,
        }
    }

    /// Whether its requests have pools.
    pub fn has_pools(&self) -> bool {
        matches!(&self.0, WorkloadKind::CacheBench { bench, .. } if bench.pool_of(0).is_some())
    }

    /// Keys of the input that have no effect under this command.
    pub fn ignored(&self, by: PlayedBy) -> Vec<String> {
        self.cachebench().map_or_else(Vec::new, |bench| bench.ignored(by))
    }

    /// Whether a get that misses is followed by a set.
    pub(crate) fn fills_misses(&self) -> bool {
        self.cachebench().is_none_or(|bench| bench.fills_misses)
    }

    /// Sets before the first request, each with the number of its pool.
    pub(crate) fn prefill(&self) -> Box<dyn Iterator<Item = (Request, usize)> + '_> {
        match &self.0 {
            WorkloadKind::CacheBench { bench, extent, .. } if bench.prepopulates => {
                Box::new(bench.prefill(extent.seed))
            }
            _ => Box::new(std::iter::empty()),
        }
    }

    /// Whether each key is set before the first request.
    pub(crate) fn prepopulates(&self) -> bool {
        self.cachebench().is_some_and(|bench| bench.prepopulates)
    }

    /// The rate at which the configuration sends requests.
    pub(crate) fn pace(&self) -> Option<Pace> {
        let bench = self.cachebench()?;
        bench.rate.map(|rate| Pace { rate: rate as f64, at_once: bench.burst() })
    }

    /// Whether a key is in one request only, by the configuration.
    pub(crate) fn is_lone(&self, key: u64) -> bool {
        self.cachebench().is_some_and(|bench| bench.is_lone(key))
    }

    /// The names of the pools; none where there is one.
    pub(crate) fn pool_names(&self) -> Vec<String> {
        let count = self.cachebench().filter(|_| self.has_pools()).map_or(0, CacheBench::pools);
        (0..count).map(pool_name).collect()
    }

    fn cachebench(&self) -> Option<&CacheBench> {
        match &self.0 {
            WorkloadKind::CacheBench { bench, .. } => Some(bench),
            WorkloadKind::Fitted(_) | WorkloadKind::Plain(_) => None,
        }
    }
}

/// The name of a pool of CacheBench, which has a number there.
pub(crate) fn pool_name(number: usize) -> String {
    format!("pool{number}")
}

fn plain(args: &PlainArgs, popularity: Popularity, extent: TraceExtent) -> Plain {
    Plain {
        popularity,
        exponent: args.alpha.unwrap_or(1.0),
        flat_head: args.flat_head.map_or(0, |CountArg(keys)| keys),
        dispersion: args.dispersion,
        keys: args.keys.map_or(DEFAULT_KEYS, |CountArg(keys)| keys),
        churn: args.churn.unwrap_or(0.0),
        key_size: args.key_size.map_or(SizeDistribution::Fixed(20), key_sizes),
        value_size: args.value_size.unwrap_or(SizeDistribution::Fixed(100)),
        ttl_seconds: args.ttl.unwrap_or(0),
        set_ratio: args.set_ratio.unwrap_or(0.0),
        span_seconds: args.span.unwrap_or(WEEK_SECONDS),
        extent,
    }
}

/// Sizes of keys: the tail of a lognormal distribution is cut to the longest key.
fn key_sizes(sizes: SizeDistribution) -> SizeDistribution {
    match sizes {
        SizeDistribution::LogNormal { median, sigma, max } => {
            SizeDistribution::LogNormal { median, sigma, max: max.min(MAX_KEY_SIZE as u32) }
        }
        fixed => fixed,
    }
}

fn check(args: &WorkloadArgs) -> Result<(), Error> {
    let PlainArgs { keys, span, alpha, flat_head, dispersion, churn, key_size, value_size, ttl, set_ratio } =
        &args.plain;
    let zipf = args.preset == Some(Preset::Zipf);
    let plain = zipf || matches!(args.preset, Some(Preset::Uniform | Preset::Scan));
    let open = plain || args.cachebench.is_some();
    let out_of_place = [
        ("--keys", shown(keys.map(|CountArg(keys)| keys)), open),
        ("--span", shown(*span), open),
        ("--alpha", shown(*alpha), zipf),
        ("--flat-head", shown(flat_head.map(|CountArg(keys)| keys)), zipf),
        ("--dispersion", shown(*dispersion), plain),
        ("--churn", shown(*churn), plain),
        ("--key-size", shown(*key_size), plain),
        ("--value-size", shown(*value_size), plain),
        ("--ttl", shown(*ttl), plain),
        ("--set-ratio", shown(*set_ratio), plain),
    ];
    for (option, given, meant) in out_of_place {
        if let Some(value) = given.filter(|_| !meant) {
            return Err(refused(option, value, "this workload has its own; leave it out".into()));
        }
    }
    if let Some(sizes) = key_size.map(key_sizes).filter(|sizes| sizes.largest() > MAX_KEY_SIZE as u32) {
        return Err(refused("--key-size", sizes, format!("keys have at most {MAX_KEY_SIZE} bytes")));
    }
    let limits = [
        ("--alpha", *alpha, 0.0, 100.0),
        ("--churn", *churn, 0.0, 1e6),
        ("--dispersion", *dispersion, 1.0, 1e6),
        ("--set-ratio", *set_ratio, 0.0, 1.0),
    ];
    for (option, value, low, high) in limits {
        if let Some(value) = value.filter(|value| !(low..=high).contains(value)) {
            return Err(refused(option, value, format!("it is from {low} to {high}")));
        }
    }
    Ok(())
}

fn shown(value: Option<impl Display>) -> Option<String> {
    value.map(|value| value.to_string())
}
