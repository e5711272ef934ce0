//! Pools over flash: values beyond memory, isolation, flush, removal, stops and kills, shares, scans.

use crate::common::store;
use ebbtide::memcached::{ByteSize, Cache, CacheBuilder, Clock, FlashOptions, FlashPromotion, Pool, PoolOptions};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const POOLS: [&str; 3] = ["default", "a", "b"];
const KEYS: u32 = 600;

fn builder(folder: &Path, names: &[&str]) -> CacheBuilder {
    let options = FlashOptions { small_share: Some(0.3), seal_seconds: 10, ..FlashOptions::default() };
    let builder = Cache::builder().memory(ByteSize::mib(8)).max_value(ByteSize::kib(64)).clock(Clock::Manual).seed(7);
    let builder = builder.flash(folder.join("flash"), ByteSize::mib(64)).flash_options(options);
    let builder = builder.flash_promotion(FlashPromotion::Always);
    names
        .iter()
        .filter(|name| **name != "default")
        .fold(builder, |builder, name| builder.pool(PoolOptions::named(*name)))
}

fn open(folder: &Path) -> (Cache, Vec<Pool>) {
    let cache = builder(folder, &POOLS).build().unwrap();
    let pools = POOLS.iter().map(|name| cache.pool(name).unwrap()).collect();
    (cache, pools)
}

/// A value that tells pool, version and key: small or large.
fn value(pool: usize, version: u8, key: u32) -> Vec<u8> {
    let mut value = vec![pool as u8, version];
    value.extend_from_slice(&key.to_le_bytes());
    value.resize(if key.is_multiple_of(3) { 500 } else { 9000 }, version);
    value
}

fn fill(pools: &[Pool], pool: usize, version: u8) {
    (0..KEYS).for_each(|key| store(&pools[pool], key, &value(pool, version, key)));
}

/// How many keys a pool has; each must have the value of its pool and of this version.
fn hits(pools: &[Pool], pool: usize, version: u8) -> u32 {
    let get = |key: u32| pools[pool].get(&key.to_le_bytes()).hit().map(|item| item.to_vec());
    let found = (0..KEYS).filter_map(|key| get(key).map(|bytes| (key, bytes)));
    found.inspect(|(key, bytes)| assert!(*bytes == value(pool, version, *key), "pool {pool}, key {key}")).count() as u32
}

#[test]
fn pools_keep_values_beyond_memory_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, pools) = open(folder.path());
    (0..3).for_each(|pool| fill(&pools, pool, 1));
    for pool in &pools[1..] {
        assert!(pool.stats().displaced() > 100, "the keys need more than the memory of {}", pool.name());
    }
    for (pool, name) in POOLS.iter().enumerate() {
        let found = hits(&pools, pool, 1);
        assert!(found > KEYS * 9 / 10, "{found} of {KEYS} in {name}");
    }
    let on_flash: Vec<_> = pools.iter().map(|pool| pool.flash_stats().unwrap()).collect();
    assert!(on_flash.iter().all(|stats| stats.hits > 100 && stats.bytes > 1 << 20), "{on_flash:?}");
    // Touch, delete and presence go to the pool of the handle.
    assert!(pools[1].contains(&1_u32.to_le_bytes()) && pools[1].delete(&1_u32.to_le_bytes()));
    assert!(!pools[1].contains(&1_u32.to_le_bytes()) && pools[2].contains(&1_u32.to_le_bytes()));
    let mut keys = Vec::new();
    let mut scan = pools[1].scan().unwrap();
    while scan.advance(|entry| {
        assert_eq!(entry.to_vec().unwrap()[0], 1, "an entry of another pool");
        keys.push(entry.key().to_vec());
    }) {}
    keys.sort_unstable();
    keys.dedup();
    assert!(keys.len() > KEYS as usize * 9 / 10, "{}", keys.len());
    cache.verify();
}

/// The memory of all pools and of flash together is within one number.
fn assert_within(cache: &Cache, total: u64) {
    let (stats, flash) = (cache.stats(), cache.flash_stats().unwrap());
    assert!(stats.memory_limit_bytes <= total && stats.memory_used_bytes <= total, "{stats:?}");
    let (used, limit) = (flash.tier.memory_bytes, flash.memory_limit_bytes);
    assert!(used <= limit, "{used} bytes of {limit}");
}

