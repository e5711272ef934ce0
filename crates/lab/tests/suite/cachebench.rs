//! CacheBench's configurations in `generate`, `replay` and `bench`. Those here have the keys of the ones that CacheLib
//! ships under `cachebench/test_configs`.

use std::fs;
use std::path::PathBuf;

use crate::line::Line;
use clap::Parser;
use ebbtide_lab::Error;
use ebbtide_lab::bench::{BenchArgs, BenchReport, bench};
use ebbtide_lab::generate::{GenerateArgs, Workload};
use ebbtide_lab::replay::{ReplayArgs, ReplayReport, replay};
use ebbtide_lab::trace::Op;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// Two pools with memory of their own, chained items and consistency checks.
const POOLS: &str = r#"// @nolint
{
  "cache_config": {
    "cacheSizeMB": 64, "numPools": 2, "poolSizes": [0.25, 0.75], "poolRebalanceIntervalSec": 1, "allocFactor": 2.0,
    "moveOnSlabRelease": true, "nvmCacheSizeMB": 1024, "navyNumInmemBuffers": 30, "memoryTiers": [{"ratio": 1}]
  },
  "test_config": {
    "checkConsistency": true, "numOps": 20000, "numThreads": 2, "numKeys": 4000, "distribution": "range",
    "preallocateCache": true, "prepopulateCache": true, "opDelayBatch": 1, "opDelayNs": 200,
    "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0],
    "valSizeRange": [256, 1024, 4096], "valSizeRangeProbability": [0.2, 0.8],
    "chainedItemLengthRange": [1, 2, 4], "chainedItemLengthRangeProbability": [0.8, 0.2],
    "chainedItemValSizeRange": [1, 128], "chainedItemValSizeRangeProbability": [1.0],
    "getRatio": 0.7, "setRatio": 0.1, "delRatio": 0.05, "updateRatio": 0.05, "addChainedRatio": 0.1,
    "keyPoolDistribution": [0.5, 0.5], "opPoolDistribution": [0.5, 0.5]
  }
}"#;

/// One of a list of instances, with a rate and a burst.
const BURST: &str = r#"[{
  "cache_config": {"cacheSizeMB": 16, "memoryMonitorMode": "resident", "eventTrackerFilePath": "/tmp/x"},
  "test_config": {
    "name": "cache_component", "generator": "online", "enableLookaside": true, "mode": "micro",
    "numOps": 50000, "numThreads": 4, "numKeys": 1000, "opRatePerSec": 100, "opRateBurstSize": 10000,
    "poolDistributions": [{
      "keySizeRange": [8, 9], "keySizeRangeProbability": [1.0], "valSizeRange": [100, 101],
      "valSizeRangeProbability": [1.0], "ttlSecsRange": [0, 3600], "ttlSecsRangeProbability": [0.5, 0.5],
      "getRatio": 0.6, "loneGetRatio": 0.1, "loneSetRatio": 0.2, "useLegacyKeyGen": true
    }]
  }
}]"#;

fn file(text: &str) -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("config.json");
    fs::write(&path, text).unwrap();
    (directory, path)
}

fn workload(text: &str) -> Result<Workload, Error> {
    let (_directory, path) = file(text);
    let line = ["generate", "--output", "-", "--cachebench", path.to_str().unwrap()];
    Workload::new(&Line::<GenerateArgs>::parse_from(line).args.workload)
}

fn try_replay(text: &str, flags: &str) -> Result<ReplayReport, Error> {
    let (_directory, path) = file(text);
    let line = ["replay", "--cachebench", path.to_str().unwrap()].into_iter().chain(flags.split_whitespace());
    let args = Line::<ReplayArgs>::parse_from(line).args;
    replay(&args, args.cells()?[0])
}

#[test]
fn every_command_plays_a_configuration() {
    for (text, pools) in [(POOLS, 2), (BURST, 0)] {
        let made = workload(text).unwrap().requests().count() as u64;
        let report = try_replay(text, "").unwrap();
        assert_eq!((report.requests, report.pools.map_or(0, |pools| pools.len())), (made, pools));
        let (_directory, path) = file(text);
        let line = ["bench", "--cachebench", path.to_str().unwrap(), "--requests", "5000", "--generated", "5k"];
        let report = bench(&Line::<BenchArgs>::parse_from(line).args).unwrap();
        assert_eq!((report.requests - report.fills, report.pools.len()), (5000, pools));
    }
}

