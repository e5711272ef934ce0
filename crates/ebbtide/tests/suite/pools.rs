//! Pools: isolation, division of memory, resize, removal while in use, bad input.

use ebbtide::memcached::{ByteSize, Cache, CacheBuilder, Clock, Error, Policy, Pool, PoolOptions, Stored, Ttl};
use ebbtide_testkit::Random;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn builder(mebibytes: u64) -> CacheBuilder {
    Cache::builder().memory(ByteSize::mib(mebibytes)).max_value(ByteSize::kib(64)).clock(Clock::Manual).seed(7)
}

fn insert(pool: &Pool, number: u32, bytes: usize) {
    assert_eq!(pool.insert(&number.to_le_bytes(), &vec![7; bytes]).apply(), Ok(Stored::Stored));
}

fn limit(pool: &Pool) -> u64 {
    pool.stats().memory_limit_bytes
}

/// The hits of a tenant whose keys need more than its pool, with a flood of another pool or without.
fn hits_of_a_tenant(floods: bool) -> Vec<bool> {
    let pools = builder(16).pool(PoolOptions::named("quiet")).pool(PoolOptions::named("loud"));
    let cache = pools.build().unwrap();
    let (quiet, loud) = (cache.pool("quiet").unwrap(), cache.pool("loud").unwrap());
    let mut random = 1_u32;
    let hits = (0..40_000_u32).map(|step| {
        if step % 100 == 0 {
            cache.maintain(Duration::from_millis(u64::from(step) * 10));
        }
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let key = (random >> 8) % 20_000;
        let is_hit = quiet.get(&key.to_le_bytes()).is_hit();
        if !is_hit {
            insert(&quiet, key, 500);
        }
        if floods {
            insert(&loud, step, [10, 500, 4000, 60_000][step as usize % 4]);
        }
        is_hit
    });
    let hits = hits.collect();
    assert!(!floods || loud.stats().evictions > 10_000);
    assert!(quiet.stats().evictions > 0, "the tenant has more keys than memory");
    cache.verify();
    hits
}

#[test]
fn a_flood_leaves_the_hits_of_others_identical() {
    let hits = hits_of_a_tenant(false);
    assert!(hits.iter().filter(|hit| **hit).count() > 5000);
    assert_eq!(hits_of_a_tenant(true), hits);
}

#[test]
fn keys_of_pools_are_apart() {
    let cache = builder(16).pool(PoolOptions::named("a")).build().unwrap();
    let pool = cache.pool("a").unwrap();
    insert(&pool, 1, 10);
    assert!(!cache.contains(&1_u32.to_le_bytes()));
    insert(&cache, 1, 20);
    assert_eq!(pool.get(&1_u32.to_le_bytes()).hit().unwrap().len(), 10);
    pool.flush(Duration::ZERO);
    assert!(!pool.contains(&1_u32.to_le_bytes()) && cache.contains(&1_u32.to_le_bytes()));
    assert_eq!((pool.name(), cache.name(), cache.pools()), ("a", "default", vec!["default".into(), "a".into()]));
    cache.verify();
}

#[test]
fn memory_is_divided_by_bounds_and_weights() {
    let pools = [
        PoolOptions::named("heavy").weight(3),
        PoolOptions::named("bounded").weight(100).max(ByteSize::mib(4)),
        PoolOptions::named("default").min(ByteSize::mib(8)),
    ];
    let cache = pools.into_iter().fold(builder(64), CacheBuilder::pool).build().unwrap();
    let limits = ["default", "heavy", "bounded"].map(|name| limit(&cache.pool(name).unwrap()));
    assert_eq!(limits, [15 * MIB, 45 * MIB, 4 * MIB]);
    assert_eq!(cache.stats().memory_limit_bytes, 64 * MIB);
}

#[test]
fn memory_moves_between_pools() {
    let cache = builder(32).pool(PoolOptions::named("a")).build().unwrap();
    let pool = cache.pool("a").unwrap();
    (0..40_000).for_each(|number| insert(&pool, number, 1000));
    assert_eq!((limit(&pool), limit(&cache)), (16 * MIB, 16 * MIB));
    pool.resize(ByteSize::mib(1), ByteSize::mib(4)).unwrap();
    assert_eq!((limit(&pool), limit(&cache)), (4 * MIB, 28 * MIB));
    let stats = pool.stats();
    assert!(stats.memory_used_bytes <= 4 * MIB && stats.items > 1000, "{stats:?}");
    pool.resize(ByteSize::mib(24), ByteSize::mib(32)).unwrap();
    assert_eq!((limit(&pool), limit(&cache)), (24 * MIB, 8 * MIB));
    pool.release().unwrap();
    assert_eq!((limit(&pool), limit(&cache)), (16 * MIB, 16 * MIB), "the bounds of its options");
    pool.release().unwrap();
    pool.resize(ByteSize::mib(2), ByteSize::mib(2)).unwrap();
    assert_eq!((limit(&pool), limit(&cache)), (2 * MIB, 30 * MIB));
    cache.resize(ByteSize::mib(16)).unwrap();
    assert_eq!((limit(&pool), limit(&cache)), (2 * MIB, 14 * MIB));
    cache.verify();
}

