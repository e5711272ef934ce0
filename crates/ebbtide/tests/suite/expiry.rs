//! Lives: how long objects are served, and how soon the memory of expired ones is there again.

use crate::common::at;
use ebbtide::memcached::{ByteSize, Cache, CacheBuilder, Clock, Policy, Ttl};

fn builder(memory: ByteSize) -> CacheBuilder {
    Cache::builder().memory(memory).clock(Clock::Manual).seed(1)
}

fn set(cache: &Cache, key: &str, value: &[u8], seconds: u32) {
    cache.insert(key.as_bytes(), value).ttl(Ttl::seconds(seconds)).apply().unwrap();
}

fn hits(cache: &Cache, key: &str) -> bool {
    cache.contains(key.as_bytes())
}

/// The moment before which an object with this TTL, set at 0, must be served.
fn earliest_ms(seconds: u32) -> u64 {
    let ttl_ms = u64::from(seconds) * 1000;
    ttl_ms - (ttl_ms * 16 / 1000).max(1000)
}

#[test]
fn objects_of_all_ttls_expire_on_time() {
    let cache = builder(ByteSize::mib(64)).build().unwrap();
    let ttls: Vec<u32> = (0..32).flat_map(|octave| [1 << octave, (1 << octave) + (1u32 << octave) / 3]).collect();
    let value = [7; 500];
    set(&cache, "never", &value, 1);
    cache.insert(b"never", &value).apply().unwrap();
    for round in 0..40 {
        for ttl in &ttls {
            set(&cache, &format!("{ttl} {round}"), &value, *ttl);
        }
    }
    assert!(cache.stats().segments_open >= 33, "every octave has a segment: {:?}", cache.stats());
    let mut moments: Vec<u64> =
        ttls.iter().flat_map(|ttl| [earliest_ms(*ttl).saturating_sub(1), u64::from(*ttl) * 1000]).collect();
    moments.sort_unstable();
    for now_ms in moments {
        at(&cache, now_ms);
        for ttl in &ttls {
            let key = format!("{ttl} {}", now_ms % 40);
            let served = hits(&cache, &key);
            assert!(served || now_ms >= earliest_ms(*ttl), "{key} is gone early, at {now_ms}");
            assert!(!served || now_ms < u64::from(*ttl) * 1000, "{key} is served late, at {now_ms}");
        }
    }
    assert!(hits(&cache, "never"));
    let stats = cache.stats();
    assert_eq!((stats.items, stats.evictions), (1, 0), "{stats:?}");
    cache.verify();
}

#[test]
fn one_segment_per_ttl_bucket_suffices() {
    for policy in Policy::ALL {
        let cache = builder(ByteSize::kib(256)).policy(policy).build().unwrap();
        for round in 0..30_u64 {
            for octave in 0..32 {
                for number in 0..8 {
                    let key = format!("{octave} {round} {number}");
                    set(&cache, &key, &[1; 400], 1 << octave);
                    assert!(hits(&cache, &key), "{}: what was just set is there", policy.name());
                }
            }
            at(&cache, round * 10);
        }
        cache.verify();
    }
}

#[test]
fn fast_turnover_keeps_the_newest_objects() {
    for policy in Policy::ALL {
        let cache = builder(ByteSize::mib(1)).policy(policy).build().unwrap();
        for number in 0..20_000_u64 {
            let key = format!("key{number}");
            set(&cache, &key, &[3; 300], 1 + (number % 7) as u32);
            assert!(hits(&cache, &key), "{}: what was just set is there", policy.name());
            if number % 50 == 0 {
                at(&cache, number / 20);
            }
        }
        cache.verify();
    }
}