#[test]
fn small_default_pools_leave_memory_to_flash() {
    let folder = tempfile::tempdir().unwrap();
    let total = 16 << 20;
    let default = PoolOptions::named("default").min(ByteSize::kib(512)).max(ByteSize::kib(512));
    let builder = Cache::builder().memory(ByteSize::bytes(total)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
    let builder = builder.pool(default).pool(PoolOptions::named("users"));
    let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(160)).build().unwrap();
    let pools: Vec<Pool> = ["default", "users"].map(|name| cache.pool(name).unwrap()).into();
    let limits = || pools.iter().map(|pool| pool.stats().memory_limit_bytes).collect::<Vec<_>>();
    let empty = limits();
    assert!(empty[0] <= 512 << 10 && empty[1] > total / 100 * 86, "{empty:?}");
    for number in 0..200_000_u32 {
        let pool = &pools[usize::from(!number.is_multiple_of(20))];
        store(pool, number, &[7; 300]);
        if number.is_multiple_of(1000) {
            cache.maintain(Duration::from_millis(u64::from(number)));
            assert_within(&cache, total);
        }
    }
    let tier = cache.flash_stats().unwrap().tier;
    assert!(limits()[1] < empty[1] - total / 200, "{:?} of {empty:?}", limits());
    assert!(tier.small.page_objects + tier.small.log_objects > 0, "the capacity is split");
    assert!(tier.evictions.memory == 0 && tier.drops.memory == 0, "{:?} {:?}", tier.evictions, tier.drops);
    cache.verify();
}

#[test]
fn each_pool_pays_for_its_index_of_flash() {
    let folder = tempfile::tempdir().unwrap();
    let total = 16 << 20;
    let builder = Cache::builder().memory(ByteSize::bytes(total)).max_value(ByteSize::kib(16)).clock(Clock::Manual);
    let builder = builder.pool(PoolOptions::named("full")).pool(PoolOptions::named("quiet"));
    let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(160)).build().unwrap();
    let [full, quiet] = ["full", "quiet"].map(|name| cache.pool(name).unwrap());
    let limits = || [&full, &quiet].map(|pool| pool.stats().memory_limit_bytes);
    let before = limits();
    assert!(before[0].abs_diff(before[1]) < 1024, "{before:?} of equal pools");
    for number in 0..150_000_u32 {
        store(&full, number, &[7; 60]);
        if number.is_multiple_of(2000) {
            cache.maintain(Duration::from_millis(number.into()));
            assert_within(&cache, total);
        }
    }
    let (paid, index) = (full.flash_stats().unwrap().index_bytes, cache.flash_stats().unwrap().tier.index_bytes);
    assert!(paid > 200 << 10 && paid <= index, "{paid} of {index} bytes");
    assert_eq!(quiet.flash_stats().unwrap().index_bytes, 0);
    let [of_full, of_quiet] = limits();
    let less = of_quiet.saturating_sub(of_full);
    assert!(less.abs_diff(paid) < paid / 8 + total / 512, "{of_full} and {of_quiet} bytes, {paid} paid");
    // The others pay the part that a pool cannot pay beside its minimum.
    full.configure(&PoolOptions::named("full").min(ByteSize::bytes(before[0]))).unwrap();
    cache.maintain(Duration::from_secs(300));
    assert!(full.stats().memory_limit_bytes >= before[0], "{:?} of {before:?}", limits());
    assert!(limits()[1] < of_quiet, "{:?}, {of_quiet} before", limits());
    // A pool without objects there pays nothing, though the index has not shrunk.
    full.configure(&PoolOptions::named("full")).unwrap();
    full.flush(Duration::ZERO);
    cache.maintain(Duration::from_secs(301));
    assert!(cache.flash_stats().unwrap().tier.index_bytes > index / 2);
    assert!(limits()[0].abs_diff(limits()[1]) < 1024, "{:?} of equal pools", limits());
    assert_within(&cache, total);
    cache.verify();
}