#[test]
fn pools_are_added_and_removed_at_run_time() {
    let cache = builder(32).build().unwrap();
    (0..40_000).for_each(|number| insert(&cache, number, 1000));
    cache.add_pool(&PoolOptions::named("new").weight(3)).unwrap();
    let (pool, other) = (cache.pool("new").unwrap(), cache.pool("new").unwrap());
    assert_eq!((limit(&pool), limit(&cache)), (24 * MIB, 8 * MIB));
    (0..30_000).for_each(|number| insert(&pool, number, 1000));
    let before = cache.stats();
    assert!(
        pool.stats().items > 15_000
            && before.items == pool.stats().items + cache.pool("default").unwrap().stats().items
    );

    cache.remove_pool("new").unwrap();
    let removed = Error::PoolRemoved { name: "new".into() };
    for handle in [&pool, &other] {
        assert_eq!(handle.insert(b"k", b"v").apply(), Err(removed.clone()));
        assert_eq!(handle.increment(b"k", 1), Err(removed.clone()));
        assert_eq!(
            handle.upload(b"k", 20_000, 0, ebbtide::Ttl::Never, ebbtide::memcached::Mode::Set).and_then(
                |mut upload| {
                    upload.write(&[7; 20_000])?;
                    upload.finish()
                }
            ),
            Err(removed.clone())
        );
        assert_eq!(handle.resize(ByteSize::mib(1), ByteSize::mib(2)), Err(removed.clone()));
        assert!((0..30_000_u32).all(|number| !handle.contains(&number.to_le_bytes())));
    }
    assert_eq!(cache.pool("new").err(), Some(Error::UnknownPool { name: "new".into() }));
    assert!(limit(&cache) >= 30 * MIB, "a removed pool keeps what its index takes: {}", limit(&cache));
    drop((pool, other));
    cache.maintain(Duration::from_secs(1));
    assert_eq!(limit(&cache), 32 * MIB);
    let after = cache.stats();
    assert!(after.stored_total >= before.stored_total && after.evictions >= before.evictions, "counters never fall");
    // The name is free again, and nothing of the removed pool is served.
    cache.add_pool(&PoolOptions::named("new")).unwrap();
    assert!(!cache.pool("new").unwrap().contains(&29_999_u32.to_le_bytes()));
    cache.verify();
}

#[test]
fn added_pools_are_laid_out_by_share() {
    for policy in [Policy::S3Fifo, Policy::TwoQ, Policy::MergeSketch] {
        let options = PoolOptions::named("new").weight(3).policy(policy);
        let from_start = builder(256).pool(options.clone()).build().unwrap();
        let cache = builder(256).build().unwrap();
        cache.add_pool(&options).unwrap();
        cache.maintain(Duration::from_secs(1));
        let [expected, stats] = [&from_start, &cache].map(|cache| cache.pool("new").unwrap().stats());
        assert_eq!(stats.memory_limit_bytes, 192 * MIB);
        assert_eq!(stats.segment_bytes, expected.segment_bytes);
        let fixed_bytes = [&stats, &expected].map(|stats| stats.memory_used_bytes - stats.index_bytes);
        assert_eq!(fixed_bytes[0], fixed_bytes[1], "histories and TTL buckets");
        let pool = cache.pool("new").unwrap();
        insert(&pool, 1, 64 << 10);
        cache.verify();
    }
}

