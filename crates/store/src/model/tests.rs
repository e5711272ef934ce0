use super::*;
use crate::epoch::Participant;
use crate::evict::{Policy, Progress};
use crate::ops::{Mode, Write};
use crate::store::Store;

/// A hash of a number, and a uniform number from it.
fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn unit(value: u64) -> f64 {
    (mix(value) >> 11) as f64 / (1u64 << 53) as f64
}

/// Keys by a power law over `objects`, with sizes and TTLs by their number: (key, value bytes, TTL, now).
fn load(requests: u64, objects: f64, ttls: bool) -> impl Iterator<Item = (u64, u64, Ttl, u64)> {
    (0..requests).map(move |number| {
        let key = (objects.powf(unit(number)) as u64).wrapping_mul(7919) % objects as u64;
        let bytes = 50 + mix(key) % 400;
        let ttl = match mix(key + 1) % 3 {
            _ if !ttls => Ttl::Never,
            0 => Ttl::Seconds(20),
            1 => Ttl::Seconds(300),
            _ => Ttl::Never,
        };
        (key, bytes, ttl, number / 10)
    })
}

fn options(policy: Policy) -> Options {
    Options { memory_bytes: 2 << 20, value_bytes_max: 1 << 20, policy, writers: 1, ..Options::default() }
}

/// A value of any of these lengths.
const VALUE: [u8; 1024] = [7; 1024];

fn evict_fully(store: &Store, participant: &Participant, now_ms: u64) {
    while store.maintain(participant, now_ms) == Progress::Working {}
}

/// The miss ratio of a store of this policy under a load, reads followed by writes.
fn stored_misses(policy: Policy, ttls: bool) -> f64 {
    let store = Store::new(options(policy)).unwrap();
    let participant = store.participate();
    let (mut gets, mut misses) = (0u64, 0u64);
    for (number, (key, bytes, ttl, now_ms)) in load(REQUESTS, OBJECTS, ttls).enumerate() {
        if number % 1024 == 0 {
            evict_fully(&store, &participant, now_ms);
        }
        let key = mix(key).to_le_bytes();
        let hash = store.hash(&key);
        gets += 1;
        if store.get(&participant, &key, hash, now_ms).is_none() {
            misses += 1;
            let value = &VALUE[..bytes as usize];
            let write = Write { key: &key, hash, value, flags: 0.into(), ttl, mode: Mode::Set, token: None };
            while store.write(&participant, &write, now_ms).is_err() {
                assert_ne!(store.evict(&participant, now_ms), Progress::Stuck);
            }
        }
    }
    misses as f64 / gets as f64
}

const REQUESTS: u64 = 150_000;
const OBJECTS: f64 = 40_000.0;

/// The miss ratio that a model predicts of the same load.
fn modelled_misses(policy: Policy, ttls: bool, sample_rate: f64) -> f64 {
    let mut model = SegmentModel::new(options(policy), sample_rate).unwrap();
    let (mut gets, mut misses) = (0u64, 0u64);
    for (number, (key, bytes, ttl, now_ms)) in load(REQUESTS, OBJECTS, ttls).enumerate() {
        if number % 1024 == 0 {
            model.maintain(now_ms);
        }
        if unit(key + (1 << 40)) > sample_rate {
            continue;
        }
        let hash = mix(mix(key));
        gets += 1;
        if !model.get(hash, now_ms) {
            misses += 1;
            model.set(hash, 8, bytes, ttl, now_ms);
        }
    }
    model.verify();
    assert!(model.evictions() > 0);
    assert_eq!(model.predicts(), sample_rate >= 1.0, "a sample of this store is too small");
    misses as f64 / (if sample_rate < 1.0 { REQUESTS as f64 * sample_rate } else { gets as f64 })
}

#[test]
fn the_model_misses_as_the_store() {
    for policy in Policy::ALL {
        let (stored, modelled) = (stored_misses(policy, false), modelled_misses(policy, false, 1.0));
        assert!((stored - modelled).abs() < 0.01, "{policy:?}: {stored:.4} and {modelled:.4}");
    }
}

#[test]
fn the_model_expires_as_the_store() {
    for policy in [Policy::S3Fifo, Policy::Merge] {
        let (stored, modelled) = (stored_misses(policy, true), modelled_misses(policy, true, 1.0));
        assert!((stored - modelled).abs() < 0.01, "{policy:?}: {stored:.4} and {modelled:.4}");
    }
}

