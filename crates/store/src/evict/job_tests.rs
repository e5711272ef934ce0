//! Jobs run in slices, with times out of order, and the items that they keep.

use super::execute::SLICE_BYTES;
use super::jobs::Job;
use super::objective::Objective;
use super::policy::{Aging, Policy};
use super::retention::EVICTIONS_WITHOUT_GAIN_MAX;
use crate::epoch::Participant;
use crate::evict::Progress;
use crate::item::ItemAt;
use crate::ops::{Mode, Write};
use crate::options::Options;
use crate::segment::Location;
use crate::store::Store;
use crate::sync::Ordering;
use crate::ttl::Ttl;
use std::sync::Arc;

fn store() -> (Store, Participant) {
    let options = Options { memory_bytes: 1 << 20, value_bytes_max: 1 << 19, ..Options::default() };
    let store = Store::new(options).unwrap();
    let participant = store.participate();
    (store, participant)
}

fn set(store: &Store, participant: &Participant, key: &[u8], ttl: u32, now_ms: u64) -> (ItemAt, u64) {
    let hash = store.hash(key);
    let write =
        Write { key, hash, value: b"value", flags: 0.into(), ttl: Ttl::seconds(ttl), mode: Mode::Set, token: None };
    store.write(participant, &write, now_ms).unwrap();
    (store.get(participant, key, hash, now_ms).unwrap().item_at(), hash)
}

#[test]
fn a_job_continues_with_an_older_time() {
    let (store, participant) = store();
    let (long, _) = set(&store, &participant, b"long", 127, 1000);
    let (short, _) = set(&store, &participant, b"short", 64, 1000);
    assert_eq!(long.at.segment(), short.at.segment());
    let (early, late) = (store.moment(50_000), store.moment(100_000));
    store.chains.seal_open(&store.segments, crate::chains::Seal::All);
    let mut job = store.claim_relocation(long.at.segment(), late).unwrap();
    assert!(!job.run(&store, &participant, late, 1));
    while !job.run(&store, &participant, early, 1) {}
    drop(job);
    assert!(store.get(&participant, b"long", store.hash(b"long"), 100_000).is_some());
    store.verify(&participant, 100_000);
}

#[test]
fn jobs_with_old_times_keep_all_items() {
    let (store, participant) = store();
    // A thread that was interrupted after this.
    let early = store.moment(99_999);
    // As many segments are open as may be: the next TTLs share one, whose byte holds the longest of them just so.
    (8..32).for_each(|octave| _ = set(&store, &participant, &[octave], 1 << octave, 99_999));
    let (item, hash) = set(&store, &participant, b"key", 255, 100_000);
    assert_eq!(item.header.expiry(), u8::MAX, "{item:?}");
    store.seal_open(crate::chains::Seal::All);
    let mut job = store.claim_relocation(item.at.segment(), early).unwrap();
    while !job.run(&store, &participant, early, 1) {}
    drop(job);
    assert_eq!(store.stats().evictions, 0);
    let item = store.get(&participant, b"key", hash, 354_999).expect("it lives for 255 s");
    assert_eq!(item.expiry_seconds(), Some(355));
    drop(item);
    store.verify(&participant, 100_000);
}

#[test]
fn an_item_is_relocated_in_its_last_unit() {
    let (store, participant) = store();
    let (key, hash) = (b"key", store.hash(b"key"));
    // 32 s are a unit: by its expiry byte it has expired at 3584 s.
    let (ttl, mode) = (Ttl::Until(3602), Mode::Set);
    let write = Write { key, hash, value: b"value", flags: 0.into(), ttl, mode, token: None };
    store.write(&participant, &write, 1000).unwrap();
    for now_ms in [3_583_999, 3_584_000, 3_601_999] {
        let moment = store.moment(now_ms);
        store.seal_open(crate::chains::Seal::All);
        let before = store.peek(&participant, key, hash, now_ms).expect("it lives on").item_at();
        let mut job = store.claim_relocation(before.at.segment(), moment).unwrap();
        while !job.run(&store, &participant, moment, 1) {}
        drop(job);
        let item = store.peek(&participant, key, hash, now_ms).expect("it lives on");
        assert_eq!(item.expiry_seconds(), Some(3602));
        assert_ne!(item.item_at().at, before.at, "it was copied");
        drop(item);
        store.verify(&participant, now_ms);
    }
    assert!(store.peek(&participant, key, hash, 3_602_000).is_none());
}

