//! Typed caches and ranges of values.

use ebbtide::loading::LoadOptions;
use ebbtide::{ByteSize, Cache, Clock, Error, InsertOptions, LoadError, PlainBytes, Ttl, TypedCache};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Order {
    lines: BTreeMap<String, u32>,
    paid: Option<f64>,
}

fn cache() -> Cache {
    Cache::builder().memory(ByteSize::mib(16)).clock(Clock::Manual).build().unwrap()
}

fn order(n: u32) -> Order {
    Order { lines: [("apples".to_owned(), n)].into(), paid: (n > 5).then_some(1.5) }
}

#[test]
fn typed_values_return_as_they_were_written() {
    let cache = cache();
    let orders: TypedCache<(u32, String), Order, _> = cache.typed();
    let key = |n: u32| (n, "eu".to_owned());
    for n in 0..100 {
        orders.insert(&key(n), &order(n)).unwrap();
    }
    assert!((0..100).all(|n| orders.get(&key(n)).unwrap() == Some(order(n))));
    assert_eq!(orders.get_or_insert_with(&key(200), || order(200)), Ok(order(200)));
    assert_eq!(orders.get_or_insert_with(&key(200), || unreachable!("it is present")), Ok(order(200)));
    assert_eq!((orders.remove(&key(3)), orders.remove(&key(3)), orders.get(&key(3))), (Ok(true), Ok(false), Ok(None)));
    let options = InsertOptions::new().ttl(Duration::from_secs(5));
    let loaded = orders.try_get_or_insert_with(&key(3), || Ok::<_, ()>((order(3), options)));
    assert_eq!(loaded, Ok(order(3)));
    cache.maintain(Duration::from_secs(5));
    assert_eq!(orders.get(&key(3)), Ok(None), "the loader's TTL");
    let failed = orders.clone().try_get_or_insert_with(&key(3), || Err::<Order, _>("no database"));
    assert_eq!(failed, Err(LoadError::Loader("no database")));
}

#[test]
fn tasks_load_typed_values() {
    let cache = cache();
    let orders: TypedCache<u32, Order> = cache.typed();
    smol::block_on(async {
        assert_eq!(orders.get_async(&1).await, Ok(None));
        let failed = orders.try_get_or_insert_with_async(&1, async { Err::<Order, _>("no database") }).await;
        assert_eq!(failed, Err(LoadError::Loader("no database")));
        let options = InsertOptions::new().ttl(Duration::from_secs(5));
        let loaded = orders.try_get_or_insert_with_async(&1, async { Ok::<_, ()>((order(1), options)) }).await;
        assert_eq!((loaded, orders.get_async(&1).await), (Ok(order(1)), Ok(Some(order(1)))));
        cache.maintain(Duration::from_secs(5));
        assert_eq!(orders.get_async(&1).await, Ok(None), "the loader's TTL");
    });
}

#[test]
fn tasks_change_typed_values() {
    let cache = cache();
    let orders: TypedCache<u32, Order> = cache.typed();
    smol::block_on(async {
        let options = InsertOptions::new();
        assert_eq!(orders.contains_key_async(&1).await, Ok(false));
        assert_eq!(orders.insert_if_absent_async(&1, &order(1), options).await, Ok(true));
        assert_eq!(orders.insert_if_absent_async(&1, &order(2), options).await, Ok(false));
        assert_eq!((orders.contains_key_async(&1).await, orders.get_async(&1).await), (Ok(true), Ok(Some(order(1)))));
        assert_eq!(orders.touch_async(&1, Duration::from_secs(5)).await, Ok(true));
        cache.maintain(Duration::from_secs(5));
        assert_eq!((orders.get_async(&1).await, orders.touch_async(&1, Ttl::Never).await), (Ok(None), Ok(false)));
    });
}

