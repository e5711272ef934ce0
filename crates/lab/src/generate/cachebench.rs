//! CacheBench's workloads: the `test_config` of its JSON files.
//!
//! ```text
//! test_config
//!   getRatio, setRatio, delRatio, loneGetRatio, loneSetRatio     weights of the operations
//!   numKeys                  keys that are asked for again and again
//!   popDistFile              popularityBuckets (keys) and popularityWeights (requests) of each bucket, hottest
//!                            first, scaled to numKeys; oneHits, the share of keys that are asked for once
//!   valSizeDistFile          valSizeRange and valSizeRangeProbability
//!   keySizeRange, keySizeRangeProbability
//!   numOps, numThreads       operations of a thread, and threads
//! ```
//! Popularity and sizes may also stand in the configuration itself. As many probabilities as sizes are those of the
//! sizes, one less those of the ranges between them. Without loneGetRatio oneHits takes its place. A bucket's keys
//! are asked for alike. Nothing ever changes: there is no churn, no TTL, and sizes have nothing to do with popularity.
//!
//! A distribution's file lies beside the configuration, or, if that is named `NAME.config.json`, is `NAME.FILE` there.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::TraceExtent;
use crate::Error;
use crate::trace::{Op, Request};
use crate::workload::{Random, WeightedChoice, coprime_near_golden_section, mix, unit};

/// The keys of `test_config` that mean something here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TestConfig {
    num_ops: u64,
    num_threads: u64,
    num_keys: u64,
    get_ratio: f64,
    set_ratio: f64,
    del_ratio: f64,
    lone_get_ratio: Option<f64>,
    lone_set_ratio: f64,
    key_size_range: Vec<f64>,
    key_size_range_probability: Vec<f64>,
    val_size_range: Vec<f64>,
    val_size_range_probability: Vec<f64>,
    val_size_dist_file: Option<PathBuf>,
    popularity_buckets: Vec<f64>,
    popularity_weights: Vec<f64>,
    pop_dist_file: Option<PathBuf>,
}

const KNOWN: [&str; 16] = [
    "numOps",
    "numThreads",
    "numKeys",
    "getRatio",
    "setRatio",
    "delRatio",
    "loneGetRatio",
    "loneSetRatio",
    "keySizeRange",
    "keySizeRangeProbability",
    "valSizeRange",
    "valSizeRangeProbability",
    "valSizeDistFile",
    "popularityBuckets",
    "popularityWeights",
    "popDistFile",
];

