//! Generated workloads, at a small scale: properties as requested, equal output of equal seeds, and readable traces.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;

use crate::line::Line;
use clap::Parser;
use ebbtide_lab::Error;
use ebbtide_lab::generate::{GenerateArgs, GenerateReport, Workload, generate};
use ebbtide_lab::replay::{ReplayArgs, replay};
use ebbtide_lab::trace::{Format, Op, Request, TraceReader};
use tempfile::TempDir;

const WEEK: u64 = 7 * 86_400;

fn args(flags: &str, output: &Path) -> GenerateArgs {
    let output = ["--output", output.to_str().unwrap()];
    Line::<GenerateArgs>::parse_from(["generate"].into_iter().chain(output).chain(flags.split_whitespace())).args
}

fn try_requests(flags: &str) -> Result<Vec<Request>, Error> {
    Ok(Workload::new(&args(flags, Path::new("unused")).workload)?.requests().collect())
}

fn requests(flags: &str) -> Vec<Request> {
    try_requests(flags).unwrap()
}

/// Requests of each key.
fn by_key(requests: &[Request]) -> HashMap<u64, u64> {
    let mut counts = HashMap::new();
    requests.iter().for_each(|request| *counts.entry(request.key).or_default() += 1);
    counts
}

fn share(of: &[Request], which: impl Fn(&Request) -> bool) -> f64 {
    of.iter().filter(|request| which(request)).count() as f64 / of.len() as f64
}

/// Each key once.
fn keys_of(requests: &[Request]) -> Vec<Request> {
    let mut seen = HashSet::new();
    requests.iter().filter(|request| seen.insert(request.key)).copied().collect()
}

fn mean(of: &[Request], size: impl Fn(&Request) -> u32) -> f64 {
    of.iter().map(|request| f64::from(size(request))).sum::<f64>() / of.len() as f64
}

fn assert_near(what: &str, found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() <= tolerance, "{what}: {found} instead of {expected}");
}

/// Exact LRU by stack: a request hits if fewer than `size` other keys came since its key did.
fn lru_misses(requests: &[Request], size: usize) -> f64 {
    // Time stamps of all requests that are the last of their key, and how many of them lie up to each (Fenwick).
    let mut tree = vec![0i32; requests.len() + 1];
    let add = |tree: &mut Vec<i32>, mut at: usize, change: i32| {
        while at < tree.len() {
            tree[at] += change;
            at += at & at.wrapping_neg();
        }
    };
    let sum = |tree: &[i32], mut at: usize| {
        let mut total = 0;
        while at > 0 {
            total += tree[at];
            at &= at - 1;
        }
        total
    };
    let mut last: HashMap<u64, usize> = HashMap::new();
    let mut misses = 0;
    for (index, request) in requests.iter().enumerate() {
        let before = last.insert(request.key, index + 1);
        let younger = before.map(|at| last.len() as i32 - sum(&tree, at));
        misses += u32::from(younger.is_none_or(|younger| younger as usize >= size));
        if let Some(at) = before {
            add(&mut tree, at, -1);
        }
        add(&mut tree, index + 1, 1);
    }
    f64::from(misses) / requests.len() as f64
}

fn fifo_misses(requests: &[Request], size: usize) -> f64 {
    let (mut queue, mut cached) = (VecDeque::new(), HashSet::new());
    let mut misses = 0;
    for request in requests {
        if cached.insert(request.key) {
            misses += 1;
            queue.push_back(request.key);
            if queue.len() > size {
                cached.remove(&queue.pop_front().unwrap());
            }
        }
    }
    f64::from(misses) / requests.len() as f64
}

#[test]
fn presets_have_names_beside_their_letters() {
    for (name, letter) in [("tweets", "c"), ("users", "u1"), ("users-short-ttl", "u2"), ("negative-results", "n")] {
        let of = |preset| requests(&format!("--preset {preset} --requests 2000"));
        assert_eq!(of(name), of(letter), "{name}");
    }
}