#[test]
fn typed_views_have_the_calls_of_a_pool() {
    let cache = cache();
    let orders: TypedCache<u32, Order> = cache.typed();
    let options = InsertOptions::new();
    assert_eq!(orders.insert_if_absent(&1, &order(1), options), Ok(true));
    assert_eq!(orders.insert_if_absent(&1, &order(7), options), Ok(false));
    orders.insert(&2, &order(2)).unwrap();
    assert_eq!((orders.contains_key(&1), orders.contains_key(&3)), (Ok(true), Ok(false)));
    assert_eq!(orders.get_many(&[2, 3, 1]), Ok(vec![Some(order(2)), None, Some(order(1))]));
    let mut all = orders.iter().unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    all.sort_by_key(|(key, _)| *key);
    assert_eq!(all, [(1, order(1)), (2, order(2))]);
    assert_eq!(
        (orders.touch(&1, Duration::from_secs(5)), orders.touch(&3, Duration::from_secs(5))),
        (Ok(true), Ok(false))
    );
    cache.maintain(Duration::from_secs(5));
    assert_eq!((orders.get(&1), orders.get(&2)), (Ok(None), Ok(Some(order(2)))));
    smol::block_on(async {
        orders.insert_async(&4, &order(4)).await.unwrap();
        orders.insert_with_async(&5, &order(5), options.ttl(Duration::from_secs(5))).await.unwrap();
        assert_eq!(orders.get_many_async(&[5, 6, 4]).await, Ok(vec![Some(order(5)), None, Some(order(4))]));
        assert_eq!((orders.remove_async(&4).await, orders.remove_async(&4).await), (Ok(true), Ok(false)));
        assert_eq!(orders.get_or_insert_with_async(&4, async { order(8) }).await, Ok(order(8)));
        assert_eq!(orders.get_or_insert_with_async(&4, async { unreachable!() }).await, Ok(order(8)));
        cache.maintain(Duration::from_secs(10));
        assert_eq!((orders.get(&5), orders.get(&4)), (Ok(None), Ok(Some(order(8)))));
    });
}

/// Entries of other types are errors, and do not end an iteration.
#[test]
fn iteration_continues_after_an_undecodable_entry() {
    let cache = cache();
    let orders: TypedCache<u32, Order> = cache.typed();
    (0..10).for_each(|number| orders.insert(&number, &order(number)).unwrap());
    cache.insert([3], [0xff]).unwrap();
    let (entries, errors): (Vec<_>, Vec<_>) = orders.iter().unwrap().partition(Result::is_ok);
    assert_eq!((entries.len(), errors.len()), (9, 1));
    assert!(matches!(errors[0], Err(Error::Codec { part: "value", .. })), "{errors:?}");
    assert!(matches!(orders.get_many(&[1, 3]), Err(Error::Codec { part: "value", .. })));
}

#[test]
fn typed_loads_remember_what_pools_remember() {
    let cache = cache();
    let orders: TypedCache<u32, Order, _> = cache.typed();
    let seconds = Duration::from_secs;
    let options = LoadOptions::new().ttl(seconds(5)).stale_while_revalidate(seconds(10)).negative_ttl(seconds(3));
    let none = || Ok::<Option<(Order, InsertOptions)>, &str>(None);
    let some = |n| move || Ok::<_, &str>(Some((order(n), InsertOptions::new())));
    assert_eq!(orders.get_or_load(&1, options, none), Ok(None));
    assert_eq!(orders.get_or_load(&1, options, some(1)), Ok(None), "it is remembered");
    assert_eq!(orders.get(&1), Ok(None), "no value");
    assert_eq!(
        orders.get_or_load(&2, options, || Err::<Option<Order>, _>("no database")),
        Err(LoadError::Loader("no database"))
    );
    let known = orders.get_or_load(&2, options, some(2));
    assert!(matches!(known, Err(LoadError::Cache(Error::KnownFailure { .. }))), "{known:?}");
    cache.maintain(seconds(4));
    assert_eq!(orders.get_or_load(&1, options, some(1)), Ok(Some(order(1))));
    cache.maintain(seconds(10));
    // Its TTL is over, its window is not.
    let failed = orders.get_or_load(&1, options, || Err::<Option<Order>, _>("no database"));
    assert_eq!(failed, Err(LoadError::Loader("no database")));
    smol::block_on(async {
        let loaded = orders.get_or_load_async(&1, options, async { some(7)() }).await;
        assert_eq!((loaded, orders.get(&1)), (Ok(Some(order(7))), Ok(Some(order(7)))));
        assert_eq!(orders.get_or_load_async(&3, options, async { none() }).await, Ok(None));
        assert_eq!(orders.get_or_load_async(&3, options, async { some(3)() }).await, Ok(None));
    });
}

