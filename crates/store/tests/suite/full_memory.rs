//! Evictions while readers stay pinned.

use crate::common::StoreSubject;
use ebbtide_store::{Error, Mode, Options, Policy, Progress, Ttl, Write};

const NOW_MS: u64 = 5000;

/// A single set. Returns whether there was memory.
fn try_set(subject: &StoreSubject, key: u64, bytes: usize) -> bool {
    let (store, key) = (&subject.store, key.to_le_bytes());
    let value = vec![key[0]; bytes];
    let write = Write {
        key: &key,
        hash: store.hash(&key),
        value: &value,
        flags: 0.into(),
        ttl: Ttl::Never,
        mode: Mode::Set,
        token: None,
    };
    match store.write(&subject.participant, &write, NOW_MS) {
        Ok(_) => true,
        Err(Error::NeedSegment) => false,
        Err(other) => panic!("{other}"),
    }
}

fn set(subject: &StoreSubject, key: u64, bytes: usize) -> bool {
    loop {
        if try_set(subject, key, bytes) {
            return true;
        }
        let progress = subject.store.evict(&subject.participant, NOW_MS);
        if matches!(progress, Progress::Waiting(_) | Progress::Stuck) {
            return false;
        }
    }
}

#[test]
fn compaction_loses_nothing_while_a_reader_stays() {
    let options = Options { memory_bytes: 256 << 10, value_bytes_max: 4000, evicts: false, ..Options::default() };
    let subject = StoreSubject::new(options);
    let store = &subject.store;
    let stored = (0..).take_while(|key| set(&subject, *key, 300)).count() as u64;
    for key in (0..stored).filter(|key| key % 4 != 0) {
        let key = key.to_le_bytes();
        assert!(store.delete(&subject.participant, &key, store.hash(&key), NOW_MS));
    }
    let reader = store.participate();
    let held = store.get(&reader, &0_u64.to_le_bytes(), store.hash(&0_u64.to_le_bytes()), NOW_MS).unwrap();
    for key in 0..stored {
        set(&subject, stored + key, 300);
    }
    drop(held);
    let missing = (0..stored).step_by(4).filter(|key| subject.get(&key.to_le_bytes(), NOW_MS).is_none()).count();
    assert_eq!((missing, store.stats().evictions), (0, 0), "{:?}", store.stats());
    assert!(set(&subject, 2 * stored, 300), "the reader is gone");
    store.verify(&subject.participant, NOW_MS);
}

/// Writes until a store that does not evict is full; deletes about one key of `one_of` and writes again, in rounds.
fn delete_and_refill(memory_bytes: u64, bytes: impl Fn(u64) -> usize, one_of: u64) {
    let options = Options { memory_bytes, value_bytes_max: 64 << 10, evicts: false, ..Options::default() };
    let subject = StoreSubject::new(options);
    let store = &subject.store;
    let mut keys: Vec<u64> = (0..).take_while(|key| set(&subject, *key, bytes(*key))).collect();
    let (mut next, full_bytes) = (keys.len() as u64 + 1, store.stats().live_bytes);
    let segment_bytes = u64::from(store.options().segment_bytes());
    let mut seed = 7u64;
    for _ in 0..4 {
        let before = (store.stats().live_bytes, store.stats().segments_compacted);
        keys.retain(|key| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let is_deleted = (seed >> 33).is_multiple_of(one_of);
            let bytes = key.to_le_bytes();
            assert!(!is_deleted || store.delete(&subject.participant, &bytes, store.hash(&bytes), NOW_MS));
            !is_deleted
        });
        let freed_bytes = before.0 - store.stats().live_bytes;
        assert!(freed_bytes > full_bytes / one_of / 2);
        while set(&subject, next, bytes(next)) {
            keys.push(next);
            next += 1;
        }
        let stats = store.stats();
        // A 64th of each segment, and segments that are open or reserved.
        let rest = memory_bytes / 64 + 2 * segment_bytes;
        assert!(stats.live_bytes + rest > full_bytes, "{} of {full_bytes}: {stats:?}", stats.live_bytes);
        // At most 63 bytes are copied for each that is freed; a run of dead segments counts, too.
        let copied_max = (stats.segments_compacted - before.1) * segment_bytes;
        assert!(copied_max < 70 * (freed_bytes + rest), "{copied_max} for {freed_bytes}");
    }
    assert!(keys.iter().all(|key| subject.get(&key.to_le_bytes(), NOW_MS).is_some()), "nothing alive is lost");
    assert_eq!(store.stats().evictions, 0);
    store.verify(&subject.participant, NOW_MS);
}

#[test]
fn deleted_bytes_return_where_nothing_is_evicted() {
    delete_and_refill(4 << 20, |_| 300, 10);
    delete_and_refill(16 << 20, |_| 60, 20);
    delete_and_refill(16 << 20, |key| 200 + (key % 37) as usize * 100, 20);
    // Two of a segment.
    delete_and_refill(16 << 20, |_| 25_000, 5);
}

#[test]
fn staying_readers_do_not_empty_the_store() {
    let options = Options { memory_bytes: 1 << 20, value_bytes_max: 4000, ..Options::default() };
    let subject = StoreSubject::new(options);
    let store = &subject.store;
    for key in 0..4000 {
        assert!(set(&subject, key, 300));
    }
    let reader = store.participate();
    let pin = reader.pin();
    let before = store.stats().items;
    for key in 4000..8000 {
        set(&subject, key, 300);
    }
    let stats = store.stats();
    assert!(stats.items * 3 > before * 2, "{before} -> {stats:?}");
    drop(pin);
    assert!(set(&subject, 9000, 300), "the reader is gone");
    store.verify(&subject.participant, NOW_MS);
}

#[test]
fn policies_switch_while_the_store_runs() {
    let options = Options { memory_bytes: 2 << 20, policy: Policy::Fifo, value_bytes_max: 8000, ..Options::default() };
    let subject = StoreSubject::new(options);
    let store = &subject.store;
    let is_kept = |first: u64| {
        set(&subject, 0, 500);
        (first..first + 8000).for_each(|key| {
            set(&subject, key, 500);
            subject.get(&0_u64.to_le_bytes(), NOW_MS);
        });
        subject.get(&0_u64.to_le_bytes(), NOW_MS).is_some()
    };
    assert!(!is_kept(1), "FIFO evicts what is used");
    store.set_policy(Policy::Lru).unwrap();
    assert!(store.policy() == Policy::Lru && is_kept(10_000), "LRU keeps it");
    for (turn, policy) in (2..).zip(Policy::ALL.into_iter().chain([Policy::S3Fifo])) {
        store.set_policy(policy).unwrap();
        (turn * 10_000..turn * 10_000 + 6000).for_each(|key| assert!(set(&subject, key, 500), "{policy:?}"));
        while store.maintain(&subject.participant, NOW_MS) == Progress::Working {}
        let stats = store.stats();
        assert!(stats.memory_used_bytes <= 2 << 20 && store.policy() == policy, "{policy:?} {stats:?}");
    }
    store.verify(&subject.participant, NOW_MS);
}