#[test]
fn flash_short_of_memory_counts_dropped_objects() {
    let folder = tempfile::tempdir().unwrap();
    let total = 4 << 20;
    let builder = Cache::builder().memory(ByteSize::bytes(total)).max_value(ByteSize::kib(4)).clock(Clock::Manual);
    let floor = PoolOptions::named("users").min(ByteSize::kib(3300));
    let builder = builder.pool(floor).flash(folder.path().join("flash"), ByteSize::mib(40));
    let cache = builder.build().unwrap();
    let users = cache.pool("users").unwrap();
    for number in 0..200_000_u32 {
        store(&users, number, &[7; 60]);
        if number.is_multiple_of(1000) {
            cache.maintain(Duration::from_millis(u64::from(number)));
            assert_within(&cache, total);
            assert!(users.stats().memory_limit_bytes >= 3300 << 10, "{:?}", users.stats());
        }
    }
    let tier = cache.flash_stats().unwrap().tier;
    assert!(tier.evictions.memory + tier.drops.memory > 0, "{:?} {:?}", tier.evictions, tier.drops);
    // A pool fits beside the maximum memory of flash, or is refused.
    let refused = cache.add_pool(&PoolOptions::named("more").min(ByteSize::kib(500))).unwrap_err().to_string();
    assert!(refused.contains("more"), "{refused}");
    cache.verify();
}

/// Ends threads that look at a flag, also when an assertion fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn memory_stays_bounded_beside_pools_and_flash() {
    let folder = tempfile::tempdir().unwrap();
    let total = 32 << 20;
    let builder = Cache::builder().memory(ByteSize::bytes(total)).max_value(ByteSize::kib(64));
    let builder = builder.pool(PoolOptions::named("a"));
    let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(256)).build().unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = SetOnDrop(&is_over);
        let fill = |name: &'static str, bytes: usize| {
            let (pool, is_over) = (cache.pool(name).unwrap(), &is_over);
            scope.spawn(move || {
                let mut number = 0_u32;
                while !is_over.load(Ordering::Relaxed) {
                    // While memory moves a write may be refused.
                    drop(pool.insert(&number.to_le_bytes(), &vec![7; bytes]).apply());
                    number += 1;
                }
            });
        };
        fill("default", 100);
        fill("a", 3000);
        for turn in 0..12_u32 {
            cache.add_pool(&PoolOptions::named("guest").min(ByteSize::mib(4))).unwrap();
            let guest = cache.pool("guest").unwrap();
            (0..500_u32).for_each(|key| drop(guest.insert(&key.to_le_bytes(), &[7; 2500]).apply()));
            assert_within(&cache, total);
            cache.resize(ByteSize::bytes(if turn.is_multiple_of(2) { total - (6 << 20) } else { total })).unwrap();
            cache.remove_pool("guest").unwrap();
            assert_within(&cache, total);
        }
        drop(ends);
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    cache.resize(ByteSize::bytes(total / 2)).unwrap();
    while cache.stats().memory_used_bytes > total / 2 {
        assert!(Instant::now() < deadline, "{:?}", cache.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
    cache.verify();
}

#[test]
fn flushes_of_one_pool_survive_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, pools) = open(folder.path());
    (0..3).for_each(|pool| fill(&pools, pool, 1));
    pools[1].flush(Duration::ZERO);
    assert_eq!(hits(&pools, 1, 2), 0, "nothing of before the flush");
    assert!(hits(&pools, 2, 1) > KEYS * 9 / 10 && hits(&pools, 0, 1) > KEYS * 9 / 10);
    fill(&pools, 1, 2);
    assert!(hits(&pools, 1, 2) > KEYS * 9 / 10);
    let drained = cache.close().unwrap().drained.unwrap();
    assert!(drained.objects > 100 && drained.left == 0, "memory of all pools goes to flash: {drained:?}");
    drop((cache, pools));
    let (cache, pools) = open(folder.path());
    assert!(cache.flash_stats().unwrap().tier.objects > 0);
    for (pool, version) in [(0, 1), (1, 2), (2, 1)] {
        let found = hits(&pools, pool, version);
        assert!(found > KEYS * 9 / 10, "{found} of {KEYS} in {}", POOLS[pool]);
    }
    cache.verify();
}

