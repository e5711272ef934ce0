//! Ranges of values: their bytes, the reads for them, and the ranges that a damaged block invalidates.

use super::super::format::part_hash;
use super::super::options::Options;
use super::eventful::Eventful;
use super::*;
use crate::ByteRange;
use crate::device::{BLOCK, Delivery, Direction, FaultyDevice};
use crate::recovery::{LoggedDeletion, RecoveryInput};
use ebbtide_testkit::{Random, seeds};
use std::collections::HashMap;
use std::ops::Range;

const LONG: usize = 1 << 20;

/// Regions that hold a value of 1 MiB.
fn long_regions() -> Options {
    Options { region_bytes: 4 << 20, ..small() }
}

fn range(offset: usize, length: usize) -> ByteRange {
    ByteRange { offset: offset as u64, length: length as u64 }
}

/// Waits for the read.
pub(super) fn find_range(log: &Arc<LargeLog>, number: u64, range: ByteRange, now: u32) -> Option<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    let done = Box::new(move |found| sender.send(found).unwrap());
    let found = match log.lookup_range(Key::new(&key(number)), range, now, done) {
        FlashLookup::Absent => None,
        FlashLookup::Found(found) => Some(found),
        FlashLookup::Reading => receiver.recv().unwrap(),
    }?;
    assert_eq!(found.client_flags, 5);
    Some(found.value().to_vec())
}

#[test]
fn a_range_is_the_bytes_of_the_value() {
    for (lengths, options) in [
        (&[24, 5000, 16 << 10, (16 << 10) + 1, 60_000, 200_000][..], small()),
        (&[30_000, 66_000, 500_000, LONG], long_regions()),
    ] {
        for &length in lengths {
            let log = on_memory(16, options);
            let whole = value(1, 1, length);
            insert(&log, 1, &whole, 0, 1).unwrap();
            let check = || {
                for offset in [0, 1, 4095, 4096, length / 2, length - 1, length, length + 1, usize::MAX] {
                    for bytes in [0, 1, 4096, 70_000, usize::MAX] {
                        let end = offset.saturating_add(bytes).min(length);
                        let expected = &whole[offset.min(end)..end];
                        let found = find_range(&log, 1, range(offset, bytes), 1);
                        assert!(found.as_deref() == Some(expected), "{bytes} bytes from {offset} of {length}");
                    }
                }
            };
            check();
            log.seal_all(1);
            let before = log.stats();
            check();
            assert_eq!(before.hits_memory + before.hits_device, 45);
            assert_eq!(log.stats().hits_device - before.hits_device, 45);
            assert_eq!(find_range(&log, 2, range(0, 1), 1), None);
            log.verify();
        }
    }
}

#[test]
fn ranges_of_long_values_read_few_blocks() {
    let log = on_memory(8, long_regions());
    // Others shift its begin.
    for number in 0..3 {
        insert(&log, 10 + number, &value(10, 1, 700 * (number as usize + 1)), 0, 1).unwrap();
        insert(&log, number, &value(number, 1, LONG), 0, 1).unwrap();
    }
    log.seal_all(1);
    for number in 0..3 {
        let read = |offset, length| {
            let before = log.stats().read_bytes;
            let found = find_range(&log, number, range(offset, length), 1).unwrap();
            assert!(found == value(number, 1, LONG)[offset..offset + length]);
            (log.stats().read_bytes - before) as usize
        };
        assert_eq!(read(LONG / 2, BLOCK), 2 * BLOCK, "the front and one block");
        assert_eq!(read(0, BLOCK), 2 * BLOCK);
        assert_eq!(read(LONG / 2 + 100, BLOCK), 3 * BLOCK, "the range lies in two blocks");
        assert_eq!(read(LONG - 10, 10), 2 * BLOCK);
        assert_eq!(read(64 << 10, 64 << 10), (64 << 10) + BLOCK);
        assert_eq!(read(5, 0), BLOCK, "the front");
    }
}

