//! The interface for Rust programs.

use ebbtide::{
    ByteSize, Cache, Clock, Error, InsertOptions, Pool, PoolOptions, PressureMode, PressureOptions, Ttl, Value,
};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

fn cache(mib: u64) -> Cache {
    Cache::builder().memory(ByteSize::mib(mib)).clock(Clock::Manual).build().unwrap()
}

fn value(n: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i as u32 / 7 + n) as u8).collect()
}

/// The words of a pool; a cache has them for its pool `default`.
fn use_all_words(pool: &Pool) {
    pool.insert("text", String::from("one")).unwrap();
    pool.insert([1_u8, 2], vec![7; 10_000]).unwrap();
    assert_eq!(pool.get("text").unwrap(), "one");
    assert_eq!(pool.get(String::from("text")).as_deref(), Some(&b"one"[..]));
    assert_eq!(pool.get_ref("text").unwrap().to_value(), *"one");
    assert_eq!(pool.with([1, 2], |bytes| bytes.len()), Some(10_000));
    let many = pool.get_many(&["text", "absent"]);
    assert_eq!((many[0].as_deref(), many[1].is_none()), (Some(&b"one"[..]), true));
    assert!(pool.contains_key("text") && !pool.contains_key("absent"));
    assert!(!pool.insert_if_absent("text", "two", InsertOptions::new()).unwrap());
    assert!(!pool.compare_and_swap("text", "two", "three", InsertOptions::new()).unwrap());
    assert!(pool.compare_and_swap("text", "one", "three", InsertOptions::new()).unwrap());
    assert!(!pool.compare_and_swap("absent", "", "three", InsertOptions::new()).unwrap());
    assert_eq!(pool.take("text").unwrap().unwrap(), "three");
    assert!(pool.take("text").unwrap().is_none() && !pool.contains_key("text"));
    pool.insert("text", "three").unwrap();
    assert_eq!(pool.get("text").unwrap(), "three");
    assert_eq!(pool.increment("count", 1), Ok(None));
    assert_eq!(pool.increment_or_insert("count", 5, 41, InsertOptions::new()), Ok(41));
    assert_eq!(pool.increment_or_insert("count", 1, 41, InsertOptions::new()), Ok(42));
    assert_eq!((pool.increment("count", 8), pool.decrement("count", 100)), (Ok(Some(50)), Ok(Some(0))));
    assert_eq!(pool.get("count").unwrap(), "0 ");
    assert_eq!(pool.increment("text", 1), Err(Error::NotNumeric));
    assert_eq!((pool.touch("text", Duration::from_secs(9)), pool.touch("absent", Ttl::Never)), (Ok(true), Ok(false)));
    assert_eq!(pool.get_ref("text").unwrap().ttl(), Some(Duration::from_secs(9)));
    assert_eq!(pool.entry_count(), 3);
    let mut keys: Vec<_> = pool.iter().unwrap().map(|(key, value)| (key.to_vec(), value.len())).collect();
    keys.sort();
    assert_eq!(keys, [(vec![1, 2], 10_000), (b"count".to_vec(), 2), (b"text".to_vec(), 5)]);
    assert!(pool.remove("text") && !pool.remove("text"));
    assert_eq!(pool.take([1, 2]).unwrap().map(|value| value.len()), Some(10_000));
    assert_eq!((pool.take([1, 2]), pool.contains_key([1, 2])), (Ok(None), false));
    pool.invalidate_all();
    assert!(!pool.contains_key("count") && pool.iter().unwrap().next().is_none());
}

#[test]
fn caches_and_pools_have_the_same_words() {
    let builder = Cache::builder().memory(ByteSize::mib(16)).clock(Clock::Manual);
    let cache = builder.pool(PoolOptions::named("users")).build().unwrap();
    use_all_words(&cache);
    let users = cache.pool("users").unwrap();
    use_all_words(&users);
    users.insert("only", "there").unwrap();
    assert!(cache.get("only").is_none());
    assert_eq!(cache.pools(), ["default", "users"]);
    cache.verify();
}