#[test]
fn a_successor_finds_no_removed_pools_objects() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, mut pools) = open(folder.path());
    (0..3).for_each(|pool| fill(&pools, pool, 1));
    let removed = pools[1].clone();
    cache.remove_pool("a").unwrap();
    assert!(!removed.contains(&1_u32.to_le_bytes()));
    assert!(removed.flash_stats().is_some_and(|stats| stats.bytes == 0));
    drop(removed);
    pools.truncate(1);
    cache.add_pool(&PoolOptions::named("a")).unwrap();
    pools.extend([cache.pool("a").unwrap(), cache.pool("b").unwrap()]);
    assert_eq!(hits(&pools, 1, 2), 0, "nothing of the removed pool");
    fill(&pools, 1, 2);
    assert!(hits(&pools, 1, 2) > KEYS * 8 / 10 && hits(&pools, 2, 1) > KEYS * 8 / 10);
    cache.verify();
}

#[test]
fn unnamed_pools_are_dropped_from_flash() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, pools) = open(folder.path());
    (0..3).for_each(|pool| fill(&pools, pool, 1));
    cache.close().unwrap();
    drop((cache, pools));
    builder(folder.path(), &["default", "b"]).build().unwrap().close().unwrap();
    let (cache, pools) = open(folder.path());
    assert_eq!(hits(&pools, 1, 2), 0, "a start without it has ended it");
    assert!(hits(&pools, 2, 1) > KEYS * 8 / 10);
    cache.verify();
}

#[test]
fn a_flood_costs_others_at_most_two_percent() {
    // Keys of the quiet pool, keys of a flood of ten times its objects, and the sizes of both.
    type Sizes = fn(u32) -> usize;
    let cases: [(&str, u32, u32, Sizes); 3] = [
        ("large", 1500, 60_000, |_| 6000),
        ("small", 12_000, 280_000, |_| 300),
        ("mixed", 1500, 40_000, |key| [100, 500, 2000, 6000, 20_000][key as usize % 5]),
    ];
    for (name, keys, flood, bytes) in cases {
        let [before, after] = [0, flood].map(|flood| quiet_hits(keys, flood, bytes));
        println!("{name}: {before} hits, {after} beside a flood");
        assert!(
            before > keys as usize * 2 / 3 && after * 50 >= before * 49,
            "{name}: {after} of {before} hits are left"
        );
    }
}

/// The hits of a pool on all of its keys after a flood of another pool.
fn quiet_hits(keys: u32, flood: u32, bytes: fn(u32) -> usize) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let pools = |builder: CacheBuilder| {
        builder.pool(PoolOptions::named("quiet").flash_share(30)).pool(PoolOptions::named("loud").flash_share(30))
    };
    // The reads at the end promote nothing: what they displaced from memory would take space of a full flash.
    let builder = builder(folder.path(), &["default"]).flash_promotion(FlashPromotion::Never);
    let cache = pools(builder).build().unwrap();
    let (quiet, loud) = (cache.pool("quiet").unwrap(), cache.pool("loud").unwrap());
    let set = |pool: &Pool, key: u32| _ = pool.insert(&key.to_le_bytes(), &vec![1; bytes(key)]).apply();
    (0..keys).for_each(|key| set(&quiet, key));
    assert!(quiet.stats().displaced() > u64::from(keys) / 10, "it needs its flash: {:?}", quiet.stats());
    (0..flood).for_each(|key| set(&loud, key));
    let stats = loud.flash_stats().unwrap();
    assert!(flood == 0 || stats.refused_by_share > 1000, "{stats:?}");
    assert_eq!(quiet.flash_stats().unwrap().refused_by_share, 0);
    (0..keys).filter(|key| quiet.contains(&key.to_le_bytes())).count()
}

#[test]
fn shares_of_flash_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |shares: [u8; 2]| {
        let builder = builder(folder.path(), &["default"]);
        let builder = builder.pool(PoolOptions::named("a").flash_share(shares[0]));
        builder.pool(PoolOptions::named("b").flash_share(shares[1])).build().unwrap_err().to_string()
    };
    assert!(refusal([60, 41]).contains("101 percent (a 60, b 41)"), "{}", refusal([60, 41]));
    assert!(refusal([50, 50]).contains("leaves nothing to default"), "{}", refusal([50, 50]));
    assert!(refusal([50, 0]).contains("is 0 percent"), "{}", refusal([50, 0]));
}
