//! Workloads that files describe: CacheBench's configurations, and clusters out of a table.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::line::Line;
use clap::Parser;
use ebbtide_lab::Error;
use ebbtide_lab::generate::{GenerateArgs, Workload, generate};
use ebbtide_lab::trace::{Op, Request};
use tempfile::TempDir;

const CONFIG: &str = r#"{
  "cache_config": {"cacheSizeMB": 512},
  "test_config": {
    "numOps": 10000, "numThreads": 4, "numKeys": 3000,
    "getRatio": 0.7, "setRatio": 0.1, "delRatio": 0.1, "loneGetRatio": 0.1,
    "keySizeRange": [1, 8, 64], "keySizeRangeProbability": [0.3, 0.7],
    "popDistFile": "pop.json", "valSizeDistFile": "sizes.json",
    "opDelayNs": 1000, "enableLookaside": true
  }
}"#;
const POPULARITY: &str = r#"{"oneHits": 0.2, "popularityBuckets": [10, 290], "popularityWeights": [60, 40]}"#;
const SIZES: &str = r#"{"valSizeRange": [31, 1023], "valSizeRangeProbability": [75, 25]}"#;

const TABLE: &str = "\
cluster,cluster_name,key_size,value_size,mean_freq,one_hit_wonder_pct,ttl_mix,op_mix,zipf_alpha
7,seven,40,300,25.0,20,3600:0.50;60:0.25,get:0.80;set:0.15;add:0.05,2.5
8,eight,N/A,N/A,N/A,N/A,N/A,N/A,N/A
18,eighteen,22,50,600,1,43200:1.00,get:1.00,1.5
19,nineteen,22,50,600,1,soon,get:1.00,1.5
";