#[test]
fn the_simulators_agree_with_an_example() {
    let sequence = [1, 2, 3, 1, 2, 1, 4, 1, 2, 3];
    let requests: Vec<Request> = sequence
        .map(|key| Request { time_seconds: 0, key, key_size: 1, value_size: 1, op: Op::Get, ttl_seconds: 0 })
        .into();
    assert_eq!((lru_misses(&requests, 3), fifo_misses(&requests, 3)), (0.5, 0.7));
    assert_eq!((lru_misses(&requests, 2), lru_misses(&requests, 4)), (0.8, 0.4));
}

#[test]
fn every_preset_is_reproducible_and_in_time_order() {
    for preset in ["c", "u1", "u2", "n", "livepipeline", "mix", "zipf", "uniform", "scan"] {
        let flags = format!("--preset {preset} --requests 20k --seed");
        let first = requests(&format!("{flags} 5"));
        assert_eq!(first, requests(&format!("{flags} 5")), "{preset}");
        if preset != "scan" {
            assert_ne!(first, requests(&format!("{flags} 6")), "{preset}");
        }
        assert!(first.is_sorted_by_key(|request| request.time_seconds), "{preset}");
        assert!(first[first.len() - 1].time_seconds < WEEK, "{preset}");
        let (start, end) = (first[0].time_seconds, first[first.len() - 1].time_seconds);
        assert!(start < WEEK / 20 && end > WEEK - WEEK / 20, "{preset}: {start} to {end}");
        let mut sizes = HashMap::new();
        for request in &first {
            let traits = (request.key_size, request.value_size, request.ttl_seconds);
            assert_eq!(*sizes.entry(request.key).or_insert(traits), traits, "{preset}");
        }
    }
}

#[test]
fn content_of_tweets_is_as_published() {
    let requests = requests("--preset c --requests 1m --seed 3");
    assert_near("requests", requests.len() as f64, 1e6, 0.02);
    let keys = keys_of(&requests);
    assert_near("compulsory misses", keys.len() as f64 / requests.len() as f64, 0.0187, 0.03);
    assert_near("value size", mean(&keys, |r| r.value_size), 273.0, 0.05);
    assert_near("sets", share(&requests, |r| r.op == Op::Set), 0.021, 0.05);
    assert_near("deletes", share(&requests, |r| r.op == Op::Delete), 0.006, 0.08);
    for (ttl, expected) in [(86_400, 0.65), (1_209_600, 0.27), (43_200, 0.08)] {
        assert_near("TTL", share(&keys, |r| r.ttl_seconds == ttl), expected, 0.1);
    }
    let of_objects = |percent: usize| keys.len() * percent / 100;
    for (percent, lru, fifo) in [(1, 0.1027, 0.1181), (10, 0.0488, 0.0574), (20, 0.0371, 0.0434)] {
        assert_near("LRU", lru_misses(&requests, of_objects(percent)), lru, 0.2);
        assert_near("FIFO", fifo_misses(&requests, of_objects(percent)), fifo, 0.2);
    }
}

#[test]
fn negative_results_are_as_published() {
    let requests = requests("--preset n --requests 1m --seed 3");
    let keys = keys_of(&requests);
    assert_near("compulsory misses", keys.len() as f64 / requests.len() as f64, 0.0106, 0.03);
    assert_near("key size", mean(&keys, |r| r.key_size), 25.0 * 0.75 + 17.25 * 0.25, 0.02);
    assert_near("small values", share(&keys, |r| r.value_size == 18), 0.33, 0.05);
    assert!(keys.iter().all(|r| r.ttl_seconds == 2_592_000));
    for (percent, lru, fifo) in [(1, 0.1066, 0.1298), (10, 0.0302, 0.0380), (20, 0.0205, 0.0255)] {
        let size = keys.len() * percent / 100;
        assert_near("LRU", lru_misses(&requests, size), lru, 0.25);
        assert_near("FIFO", fifo_misses(&requests, size), fifo, 0.25);
    }
}

