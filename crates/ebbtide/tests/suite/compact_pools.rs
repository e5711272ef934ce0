//! Compact pools: small objects and negative results, their memory among other pools, and their errors.

use crate::common::folders;
use ebbtide::{
    ByteSize, Cache, Clock, Error, InsertOptions, LoadError, LoadOptions, Lookup, NegativeCache, Pool, PoolOptions,
};
use ebbtide_testkit::Random;
use std::convert::Infallible;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn build(mib: u64, pools: &[PoolOptions]) -> Cache {
    let builder = Cache::builder().memory(ByteSize::mib(mib)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
    pools.iter().cloned().fold(builder, |builder, pool| builder.pool(pool)).build().unwrap()
}

fn key(number: u64) -> [u8; 16] {
    (u128::from(number) << 64 | u128::from(number)).to_le_bytes()
}

#[test]
fn an_object_replaces_its_negative_result() {
    let cache = build(16, &[PoolOptions::named("tiny").compact(16, 4)]);
    let tiny = cache.compact_pool("tiny").unwrap();
    assert_eq!(tiny.get(key(1)), Lookup::Miss);
    tiny.insert_negative(key(1)).unwrap();
    assert_eq!(tiny.get(key(1)), Lookup::Negative);
    tiny.insert(key(1), b"four").unwrap();
    assert_eq!(tiny.get(key(1)), Lookup::Hit(b"four".to_vec()));
    assert_eq!(tiny.with(key(1), <[u8]>::len), Lookup::Hit(4));
    assert!(!tiny.remove_negative(key(1)).unwrap() && tiny.contains_key(key(1)));
    assert!(tiny.remove(key(1)).unwrap() && !tiny.contains_key(key(1)));
    tiny.insert_negative(key(2)).unwrap();
    tiny.insert(key(3), b"last").unwrap();
    assert_eq!(
        tiny.get_many(&[key(1), key(2), key(3)]),
        [Lookup::Miss, Lookup::Negative, Lookup::Hit(b"last".to_vec())]
    );
    let stats = tiny.stats();
    assert_eq!((stats.hits, stats.negative_hits, stats.misses), (3, 2, 2));
    assert_eq!((stats.entries, stats.negatives, stats.inserts, stats.negative_inserts), (2, 1, 2, 2));
    tiny.invalidate_all();
    assert_eq!((tiny.get(key(2)), tiny.stats().entries), (Lookup::Miss, 0));
    cache.verify();
}

#[test]
fn wrong_lengths_and_kinds_are_refused_by_name() {
    let cache = build(16, &[PoolOptions::named("tiny").compact(16, 4), PoolOptions::named("users")]);
    let tiny = cache.compact_pool("tiny").unwrap();
    let error = tiny.insert(b"short", b"four").unwrap_err();
    assert_eq!(error, Error::CompactLength { part: "key", length: 5, expected: 16 });
    assert_eq!(error.to_string(), "the key has 5 bytes; those of this compact pool have 16");
    assert_eq!(
        tiny.insert(key(1), b"five.").unwrap_err(),
        Error::CompactLength { part: "value", length: 5, expected: 4 }
    );
    assert_eq!(tiny.get(b"short"), Lookup::Miss);
    let ttl = InsertOptions::new().ttl(Duration::from_secs(5));
    assert_eq!(tiny.insert_negative_with(key(1), ttl), Err(Error::CompactTtl));
    assert!(cache.pool("tiny").unwrap_err().to_string().contains("use compact_pool"));
    assert!(cache.compact_pool("users").unwrap_err().to_string().contains("use pool"));
    assert!(matches!(cache.compact_pool("none"), Err(Error::UnknownPool { .. })));
    let refused = |options: PoolOptions| cache.add_pool(&options).unwrap_err().to_string();
    assert!(refused(PoolOptions::named("long").compact(100, 29)).contains("key 100, value 29"));
    assert!(refused(PoolOptions::named("none").compact(0, 0)).contains("1 byte at least"));
    let builder = Cache::builder().pool(PoolOptions::named("default").compact(16, 0));
    assert!(builder.build().unwrap_err().to_string().contains("another name"));
    assert_eq!(cache.pools(), ["default", "users", "tiny"]);
}

#[test]
fn entries_with_a_ttl_expire() {
    let cache = build(16, &[PoolOptions::named("tiny").compact_with_ttl(16, 0)]);
    let tiny = cache.compact_pool("tiny").unwrap();
    tiny.insert_negative_with(key(1), InsertOptions::new().ttl(Duration::from_secs(5))).unwrap();
    tiny.insert_negative(key(2)).unwrap();
    cache.maintain(Duration::from_secs(4));
    assert_eq!((tiny.get(key(1)), tiny.get(key(2))), (Lookup::Negative, Lookup::Negative));
    cache.maintain(Duration::from_secs(5));
    assert_eq!((tiny.get(key(1)), tiny.get(key(2))), (Lookup::Miss, Lookup::Negative));
    cache.verify();
}

fn memory_bytes(cache: &Cache) -> u64 {
    cache.stats().memory_limit_bytes
}

#[test]
fn compact_pools_share_the_memory_with_others() {
    let (min, max) = (ByteSize::mib(4), ByteSize::mib(8));
    let cache = build(32, &[PoolOptions::named("tiny").compact(16, 0).min(min).max(max), PoolOptions::named("users")]);
    let tiny = cache.compact_pool("tiny").unwrap();
    assert_eq!((memory_bytes(&cache), tiny.stats().memory_limit_bytes), (32 << 20, 8 << 20));
    (0..100_000).for_each(|number| tiny.insert_negative(key(number)).unwrap());
    let before = tiny.stats().entries;
    assert!(before > 90_000);
    // A smaller pool evicts, and another one gets its memory.
    let settle = || cache.maintain(Duration::from_secs(1));
    tiny.resize(ByteSize::mib(1), ByteSize::mib(1)).unwrap();
    settle();
    let stats = tiny.stats();
    assert_eq!((memory_bytes(&cache), stats.memory_limit_bytes), (32 << 20, 1 << 20));
    assert!(stats.entries < before && stats.entries > stats.capacity * 9 / 10);
    assert!(cache.pool("users").unwrap().stats().memory_limit_bytes > 13 << 20);
    let kept: Vec<u64> = (0..100_000).filter(|number| tiny.get(key(*number)) == Lookup::Negative).collect();
    assert_eq!(kept.len() as u64, stats.entries);
    tiny.release().unwrap();
    settle();
    assert_eq!((tiny.stats().memory_limit_bytes, tiny.stats().entries), (8 << 20, stats.entries));
    assert!(kept.iter().all(|number| tiny.get(key(*number)) == Lookup::Negative), "a larger pool keeps all entries");
    cache.resize(ByteSize::mib(12)).unwrap();
    settle();
    assert!(memory_bytes(&cache) <= 12 << 20 && tiny.stats().memory_limit_bytes >= 4 << 20);
    cache.verify();
}

#[test]
fn pools_are_added_and_removed_at_run_time() {
    let cache = build(32, &[]);
    (0..2000).for_each(|number| cache.insert(key(number), [7; 10_000]).unwrap());
    for round in 0..3 {
        cache.add_pool(&PoolOptions::named("tiny").compact(16, 0).max(ByteSize::mib(4))).unwrap();
        assert_eq!(cache.add_pool(&PoolOptions::named("tiny")), Err(Error::PoolExists { name: "tiny".into() }));
        cache.maintain(Duration::from_secs(round));
        let tiny = cache.compact_pool("tiny").unwrap();
        assert_eq!((tiny.stats().memory_limit_bytes, memory_bytes(&cache)), (4 << 20, 32 << 20));
        tiny.insert_negative(key(1)).unwrap();
        cache.remove_pool("tiny").unwrap();
        assert_eq!(tiny.get(key(1)), Lookup::Miss);
        let removed = Error::PoolRemoved { name: "tiny".into() };
        assert_eq!(tiny.insert_negative(key(1)), Err(removed.clone()));
        assert_eq!(tiny.resize(ByteSize::mib(1), ByteSize::mib(1)), Err(removed));
        drop(tiny);
        cache.maintain(Duration::from_secs(round));
        assert_eq!(cache.stats().memory_limit_bytes, 32 << 20, "the pool default has the memory again");
    }
    cache.verify();
}

#[test]
fn a_closed_cache_refuses_writes_of_compact_pools() {
    let cache = build(16, &[PoolOptions::named("tiny").compact(16, 0)]);
    let tiny = cache.compact_pool("tiny").unwrap();
    tiny.insert_negative(key(1)).unwrap();
    cache.close().unwrap();
    assert_eq!(tiny.insert_negative(key(2)), Err(Error::Closed));
    assert_eq!(tiny.get(key(1)), Lookup::Negative);
}

#[test]
fn loads_of_absent_objects_are_remembered() {
    let cache = build(16, &[PoolOptions::named("absent").compact(16, 0)]);
    let users = cache.with_negatives(cache.compact_pool("absent").unwrap());
    let loads = AtomicU64::new(0);
    let load = |user: Option<&'static str>| {
        users.get_or_load(key(1), || {
            loads.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(user)
        })
    };
    assert_eq!(load(None), Ok(Lookup::Negative));
    assert_eq!((load(Some("Ada")), loads.load(Ordering::Relaxed)), (Ok(Lookup::Negative), 1));
    users.insert(key(1), "Grace").unwrap();
    assert_eq!(users.get(key(1)).hit().as_deref(), Some(&b"Grace"[..]));
    assert!(users.remove(key(1)).unwrap());
    assert_eq!(load(Some("Ada")).unwrap().hit().as_deref(), Some(&b"Ada"[..]));
    assert_eq!(loads.load(Ordering::Relaxed), 2);
    let failed = users.get_or_load(key(2), || Err::<Option<&str>, _>("down"));
    assert_eq!(failed, Err(LoadError::Loader("down")));
    assert!(users.insert("short", "value").is_err() && cache.get("short").is_none(), "nothing is written");
}