#[test]
fn a_codec_that_fails_is_an_error() {
    let cache = cache();
    let texts: TypedCache<String, String, _> = cache.typed_with(PlainBytes);
    texts.insert(&"k".to_owned(), &"text".to_owned()).unwrap();
    assert_eq!(texts.get(&"k".to_owned()), Ok(Some("text".to_owned())));
    cache.insert("k", [0xff]).unwrap();
    let error = texts.get(&"k".to_owned()).unwrap_err();
    assert!(matches!(error, Error::Codec { part: "value", .. }), "{error}");
    assert!(error.to_string().starts_with("the codec refuses the value: invalid utf-8"), "{error}");
    let numbers: TypedCache<u32, Order, _> = cache.typed();
    texts.pool().insert([7], [1]).unwrap();
    assert!(matches!(numbers.get(&7), Err(Error::Codec { part: "value", .. })));
    let long: TypedCache<String, u8, _> = cache.typed();
    assert_eq!(long.insert(&"k".repeat(300), &1), Err(Error::KeyLength { length: 302, limit: 255 }));
}

/// Values in one piece and in many.
#[test]
fn ranges_are_the_bytes_of_the_value() {
    let cache = cache();
    for bytes in [0, 10, 5000, 300_000] {
        let value: Vec<u8> = (0..bytes).map(|i| (i / 3) as u8).collect();
        cache.insert("key", &value).unwrap();
        for offset in [0, 1, 9, 10, 4096, 65_535, 65_536, 299_999, 300_000, usize::MAX] {
            for length in [0, 1, 100, 70_000, usize::MAX] {
                let start = offset.min(value.len());
                let end = offset.saturating_add(length).min(value.len());
                let range = cache.get_range("key", offset, length);
                assert!(range.as_deref() == Some(&value[start..end]), "{length} bytes from {offset} of {bytes}");
            }
        }
    }
    assert_eq!(cache.get_range("absent", 0, 1), None);
}

/// A cache over 64 MiB of flash.
fn with_flash(folder: &tempfile::TempDir) -> Cache {
    let builder = Cache::builder().memory(ByteSize::mib(8)).clock(Clock::Manual);
    builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap()
}

/// A value of which each word says its place and a version.
fn words(version: u32, bytes: usize) -> Vec<u8> {
    (0..bytes as u64 / 8).flat_map(|place| (u64::from(version) << 32 | place).to_le_bytes()).collect()
}

/// A value on flash that ranges alone read is promoted when they have read as many bytes as it has.
#[test]
fn ranges_promote_after_a_whole_value() {
    const BYTES: usize = 300_000;
    for is_async in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let cache = with_flash(&folder);
        ["a", "b"].into_iter().for_each(|key| cache.insert(key, words(1, BYTES)).unwrap());
        // A stop demotes entries in memory.
        cache.close().unwrap();
        drop(cache);
        let cache = with_flash(&folder);
        let read = |key: &str, offset: usize, length: usize| {
            let range = match is_async {
                true => smol::block_on(cache.get_range_async(key, offset, length)),
                false => cache.get_range(key, offset, length),
            };
            assert!(range.unwrap() == words(1, BYTES)[offset..(offset + length).min(BYTES)]);
            let stats = cache.memcached().flash_stats().unwrap();
            (stats.promoted, stats.served)
        };
        for part in 0..BYTES / 4096 {
            assert_eq!(read("a", part * 4096, 4096), (0, part as u64 + 1));
        }
        let served = BYTES as u64 / 4096 + 1;
        assert_eq!(read("a", 0, 4096), (0, served), "with this one, ranges have read all of it");
        assert_eq!(read("a", 0, 4096), (1, served), "so this one reads the value");
        assert_eq!(read("a", 8192, 10), (1, served), "memory has it");
        assert_eq!(read("b", 0, 10), (1, served + 1), "each value has a count of its own");
        cache.verify();
    }
}

