//! CacheBench's workloads: its JSON files.
//!
//! ```text
//! cache_config
//!   cacheSizeMB              memory of a replay
//!   numPools, poolSizes      its pools, and the share of each
//! test_config
//!   numOps, numThreads       operations of a thread, and threads
//!   numKeys                  keys that are asked for again and again
//!   opRatePerSec             operations a second, which give the trace its length; opDelayNs after each opDelayBatch
//!                            operations of a thread do the same
//!   opRateBurstSize          operations that come at once before the rate holds
//!   keyPoolDistribution      the share of the keys of each pool
//!   opPoolDistribution       the share of the operations
//!   poolDistributions        for each pool, or one for all; else the keys are in test_config itself:
//!     getRatio, setRatio, delRatio, updateRatio, addChainedRatio, loneGetRatio, loneSetRatio
//!     popDistFile            popularityBuckets (keys) and popularityWeights (requests) of each bucket, hottest first,
//!                            scaled to the keys; oneHits, the share of keys that are asked for once
//!     valSizeDistFile        valSizeRange and valSizeRangeProbability
//!     keySizeRange, ttlSecsRange, chainedItemLengthRange, chainedItemValSizeRange, each with its Probability
//! ```
//!   enableLookaside          a miss is followed by a set; without it a miss stays one
//!   onlySetIfMiss            sets are adds
//!   prepopulateCache         each key is set before the first request
//! Popularity and sizes may also be in the configuration itself. Without buckets popularity is normal over the keys.
//! Without loneGetRatio oneHits replaces it. Sizes and TTLs are independent of popularity, and there is no churn.
//!
//! | operation | request |
//! |---|---|
//! | update | replace: only a key that is present is written |
//! | addChained | append of the bytes of all chained items |
//! | lone get, lone set | get, set of a key that is never asked for again |
//!
//! A distribution's file is beside the configuration, or, if that is named `NAME.config.json`, is `NAME.FILE` there.

mod cache_config;
mod config;
mod distributions;
mod refusal;

use std::path::Path;

use super::extent::TraceExtent;
use super::play::PlayedBy;
use crate::Error;
use crate::trace::{Op, Request};
use crate::workload::{Random, WeightedChoice, coprime_near_golden_section, mix, unit};
use cache_config::CacheConfig;
use config::{Configuration, PoolConfig, TestConfig};
use distributions::{KeyPopularity, Numbers};
use refusal::Refusal;

/// Keys in whose place `ebbtide bench` has options of its own or nothing. A server has its own pools.
const IGNORED_BY_BENCH: [&str; 7] = [
    "numOps",
    "numThreads",
    "opDelayNs",
    "opDelayBatch",
    "cache_config.cacheSizeMB",
    "cache_config.numPools",
    "cache_config.poolSizes",
];

/// A workload of CacheBench.
#[derive(Clone, Debug)]
pub(super) struct CacheBench {
    pools: Vec<Pool>,
    /// Which pool an operation is of.
    pool_choice: WeightedChoice<usize>,
    keys: u64,
    /// Operations of all threads together.
    pub(super) operations_in_all: u64,
    /// Seconds that the operations take where the configuration limits their rate.
    pub(super) seconds: Option<u64>,
    /// Number of operations at once at the beginning.
    burst: u64,
    cache: CacheConfig,
    /// Keys of the workload for each of the configuration.
    scale: f64,
    /// Keys that mean nothing here.
    ignored: Vec<String>,
    /// All keys of the configuration.
    given: Vec<String>,
    /// Whether a miss is followed by a set.
    pub(super) fills_misses: bool,
    /// Whether each key is set before the first request.
    pub(super) prepopulates: bool,
    /// Operations a second.
    pub(super) rate: Option<u64>,
}

