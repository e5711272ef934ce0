//! The keys of the configurations that CacheLib ships under `cachebench/test_configs`, and how a replay takes each.
//! Only the names of the keys are CacheLib's, each value is that of `value`.

use std::fs;

use crate::line::Line;
use clap::Parser;
use ebbtide_lab::replay::{ReplayArgs, replay};
use serde_json::{Map, Value, json};

/// The end of a replay of a configuration.
enum Outcome {
    /// It runs, and lists these keys of the test as ignored; of the cache it lists all but its size and pools.
    Runs(&'static [&'static str]),
    /// The message names this.
    Refused(&'static str),
}
use Outcome::{Refused, Runs};

/// The path, the keys of the cache, the keys of the test without those of `ALWAYS`, and the outcome. `pool.` is a key
/// of each of the `poolDistributions`.
type Shipped = (&'static str, &'static str, &'static str, Outcome);

const ALWAYS: &str = "numOps numThreads";
const SIZES: &str = "numKeys keySizeRange keySizeRangeProbability valSizeRange valSizeRangeProbability";
const RATIOS: &str = "getRatio setRatio delRatio";
const CHAINED: &str = "chainedItemLengthRange chainedItemLengthRangeProbability chainedItemValSizeRange \
    chainedItemValSizeRangeProbability addChainedRatio";
const POOLS: &str = "keyPoolDistribution opPoolDistribution";
const FILES: &str = "numKeys keySizeRange keySizeRangeProbability popDistFile valSizeDistFile";
const LONE: &str = "addChainedRatio delRatio getRatio loneGetRatio setRatio";
const FILES_OF_POOLS: &str = "numKeys pool.keySizeRange pool.keySizeRangeProbability pool.popDistFile \
    pool.valSizeDistFile pool.addChainedRatio pool.delRatio pool.getRatio pool.loneGetRatio pool.setRatio";
const NAVY: &str = "navyReaderThreads navyWriterThreads nvmCachePaths nvmCacheSizeMB writeAmpDeviceList \
    navyBlockSize navyParcelMemoryMB htBucketPower moveOnSlabRelease poolRebalanceIntervalSec";

/// Words in capitals are the lists above.
const SHIPPED: &[Shipped] = &[
    (
        "throughput/miss-workload/ram_cache_get_throughput_all_misses.json",
        "poolRebalanceIntervalSec",
        "SIZES RATIOS addChainedRatio",
        Runs(&[]),
    ),
    (
        "throughput/miss-workload/hybrid_cache_get_throughput_all_misses.json",
        "poolRebalanceIntervalSec navyReaderThreads navyWriterThreads nvmCacheSizeMB navyBigHashSizePct",
        "SIZES RATIOS addChainedRatio",
        Runs(&[]),
    ),
    (
        "throughput/simple_online_throughput.json",
        "poolRebalanceIntervalSec",
        "SIZES RATIOS addChainedRatio generator=online",
        Runs(&[]),
    ),
    (
        "throughput/same_value_get_throughput_test_20_pools.json",
        "poolRebalanceIntervalSec htBucketPower htLockPower numPools poolSizes",
        "SIZES RATIOS POOLS",
        Runs(&[]),
    ),
    (
        "throughput/simple_set_throughput_with_chained_items.json",
        "poolRebalanceIntervalSec",
        "SIZES RATIOS CHAINED",
        Runs(&[]),
    ),
    (
        "throughput/simple_ram_cache_delete_throughput.json",
        "poolRebalanceIntervalSec",
        "SIZES RATIOS addChainedRatio",
        Runs(&[]),
    ),
    (
        "throughput/same_value_get_throughput_high_contention.json",
        "poolRebalanceIntervalSec htBucketPower htLockPower lruRefreshSec lruUpdateOnRead tryLockUpdate",
        "SIZES RATIOS",
        Runs(&[]),
    ),
    (
        "throughput/uniform_values_get_throughput_test_component.json",
        "poolRebalanceIntervalSec htBucketPower htLockPower",
        "SIZES name=cache_component getRatio setRatio",
        Runs(&[]),
    ),
    (
        "throughput/uniform_values_get_throughput_test_flash_component.json",
        "allocator navyBlockSize navyRegionSizeMB navyCleanRegionThreads navyCleanRegions navyNumInmemBuffers \
         navyStackSizeKB navyDataChecksum",
        "SIZES name=cache_component getRatio setRatio",
        Runs(&[]),
    ),
    (
        "throughput/navy_block_cache/navy_small_stacked_alloc_and_in_mem_buffer_throttled.json",
        "allocFactor poolRebalanceIntervalSec moveOnSlabRelease numPools poolSizes navyReaderThreads \
         navyWriterThreads navyBlockSize navyCleanRegions navyNumInmemBuffers nvmCacheSizeMB navyBigHashSizePct",
        "SIZES opDelayBatch opDelayNs getRatio setRatio",
        Runs(&[]),
    ),
    (
        "feature_stress/could_exist.json",
        "nvmCacheSizeMB navyBigHashSizePct poolRebalanceIntervalSec moveOnSlabRelease",
        "SIZES RATIOS couldExistRatio",
        Refused("test_config.couldExistRatio"),
    ),
    (
        "feature_stress/event_tracker_dram_navy.json",
        "allocator numPools poolSizes allocFactor nvmCacheSizeMB navyBigHashSizePct navySmallItemMaxSize \
         navyBigHashBucketSize navyBlockSize eventTrackerFilePath eventTrackerSamplingRate eventTrackerQueueSize",
        "SIZES getRatio setRatio POOLS",
        Runs(&[]),
    ),
    (
        "feature_stress/free_list.json",
        "poolRebalanceIntervalSec moveOnSlabRelease rebalanceStrategy",
        "SIZES RATIOS",
        Runs(&[]),
    ),
    (
        "feature_stress/item_destructor/navy.json",
        "enableItemDestructorCheck nvmCacheSizeMB",
        "SIZES RATIOS CHAINED updateRatio",
        Runs(&[]),
    ),
    (
        "feature_stress/memory_monitor/scripted_resident.json",
        "htBucketPower htLockPower memoryMonitorMode memoryMonitorIntervalMs memoryMonitorLowerLimitGB \
         memoryMonitorUpperLimitGB memoryMonitorMaxAdvisePercentPerIter memoryMonitorMaxReclaimPercentPerIter \
         memoryMonitorMaxAdvisePercent memoryMonitorScriptRepeat memoryMonitorScript",
        "SIZES RATIOS preallocateCache opRatePerSec opRateBurstSize",
        Runs(&["preallocateCache"]),
    ),
    (
        "feature_stress/navy/default.json",
        "poolRebalanceIntervalSec moveOnSlabRelease numPools poolSizes allocFactor nvmCacheSizeMB",
        "SIZES CHAINED getRatio setRatio POOLS",
        Runs(&[]),
    ),
    (
        "feature_stress/slab_release/chained_items_moving.json",
        "poolRebalanceIntervalSec moveOnSlabRelease rebalanceStrategy rebalanceMinSlabs",
        "SIZES RATIOS CHAINED",
        Runs(&[]),
    ),
    (
        "feature_stress/dynamic_refresh_time.json",
        "mmReconfigureIntervalSecs lruRefreshSec lruRefreshRatio",
        "SIZES RATIOS",
        Runs(&[]),
    ),
    ("hit_ratio/bigcache/config.json", "poolRebalanceIntervalSec", "FILES LONE enableLookaside", Runs(&[])),
    (
        "hit_ratio/graph_cache_leader_fbobj/config-8GB-DRAM.json",
        "poolRebalanceIntervalSec cacheDir",
        "FILES LONE enableLookaside",
        Runs(&[]),
    ),
    (
        "hit_ratio/memcache_reg/config.json",
        "poolRebalanceIntervalSec",
        "FILES LONE enableLookaside generator=online opDelayNs opDelayBatch",
        Runs(&[]),
    ),
    (
        "ssd_perf/flat_kvcache_reg/config.json",
        "NAVY allocFactor maxAllocSize minAllocSize navyBigHashBucketSize navyBigHashSizePct navySmallItemMaxSize \
         rebalanceStrategy rebalanceMinRatio rebalanceMinSlabs",
        "FILES LONE enableLookaside generator=online opDelayNs opDelayBatch",
        Runs(&[]),
    ),
    (
        "ssd_perf/graph_cache_leader/config.json",
        "NAVY navyBigHashBucketSize navyBigHashSizePct numPools poolSizes",
        "FILES_OF_POOLS POOLS enableLookaside generator=online opDelayNs opDelayBatch",
        Runs(&[]),
    ),
    (
        "ssd_perf/graph_cache_leader/graph_cache_2inst_1000M.json",
        "NAVY navyBigHashBucketSize navyBigHashSizePct numPools poolSizes twice",
        "FILES_OF_POOLS POOLS pool.useLegacyKeyGen enableLookaside generator=online opDelayNs opDelayBatch",
        Refused("a list of 2 configurations"),
    ),
    (
        "ssd_perf/kvcache_l2_wc/config.json",
        "NAVY navyBigHashSizePct rebalanceStrategy rebalanceMinRatio rebalanceMinSlabs",
        "FILES_OF_POOLS pool.loneSetRatio enableLookaside generator=online opDelayNs opDelayBatch",
        Runs(&[]),
    ),
    (
        "consistency/navy-with-reinsertion-multiple-clean-threads.json",
        "poolRebalanceIntervalSec moveOnSlabRelease allocFactor navyProbabilityReinsertionThreshold \
         navyCleanRegions navyCleanRegionThreads nvmCacheSizeMB",
        "SIZES RATIOS checkConsistency",
        Runs(&["checkConsistency"]),
    ),
    (
        "consistency/ram-with-deletes.json",
        "poolRebalanceIntervalSec moveOnSlabRelease numPools poolSizes allocFactor",
        "SIZES RATIOS CHAINED POOLS checkConsistency distribution",
        Runs(&["checkConsistency", "distribution"]),
    ),
    (
        "huge_pages/hugepage_posix.json",
        "cacheDir hugePageSize hugePageMountDir shmType htBucketPower poolRebalanceIntervalSec moveOnSlabRelease \
         numPools poolSizes",
        "SIZES RATIOS POOLS",
        Runs(&[]),
    ),
    (
        "hit_ratio_test_configs/bigcache_trace_hr_piecewise.json",
        "htBucketPower htLockPower allocSizes numPools poolSizes dipperSizeMB lru2qHotPct memoryOnlyTTL",
        "allocator enableLookaside generator=piecewise-replay populateItem traceFileName",
        Refused("test_config.generator"),
    ),
];

/// The names in a list, with the lists that it names.
fn names(list: &str) -> Vec<&str> {
    let words = list.split_whitespace().flat_map(|word| match word {
        "SIZES" => names(SIZES),
        "RATIOS" => names(RATIOS),
        "CHAINED" => names(CHAINED),
        "POOLS" => names(POOLS),
        "FILES" => names(FILES),
        "LONE" => names(LONE),
        "FILES_OF_POOLS" => names(FILES_OF_POOLS),
        "NAVY" => names(NAVY),
        other => vec![other],
    });
    words.collect()
}

/// A value that the key may have.
fn value(key: &str) -> Value {
    match key {
        "numOps" => json!(300),
        "numThreads" | "numKeys" => json!(20),
        "numPools" => json!(2),
        "keyPoolDistribution" | "opPoolDistribution" | "poolSizes" => json!([0.5, 0.5]),
        "popDistFile" => json!("pop.json"),
        "valSizeDistFile" => json!("sizes.json"),
        _ if key.ends_with("RangeProbability") => json!([1.0]),
        _ if key.ends_with("Range") => json!([8, 16]),
        _ if key.ends_with("Ratio") => json!(0.25),
        _ if key.starts_with("op") => json!(1000),
        "distribution" | "allocator" | "traceFileName" => json!("a name"),
        _ => json!(true),
    }
}

/// A configuration with these keys.
fn configuration(cache: &str, test: &str) -> Value {
    let (mut of_test, mut of_pool) = (Map::new(), Map::new());
    for name in names(ALWAYS).into_iter().chain(names(test)) {
        let of_name = || (name, value(name.trim_start_matches("pool.")));
        let (key, value) = name.split_once('=').map_or_else(of_name, |(key, text)| (key, json!(text)));
        // Without the sizes of chained items there are none.
        let value = if key.ends_with("addChainedRatio") && !test.contains("CHAINED") { json!(0.0) } else { value };
        match key.strip_prefix("pool.") {
            Some(key) => of_pool.insert(key.to_owned(), value),
            None => of_test.insert(key.to_owned(), value),
        };
    }
    if !of_pool.is_empty() {
        let pools = if of_test.contains_key("opPoolDistribution") { 2 } else { 1 };
        of_test.insert("poolDistributions".to_owned(), json!(vec![of_pool; pools]));
    }
    let of_cache: Map<String, Value> = names(cache).into_iter().map(|key| (key.to_owned(), value(key))).collect();
    let mut whole = json!({"cache_config": of_cache, "test_config": of_test});
    whole["cache_config"]["cacheSizeMB"] = json!(16);
    whole
}

#[test]
fn each_shipped_configuration_runs_or_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let pop = json!({"popularityBuckets": [10, 10], "popularityWeights": [0.8, 0.2]});
    fs::write(folder.path().join("pop.json"), pop.to_string()).unwrap();
    let sizes = json!({"valSizeRange": [8, 16], "valSizeRangeProbability": [1.0]});
    fs::write(folder.path().join("sizes.json"), sizes.to_string()).unwrap();
    let path = folder.path().join("config.json");
    for (name, cache, test, outcome) in SHIPPED {
        let whole = configuration(&cache.replace(" twice", ""), test);
        let file = if cache.ends_with(" twice") { json!([whole, whole]) } else { whole };
        fs::write(&path, file.to_string()).unwrap();
        let args = Line::<ReplayArgs>::parse_from(["replay", "--cachebench", path.to_str().unwrap()]).args;
        let report = args.cells().and_then(|cells| replay(&args, cells[0]));
        match (outcome, report) {
            (Runs(of_test), Ok(report)) => {
                let is_read = |key: &&str| !["numPools", "poolSizes"].contains(key);
                let of_cache = names(cache).into_iter().filter(is_read).map(|key| format!("cache_config.{key}"));
                let mut ignored: Vec<String> = of_cache.chain(of_test.iter().map(|key| key.to_string())).collect();
                ignored.sort();
                assert_eq!((report.requests, report.ignored), (6000, ignored), "{name}");
                let is_look_aside = test.contains("enableLookaside");
                assert_eq!(report.fills, if is_look_aside { report.misses } else { 0 }, "{name}");
            }
            (Refused(part), Err(error)) => assert!(error.to_string().contains(part), "{name}: {error}"),
            (Runs(_), Err(error)) => panic!("{name}: {error}"),
            (Refused(_), Ok(report)) => panic!("{name}: {report:?}"),
        }
    }
}
