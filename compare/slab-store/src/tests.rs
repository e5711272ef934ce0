//! Small cases for each eviction, and beside the reference policies of the lab.

use std::collections::HashMap;

use ebbtide_lab::reference::Reference;

use crate::{Eviction, Hyperbolic, Lhd, NEVER, Ranking, Sampled, SegmentedLru, SlabEviction, SlabStore, VictimSlab};

const MEMORY: u64 = 1 << 20;
const LARGEST: u64 = 4096;
/// Requests between two reconfigurations of LHD in so small a cache.
const PERIOD: u32 = 1 << 14;

fn key(number: u64) -> Vec<u8> {
    format!("key:{number:012}").into_bytes()
}

/// A value that no other key has.
fn value(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (number as usize * 31 + at) as u8).collect()
}

fn lhd() -> Sampled<Lhd> {
    Sampled::new(Lhd::new(MEMORY, PERIOD))
}

/// A look-aside get of a value of `bytes`. True for a hit.
fn request<E: Eviction>(store: &mut SlabStore<E>, number: u64, bytes: usize) -> bool {
    let (key, value) = (key(number), value(number, bytes));
    let mut out = Vec::new();
    let hit = store.get(&key, &mut out);
    if hit {
        assert_eq!(out, value, "value of {number}");
    } else {
        assert!(store.set(&key, &value, NEVER), "{number} is stored");
    }
    hit
}

fn has<E: Eviction>(store: &mut SlabStore<E>, number: u64) -> bool {
    store.get(&key(number), &mut Vec::new())
}

macro_rules! for_each_eviction {
    ($check:ident) => {
        $check(SegmentedLru::new(false));
        $check(SegmentedLru::new(true));
        $check(SlabEviction::new(VictimSlab::Random));
        $check(SlabEviction::new(VictimSlab::LeastRecentlyUsed));
        $check(Sampled::new(Hyperbolic));
        $check(lhd());
    };
}

#[test]
fn objects_are_stored_replaced_expired_and_deleted() {
    fn check<E: Eviction>(eviction: E) {
        let mut store = SlabStore::new(MEMORY, LARGEST, eviction);
        let mut out = Vec::new();
        assert!(store.set(b"a", b"first", 10) && store.set(b"b", b"", NEVER) && store.set(b"a", b"second, longer", 10));
        assert!(store.get(b"a", &mut out) && out == b"second, longer");
        assert!(store.get(b"b", &mut out) && out.is_empty());
        store.advance(9);
        assert!(store.get(b"a", &mut out) && !store.get(b"c", &mut out));
        store.advance(10);
        assert!(!store.get(b"a", &mut out) && store.get(b"b", &mut out));
        assert!(store.delete(b"b") && !store.delete(b"b") && store.is_empty());
        assert!(store.set(b"b", b"old", NEVER) && !store.set(b"b", &[0; 1 << 20], NEVER), "larger than a page");
        assert!(!store.get(b"b", &mut out), "a set that fails removes the old value");
        store.verify();
    }
    for_each_eviction!(check);
}

#[test]
fn mixed_sizes_leave_consistent_slabs() {
    fn check<E: Eviction>(eviction: E) {
        let mut store = SlabStore::new(MEMORY, LARGEST, eviction);
        let (mut seed, mut hits, mut last) = (1_u64, 0, HashMap::new());
        for number in 0..60_000_u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let uniform = (seed >> 40) as f64 / (1_u64 << 24) as f64;
            let object = (uniform.powi(3) * 20_000.0) as u64;
            // The large objects are those of the second half.
            let bytes = if number < 30_000 { 20 + object % 80 } else { 20 + object % 3000 };
            let (key, value) = (key(object), value(object, bytes as usize));
            let mut out = Vec::new();
            store.advance(number / 100);
            match seed >> 60 {
                0 => _ = store.delete(&key),
                _ if store.get(&key, &mut out) => {
                    assert_eq!(Some(&out), last.get(&object), "value of {object}");
                    hits += 1;
                }
                _ => {
                    assert!(store.set(&key, &value, number / 100 + 1 + (object % 200) as u32));
                    last.insert(object, value);
                }
            }
            if number % 10_000 == 0 {
                store.verify();
            }
        }
        store.verify();
        assert!(hits > 10_000, "{hits}");
    }
    for_each_eviction!(check);
}

#[test]
fn objects_that_fit_are_missed_once() {
    fn check<E: Eviction>(eviction: E) {
        let mut store = SlabStore::new(MEMORY, LARGEST, eviction);
        let misses = (0..3000).filter(|number| !request(&mut store, number % 1000, 500)).count();
        assert_eq!(misses, 1000);
    }
    for_each_eviction!(check);
}

#[test]
fn a_victim_slab_loses_all_its_objects() {
    let mut store = SlabStore::new(MEMORY, 100, SlabEviction::new(VictimSlab::Random));
    let mut number = 0;
    let mut before = 0;
    while store.len() >= before {
        before = store.len();
        request(&mut store, number, 100);
        number += 1;
    }
    // Pages of 4 KiB, chunks of 176 bytes for 38 + 16 + 100.
    assert_eq!((before, store.len()), (256 * 23, 256 * 23 - 23 + 1));
    store.verify();
}

/// Requests for many objects, few of which are used often, with a loop now and then.
fn skewed_requests() -> impl Iterator<Item = u64> {
    let mut seed = 1_u64;
    (0..200_000_u64).map(move |number| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (seed >> 40) as f64 / (1_u64 << 24) as f64;
        match number % 10_000 {
            ..2000 => 100_000 + number % 9000,
            _ => (uniform * uniform * uniform * 50_000.0) as u64,
        }
    })
}

