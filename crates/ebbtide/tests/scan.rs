//! Scans, beside nothing, beside growth, beside evictions.

use ebbtide::{ByteSize, Cache, Clock, Error, Scan, Ttl};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

fn key(n: u32) -> [u8; 8] {
    // Spread, so that a run of numbers is no run of anything.
    (u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes()
}

/// A cache without a thread of its own, so that it is quiet when its users are.
fn cache(mib: u64) -> Cache {
    Cache::builder().memory(ByteSize::mib(mib)).clock(Clock::Manual).seed(7).build().unwrap()
}

/// How often each key is met.
fn met(mut scan: Scan) -> HashMap<Vec<u8>, u32> {
    let mut met: HashMap<Vec<u8>, u32> = HashMap::new();
    while scan.advance(|entry| *met.entry(entry.item().key().to_vec()).or_default() += 1) {}
    met
}

#[test]
fn a_quiet_cache_is_met_exactly_once() {
    let cache = cache(64);
    for n in 0..50_000 {
        cache.insert(&key(n), b"value").apply().unwrap();
    }
    let met = met(cache.scan().unwrap());
    assert_eq!(met.len(), 50_000);
    assert!(met.values().all(|count| *count == 1));
    cache.verify();
}

#[test]
fn an_empty_cache_has_nothing_to_meet() {
    let cache = cache(64);
    let mut scan = cache.scan().unwrap();
    assert_eq!(scan.progress(), 0.0);
    while scan.advance(|entry| panic!("{:?}", entry.item().key())) {}
    assert_eq!(scan.progress(), 1.0);
    cache.verify();
}

#[test]
fn an_entry_tells_its_value_its_life_and_its_use() {
    let cache = cache(16);
    cache.insert(b"dead", b"").ttl(Ttl::seconds(5)).apply().unwrap();
    cache.insert(b"cold", b"12").ttl(Ttl::seconds(100)).flags(7).apply().unwrap();
    cache.insert(b"hot", b"1").apply().unwrap();
    cache.maintain(Duration::from_secs(10));
    assert!(cache.contains(b"hot"));
    let (cas, mut seen) = (cache.get(b"hot").hit().unwrap().cas(), 0);
    cache.maintain(Duration::from_secs(30));
    let mut scan = cache.scan().unwrap();
    while scan.advance(|entry| {
        seen += 1;
        let item = entry.item();
        match item.key() {
            b"cold" => {
                assert_eq!((item.to_vec(), item.flags(), entry.frequency()), (b"12".to_vec(), 7, 0));
                assert_eq!(item.ttl(), Some(Duration::from_secs(70)));
                assert_eq!((entry.idle(), entry.memory_bytes()), (Duration::from_secs(30), 5 + 4 + 4 + 2));
            }
            b"hot" => {
                assert_eq!((item.cas(), item.ttl(), entry.frequency()), (cas, None, 1));
                let idle = entry.idle().as_secs();
                assert!((1..=20).contains(&idle), "{idle} s");
            }
            other => panic!("{other:?}"),
        }
    }) {}
    assert_eq!(seen, 2);
    cache.verify();
}

#[test]
fn scans_are_limited_and_make_room_when_they_go() {
    let cache = cache(64);
    let mut scans: Vec<Scan> = (0..8).map(|_| cache.scan().unwrap()).collect();
    assert!(matches!(cache.scan(), Err(Error::ScanLimit { limit: 8 })));
    scans.pop();
    scans.push(cache.scan().unwrap());
    assert!(cache.scan().is_err());
    cache.verify();
}

/// The index grows from its smallest size while it is scanned, with the displacements that this takes.
#[test]
fn beside_growth_no_key_is_missed() {
    let cache = cache(64);
    let stored = AtomicU32::new(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..300_000 {
                cache.insert(&key(n), b"").apply().unwrap();
                stored.store(n + 1, Ordering::Release);
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let before = stored.load(Ordering::Acquire);
            let met = met(cache.scan().unwrap());
            for n in 0..before {
                assert!(met.contains_key(&key(n)[..]), "key {n} of {before} was not met");
            }
        }
    });
    let stats = cache.stats();
    assert_eq!((stats.items, stats.evictions), (300_000, 0));
    cache.verify();
}

/// A key that is there after the scan was there all the time, as nobody writes it again.
#[test]
fn beside_evictions_and_deletions_no_key_that_stays_is_missed() {
    let cache = cache(4);
    for n in 0..40_000 {
        cache.insert(&key(n), &[b'x'; 40]).apply().unwrap();
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..2u32 {
            let (cache, done) = (&cache, &done);
            scope.spawn(move || {
                let mut n = 1_000_000 * (writer + 1);
                while !done.load(Ordering::Relaxed) {
                    n += 1;
                    // It is refused while a pinned thread waits for its core for long.
                    let _ = cache.insert(&key(n), &[b'y'; 40]).ttl(Ttl::seconds(1 + n % 1000)).apply();
                    cache.delete(&key(n - 50 - n % 2));
                    cache.get(&key(n % 40_000));
                }
            });
        }
        let missed: Vec<u32> = (0..20)
            .flat_map(|_| {
                let met = met(cache.scan().unwrap());
                let stayed = (0..40_000).filter(|n| cache.contains(&key(*n)));
                stayed.filter(|n| !met.contains_key(&key(*n)[..])).collect::<Vec<_>>()
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        assert!(missed.is_empty(), "{missed:?} stayed and were not met");
    });
    assert!(cache.stats().evictions > 0);
    cache.verify();
}

/// Slow scans, which stand still while displacements go on, cost the index hardly a key.
#[test]
fn scans_that_stand_still_do_not_keep_keys_out() {
    let replaced = |scans: usize| {
        let cache = cache(64);
        cache.insert(b"first", b"").apply().unwrap();
        let mut held = Vec::new();
        for n in 0..300_000u32 {
            cache.insert(&key(n), b"").apply().unwrap();
            if held.len() < scans && (n as usize).is_multiple_of(300_000 / (scans + 1)) {
                let mut scan = cache.scan().unwrap();
                while scan.progress() < 0.5 && scan.advance(|_| ()) {}
                held.push(scan);
            }
        }
        drop(held);
        cache.verify();
        cache.stats().index_replaced
    };
    let (without, with) = (replaced(0), replaced(8));
    assert!(with <= without + 300, "{with} of 300,000 keys lost their place beside scans, {without} without");
}
