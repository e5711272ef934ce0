//! The eviction listener: told once of everything that leaves memory, outside of all locks.

use ebbtide::{ByteSize, Cache, CacheBuilder, Clock, InsertOptions, RemovalCause, WeakCache};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Key, value and cause of each call.
type Told = Arc<Mutex<Vec<(Vec<u8>, Vec<u8>, RemovalCause)>>>;

fn builder(mib: u64) -> CacheBuilder {
    Cache::builder().memory(ByteSize::mib(mib)).clock(Clock::Manual)
}

fn listened(builder: CacheBuilder) -> (Cache, Told) {
    let told = Told::default();
    let calls = Arc::clone(&told);
    let listener = move |key: &[u8], value: ebbtide::Value, cause| {
        calls.lock().unwrap().push((key.to_vec(), value.to_vec(), cause));
    };
    (builder.eviction_listener(listener).build().unwrap(), told)
}

fn wait_until(what: &str, is_done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_done() {
        assert!(Instant::now() < deadline, "{what}");
        thread::yield_now();
    }
}

#[test]
fn changes_notify_listeners_before_they_return() {
    let (cache, told) = listened(builder(16));
    let take = || std::mem::take(&mut *told.lock().unwrap());
    let call = |key: &str, value: &str, cause| (key.as_bytes().to_vec(), value.as_bytes().to_vec(), cause);
    cache.insert("k", "1").unwrap();
    assert_eq!(take(), []);
    cache.insert("k", "2").unwrap();
    assert_eq!(take(), [call("k", "1", RemovalCause::Replaced)]);
    assert!(cache.compare_and_swap("k", "2", "3", InsertOptions::new()).unwrap());
    assert_eq!(take(), [call("k", "2", RemovalCause::Replaced)]);
    assert!(cache.touch("k", Duration::from_secs(100)).unwrap());
    assert_eq!(take(), [], "a new TTL is no removal");
    assert!(cache.remove("k") && !cache.remove("k"));
    assert_eq!(take(), [call("k", "3", RemovalCause::Removed)]);
    cache.insert("n", "9").unwrap();
    cache.increment("n", 1).unwrap();
    take();
    cache.increment("n", 1).unwrap();
    assert_eq!(take(), [], "a number that changes in place is no removal");
    cache.remove("n");
    assert_eq!(take(), [call("n", "11", RemovalCause::Removed)]);
    cache.verify();
}

#[test]
fn listeners_hear_of_dead_entries_when_freed() {
    let (cache, told) = listened(builder(16));
    let five = InsertOptions::new().ttl(Duration::from_secs(5));
    cache.insert_with("expires", "1", five).unwrap();
    cache.insert("rewritten", "2").unwrap();
    let long: Vec<u8> = (0..700_000_u32).map(|byte| (byte / 7) as u8).collect();
    cache.insert("long", &long).unwrap();
    cache.maintain(Duration::from_secs(1));
    assert!(told.lock().unwrap().is_empty());
    cache.maintain(Duration::from_secs(60));
    cache.invalidate_all();
    cache.insert("rewritten", "3").unwrap();
    assert_eq!(told.lock().unwrap().len(), 2);
    cache.maintain(Duration::from_secs(61));
    let told = std::mem::take(&mut *told.lock().unwrap());
    let expected = [
        ("expires", &b"1"[..], RemovalCause::Expired),
        ("rewritten", b"2", RemovalCause::Removed),
        ("long", &long, RemovalCause::Removed),
    ];
    assert_eq!(told.len(), expected.len());
    for ((key, value, cause), expected) in told.iter().zip(expected) {
        assert!((&key[..], &value[..], *cause) == (expected.0.as_bytes(), expected.1, expected.2), "{}", expected.0);
    }
    cache.verify();
}

#[test]
fn each_eviction_is_told_once() {
    let (cache, told) = listened(builder(2));
    (0..60_000_u32).for_each(|number| cache.insert(number.to_be_bytes(), [7; 100]).unwrap());
    let told = told.lock().unwrap();
    assert!(told.iter().all(|(_, value, cause)| value == &[7; 100] && *cause == RemovalCause::Evicted));
    let keys: HashSet<_> = told.iter().map(|(key, ..)| key).collect();
    assert_eq!((keys.len(), told.len() as u64), (told.len(), 60_000 - cache.entry_count()));
    assert!(keys.iter().all(|key| !cache.contains_key(key)));
}