fn hits<E: Eviction>(bytes: usize, eviction: E) -> (usize, SlabStore<E>) {
    let mut store = SlabStore::new(MEMORY, LARGEST, eviction);
    let hits = skewed_requests().filter(|&number| request(&mut store, number, bytes)).count();
    store.verify();
    (hits, store)
}

/// Hits of a reference policy with space for this many of these objects.
fn reference_hits(name: &str, objects: u64) -> usize {
    let mut cache = Reference::from_name(name).unwrap().cache(objects);
    skewed_requests().filter(|&number| cache.get(number, 1, u64::MAX)).count()
}

#[test]
fn slabs_of_one_object_are_an_exact_lru() {
    let mut store = SlabStore::new(MEMORY, 16_000, SlabEviction::new(VictimSlab::LeastRecentlyUsed));
    let found = skewed_requests().filter(|&number| request(&mut store, number % 1000, 16_000)).count();
    let mut cache = Reference::Lru.cache(64);
    assert_eq!(found, skewed_requests().filter(|&number| cache.get(number % 1000, 1, u64::MAX)).count());
    assert_eq!(store.len(), 64);
}

/// Hits of libCacheSim 0.3.5 with these requests: bytes of a value, the objects that fit, hits.
const HYPERBOLIC_OF_LIBCACHESIM: [(usize, usize, usize); 2] = [(100, 5888, 51_832), (298, 2944, 38_345)];

#[test]
fn hyperbolic_hits_as_often_as_that_of_libcachesim() {
    for (bytes, objects, expected) in HYPERBOLIC_OF_LIBCACHESIM {
        let (found, store) = hits(bytes, Sampled::new(Hyperbolic));
        let error = found.abs_diff(expected) as f64 / 200_000.0;
        assert!(store.len() == objects && error < 0.005, "{} objects: {found} hits, {expected} expected", store.len());
    }
}

#[test]
fn lhd_learns_at_least_what_its_reference_does() {
    for bytes in [100, 298] {
        let (found, store) = hits(bytes, lhd());
        let expected = reference_hits("lhd", store.len() as u64);
        assert!(found > expected, "{} objects: {found} hits, {expected} of the reference", store.len());
    }
}

#[test]
fn segments_of_an_lru_withstand_loops() {
    let (found, store) = hits(100, SegmentedLru::new(false));
    let lru = reference_hits("lru", store.len() as u64);
    assert!(found > lru + 2000, "{found} hits, {lru} of an LRU");
}

#[test]
fn objects_asked_for_twice_survive_a_scan() {
    let mut store = SlabStore::new(MEMORY, LARGEST, SegmentedLru::new(false));
    let scan =
        |store: &mut SlabStore<_>, from| (from..from + 20_000).for_each(|number| _ = request(store, number, 100));
    scan(&mut store, 10_000);
    (0..3).for_each(|_| (0..1000).for_each(|number| _ = request(&mut store, number, 100)));
    scan(&mut store, 40_000);
    // WARM may have two fifths of the 5000 objects.
    assert_eq!((0..1000).filter(|&number| has(&mut store, number)).count(), 1000);
    store.verify();
}

#[test]
fn only_the_crawler_frees_all_expired_objects() {
    let left = |crawler| {
        let mut store = SlabStore::new(MEMORY, LARGEST, SegmentedLru::new(crawler));
        for number in 0..1000 {
            // The lasting ones were stored last: they are not behind the others in any queue.
            let expiry = if number < 500 { 100 } else { NEVER };
            assert!(store.set(&key(999 - number), &value(number, 100), expiry));
        }
        (1..300).for_each(|now| store.advance(now));
        store.verify();
        store.len()
    };
    assert_eq!((left(true), left(false)), (500, 1000));
}

#[test]
fn pages_follow_the_load_with_their_objects() {
    let mut store = SlabStore::new(MEMORY, LARGEST, SegmentedLru::new(false));
    let mut now = 0;
    // Small objects fill the memory. Then large ones are requested, a working set of half of it, and few small ones.
    (0..9000).for_each(|number| _ = request(&mut store, number, 20));
    let mut misses = 0;
    for round in 0..60 {
        misses = 0;
        for number in 0..400 {
            now += 1;
            store.advance(now);
            misses += usize::from(!request(&mut store, 100_000 + number, 1000));
            request(&mut store, (round * 400 + number) % 50, 20);
        }
    }
    store.verify();
    assert_eq!(misses, 0);
    assert!((0..50).all(|number| has(&mut store, number)));
}

fn survivors<R: Ranking>(ranking: R) -> usize {
    let mut store = SlabStore::new(MEMORY, LARGEST, Sampled::new(ranking));
    let mut scan = 10_000;
    for _ in 0..30 {
        for number in 0..500 {
            request(&mut store, number, 100);
            for _ in 0..4 {
                request(&mut store, scan, 100);
                scan += 1;
            }
        }
    }
    store.verify();
    (0..500).filter(|&number| has(&mut store, number)).count()
}

#[test]
fn rankings_keep_objects_that_are_used() {
    assert!(survivors(Hyperbolic) > 495);
    assert!(survivors(Lhd::new(MEMORY, PERIOD)) > 495);
}

#[test]
fn a_cycle_frees_most_expired_objects() {
    let mut store = SlabStore::new(MEMORY, LARGEST, Sampled::new(Hyperbolic));
    for number in 0..3000 {
        assert!(store.set(&key(number), &value(number, 100), if number % 2 == 0 { 100 } else { NEVER }));
    }
    // A cycle ends when few of its draws have expired, and the next one needs requests.
    for now in 100..120 {
        store.advance(now);
        (0..128).for_each(|_| _ = has(&mut store, 1));
    }
    // A tenth of those that are left may have expired.
    assert!(store.len() < 1500 + 300, "{}", store.len());
    store.verify();
}
