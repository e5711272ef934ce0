//! Stops and starts of one memory file, with churn, flushes, resizes and other options in between, of a cache without
//! and with a second pool.
//!
//! `EBBTIDE_SOAK_RESTARTS` is the number of restarts (default 12), `EBBTIDE_SOAK_SEED` their seed.

mod common;
mod kills;

use common::folders;
use ebbtide::memcached::{ByteSize, Cache, Clock, MemoryStart, Policy, Pool, PoolOptions, Ttl};
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

fn entries(pool: &Pool) -> BTreeMap<Vec<u8>, Entry> {
    let (mut found, mut scan) = (BTreeMap::new(), pool.scan().unwrap());
    while scan.advance(|entry| {
        let item = entry.item().expect("there is no flash");
        found.insert(entry.key().to_vec(), (item.to_vec(), item.flags(), item.ttl(), item.cas()));
    }) {}
    found
}

/// Whether an entry has the same value, flags and life. Its token may be higher: each eviction and each copy of an item
/// in its bucket changes it, and pools that move memory do both.
fn is_unchanged(before: &Entry, after: &Entry) -> bool {
    (&before.0, before.1, before.2) == (&after.0, after.1, after.2) && before.3 <= after.3
}

/// The value of a version of a key.
fn value(key: u32, version: u32) -> Vec<u8> {
    let length = if key.is_multiple_of(400) { 150_000 } else { (key as usize * 7 + version as usize) % 900 };
    (0..length).map(|at| (at as u32 ^ key ^ version.wrapping_mul(31)) as u8).collect()
}

/// Random changes.
fn churn(pool: &Pool, random: &mut Random, versions: &mut BTreeMap<u32, u32>) {
    for _ in 0..8000 {
        let key = random.uniform(12_000) as u32;
        match random.uniform(20) {
            0..2 => {
                pool.delete(&key.to_le_bytes());
                versions.remove(&key);
            }
            2..7 => drop(pool.get(&key.to_le_bytes())),
            _ => {
                let version = random.uniform(1 << 30) as u32;
                let ttl =
                    if random.uniform(3) == 0 { Ttl::seconds(60 + random.uniform(2000) as u32) } else { Ttl::Never };
                let insert = pool.insert(&key.to_le_bytes(), &value(key, version)).flags(version).ttl(ttl).apply();
                insert.unwrap();
                versions.insert(key, version);
            }
        }
    }
    if random.uniform(8) == 0 {
        pool.flush(Duration::ZERO);
        versions.clear();
    }
}

/// Memory of the cache, and of the second pool if there is one.
#[derive(Clone, Copy)]
struct Sizes {
    mib: u64,
    other_mib: u64,
}

impl Sizes {
    fn draw(random: &mut Random, pools: usize) -> Self {
        let other_mib = if pools > 1 { 2 + random.uniform(5) } else { 0 };
        Self { mib: other_mib + 6 + random.uniform(20), other_mib }
    }

    fn default_mib(self) -> u64 {
        self.mib - self.other_mib
    }

    /// Whether no pool has less memory with the other sizes.
    fn fit(self, next: Self) -> bool {
        next.default_mib() >= self.default_mib() && next.other_mib >= self.other_mib
    }
}

const OTHER: &str = "other";

/// The caches of one memory file.
struct Lives<'a> {
    path: &'a Path,
    pools: &'a [&'a str],
    sizes: Sizes,
    policy: Policy,
    seconds: u64,
    random: Random,
    /// By pool, the version of each key.
    versions: Vec<BTreeMap<u32, u32>>,
}

#[test]
fn no_restart_is_cold_or_wrong() {
    let (restarts, seed) = (setting("EBBTIDE_SOAK_RESTARTS", 12), setting("EBBTIDE_SOAK_SEED", 7));
    println!("seed {seed}");
    for folder in folders() {
        for pools in [&["default"][..], &["default", OTHER]] {
            let path = folder.path().join(format!("memory-{}", pools.len()));
            Lives::new(&path, pools, seed).restart_repeatedly(restarts);
        }
    }
}

