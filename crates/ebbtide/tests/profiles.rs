//! Curves of a cache that profiles its accesses.

use ebbtide::{ByteSize, Cache, CacheBuilder, Clock, Pool, PoolOptions};
use std::time::{Duration, Instant};

fn builder(mib: u64) -> CacheBuilder {
    Cache::builder().memory(ByteSize::mib(mib)).clock(Clock::Manual)
}

/// Asks for `keys` objects of `bytes` bytes in turn, and loads those that are missed.
fn look_aside(pool: &Pool, keys: u32, bytes: usize) {
    for number in 0..keys {
        pool.get_or_insert_with(number.to_le_bytes(), || vec![7; bytes]).unwrap();
    }
}

#[test]
fn a_cache_says_what_more_memory_would_give() {
    let cache = builder(4).profile_accesses().build().unwrap();
    assert!(cache.curve().is_none() && cache.what_if(ByteSize::mib(8)).is_none() && cache.verdict().is_none());
    for second in 1..40 {
        // 8 MB of objects, round and round.
        look_aside(&cache, 2000, 4000);
        cache.maintain(Duration::from_secs(second));
    }
    let at = |mib: u64| cache.what_if(ByteSize::mib(mib)).unwrap();
    let measured = 1.0 - cache.stats().hit_ratio();
    assert!((at(4).miss_ratio - measured).abs() < 0.02, "{:?} {measured}", at(4));
    assert!(at(4).miss_ratio > 0.5 && at(16).miss_ratio < 0.06, "{:?} {:?}", at(4), at(16));
    let curve = cache.curve().unwrap();
    assert_eq!((curve.present, curve.is_full), (at(4), true));
    assert!(curve.points.is_sorted_by(|one, next| one.memory_bytes < next.memory_bytes));
    let verdict = cache.verdict().unwrap().to_string();
    assert!(verdict.starts_with("full; ") && verdict.contains("+1 MiB would save "), "{verdict}");
    cache.verify();
}

#[test]
fn a_share_that_load_lowered_grows_back_when_the_load_is_over() {
    let cache = builder(16).profile_accesses().build().unwrap();
    let mut second = 0;
    let mut run = |seconds: u64, rounds: u32| {
        for _ in 0..seconds {
            (0..rounds).for_each(|_| look_aside(&cache, 500, 10));
            second += 1;
            cache.maintain(Duration::from_secs(second));
        }
        cache.curve().unwrap()
    };
    let loaded = run(10, 60);
    assert!(loaded.sample_rate < 0.5, "{}", loaded.sample_rate);
    // Two accesses of each key a second are few.
    let calm = run(90, 2);
    assert_eq!(calm.sample_rate, 1.0, "after {}", loaded.sample_rate);
    assert!(calm.present.miss_ratio < 0.05, "{:?}", calm.present);
}

#[test]
fn a_flood_of_new_keys_leaves_the_verdict() {
    let cache = builder(8).profile_accesses().build().unwrap();
    let mut new_key = 1u64 << 40;
    for second in 1..=60 {
        look_aside(&cache, 300, 1000);
        for _ in 0..if second > 20 { 5000 } else { 0 } {
            new_key += 1;
            cache.insert(new_key.to_le_bytes(), [7; 100]).unwrap();
        }
        cache.maintain(Duration::from_secs(second));
        assert!(second < 10 || cache.verdict().is_some(), "second {second}");
    }
    assert!(cache.stats().evictions > 0);
}

#[test]
fn each_pool_has_its_curve() {
    let cache = builder(32).pool(PoolOptions::named("large")).profile_accesses().build().unwrap();
    let large = cache.pool("large").unwrap();
    cache.add_pool(&PoolOptions::named("small")).unwrap();
    let small = cache.pool("small").unwrap();
    for second in 1..20 {
        look_aside(&large, 1500, 20_000);
        look_aside(&small, 1000, 100);
        cache.maintain(Duration::from_secs(second));
    }
    let miss_ratios = |pool: &Pool| {
        let curve = pool.curve().unwrap();
        (curve.present.miss_ratio, pool.what_if(ByteSize::mib(64)).unwrap().miss_ratio)
    };
    assert!(miss_ratios(&large).0 > 0.9 && miss_ratios(&large).1 < 0.1, "{:?}", miss_ratios(&large));
    assert!(miss_ratios(&small).0 < 0.1, "{:?}", miss_ratios(&small));
    assert!(cache.curve().is_none(), "nobody has used the pool default");
    cache.remove_pool("small").unwrap();
    assert!(small.curve().is_none());
    cache.maintain(Duration::from_secs(30));
    assert!(small.curve().is_none() && large.curve().is_some());
    let weak = cache.downgrade();
    drop((cache, large, small));
    assert!(weak.upgrade().is_none(), "a profile keeps no cache alive");
}

#[test]
fn without_profiles_nothing_is_known() {
    let cache = builder(4).build().unwrap();
    for second in 1..20 {
        look_aside(&cache, 2000, 4000);
        cache.maintain(Duration::from_secs(second));
    }
    assert!(cache.curve().is_none() && cache.what_if(ByteSize::mib(8)).is_none() && cache.verdict().is_none());
}

#[test]
fn a_thread_takes_samples_in() {
    let cache = Cache::builder().memory(ByteSize::mib(4)).profile_accesses().build().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while cache.what_if(ByteSize::mib(16)).is_none() {
        look_aside(&cache, 2000, 4000);
        assert!(Instant::now() < deadline, "no thread takes the samples in");
    }
}