/// Threads and tasks read ranges while their values are overwritten, removed, demoted, promoted, and reclaimed with
/// their region.
#[test]
fn a_range_has_one_version_only() {
    const KEYS: usize = 120;
    const WRITES: u32 = 700;
    let folder = tempfile::tempdir().unwrap();
    let cache = with_flash(&folder);
    // Small objects, objects with one checksum, objects with one for each block, and some in many segments.
    let bytes_of = |key: usize| [800, 12_000, 20_000, 130_000, 500_000][key % 5];
    // The oldest version that a lookup may find, by key.
    let floors: Vec<AtomicU32> = (0..KEYS).map(|_| AtomicU32::new(0)).collect();
    let is_over = AtomicBool::new(false);
    let check = |key: usize, floor: u32, (offset, length): (usize, usize), range: &[u8]| {
        let end = (offset + length).min(bytes_of(key)).max(offset.min(bytes_of(key)));
        assert_eq!(range.len(), end - offset.min(end), "{length} bytes from {offset} of {}", bytes_of(key));
        let Some(version) = range.get(4..8).map(|word| u32::from_le_bytes(word.try_into().unwrap())) else { return };
        assert!(version >= floor, "version {version} of key {key} after {floor}");
        let is_word = |(place, word): (usize, &[u8])| {
            word == (u64::from(version) << 32 | (offset / 8 + place) as u64).to_le_bytes()
        };
        assert!(range.chunks(8).enumerate().all(is_word), "{length} bytes from {offset} of key {key}");
    };
    let read = |seed: u64, is_async: bool| {
        let (mut random, mut found) = (seed, 0);
        let mut next = |end: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % end
        };
        // A thread that begins late reads on until it finds something.
        while !is_over.load(Ordering::Acquire) || found == 0 {
            let key = next(KEYS);
            let borders = [0, 4096, 8192, 16_384, 65_536, bytes_of(key)];
            let offset = match next(3) {
                0 => borders[next(borders.len())].saturating_sub(8 * next(3)),
                1 => bytes_of(key) + 8 * next(3),
                _ => 8 * next(bytes_of(key) / 8),
            };
            let length = 8 * [0, 1, 3, 512, 513, 9000, 70_000][next(7)];
            let floor = floors[key].load(Ordering::Acquire);
            let name = format!("key {key}");
            let range = match is_async {
                true => smol::block_on(cache.get_range_async(&name, offset, length)),
                false => cache.get_range(&name, offset, length),
            };
            found += usize::from(range.is_some());
            range.into_iter().for_each(|range| check(key, floor, (offset, length), &range));
        }
        found
    };
    let read = &read;
    std::thread::scope(|scope| {
        let readers = [1, 2, 3].map(|seed| scope.spawn(move || read(seed, seed == 3)));
        for version in 1..=WRITES {
            let key = version as usize * 7 % KEYS;
            let name = format!("key {key}");
            match version % 9 {
                0 => _ = cache.remove(&name),
                // Refused while flash is full: then the old value is gone, too.
                _ => _ = cache.insert(&name, words(version, bytes_of(key))),
            }
            floors[key].store(version, Ordering::Release);
            if version % 16 == 0 {
                cache.maintain(Duration::from_millis(u64::from(version)));
            }
        }
        is_over.store(true, Ordering::Release);
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
    });
    (0..KEYS).for_each(|key| _ = cache.get_range(format!("key {key}"), 0, 8));
    let tier = cache.memcached().flash_stats().unwrap().tier;
    assert!(tier.hits_large > 0, "{tier:?}");
    cache.verify();
}

/// A memory file may have values of a former type.
#[test]
fn a_load_replaces_an_undecodable_value() {
    let cache = cache();
    let (former, orders) = (cache.typed::<u32, bool>(), cache.typed::<u32, Order>());
    for key in 0..6 {
        former.insert(&key, &true).unwrap();
    }
    assert!(matches!(orders.get(&0), Err(Error::Codec { part: "value", .. })), "a get loads nothing");
    let before = cache.stats();
    assert_eq!(orders.get_or_insert_with(&0, || order(0)), Ok(order(0)));
    assert_eq!(orders.get_or_insert_with(&0, || unreachable!("it was replaced")), Ok(order(0)));
    assert_eq!(orders.try_get_or_insert_with(&1, || Ok::<_, ()>(order(1))), Ok(order(1)));
    let nothing = || Ok::<Option<Order>, ()>(None);
    assert_eq!(orders.get_or_load(&2, LoadOptions::new(), nothing), Ok(None));
    assert_eq!(former.contains_key(&2), Ok(false), "the loader has found that there is no value");
    let failed = orders.try_get_or_insert_with(&3, || Err::<Order, _>("no database"));
    assert_eq!(failed, Err(LoadError::Loader("no database")));
    assert_eq!(former.get(&3), Ok(Some(true)), "a loader that fails changes nothing");
    let options = LoadOptions::new().negative_ttl(Duration::from_secs(5));
    assert!(orders.get_or_load(&4, options, || Err::<Option<Order>, _>("no database")).is_err());
    let remembered = orders.get_or_load(&4, options, || Ok::<_, &str>(Some(order(4))));
    assert!(matches!(remembered, Err(LoadError::Cache(Error::KnownFailure { .. }))), "{remembered:?}");
    smol::block_on(async {
        assert_eq!(orders.get_or_insert_with_async(&5, async { order(5) }).await, Ok(order(5)));
        assert_eq!(orders.get_async(&5).await, Ok(Some(order(5))));
    });
    let stats = cache.stats();
    assert_eq!((before.undecodable, stats.undecodable, stats.misses - before.misses), (0, 6, 6));
    cache.verify();
}

