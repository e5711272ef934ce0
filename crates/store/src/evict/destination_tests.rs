//! Destinations that jobs share: survivors of evictions, and the items that relocations copy.

use crate::chains::Seal;
use crate::epoch::Participant;
use crate::evict::Progress;
use crate::ops::{Mode, Write};
use crate::options::Options;
use crate::segment::SegmentId;
use crate::store::Store;
use crate::sync::Ordering;
use crate::ttl::Ttl;

fn store() -> (Store, Participant) {
    let options = Options { memory_bytes: 1 << 20, value_bytes_max: 1 << 19, ..Options::default() };
    let store = Store::new(options).unwrap();
    let participant = store.participate();
    (store, participant)
}

fn set(store: &Store, participant: &Participant, number: u32, ttl: u32, now_ms: u64) {
    let key = number.to_le_bytes();
    let (hash, ttl) = (store.hash(&key), Ttl::seconds(ttl));
    let write = Write { key: &key, hash, value: &[7; 500], flags: 0.into(), ttl, mode: Mode::Set, token: None };
    while store.write(participant, &write, now_ms).is_err() {
        assert_ne!(store.evict(participant, now_ms), Progress::Stuck);
    }
}

fn get(store: &Store, participant: &Participant, number: u32, now_ms: u64) -> bool {
    let key = number.to_le_bytes();
    store.get(participant, &key, store.hash(&key), now_ms).is_some()
}

/// Writes objects of which every tenth is used, until there are survivors. Returns the number written.
fn until_some_survive(store: &Store, participant: &Participant, ttl: u32, now_ms: u64) -> u32 {
    let mut number = 0;
    while store.policy_state.survivors.count() == 0 {
        set(store, participant, number, ttl, now_ms);
        if number.is_multiple_of(10) {
            get(store, participant, number, now_ms);
        }
        number += 1;
        assert!(number < 100_000, "nothing survives");
    }
    number
}

#[test]
fn a_used_item_of_segment_size_survives() {
    let (store, participant) = store();
    let value = vec![7; store.contiguous_value_bytes(4)];
    for number in 0..1000u32 {
        let key = number.to_le_bytes();
        let (hash, ttl) = (store.hash(&key), Ttl::Never);
        let write = Write { key: &key, hash, value: &value, flags: 0.into(), ttl, mode: Mode::Set, token: None };
        while store.write(&participant, &write, 1000).is_err() {
            assert_ne!(store.evict(&participant, 1000), Progress::Stuck);
        }
        assert!(get(&store, &participant, 0, 1000), "it is used all the time, {number} later");
    }
    assert!(store.stats().evictions > 900);
    store.verify(&participant, 1000);
}

#[test]
fn writes_wait_briefly_when_all_are_used() {
    let options = Options { memory_bytes: 4 << 20, segment_size: Some(4 << 10), ..Options::default() };
    let store = Store::new(options).unwrap();
    let participant = store.participate();
    let mut steps_max = 0;
    for number in 0..1500u32 {
        let key = number.to_le_bytes();
        let (hash, ttl) = (store.hash(&key), Ttl::Never);
        let write = Write { key: &key, hash, value: &[7; 3000], flags: 0.into(), ttl, mode: Mode::Set, token: None };
        let mut steps = 0;
        while store.write(&participant, &write, 1000).is_err() {
            assert_ne!(store.evict(&participant, 1000), Progress::Stuck);
            steps += 1;
        }
        steps_max = steps.max(steps_max);
        get(&store, &participant, number, 1000);
    }
    assert!(steps_max < 100, "{steps_max} evictions before one write");
    store.verify(&participant, 1000);
}

#[test]
fn survivors_of_many_evictions_share_a_segment() {
    let (store, participant) = store();
    let written = until_some_survive(&store, &participant, 10_000, 1000);
    let evicted_before = store.stats().segments_evicted;
    let mut segments = std::collections::HashSet::new();
    for number in written..written + 300 {
        set(&store, &participant, number, 10_000, 1000);
        get(&store, &participant, number / 10 * 10, 1000);
        store.policy_state.survivors.each(|segment, _| {
            segments.insert(segment);
        });
    }
    let evicted = store.stats().segments_evicted - evicted_before;
    assert!(evicted >= 6 && segments.len() as u64 <= evicted / 3, "{segments:?} after {evicted} evictions");
    assert!((0..50).step_by(10).all(|number| get(&store, &participant, number, 1000)), "what was used has stayed");
    store.verify(&participant, 1000);
}