#[derive(Clone, Debug)]
struct Pool {
    /// The number of its first key, and how many it has.
    first_key: u64,
    keys: u64,
    stride: u64,
    operations: WeightedChoice<CacheBenchOperation>,
    popularity: KeyPopularity,
    key_sizes: Numbers,
    value_sizes: Numbers,
    ttls: Option<Numbers>,
    /// How many chained items an operation adds, and how large each is.
    chains: Option<(Numbers, Numbers)>,
}

#[derive(Clone, Copy, Debug)]
enum CacheBenchOperation {
    Of(Op),
    /// An operation on a key that is never requested again.
    Lone(Op),
}

impl CacheBench {
    /// Reads a configuration and the files that it names. `keys` takes the place of its numKeys.
    pub(super) fn read(path: &Path, keys: Option<u64>) -> Result<Self, Error> {
        let mut configuration = Configuration::read(path)?;
        let test = &mut configuration.test;
        let configured = test.num_keys;
        test.num_keys = keys.unwrap_or(configured);
        let mut bench = Self::new(configuration).map_err(|refusal| refusal.of_file(path))?;
        bench.scale = if configured == 0 { 1.0 } else { bench.keys as f64 / configured as f64 };
        Ok(bench)
    }

    fn new(configuration: Configuration) -> Result<Self, Refusal> {
        let refused = |key: &str, reason: String| Err(Refusal::new(key, reason).within("test_config"));
        let Configuration { test, pools, cache, mut ignored, given } = configuration;
        if test.op_rate_burst_size > 0 && test.op_rate_per_sec == 0 {
            ignored.push("opRateBurstSize".into());
        }
        if test.num_keys == 0 {
            return refused("numKeys", "numKeys is 0; a workload has one key at least".to_owned());
        }
        let one = || vec![1.0];
        let key_shares = test.key_pool_distribution.clone().unwrap_or_else(one);
        let op_shares = test.op_pool_distribution.clone().unwrap_or_else(one);
        let (names, count) = ("keyPoolDistribution and opPoolDistribution", key_shares.len());
        if op_shares.len() != count {
            let reason = format!("{names} have {count} and {} pools; give as many of both", op_shares.len());
            return refused("opPoolDistribution", reason);
        }
        if pools.len() != 1 && pools.len() != count {
            let given = pools.len();
            let reason = format!("{given} poolDistributions for {count} pools; give one, or one for each pool");
            return refused("poolDistributions", reason);
        }
        let pool_choice = WeightedChoice::new(op_shares.into_iter().enumerate());
        let total: f64 = key_shares.iter().sum();
        if key_shares.iter().any(|share| share.is_nan() || *share < 0.0) || !(total > 0.0 && total.is_finite()) {
            return refused("keyPoolDistribution", "no shares, or some that are below 0".to_owned());
        }
        let (mut built, mut end, mut sum) = (Vec::new(), 0, 0.0);
        for (number, share) in key_shares.iter().enumerate() {
            sum += share;
            let first = end;
            end = ((sum / total * test.num_keys as f64) as u64).clamp(first, test.num_keys);
            if number + 1 == count {
                end = test.num_keys;
            }
            if end == first {
                let reason = format!("numKeys {} leaves pool {number} without a key; give more keys", test.num_keys);
                return refused("numKeys", reason);
            }
            let pool = &pools[number.min(pools.len() - 1)];
            built.push(Pool::new(pool, &test, first, end - first).map_err(|refusal| refusal.within(&pool.section))?);
        }
        let operations_in_all = test.num_ops.saturating_mul(test.num_threads.unwrap_or(1));
        let Some(pool_choice) = pool_choice else {
            return refused("opPoolDistribution", "no shares, or some that are below 0".to_owned());
        };
        Ok(Self {
            pools: built,
            pool_choice,
            keys: test.num_keys,
            operations_in_all,
            seconds: seconds(&test, operations_in_all),
            burst: if test.op_rate_per_sec == 0 { 0 } else { test.op_rate_burst_size },
            cache,
            scale: 1.0,
            ignored,
            given,
            fills_misses: test.enable_lookaside,
            prepopulates: test.prepopulate_cache,
            rate: (test.op_rate_per_sec > 0).then_some(test.op_rate_per_sec),
        })
    }

