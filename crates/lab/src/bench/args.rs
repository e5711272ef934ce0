//! The arguments of `ebbtide bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use ebbtide::{ByteSize, Policy};

use super::drive::RunEnd;
use crate::flash::FlashArgs;
use crate::generate::{CountArg, Preset, counted, rate};
use crate::workload::{Popularity, SizeDistribution};

/// TTLs above this are absolute times in the memcached protocol.
pub(super) const MAX_RELATIVE_TTL: u32 = 30 * 24 * 3600;

/// Options for requests that are drawn at random; a trace or a named workload excludes them.
const WORKLOAD_ARGS: [&str; 7] = ["popularity", "exponent", "keys", "key_size", "value_size", "get_ratio", "ttl"];

/// The arguments of `ebbtide bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// A server to drive [default: the engine in process]
    #[arg(long, value_name = "HOST:PORT")]
    pub target: Option<String>,
    /// Protocol of the server
    #[arg(long, value_enum, default_value_t)]
    pub protocol: Dialect,
    /// Play the gets, writes and deletes of a trace, round and round and as fast as it goes, without drawing requests
    #[arg(long, value_name = "FILE", conflicts_with_all = WORKLOAD_ARGS)]
    pub trace: Option<PathBuf>,
    /// Play a workload of `ebbtide generate`, by its name, in the same way
    #[arg(long, value_enum, conflicts_with_all = WORKLOAD_ARGS, conflicts_with = "trace")]
    pub preset: Option<Preset>,
    /// Play a workload of CacheBench in the same way: a JSON file with its `test_config`; --fill, --prefill and the
    /// rate are those of the configuration
    #[arg(long, value_name = "FILE", conflicts_with_all = WORKLOAD_ARGS, conflicts_with_all = ["trace", "preset"])]
    pub cachebench: Option<PathBuf>,
    /// Requests of --preset or --cachebench that are drawn, to be played round and round
    #[arg(long, value_name = "COUNT", default_value = "1m")]
    pub generated: CountArg,
    /// How often each key is asked for
    #[arg(long, value_enum, default_value_t)]
    pub popularity: Popularity,
    /// Exponent of the Zipf distribution
    #[arg(long, default_value_t = 0.99)]
    pub exponent: f64,
    /// Distinct keys, such as 10k
    #[arg(long, value_name = "COUNT", default_value = "1m")]
    pub keys: CountArg,
    /// Bytes of a key: SIZE, LOW-HIGH or lognormal:MEDIAN:SIGMA[:MAX]
    #[arg(long, value_name = "SIZES", default_value = "20")]
    pub key_size: SizeDistribution,
    /// Bytes of a value: SIZE, LOW-HIGH or lognormal:MEDIAN:SIGMA[:MAX]
    #[arg(long, value_name = "SIZES", default_value = "100")]
    pub value_size: SizeDistribution,
    /// Gets among all requests, 0 to 1; the rest are sets
    #[arg(long, default_value_t = 0.9)]
    pub get_ratio: f64,
    /// Seconds that an object lives; 0 is for ever
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub ttl: u32,
    /// Threads that send requests
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,
    /// How long to measure
    #[arg(long, default_value_t = 10.0, conflicts_with = "requests")]
    pub seconds: f64,
    /// Gets (each key counts), writes and deletes to send, instead of a time
    #[arg(long, value_name = "COUNT")]
    pub requests: Option<CountArg>,
    /// Gets, writes and deletes to send before the measurement, which do not count
    #[arg(long, value_name = "COUNT")]
    pub warmup: Option<CountArg>,
    /// Keys of one get: a batch in process, a multiget on the network
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub batch: u16,
    /// Requests in flight on a connection; with --rate, at most
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub pipeline: u16,
    /// Send this number of requests per second (a multiget is one), however slow the answers come, and count latencies
    /// from the time at which a request was due; between requests the client keeps its core busy
    #[arg(long, value_name = "REQUESTS", value_parser = rate)]
    pub rate: Option<f64>,
    /// In what pattern requests are due
    #[arg(long, value_enum, default_value_t, requires = "rate")]
    pub arrivals: Arrivals,
    /// Requests of a burst, with `--arrivals bursty`
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub burst: u32,
    /// Connections of all threads together [default: one per thread]
    #[arg(long, value_name = "COUNT", value_parser = counted::<usize>)]
    pub connections: Option<usize>,
    /// Set every key once before the measurement
    #[arg(long)]
    pub prefill: bool,
    /// Set each key that a get misses; --requests leaves these sets out, `requests` of the report counts them
    #[arg(long)]
    pub fill: bool,
    /// Memory of the engine in process
    #[arg(long, value_name = "SIZE", default_value = "256m")]
    pub memory: ByteSize,
    /// Eviction policy of the engine in process
    #[arg(long, default_value = Policy::default().name())]
    pub policy: Policy,
    #[command(flatten)]
    pub flash: FlashArgs,
    /// Write the latencies of each second as a log of HDR histograms, in nanoseconds
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,
    /// Replace a file of --hdr that exists; that of --csv is replaced in any case, and with this option without a line
    /// on standard error
    #[arg(long, visible_alias = "force")]
    pub overwrite: bool,
    /// Write the report as a csv file with one row
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Seed of keys, sizes and order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
}

impl BenchArgs {
    pub(super) fn end(&self) -> RunEnd {
        match self.requests {
            Some(CountArg(requests)) => RunEnd::Requests(requests),
            None => RunEnd::After(Duration::from_secs_f64(self.seconds)),
        }
    }

    /// The option that names a trace or a workload to play, and its value; `None` if requests are drawn at random.
    pub(super) fn recorded(&self) -> Option<(&'static str, String)> {
        let trace = self.trace.as_ref().map(|path| ("--trace", path.display().to_string()));
        let name =
            |preset: Preset| preset.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
        let preset = || self.preset.map(|preset| ("--preset", name(preset)));
        let cachebench = || self.cachebench.as_ref().map(|path| ("--cachebench", path.display().to_string()));
        trace.or_else(preset).or_else(cachebench)
    }

    pub(super) fn connections(&self) -> usize {
        match self.target {
            Some(_) => self.connections.unwrap_or(self.threads.into()),
            None => 0,
        }
    }
}

/// The protocol of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Dialect {
    /// The classic text protocol.
    #[default]
    Memcached,
    /// RESP: GET, MGET, SET (NX, XX), APPEND, INCR, DECR and DEL.
    Redis,
}

impl Dialect {
    /// The name as `--protocol` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Memcached => "memcached",
            Dialect::Redis => "redis",
        }
    }
}

/// Distribution of the times at which requests become due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Arrivals {
    /// At equal distances.
    #[default]
    Constant,
    /// Independent of each other: exponential distances.
    Poisson,
    /// Several at once, at exponential distances.
    Bursty,
}

impl Arrivals {
    /// The name as `--arrivals` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Arrivals::Constant => "constant",
            Arrivals::Poisson => "poisson",
            Arrivals::Bursty => "bursty",
        }
    }
}