#[test]
fn survivors_of_each_ttl_have_a_segment() {
    let (store, participant) = store();
    let lives = [100, 10_000, 1_000_000];
    let mut open_max = 0;
    for number in 0..12_000u32 {
        set(&store, &participant, number, lives[number as usize % 3], 1000);
        get(&store, &participant, number / 30 * 10, 1000);
        open_max = store.policy_state.survivors.count().max(open_max);
    }
    assert_eq!(open_max, 3);
    store.verify(&participant, 1000);
}

#[test]
fn an_open_destination_is_sealed_when_due() {
    let (store, participant) = store();
    until_some_survive(&store, &participant, 100, 1000);
    store.maintain(&participant, 1500);
    let open = || {
        let mut segments = Vec::new();
        store.policy_state.survivors.each(|segment, _| segments.push(segment));
        segments
    };
    let early = open();
    assert_eq!(early.len(), 1);
    let later_ms = 1000 + store.chains.scale.open_ms(store.chains.scale.bucket(100), true);
    store.maintain(&participant, later_ms);
    assert!(!open().contains(&early[0]), "another may be open by now");
    while store.maintain(&participant, 102_000) == Progress::Working {}
    assert_eq!((store.stats().items, store.stats().segments_open), (0, 0));
    store.verify(&participant, 102_000);
}

#[test]
fn survivors_do_not_outlive_a_flush() {
    let (store, participant) = store();
    let written = until_some_survive(&store, &participant, 10_000, 1000);
    store.flush(1000, 0);
    for number in 0..written {
        assert!(!get(&store, &participant, number, 1000));
        set(&store, &participant, number, 10_000, 1000);
        get(&store, &participant, number, 1000);
    }
    while store.maintain(&participant, 1000) == Progress::Working {}
    store.verify(&participant, 1000);
    assert!(store.stats().items > 0);
}

/// The value of this number in a round: its length differs each time.
fn value(number: u32, round: u32) -> Vec<u8> {
    vec![(number ^ round) as u8; 300 + (number * 7 + round * 131) as usize % 900]
}

fn overwrite(store: &Store, participant: &Participant, number: u32, round: u32) {
    let key = number.to_le_bytes();
    let (hash, ttl, value) = (store.hash(&key), Ttl::Never, value(number, round));
    let write = Write { key: &key, hash, value: &value, flags: 0.into(), ttl, mode: Mode::Set, token: None };
    let mut steps = 0;
    while store.write(participant, &write, 1000).is_err() {
        assert_ne!(store.evict(participant, 1000), Progress::Stuck, "{:?}", store.stats());
        steps += 1;
        assert!(steps < 100, "a write does not wait for more: {:?}", store.stats());
    }
}

/// Overwrites objects that fill a share of the memory, in several orders.
fn is_all_there_after_overwrites(evicts: bool, share: f64) -> Store {
    let options = Options { memory_bytes: 4 << 20, value_bytes_max: 1 << 19, evicts, ..Options::default() };
    let store = Store::new(options).unwrap();
    let participant = store.participate();
    let capacity = store.segments.limit() * store.segments.segment_bytes();
    let count = (f64::from(capacity) * share / 780.0) as u32;
    let mut last = vec![0; count as usize];
    for round in 0..12u32 {
        let stride = [1, 7, 389, 1009][round as usize % 4];
        for step in 0..count {
            let number = step * stride % count;
            overwrite(&store, &participant, number, round);
            last[number as usize] = round;
        }
    }
    for number in 0..count {
        let key = number.to_le_bytes();
        let item = store.get(&participant, &key, store.hash(&key), 1000).expect("nothing was lost");
        let mut found = Vec::new();
        item.copy_to(&mut found);
        assert_eq!(found, value(number, last[number as usize]));
    }
    store.verify(&participant, 1000);
    store
}

#[test]
fn overwritten_bytes_are_freed_before_evictions() {
    let store = is_all_there_after_overwrites(true, 0.7);
    let stats = store.stats();
    assert_eq!(stats.evictions, 0, "{stats:?}");
}

#[test]
fn a_nearly_full_store_without_evictions_takes_overwrites() {
    is_all_there_after_overwrites(false, 0.85);
}

/// Writes 30 objects to a segment and seals it; then deletes all but those with these numbers.
fn sparse(store: &Store, participant: &Participant, from: u32, kept: std::ops::Range<u32>) -> SegmentId {
    (from..from + 30).for_each(|number| set(store, participant, number, 10_000, 1000));
    store.chains.seal_open(&store.segments, Seal::All);
    for number in (from..from + 30).filter(|number| !kept.contains(number)) {
        let key = number.to_le_bytes();
        store.delete(participant, &key, store.hash(&key), 1000);
    }
    segment_of(store, participant, kept.start)
}

fn segment_of(store: &Store, participant: &Participant, number: u32) -> SegmentId {
    let key = number.to_le_bytes();
    store.get(participant, &key, store.hash(&key), 1000).expect("it is there").item_at().at.segment()
}