#[test]
fn user_metadata_is_as_published() {
    // So few keys that a single one weighs: the curves are compared at full scale only.
    for (preset, compulsory, by_keys, by_requests) in [("u1", 0.0008, 212.0, 560.0), ("u2", 0.0009, 37.0, 55.0)] {
        let requests = requests(&format!("--preset {preset} --requests 2m --seed 3"));
        let keys = keys_of(&requests);
        assert_near("compulsory misses", keys.len() as f64 / requests.len() as f64, compulsory, 0.1);
        assert_near("value size over keys", mean(&keys, |r| r.value_size), by_keys, 0.02);
        assert_near("value size over requests", mean(&requests, |r| r.value_size), by_requests, 0.2);
    }
}

#[test]
fn a_mix_has_its_parts_in_their_shares() {
    let requests = requests("--preset mix --requests 500k --seed 2");
    let of_key_size = |sizes: &[u32]| share(&requests, |r| sizes.contains(&r.key_size));
    for (sizes, expected) in [(&[14, 15, 16, 24, 25][..], 0.137), (&[18], 0.384), (&[20], 0.353), (&[35], 0.126)] {
        assert_near("share of a part", of_key_size(sizes), expected, 0.1);
    }
    let live: Vec<Request> = requests.iter().filter(|r| r.key_size == 35).copied().collect();
    assert_near("short TTLs", share(&live, |r| r.ttl_seconds == 120), 0.93, 0.02);
    assert_near("requests per key", live.len() as f64 / by_key(&live).len() as f64, 2.62, 0.05);
    let lives = live.iter().map(|r| (r.key, r.time_seconds)).collect::<HashSet<_>>().len();
    assert!(lives < live.len(), "requests of one key come within a second or so");
}

#[test]
fn diurnal_load_moves_requests_without_reordering() {
    let even = requests("--preset c --requests 50k");
    let diurnal = requests("--preset c --requests 50k --diurnal");
    assert!(diurnal.is_sorted_by_key(|request| request.time_seconds));
    let keys = |requests: &[Request]| requests.iter().map(|request| request.key).collect::<Vec<u64>>();
    assert_eq!(keys(&even), keys(&diurnal));
    assert_ne!(even, diurnal);
}

fn export(directory: &TempDir, name: &str, flags: &str) -> (GenerateReport, Format, Vec<Request>) {
    let path = directory.path().join(name);
    let report = generate(&args(flags, &path)).unwrap();
    let mut reader = TraceReader::open(&path, None).unwrap();
    let read = std::iter::from_fn(|| reader.next_request().unwrap()).collect();
    (report, reader.format(), read)
}

#[test]
fn what_is_exported_is_read_back() {
    let directory = TempDir::new().unwrap();
    let flags = "--preset mix --requests 20k";
    let expected = requests(flags);
    let (report, format, plain) = export(&directory, "plain.csv", flags);
    assert_eq!((format, &plain), (Format::Csv, &expected));
    assert_eq!(export(&directory, "packed.csv.zst", flags).2, expected);
    let sets = expected.iter().filter(|request| request.op == Op::Set).count() as u64;
    assert_eq!((report.requests, report.sets), (expected.len() as u64, sets));
    assert_eq!(report.requests, report.gets + report.sets + report.deletes);
    let keys = keys_of(&expected);
    let footprint: u64 = keys.iter().map(|r| u64::from(r.key_size) + u64::from(r.value_size)).sum();
    assert_eq!((report.keys, report.footprint_bytes), (keys.len() as u64, footprint));

    let (_, format, oracle) = export(&directory, "oracle.zst", &format!("{flags} --format oracle-general"));
    assert_eq!(format, Format::OracleGeneral);
    let facts = |r: &Request| (r.time_seconds, r.key, r.key_size + r.value_size);
    assert_eq!(oracle.iter().map(facts).collect::<Vec<_>>(), expected.iter().map(facts).collect::<Vec<_>>());
    let packed = std::fs::metadata(directory.path().join("packed.csv.zst")).unwrap().len();
    assert!(packed < std::fs::metadata(directory.path().join("plain.csv")).unwrap().len() / 2);
}