    /// The keys of the configuration that have no effect under this command.
    pub(super) fn ignored(&self, by: PlayedBy) -> Vec<String> {
        let of_command: &[&str] = match by {
            PlayedBy::Trace => &["enableLookaside", "prepopulateCache"],
            PlayedBy::Replay => &[],
            PlayedBy::Bench => &IGNORED_BY_BENCH[..IGNORED_BY_BENCH.len() - 2],
            PlayedBy::RemoteBench => &IGNORED_BY_BENCH,
        };
        let given = self.given.iter().filter(|key| of_command.contains(&key.as_str()));
        let mut ignored: Vec<String> = self.ignored.iter().chain(given).cloned().collect();
        ignored.sort_unstable();
        ignored.dedup();
        ignored
    }

    /// Whether a key is asked for or set once only.
    pub(super) fn is_lone(&self, key: u64) -> bool {
        key >= self.keys
    }

    /// A set of each key that is asked for again, with the number of its pool.
    pub(super) fn prefill(&self, seed: u64) -> impl Iterator<Item = (Request, usize)> + '_ {
        self.pools.iter().enumerate().flat_map(move |(number, pool)| {
            let keys = pool.first_key..pool.first_key + pool.keys;
            keys.map(move |key| (pool.request(Op::Set, key, 0, seed), number))
        })
    }

    pub(super) fn burst(&self) -> u64 {
        self.burst
    }

    pub(super) fn pools(&self) -> usize {
        self.pools.len()
    }

    pub(super) fn requests(&self, span_seconds: u64, extent: TraceExtent) -> impl Iterator<Item = Request> + '_ {
        let mut random = Random::new(extent.seed, 0);
        let mut lone = 0;
        let burst = self.burst.min(extent.requests - 1);
        let step = span_seconds as f64 / (extent.requests - burst) as f64;
        (0..extent.requests).map(move |index| {
            let number = match self.pools.len() {
                1 => 0,
                _ => self.pool_choice.pick(random.next_unit()),
            };
            let pool = &self.pools[number];
            let (op, key) = match pool.operations.pick(random.next_unit()) {
                CacheBenchOperation::Of(op) => (op, pool.key(&mut random)),
                CacheBenchOperation::Lone(op) => {
                    lone += 1;
                    (op, self.keys + (lone - 1) * self.pools.len() as u64 + number as u64)
                }
            };
            let second = extent.clock.second(index.saturating_sub(burst) as f64 * step);
            pool.request(op, key, second, extent.seed)
        })
    }

    /// The memory of each pool in bytes, smaller or larger as the keys are fewer or more than the configuration's.
    ///
    /// # Errors
    /// The reason, where the configuration gives no memory, or fewer pools than the operations have.
    pub(super) fn memory(&self) -> Result<Vec<u64>, String> {
        let whole = self.cache.memory_bytes.ok_or("cache_config has no cacheSizeMB; give --memory")?;
        // Sums are rounded, not shares, so that the pools have the whole together.
        let bytes = |share: f64| (whole as f64 * self.scale * share).round() as u64;
        let mut before = 0.0;
        let share = |share: &f64| {
            let from = bytes(before);
            before += share;
            bytes(before) - from
        };
        Ok(self.pool_shares()?.iter().map(share).collect())
    }

    /// The share of the memory that each pool of the operations has.
    pub(super) fn pool_shares(&self) -> Result<&[f64], String> {
        let (sizes, pools) = (&self.cache.pool_sizes, self.pools.len());
        sizes.get(..pools).ok_or_else(|| {
            format!(
                "opPoolDistribution has {pools} pools and cache_config {}; give numPools and poolSizes",
                sizes.len()
            )
        })
    }

    /// The number of the pool of a key; `None` where there is one pool.
    pub(super) fn pool_of(&self, key: u64) -> Option<usize> {
        match self.pools.len() {
            1 => None,
            count if key >= self.keys => Some(((key - self.keys) % count as u64) as usize),
            _ => self.pools.iter().position(|pool| key < pool.first_key + pool.keys),
        }
    }
}

