//! Objects on the device that are not in the index: they must not be found after a removal of their key.

use super::super::format::part_hash;
use super::super::index::{IndexKey, SHARDS};
use super::super::regions::RegionState;
use super::super::{Reclaim, Reinsertion};
use super::eventful::Eventful;
use super::*;
use crate::FlashHash;
use crate::device::{BLOCK, Buffer, Delivery, Direction, FaultyDevice, read, write};
use crate::recovery::{LoggedDeletion, RecoveryInput};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const AREA: Range<u64> = 0..(16 * REGION_BYTES) as u64;
const CHECKPOINT: Range<u64> = AREA.end..AREA.end + (64 << 10);

fn options() -> Options {
    Options { reinsertion: Reinsertion::Forced(0), ..small() }
}

fn device() -> Arc<FaultyDevice> {
    Arc::new(FaultyDevice::new(CHECKPOINT.end as usize, 1, Delivery::AtOnce))
}

/// Seven to a region.
fn fill(log: &Arc<LargeLog>, number: u64) {
    insert(log, number, &value(number, number, 8 << 10), 0, 1).unwrap();
}

/// A log in which one region is free, and the number of the next object.
fn full(device: &Arc<FaultyDevice>) -> (Arc<LargeLog>, u64) {
    let log = LargeLog::new(device.clone(), AREA, options()).unwrap();
    let mut next = 0;
    while log.stats().regions_free > 1 {
        fill(&log, next);
        next += 1;
    }
    (log, next)
}

fn region_of(log: &LargeLog, number: u64) -> Option<u32> {
    log.find(FlashHash::of(&key(number)), |address| log.geometry.split(address.unit()).0)
}

fn recover(device: &Arc<FaultyDevice>, options: Options, deletions: Vec<LoggedDeletion>) -> Arc<LargeLog> {
    let known = RecoveryInput { deletions, ..RecoveryInput::default() };
    let (log, _) = LargeLog::recover(device.clone(), AREA, options, &known, 1).unwrap();
    log.verify();
    log
}

/// Removes objects, and returns those that are found after a crash because their removal was not recorded.
fn found_again(log: &LargeLog, device: &FaultyDevice, numbers: &[u64]) -> Vec<u64> {
    let noted = numbers.iter().filter(|&&number| remove(log, number));
    let deletions = noted.map(|&number| LoggedDeletion { hash: FlashHash::of(&key(number)), order: log.next_order() });
    let log = recover(&Arc::new(device.killed(1)), options(), deletions.collect());
    numbers.iter().copied().filter(|&number| get(&log, number, 1).is_some()).collect()
}

fn reclaim_one(log: &Arc<LargeLog>) {
    log.reclaim(1, log.stats().regions_free as usize + 1);
}

#[test]
fn copies_of_a_region_that_fails_meanwhile() {
    let device = device();
    let (log, _) = full(&device);
    let region = region_of(&log, 0).unwrap();
    assert_eq!([1, 2].map(|number| region_of(&log, number)), [Some(region); 2]);
    // The second one cannot be read, the third one can.
    let second = log.geometry.offset(region) + (12 << 10);
    device.break_range(Direction::Read, second..second + 1);
    reclaim_one(&log);
    assert!(log.stats().regions_retired == 1 && log.stats().reinserted > 0, "{:?}", log.stats());
    log.seal_all(1);
    assert_eq!(found_again(&log, &device, &[0, 1, 2]), []);
}

#[test]
fn originals_stay_gone_though_marking_dead_fails() {
    let device = device();
    let (log, mut next) = full(&device);
    let region = region_of(&log, 1).unwrap();
    let begin = log.geometry.offset(region);
    device.break_range(Direction::Write, begin..begin + 1);
    reclaim_one(&log);
    assert_eq!(log.regions[region as usize].state(), RegionState::Lost);
    assert!(region_of(&log, 1).is_some_and(|other| other != region), "there is a copy");
    while region_of(&log, 1).is_some() {
        fill(&log, next);
        next += 1;
    }
    assert_eq!(found_again(&log, &device, &[1]), []);
}