/// A directory with a configuration and its distributions under these names.
fn cachebench(config: &str, names: [&str; 3]) -> TempDir {
    let directory = TempDir::new().unwrap();
    for (name, text) in names.into_iter().zip([config, POPULARITY, SIZES]) {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn args(source: &str, file: &Path, flags: &str) -> GenerateArgs {
    let output = file.with_file_name("out.csv");
    let fixed = ["generate", source, file.to_str().unwrap(), "--output", output.to_str().unwrap()];
    Line::<GenerateArgs>::parse_from(fixed.into_iter().chain(flags.split_whitespace())).args
}

fn try_cachebench(directory: &TempDir, name: &str, flags: &str) -> Result<Vec<Request>, Error> {
    let args = args("--cachebench", &directory.path().join(name), flags);
    Ok(Workload::new(&args.workload)?.requests().collect())
}

fn cluster(text: &str, flags: &str) -> Result<Vec<Request>, Error> {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("table.csv");
    fs::write(&file, text).unwrap();
    Ok(Workload::new(&args("--cluster-table", &file, flags).workload)?.requests().collect())
}

fn share(of: &[Request], which: impl Fn(&Request) -> bool) -> f64 {
    of.iter().filter(|request| which(request)).count() as f64 / of.len() as f64
}

fn assert_near(what: &str, found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() <= tolerance, "{what}: {found} instead of {expected}");
}

fn counts(requests: &[Request]) -> HashMap<u64, u64> {
    let mut counts = HashMap::new();
    requests.iter().for_each(|request| *counts.entry(request.key).or_default() += 1);
    counts
}

#[test]
fn a_configuration_of_cachebench() {
    let directory = cachebench(CONFIG, ["config.json", "pop.json", "sizes.json"]);
    let requests = try_cachebench(&directory, "config.json", "").unwrap();
    assert_eq!(requests.len(), 40_000, "operations of a thread times threads");
    assert_near("sets", share(&requests, |r| r.op == Op::Set), 0.1, 0.1);
    assert_near("deletes", share(&requests, |r| r.op == Op::Delete), 0.1, 0.1);
    let lone: Vec<Request> = requests.iter().filter(|r| r.key >= 3000).copied().collect();
    assert_near("lone gets", lone.len() as f64 / 40_000.0, 0.1, 0.1);
    assert!(counts(&lone).into_values().all(|count| count == 1) && lone.iter().all(|r| r.op == Op::Get));
    let mut often: Vec<u64> = counts(&requests).into_values().collect();
    often.sort_unstable_by(|a, b| b.cmp(a));
    // Of 3000 keys, the 10 of 300 that the first bucket has are 100.
    let hottest: u64 = often[..100].iter().sum();
    assert_near("the first bucket", hottest as f64 / 36_000.0, 0.6, 0.05);
    assert_near("small values", share(&requests, |r| r.value_size == 31), 0.75, 0.1);
    assert!(requests.iter().all(|r| [31, 1023].contains(&r.value_size) && (1..64).contains(&r.key_size)));
    assert_near("short keys", share(&requests, |r| r.key_size < 8), 0.3, 0.2);
    assert_eq!(requests, try_cachebench(&directory, "config.json", "").unwrap());
    assert_ne!(requests, try_cachebench(&directory, "config.json", "--seed 2").unwrap());
}

/// As CacheLib's `consistency/navy-with-deletes.json`, with TTLs, updates and lone operations.
const POOLS: &str = r#"// a comment, as CacheLib's files have them
{
  "cache_config" : { "cacheSizeMB" : 150, "numPools" : 2, "poolSizes" : [0.5, 0.5] },
  "test_config" : {
    "checkConsistency" : true, "numOps" : 100000, "numThreads" : 4, "numKeys" : 20000, "opRatePerSec" : 1000,
    "keyPoolDistribution": [0.25, 0.75], "opPoolDistribution" : [0.6, 0.4],
    "poolDistributions" : [
      { "keySizeRange" : [8, 16], "keySizeRangeProbability" : [1.0],
        "valSizeRange" : [256, 1024, 4096, 8192], "valSizeRangeProbability" : [0.2, 0.7, 0.1],
        "chainedItemLengthRange" : [2, 3], "chainedItemLengthRangeProbability" : [1.0],
        "chainedItemValSizeRange" : [100, 300], "chainedItemValSizeRangeProbability" : [1.0],
        "ttlSecsRange" : [60, 3600], "ttlSecsRangeProbability" : [0.25, 0.75],
        "popularityBuckets" : [100, 900, 4000], "popularityWeights" : [50, 30, 20],
        "getRatio" : 0.5, "setRatio" : 0.1, "delRatio" : 0.1, "updateRatio" : 0.1, "addChainedRatio" : 0.1,
        "loneGetRatio" : 0.06, "loneSetRatio" : 0.04 },
      { "keySizeRange" : [32, 33], "keySizeRangeProbability" : [1.0],
        "valSizeRange" : [50, 51], "valSizeRangeProbability" : [1.0], "getRatio" : 1.0 }
    ]
  }
}"#;

#[test]
fn pools_have_the_distributions_of_their_configuration() {
    let directory = cachebench(POOLS, ["config.json", "pop.json", "sizes.json"]);
    let args = args("--cachebench", &directory.path().join("config.json"), "");
    let workload = Workload::new(&args.workload).unwrap();
    let requests: Vec<Request> = workload.requests().collect();
    let (first, second): (Vec<Request>, Vec<Request>) =
        requests.iter().partition(|request| workload.pool_of(request).as_deref() == Some("pool0"));
    assert_near("operations of the first pool", first.len() as f64, 240_000.0, 0.02);
    let of = |op: Op, lone: bool| share(&first, |r| r.op == op && (r.key >= 20_000) == lone);
    for (op, lone, expected) in [
        (Op::Get, false, 0.5),
        (Op::Set, false, 0.1),
        (Op::Delete, false, 0.1),
        (Op::Replace, false, 0.1),
        (Op::Append, false, 0.1),
        (Op::Get, true, 0.06),
        (Op::Set, true, 0.04),
    ] {
        assert_near(&format!("{op:?} {lone}"), of(op, lone), expected, 0.02);
    }
    // Popularity: the buckets have 100, 900 and 4000 of the 5000 keys of the pool.
    let shared: Vec<Request> = first.iter().filter(|r| r.key < 20_000).copied().collect();
    assert!(shared.iter().all(|r| r.key < 5_000) && second.iter().all(|r| (5_000..20_000).contains(&r.key)));
    let mut often: Vec<u64> = counts(&shared).into_values().collect();
    often.sort_unstable_by(|a, b| b.cmp(a));
    let part = |ranks: std::ops::Range<usize>| often[ranks].iter().sum::<u64>() as f64 / shared.len() as f64;
    assert_near("the first bucket", part(0..100), 0.5, 0.02);
    assert_near("the second bucket", part(100..1000), 0.3, 0.02);
    assert_near("the third bucket", part(1000..often.len()), 0.2, 0.02);
    // Sizes and TTLs, over objects: each has one.
    let objects: Vec<Request> = first.iter().filter(|r| r.key >= 20_000).copied().collect();
    let mean = |sizes: &[Request], of: fn(&Request) -> u32| {
        sizes.iter().map(|r| f64::from(of(r))).sum::<f64>() / sizes.len() as f64
    };
    let expected = 0.2 * 640.0 + 0.7 * 2560.0 + 0.1 * 6144.0;
    assert_near("value bytes", mean(&objects, |r| r.value_size), expected, 0.02);
    assert_near("key bytes", mean(&objects, |r| r.key_size), 11.5, 0.02);
    assert_near("long TTLs", share(&objects, |r| r.ttl_seconds == 3600), 0.75, 0.02);
    let chains: Vec<Request> = first.iter().filter(|r| r.op == Op::Append).copied().collect();
    assert_near("chained bytes", mean(&chains, |r| r.value_size), 400.0, 0.02);
    assert!(second.iter().all(|r| (r.key_size, r.value_size, r.op) == (32, 50, Op::Get)));
    assert_eq!(requests.last().unwrap().time_seconds, 399, "400,000 operations, 1000 a second");
    // The trace names the pools.
    generate(&args).unwrap();
    let text = fs::read_to_string(&args.output).unwrap();
    assert!(text.lines().next().unwrap().ends_with(",pool") && text.contains(",pool1\n"));
}

#[test]
fn keys_and_requests_can_be_scaled() {
    let directory = cachebench(CONFIG, ["cdn.config.json", "cdn.pop.json", "cdn.sizes.json"]);
    let requests = try_cachebench(&directory, "cdn.config.json", "--keys 30 --requests 5k --span 100").unwrap();
    assert_eq!((requests.len(), requests[4999].time_seconds), (5000, 99));
    let top: u64 = counts(&requests).into_iter().filter(|(key, _)| *key < 30).map(|(_, count)| count).max().unwrap();
    assert!(top > 5000 / 2, "the first bucket is one key: {top}");
}

#[test]
fn what_means_nothing_here_is_named() {
    let directory = cachebench(CONFIG, ["config.json", "pop.json", "sizes.json"]);
    let report = generate(&args("--cachebench", &directory.path().join("config.json"), "")).unwrap();
    assert_eq!(report.note.as_deref(), Some("ignored: enableLookaside"));
    let requests = try_cachebench(&directory, "config.json", "").unwrap();
    let sizes: HashMap<u64, u64> =
        requests.iter().filter(|r| r.op != Op::Delete).map(|r| (r.key, u64::from(r.key_size + r.value_size))).collect();
    assert_eq!((report.keys, report.footprint_bytes), (sizes.len() as u64, sizes.values().sum::<u64>()));
}

#[test]
fn one_hits_in_popularity_files_are_lone_gets() {
    let config = CONFIG.replace(r#""setRatio": 0.1, "delRatio": 0.1, "loneGetRatio": 0.1,"#, "");
    let directory = cachebench(&config, ["config.json", "pop.json", "sizes.json"]);
    let requests = try_cachebench(&directory, "config.json", "").unwrap();
    assert_near("lone gets", share(&requests, |r| r.key >= 3000), 0.2, 0.1);
}

#[test]
fn configurations_that_make_no_sense_are_refused() {
    for (from, to, reason) in [
        ("\"test_config\"", "\"tests\"", "no `test_config`"),
        ("\"numKeys\": 3000", "\"numKeys\": -1", "config.json: test_config.numKeys: invalid value"),
        ("\"numKeys\": 3000", "\"numKeys\": 0", "test_config.numKeys: numKeys is 0"),
        ("[1, 8, 64]", "[1, \"x\", 64]", "config.json: test_config.keySizeRange: invalid type"),
        ("[1, 8, 64]", "[1]", "test_config.keySizeRange: keySizeRange has 1 numbers, and keySizeRangeProbability 2"),
        ("[1, 8, 64]", "[1, 8, 4]", "more and in order"),
        ("[0.3, 0.7]", "[-1, 2]", "test_config.keySizeRangeProbability: keySizeRangeProbability has no weights"),
        ("[1, 8, 64]", "[1, 8, 6e9]", "keySizeRange has numbers that are not from 0 to 2^32"),
        ("\"getRatio\": 0.7, \"setRatio\": 0.1, \"delRatio\": 0.1, \"loneGetRatio\": 0.1,", "", "no ratio"),
        ("\"popDistFile\": \"pop.json\"", "\"popularityBuckets\": [1]", "1 popularityBuckets and 0"),
        ("\"popDistFile\": \"pop.json\"", "\"popularityBuckets\": [0], \"popularityWeights\": [1]", "not numbers of"),
        ("pop.json", "gone.json", "gone.json: No such file"),
        ("\"numOps\": 10000", "\"numOps\": 5000000000", "--requests 20000000000: it is from 1 to"),
        ("\"numOps\": 10000,", "", "--requests 0: it is from 1 to"),
        ("}\n}", "", "line "),
        (
            "\"opDelayNs\": 1000",
            "\"generator\": \"piecewise-replay\"",
            "test_config.generator: generator `piecewise-replay` is not supported",
        ),
        ("\"opDelayNs\": 1000", "\"name\": \"cachelib_map\"", "test_config.name: name `cachelib_map` is not supported"),
        (
            "\"opDelayNs\": 1000",
            "\"couldExistRatio\": 0.4",
            "test_config.couldExistRatio: couldExistRatio is not supported",
        ),
        ("\"opDelayNs\": 1000", "\"frobnicate\": 1", "test_config.frobnicate: the key frobnicate is not supported"),
        ("\"opDelayNs\": 1000", "\"opPoolDistribution\": [0.5, 0.5]", "have 1 and 2 pools"),
        ("\"opDelayNs\": 1000", "\"poolDistributions\": [{}, {}]", "2 poolDistributions for 1 pools"),
        ("\"opDelayNs\": 1000", "\"addChainedRatio\": 0.1", "chainedItemLengthRangeProbability has no weights"),
    ] {
        assert!(CONFIG.contains(from), "{from}");
        let directory = cachebench(&CONFIG.replace(from, to), ["config.json", "pop.json", "sizes.json"]);
        let error = try_cachebench(&directory, "config.json", "").unwrap_err().to_string();
        assert!(error.contains(reason), "{from} -> {to}: {error}");
        // The parser of JSON alone knows a line.
        assert_eq!(error.contains("line "), reason == "line ", "{error}");
    }
}

#[test]
fn a_cluster_has_the_traits_of_its_row() {
    let requests = cluster(TABLE, "--cluster 7 --requests 500k").unwrap();
    let counts = counts(&requests);
    assert_near("mean frequency", requests.len() as f64 / counts.len() as f64, 25.0, 0.03);
    let ones = counts.values().filter(|&&count| count == 1).count();
    assert_near("keys asked for once", ones as f64 / counts.len() as f64, 0.2, 0.05);
    // An add is a fill: 15 sets to 80 gets.
    assert_near("sets", share(&requests, |r| r.op == Op::Set), 15.0 / 95.0, 0.03);
    let mut keys: Vec<Request> = requests.clone();
    keys.sort_unstable_by_key(|request| request.key);
    keys.dedup_by_key(|request| request.key);
    assert_near("long TTLs", share(&keys, |r| r.ttl_seconds == 3600), 2.0 / 3.0, 0.03);
    let bytes: u64 = keys.iter().map(|r| u64::from(r.value_size)).sum();
    assert_near("value size", bytes as f64 / keys.len() as f64, 300.0, 0.01);
    assert!(requests.iter().all(|r| r.key_size == 40));
    assert!((172_000..172_800).contains(&requests[requests.len() - 1].time_seconds), "two days");
    let top = *counts.values().max().unwrap() as f64 / requests.len() as f64;
    assert!(top < 0.05, "the exponent of the table is not used: {top}");
}

#[test]
fn a_known_cluster_has_its_presets_popularity() {
    let requests = cluster(TABLE, "--cluster 18 --requests 500k").unwrap();
    assert_near("mean frequency", requests.len() as f64 / counts(&requests).len() as f64, 1117.0, 0.1);
    assert!(requests[requests.len() - 1].time_seconds > 600_000, "seven days");
}

#[test]
fn clusters_that_are_not_there_are_refused() {
    for (flags, reason) in [
        ("--cluster 8", "--cluster 8: "),
        ("--cluster 8", "has no statistics of it"),
        ("--cluster 99", "has no such cluster"),
        ("--cluster 19", "table.csv: line 5: ttl_mix `soon`"),
    ] {
        let error = cluster(TABLE, flags).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let error = cluster(&TABLE.replace("op_mix", "ops"), "--cluster 7").unwrap_err().to_string();
    assert!(error.ends_with("line 1: no column `op_mix`"), "{error}");
    let error = cluster("", "--cluster 7").unwrap_err().to_string();
    assert!(error.ends_with("line 1: no column `cluster`"), "{error}");
}
