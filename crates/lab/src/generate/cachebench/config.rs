//! The keys of a configuration, and the files that it names.
//!
//! Each key is one of three kinds: it changes the requests and is read, it has no meaning for a trace and is listed in
//! the report, or it changes the requests in a way that is not generated. The last kind is refused by its name: a
//! workload that silently lacks a part measures something else.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::cache_config::CacheConfig;
use super::refusal::Refusal;
use crate::Error;

/// `test_config` without the parameters of each pool.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TestConfig {
    pub(super) name: String,
    pub(super) generator: String,
    pub(super) num_ops: u64,
    pub(super) num_threads: Option<u64>,
    pub(super) num_keys: u64,
    pub(super) op_rate_per_sec: u64,
    pub(super) op_rate_burst_size: u64,
    pub(super) op_delay_ns: u64,
    pub(super) op_delay_batch: u64,
    pub(super) op_pool_distribution: Option<Vec<f64>>,
    pub(super) key_pool_distribution: Option<Vec<f64>>,
    pub(super) config_path: PathBuf,
    pub(super) enable_lookaside: bool,
    pub(super) only_set_if_miss: bool,
    pub(super) prepopulate_cache: bool,
}

/// The distributions of a pool; those of `test_config` itself where it has no `poolDistributions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PoolConfig {
    pub(super) get_ratio: f64,
    pub(super) set_ratio: f64,
    pub(super) del_ratio: f64,
    pub(super) add_chained_ratio: f64,
    pub(super) update_ratio: f64,
    pub(super) lone_get_ratio: Option<f64>,
    pub(super) lone_set_ratio: f64,
    pub(super) could_exist_ratio: f64,
    pub(super) key_size_range: Vec<f64>,
    pub(super) key_size_range_probability: Vec<f64>,
    pub(super) val_size_range: Vec<f64>,
    pub(super) val_size_range_probability: Vec<f64>,
    pub(super) val_size_dist_file: Option<PathBuf>,
    pub(super) chained_item_length_range: Vec<f64>,
    pub(super) chained_item_length_range_probability: Vec<f64>,
    pub(super) chained_item_val_size_range: Vec<f64>,
    pub(super) chained_item_val_size_range_probability: Vec<f64>,
    pub(super) ttl_secs_range: Vec<f64>,
    pub(super) ttl_secs_range_probability: Vec<f64>,
    pub(super) popularity_buckets: Vec<f64>,
    pub(super) popularity_weights: Vec<f64>,
    pub(super) pop_dist_file: Option<PathBuf>,
    /// The path of the section in the file.
    #[serde(skip)]
    pub(super) section: String,
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

/// Keys of `test_config` alone.
const TEST_KEYS: [&str; 16] = [
    "name",
    "generator",
    "numOps",
    "numThreads",
    "numKeys",
    "opRatePerSec",
    "opRateBurstSize",
    "opDelayNs",
    "opDelayBatch",
    "opPoolDistribution",
    "keyPoolDistribution",
    "configPath",
    "poolDistributions",
    "enableLookaside",
    "onlySetIfMiss",
    "prepopulateCache",
];

/// Keys of a pool, which `test_config` may have, too.
const POOL_KEYS: [&str; 22] = [
    "getRatio",
    "setRatio",
    "delRatio",
    "addChainedRatio",
    "updateRatio",
    "loneGetRatio",
    "loneSetRatio",
    "couldExistRatio",
    "keySizeRange",
    "keySizeRangeProbability",
    "valSizeRange",
    "valSizeRangeProbability",
    "valSizeDistFile",
    "chainedItemLengthRange",
    "chainedItemLengthRangeProbability",
    "chainedItemValSizeRange",
    "chainedItemValSizeRangeProbability",
    "ttlSecsRange",
    "ttlSecsRangeProbability",
    "popularityBuckets",
    "popularityWeights",
    "popDistFile",
];

/// Keys about the cache, the checks or the statistics of CacheBench: the requests are the same without them.
const WITHOUT_MEANING: [&str; 15] = [
    "allocator",
    "cachePieceSize",
    "checkConsistency",
    "checkNvmCacheWarmUp",
    "distribution",
    "ignoreOpCount",
    "maxCachePieces",
    "maxInconsistencyCount",
    "maxInvalidDestructorCount",
    "mode",
    "populateItem",
    "preallocateCache",
    "samplingIntervalMs",
    "touchValue",
    "useLegacyKeyGen",
];