#[test]
fn originals_stay_gone_after_a_crash_before_marking() {
    for stops in [false, true] {
        let device = device();
        let (log, _) = full(&device);
        let region = region_of(&log, 1).unwrap();
        let begin = log.geometry.offset(region);
        let header = read(&*device, begin, Buffer::zeroed(BLOCK)).unwrap();
        reclaim_one(&log);
        log.seal_all(1);
        let copy = region_of(&log, 1).unwrap();
        assert_ne!(copy, region);
        write(&*device, begin, header).unwrap();
        // The copy goes before the original, in which something is hit.
        let options = Options { reclaim: Reclaim::Lru, ..small() };
        let mut log = recover(&device, options, Vec::new());
        assert_eq!((region_of(&log, 1), region_of(&log, 6)), (Some(copy), Some(region)));
        while region_of(&log, 1).is_some() {
            get(&log, 6, 1).unwrap();
            reclaim_one(&log);
        }
        if stops {
            log.checkpoint(CHECKPOINT, 1).unwrap();
            let known = RecoveryInput { checkpoint: Some(CHECKPOINT), ..RecoveryInput::default() };
            log = LargeLog::recover(device.clone(), AREA, options, &known, 1).unwrap().0;
        }
        assert_eq!(found_again(&log, &device, &[1]), []);
        // Objects that are surely gone from the device need no more records.
        log.flush();
        log.maintain(1);
        assert!(!remove(&log, 1));
        log.verify();
    }
}

/// A hash of the same tag as a later part of a long object: its removal is logged, though the index does not know it.
#[test]
fn an_object_replaced_by_a_part_stays_removed() {
    let device = device();
    let log = LargeLog::new(device.clone(), AREA, Options { reclaim: Reclaim::Lru, ..small() }).unwrap();
    let put = |key, value: &[u8]| {
        log.insert(&Object { key, value: &[value], client_flags: 0, is_annotated: false, expiry: 0 }, 1).unwrap()
    };
    let long = Key::new(b"long");
    let other = Key { hash: part_hash(long.hash, log.next_order() + 1, 1), ..Key::new(b"other") };
    put(other, b"stale");
    log.seal_all(1);
    let first = log.find(other.hash, |address| log.geometry.split(address.unit()).0).unwrap();
    put(long, &vec![1; REGION_BYTES + 1000]);
    log.seal_all(1);
    assert!(log.remove(long.hash));
    let mut deletions = vec![LoggedDeletion { hash: long.hash, order: log.next_order() }];
    while log.find(other.hash, |_| ()).is_some() {
        // The region of the other one stays.
        log.regions[first as usize].hit(u64::MAX);
        reclaim_one(&log);
    }
    if log.remove(other.hash) {
        deletions.push(LoggedDeletion { hash: other.hash, order: log.next_order() });
    }
    let log = recover(&Arc::new(device.killed(1)), small(), deletions);
    assert!(log.find(other.hash, |_| ()).is_none(), "what was removed is found after a crash");
}