#[test]
fn an_answer_that_cannot_be_kept_is_returned() {
    let end: [fn(&Cache); 2] = [|cache| cache.close().unwrap(), |cache| cache.remove_pool("absent").unwrap()];
    for end in end {
        let cache = build(16, &[PoolOptions::named("absent").compact(16, 0)]);
        let users = cache.with_negatives(cache.compact_pool("absent").unwrap());
        end(&cache);
        assert_eq!(users.get_or_load(key(1), || Ok::<_, Infallible>(None::<&str>)), Ok(Lookup::Negative));
        let found = users.get_or_load(key(2), || Ok::<_, Infallible>(Some("Ada"))).unwrap();
        assert_eq!(found.hit().as_deref(), Some(&b"Ada"[..]));
        let of_task = users.get_or_load_async(key(3), async { Ok::<_, Infallible>(None::<&str>) });
        assert_eq!(smol::block_on(of_task), Ok(Lookup::Negative));
    }
}

/// A pool of objects may remember negative results itself: all calls tell the same of them.
#[test]
fn negative_results_in_the_object_pool_count() {
    let cache = build(16, &[PoolOptions::named("absent").compact(16, 0)]);
    let users = cache.with_negatives(cache.compact_pool("absent").unwrap());
    let options = LoadOptions::new().negative_ttl(Duration::from_secs(5));
    let loaded = users.objects().get_or_load(key(1), options, || Ok::<Option<&str>, Infallible>(None));
    assert_eq!(loaded, Ok(None));
    assert_eq!(users.get_or_load(key(1), || Ok::<_, Infallible>(Some("Ada"))), Ok(Lookup::Negative));
    assert_eq!(users.get(key(1)), Lookup::Negative);
    assert_eq!(smol::block_on(users.get_async(key(1))), Lookup::Negative);
    let stats = users.objects().stats();
    assert_eq!((stats.hits, stats.misses), (3, 1), "every call but the first found what is known");
    cache.maintain(Duration::from_secs(6));
    assert_eq!(users.get(key(1)), Lookup::Miss);
    // A failure tells nothing of the object.
    let failed = users.objects().get_or_load(key(2), options, || Err::<Option<&str>, _>("down"));
    assert_eq!(failed, Err(LoadError::Loader("down")));
    assert_eq!(users.get(key(2)), Lookup::Miss);
    users.insert(key(2), "Grace").unwrap();
    assert_eq!(users.get(key(2)).hit().as_deref(), Some(&b"Grace"[..]));
    cache.verify();
}

