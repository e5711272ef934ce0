//! Scans, beside nothing, beside growth, beside evictions.

use ebbtide::memcached::{ByteSize, Cache, Clock, Error, FlashOptions, Scan, Ttl};
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

/// Number of visits of each key.
fn met(mut scan: Scan) -> HashMap<Vec<u8>, u32> {
    let mut met: HashMap<Vec<u8>, u32> = HashMap::new();
    while scan.advance(|entry| *met.entry(entry.key().to_vec()).or_default() += 1) {}
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
    while scan.advance(|entry| panic!("{:?}", entry.key())) {}
    assert_eq!(scan.progress(), 1.0);
    cache.verify();
}

#[test]
fn scan_entries_report_value_ttl_and_use() {
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
        let item = entry.item().expect("it is in memory");
        match item.key() {
            b"cold" => {
                assert_eq!((item.to_vec(), item.flags(), entry.frequency()), (b"12".to_vec(), 7, 0));
                assert_eq!(item.ttl(), Some(Duration::from_secs(70)));
                assert_eq!((entry.idle(), entry.stored_bytes()), (Some(Duration::from_secs(30)), 5 + 4 + 4 + 2));
                assert_eq!((entry.to_vec(), entry.len(), entry.ttl()), (Some(b"12".to_vec()), 2, item.ttl()));
            }
            b"hot" => {
                assert_eq!((item.cas(), item.ttl(), entry.frequency()), (cas, None, 1));
                let idle = entry.idle().expect("it is in memory").as_secs();
                assert!((1..=20).contains(&idle), "{idle} s");
            }
            other => panic!("{other:?}"),
        }
    }) {}
    assert_eq!(seen, 2);
    cache.verify();
}

#[test]
fn dropped_scans_free_their_limited_places() {
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

/// Over flash, with small and large objects.
fn over_flash(folder: &std::path::Path, objects: u32) -> Cache {
    // No object is dropped for being alone in its page.
    let options = FlashOptions { rewrite_threshold: 1, ..FlashOptions::default() };
    let builder = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual);
    let cache = builder.flash(folder.join("flash"), ByteSize::mib(64)).flash_options(options).build().unwrap();
    for n in 0..objects {
        let ttl = if n.is_multiple_of(3) { Ttl::seconds(1000) } else { Ttl::Never };
        cache.insert(&key(n), &value(n)).flags(n).ttl(ttl).apply().unwrap();
    }
    cache
}

fn value(n: u32) -> Vec<u8> {
    vec![n as u8; if n.is_multiple_of(40) { 9000 } else { 250 + n as usize % 200 }]
}

#[test]
fn memory_and_flash_are_one_to_a_scan() {
    const OBJECTS: u32 = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let cache = over_flash(folder.path(), OBJECTS);
    cache.maintain(Duration::from_secs(10));
    let numbers: HashMap<Vec<u8>, u32> = (0..OBJECTS).map(|n| (key(n).to_vec(), n)).collect();
    for round in 0..2 {
        let (mut met, mut below, mut waited) = (HashMap::new(), 0, false);
        let mut scan = cache.scan().unwrap();
        loop {
            waited |= scan.waits();
            let is_above = !scan.waits();
            let goes_on = scan.advance(|entry| {
                let n = numbers[entry.key()];
                *met.entry(n).or_insert(0) += 1;
                assert_eq!((entry.to_vec(), entry.flags()), (Some(value(n)), n));
                // Neighbours in memory share the fraction of their lives.
                assert_eq!(
                    entry.ttl().map(|ttl| (985..=990).contains(&ttl.as_secs())),
                    (n.is_multiple_of(3)).then_some(true)
                );
                assert_eq!(entry.item().is_some(), is_above, "memory's copy counts, and was met in memory");
                if entry.item().is_none() {
                    assert_eq!((entry.stored_bytes(), entry.idle()), (8 + entry.len(), None));
                    below += 1;
                }
            });
            assert!((0.0..=1.0).contains(&scan.progress()));
            if !goes_on {
                break;
            }
        }
        assert!(waited && below > 5000, "{below} on flash, round {round}");
        assert!(met.values().all(|&times| times == 1), "an entry was met more than once");
        drop(scan);
        let found: Vec<u32> = (0..OBJECTS).filter(|n| cache.contains(&key(*n))).collect();
        assert!(found.len() > OBJECTS as usize / 100 * 95, "{} found", found.len());
        // Objects promoted by these lookups are in both tiers in the next round, and others were evicted for them.
        let missed: Vec<_> = found.iter().filter(|n| !met.contains_key(n)).collect();
        assert!(missed.is_empty(), "{missed:?} were not met");
        cache.maintain(Duration::from_secs(10));
    }
    cache.verify();
}

#[test]
fn a_scan_visits_promoted_but_not_deleted_keys() {
    let folder = tempfile::tempdir().unwrap();
    let cache = over_flash(folder.path(), 20_000);
    let mut met: HashMap<Vec<u8>, u32> = HashMap::new();
    let mut scan = cache.scan().unwrap().without_long_values();
    while !scan.waits() {
        scan.advance(|entry| *met.entry(entry.key().to_vec()).or_default() += 1);
    }
    let below = |n: &u32| !met.contains_key(&key(*n)[..]);
    let (promoted, rest): (Vec<u32>, Vec<u32>) = (0..20_000).filter(below).take(2000).partition(|n| n % 2 == 0);
    let promoted: Vec<u32> = promoted.into_iter().filter(|n| cache.contains(&key(*n))).collect();
    assert!(promoted.len() > 900, "{} were promoted", promoted.len());
    for n in &rest {
        cache.delete(&key(*n));
    }
    while scan.advance(|entry| *met.entry(entry.key().to_vec()).or_default() += 1) {}
    let missed: Vec<&u32> = promoted.iter().filter(|n| !met.contains_key(&key(**n)[..])).collect();
    assert!(missed.is_empty(), "{missed:?} were promoted, and were not met");
    let stale: Vec<&u32> = rest.iter().filter(|n| met.contains_key(&key(**n)[..])).collect();
    assert!(stale.is_empty(), "{stale:?} were deleted, and met");
    drop(scan);
    let mut scan = cache.scan().unwrap();
    while !scan.waits() {
        scan.advance(|_| ());
    }
    cache.flush(Duration::ZERO);
    while scan.advance(|entry| panic!("{:?} was flushed", entry.key())) {}
    let mut scans: Vec<Scan> = (0..7).map(|_| cache.scan().unwrap()).collect();
    assert!(
        matches!(cache.scan(), Err(Error::ScanLimit { limit: 8 })),
        "the one that has ended counts until it is dropped"
    );
    drop(scan);
    scans.push(cache.scan().unwrap());
    cache.verify();
}

/// A key that is there after the scan was there all the time, because it is not written again.
#[test]
fn scans_beside_changes_miss_no_staying_key() {
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

/// Slow scans that pause while displacements continue cost the index few keys.
#[test]
fn idle_scans_do_not_keep_keys_out() {
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