/// Flash has exactly those evicted entries that were demoted.
#[test]
fn demotion_and_rejection_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let options = |mut options: ebbtide::memcached::FlashOptions| {
        options.admission.min_value_bytes = 200;
        options
    };
    let builder = builder(8).flash(folder.path().join("flash"), ByteSize::mib(64));
    let builder = builder.engine(|engine| engine.flash_options(options(Default::default())));
    let (cache, told) = listened(builder);
    let bytes = |number: u32| if number.is_multiple_of(2) { 100 } else { 300 };
    let inserted = 40_000_u32;
    (0..inserted).for_each(|number: u32| cache.insert(number.to_be_bytes(), vec![7; bytes(number)]).unwrap());
    let told = std::mem::take(&mut *told.lock().unwrap());
    assert_eq!(told.len() as u64, u64::from(inserted) - cache.entry_count());
    let mut counts = HashMap::new();
    for (key, value, cause) in &told {
        *counts.entry(*cause).or_insert(0) += 1;
        let expected = if value.len() == 100 { RemovalCause::RejectedByFlash } else { RemovalCause::Demoted };
        assert_eq!(*cause, expected, "{key:?}");
    }
    assert!(counts[&RemovalCause::Demoted] > 100 && counts[&RemovalCause::RejectedByFlash] > 100, "{counts:?}");
    let found = |cause| told.iter().filter(|told| told.2 == cause && cache.contains_key(&told.0)).count();
    assert_eq!(found(RemovalCause::RejectedByFlash), 0);
    assert_eq!(found(RemovalCause::Demoted), counts[&RemovalCause::Demoted]);
}

/// A listener that inserts evicted entries causes as many evictions as it hears of: writes end nevertheless.
#[test]
fn a_listener_may_use_the_cache() {
    let this = Arc::new(OnceLock::<WeakCache>::new());
    let (told, weak) = (Arc::new(AtomicU64::new(0)), Arc::clone(&this));
    let calls = Arc::clone(&told);
    let listener = move |key: &[u8], value: ebbtide::Value, cause| {
        calls.fetch_add(1, Ordering::Relaxed);
        if let Some(cache) = weak.get().and_then(WeakCache::upgrade) {
            assert_eq!(cause, RemovalCause::Evicted);
            assert!(cache.get(key).is_none() && !cache.remove(key));
            cache.insert(key, value).unwrap();
        }
    };
    let cache = builder(2).eviction_listener(listener).build().unwrap();
    this.set(cache.downgrade()).unwrap();
    (0..20_000_u32).for_each(|number| cache.insert(number.to_be_bytes(), [7; 100]).unwrap());
    let (told, stats) = (told.load(Ordering::Relaxed), cache.stats());
    assert!(told > 5000 && stats.listener_panics == 0, "{told} calls");
    assert!(stats.inserts >= 20_000 + told && stats.evictions >= told, "{stats:?}, {told} calls");
    cache.verify();
}

#[test]
fn a_listener_that_panics_is_counted() {
    let told = Arc::new(AtomicU64::new(0));
    let calls = Arc::clone(&told);
    let listener = move |key: &[u8], _, _| {
        assert_ne!(key, b"bad", "this listener panics");
        calls.fetch_add(1, Ordering::Relaxed);
    };
    let cache = builder(16).eviction_listener(listener).build().unwrap();
    for key in ["good", "bad", "good"] {
        cache.insert(key, "value").unwrap();
        assert!(cache.remove(key));
    }
    assert_eq!((told.load(Ordering::Relaxed), cache.stats().listener_panics), (2, 1));
    cache.verify();
}

/// A thread that holds a reference cannot evict, and so its listener could not write.
#[test]
fn removals_beside_a_held_reference_are_told_elsewhere() {
    let caller = thread::current().id();
    let told = Arc::new(AtomicU64::new(0));
    let calls = Arc::clone(&told);
    let listener = move |_: &[u8], _, _| {
        assert_ne!(thread::current().id(), caller);
        calls.fetch_add(1, Ordering::Relaxed);
    };
    let cache = Cache::builder().memory(ByteSize::mib(16)).eviction_listener(listener).build().unwrap();
    cache.insert("held", "1").unwrap();
    cache.insert("removed", "2").unwrap();
    let held = cache.get_ref("held").unwrap();
    assert!(cache.remove("removed"));
    wait_until("the maintenance thread tells it", || told.load(Ordering::Relaxed) == 1);
    drop(held);
    assert_eq!(cache.stats().listener_panics, 0);
}

/// Every inserted value is reported once, or is in the cache.
#[test]
fn threads_that_write_and_remove_lose_no_event() {
    const THREADS: u64 = 4;
    const WRITES: u64 = 20_000;
    let (cache, told) = listened(Cache::builder().memory(ByteSize::mib(2)).max_value(ByteSize::kib(64)));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let cache = &cache;
            scope.spawn(move || {
                let mut random = number + 1;
                for write in 0..WRITES {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let key = (random >> 33) % 30_000;
                    if write % 8 == 0 {
                        cache.remove(key.to_be_bytes());
                    }
                    let mut value = [7; 100];
                    value[..8].copy_from_slice(&(number * WRITES + write).to_be_bytes());
                    cache.insert(key.to_be_bytes(), value).unwrap();
                }
            });
        }
    });
    let written = THREADS * WRITES;
    let is_complete = || told.lock().unwrap().len() as u64 + cache.entry_count() == written;
    wait_until("all events are told", is_complete);
    let told = told.lock().unwrap();
    let values: HashSet<_> = told.iter().map(|(_, value, _)| &value[..8]).collect();
    assert_eq!(values.len(), told.len(), "none is told twice");
    for cause in [RemovalCause::Removed, RemovalCause::Replaced, RemovalCause::Evicted] {
        assert!(told.iter().any(|(_, _, told)| *told == cause), "{cause:?}");
    }
}