#[test]
fn ranges_in_later_parts_read_few_blocks() {
    let log = on_memory(16, small());
    let whole = value(1, 1, 3 * REGION_BYTES);
    insert(&log, 1, &whole, 0, 1).unwrap();
    log.seal_all(1);
    let before = log.stats().read_bytes;
    let found = find_range(&log, 1, range(2 * REGION_BYTES + 100, 1000), 1);
    assert_eq!(found.as_deref(), Some(&whole[2 * REGION_BYTES + 100..][..1000]));
    let read = (log.stats().read_bytes - before) as usize / BLOCK;
    assert!(read <= 3 * 2 + 2, "{read} blocks read");
}

#[test]
fn a_value_without_a_part_has_no_ranges() {
    for in_first_part in [true, false] {
        let log = on_memory(16, small());
        let (hash, order) = (Key::new(&key(1)).hash, log.next_order());
        insert(&log, 1, &value(1, 1, 3 * REGION_BYTES), 0, 1).unwrap();
        log.seal_all(1);
        assert!(log.remove(part_hash(hash, order, 1)), "the part was found");
        match in_first_part {
            true => assert_eq!(get(&log, 1, 1), None),
            false => assert_eq!(find_range(&log, 1, range(2 * REGION_BYTES, 10), 1), None),
        }
        assert_eq!(find_range(&log, 1, range(0, 10), 1), None, "it is not the range of a value");
        assert!(log.remove(hash), "a restart would find the first part");
        insert(&log, 1, &value(1, 2, 3 * REGION_BYTES), 0, 1).unwrap();
        assert_eq!(get(&log, 1, 1), Some(value(1, 2, 3 * REGION_BYTES)));
        log.verify();
    }
}

#[test]
fn damaged_blocks_fail_only_ranges_that_contain_them() {
    let device = Arc::new(FaultyDevice::new(8 * long_regions().region_bytes, 1, Delivery::AtOnce));
    let log = on(device.clone(), long_regions());
    let whole = value(1, 1, LONG);
    insert(&log, 1, &whole, 0, 1).unwrap();
    log.seal_all(1);
    let address = log.find(Key::new(&key(1)).hash, |address| address).unwrap();
    let (region, position) = log.geometry.split(address.unit());
    let object = log.geometry.offset(region) + u64::from(position) * 64;
    // The value begins with the block behind the front.
    let begin = object.next_multiple_of(BLOCK as u64);
    let found = |offset, length| find_range(&log, 1, range(offset, length), 1).map(|bytes| bytes.len());
    device.flip(begin + 10 * BLOCK as u64 + 7, 3);
    assert_eq!(found(10 * BLOCK, BLOCK), None);
    assert_eq!(found(11 * BLOCK - 1, 1), None);
    assert_eq!(found(9 * BLOCK, 3 * BLOCK), None);
    assert_eq!(log.stats().misses_corrupt, 3);
    assert_eq!([found(9 * BLOCK, BLOCK), found(11 * BLOCK, BLOCK), found(0, 1)], [Some(BLOCK), Some(BLOCK), Some(1)]);
    assert_eq!(get(&log, 1, 1), None, "the whole has the damage");
    device.flip(begin + 10 * BLOCK as u64 + 7, 3);
    assert_eq!(get(&log, 1, 1), Some(whole));
    // A checksum, in the front.
    device.flip(begin - 100, 0);
    assert_eq!([found(9 * BLOCK, BLOCK), found(0, 1)], [None; 2]);
}

#[test]
fn a_range_is_of_one_version() {
    for events_after in [0, 1] {
        let device = Eventful::new(8 * long_regions().region_bytes);
        let log = on(device.clone(), long_regions());
        insert(&log, 1, &value(1, 1, LONG), 0, 1).unwrap();
        log.seal_all(1);
        // As the front is read, or between the front and the block.
        let theirs = log.clone();
        device.after(events_after, Direction::Read, move || {
            insert(&theirs, 1, &value(1, 2, 300_000), 0, 1).unwrap();
            theirs.seal_all(1);
        });
        let found = find_range(&log, 1, range(200_000, 100), 1);
        assert!(device.event.lock().unwrap().is_none());
        assert_eq!(found.as_deref(), Some(&value(1, 2, 300_000)[200_000..200_100]), "event {events_after}");
        log.verify();
    }
}