#[test]
fn an_undecodable_stale_value_is_not_served() {
    let cache = cache();
    let (former, orders) = (cache.typed::<u32, bool>(), cache.typed::<u32, Order>());
    let options = InsertOptions::new().ttl(Duration::from_secs(5)).stale_while_revalidate(Duration::from_secs(60));
    former.insert_with(&1, &true, options).unwrap();
    cache.maintain(Duration::from_secs(6));
    assert_eq!(former.get(&1), Ok(Some(true)), "in the window");
    assert_eq!(orders.get_or_insert_with(&1, || order(1)), Ok(order(1)));
    assert_eq!(cache.stats().undecodable, 1);
}

/// When several threads find a value of a former type, one loads.
#[test]
fn threads_replace_an_undecodable_value_once() {
    let cache = Cache::builder().memory(ByteSize::mib(16)).build().unwrap();
    let (former, orders) = (cache.typed::<u32, bool>(), cache.typed::<u32, Order>());
    for key in 0..100 {
        former.insert(&key, &true).unwrap();
    }
    let loads = AtomicU32::new(0);
    let load = || {
        loads.fetch_add(1, Ordering::Relaxed);
        order(1)
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!((0..100).all(|key| orders.get_or_insert_with(&key, load) == Ok(order(1)))));
        }
    });
    assert_eq!(loads.into_inner(), 100);
}

/// A key may be given in its borrowed form, as to a map of the standard library.
#[test]
fn keys_are_found_by_their_borrowed_form() {
    let cache = cache();
    let users: TypedCache<String, u32> = cache.typed();
    users.insert(&"ada".to_owned(), &1).unwrap();
    assert_eq!((users.get("ada"), users.get(&"ada".to_owned())), (Ok(Some(1)), Ok(Some(1))));
    assert_eq!((users.contains_key("ada"), users.touch("ada", Ttl::Never)), (Ok(true), Ok(true)));
    assert_eq!(users.get_or_insert_with("grace", || 2), Ok(2));
    assert_eq!(users.try_get_or_insert_with("alan", || Ok::<_, ()>(3)), Ok(3), "a value without options");
    assert_eq!(users.get_or_load("alan", LoadOptions::new(), || Ok::<Option<u32>, ()>(None)), Ok(Some(3)));
    assert_eq!((users.remove("ada"), users.get("ada")), (Ok(true), Ok(None)));
    smol::block_on(async {
        assert_eq!(users.get_async("alan").await, Ok(Some(3)));
        assert_eq!(users.try_get_or_insert_with_async("tony", async { Ok::<_, ()>(4) }).await, Ok(4));
    });
    let lists: TypedCache<Vec<u16>, u32> = cache.typed();
    lists.insert(&vec![1, 300], &5).unwrap();
    assert_eq!(lists.get(&[1, 300][..]), Ok(Some(5)));
    let plain = cache.typed_with::<String, Vec<u8>, _>(PlainBytes);
    plain.insert(&"k".to_owned(), &vec![7]).unwrap();
    assert_eq!((plain.get("k"), cache.get("k").map(|value| value.to_vec())), (Ok(Some(vec![7])), Some(vec![7])));
    let bytes = cache.typed_with::<Vec<u8>, Vec<u8>, _>(PlainBytes);
    assert_eq!(bytes.get(&b"k"[..]), Ok(Some(vec![7])));
}