#[test]
fn a_slice_bounds_the_copied_bytes() {
    let options = Options { memory_bytes: 64 << 20, segment_size: Some(1 << 20), ..Options::default() };
    let store = Store::new(options).unwrap();
    let participant = store.participate();
    for number in 0..90u32 {
        let key = number.to_le_bytes();
        let (hash, ttl) = (store.hash(&key), Ttl::Never);
        let write = Write { key: &key, hash, value: &[7; 10_000], flags: 0.into(), ttl, mode: Mode::Set, token: None };
        store.write(&participant, &write, 1000).unwrap();
    }
    store.seal_open(crate::chains::Seal::All);
    let moment = store.moment(1000);
    let segment = store.get(&participant, &[0; 4], store.hash(&[0; 4]), 1000).unwrap().item_at().at.segment();
    let mut job = store.claim_relocation(segment, moment).unwrap();
    let mut before = 0;
    while !job.run(&store, &participant, moment, u32::MAX) {
        let Job::Relocation(relocation) = &job else { panic!("a claim of a move is a relocation") };
        let copied = relocation.destination.as_ref().expect("an item was copied").offset;
        assert!(copied > before && copied - before < 2 * SLICE_BYTES, "{before} {copied}");
        before = copied;
    }
    assert!(before > SLICE_BYTES, "it took more than a slice");
    drop(job);
    store.verify(&participant, 1000);
}

#[test]
fn nothing_is_relocated_across_a_flush() {
    let (store, participant) = store();
    let (item, hash) = set(&store, &participant, b"key", 100, 1000);
    store.flush(1000, 0);
    let moment = store.moment(1000);
    let life = store.lifetime(Ttl::seconds(100), moment).unwrap();
    let reserved = store.reserve(&participant, item.header.size(), life, moment).unwrap();
    let to = Location::new(reserved.segment, reserved.offset);
    assert!(!store.relocate_item(&item, hash, to, reserved.expiry_byte, Aging::None));
    drop(reserved);
    assert!(store.get(&participant, b"key", hash, 1000).is_none());
    store.verify(&participant, 1000);
}

#[test]
fn evictions_whose_segments_writers_take_are_useful() {
    let options =
        Options { memory_bytes: 1 << 20, segment_size: Some(16 << 10), value_bytes_max: 1 << 18, ..Options::default() };
    let store = Store::new(options).unwrap();
    let participant = store.participate();
    let set = |number: u32| {
        let key = number.to_le_bytes();
        let (hash, ttl) = (store.hash(&key), Ttl::Never);
        let write = Write { key: &key, hash, value: &[7; 500], flags: 0.into(), ttl, mode: Mode::Set, token: None };
        while store.write(&participant, &write, 1000).is_err() {
            assert_ne!(store.evict(&participant, 1000), Progress::Stuck);
        }
    };
    let is_there = |number: u32| {
        let key = number.to_le_bytes();
        store.get(&participant, &key, store.hash(&key), 1000).is_some()
    };
    (0..10_000).for_each(set);
    assert!(store.stats().segments_evicted > 2 * u64::from(EVICTIONS_WITHOUT_GAIN_MAX), "{:?}", store.stats());
    // Of a segment three quarters are used.
    let hot = || (10_000..10_600).filter(|number| number % 4 > 0);
    (10_000..10_600).for_each(set);
    (0..3).for_each(|_| assert!(hot().all(is_there)));
    (20_000..30_000).for_each(set);
    assert_eq!(hot().filter(|number| !is_there(*number)).count(), 0, "of {} that are used", hot().count());
    store.verify(&participant, 1000);
}

/// A store with a long and a short item that are used once each and twice as many others as it holds; which of both it
/// keeps.
fn kept_long_and_short(policy: Policy, objective: Objective) -> [bool; 2] {
    let options = Options {
        memory_bytes: 1 << 20,
        segment_size: Some(16 << 10),
        value_bytes_max: 1 << 18,
        policy,
        objective,
        ..Options::default()
    };
    let store = Store::new(options).unwrap();
    let participant = store.participate();
    let set = |number: u32, bytes: usize| {
        let key = number.to_le_bytes();
        let (hash, ttl) = (store.hash(&key), Ttl::Never);
        let write =
            Write { key: &key, hash, value: &vec![7; bytes], flags: 0.into(), ttl, mode: Mode::Set, token: None };
        while store.write(&participant, &write, 1000).is_err() {
            assert_ne!(store.evict(&participant, 1000), Progress::Stuck);
        }
    };
    let get = |number: u32| {
        let key = number.to_le_bytes();
        store.get(&participant, &key, store.hash(&key), 1000).is_some()
    };
    set(0, 4000);
    set(1, 200);
    assert!(get(0) && get(1));
    let first_evictions = store.stats().segments_evicted + 1;
    let mut number = 2;
    // All young segments are evicted once.
    while store.stats().segments_evicted < first_evictions + 20 {
        set(number, 200);
        number += 1;
    }
    store.verify(&participant, 1000);
    [get(0), get(1)]
}