/// Generators that draw from the distributions of the configuration.
const DRAWING_GENERATORS: [&str; 3] = ["", "workload", "online"];

/// The test that the cache is a component of CacheLib: its requests are those of the distributions.
const COMPONENT_TEST: &str = "cache_component";

/// A configuration whose files are read.
pub(super) struct Configuration {
    pub(super) test: TestConfig,
    pub(super) pools: Vec<PoolConfig>,
    pub(super) cache: CacheConfig,
    /// Keys without a meaning here.
    pub(super) ignored: Vec<String>,
    /// All keys of the test and of the cache, these as `cache_config.KEY`.
    pub(super) given: Vec<String>,
}

impl Configuration {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |refusal: Refusal| refusal.of_file(path);
        let whole = only_instance(json(path)?).map_err(wrong)?;
        let none = || Refusal::new("", "no `test_config`");
        let test = whole.get("test_config").cloned().ok_or_else(none).map_err(wrong)?;
        check_test(&test).map_err(wrong)?;
        let mut ignored = checked("test_config", &test, &[&TEST_KEYS, &POOL_KEYS]).map_err(wrong)?;
        let (cache, of_cache) = CacheConfig::read(whole.get("cache_config")).map_err(wrong)?;
        ignored.extend(of_cache);
        let given =
            keys("", &test).chain(whole.get("cache_config").into_iter().flat_map(|cache| keys("cache_config.", cache)));
        let given = given.collect();
        let listed = test.get("poolDistributions").and_then(Value::as_array);
        let (is_listed, pools) = (listed.is_some(), listed.cloned().unwrap_or_else(|| vec![test.clone()]));
        let test: TestConfig = section("test_config", test).map_err(wrong)?;
        let mut read = Vec::new();
        for (number, pool) in pools.into_iter().enumerate() {
            let mut name = "test_config".to_owned();
            if is_listed {
                name = format!("test_config.poolDistributions[{number}]");
                ignored.extend(checked(&name, &pool, &[&POOL_KEYS]).map_err(wrong)?);
            }
            let mut pool: PoolConfig = section(&name, pool).map_err(wrong)?;
            pool.read_files(path, &test.config_path)?;
            if pool.could_exist_ratio > 0.0 {
                let reason = "couldExistRatio is not supported: no operation of a trace only asks";
                return Err(wrong(Refusal::new("couldExistRatio", reason).within(&name)));
            }
            pool.section = name;
            read.push(pool);
        }
        ignored.sort_unstable();
        ignored.dedup();
        Ok(Self { test, pools: read, cache, ignored, given })
    }
}

/// The keys of a section, each behind `prefix`.
fn keys(prefix: &str, section: &Value) -> impl Iterator<Item = String> {
    section.as_object().into_iter().flat_map(|map| map.keys()).map(move |key| format!("{prefix}{key}"))
}

/// A file may list configurations that CacheBench runs side by side; one of them is a workload.
fn only_instance(file: Value) -> Result<Map<String, Value>, Refusal> {
    match file {
        Value::Object(whole) => Ok(whole),
        Value::Array(mut instances) if instances.len() == 1 => only_instance(instances.remove(0)),
        Value::Array(instances) => {
            let count = instances.len();
            let reason =
                format!("a list of {count} configurations, and one is a workload; give each a file of its own");
            Err(Refusal::new("", reason))
        }
        other => Err(Refusal::new("", format!("`{other}` is no configuration; give an object with `test_config`"))),
    }
}

/// Refuses tests whose requests are not drawn from the distributions.
fn check_test(test: &Value) -> Result<(), Refusal> {
    let text = |name: &str| test.get(name).and_then(Value::as_str).unwrap_or_default();
    let (generator, name) = (text("generator"), text("name"));
    if !DRAWING_GENERATORS.contains(&generator) {
        let reason = "is not supported: it plays a trace; give that trace to `ebbtide replay`";
        return Err(Refusal::new("test_config.generator", format!("generator `{generator}` {reason}")));
    }
    match name {
        "" | COMPONENT_TEST => Ok(()),
        _ => {
            let reason = format!("name `{name}` is not supported: it is a test of CacheLib's classes");
            Err(Refusal::new("test_config.name", reason))
        }
    }
}