#[test]
fn a_sample_misses_as_all_keys() {
    let (all, sampled) = (modelled_misses(Policy::S3Fifo, false, 1.0), modelled_misses(Policy::S3Fifo, false, 0.25));
    assert!((all - sampled).abs() < 0.03, "{all:.4} and {sampled:.4}");
}

#[test]
fn overwrites_and_deletes_free_their_memory() {
    let mut model = SegmentModel::new(options(Policy::S3Fifo), 1.0).unwrap();
    for round in 0..40 {
        for key in 0..2000u64 {
            model.set(mix(key), 8, 400, Ttl::Never, round * 1000);
        }
        model.maintain(round * 1000);
        model.verify();
    }
    assert_eq!((model.objects(), model.evictions()), (2000, 0), "compaction comes before eviction");
    (0..2000).for_each(|key| model.delete(mix(key)));
    assert_eq!(model.objects(), 0);
    model.verify();
}

#[test]
fn an_expired_object_is_gone() {
    let mut model = SegmentModel::new(options(Policy::S3Fifo), 1.0).unwrap();
    model.set(1, 8, 100, Ttl::Seconds(5), 1000);
    assert!(model.get(1, 5999) && !model.get(1, 6000) && !model.contains(1, 6000));
    model.maintain(200_000);
    assert_eq!(model.objects(), 0);
    model.verify();
}

#[test]
fn long_values_fill_bodies() {
    let mut model = SegmentModel::new(options(Policy::S3Fifo), 1.0).unwrap();
    for key in 0..100u64 {
        model.set(mix(key), 8, 200_000, Ttl::Never, key);
        model.maintain(key);
        model.verify();
    }
    assert!((3..10).contains(&model.objects()), "{} values of 200 KB in 2 MiB", model.objects());
}

#[test]
fn a_model_without_meaning_is_refused() {
    for rate in [0.0, 1.5, f64::NAN] {
        assert!(matches!(SegmentModel::new(options(Policy::S3Fifo), rate), Err(Error::Options { .. })), "{rate}");
    }
    let tiny = Options { memory_bytes: 1000, ..options(Policy::S3Fifo) };
    assert!(SegmentModel::new(tiny, 1.0).is_err());
}

/// How long a key lasts that was used eight times, and not any more: the inserts of other keys that it survives, to a
/// third. `is_kept` answers for a number of inserts.
fn survived_inserts(mut is_kept: impl FnMut(u64) -> bool) -> u64 {
    let mut inserts = 3000;
    while inserts < 200_000 && is_kept(inserts) {
        inserts += inserts / 3;
    }
    inserts
}

/// The times of a load: uses of the first key, then inserts.
const USE_MS: u64 = 60_000;
const USES: u64 = 8;

#[test]
fn uses_age_alike_in_model_and_store() {
    for policy in [Policy::S3Fifo, Policy::Lru, Policy::Merge] {
        let modelled = survived_inserts(|inserts| {
            let mut model = SegmentModel::new(options(policy), 1.0).unwrap();
            model.set(mix(0), 8, 400, Ttl::Never, 0);
            (1..=USES).for_each(|number| _ = model.get(mix(0), number * USE_MS));
            for number in 1..=inserts {
                model.set(mix(number), 8, 400, Ttl::Never, USES * USE_MS + number);
            }
            model.contains(mix(0), USES * USE_MS + inserts)
        });
        let stored = survived_inserts(|inserts| {
            let store = Store::new(options(policy)).unwrap();
            let participant = store.participate();
            let set = |number: u64, now_ms: u64| {
                let (key, ttl) = (number.to_le_bytes(), Ttl::Never);
                let hash = store.hash(&key);
                let write =
                    Write { key: &key, hash, value: &VALUE[..400], flags: 0.into(), ttl, mode: Mode::Set, token: None };
                while store.write(&participant, &write, now_ms).is_err() {
                    assert_ne!(store.evict(&participant, now_ms), Progress::Stuck);
                }
            };
            let key = 0_u64.to_le_bytes();
            let get = |now_ms| store.get(&participant, &key, store.hash(&key), now_ms).is_some();
            set(0, 0);
            (1..=USES).for_each(|number| _ = get(number * USE_MS));
            (1..=inserts).for_each(|number| set(number, USES * USE_MS + number));
            get(USES * USE_MS + inserts)
        });
        let (few, many) = (stored.min(modelled), stored.max(modelled));
        assert!(many <= few * 4 / 3 + 1, "{policy:?}: {stored} inserts and {modelled}");
    }
}