fn compact(store: &Store, participant: &Participant, segment: SegmentId) {
    let moment = store.moment(1000);
    let mut job = store.claim_relocation(segment, moment).expect("a segment is free");
    while !job.run(store, participant, moment, 1) {}
}

#[test]
fn a_compaction_continues_in_the_open_destination() {
    let (store, participant) = store();
    let older = sparse(&store, &participant, 0, 0..5);
    let younger = sparse(&store, &participant, 100, 100..105);
    let stamp = |segment| store.segments.header(segment).stamp.load(Ordering::Relaxed);
    let stamps = (stamp(older), stamp(younger));
    compact(&store, &participant, younger);
    let open = segment_of(&store, &participant, 100);
    assert_eq!(stamp(open), stamps.1);
    compact(&store, &participant, older);
    assert_eq!((segment_of(&store, &participant, 0), stamp(open)), (open, stamps.0));
    let youngest = sparse(&store, &participant, 200, 200..205);
    compact(&store, &participant, youngest);
    assert_eq!((segment_of(&store, &participant, 200), stamp(open)), (open, stamps.0));
    let old = sparse(&store, &participant, 300, 300..305);
    store.segments.header(old).rounds.store(1, Ordering::Relaxed);
    compact(&store, &participant, old);
    assert_ne!(segment_of(&store, &participant, 300), open, "one is young, the other old");
    store.verify(&participant, 1000);
}

#[test]
fn compacted_items_are_evicted_in_their_turn() {
    let options =
        Options { memory_bytes: 2 << 20, policy: crate::Policy::Fifo, value_bytes_max: 1 << 19, ..Options::default() };
    let store = Store::new(options).unwrap();
    let participant = store.participate();
    let first = sparse(&store, &participant, 0, 0..5);
    (100..130).for_each(|number| set(&store, &participant, number, 10_000, 1000));
    compact(&store, &participant, first);
    assert_eq!(store.maintenance.compacted.count(), 1);
    let mut number = 130;
    while store.stats().evictions == 0 {
        set(&store, &participant, number, 10_000, 1000);
        number += 1;
    }
    assert!((0..5).all(|number| !get(&store, &participant, number, 1000)), "they were written first");
    assert!((100..number).all(|number| get(&store, &participant, number, 1000)));
    store.verify(&participant, 1000);
}

#[test]
fn items_fitting_an_open_destination_share_it() {
    let (store, participant) = store();
    let (first, second) = (sparse(&store, &participant, 0, 0..5), sparse(&store, &participant, 100, 100..105));
    compact(&store, &participant, first);
    let free = store.segments.free_count();
    let moment = store.moment(1000);
    let mut job = store.claim_relocation(second, moment).unwrap();
    assert_eq!((store.segments.free_count(), store.open_destination_count()), (free, 0));
    while !job.run(&store, &participant, moment, 1) {}
    drop(job);
    store.verify(&participant, 1000);
}

/// A store with segments of 4 KiB, for objects of a large part of one.
fn small_segments(evicts: bool) -> (Store, Participant) {
    let options = Options {
        memory_bytes: 1 << 20,
        segment_size: Some(4 << 10),
        value_bytes_max: 3900,
        evicts,
        ..Options::default()
    };
    let store = Store::new(options).unwrap();
    let participant = store.participate();
    (store, participant)
}

/// Writes a value of this length. Returns the steps that it took, `None` if it was refused.
fn fill(store: &Store, participant: &Participant, number: u32, bytes: usize, ttl: Ttl) -> Option<u32> {
    let key = number.to_le_bytes();
    let (hash, value) = (store.hash(&key), vec![7; bytes]);
    let write = Write { key: &key, hash, value: &value, flags: 0.into(), ttl, mode: Mode::Set, token: None };
    let mut steps = 0;
    while store.write(participant, &write, 1000).is_err() {
        if store.evict(participant, 1000) == Progress::Stuck {
            return None;
        }
        steps += 1;
    }
    Some(steps)
}

fn delete(store: &Store, participant: &Participant, number: u32) {
    let key = number.to_le_bytes();
    store.delete(participant, &key, store.hash(&key), 1000);
}

#[test]
fn dead_items_need_no_destination() {
    let (store, participant) = small_segments(true);
    let seal = || store.chains.seal_open(&store.segments, Seal::All);
    fill(&store, &participant, 1, 2400, Ttl::Never).unwrap();
    seal();
    compact(&store, &participant, segment_of(&store, &participant, 1));
    let open = segment_of(&store, &participant, 1);
    for (number, bytes) in [(2, 2230), (3, 800), (4, 1000)] {
        fill(&store, &participant, number, bytes, Ttl::Never).unwrap();
    }
    seal();
    delete(&store, &participant, 2);
    compact(&store, &participant, segment_of(&store, &participant, 3));
    assert_eq!(segment_of(&store, &participant, 3), open, "it fits the space that is left there");
    assert_ne!(segment_of(&store, &participant, 4), open, "both do not");
    store.verify(&participant, 1000);
}

