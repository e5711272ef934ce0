//! Removals by a predicate, in memory and on flash.

use ebbtide::flash::{FlashPromotion, Options};
use ebbtide::{ByteSize, Cache, CacheBuilder, Clock, Error, InsertOptions, LoadOptions, Policy};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const KEYS: u64 = 4;
/// Longer than any machine needs.
const PATIENCE: Duration = Duration::from_secs(120);

fn builder(mib: u64) -> CacheBuilder {
    Cache::builder().memory(ByteSize::mib(mib)).clock(Clock::Manual)
}

/// A cache that copies nothing from flash to memory by itself.
fn over_flash(folder: &Path) -> CacheBuilder {
    let builder = builder(6).flash_options(Options::new().promotion(FlashPromotion::Never)).policy(Policy::Fifo);
    builder.flash(folder.join("flash"), ByteSize::mib(256))
}

/// Evicts all that is in memory.
fn fill(cache: &Cache, from: u32) {
    (from..from + 1200).for_each(|number| cache.insert(number.to_le_bytes(), [9; 6000]).unwrap());
}

fn is_in_memory(cache: &Cache, key: &str) -> bool {
    cache.memcached().peek(key.as_bytes()).is_hit()
}

#[test]
fn remove_if_removes_accepted_values_only() {
    let cache = builder(16).build().unwrap();
    cache.insert("k", "old").unwrap();
    assert_eq!(cache.remove_if("k", |value| value == b"new"), Ok(false));
    assert_eq!(cache.get("k").unwrap(), "old");
    assert_eq!(cache.remove_if("k", |value| value == b"old"), Ok(true));
    assert_eq!(cache.remove_if("k", |_| panic!("the key is absent")), Ok(false));
    let long: Vec<u8> = (0..900_000_u32).map(|byte| (byte / 7) as u8).collect();
    cache.insert("long", &long).unwrap();
    assert_eq!(cache.remove_if("long", |value| value == long), Ok(true));
    cache.insert("n", "9").unwrap();
    cache.increment("n", 1).unwrap();
    assert_eq!(cache.remove_if("n", |value| value == b"10"), Ok(true));
    cache.words("w").create(&[1], InsertOptions::new()).unwrap();
    let bytes = cache.get("w").unwrap();
    assert_eq!(cache.remove_if("w", |value| value == &bytes[..]), Ok(true));
    let negative = LoadOptions::new().negative_ttl(Duration::from_secs(60));
    assert_eq!(cache.get_or_load("absent", negative, || Ok::<Option<&str>, u32>(None)), Ok(None));
    assert_eq!(cache.remove_if("absent", |_| panic!("it has no value")), Ok(false));
    assert!(matches!(cache.remove_if("", |_| true), Err(Error::KeyLength { length: 0, .. })));
    assert_eq!(smol::block_on(cache.remove_if_async("none", |_| true)), Ok(false));
    let stats = cache.stats();
    assert_eq!(
        (cache.memcached().stats().stored_total, stats.hits),
        (5, 2),
        "a removal is neither a write nor a lookup"
    );
    cache.insert("k", "v").unwrap();
    cache.close().unwrap();
    assert_eq!(cache.remove_if("k", |_| true), Err(Error::Closed));
    assert_eq!(cache.retain(|_, _| false), Err(Error::Closed));
    assert_eq!(cache.get("k").unwrap(), "v");
}

#[test]
fn remove_if_works_where_flash_has_values() {
    let folder = tempfile::tempdir().unwrap();
    let cache = over_flash(folder.path()).build().unwrap();
    for key in ["removed", "kept", "task"] {
        cache.insert(key, format!("value of {key}")).unwrap();
    }
    fill(&cache, 0);
    let promotions = || cache.memcached().flash_stats().unwrap().promoted;
    assert_eq!(cache.remove_if("kept", |value| value == b"another"), Ok(false));
    assert_eq!(cache.remove_if("removed", |value| value == b"value of removed"), Ok(true));
    assert_eq!((promotions(), is_in_memory(&cache, "kept")), (0, false), "memory is not needed for it");
    assert_eq!(cache.remove_if("removed", |_| true), Ok(false));
    assert_eq!(smol::block_on(cache.remove_if_async("task", |value| value == b"value of task")), Ok(true));
    assert!(cache.get("removed").is_none() && cache.get("task").is_none());
    assert_eq!(cache.get("kept").unwrap(), "value of kept");
    cache.verify();
}

