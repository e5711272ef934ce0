//! Flushes beside threads that evict.

use crate::common::StoreSubject;
use ebbtide_store::{Error, Mode, Options, Store, Ttl, Write};
use std::sync::atomic::{AtomicBool, Ordering};

const NOW_MS: u64 = 1000;
const ROUNDS: u32 = 80_000;
const KEYS: u32 = 4;
/// Bytes of an unfinished upload: a sample of the segments takes longer than a flush and the sets after it.
const UPLOAD_BYTES: usize = 7 << 20;
/// Fewer segments than there are, so that a request for them runs evictions.
const SEGMENTS: u32 = 3800;

fn set(subject: &StoreSubject, key: u32) {
    let (store, participant) = (&subject.store, &subject.participant);
    let key = key.to_le_bytes();
    let (hash, ttl) = (store.hash(&key), Ttl::Never);
    let write = Write { key: &key, hash, value: &[7; 3000], flags: 0.into(), ttl, mode: Mode::Set, token: None };
    while let Err(error) = store.write(participant, &write, NOW_MS) {
        assert_eq!(error, Error::NeedSegment);
        store.evict(participant, NOW_MS);
    }
}

/// Requests memory for a value of nearly all segments, again and again.
fn make_space(store: &Store, is_over: &AtomicBool) {
    let participant = store.participate();
    while !is_over.load(Ordering::Relaxed) {
        store.evict_for(&participant, NOW_MS, SEGMENTS);
        std::thread::yield_now();
    }
}

#[test]
fn items_stored_after_a_flush_stay() {
    let options = Options {
        memory_bytes: 16 << 20,
        segment_size: Some(4 << 10),
        value_bytes_max: UPLOAD_BYTES as u64,
        evicts: false,
        ..Options::default()
    };
    let subject = StoreSubject::new(options);
    let store = &*subject.store;
    let mut upload = subject.store.upload(b"long", store.hash(b"long"), 0.into(), UPLOAD_BYTES as u64).unwrap();
    upload.write(&mut &vec![7; UPLOAD_BYTES][..]).unwrap();
    let is_over = AtomicBool::new(false);
    let lost: usize = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| make_space(store, &is_over));
        }
        let lost = (0..ROUNDS).map(|_| {
            store.flush(NOW_MS, 0);
            (0..KEYS).for_each(|key| set(&subject, key));
            (0..KEYS).filter(|key| subject.get(&key.to_le_bytes(), NOW_MS).is_none()).count()
        });
        let lost = lost.sum();
        is_over.store(true, Ordering::Relaxed);
        lost
    });
    drop(upload);
    assert_eq!((lost, store.stats().evictions), (0, 0));
    assert!(store.stats().segments_total > SEGMENTS.into());
    store.verify(&subject.participant, NOW_MS);
}