impl Default for TestConfig {
    fn default() -> Self {
        Self {
            num_ops: 0,
            num_threads: 1,
            num_keys: 0,
            get_ratio: 0.0,
            set_ratio: 0.0,
            del_ratio: 0.0,
            lone_get_ratio: None,
            lone_set_ratio: 0.0,
            key_size_range: Vec::new(),
            key_size_range_probability: Vec::new(),
            val_size_range: Vec::new(),
            val_size_range_probability: Vec::new(),
            val_size_dist_file: None,
            popularity_buckets: Vec::new(),
            popularity_weights: Vec::new(),
            pop_dist_file: None,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PopularityFile {
    popularity_buckets: Vec<f64>,
    popularity_weights: Vec<f64>,
    #[serde(default)]
    one_hits: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SizeFile {
    val_size_range: Vec<f64>,
    val_size_range_probability: Vec<f64>,
}

/// A workload of CacheBench.
#[derive(Clone, Debug)]
pub(super) struct CacheBench {
    operations: WeightedChoice<CacheBenchOperation>,
    /// Each bucket's first rank and how many it has.
    buckets: WeightedChoice<(u64, u64)>,
    keys: u64,
    stride: u64,
    key_sizes: Sizes,
    value_sizes: Sizes,
    /// Operations of all threads together.
    pub(super) operations_in_all: u64,
    /// Keys of `test_config` that mean nothing here.
    pub(super) ignored: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
enum CacheBenchOperation {
    Of(Op),
    /// On a key that is never asked for again.
    Lone(Op),
}

impl CacheBench {
    /// Reads a configuration and the files that it names. `keys` takes the place of its numKeys.
    pub(super) fn read(path: &Path, keys: Option<u64>) -> Result<Self, Error> {
        let whole: Map<String, Value> = json(path)?;
        let wrong = |reason: String| malformed(path, 1, reason);
        let test = whole.get("test_config").cloned().ok_or_else(|| wrong("no `test_config`".into()))?;
        let names: Vec<String> = test.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default();
        let ignored = names.into_iter().filter(|name| !KNOWN.contains(&name.as_str())).collect();
        let mut config: TestConfig =
            serde_json::from_value(test).map_err(|error| wrong(format!("test_config: {error}")))?;
        if let Some(file) = &config.pop_dist_file {
            let file: PopularityFile = json(&beside(path, file))?;
            (config.popularity_buckets, config.popularity_weights) = (file.popularity_buckets, file.popularity_weights);
            config.lone_get_ratio.get_or_insert(file.one_hits / (1.0 - file.one_hits) * config.get_ratio);
        }
        if let Some(file) = &config.val_size_dist_file {
            let file: SizeFile = json(&beside(path, file))?;
            (config.val_size_range, config.val_size_range_probability) =
                (file.val_size_range, file.val_size_range_probability);
        }
        config.num_keys = keys.unwrap_or(config.num_keys);
        Self::new(&config, ignored).map_err(wrong)
    }

    fn new(config: &TestConfig, ignored: Vec<String>) -> Result<Self, String> {
        let operations = WeightedChoice::new([
            (CacheBenchOperation::Of(Op::Get), config.get_ratio),
            (CacheBenchOperation::Of(Op::Set), config.set_ratio),
            (CacheBenchOperation::Of(Op::Delete), config.del_ratio),
            (CacheBenchOperation::Lone(Op::Get), config.lone_get_ratio.unwrap_or(0.0)),
            (CacheBenchOperation::Lone(Op::Set), config.lone_set_ratio),
        ]);
        if config.num_keys == 0 {
            return Err("numKeys is 0; a workload has one key at least".into());
        }
        Ok(Self {
            operations: operations.ok_or("no ratio of an operation is above 0")?,
            buckets: buckets(config)?,
            keys: config.num_keys,
            stride: coprime_near_golden_section(config.num_keys),
            key_sizes: Sizes::new("keySizeRange", &config.key_size_range, &config.key_size_range_probability)?,
            value_sizes: Sizes::new("valSizeRange", &config.val_size_range, &config.val_size_range_probability)?,
            operations_in_all: config.num_ops.saturating_mul(config.num_threads),
            ignored,
        })
    }

    pub(super) fn requests(&self, span_seconds: u64, extent: TraceExtent) -> impl Iterator<Item = Request> + '_ {
        let mut random = Random::new(extent.seed, 0);
        let mut lone = self.keys;
        let step = span_seconds as f64 / extent.requests as f64;
        (0..extent.requests).map(move |index| {
            let (op, key) = match self.operations.pick(random.next_unit()) {
                CacheBenchOperation::Of(op) => (op, self.key(&mut random)),
                CacheBenchOperation::Lone(op) => {
                    lone += 1;
                    (op, lone - 1)
                }
            };
            let bits = mix(mix(extent.seed) ^ mix(key));
            Request {
                time_seconds: extent.clock.second(index as f64 * step),
                key,
                key_size: self.key_sizes.pick(unit(bits)),
                value_size: self.value_sizes.pick(unit(mix(bits))),
                op,
                ttl_seconds: 0,
            }
        })
    }

    /// Ranks are spread over the numbers, so that a key's number says nothing of its popularity.
    fn key(&self, random: &mut Random) -> u64 {
        let (first, ranks) = self.buckets.pick(random.next_unit());
        let rank = first + random.below(ranks);
        (u128::from(rank) * u128::from(self.stride) % u128::from(self.keys)) as u64
    }
}

/// The buckets, scaled to as many ranks as there are keys; without any, all keys are in one.
fn buckets(config: &TestConfig) -> Result<WeightedChoice<(u64, u64)>, String> {
    let (sizes, weights) = (&config.popularity_buckets, &config.popularity_weights);
    if sizes.len() != weights.len() {
        return Err(format!("{} popularityBuckets and {} popularityWeights", sizes.len(), weights.len()));
    }
    if sizes.is_empty() {
        return Ok(WeightedChoice::new([((0, config.num_keys), 1.0)]).expect("one weight is one"));
    }
    let total: f64 = sizes.iter().sum();
    if sizes.iter().any(|size| size.is_nan() || *size < 0.0) || !(total > 0.0 && total.is_finite()) {
        return Err("popularityBuckets are not numbers of keys".into());
    }
    let mut end = 0.0;
    let last = config.num_keys - 1;
    let scaled = sizes.iter().zip(weights).map(|(size, &weight)| {
        let first = ((end / total * config.num_keys as f64) as u64).min(last);
        end += size;
        let next = ((end / total * config.num_keys as f64) as u64).min(config.num_keys);
        // A bucket that the scale leaves no key of its own shares its neighbour's.
        ((first, next.saturating_sub(first).max(1)), weight)
    });
    WeightedChoice::new(scaled).ok_or_else(|| "popularityWeights are not weights".into())
}

/// Sizes with probabilities, or ranges of sizes.
#[derive(Clone, Debug)]
enum Sizes {
    Each(WeightedChoice<u32>),
    /// From the first of two, up to the second and without it.
    Between(WeightedChoice<(f64, f64)>),
}

impl Sizes {
    fn new(name: &str, sizes: &[f64], probabilities: &[f64]) -> Result<Self, String> {
        if sizes.iter().any(|size| !(0.0..f64::from(u32::MAX)).contains(size)) {
            return Err(format!("{name} has sizes that are not from 0 to 2^32"));
        }
        let wrong = || format!("{name}Probability has no weights, or some that are below 0");
        if sizes.len() == probabilities.len() {
            let each = sizes.iter().map(|&size| size as u32).zip(probabilities.iter().copied());
            return WeightedChoice::new(each).map(Self::Each).ok_or_else(wrong);
        }
        if sizes.len() != probabilities.len() + 1 || !sizes.is_sorted() {
            return Err(format!(
                "{name} has {} sizes, and {name}Probability {}: as many, or one more and in order, make sense",
                sizes.len(),
                probabilities.len()
            ));
        }
        let between = sizes.windows(2).map(|ends| (ends[0], ends[1])).zip(probabilities.iter().copied());
        WeightedChoice::new(between).map(Self::Between).ok_or_else(wrong)
    }

    fn pick(&self, unit: f64) -> u32 {
        match self {
            Self::Each(sizes) => sizes.pick(unit),
            Self::Between(ranges) => {
                let (_, within) = ranges.locate(unit);
                let (low, high) = ranges.pick(unit);
                (low + within * (high - low)) as u32
            }
        }
    }
}

fn beside(config: &Path, file: &Path) -> PathBuf {
    let plain = config.with_file_name(file);
    let name = config.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix("config.json"));
    match name {
        Some(prefix) if !plain.exists() => config.with_file_name(format!("{prefix}{}", file.display())),
        _ => plain,
    }
}

fn json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let text =
        std::fs::read_to_string(path).map_err(|source| Error::Read { trace: path.display().to_string(), source })?;
    serde_json::from_str(&text).map_err(|error| malformed(path, error.line() as u64, error.to_string()))
}

fn malformed(path: &Path, line: u64, reason: String) -> Error {
    Error::Malformed { trace: path.display().to_string(), line, reason }
}