#[test]
fn blocks_of_a_reused_region_are_not_corrupt() {
    let device = Eventful::new(8 * long_regions().region_bytes);
    let log = on(device.clone(), long_regions());
    insert(&log, 1, &value(1, 1, LONG), 0, 1).unwrap();
    log.seal_all(1);
    let theirs = log.clone();
    // Between the front and the block.
    device.after(1, Direction::Read, move || {
        theirs.flush();
        theirs.maintain(1);
        (10..22).for_each(|number| _ = insert(&theirs, number, &value(number, 1, 3 << 20), 0, 1).unwrap());
    });
    assert_eq!(find_range(&log, 1, range(200_000, 100), 1), None);
    assert!(device.event.lock().unwrap().is_none());
    assert_eq!((log.stats().misses_gone, log.stats().misses_corrupt), (1, 0));
    log.verify();
}

/// Values in parts, which are reclaimed one by one, over crashes and stops: a range is one of the last value, and there
/// is none where a lookup of the whole has just missed.
#[test]
fn ranges_are_of_the_last_value_over_restarts() {
    const AREA: Range<u64> = 0..(16 * REGION_BYTES) as u64;
    const CHECKPOINT: Range<u64> = AREA.end..AREA.end + (64 << 10);
    for seed in seeds(20, 2000) {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut device = Arc::new(FaultyDevice::new(CHECKPOINT.end as usize, seed, Delivery::AtOnce));
        let mut log = LargeLog::new(device.clone(), AREA, small()).unwrap();
        let (mut last, mut deletions, mut found) = (HashMap::new(), Vec::new(), 0);
        for version in 1..600_u64 {
            let number = random.uniform(12);
            let mut remove = |log: &LargeLog| {
                let hash = Key::new(&key(number)).hash;
                if log.remove(hash) {
                    deletions.push(LoggedDeletion { hash, order: log.next_order() });
                }
            };
            match random.uniform(100) {
                0..40 => {
                    let bytes = random.between(100, 5 * REGION_BYTES as u64 / 2) as usize;
                    remove(&log);
                    last.remove(&number);
                    if insert(&log, number, &value(number, version, bytes), 0, 1).is_ok() {
                        last.insert(number, (version, bytes));
                    }
                    log.maintain(1);
                }
                40..45 => {
                    remove(&log);
                    last.remove(&number);
                }
                45..95 => {
                    let expected = last.get(&number).map(|&(version, bytes)| value(number, version, bytes));
                    let whole = random.chance(50).then(|| get(&log, number, 1));
                    let end = expected.as_ref().map_or(100, Vec::len);
                    let begin = random.uniform(end as u64) as usize;
                    let part = find_range(&log, number, range(begin, 50), 1);
                    assert!(whole != Some(None) || part.is_none(), "key {number} at {begin}");
                    let wanted = expected.as_ref().map(|value| &value[begin..end.min(begin + 50)]);
                    assert!(part.is_none() || part.as_deref() == wanted, "key {number} at {begin}");
                    assert!(whole.flatten().is_none_or(|whole| Some(whole) == expected), "key {number}");
                    found += u32::from(part.is_some());
                }
                95..98 => log.seal_all(1),
                _ => {
                    let has_stopped = random.chance(50);
                    let checkpoint = has_stopped.then(|| log.checkpoint(CHECKPOINT, 1).unwrap()).map(|_| CHECKPOINT);
                    device = Arc::new(device.killed(version));
                    let known = RecoveryInput { checkpoint, deletions: deletions.clone(), ..RecoveryInput::default() };
                    log = LargeLog::recover(device.clone(), AREA, small(), &known, 1).unwrap().0;
                }
            }
        }
        assert!(found > 20, "{found}");
        log.verify();
    }
}