#[test]
fn ttls_are_durations_and_have_a_default() {
    let builder = Cache::builder().memory(ByteSize::mib(8)).clock(Clock::Manual);
    let cache = builder.default_ttl(Duration::from_secs(10)).build().unwrap();
    cache.insert("default", "").unwrap();
    cache.insert_with("short", "", InsertOptions::new().ttl(Duration::from_millis(1500))).unwrap();
    cache.insert_with("never", "", InsertOptions::new().ttl(Ttl::Never)).unwrap();
    cache.insert_with("zero", "", InsertOptions::new().ttl(Duration::ZERO)).unwrap();
    cache.insert_with("ages", "", InsertOptions::new().ttl(Duration::MAX)).unwrap();
    let present = |keys: &[&str]| keys.iter().map(|key| cache.contains_key(key)).collect::<Vec<_>>();
    let keys = ["default", "short", "never", "zero", "ages"];
    cache.maintain(Duration::from_millis(1500));
    assert_eq!(present(&keys), [true, true, true, false, true], "rounded up to two seconds");
    cache.maintain(Duration::from_secs(2));
    assert_eq!(present(&keys), [true, false, true, false, true]);
    cache.maintain(Duration::from_secs(10));
    assert_eq!(present(&keys), [false, false, true, false, true]);
}

/// Values of each kind: copied, pinned, in several segments, and numbers.
#[test]
fn values_outlive_the_entries_and_the_cache() {
    let cache = cache(16);
    let sizes = [0, 100, 4095, 4096, 10_000, 700_000];
    let values: Vec<Value> = (0..)
        .zip(sizes)
        .map(|(n, bytes)| {
            cache.insert(format!("{n}"), value(n, bytes)).unwrap();
            cache.get(format!("{n}")).unwrap()
        })
        .collect();
    let clones = values.clone();
    cache.invalidate_all();
    for n in 0..50_000_u32 {
        cache.insert(n.to_be_bytes(), value(n, 1000)).unwrap();
    }
    drop(cache);
    let check = move |values: Vec<Value>| {
        for ((n, bytes), held) in (0..).zip(sizes).zip(&values) {
            assert!(**held == *value(n, bytes), "{bytes} bytes");
        }
    };
    thread::spawn(move || check(clones)).join().unwrap();
    for (n, held) in (0..).zip(&values) {
        assert!(**held == *value(n, sizes[n as usize]));
    }
}

/// When pins hold as much as they may, longer values are copies, and writes still find memory.
#[test]
fn values_held_beyond_the_pin_limit_are_copies() {
    let cache = cache(8);
    let mut held = Vec::new();
    for n in 0..4000_u32 {
        cache.insert(n.to_be_bytes(), value(n, 8000)).unwrap();
        held.push(cache.get(n.to_be_bytes()).expect("it was just inserted"));
    }
    assert!(cache.memcached().stats().pinned_bytes <= 3 << 20);
    assert!((0..).zip(&held).all(|(n, held)| **held == *value(n, 8000)));
    drop(held);
    assert_eq!(cache.memcached().stats().pinned_bytes, 0);
    cache.verify();
}

/// The pattern that a borrowed hit breaks: a write while the value of another key is in use, in a full cache.
#[test]
fn only_borrowed_refs_block_writes() {
    let cache = cache(4);
    (0..20_000_u32).for_each(|n| cache.insert(n.to_be_bytes(), value(n, 1000)).unwrap());
    cache.insert("held", "v").unwrap();
    if let Some(held) = cache.get("held") {
        (0..20_000_u32).for_each(|n| cache.insert(n.to_be_bytes(), value(n, 1000)).unwrap());
        assert_eq!(held, "v");
    }
    cache.insert("held", "v").unwrap();
    let held = cache.get_ref("held").unwrap();
    let refused = (0..20_000_u32).find_map(|n| cache.insert(n.to_be_bytes(), value(n, 1000)).err());
    assert!(matches!(refused, Some(Error::OutOfMemory { .. })), "{refused:?}");
    drop(held);
    cache.insert("other", "v").unwrap();
    cache.verify();
}

#[test]
fn hits_and_misses_are_counted_per_pool() {
    let builder = Cache::builder().memory(ByteSize::mib(16)).clock(Clock::Manual);
    let cache = builder.pool(PoolOptions::named("users")).build().unwrap();
    let users = cache.pool("users").unwrap();
    cache.insert("a", "1").unwrap();
    users.insert("b", "2").unwrap();
    assert_eq!(cache.stats().hit_ratio(), 0.0);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let cache = cache.clone();
            thread::spawn(move || _ = (cache.get("a"), cache.get("b"), cache.get_many(&["a", "a", "b"])))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    _ = (users.with("b", |_| ()), users.get_ref("b").is_some(), users.contains_key("b"), users.get("a"));
    let of_users = cache.pool("users").unwrap().stats();
    assert_eq!((of_users.hits, of_users.misses, of_users.entries), (2, 1, 1));
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries, stats.inserts), (14, 9, 2, 2));
    let text = stats.to_string();
    assert!(text.starts_with("hit ratio 60.87 % (14 hits, 9 misses), 2 entries, "), "{text}");
}