#[test]
fn a_generated_trace_replays() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("c.csv.zst");
    let written = generate(&args("--preset c --requests 50k", &path)).unwrap();
    let line = ["replay", path.to_str().unwrap(), "--memory", "64m", "--audit", "--strict"];
    let args = Line::<ReplayArgs>::parse_from(line).args;
    let report = replay(&args, args.cells().unwrap()[0]).unwrap();
    assert_eq!(report.requests, written.requests);
    assert_eq!(report.hits + report.misses, written.gets);
    // Everything fits: an object that misses is new, was deleted, or has expired.
    assert!(report.misses as f64 / report.requests as f64 > 0.0187 && report.miss_ratio < 0.1);
}

#[test]
fn options_without_effect_or_range_are_refused() {
    for (flags, reason) in [
        ("--preset c --keys 5", "--keys 5: this workload has its own"),
        ("--preset uniform --alpha 1", "--alpha 1: this workload has its own"),
        ("--preset zipf --alpha=-1", "--alpha -1: it is from 0 to 100"),
        ("--preset zipf --set-ratio 2", "--set-ratio 2: it is from 0 to 1"),
        ("--preset zipf --churn NaN", "--churn NaN"),
        ("--preset zipf --key-size 20-300", "--key-size 20-300: keys have at most 250 bytes"),
        ("--preset c --requests 5g", "--requests 5000000000: it is from 1 to 4294967295"),
    ] {
        let error = try_requests(flags).err().unwrap().to_string();
        assert!(error.starts_with(reason), "{flags}: {error}");
    }
    for flags in ["", "--preset c --cachebench x.json", "--cluster 5", "--preset c --cluster-table x"] {
        let line = format!("generate --output x {flags}");
        assert!(Line::<GenerateArgs>::try_parse_from(line.split_whitespace()).is_err(), "{flags}");
    }
    let error = generate(&args("--preset c --requests 1k", Path::new("/nowhere/x.csv"))).unwrap_err();
    assert!(error.to_string().starts_with("cannot write /nowhere/x.csv: "), "{error}");
}

#[test]
fn plain_workloads_have_what_was_asked_for() {
    let flags = "--preset zipf --alpha 0.7 --keys 2k --requests 200k --span 86400 --key-size 30 --value-size 50-99 \
                 --ttl 60 --set-ratio 0.3";
    let plain = requests(flags);
    assert_eq!(plain.len(), 200_000);
    assert_eq!(plain[199_999].time_seconds, 86_399);
    assert!(plain.iter().all(|r| r.key_size == 30 && (50..=99).contains(&r.value_size) && r.ttl_seconds == 60));
    assert_near("sets", share(&plain, |r| r.op == Op::Set), 0.3, 0.03);
    let harmonic: f64 = (1..=2000).map(|rank| f64::from(rank).powf(-0.7)).sum();
    let top = by_key(&plain).into_values().max().unwrap() as f64 / 200_000.0;
    assert_near("most popular key", top, 1.0 / harmonic, 0.1);
    assert_eq!(by_key(&plain).len(), 2000);
    assert_near("keys with churn", by_key(&requests(&format!("{flags} --churn 3"))).len() as f64, 8000.0, 0.05);
    let scan = requests("--preset scan --keys 1k --requests 5k");
    assert_eq!(scan.iter().map(|r| r.key).collect::<Vec<_>>(), (0..5000).map(|n| n % 1000).collect::<Vec<_>>());
}