/// The miss ratio of a pool of 96 MiB on a load of 20 TTLs and values of 30 bytes to 60 KiB, once it is full.
fn miss_ratio(how: &str, cache: &Cache, pool: &Pool) -> f64 {
    let (mut random, mut gets, mut misses) = (Random::new(3), 0_u32, 0_u32);
    assert_eq!(limit(pool), 96 * MIB);
    for step in 0..LOAD_GETS {
        if step % 1000 == 0 {
            cache.maintain(Duration::from_millis(u64::from(step) * 2));
        }
        let unit = random.uniform(1 << 32) as f64 / f64::from(u32::MAX);
        let key = ((unit * unit * unit) * LOAD_KEYS) as u32;
        let is_hit = pool.get(&key.to_le_bytes()).is_hit();
        if !is_hit {
            let mix = u64::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let bytes = if mix >> 60 == 0 { 1 << 10 << (mix >> 40 & 7).min(6) } else { 30 + (mix >> 32 & 0x7FF) };
            let value = vec![7; (bytes as usize).min(60_000)];
            let ttl = Ttl::seconds(300 << ((mix >> 20 & 0xFF) as u32 % 20));
            assert_eq!(pool.insert(&key.to_le_bytes(), &value).ttl(ttl).apply(), Ok(Stored::Stored));
        }
        if step >= LOAD_GETS / 2 {
            (gets, misses) = (gets + 1, misses + u32::from(!is_hit));
        }
    }
    cache.verify();
    let (segment, ratio) = (pool.stats().segment_bytes, f64::from(misses) / f64::from(gets));
    println!("{how}: segments of {segment} bytes, {:.2} % misses", ratio * 100.0);
    ratio
}

const LOAD_GETS: u32 = 700_000;
const LOAD_KEYS: f64 = 300_000.0;

#[test]
fn added_pools_hit_like_initial_ones() {
    let options = PoolOptions::named("new").weight(3);
    let from_start = builder(128).pool(options.clone()).build().unwrap();
    let added = builder(128).build().unwrap();
    added.add_pool(&options).unwrap();
    added.maintain(Duration::from_secs(1));
    // It begins with a part of 1 MiB, for which it is laid out.
    let grown = builder(128).build().unwrap();
    let max = ByteSize::mib(1);
    grown.add_pool(&options.clone().max(max)).unwrap();
    grown.maintain(Duration::from_secs(1));
    assert_eq!(limit(&grown.pool("new").unwrap()), MIB);
    grown.pool("new").unwrap().resize(ByteSize::bytes(0), ByteSize::bytes(u64::MAX)).unwrap();
    grown.maintain(Duration::from_secs(1));
    let caches = [("from the start", from_start), ("added", added), ("grown from 1 MiB", grown)];
    let ratios = caches.map(|(how, cache)| miss_ratio(how, &cache, &cache.pool("new").unwrap()));
    assert!(ratios[1] < ratios[0] * 1.01, "{ratios:?}");
    assert!(ratios[2] < ratios[0] * 1.1, "{ratios:?}");
}

#[test]
fn writers_of_a_removed_pool_stop() {
    let cache = Cache::builder().memory(ByteSize::mib(32)).max_value(ByteSize::kib(64)).build().unwrap();
    for round in 0..5_u32 {
        cache.add_pool(&PoolOptions::named("tenant")).unwrap();
        let pool = cache.pool("tenant").unwrap();
        std::thread::scope(|scope| {
            let write = || (0..).find_map(|n: u32| pool.insert(&n.to_le_bytes(), &[7; 700]).apply().err()).unwrap();
            let writers = [scope.spawn(write), scope.spawn(write)];
            insert(&cache, round, 100);
            cache.remove_pool("tenant").unwrap();
            for writer in writers {
                assert_eq!(writer.join().unwrap(), Error::PoolRemoved { name: "tenant".into() });
            }
            assert!((0..1000_u32).all(|number| !pool.contains(&number.to_le_bytes())), "a removed pool serves nothing");
        });
    }
    cache.verify();
}