fn wait_until(what: &str, is_done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_thousand_callers_load_an_absence_once() {
    const CALLERS: u64 = 1000;
    let cache = build(16, &[PoolOptions::named("absent").compact(16, 0)]);
    let users = cache.with_negatives(cache.compact_pool("absent").unwrap());
    let (called, loads) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                called.fetch_add(1, Ordering::SeqCst);
                let user = users.get_or_load(key(1), || {
                    loads.fetch_add(1, Ordering::SeqCst);
                    wait_until("all call", || called.load(Ordering::SeqCst) == CALLERS);
                    Ok::<_, Infallible>(None::<&str>)
                });
                assert_eq!(user, Ok(Lookup::Negative));
                assert_eq!(users.negatives().get(key(1)), Lookup::Negative, "it is remembered before a caller returns");
            });
        }
    });
    assert_eq!(loads.load(Ordering::SeqCst), 1);
    let stats = users.objects().stats();
    assert_eq!((stats.loads, stats.failed_loads), (1, 0));
    assert_eq!(stats.hits + stats.misses, CALLERS, "one lookup a call");
}

/// Callers look, and then one of them loads: the others may join after that load has ended.
#[test]
fn callers_that_join_late_do_not_reload() {
    const THREADS: usize = 4;
    const KEYS: u64 = 20_000;
    let cache = build(16, &[PoolOptions::named("absent").compact(16, 0)]);
    let users = cache.with_negatives(cache.compact_pool("absent").unwrap());
    let (loads, at) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for number in 0..KEYS {
                    // All ask for one key at about the same time.
                    at.fetch_add(1, Ordering::SeqCst);
                    wait_until("all ask", || at.load(Ordering::SeqCst) >= (number + 1) * THREADS as u64);
                    let load = || {
                        loads.fetch_add(1, Ordering::SeqCst);
                        Ok::<_, Infallible>(None::<&str>)
                    };
                    assert_eq!(users.get_or_load(key(number), load), Ok(Lookup::Negative));
                }
            });
        }
    });
    assert_eq!((loads.load(Ordering::SeqCst), users.objects().stats().loads), (KEYS, KEYS));
}