impl Pool {
    fn new(config: &PoolConfig, test: &TestConfig, first_key: u64, keys: u64) -> Result<Self, Refusal> {
        let set = if test.only_set_if_miss { Op::Add } else { Op::Set };
        let operations = WeightedChoice::new([
            (CacheBenchOperation::Of(Op::Get), config.get_ratio),
            (CacheBenchOperation::Of(set), config.set_ratio),
            (CacheBenchOperation::Of(Op::Delete), config.del_ratio),
            (CacheBenchOperation::Lone(Op::Get), config.lone_get_ratio.unwrap_or(0.0)),
            (CacheBenchOperation::Lone(set), config.lone_set_ratio),
            (CacheBenchOperation::Of(Op::Replace), config.update_ratio),
            (CacheBenchOperation::Of(Op::Append), config.add_chained_ratio),
        ]);
        let chains = match config.add_chained_ratio > 0.0 {
            false => None,
            true => Some((
                Numbers::new(
                    "chainedItemLengthRange",
                    &config.chained_item_length_range,
                    &config.chained_item_length_range_probability,
                )?,
                Numbers::new(
                    "chainedItemValSizeRange",
                    &config.chained_item_val_size_range,
                    &config.chained_item_val_size_range_probability,
                )?,
            )),
        };
        Ok(Self {
            first_key,
            keys,
            stride: coprime_near_golden_section(keys),
            operations: operations.ok_or_else(|| Refusal::new("", "no ratio of an operation is above 0"))?,
            popularity: KeyPopularity::new(config, keys)?,
            key_sizes: Numbers::new("keySizeRange", &config.key_size_range, &config.key_size_range_probability)?,
            value_sizes: Numbers::new("valSizeRange", &config.val_size_range, &config.val_size_range_probability)?,
            ttls: Numbers::optional("ttlSecsRange", &config.ttl_secs_range, &config.ttl_secs_range_probability)?,
            chains,
        })
    }

    /// Ranks are spread over the numbers, so that a key's number says nothing of its popularity.
    fn key(&self, random: &mut Random) -> u64 {
        let rank = self.popularity.next(random);
        self.first_key + (u128::from(rank) * u128::from(self.stride) % u128::from(self.keys)) as u64
    }

    fn request(&self, op: Op, key: u64, time_seconds: u64, seed: u64) -> Request {
        let bits = mix(mix(seed) ^ mix(key));
        let value_bits = mix(bits);
        let value_size = match (&self.chains, op) {
            (Some((lengths, sizes)), Op::Append) => {
                let length = lengths.pick(unit(mix(value_bits)));
                let items = (0..u64::from(length)).map(|item| sizes.pick(unit(mix(value_bits ^ mix(item)))));
                items.fold(0_u32, u32::saturating_add)
            }
            _ => self.value_sizes.pick(unit(value_bits)),
        };
        Request {
            time_seconds,
            key,
            key_size: self.key_sizes.pick(unit(bits)),
            value_size,
            op,
            ttl_seconds: self.ttls.as_ref().map_or(0, |ttls| ttls.pick(unit(mix(value_bits ^ bits)))),
        }
    }
}

/// How long the operations take at the rate of the configuration.
fn seconds(test: &TestConfig, operations: u64) -> Option<u64> {
    let seconds = match (test.op_rate_per_sec, test.op_delay_batch) {
        (0, 0) => return None,
        (0, batch) => {
            let pauses = operations / test.num_threads.unwrap_or(1).max(1) / batch;
            pauses as f64 * test.op_delay_ns as f64 / 1e9
        }
        (rate, _) => operations.saturating_sub(test.op_rate_burst_size) as f64 / rate as f64,
    };
    (seconds > 0.0).then(|| (seconds.ceil() as u64).clamp(1, u64::from(u32::MAX)))
}