#[test]
fn bad_pools_are_refused() {
    let refused = |pool: PoolOptions| builder(16).pool(pool).build().unwrap_err().to_string();
    let message = refused(PoolOptions::named("big").min(ByteSize::mib(20)));
    for part in ["20971520", "16777216", "big", "default 262144"] {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    assert!(refused(PoolOptions::named("a").min(ByteSize::mib(4)).max(ByteSize::mib(2))).contains("larger than max"));
    assert!(refused(PoolOptions::named("a").max(ByteSize::kib(100))).contains("262144"), "its floor");
    for name in ["", "a b", "a\tb", "a\u{200b}", &"x".repeat(65)] {
        assert!(refused(PoolOptions::named(name)).contains("1 to 64 printable characters"), "{name:?}");
    }
    let twice = builder(16).pool(PoolOptions::named("a")).pool(PoolOptions::named("a")).build();
    assert_eq!(twice.unwrap_err(), Error::PoolExists { name: "a".into() });

    let cache = builder(16).pool(PoolOptions::named("a")).build().unwrap();
    assert_eq!(cache.pool("b").err(), Some(Error::UnknownPool { name: "b".into() }));
    assert_eq!(cache.remove_pool("b"), Err(Error::UnknownPool { name: "b".into() }));
    assert_eq!(cache.add_pool(&PoolOptions::named("a")), Err(Error::PoolExists { name: "a".into() }));
    assert!(matches!(cache.remove_pool("default"), Err(Error::Configuration { option: "pool", .. })));
    let pool = cache.pool("a").unwrap();
    let before = limit(&pool);
    assert!(pool.resize(ByteSize::mib(17), ByteSize::mib(20)).unwrap_err().to_string().contains("17825792"));
    assert!(cache.add_pool(&PoolOptions::named("c").min(ByteSize::mib(16))).is_err());
    assert_eq!((limit(&pool), cache.pools().len()), (before, 2), "a refusal changes nothing");
    cache.verify();
}

#[test]
fn pools_stay_under_the_memory_ceiling() {
    let cache = builder(16).memory_ceiling(ByteSize::mib(32)).pool(PoolOptions::named("a")).build().unwrap();
    for bytes in [(32 << 20) + 1, 1 << 40, u64::MAX] {
        let refused = cache.resize(ByteSize::bytes(bytes));
        assert!(matches!(refused, Err(Error::Configuration { option: "memory", .. })), "{bytes}: {refused:?}");
    }
    assert_eq!(cache.stats().memory_limit_bytes, 16 * MIB, "a refusal changes nothing");
    cache.resize(ByteSize::mib(32)).unwrap();
    cache.maintain(Duration::from_secs(1));
    assert_eq!(cache.stats().memory_limit_bytes, 32 * MIB);
    // The error names what is wrong: the pool, or the memory.
    let refused = |resized: Result<(), Error>| match resized {
        Err(Error::Configuration { option, value, .. }) => (option, value),
        other => panic!("{other:?}"),
    };
    let pool = cache.pool("a").unwrap();
    assert_eq!(refused(pool.resize(ByteSize::mib(8), ByteSize::mib(4))), ("pool", "a".to_owned()));
    assert_eq!(refused(cache.resize(ByteSize::kib(300))), ("memory", (300 << 10).to_string()));
    cache.verify();
}

#[test]
fn a_pool_grows_by_what_others_have_freed() {
    let cache = builder(32).pool(PoolOptions::named("a")).build().unwrap();
    let pool = cache.pool("a").unwrap();
    (0..3000).for_each(|number| insert(&pool, number, 5000));
    // Values of over 4 KiB stay where they are while a handle exists.
    let handle = |number: u32| pool.get(&number.to_le_bytes()).hit()?.to_handle().ok();
    let handles: Vec<_> = (0..3000).step_by(5).filter_map(handle).collect();
    assert!(handles.len() > 100, "a quarter of the pool: {}", handles.len());
    pool.resize(ByteSize::mib(1), ByteSize::mib(2)).unwrap();
    let default = limit(&cache.pool("default").unwrap());
    assert!(default < 30 * MIB - MIB / 2, "handles hold the memory: {default}");
    assert!(default + pool.stats().memory_used_bytes <= 32 * MIB, "it has what was freed: {default}");
    drop(handles);
    cache.maintain(Duration::from_secs(1));
    assert_eq!(limit(&cache.pool("default").unwrap()), 30 * MIB);
    cache.verify();
}

#[test]
fn a_large_pool_shrinks_to_what_it_can() {
    let cache = builder(1024).pool(PoolOptions::named("a")).build().unwrap();
    let pool = cache.pool("a").unwrap();
    let segment_bytes = pool.stats().segment_bytes;
    assert!(16 * segment_bytes > 4 * MIB, "segments of {segment_bytes} bytes do not fit the maximum");
    (0..1000).for_each(|number| insert(&pool, number, 1000));
    pool.resize(ByteSize::mib(0), ByteSize::mib(4)).unwrap();
    cache.maintain(Duration::from_secs(1));
    let floor_bytes = limit(&pool);
    assert!((16 * segment_bytes..16 * MIB).contains(&floor_bytes), "{floor_bytes}");
    assert_eq!(floor_bytes + limit(&cache.pool("default").unwrap()), 1024 * MIB, "the other pool has the rest");
    insert(&pool, 1, 1000);
    let refused = cache.resize(ByteSize::mib(4)).unwrap_err().to_string();
    assert!(refused.contains(&format!("a {floor_bytes}")), "{refused}");
    cache.verify();
}

/// A thread that uses all pools, one after the other.
fn use_pools(pools: &[Pool], seed: u32) {
    let mut random = seed;
    for step in 0..60_000_u32 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let pool = &pools[(random >> 8) as usize % pools.len()];
        let key = (random >> 12).to_le_bytes();
        let bytes = [10, 300, 3000][step as usize % 3];
        let write = pool.insert(&key, &[7; 3000][..bytes]).ttl(Ttl::Seconds((random >> 24) + 60));
        assert_eq!(write.apply(), Ok(Stored::Stored), "{step} in {}", pool.name());
        assert!(step % 2 == 0 || pool.get(&key).hit().is_none_or(|item| item.len() <= 3000));
    }
}