#[test]
fn a_replay_uses_configured_memory_and_pools() {
    let report = try_replay(POOLS, "").unwrap();
    let pools: Vec<(String, u64)> =
        report.pools.unwrap().into_iter().map(|pool| (pool.name, pool.memory_bytes)).collect();
    assert_eq!(pools, [("pool0".to_owned(), 16 * MIB), ("pool1".to_owned(), 48 * MIB)]);
    assert_eq!((report.memory_limit_bytes, report.format), (64 * MIB, "cachebench"));
    let uneven = POOLS.replace("[0.25, 0.75]", "[0.3, 0.7]");
    assert_eq!(try_replay(&uneven, "--requests 3k").unwrap().memory_limit_bytes, 64 * MIB);
    // Half of the keys, half of the memory; a flag of its own counts more.
    assert_eq!(try_replay(POOLS, "--keys 2k --requests 3k").unwrap().memory_limit_bytes, 32 * MIB);
    let report = try_replay(POOLS, "--memory 32m --divide equal --requests 3k").unwrap();
    assert!(report.pools.unwrap().iter().all(|pool| pool.memory_bytes == 16 * MIB));
    let report = try_replay(BURST, "--memory 10% --requests 3k").unwrap();
    assert_eq!((report.memory_limit_bytes, report.requests), (256 << 10, 3000));
    // One pool of two in the cache has its share.
    let one = POOLS.replace(r#""keyPoolDistribution": [0.5, 0.5], "opPoolDistribution": [0.5, 0.5]"#, r#""mode": """#);
    let report = try_replay(&one, "--requests 3k").unwrap();
    assert_eq!((report.memory_limit_bytes, report.pools), (16 * MIB, None));
}

/// Gets of 1000 keys, and what else `test` says.
fn gets(cache: &str, test: &str) -> String {
    format!(
        r#"{{"cache_config": {{"cacheSizeMB": 64{cache}}}, "test_config": {{
        "numOps": 20000, "numThreads": 1, "numKeys": 1000, "keySizeRange": [8, 9], "keySizeRangeProbability": [1.0],
        "valSizeRange": [100, 101], "valSizeRangeProbability": [1.0], "getRatio": 1.0{test}}}}}"#
    )
}

fn run_bench(text: &str, flags: &str) -> BenchReport {
    let (_directory, path) = file(text);
    let line = ["bench", "--cachebench", path.to_str().unwrap(), "--generated", "5k"];
    bench(&Line::<BenchArgs>::parse_from(line.into_iter().chain(flags.split_whitespace())).args).unwrap()
}

