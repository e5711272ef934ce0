//! Stops and starts of one memory file, with churn, flushes, resizes and other options in between.
//!
//! `EBBTIDE_SOAK_RESTARTS` is the number of restarts (default 12), `EBBTIDE_SOAK_SEED` their seed.

mod common;
mod kills;

use common::folders;
use ebbtide::memcached::{ByteSize, Cache, Clock, MemoryStart, Policy, Ttl};
use ebbtide_testkit::Random;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Value, flags, life, token.
type Entry = (Vec<u8>, u32, Option<Duration>, u64);

fn entries(cache: &Cache) -> BTreeMap<Vec<u8>, Entry> {
    let (mut found, mut scan) = (BTreeMap::new(), cache.scan().unwrap());
    while scan.advance(|entry| {
        let item = entry.item().expect("there is no flash");
        found.insert(entry.key().to_vec(), (item.to_vec(), item.flags(), item.ttl(), item.cas()));
    }) {}
    found
}

/// The value of a version of a key.
fn value(key: u32, version: u32) -> Vec<u8> {
    let length = if key.is_multiple_of(400) { 150_000 } else { (key as usize * 7 + version as usize) % 900 };
    (0..length).map(|at| (at as u32 ^ key ^ version.wrapping_mul(31)) as u8).collect()
}

/// Random changes.
fn churn(cache: &Cache, random: &mut Random, versions: &mut BTreeMap<u32, u32>) {
    for _ in 0..8000 {
        let key = random.uniform(12_000) as u32;
        match random.uniform(20) {
            0..2 => {
                cache.delete(&key.to_le_bytes());
                versions.remove(&key);
            }
            2..7 => drop(cache.get(&key.to_le_bytes())),
            _ => {
                let version = random.uniform(1 << 30) as u32;
                let ttl =
                    if random.uniform(3) == 0 { Ttl::seconds(60 + random.uniform(2000) as u32) } else { Ttl::Never };
                let insert = cache.insert(&key.to_le_bytes(), &value(key, version)).flags(version).ttl(ttl).apply();
                insert.unwrap();
                versions.insert(key, version);
            }
        }
    }
    if random.uniform(8) == 0 {
        cache.flush(Duration::ZERO);
        versions.clear();
    }
}

#[test]
fn no_restart_is_cold_or_wrong() {
    let (restarts, seed) = (setting("EBBTIDE_SOAK_RESTARTS", 12), setting("EBBTIDE_SOAK_SEED", 7));
    println!("seed {seed}");
    folders().iter().for_each(|folder| restart_repeatedly(&folder.path().join("memory"), restarts, seed));
}

fn restart_repeatedly(path: &Path, restarts: u64, seed: u64) {
    let mut random = Random::new(seed);
    let policies = [Policy::default(), Policy::Merge, Policy::Fifo];
    let (mut mib, mut seconds) = (12, 0);
    let mut versions = BTreeMap::new();
    let build = |mib: u64, policy: Policy| {
        let builder = Cache::builder().memory(ByteSize::mib(mib)).memory_ceiling(ByteSize::mib(64)).policy(policy);
        builder.clock(Clock::Manual).memory_file(path).build().unwrap()
    };
    let mut cache = build(mib, policies[0]);
    for restart in 0..restarts {
        churn(&cache, &mut random, &mut versions);
        seconds += 1 + random.uniform(100);
        cache.maintain(Duration::from_secs(seconds));
        if random.uniform(3) == 0 {
            mib = 6 + random.uniform(20);
            cache.resize(ByteSize::mib(mib)).unwrap();
        }
        cache.verify();
        let before = entries(&cache);
        for (key, (found, flags, ..)) in &before {
            let key = u32::from_le_bytes(key[..].try_into().unwrap());
            assert_eq!(versions.get(&key), Some(flags), "restart {restart}: another version of {key}");
            assert!(*found == value(key, *flags), "restart {restart}: a wrong value of {key}");
        }
        assert!(cache.close().unwrap().saved.is_some());
        drop(cache);
        if random.uniform(2) == 0 {
            // The file counts as changed: the start reads all values.
            File::open(path).unwrap().set_modified(SystemTime::now()).unwrap();
        }
        let next_mib = if random.uniform(2) == 0 { mib } else { 6 + random.uniform(20) };
        cache = build(next_mib, policies[random.uniform(3) as usize]);
        let start = cache.memory_start().unwrap();
        assert!(matches!(start, MemoryStart::Warm { .. }), "restart {restart}: {start}");
        let after = entries(&cache);
        if next_mib >= mib {
            assert!(after == before, "restart {restart}: {} of {} objects", after.len(), before.len());
        } else {
            assert!(after.iter().all(|(key, entry)| before.get(key) == Some(entry)), "restart {restart}");
        }
        mib = next_mib;
        cache.verify();
    }
}