#[test]
fn errors_name_the_input_and_the_limit() {
    let cache = cache(8);
    let long = cache.insert("k", vec![0; 2 << 20]).unwrap_err().to_string();
    assert_eq!(long, "the value has 2097152 bytes, more than the limit of 1048576: use a larger max_value");
    let key = cache.insert("", "v").unwrap_err().to_string();
    assert_eq!(key, "the key has 0 bytes; keys have 1 to 255");
    assert!(cache.get("").is_none() && !cache.remove("") && !cache.contains_key("k"));
    assert_eq!(cache.pool("x").unwrap_err().to_string(), "there is no pool `x`");
}

#[test]
fn an_allocation_is_invisible_until_it_is_published() {
    let cache = cache(16);
    cache.insert("key", "old").unwrap();
    let mut allocation = cache.allocate("key", 300_000, Duration::from_secs(60)).unwrap();
    assert!(allocation.iter().all(|byte| *byte == 0));
    allocation[..3].copy_from_slice(b"new");
    assert_eq!(cache.get("key").unwrap(), "old");
    drop(allocation);
    assert_eq!(cache.get("key").unwrap(), "old");
    let mut allocation = cache.allocate("key", 300_000, Duration::from_secs(60)).unwrap();
    allocation.copy_from_slice(&value(1, 300_000));
    cache.maintain(Duration::from_secs(100));
    allocation.publish().unwrap();
    assert_eq!(cache.get("key").unwrap(), value(1, 300_000)[..]);
    assert_eq!(cache.get_ref("key").unwrap().ttl(), Some(Duration::from_secs(60)), "its TTL begins with publication");
    let too_long = cache.allocate("key", (1 << 20) + 1, Ttl::Never).err();
    assert_eq!(too_long, Some(Error::ValueTooLarge { length: (1 << 20) + 1, limit: 1 << 20 }));
    let no_key = cache.allocate("", 1, Ttl::Never).err();
    assert!(matches!(no_key, Some(Error::KeyLength { length: 0, .. })));
}

/// Held allocations delay no expiry or eviction.
#[test]
fn held_allocations_hold_up_nobody() {
    let cache = cache(4);
    let held: Vec<_> = (0..64_u32)
        .map(|number| cache.allocate(number.to_be_bytes(), 500_000, Duration::from_secs(5)).unwrap())
        .collect();
    let five = InsertOptions::new().ttl(Duration::from_secs(5));
    (0..1000_u32).for_each(|n| cache.insert_with(n.to_be_bytes(), value(n, 100), five).unwrap());
    cache.maintain(Duration::from_secs(60));
    assert_eq!(cache.entry_count(), 0, "all have expired");
    (0..50_000_u32).for_each(|n| cache.insert(n.to_be_bytes(), value(n, 200)).unwrap());
    assert!(cache.stats().evictions > 10_000);
    drop(held);
    cache.verify();
}

#[test]
fn memory_beyond_all_machines_is_refused() {
    for bytes in [u64::MAX, 1 << 62] {
        let refused = Cache::builder().memory(ByteSize::bytes(bytes)).build().map(drop).unwrap_err();
        assert!(matches!(&refused, Error::Configuration { option: "memory", .. }), "{refused}");
        assert!(refused.to_string().contains("4 TiB"), "{refused}");
    }
}

/// Between the looks of a take the key may be absent, get a value, and get another one.
#[test]
fn a_take_returns_the_value_that_it_removes() {
    const ROUNDS: u64 = 5000;
    let (cache, is_over) = (cache(16), AtomicBool::new(false));
    let taken = thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let mut taken = HashSet::new();
            while !is_over.load(Ordering::Relaxed) {
                taken.extend(cache.take("key").unwrap().map(|value| u64::from_le_bytes(value[..].try_into().unwrap())));
            }
            taken
        });
        for number in 0..ROUNDS {
            cache.insert("key", (2 * number).to_le_bytes()).unwrap();
            cache.insert("key", (2 * number + 1).to_le_bytes()).unwrap();
            // Until the take: the next round begins with an absent key.
            while cache.contains_key("key") {
                thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        taker.join().unwrap()
    });
    assert_eq!((0..ROUNDS).filter(|number| !taken.contains(&(2 * number + 1))).count(), 0);
    cache.verify();
}

#[test]
fn refusals_name_no_flag_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Cache::builder().memory(ByteSize::mib(2)).flash(folder.path().join("flash"), ByteSize::gib(16));
    let refusal = builder.build().unwrap_err().to_string();
    assert!(refusal.contains("of memory or more, or a smaller flash") && !refusal.contains("(-"), "{refusal}");
    let pressure = PressureOptions::new(PressureMode::Free, 1 << 30, 2 << 30).to_string();
    assert!(pressure.ends_with("not below 25 % of the memory"), "{pressure}");
}