#[test]
fn misses_stay_misses_without_look_aside() {
    for test in ["", r#", "enableLookaside": false"#] {
        let report = try_replay(&gets("", test), "").unwrap();
        assert_eq!((report.gets, report.misses, report.fills, report.stored), (20_000, 20_000, 0, 0), "{test}");
        let report = run_bench(&gets("", test), "--requests 5000");
        assert_eq!((report.hits, report.fills), (0, 0), "{test}");
    }
    let look_aside = gets("", r#", "enableLookaside": true"#);
    let report = try_replay(&look_aside, "").unwrap();
    assert_eq!((report.hits + report.misses, report.fills), (20_000, report.misses));
    assert!(report.misses <= 1000 && report.ignored.is_empty(), "{report:?}");
    let report = run_bench(&look_aside, "--requests 5000");
    assert!(report.hits > 4000 && report.fills == report.gets - report.hits, "{report:?}");
}

#[test]
fn a_prepopulated_cache_hits_from_the_start() {
    let text = gets("", r#", "prepopulateCache": true, "loneGetRatio": 0.25"#);
    for flags in ["", "--audit", "--threads 3 --audit", "--warmup 10k"] {
        let report = try_replay(&text, flags).unwrap();
        let counted = if flags.starts_with("--warmup") { 10_000 } else { 20_000 };
        let (lone, stored) = (report.misses as f64 / counted as f64, report.stored);
        assert_eq!((report.requests, report.hits + report.misses, stored), (counted, counted, 0), "{flags}");
        assert!((0.18..0.22).contains(&lone) && report.objects == 1000, "{flags}: {lone} {report:?}");
    }
    let report = run_bench(&text, "--requests 5000");
    let misses = 1.0 - report.hit_ratio;
    assert!((0.17..0.23).contains(&misses) && report.sets == 0, "{report:?}");
    // Each pool has its keys.
    let only_gets = r#""getRatio": 1.0, "setRatio": 0.0, "delRatio": 0.0, "updateRatio": 0.0, "addChainedRatio": 0.0"#;
    let (before, after) = POOLS.split_once(r#""getRatio": 0.7"#).unwrap();
    let after = after.split_once(r#""keyPoolDistribution""#).unwrap().1;
    let report = try_replay(&format!("{before}{only_gets}, \"keyPoolDistribution\"{after}"), "").unwrap();
    assert_eq!((report.misses, report.objects), (0, 4000));
}

#[test]
fn sets_may_be_only_of_absent_keys() {
    let report = try_replay(&gets("", r#", "setRatio": 1.0, "onlySetIfMiss": true"#), "").unwrap();
    let writes = report.writes.unwrap();
    assert_eq!((report.sets, report.stored), (0, report.objects));
    assert_eq!(writes.adds - writes.not_stored, report.stored);
}

#[test]
fn the_requests_of_a_report_add_up() {
    for (text, flags) in [(POOLS, ""), (POOLS, "--threads 2"), (BURST, "--requests 20k")] {
        let report = try_replay(text, flags).unwrap();
        let writes = report.writes.unwrap_or_default();
        let others = writes.adds + writes.replaces + writes.appends + writes.counts;
        assert_eq!(report.requests, report.gets + report.sets + report.deletes + others, "{report:?}");
        assert!(report.sets > 0 && (text == BURST || writes.replaces > 0 && writes.appends > 0), "{report:?}");
        let attempts = report.sets + report.fills + others;
        assert_eq!(attempts, report.stored + report.store_failures + writes.not_stored, "{report:?}");
    }
}

#[test]
fn reports_list_the_keys_without_effect() {
    let replayed = try_replay(POOLS, "").unwrap().ignored;
    for key in ["checkConsistency", "distribution", "cache_config.allocFactor", "cache_config.nvmCacheSizeMB"] {
        assert!(replayed.iter().any(|ignored| ignored == key), "{key}: {replayed:?}");
    }
    for key in ["prepopulateCache", "numOps", "cache_config.cacheSizeMB", "cache_config.poolSizes"] {
        assert!(replayed.iter().all(|ignored| ignored != key), "{key}: {replayed:?}");
    }
    let benched = run_bench(POOLS, "--requests 100").ignored;
    let more: Vec<&str> = benched.iter().filter(|key| !replayed.contains(key)).map(String::as_str).collect();
    assert_eq!(more, ["cache_config.cacheSizeMB", "numOps", "numThreads", "opDelayBatch", "opDelayNs"]);
}

#[test]
fn bench_keeps_the_rate_and_pool_sizes() {
    let paced = gets("", r#", "opRatePerSec": 1, "opRateBurstSize": 100"#);
    let report = run_bench(&paced, "--seconds 0.2 --threads 2");
    let pace = report.pace.unwrap();
    assert_eq!((pace.rate, pace.at_once), (1.0, Some(100)));
    assert!((100..300).contains(&report.requests), "without a rate these are a hundred thousand: {}", report.requests);
    let report = run_bench(POOLS, "--requests 100 --memory 64m");
    let bytes: Vec<u64> = report.pools.iter().map(|pool| pool.memory_bytes.unwrap()).collect();
    let share = bytes[0] as f64 / (bytes[0] + bytes[1]) as f64;
    assert!((0.23..0.27).contains(&share) && bytes[0] + bytes[1] > 60 * MIB, "{bytes:?}");
}

#[test]
fn a_burst_is_immediate_then_the_rate_holds() {
    let requests: Vec<_> = workload(BURST).unwrap().requests().collect();
    let at_once = requests.iter().filter(|request| request.time_seconds == 0).count();
    assert_eq!((requests.len(), at_once), (200_000, 10_000 + 100));
    assert_eq!(requests[199_999].time_seconds, 1899, "190,000 operations, 100 a second");
    let sets = requests.iter().filter(|request| request.op == Op::Set).count() as f64 / 200_000.0;
    assert!((sets / (0.2 / 0.9) - 1.0).abs() < 0.02, "{sets}");
}

#[test]
fn unsupported_configurations_are_refused_by_key() {
    for (from, to, part) in [
        (
            r#""getRatio": 0.6,"#,
            r#""getRatio": 0.6, "numKeys": 9,"#,
            "test_config.poolDistributions[0].numKeys: the key",
        ),
        (
            r#""getRatio": 0.6,"#,
            r#""getRatio": 0.6, "frob": 9,"#,
            "test_config.poolDistributions[0].frob: the key frob is",
        ),
        (r#""getRatio": 0.6,"#, r#""getRatio": "x","#, "test_config.poolDistributions[0].getRatio: invalid type"),
        (r#""getRatio": 0.6,"#, r#""getRatio": 0.6, "ttlSecsRange": [1],"#, "poolDistributions[0].ttlSecsRange: "),
        (r#""generator": "online""#, r#""generator": "replay", "traceFileName": "x""#, "generator `replay`"),
        ("cache_component", "high_refcount", "name `high_refcount`"),
        (r#""cacheSizeMB": 16,"#, r#""numPools": 2,"#, "cache_config.numPools: numPools 2 and 1 poolSizes"),
        ("}]\n  }\n}]", "}]\n  }\n}, {}]", "a list of 2 configurations"),
    ] {
        assert!(BURST.contains(from), "{from}");
        let error = workload(&BURST.replace(from, to)).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(part), "{to}: {error}");
    }
    let without = BURST.replace(r#""cacheSizeMB": 16, "#, "");
    let error = try_replay(&without, "").unwrap_err().to_string();
    assert!(error.contains("no cacheSizeMB; give --memory"), "{error}");
    assert!(try_replay(&without, "--memory 16m --requests 2k").is_ok());
    let one = POOLS.replace(r#""numPools": 2, "poolSizes": [0.25, 0.75],"#, "");
    let error = try_replay(&one, "").unwrap_err().to_string();
    assert!(error.contains("opPoolDistribution has 2 pools and cache_config 1"), "{error}");
    let error = try_replay(BURST, "--divide auto").unwrap_err().to_string();
    assert!(error.contains("nothing to divide"), "{error}");
}