impl<'a> Lives<'a> {
    fn new(path: &'a Path, pools: &'a [&'a str], seed: u64) -> Self {
        let mut random = Random::new(seed);
        let sizes = Sizes::draw(&mut random, pools.len());
        let versions = vec![BTreeMap::new(); pools.len()];
        Self { path, pools, sizes, policy: Policy::default(), seconds: 0, random, versions }
    }

    fn build(&self) -> Cache {
        let Sizes { mib, other_mib } = self.sizes;
        let builder = Cache::builder().memory(ByteSize::mib(mib)).memory_ceiling(ByteSize::mib(64));
        let builder = builder.max_value(ByteSize::kib(256)).policy(self.policy);
        let mut builder = builder.clock(Clock::Manual).memory_file(self.path);
        if self.pools.len() > 1 {
            let bytes = ByteSize::mib(other_mib);
            builder = builder.pool(PoolOptions::named(OTHER).min(bytes).max(bytes));
        }
        builder.build().unwrap()
    }

    fn pools_of(&self, cache: &Cache) -> Vec<Pool> {
        self.pools.iter().map(|name| cache.pool(name).unwrap()).collect()
    }

    fn entries(&self, cache: &Cache) -> Vec<BTreeMap<Vec<u8>, Entry>> {
        self.pools_of(cache).iter().map(entries).collect()
    }

    /// Moves memory between the pools, to the cache, and away from it.
    fn resize(&mut self, cache: &Cache) {
        let before = std::mem::replace(&mut self.sizes, Sizes::draw(&mut self.random, self.pools.len()));
        let resize_other = || {
            let (pools, bytes) = (self.pools_of(cache), ByteSize::mib(self.sizes.other_mib));
            pools.get(1).into_iter().for_each(|other| other.resize(bytes, bytes).unwrap());
        };
        // The pools fit the cache in between, too.
        if self.sizes.other_mib < before.other_mib {
            resize_other();
        }
        cache.resize(ByteSize::mib(self.sizes.mib)).unwrap();
        resize_other();
        for _ in 0..10 {
            self.seconds += 1;
            cache.maintain(Duration::from_secs(self.seconds));
        }
        assert_eq!(cache.stats().memory_limit_bytes, self.sizes.mib << 20);
    }

    fn check(&self, entries: &[BTreeMap<Vec<u8>, Entry>], restart: u64) {
        for ((pool, entries), versions) in self.pools.iter().zip(entries).zip(&self.versions) {
            for (key, (found, flags, ..)) in entries {
                let key = u32::from_le_bytes(key[..].try_into().unwrap());
                assert_eq!(versions.get(&key), Some(flags), "restart {restart}, {pool}: another version of {key}");
                assert!(*found == value(key, *flags), "restart {restart}, {pool}: a wrong value of {key}");
            }
        }
    }

    fn restart_repeatedly(&mut self, restarts: u64) {
        let mut cache = self.build();
        for restart in 0..restarts {
            for (pool, versions) in self.pools_of(&cache).iter().zip(&mut self.versions) {
                churn(pool, &mut self.random, versions);
            }
            self.seconds += 1 + self.random.uniform(100);
            cache.maintain(Duration::from_secs(self.seconds));
            if self.random.uniform(3) == 0 {
                self.resize(&cache);
            }
            cache.verify();
            let before = self.entries(&cache);
            self.check(&before, restart);
            assert!(cache.close().unwrap().saved.is_some());
            drop(cache);
            if self.random.uniform(2) == 0 {
                // The file counts as changed: the start reads all values.
                File::open(self.path).unwrap().set_modified(SystemTime::now()).unwrap();
            }
            let sizes =
                if self.random.uniform(2) == 0 { self.sizes } else { Sizes::draw(&mut self.random, self.pools.len()) };
            let policy = [Policy::default(), Policy::Merge, Policy::Fifo][self.random.uniform(3) as usize];
            // The history of another policy may take memory from the items, when maintenance runs. A start runs it to
            // move memory between pools.
            let is_same_policy = std::mem::replace(&mut self.policy, policy) == policy || self.pools.len() == 1;
            let is_whole = std::mem::replace(&mut self.sizes, sizes).fit(sizes) && is_same_policy;
            cache = self.build();
            let start = cache.memory_start().unwrap();
            assert!(matches!(start, MemoryStart::Warm { .. }), "restart {restart}: {start}");
            for (before, after) in before.iter().zip(self.entries(&cache)) {
                let is_same = |(key, entry)| before.get(key).is_some_and(|before| is_unchanged(before, entry));
                assert!(after.iter().all(is_same), "restart {restart}");
                let is_complete = if self.pools.len() == 1 { after == *before } else { after.len() == before.len() };
                assert!(!is_whole || is_complete, "restart {restart}: {} of {}", after.len(), before.len());
            }
            cache.verify();
        }
    }
}