#[test]
fn retain_walks_through_both_tiers() {
    let folder = tempfile::tempdir().unwrap();
    let cache = over_flash(folder.path()).build().unwrap();
    fill(&cache, 0);
    let all = cache.iter().unwrap().count();
    assert!(all as u64 > cache.entry_count(), "flash has some");
    let is_even = |key: &[u8]| key[0].is_multiple_of(2);
    let removed = cache.retain(|key, value| value.len() != 6000 || is_even(key)).unwrap();
    let left: Vec<_> = cache.iter().unwrap().map(|(key, _)| key).collect();
    assert!(left.iter().all(|key| is_even(key)));
    assert_eq!((left.len(), removed as usize), (all / 2, all - all / 2));
    let negative = LoadOptions::new().negative_ttl(Duration::from_secs(60));
    assert_eq!(cache.get_or_load("absent", negative, || Ok::<Option<&str>, u32>(None)), Ok(None));
    assert_eq!(cache.retain(|key, _| key != b"absent"), Ok(0));
    let walks: Vec<_> = (0..8).map(|_| cache.iter().unwrap()).collect();
    assert!(matches!(cache.retain(|_, _| true), Err(Error::ScanLimit { limit: 8 })));
    drop(walks);
    cache.verify();
}

/// Writes an odd number of a key, which others remove, and then an even one, which must stay. Every other time the odd
/// number is removed before. `between` is called after odd numbers are written and before they may be removed.
fn write_beside_removals(cache: &Cache, rounds: u64, between: impl Fn(u64)) {
    let number_of = |value: &[u8]| u64::from_le_bytes(value.try_into().unwrap());
    let (is_open, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let is_odd = |value: &[u8]| value.len() == 8 && number_of(value) % 2 == 1;
    let is_removed = |value: &[u8]| is_odd(value) && is_open.load(Ordering::Relaxed);
    let removed = [AtomicU64::new(0), AtomicU64::new(0)];
    let until_over = |remove: &dyn Fn()| {
        while !is_over.load(Ordering::Relaxed) {
            remove();
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            until_over(&|| {
                let count = |key: u64| u64::from(cache.remove_if(key.to_be_bytes(), is_removed).unwrap());
                removed[0].fetch_add((0..KEYS / 2).map(count).sum(), Ordering::Relaxed);
            });
        });
        scope.spawn(|| {
            until_over(&|| {
                let is_kept = |key: &[u8], value: &[u8]| key < &(KEYS / 2).to_be_bytes()[..] || !is_removed(value);
                removed[1].fetch_add(cache.retain(is_kept).unwrap(), Ordering::Relaxed);
            });
        });
        let deadline = Instant::now() + PATIENCE;
        let lost = (0..rounds).filter(|round| {
            let (key, even) = ((round % KEYS).to_be_bytes(), 2 * round + 2);
            cache.insert(key, (even - 1).to_le_bytes()).unwrap();
            between(*round);
            is_open.store(true, Ordering::Relaxed);
            while (round / KEYS).is_multiple_of(2) && cache.contains_key(key) && Instant::now() < deadline {
                thread::yield_now();
            }
            cache.insert(key, even.to_le_bytes()).unwrap();
            is_open.store(false, Ordering::Relaxed);
            cache.get(key).is_none_or(|value| number_of(&value) != even)
        });
        let lost: Vec<u64> = lost.collect();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(lost, [], "removed: {removed:?}");
    });
    let removed = removed.map(AtomicU64::into_inner);
    assert!(removed.iter().all(|removed| *removed >= rounds / 4), "{removed:?} in {rounds} rounds");
}

#[test]
fn newer_values_survive_removals_by_predicate() {
    let cache = builder(16).build().unwrap();
    write_beside_removals(&cache, 4000, |_| ());
    cache.verify();
}

#[test]
fn newer_values_survive_removals_over_flash() {
    let folder = tempfile::tempdir().unwrap();
    let cache = over_flash(folder.path()).build().unwrap();
    // In these rounds the odd number is on flash only.
    write_beside_removals(&cache, 48, |round| {
        if [1, 3, 5].contains(&(round % 8)) {
            fill(&cache, round as u32 * 2000);
        }
    });
    cache.verify();
}