#[test]
fn rare_long_ttls_survive_in_little_memory() {
    const DAY: u32 = 86_400;
    let cache = builder(ByteSize::kib(320)).build().unwrap();
    let live_minutes = earliest_ms(DAY) / 60_000 - 1;
    for minute in 0..3 * 24 * 60 {
        at(&cache, minute * 60_000);
        set(&cache, &format!("slow {minute}"), &[5; 20], DAY);
        set(&cache, &format!("half as slow {minute}"), &[5; 20], DAY / 2);
        // Fast traffic, so that free segments must be won.
        for number in 0..40 {
            set(&cache, &format!("fast {number}"), &[6; 900], 30);
        }
        if let Some(dead) = minute.checked_sub(u64::from(DAY) / 60) {
            assert!(!hits(&cache, &format!("slow {dead}")), "at minute {minute}, object {dead} is served");
        }
        if minute % 240 == 239 {
            let missing_of = |tag: &str, minutes: u64| {
                let oldest = minute.saturating_sub(minutes);
                (oldest..=minute).filter(|minute| !hits(&cache, &format!("{tag} {minute}"))).count() as u64
            };
            let missing =
                missing_of("slow", live_minutes) + missing_of("half as slow", earliest_ms(DAY / 2) / 60_000 - 1);
            let stats = cache.stats();
            assert!(missing <= stats.index_replaced, "at minute {minute}, {missing} objects are gone: {stats:?}");
        }
    }
    let stats = cache.stats();
    assert!(stats.segments_compacted > 50, "{stats:?}");
    assert!(stats.evictions == stats.index_replaced && stats.evictions < 10, "{stats:?}");
    cache.verify();
}

#[test]
fn expired_segments_are_reused_within_a_second() {
    let cache = builder(ByteSize::mib(16)).build().unwrap();
    let value = [9; 400];
    let mut number = 0;
    while cache.stats().memory_used_bytes < cache.stats().memory_limit_bytes * 9 / 10 {
        for _ in 0..100 {
            set(&cache, &format!("key{number}"), &value, if number % 2 == 0 { 10 } else { 100_000 });
            number += 1;
        }
    }
    at(&cache, 11_000);
    for new in 0..number / 2 {
        set(&cache, &format!("new{new}"), &value, 100_000);
    }
    let stats = cache.stats();
    assert_eq!(stats.evictions, 0, "{stats:?}");
    assert_eq!(stats.expired, number / 2);
    let given_back = stats.segments_expired * stats.segment_bytes;
    assert!(given_back * 5 > stats.memory_limit_bytes * 2 && stats.segments_evicted == 0, "{stats:?}");
    for key in (1..number).step_by(2) {
        assert!(hits(&cache, &format!("key{key}")));
    }
    cache.verify();
}

#[test]
fn live_segments_hold_few_expired_bytes() {
    let cache = builder(ByteSize::mib(16)).build().unwrap();
    let value = [9; 300];
    let ttls = [20, 60, 300, 1000, 3600];
    let lives: std::collections::HashMap<u64, u64> = (0..200_000_u64)
        .map(|number| {
            let ttl = ttls[number as usize % ttls.len()] + (number % 13) as u32;
            at(&cache, number * 5);
            set(&cache, &format!("{number}"), &value, ttl);
            (number, number * 5 + u64::from(ttl) * 1000)
        })
        .collect();
    let now_ms = 200_000 * 5;
    at(&cache, now_ms);
    let stats = cache.stats();
    let alive = lives.iter().filter(|(number, end)| **end > now_ms && hits(&cache, &number.to_string())).count() as u64;
    let waiting_bytes = (stats.items - alive) * (stats.live_bytes / stats.items);
    assert!(waiting_bytes * 500 <= stats.memory_limit_bytes, "{waiting_bytes} expired bytes wait: {stats:?}");
    cache.verify();
}

#[test]
fn a_flush_hits_what_was_stored_before_it() {
    let cache = builder(ByteSize::mib(4)).segment_size(ByteSize::kib(4)).build().unwrap();
    let second = std::time::Duration::from_secs(1);
    let fill = |tag: &str| (0..500).for_each(|number| set(&cache, &format!("{tag}{number}"), &[1; 2000], 1000));
    let found = |tag: &str| (0..500).filter(|number| hits(&cache, &format!("{tag}{number}"))).count();
    fill("a");
    cache.insert(b"long", &[2; 50_000]).apply().unwrap();
    cache.flush(std::time::Duration::ZERO);
    assert_eq!((found("a"), hits(&cache, "long")), (0, false));
    let before = cache.stats().segments_free;
    at(&cache, 0);
    assert!(cache.stats().segments_free > before + 200, "flushed segments are free after maintenance");
    fill("b");
    cache.flush(5 * second);
    at(&cache, 4999);
    assert_eq!(found("b"), 500);
    fill("c");
    at(&cache, 5000);
    fill("d");
    assert_eq!((found("b"), found("c"), found("d")), (0, 0, 500));
    at(&cache, 60_000);
    assert_eq!(found("d"), 500, "a delayed flush strikes once");
    cache.flush(5 * second);
    cache.flush(100 * second);
    at(&cache, 70_000);
    assert_eq!(found("d"), 500, "the second flush took the place of the first");
    cache.verify();
}
