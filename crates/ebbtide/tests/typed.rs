//! Typed caches and ranges of values.

use ebbtide::loading::LoadOptions;
use ebbtide::{ByteSize, Cache, Clock, Error, InsertOptions, LoadError, PlainBytes, TypedCache};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
    let failed = orders.clone().try_get_or_insert_with(&key(3), || Err("no database"));
    assert_eq!(failed, Err(LoadError::Loader("no database")));
}

#[test]
fn tasks_load_typed_values() {
    let cache = cache();
    let orders: TypedCache<u32, Order, _> = cache.typed();
    smol::block_on(async {
        assert_eq!(orders.get_async(&1).await, Ok(None));
        let failed = orders.try_get_or_insert_with_async(&1, async { Err("no database") }).await;
        assert_eq!(failed, Err(LoadError::Loader("no database")));
        let options = InsertOptions::new().ttl(Duration::from_secs(5));
        let loaded = orders.try_get_or_insert_with_async(&1, async { Ok::<_, ()>((order(1), options)) }).await;
        assert_eq!((loaded, orders.get_async(&1).await), (Ok(order(1)), Ok(Some(order(1)))));
        cache.maintain(Duration::from_secs(5));
        assert_eq!(orders.get_async(&1).await, Ok(None), "the loader's TTL");
    });
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
    assert_eq!(orders.get_or_load(&2, options, || Err("no database")), Err(LoadError::Loader("no database")));
    let known = orders.get_or_load(&2, options, some(2));
    assert!(matches!(known, Err(LoadError::Cache(Error::KnownFailure { .. }))), "{known:?}");
    cache.maintain(seconds(4));
    assert_eq!(orders.get_or_load(&1, options, some(1)), Ok(Some(order(1))));
    cache.maintain(seconds(10));
    // Its TTL is over, its window is not.
    let failed = orders.get_or_load(&1, options, || Err("no database"));
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

/// Of values in one piece and in many.
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
