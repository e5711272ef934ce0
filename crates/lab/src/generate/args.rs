use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use super::preset::Preset;
use crate::Error;
use crate::workload::SizeDistribution;

/// The arguments of `ebbtide generate`.
#[derive(Clone, Debug, clap::Args)]
pub struct GenerateArgs {
    /// The trace to write; compressed if it is named .zst or .gz; - is standard output
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace a file that exists without a line on standard error
    #[arg(long, visible_alias = "force")]
    pub overwrite: bool,
    /// Format of the trace; oracle-general has neither operations nor TTLs
    #[arg(long, value_enum, default_value_t)]
    pub format: ExportFormat,
    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
    // The last one: a heading holds for all options after it.
    #[command(flatten)]
    pub workload: WorkloadArgs,
}

/// Which requests.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(group(clap::ArgGroup::new("workload").required(true)))]
pub struct WorkloadArgs {
    /// A workload by name
    #[arg(long, value_enum, group = "workload")]
    pub preset: Option<Preset>,
    /// A Twitter cluster by its number in --cluster-table
    #[arg(long, value_name = "NUMBER", group = "workload", requires = "cluster_table")]
    pub cluster: Option<u32>,
    /// The statistics of Twitter's clusters, as a csv file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["preset", "cachebench"])]
    pub cluster_table: Option<PathBuf>,
    /// A workload of CacheBench: a JSON file with its `test_config`
    #[arg(long, value_name = "FILE", group = "workload")]
    pub cachebench: Option<PathBuf>,
    /// Requests, such as 20m; presets and clusters come near to it [default: 10m, or what --cachebench says]
    #[arg(long, value_name = "COUNT")]
    pub requests: Option<CountArg>,
    /// Seed of keys, sizes and times
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Let the rate swing between day and night
    #[arg(long)]
    pub diurnal: bool,
    /// The keys and sizes of a plain workload
    #[command(flatten)]
    pub plain: PlainArgs,
}

/// Parameters of zipf, uniform and scan; keys and span also apply to CacheBench's workloads.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Options of zipf, uniform and scan")]
pub struct PlainArgs {
    /// Keys at one time, such as 1m; also instead of CacheBench's numKeys [default: 1m]
    #[arg(long, value_name = "COUNT")]
    pub keys: Option<CountArg>,
    /// Seconds from the first request to the last; also for --cachebench [default: 604800, a week]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    pub span: Option<u64>,
    /// Exponent of Zipf's law [default: 1.0]
    #[arg(long)]
    pub alpha: Option<f64>,
    /// Keys at the head of Zipf's law that are about equally popular [default: 0]
    #[arg(long, value_name = "COUNT")]
    pub flat_head: Option<CountArg>,
    /// Variance of the requests of a second for each of their mean: 1 is arrivals by chance (Poisson), more is bursts
    /// [default: evenly spaced]
    #[arg(long, value_name = "RATIO")]
    pub dispersion: Option<f64>,
    /// Share of the keys that new ones replace, per day [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub churn: Option<f64>,
    /// Bytes of a key: SIZE, LOW-HIGH or lognormal:MEDIAN:SIGMA[:MAX] [default: 20]
    #[arg(long, value_name = "SIZES")]
    pub key_size: Option<SizeDistribution>,
    /// Bytes of a value: SIZE, LOW-HIGH or lognormal:MEDIAN:SIGMA[:MAX] [default: 100]
    #[arg(long, value_name = "SIZES")]
    pub value_size: Option<SizeDistribution>,
    /// Seconds that an object lives; 0 is for ever [default: 0]
    #[arg(long, value_name = "SECONDS")]
    pub ttl: Option<u32>,
    /// Sets among all requests, 0 to 1; the rest are gets [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub set_ratio: Option<f64>,
}

/// The formats that traces are written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportFormat {
    /// Header `timestamp_s,key_id,key_size,value_size,op,ttl_s`.
    #[default]
    Csv,
    /// libCacheSim's oracleGeneral.
    #[value(alias = "oracleGeneral", alias = "oracle")]
    OracleGeneral,
}

/// A number of things: at least one, with `k`, `m` or `g` for thousands, millions and billions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountArg(pub u64);

impl FromStr for CountArg {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let (digits, unit) = match lower.char_indices().last() {
            Some((end, 'k')) => (&lower[..end], 1_000),
            Some((end, 'm')) => (&lower[..end], 1_000_000),
            Some((end, 'g')) => (&lower[..end], 1_000_000_000),
            _ => (lower.as_str(), 1),
        };
        let count = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit));
        match count {
            Some(count) if count > 0 => Ok(Self(count)),
            _ => Err(format!("`{text}` is not a count, such as 5000, 20m or 1g")),
        }
    }
}

/// A plain number, or a count with a unit, of an option that has a type of its own.
pub fn counted<N: FromStr + TryFrom<u64>>(text: &str) -> Result<N, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let CountArg(count) = text.parse()?;
    N::try_from(count).map_err(|_| format!("`{text}` is too large for this option"))
}

/// A rate with a point, or a count with a unit.
pub fn rate(text: &str) -> Result<f64, String> {
    text.parse::<f64>().or_else(|_| counted::<u32>(text).map(f64::from))
}

/// The error for an argument with this value.
pub(super) fn refused(option: &'static str, value: impl Display, reason: String) -> Error {
    Error::Configuration { option, value: value.to_string(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_units_in_every_type() {
        assert_eq!((counted::<u64>("1k"), counted::<usize>("1024"), counted::<u64>("0")), (Ok(1000), Ok(1024), Ok(0)));
        assert_eq!((rate("2.5"), rate("20K"), rate("1m")), (Ok(2.5), Ok(20_000.0), Ok(1e6)));
        assert!(counted::<u16>("70k").unwrap_err().contains("too large"));
        for bad in ["", "k", "1.5k", "-1", "many"] {
            assert!(counted::<u64>(bad).unwrap_err().contains("20m"), "{bad}");
        }
    }

    #[test]
    fn counts_are_decimal() {
        for (text, count) in [("7", 7), ("20m", 20_000_000), ("3K", 3000), ("2g", 2_000_000_000)] {
            assert_eq!(text.parse(), Ok(CountArg(count)));
        }
        for text in ["", "m", "0", "0k", "-1", "1.5m", "5 m", "99999999999g", "1é"] {
            assert!(text.parse::<CountArg>().is_err(), "{text}");
        }
    }
}