#[test]
fn a_dead_open_destination_is_freed_without_evictions() {
    let (store, participant) = small_segments(false);
    for number in 0..8 {
        fill(&store, &participant, number, 500, Ttl::seconds(10_000 << number)).unwrap();
        store.chains.seal_open(&store.segments, Seal::All);
        compact(&store, &participant, segment_of(&store, &participant, number));
    }
    assert_eq!(store.open_destination_count(), 8);
    (0..8).for_each(|number| delete(&store, &participant, number));
    let written = (100..).take_while(|number| fill(&store, &participant, *number, 3900, Ttl::Never).is_some());
    assert!(written.count() > 200);
    assert_eq!(store.open_destination_count(), 0);
    store.verify(&participant, 1000);
}

/// A store full of segments of one object of 55 %, some small ones, and one of 27 % that is dead.
fn with_long_objects(small: u32) -> (Store, Participant) {
    let (store, participant) = small_segments(true);
    let mut segments = 0;
    while store.segments.free_for_writers() > 0 {
        fill(&store, &participant, segments * 100, 2230, Ttl::Never).unwrap();
        fill(&store, &participant, segments * 100 + 1, 1100, Ttl::Never).unwrap();
        for number in 0..small {
            fill(&store, &participant, segments * 100 + 2 + number, 60, Ttl::Never).unwrap();
        }
        store.chains.seal_open(&store.segments, Seal::All);
        segments += 1;
    }
    (0..segments).for_each(|number| delete(&store, &participant, number * 100 + 1));
    (store, participant)
}

/// The largest number of steps of a write into such a store, and the number of copied objects.
fn steps_beside_long_objects(small: u32) -> (u32, u64) {
    let (store, participant) = with_long_objects(small);
    let moved_before = store.stats().survived;
    let steps = |number| fill(&store, &participant, number, 3000, Ttl::Never).expect("something is evicted");
    let max = (1_000_000..1_000_010).map(steps).max().unwrap();
    assert!(store.stats().evictions > 0);
    store.verify(&participant, 1000);
    (max, store.stats().survived - moved_before)
}

#[test]
fn a_write_skips_useless_copies() {
    let (max, moved) = steps_beside_long_objects(0);
    assert!(max < 5 && moved == 0, "{max} steps, {moved} moved");
    let (max, _) = steps_beside_long_objects(5);
    assert!((10..60).contains(&max), "{max} steps for a write");
}

#[test]
fn a_writer_of_many_segments_skips_useless_copies() {
    let (store, participant) = with_long_objects(5);
    let mut steps = 0;
    while store.evict_for(&participant, 1000, 4) == Progress::Working {
        steps += 1;
    }
    assert!((10..100).contains(&steps), "{steps} steps with {} segments", store.segments.limit());
}

#[test]
fn maintenance_frees_overwritten_bytes_before_evictions() {
    let options =
        Options { memory_bytes: 8 << 20, segment_size: Some(16 << 10), value_bytes_max: 3900, ..Options::default() };
    let store = Store::new(options).unwrap();
    let participant = store.participate();
    let count = (f64::from(store.segments.limit() * store.segments.segment_bytes()) * 0.7 / 412.0) as u32;
    let mut seed = 7u64;
    for step in 0..10 * count {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = if step < count { step } else { (seed >> 33) as u32 % count };
        fill(&store, &participant, number, 400, Ttl::Never).expect("something is had back");
        while store.is_low() && store.maintain(&participant, 1000) == Progress::Working {}
    }
    assert_eq!(store.stats().evictions, 0, "{:?}", store.stats());
    store.verify(&participant, 1000);
}

#[test]
fn an_empty_sealed_segment_is_compacted() {
    let (store, participant) = small_segments(true);
    fill(&store, &participant, 1, 500, Ttl::Never).unwrap();
    store.chains.seal_open(&store.segments, Seal::All);
    compact(&store, &participant, segment_of(&store, &participant, 1));
    let moment = store.moment(1000);
    let reserved = store.reserve(&participant, 100, store.lifetime(Ttl::Never, moment).unwrap(), moment).unwrap();
    let empty = reserved.segment;
    drop(reserved);
    store.chains.seal_open(&store.segments, Seal::All);
    compact(&store, &participant, empty);
    segment_of(&store, &participant, 1);
    store.verify(&participant, 1000);
}
