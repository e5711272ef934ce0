//! Listeners of removals.

use crate::common::StoreSubject;
use ebbtide_store::{Cause, Mode, Options, Progress, Ttl, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

fn set(subject: &StoreSubject, key: u64, bytes: usize, ttl: Ttl, now_ms: u64) {
    let (store, key) = (&subject.store, key.to_le_bytes());
    let (hash, value) = (store.hash(&key), vec![7; bytes]);
    let write = Write { key: &key, hash, value: &value, flags: 0.into(), ttl, mode: Mode::Set, token: None };
    subject.retry_with_eviction(now_ms, || store.write(&subject.participant, &write, now_ms)).unwrap();
}

/// Drops everything that is dead at this time.
fn empty(subject: &StoreSubject, now_ms: u64) {
    while subject.store.maintain(&subject.participant, now_ms) == Progress::Working {}
    subject.store.verify(&subject.participant, now_ms);
    let stats = subject.store.stats();
    assert_eq!((stats.items, stats.segments_free), (0, stats.segments_total));
}

#[test]
fn a_panicking_listener_ends_only_its_call() {
    let options = Options { memory_bytes: 1 << 20, seed: 3, value_bytes_max: 1 << 10, ..Options::default() };
    let subject = StoreSubject::new(options);
    let store = &subject.store;
    let (causes, told) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
    let sink_causes = Arc::clone(&causes);
    assert!(store.on_removal(move |removed| {
        let mut causes = sink_causes.lock().unwrap();
        if !causes.contains(&removed.cause) {
            causes.push(removed.cause);
            drop(causes);
            panic!("the first of a cause");
        }
    }));
    let count = Arc::clone(&told);
    assert!(store.on_removal(move |_| _ = count.fetch_add(1, Ordering::Relaxed)));
    // The index is small when the short items arrive, and must grow in a full memory.
    (0..2000).for_each(|key| set(&subject, key, 1000, Ttl::Never, 1000));
    (2000..100_000).for_each(|key| set(&subject, key, 1, Ttl::Never, 1000));
    let replaced = store.stats().index_replaced;
    store.verify(&subject.participant, 1000);
    store.flush(1000, 0);
    empty(&subject, 1000);
    (0..1000).for_each(|key| set(&subject, key, 1, Ttl::Seconds(5), 2000));
    empty(&subject, 10_000);
    let stats = store.stats();
    assert_eq!(told.load(Ordering::Relaxed), stats.evictions + stats.expired, "the other one is told of all");
    let causes = causes.lock().unwrap();
    for cause in [Cause::Memory, Cause::Flushed, Cause::Expired] {
        assert!(causes.contains(&cause), "{causes:?}");
    }
    assert_eq!(causes.contains(&Cause::IndexFull), replaced > 0);
}
