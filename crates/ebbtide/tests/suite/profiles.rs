//! Curves of a cache that profiles its accesses.

use ebbtide::{ByteSize, Cache, CacheBuilder, CacheCurve, Clock, CurvePoint, Pool, PoolOptions};
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

/// The curve of 64 MiB of which 1.5 times as much is asked for round and round, every second get by chance and
/// popularity where `is_mixed`; and the cache.
fn curve_of_a_loop(is_mixed: bool) -> (Cache, CacheCurve) {
    const KEYS: u32 = 24_000;
    let cache = builder(64).profile_accesses().build().unwrap();
    let mut state = 1u64;
    for step in 0..300_000u32 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let popular = f64::from(KEYS).powf((state >> 33) as f64 / (1u64 << 31) as f64) as u32;
        let key = if is_mixed && step % 2 == 0 { KEYS + popular } else { step % KEYS };
        cache.get_or_insert_with(key.to_le_bytes(), || vec![7; 4000]).unwrap();
        if step % 1500 == 1499 {
            cache.maintain(Duration::from_secs(u64::from(step / 1500)));
        }
    }
    let curve = cache.curve().unwrap();
    (cache, curve)
}

#[test]
fn models_and_lru_form_one_loop_curve() {
    // Caches of 16 MiB, replayed, have 0.96 and 0.62 misses, and present ones 0.60 and 0.45.
    for (is_mixed, more_than_present) in [(false, 0.2), (true, 0.03)] {
        let (cache, curve) = curve_of_a_loop(is_mixed);
        let at = |mib: u64| cache.what_if(ByteSize::mib(mib)).unwrap().miss_ratio;
        assert!(at(16) > at(64) + more_than_present && at(1) > at(16) && at(16) > at(32), "{curve:?}");
        // The first round misses in each memory.
        assert!(at(128) > 0.01 && at(128) >= at(256) && at(128) < 0.5 * at(64), "{curve:?}");
        let is_modelled = |point: &CurvePoint| (44 << 20..=91 << 20).contains(&point.memory_bytes);
        let pairs = curve.points.windows(2);
        for pair in pairs.filter(|pair| !pair.iter().all(is_modelled)) {
            assert!(pair[0].miss_ratio >= pair[1].miss_ratio, "{pair:?}");
        }
        // A point is the same beside others and alone.
        for point in &curve.points {
            assert_eq!(cache.what_if(ByteSize::bytes(point.memory_bytes)), Some(*point));
        }
        cache.verify();
    }
}

#[test]
fn the_sample_rate_recovers_after_a_load() {
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

/// A few keys make many of the gets, and are in the sample or not.
#[test]
fn pools_with_small_samples_have_their_level() {
    const POOLS: usize = 24;
    const KEYS: u32 = 20_000;
    let mut builder = builder(64).profile_accesses();
    for number in 0..POOLS - 1 {
        builder = builder.pool(PoolOptions::named(format!("pool-{number}")));
    }
    let cache = builder.build().unwrap();
    for number in 0..4_u64 {
        let pool = cache.pool(&format!("pool-{number}")).unwrap();
        let (mut state, mut before) = (number + 1, pool.stats());
        for second in 1..=200 {
            for _ in 0..500 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let popular = f64::from(KEYS).powf((state >> 33) as f64 / (1u64 << 31) as f64) as u32;
                let key = popular.wrapping_mul(0x9E37_79B9) ^ number as u32;
                pool.get_or_insert_with(key.to_le_bytes(), || [7; 1000]).unwrap();
            }
            cache.maintain(Duration::from_secs(number * 200 + second));
            if second == 140 {
                before = pool.stats();
            }
        }
        let (stats, curve) = (pool.stats(), pool.curve().unwrap());
        let measured = (stats.misses - before.misses) as f64 / 30_000.0;
        assert!(curve.sampled_keys < 400 && curve.sample_rate < 0.2, "{curve:?}");
        assert!((curve.present.miss_ratio - measured).abs() < 0.01, "{measured} {:?}", curve.present);
        let smallest = curve.points[0];
        let difference = smallest.miss_ratio - curve.present.miss_ratio;
        let error = 1.7 * (difference * (1.0 - difference) / curve.sampled_keys as f64).sqrt();
        assert!(difference > 0.05 && smallest.miss_ratio - smallest.low > error, "{smallest:?} {error}");
    }
    cache.verify();
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