#[test]
fn a_long_item_earns_bytes_but_few_hits() {
    assert_eq!(kept_long_and_short(Policy::S3Fifo, Objective::Objects), [false, true]);
    assert_eq!(kept_long_and_short(Policy::S3Fifo, Objective::Bytes), [true, true]);
}

#[test]
fn lru_keeps_used_items_of_any_size() {
    assert_eq!(kept_long_and_short(Policy::Lru, Objective::Objects), [true, true]);
}

#[test]
fn uses_of_young_items_are_ignored_by_2q() {
    assert_eq!(kept_long_and_short(Policy::TwoQ, Objective::Objects), [false, false]);
}

/// Plays keys that are used once soon after their insertion, and a loop longer than the old segments keep an item. In
/// `pairs` the first ones are never used again; else they are used once more, while old segments would keep them.
fn needs_two_uses_after(pairs: bool) -> bool {
    let options =
        Options { memory_bytes: 1 << 20, segment_size: Some(16 << 10), value_bytes_max: 1 << 18, ..Options::default() };
    let store = Store::new(options).unwrap();
    let participant = store.participate();
    let use_or_set = |number: u32, now: u64| {
        let key = number.to_le_bytes();
        let (hash, ttl) = (store.hash(&key), Ttl::Never);
        if store.get(&participant, &key, hash, now).is_some() {
            return;
        }
        let write = Write { key: &key, hash, value: &[7; 500], flags: 0.into(), ttl, mode: Mode::Set, token: None };
        while store.write(&participant, &write, now).is_err() {
            assert_ne!(store.evict(&participant, now), Progress::Stuck);
        }
    };
    const ONCE: u32 = 1 << 20;
    for number in 1000..31_000 {
        let now = u64::from(number) * 100;
        use_or_set(ONCE + number, now);
        use_or_set(ONCE + number - 50, now);
        match pairs {
            true if number.is_multiple_of(2) => use_or_set(number / 2 % 600, now),
            true => {}
            false => use_or_set(ONCE + number - 600, now),
        }
    }
    store.verify(&participant, 31_000 * 100);
    store.policy_state.history().needs_two_uses()
}

#[test]
fn items_used_in_pairs_need_two_uses() {
    assert!(needs_two_uses_after(true));
}

#[test]
fn items_used_again_need_one_use() {
    assert!(!needs_two_uses_after(false));
}

#[test]
fn only_the_oldest_unused_long_values_are_evicted() {
    let options =
        Options { memory_bytes: 4 << 20, segment_size: Some(4 << 10), value_bytes_max: 1 << 20, ..Options::default() };
    let store = Arc::new(Store::new(options).unwrap());
    let participant = store.participate();
    let get = |number: u32| {
        let key = number.to_le_bytes();
        store.get(&participant, &key, store.hash(&key), 1000).map(|item| item.item_at().at.segment())
    };
    let mut number = 0u32;
    while store.stats().evictions == 0 {
        let key = number.to_le_bytes();
        let make_space = || assert_ne!(store.evict(&participant, 1000), Progress::Stuck);
        let mut upload = store.upload(&key, store.hash(&key), 0.into(), 50_000).unwrap();
        let mut left = &[1; 50_000][..];
        while upload.write(&mut left).is_err() {
            make_space();
        }
        while upload.finish(&participant, Ttl::Never, Mode::Set, None, 1000).is_err() {
            make_space();
        }
        assert!(number > 0 || get(0).is_some(), "the first is used once");
        number += 1;
    }
    assert!(number > 50, "{number} values of 50 KB fit 4 MiB");
    assert!(get(1).is_none() && store.stats().evictions <= 3, "{:?}", store.stats());
    let first = get(0).expect("what was used stays");
    assert_eq!(store.segments.header(first).rounds.load(Ordering::Relaxed), 0);
    assert!((4..number).all(|number| get(number).is_some()));
    store.verify(&participant, 1000);
}
