//! A budget that changes while threads use the store: all that follows it stays within it.

use ebbtide_store::{Error, Mode, Options, Policy, Progress, Store, Ttl, Write};
use ebbtide_testkit::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const NOW_MS: u64 = 1_000_000;
const KEYS: u64 = 200_000;
const OPERATIONS_PER_STEP: u64 = 10_000;
const MIB: u64 = 1 << 20;

fn options(policy: Policy) -> Options {
    Options {
        memory_bytes: 2 * MIB,
        memory_bytes_max: Some(80 * MIB),
        segment_size: Some(8 << 10),
        value_bytes_max: 4000,
        policy,
        ..Options::default()
    }
}

/// Gets of random keys, and sets of those that miss, until the end.
fn use_store(store: &Store, seed: u64, (operations, ends): (&AtomicU64, &AtomicBool)) {
    let (participant, mut random) = (store.participate(), Random::new(seed));
    while !ends.load(Ordering::Relaxed) {
        operations.fetch_add(1, Ordering::Relaxed);
        let number = random.uniform(KEYS);
        let key = number.to_le_bytes();
        let hash = store.hash(&key);
        if store.get(&participant, &key, hash, NOW_MS).is_some() {
            continue;
        }
        let ttl = Ttl::seconds(1 << random.uniform(20));
        let value = [number as u8; 200];
        let write = Write { key: &key, hash, value: &value, flags: 0.into(), ttl, mode: Mode::Set, token: None };
        while let Err(error) = store.write(&participant, &write, NOW_MS) {
            assert!(matches!(error, Error::NeedSegment | Error::NeedSegments { .. }), "{error}");
            if store.evict(&participant, NOW_MS) == Progress::Stuck {
                break;
            }
        }
    }
}

#[test]
fn histories_are_resized_under_use() {
    for policy in [Policy::S3Fifo, Policy::TwoQ, Policy::MergeSketch] {
        let store = Arc::new(Store::new(options(policy)).unwrap());
        let (participant, operations, ends) = (store.participate(), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for seed in 1..4 {
                let (store, operations, ends) = (&store, &operations, &ends);
                scope.spawn(move || use_store(store, seed, (operations, ends)));
            }
            let mut random = Random::new(9);
            for _ in 0..60 {
                let bytes = [2 * MIB, 5 * MIB, 16 * MIB, 40 * MIB, 64 * MIB][random.uniform(5) as usize];
                // A budget that the index does not leave yet is refused.
                let _ = store.resize(bytes);
                let end = operations.load(Ordering::Relaxed) + OPERATIONS_PER_STEP;
                while operations.load(Ordering::Relaxed) < end {
                    store.maintain(&participant, NOW_MS);
                }
                let held = store.held_bytes();
                assert!(!store.resize_done() || held <= store.memory_bytes(), "{held} of {}", store.memory_bytes());
            }
            ends.store(true, Ordering::Relaxed);
        });
        store.resize(64 * MIB).unwrap();
        while store.maintain(&participant, NOW_MS) == Progress::Working {}
        store.verify(&participant, NOW_MS);
    }
}
