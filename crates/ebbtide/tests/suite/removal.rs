//! Listeners of removals.

use ebbtide::memcached::{ByteSize, Cache, Cause, Clock, Error, Policy, Ttl};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Told {
    key: Vec<u8>,
    value: Vec<u8>,
    cause: Cause,
    ttl: Option<Duration>,
    was_used: bool,
}

/// A cache with a manual clock, and the calls of its listener.
fn listened(mib: u64) -> (Cache, Arc<Mutex<Vec<Told>>>) {
    let cache = Cache::builder().memory(ByteSize::mib(mib)).clock(Clock::Manual).build().unwrap();
    let all = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&all);
    cache
        .on_removal(move |removal| {
            let value: Vec<u8> = removal.slices().flatten().copied().collect();
            assert_eq!(value.len(), removal.len());
            told.lock().unwrap().push(Told {
                key: removal.key().to_vec(),
                value,
                cause: removal.cause(),
                ttl: removal.ttl(),
                was_used: removal.was_used(),
            });
        })
        .unwrap();
    (cache, all)
}

#[test]
fn every_eviction_is_told_with_its_value() {
    let (cache, told) = listened(2);
    let value = |n: u32| format!("value {n}").repeat(5).into_bytes();
    for n in 0..100_000u32 {
        cache.insert(&n.to_be_bytes(), &value(n)).apply().unwrap();
    }
    let told = told.lock().unwrap();
    let stats = cache.stats();
    assert!(stats.evictions > 50_000);
    assert_eq!(told.len() as u64, stats.evictions);
    let full = told.iter().filter(|removal| removal.cause == Cause::IndexFull).count();
    assert_eq!(full as u64, stats.index_replaced);
    let mut keys: Vec<u32> =
        told.iter().map(|removal| u32::from_be_bytes(removal.key[..].try_into().unwrap())).collect();
    assert!(keys.iter().zip(told.iter()).all(|(key, removal)| removal.value == value(*key) && removal.ttl.is_none()));
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), told.len(), "none is told twice");
    assert!(keys.iter().all(|key| !cache.contains(&key.to_be_bytes())), "what was told is gone");
    cache.verify();
}

#[test]
fn only_expiries_and_flushes_reach_the_listener() {
    let (cache, told) = listened(16);
    cache.insert(b"short", b"1").ttl(Ttl::seconds(5)).apply().unwrap();
    cache.insert(b"long", b"2").ttl(Ttl::seconds(1000)).apply().unwrap();
    cache.insert(b"deleted", b"").apply().unwrap();
    cache.insert(b"overwritten", b"old").apply().unwrap();
    cache.insert(b"overwritten", b"new").apply().unwrap();
    cache.delete(b"deleted");
    assert!(cache.contains(b"overwritten"));
    cache.maintain(Duration::from_secs(60));
    cache.flush(Duration::ZERO);
    cache.maintain(Duration::from_secs(61));
    let mut told: Vec<_> = std::mem::take(&mut *told.lock().unwrap());
    told.sort_by(|a, b| a.key.cmp(&b.key));
    let told: Vec<_> =
        told.iter().map(|t| (&t.key[..], &t.value[..], t.cause, t.ttl.map(|ttl| ttl.is_zero()), t.was_used)).collect();
    assert_eq!(
        told,
        [
            (&b"long"[..], &b"2"[..], Cause::Flushed, Some(false), false),
            (b"overwritten", b"new", Cause::Flushed, None, true),
            (b"short", b"1", Cause::Expired, Some(true), false),
        ]
    );
    cache.verify();
}

#[test]
fn entries_that_survived_evictions_are_not_unread() {
    let cache = Cache::builder().memory(ByteSize::mib(4)).policy(Policy::Lru).clock(Clock::Manual).build().unwrap();
    type Seen = (bool, bool, Option<Duration>, Option<(u32, u32)>);
    let told = Arc::new(Mutex::new(Vec::<Seen>::new()));
    let all = Arc::clone(&told);
    let listener = move |removal: ebbtide::memcached::Removal<'_>| {
        let hot = removal.key().starts_with(b"hot");
        all.lock().unwrap().push((hot, removal.is_unread(), removal.age(), removal.ttl_range_seconds()));
    };
    cache.on_removal(listener).unwrap();
    let hot: Vec<String> = (0..1000).map(|n| format!("hot{n}")).collect();
    hot.iter().for_each(|key| _ = cache.insert(key.as_bytes(), &[1; 500]).apply().unwrap());
    // They are read in each of some seconds while others are written, and then not any more.
    for second in 1..400u64 {
        cache.maintain(Duration::from_secs(second));
        if second < 20 {
            hot.iter().for_each(|key| _ = cache.get(key.as_bytes()).hit());
        }
        (0..200).for_each(|n| {
            _ = cache
                .insert(format!("cold{second}.{n}").as_bytes(), &[1; 500])
                .ttl(Ttl::seconds(5000))
                .apply()
                .unwrap();
        });
    }
    let told = told.lock().unwrap();
    let (hot, cold): (Vec<&Seen>, Vec<&Seen>) = told.iter().partition(|(is_hot, ..)| *is_hot);
    assert!(hot.len() > 500 && hot.iter().all(|(_, is_unread, ..)| !is_unread), "{} of 1000", hot.len());
    assert!(hot.iter().any(|(_, _, age, _)| age.is_none()), "survivors have no known age");
    assert!(cold.len() > 10_000 && cold.iter().all(|(_, is_unread, ..)| *is_unread));
    let ages = cold.iter().map(|(_, _, age, _)| age.expect("an age").as_secs());
    assert!(ages.clone().all(|age| age < 400) && ages.max() > Some(2));
    assert!(cold.iter().all(|(.., ttl)| ttl.is_some_and(|(min, max)| min <= 5000 && max >= 5000)));
}

/// The body of a long value is there as long as its listener runs.
#[test]
fn long_values_are_told_whole() {
    let (cache, told) = listened(8);
    let value: Vec<u8> = (0..300_000u32).map(|n| (n / 7) as u8).collect();
    cache.insert(b"long", &value).ttl(Ttl::seconds(5)).apply().unwrap();
    cache.maintain(Duration::from_secs(60));
    assert!(told.lock().unwrap()[0].value == value);
    cache.verify();
}

#[test]
fn there_are_four_listeners_at_most() {
    let (cache, _) = listened(8);
    for _ in 0..3 {
        cache.on_removal(|_| ()).unwrap();
    }
    assert_eq!(cache.on_removal(|_| ()), Err(Error::ListenerLimit { limit: 4 }));
}

#[test]
fn a_listener_that_panics_harms_nobody() {
    let cache = Cache::builder().memory(ByteSize::mib(2)).clock(Clock::Manual).build().unwrap();
    let number = |key: &[u8]| u32::from_be_bytes(key.try_into().unwrap());
    cache.on_removal(move |removal| assert!(number(removal.key()) % 4096 != 7, "it panics now and then")).unwrap();
    let told = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&told);
    cache.on_removal(move |_| _ = counts.fetch_add(1, Ordering::Relaxed)).unwrap();
    for n in 0..60_000u32 {
        cache.insert(&n.to_be_bytes(), &[7; 50]).apply().unwrap();
    }
    let stats = cache.stats();
    assert!(stats.evictions > 20_000, "{stats:?}");
    assert_eq!(told.load(Ordering::Relaxed), stats.evictions, "others are told of everything");
    cache.verify();
}