/// A section of the file. Every key of it has a default, so that the one that does not fit is refused alone, too.
fn section<T: DeserializeOwned>(name: &str, value: Value) -> Result<T, Refusal> {
    let of_key = |(key, value): (&String, &Value)| {
        let alone = Map::from_iter([(key.clone(), value.clone())]);
        let error = serde_json::from_value::<T>(Value::Object(alone)).err()?;
        Some(Refusal::new(key.clone(), error.to_string()))
    };
    serde_json::from_value(value.clone()).map_err(|error| {
        let refusal = value.as_object().and_then(|map| map.iter().find_map(of_key));
        refusal.unwrap_or_else(|| Refusal::new("", error.to_string())).within(name)
    })
}

impl PoolConfig {
    fn read_files(&mut self, path: &Path, folder: &Path) -> Result<(), Error> {
        if let Some(file) = &self.pop_dist_file {
            let file: PopularityFile = json(&beside(path, &folder.join(file)))?;
            (self.popularity_buckets, self.popularity_weights) = (file.popularity_buckets, file.popularity_weights);
            self.lone_get_ratio.get_or_insert(file.one_hits / (1.0 - file.one_hits) * self.get_ratio);
        }
        if let Some(file) = &self.val_size_dist_file {
            let file: SizeFile = json(&beside(path, &folder.join(file)))?;
            (self.val_size_range, self.val_size_range_probability) =
                (file.val_size_range, file.val_size_range_probability);
        }
        Ok(())
    }
}

/// The keys of `section` without a meaning.
fn checked(section: &str, value: &Value, known: &[&[&str]]) -> Result<Vec<String>, Refusal> {
    let names = value.as_object().map_or_else(Vec::new, |map| map.keys().cloned().collect());
    let (mut ignored, is_known) = (Vec::new(), |name: &str| known.iter().any(|keys| keys.contains(&name)));
    for name in names.into_iter().filter(|name| !is_known(name)) {
        let refused = |reason: String| Err(Refusal::new(name.clone(), reason).within(section));
        if TEST_KEYS.contains(&name.as_str()) {
            return refused(format!("the key {name} is of test_config as a whole; give it there"));
        }
        if !WITHOUT_MEANING.contains(&name.as_str()) {
            return refused(format!("the key {name} is not supported; remove it if the requests do not need it"));
        }
        ignored.push(name);
    }
    Ok(ignored)
}

fn beside(config: &Path, file: &Path) -> PathBuf {
    let plain = config.parent().unwrap_or(Path::new("")).join(file);
    let name = config.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix("config.json"));
    match name {
        Some(prefix) if !plain.exists() => config.with_file_name(format!("{prefix}{}", file.display())),
        _ => plain,
    }
}

fn json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let text =
        std::fs::read_to_string(path).map_err(|source| Error::Read { trace: path.display().to_string(), source })?;
    serde_json::from_str(&without_comments(&text)).map_err(|error| Error::Malformed {
        trace: path.display().to_string(),
        line: error.line() as u64,
        reason: error.to_string(),
    })
}

/// CacheLib's files hold `//` comments. Line numbers stay.
fn without_comments(text: &str) -> String {
    let mut found = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (mut is_quoted, mut end, mut before) = (false, line.len(), ' ');
        for (at, letter) in line.char_indices() {
            match letter {
                '"' if before != '\\' => is_quoted = !is_quoted,
                '/' if !is_quoted && before == '/' => {
                    end = at - 1;
                    break;
                }
                _ => {}
            }
            before = letter;
        }
        found.push_str(&line[..end]);
        if end < line.len() && line.ends_with('\n') {
            found.push('\n');
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_end_with_their_line() {
        let text = "// a\n{\"path\": \"http://x\"} // b\n1";
        assert_eq!(without_comments(text), "\n{\"path\": \"http://x\"} \n1");
    }
}