/// A change of the key while its loader runs, by the loader itself.
#[test]
fn an_absent_answer_is_void_after_a_change() {
    type Change = dyn Fn(&NegativeCache);
    let changes: [(&Change, Lookup<Vec<u8>>); 6] = [
        (&|_| (), Lookup::Negative),
        (&|users| users.insert(key(1), "Ada").unwrap(), Lookup::Hit(b"Ada".to_vec())),
        (&|users| _ = users.remove(key(1)).unwrap(), Lookup::Miss),
        (&|users| _ = users.negatives().remove_negative(key(1)).unwrap(), Lookup::Miss),
        (&|users| (users.insert(key(1), "Ada").unwrap(), users.objects().invalidate_all()).1, Lookup::Miss),
        (&|users| users.negatives().invalidate_all(), Lookup::Miss),
    ];
    for (number, (change, expected)) in changes.into_iter().enumerate() {
        let cache = build(16, &[PoolOptions::named("absent").compact(16, 0)]);
        let users = cache.with_negatives(cache.compact_pool("absent").unwrap());
        let loaded = users.get_or_load(key(1), || {
            change(&users);
            Ok::<_, Infallible>(None::<&str>)
        });
        assert_eq!(loaded, Ok(Lookup::Negative), "change {number}: the answer of its own loader");
        let found = match users.get(key(1)) {
            Lookup::Hit(value) => Lookup::Hit(value.to_vec()),
            Lookup::Negative => Lookup::Negative,
            Lookup::Miss => Lookup::Miss,
        };
        assert_eq!(found, expected, "change {number}");
        cache.verify();
    }
}

/// Objects appear in a database and are then told to the cache, while others ask for them.
#[test]
fn an_inserted_key_is_never_absent() {
    const KEYS: u64 = 64;
    const ROUNDS: u64 = 60;
    // One set for all keys: neighbours change it all the time.
    let cache = build(16, &[PoolOptions::named("absent").compact(16, 0)]);
    let users = cache.with_negatives(cache.compact_pool("absent").unwrap());
    for round in 0..ROUNDS {
        let key = |number: u64| key(round * KEYS + number);
        let database: Vec<Mutex<Option<u64>>> = (0..KEYS).map(|_| Mutex::new(None)).collect();
        let read = |number: u64| *database[number as usize].lock().unwrap();
        std::thread::scope(|scope| {
            for reader in 0..3 {
                let users = users.clone();
                scope.spawn(move || {
                    for step in 0..KEYS * 2 {
                        let number = (step * 7 + reader) % KEYS;
                        let load = || Ok::<_, Infallible>(read(number).map(|value| value.to_le_bytes().to_vec()));
                        users.get_or_load(key(number), load).unwrap();
                    }
                });
            }
            for number in 0..KEYS {
                *database[number as usize].lock().unwrap() = Some(number);
                users.insert(key(number), number.to_le_bytes()).unwrap();
                assert!(matches!(users.get(key(number)), Lookup::Hit(_)), "key {number} of round {round} is absent");
            }
        });
        for number in 0..KEYS {
            let value = users.get(key(number)).hit();
            assert_eq!(value.as_deref(), Some(&number.to_le_bytes()[..]), "key {number} of round {round}");
            assert!(!users.negatives().contains_key(key(number)), "a negative result of key {number} is left");
        }
    }
    let objects: &Pool = users.objects();
    assert!(objects.stats().inserts >= KEYS * ROUNDS);
    cache.verify();
}