/// As above, while a copy of the other object is being made.
#[test]
fn an_object_replaced_while_copied_stays_removed() {
    const ORDER: u64 = 1000;
    let device = Eventful::new(16 * REGION_BYTES);
    let options = Options {
        reinsertion: Reinsertion::Forced(1),
        max_buffer_wait: Duration::ZERO,
        expiry_groups: 1,
        buffers: 6,
        ..small()
    };
    let log = LargeLog::new(device.clone(), AREA, options).unwrap();
    let long = Key::new(b"long");
    let other = Key { hash: part_hash(long.hash, ORDER, 1), ..Key::new(b"other") };
    fn object<'a>(key: Key<'a>, value: &'a [&'a [u8]]) -> Object<'a> {
        Object { key, value, client_flags: 0, is_annotated: false, expiry: 0 }
    }
    log.insert(&object(other, &[b"stale"]), 1).unwrap();
    assert!(matches!(log.lookup(other, 1, Box::new(|_| ())), crate::FlashLookup::Found(_)));
    let mut next = 0;
    while log.stats().regions_free > 8 {
        fill(&log, next);
        next += 1;
    }
    let theirs = log.clone();
    // The header and the footer of the region are read before.
    device.after(2, Direction::Read, move || {
        theirs.next_order.store(ORDER, Relaxed);
        let value = vec![1; 2 * REGION_BYTES + 1000];
        theirs.insert(&object(long, &[&value]), 1).unwrap();
    });
    reclaim_one(&log);
    assert_eq!(log.stats().reinsertions_dropped, 1, "the copy was made and not published");
    log.seal_all(1);
    assert!(log.remove(long.hash));
    let mut deletions = vec![LoggedDeletion { hash: long.hash, order: log.next_order() }];
    while log.find(other.hash, |_| ()).is_some() {
        reclaim_one(&log);
        fill(&log, next);
        next += 1;
    }
    if log.remove(other.hash) {
        deletions.push(LoggedDeletion { hash: other.hash, order: log.next_order() });
    }
    let known = RecoveryInput { deletions, ..RecoveryInput::default() };
    let (log, _) = LargeLog::recover(device, AREA, options, &known, 1).unwrap();
    assert!(log.find(other.hash, |_| ()).is_none(), "what was removed is found after a crash");
}

#[test]
fn copies_from_an_unclean_region_are_clean() {
    let device = device();
    let options =
        Options { reinsertion: Reinsertion::Forced(1), max_buffer_wait: Duration::ZERO, expiry_groups: 1, ..small() };
    let log = LargeLog::new(device.clone(), AREA, options).unwrap();
    // Two versions of each.
    (0..20).for_each(|i| fill(&log, i % 10));
    log.seal_all(1);
    let log = recover(&device, options, Vec::new());
    assert!(remove(&log, 9999), "a restart could find what is hidden");
    for i in 100..600 {
        fill(&log, i);
        // Recovered and new objects, so that each region has an object to copy.
        (0..10).for_each(|found| _ = get(&log, found, 1));
        get(&log, i, 1);
        log.maintain(1);
    }
    assert!(log.stats().reinserted > 50 && !remove(&log, 9999), "{:?}", log.stats());
    log.verify();
}

/// The checkpoint has written the regions and not yet the index when a lookup finds a part gone.
#[test]
fn an_incomplete_object_stays_removed_after_a_checkpoint() {
    const AREA: Range<u64> = 0..(16 * REGION_BYTES) as u64;
    const CHECKPOINT: Range<u64> = AREA.end..AREA.end + (4 << 20);
    let device = Eventful::new(CHECKPOINT.end as usize);
    let log = LargeLog::new(device.clone(), AREA, small()).unwrap();
    let shard = |number: u64| IndexKey::of(FlashHash::of(&key(number))).shard;
    let long = (0..).find(|number| usize::from(shard(*number)) == SHARDS - 1).unwrap();
    let (hash, order) = (FlashHash::of(&key(long)), log.next_order());
    insert(&log, long, &value(long, 1, 2 * REGION_BYTES), 0, 1).unwrap();
    log.seal_all(1);
    assert!(log.remove(part_hash(hash, order, 1)), "the part was found");
    // Other objects, so that the shard of the object is not in the first MiB.
    let address = log.find(hash, |address| address).unwrap();
    (0..120_000).for_each(|tag| _ = log.index.lock((tag % 16) as u8).insert(tag << 8, address));
    let theirs = log.clone();
    device.at_next(Direction::Write, move || assert_eq!(get(&theirs, long, 1), None));
    log.checkpoint(CHECKPOINT, 1).unwrap();
    assert!(device.event.lock().unwrap().is_none(), "it was looked up");
    let known = RecoveryInput { checkpoint: Some(CHECKPOINT), ..RecoveryInput::default() };
    let (log, recovered) = LargeLog::recover(device, AREA, small(), &known, 1).unwrap();
    assert!(recovered.from_checkpoint && log.index.objects() >= 120_000);
    assert!(log.remove(hash), "a start after a crash would find the first part");
}