#[test]
fn many_pools_stay_within_the_memory() {
    const MEMORY: u64 = 192 * MIB;
    let named = |number: u32| PoolOptions::named(format!("tenant-{number}"));
    let builder = Cache::builder().memory(ByteSize::bytes(MEMORY)).max_value(ByteSize::kib(64));
    let cache = (0..511).map(named).fold(builder, CacheBuilder::pool).build().unwrap();
    let pools: Vec<_> = cache.pools().iter().map(|name| cache.pool(name).unwrap()).collect();
    assert_eq!(pools.len(), 512);
    let is_within = || {
        let stats = cache.stats();
        assert!(stats.memory_used_bytes <= stats.memory_limit_bytes && stats.memory_limit_bytes <= MEMORY, "{stats:?}");
    };
    std::thread::scope(|scope| {
        let users: Vec<_> = (1..=4)
            .map(|seed| {
                scope.spawn({
                    let pools = &pools;
                    move || use_pools(pools, seed)
                })
            })
            .collect();
        while users.iter().any(|user| !user.is_finished()) {
            is_within();
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    assert!(cache.stats().evictions > 10_000, "{:?}", cache.stats());
    assert!(pools.iter().skip(1).all(|pool| pool.stats().items > 20), "all pools were used");
    cache.verify();
}

#[test]
fn memory_moves_while_pools_are_used() {
    let builder = Cache::builder().memory(ByteSize::mib(64)).max_value(ByteSize::kib(64));
    let cache = builder.pool(PoolOptions::named("a")).pool(PoolOptions::named("b")).build().unwrap();
    let pools: Vec<_> = ["a", "b"].iter().map(|name| cache.pool(name).unwrap()).collect();
    std::thread::scope(|scope| {
        let users = [1, 2].map(|seed| {
            scope.spawn({
                let pools = &pools;
                move || use_pools(pools, seed)
            })
        });
        let mut turn = 0;
        while users.iter().any(|user| !user.is_finished()) {
            turn += 1;
            let (small, large) = (&pools[turn % 2], &pools[(turn + 1) % 2]);
            large.resize(ByteSize::mib(0), ByteSize::mib(64)).unwrap();
            small.resize(ByteSize::mib(0), ByteSize::mib(8)).unwrap();
            for _ in 0..20 {
                assert!(cache.stats().memory_used_bytes <= 64 * MIB, "{:?}", cache.stats());
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    });
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while pools.iter().map(limit).sum::<u64>() + limit(&cache.pool("default").unwrap()) != 64 * MIB {
        assert!(std::time::Instant::now() < deadline, "the budgets reach their targets");
        std::thread::sleep(Duration::from_millis(5));
    }
    cache.verify();
}

#[test]
fn pools_are_checked_without_a_change_and_configured() {
    let cache = Cache::builder().memory(ByteSize::mib(32)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
    let cache = cache.pool(PoolOptions::named("a")).build().unwrap();
    let a = cache.pool("a").unwrap();
    let before = a.stats().memory_limit_bytes;
    let wanted =
        |mib| [PoolOptions::named("a").min(ByteSize::mib(mib)), PoolOptions::named("b").min(ByteSize::mib(10))];
    cache.check_pools(&wanted(20)).unwrap();
    let refused = cache.check_pools(&wanted(24)).unwrap_err().to_string();
    assert!(refused.contains("a 25165824") && refused.contains("b 10485760"), "{refused}");
    assert_eq!((cache.pools(), a.stats().memory_limit_bytes), (vec!["default".into(), "a".into()], before));
    a.resize(ByteSize::mib(1), ByteSize::mib(4)).unwrap();
    a.configure(&PoolOptions::named("a").weight(3)).unwrap();
    cache.maintain(Duration::from_secs(10));
    assert_eq!(a.stats().memory_limit_bytes, 24 << 20, "three of four parts, without the bounds set by hand");
    assert!(a.configure(&PoolOptions::named("a").min(ByteSize::mib(33))).is_err());
    assert_eq!(a.stats().memory_limit_bytes, 24 << 20);
    cache.verify();
}