#[test]
fn lookups_of_compact_pools_count_for_the_cache() {
    let cache = build(16, &[PoolOptions::named("tiny").compact(4, 4), PoolOptions::named("users")]);
    let (tiny, users) = (cache.compact_pool("tiny").unwrap(), cache.pool("users").unwrap());
    tiny.insert("key1", "ones").unwrap();
    tiny.insert_negative("key2").unwrap();
    users.insert("key1", "one").unwrap();
    for key in ["key1", "key2", "key3"] {
        (0..2).for_each(|_| _ = tiny.get(key));
        _ = users.get(key);
    }
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.negative_hits, stats.misses), (3, 2, 4));
    assert!((stats.hit_ratio() - 5.0 / 9.0).abs() < 1e-9);
    assert!(
        stats.to_string().starts_with("hit ratio 55.56 % (3 hits, 2 negative hits, 4 misses), 3 entries, "),
        "{stats}"
    );
    cache.remove_pool("tiny").unwrap();
    assert_eq!(cache.stats().negative_hits, 0);
}

/// A cache over a memory file, with pools that may be compact.
fn build_over(path: &Path, mib: u64, pools: &[PoolOptions]) -> Cache {
    let builder = Cache::builder().memory(ByteSize::mib(mib)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
    let builder = builder.memory_file(path);
    pools.iter().cloned().fold(builder, |builder, pool| builder.pool(pool)).build().unwrap()
}

fn start(cache: &Cache) -> String {
    cache.memcached().memory_start().expect("there is a file").to_string()
}

#[test]
fn a_compact_pool_is_warm_after_a_stop() {
    for folder in folders() {
        let path = folder.path().join("memory");
        let tiny = |mib| PoolOptions::named("tiny").compact_with_ttl(16, 4).max(ByteSize::mib(mib));
        let named = |name: &str| PoolOptions::named(name).compact(8, 0).max(ByteSize::mib(2));
        let cache = build_over(&path, 32, &[tiny(8), named("dropped"), named("longer"), PoolOptions::named("users")]);
        cache.maintain(Duration::from_secs(1));
        let pool = cache.compact_pool("tiny").unwrap();
        assert_eq!((pool.stats().entries, pool.stats().memory_limit_bytes), (0, 8 << 20), "{}", start(&cache));
        let ttl = InsertOptions::new().ttl(Duration::from_secs(20));
        for number in 0..200_000 {
            match number % 4 {
                0 => pool.insert_negative(key(number)).unwrap(),
                1 => pool.insert_with(key(number), &number.to_le_bytes()[..4], ttl).unwrap(),
                _ => pool.insert(key(number), &number.to_le_bytes()[..4]).unwrap(),
            }
        }
        // Frames move: the pool has not those that it began with.
        for mib in [2, 7] {
            pool.resize(ByteSize::mib(mib), ByteSize::mib(mib)).unwrap();
            cache.maintain(Duration::from_secs(1));
        }
        (200_000..300_000).for_each(|number| pool.insert(key(number), &number.to_le_bytes()[..4]).unwrap());
        cache.compact_pool("dropped").unwrap().insert_negative(1_u64.to_le_bytes()).unwrap();
        cache.compact_pool("longer").unwrap().insert_negative(1_u64.to_le_bytes()).unwrap();
        cache.insert("kept", "value").unwrap();
        cache.verify();
        cache.close().unwrap();
        // Hits after the stop move no entry.
        let before: Vec<_> = (0..300_000).map(|number| pool.get(key(number))).collect();
        let entries = pool.stats().entries;
        assert!(entries > 120_000 && before.contains(&Lookup::Negative), "{entries}");
        assert_eq!(pool.insert_negative(key(1)), Err(Error::Closed));
        drop((cache, pool));

        // The memory shrinks and grows again: entries leave, and none reappears as another one.
        let longer = PoolOptions::named("longer").compact(9, 0).max(ByteSize::mib(2));
        for (round, mib) in [7, 2, 8].into_iter().enumerate() {
            let cache = build_over(&path, 32, &[tiny(mib), longer.clone(), PoolOptions::named("users")]);
            let told = start(&cache);
            assert!(told.contains("memory is warm"), "{told}");
            assert_eq!(
                told.ends_with("no pool of this name and these lengths is configured: dropped, longer"),
                round == 0,
                "{told}"
            );
            assert_eq!(cache.compact_pool("longer").unwrap().stats().entries, 0);
            assert_eq!(&cache.get("kept").unwrap()[..], b"value");
            cache.maintain(Duration::from_secs(1));
            cache.verify();
            let pool = cache.compact_pool("tiny").unwrap();
            let stats = pool.stats();
            assert_eq!(stats.memory_limit_bytes, mib << 20);
            assert!(if round == 0 { stats.entries == entries } else { stats.entries > 20_000 }, "{stats:?}");
            let kept = (0..).zip(&before).filter(|(number, known)| {
                let found = pool.get(key(*number));
                assert!(found == **known || round > 0 && found == Lookup::Miss, "{number}: {found:?}");
                found != Lookup::Miss
            });
            assert_eq!(kept.count() as u64, stats.entries);
            cache.maintain(Duration::from_secs(22));
            assert_eq!(pool.get(key(199_997)), Lookup::Miss, "it has expired");
            cache.close().unwrap();
        }
    }
}

#[test]
fn damaged_memory_files_yield_no_wrong_entry() {
    let setting = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (rounds, seed) = (setting("EBBTIDE_FILE_CHANGES", 40), setting("EBBTIDE_FILE_CHANGES_SEED", 1));
    println!("seed {seed}");
    for folder in folders() {
        let path = folder.path().join("memory");
        let open = || build_over(&path, 6, &[PoolOptions::named("tiny").compact(16, 4).max(ByteSize::mib(1))]);
        let cache = open();
        cache.maintain(Duration::from_secs(1));
        let tiny = cache.compact_pool("tiny").unwrap();
        for number in 0..30_000 {
            match number % 3 {
                0 => tiny.insert_negative(key(number)).unwrap(),
                _ => tiny.insert(key(number), &number.to_le_bytes()[..4]).unwrap(),
            }
        }
        cache.close().unwrap();
        drop((cache, tiny));
        let whole = std::fs::read(&path).unwrap();
        let frames = u32::from_le_bytes(whole[12..16].try_into().unwrap()) as usize;
        let image = (2 << 20) + (2080 << 10) * frames;
        let (mut random, mut cold) = (Random::new(seed), 0);
        let used: Vec<usize> = (2 << 20..image).filter(|at| whole[*at] != 0).collect();
        for number in 0..rounds {
            std::fs::write(&path, &whole).unwrap();
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            let mut below = |bound: usize| random.uniform(bound as u64) as usize;
            match number % 3 {
                0 => file.set_len(below(whole.len()) as u64).unwrap(),
                1 => {
                    let at = image + below(whole.len() - image);
                    file.write_all_at(&[whole[at] ^ 1 << below(8)], at as u64).unwrap();
                }
                _ => {
                    let at = used[below(used.len())];
                    file.write_all_at(&[whole[at] ^ 1 << below(8)], at as u64).unwrap();
                }
            }
            drop(file);
            let Ok(cache) = Cache::builder()
                .memory(ByteSize::mib(6))
                .max_value(ByteSize::kib(64))
                .clock(Clock::Manual)
                .memory_file(&path)
                .pool(PoolOptions::named("tiny").compact(16, 4).max(ByteSize::mib(1)))
                .build()
            else {
                continue;
            };
            cache.verify();
            let tiny = cache.compact_pool("tiny").unwrap();
            let found = (0..30_000).filter(|number| match tiny.get(key(*number)) {
                Lookup::Hit(value) => {
                    assert!(number % 3 != 0 && value == number.to_le_bytes()[..4], "a wrong value of {number}");
                    true
                }
                Lookup::Negative => {
                    assert_eq!(number % 3, 0, "a wrong negative result of {number}");
                    true
                }
                Lookup::Miss => false,
            });
            let found = found.count() as u64;
            let is_cold = start(&cache).contains("starts empty");
            cold += u64::from(is_cold);
            assert_eq!(found, if is_cold { 0 } else { tiny.stats().entries }, "change {number}");
        }
        assert!(cold > rounds * 3 / 4, "{cold} of {rounds}");
    }
}
