//! Pools over flash: values beyond memory, isolation, flush, removal, stops and kills, shares, scans.

use ebbtide::memcached::{ByteSize, Cache, CacheBuilder, Clock, FlashOptions, FlashPromotion, Pool, PoolOptions};
use std::path::Path;
use std::time::Duration;

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
    (0..KEYS).for_each(|key| _ = pools[pool].insert(&key.to_le_bytes(), &value(pool, version, key)).apply().unwrap());
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
        assert!(pool.stats().evictions > 100, "the keys need more than the memory of {}", pool.name());
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

#[test]
fn a_flush_of_one_pool_lasts_over_a_stop() {
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
fn a_removed_pool_leaves_nothing_to_the_next_of_its_name() {
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
fn a_pool_that_a_start_does_not_name_is_dropped_from_flash() {
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
fn a_flood_leaves_the_flash_of_others_within_two_percent() {
    let quiet_hits = |floods: bool| {
        let folder = tempfile::tempdir().unwrap();
        let pools = |builder: CacheBuilder| {
            builder.pool(PoolOptions::named("quiet").flash_share(30)).pool(PoolOptions::named("loud").flash_share(30))
        };
        let cache = pools(builder(folder.path(), &["default"])).build().unwrap();
        let (quiet, loud) = (cache.pool("quiet").unwrap(), cache.pool("loud").unwrap());
        let set = |pool: &Pool, key: u32, bytes: usize| _ = pool.insert(&key.to_le_bytes(), &vec![1; bytes]).apply();
        (0..1500).for_each(|key| set(&quiet, key, 6000));
        if floods {
            (0..60_000).for_each(|key| set(&loud, key, 6000));
            let stats = loud.flash_stats().unwrap();
            assert!(stats.refused_by_share > 1000 && quiet.flash_stats().unwrap().refused_by_share == 0, "{stats:?}");
        }
        (0..1500_u32).filter(|key| quiet.contains(&key.to_le_bytes())).count()
    };
    let (before, after) = (quiet_hits(false), quiet_hits(true));
    assert!(before > 1000 && after * 50 >= before * 49, "{after} of {before} hits are left");
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
