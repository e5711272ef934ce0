//! Events while the log reads or writes, at a transfer that the test chooses.

use super::super::index::IndexKey;
use super::super::options::Options;
use super::super::{FinalCheck, LargeLog, Reinsertion};
use super::eventful::Eventful;
use super::*;
use crate::ByteRange;
use crate::device::Direction;
use crate::object::{ScanContent, Unread};
use crate::recovery::RecoveryInput;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// The result for key 0 if it is hit, its region is reclaimed, and an event happens while its copy is being made.
fn while_it_is_copied(event: impl FnOnce(&Arc<LargeLog>) + Send + 'static) -> Option<Vec<u8>> {
    let device = Eventful::new(16 * REGION_BYTES);
    let log = on(device.clone(), Options { reinsertion: Reinsertion::Forced(1), ..small() });
    insert(&log, 0, b"old", 0, 1).unwrap();
    get(&log, 0, 1);
    for i in 1.. {
        if log.stats().regions_free == 1 {
            break;
        }
        insert(&log, i, &value(i, i, 60_000), 0, 1).unwrap();
    }
    let theirs = log.clone();
    // The header and the footer of the region are read before.
    device.after(2, Direction::Read, move || event(&theirs));
    insert(&log, 1000, &value(1000, 1, 60_000), 0, 1).unwrap();
    log.maintain(1);
    assert!(device.event.lock().unwrap().is_none(), "no copy was made");
    log.verify();
    get(&log, 0, 1)
}

#[test]
fn a_copy_does_not_restore_a_removed_object() {
    assert_eq!(while_it_is_copied(|_| ()), Some(b"old".to_vec()));
    assert_eq!(while_it_is_copied(|log| assert!(remove(log, 0))), None);
    assert_eq!(while_it_is_copied(|log| log.flush()), None);
    let overwrite = |log: &Arc<LargeLog>| {
        insert(log, 0, b"new", 0, 1).unwrap();
    };
    assert_eq!(while_it_is_copied(overwrite), Some(b"new".to_vec()));
}

#[test]
fn copies_leave_buffers_to_inserts_when_busy() {
    let device = Eventful::new(16 * REGION_BYTES);
    let (reinsertion, max_buffer_wait) = (Reinsertion::Forced(1), Duration::ZERO);
    let log = on(device.clone(), Options { reinsertion, max_buffer_wait, expiry_groups: 1, buffers: 3, ..small() });
    let put = |i| insert(&log, i, &value(i, i, 9 << 10), 0, 1);
    for i in 0..80 {
        put(i).unwrap();
        get(&log, i, 1);
    }
    device.is_busy.store(true, Relaxed);
    log.reclaim(1, 8);
    let stats = log.stats();
    assert!(stats.reinserted > 0 && stats.reinsertions_dropped > 0, "{stats:?}");
    assert!((80..86).all(|i| put(i).is_ok()), "{:?}", log.stats());
    device.is_busy.store(false, Relaxed);
    log.maintain(1);
    log.verify();
}

/// Inserts a value of three parts; something happens while the region of one of them is written.
fn while_parts_are_written(
    part: usize,
    event: impl FnOnce(&Arc<LargeLog>) + Send + 'static,
) -> Result<Inserted, LargeDrop> {
    let device = Eventful::new(16 * REGION_BYTES);
    let log = on(device.clone(), small());
    let theirs = log.clone();
    device.after(part, Direction::Write, move || event(&theirs));
    let result = insert(&log, 1, &value(1, 1, 150_000), 0, 1);
    assert_eq!(get(&log, 1, 1).is_some(), result.is_ok());
    log.maintain(1);
    log.verify();
    result
}

#[test]
fn an_insert_into_a_reclaimed_region_is_refused() {
    assert!(while_parts_are_written(1, |_| ()).is_ok());
    // Keys of another group and another writer's lock than those of the insert under way.
    let writer = |number| IndexKey::of(Key::new(&key(number)).hash).shard;
    let turn = move |log: &Arc<LargeLog>| {
        for i in (10..).filter(|&i| writer(i) != writer(1)) {
            insert(log, i, &value(i, i, 60_000), 5000, 1).unwrap();
            if log.stats().regions_evicted > 0 {
                break;
            }
        }
    };
    assert_eq!(while_parts_are_written(1, turn).unwrap_err(), LargeDrop::Overtaken);
}

#[test]
fn reads_of_a_reused_region_are_misses() {
    let device = Eventful::new(16 * REGION_BYTES);
    let log = on(device.clone(), small());
    insert(&log, 1, b"value", 0, 1).unwrap();
    log.seal_all(1);
    let theirs = log.clone();
    device.at_next(Direction::Read, move || {
        theirs.flush();
        theirs.maintain(1);
        for i in 10..40 {
            insert(&theirs, i, &value(i, i, 60_000), 0, 1).unwrap();
        }
    });
    assert_eq!(get(&log, 1, 1), None);
    assert_eq!(log.stats().misses_gone, 1);
    log.verify();
}

/// The result for key 1, whose object is cut, if an event happens while its first part is read.
fn while_a_cut_object_is_read(
    check: FinalCheck,
    range: Option<ByteRange>,
    event: impl FnOnce(&Arc<LargeLog>) + Send + 'static,
) -> Option<Vec<u8>> {
    let device = Eventful::new(16 * REGION_BYTES);
    let log = on(device.clone(), Options { reinsertion: Reinsertion::Never, ..small() });
    (0..2).for_each(|i| _ = insert(&log, i, &value(i, 1, 40_000), 0, 1).unwrap());
    assert_eq!(log.stats().later_parts, 1);
    log.seal_all(1);
    let theirs = log.clone();
    device.at_next(Direction::Read, move || event(&theirs));
    let (sender, receiver) = mpsc::channel();
    let done = Box::new(move |found: Option<FlashHit>| sender.send(found).unwrap());
    let (bytes, located) = (key(1), log.locate(Key::new(&key(1)).hash, check).unwrap());
    let looked_up = match range {
        None => log.lookup_at(located, check, Key::new(&bytes), 1, done),
        Some(range) => log.lookup_range_at(located, check, Key::new(&bytes), range, 1, done),
    };
    let found = match looked_up {
        FlashLookup::Absent => None,
        FlashLookup::Found(found) => Some(found),
        FlashLookup::Reading => receiver.recv().unwrap(),
    };
    assert!(device.event.lock().unwrap().is_none());
    log.verify();
    found.map(|found| found.value().to_vec())
}

#[test]
fn a_lookup_follows_overwrites_whose_parts_are_gone() {
    let all = ByteRange { offset: 0, length: 1 << 20 };
    let checks = [FinalCheck::ByLookup, FinalCheck::ByCaller];
    for (check, range) in checks.into_iter().flat_map(|check| [None, Some(all)].map(|range| (check, range))) {
        for (bytes, others) in [(9000, 0), (50_000, 0), (9000, 2), (50_000, 2)] {
            let found = while_a_cut_object_is_read(check, range, move |log| {
                insert(log, 1, &value(1, 2, bytes), 0, 1).unwrap();
                log.seal_all(1);
                // The regions of the first version.
                (0..others).for_each(|_| _ = log.reclaim(1, log.stats().regions_free as usize + 1));
            });
            // A version that was current when it was read is left to the caller, who looks at its token.
            let is_old = check == FinalCheck::ByCaller && others == 0;
            let expected = if is_old { value(1, 1, 40_000) } else { value(1, 2, bytes) };
            assert!(found == Some(expected), "{check:?}, {range:?}, {bytes} bytes, {others} regions reclaimed");
        }
    }
}

/// Other inserts take all regions after the first part was added.
#[test]
fn a_cut_object_without_its_rest_is_dropped() {
    let device = Eventful::new(16 * REGION_BYTES);
    let options = Options { max_buffer_wait: Duration::ZERO, reinsertion: Reinsertion::Never, ..small() };
    let log = on(device.clone(), options);
    insert(&log, 0, &value(0, 1, 40_000), 0, 1).unwrap();
    let theirs = log.clone();
    let writer = |number| IndexKey::of(Key::new(&key(number)).hash).shard;
    device.at_next(Direction::Write, move || {
        let mut others = (10..).filter(|&i| writer(i) != writer(1));
        others.find(|&i| insert(&theirs, i, &value(i, 1, whole_part(1)), 100, 1).is_err()).unwrap();
    });
    assert_eq!(insert(&log, 1, &value(1, 1, 40_000), 0, 1), Err(LargeDrop::NoRegion));
    assert_eq!((log.stats().dropped_no_region, log.stats().later_parts), (2, 0));
    assert!(!remove(&log, 1) && get(&log, 1, 1).is_none());
    log.seal_all(1);
    log.verify();
    let (log, _) =
        LargeLog::recover(device, 0..16 * REGION_BYTES as u64, options, &RecoveryInput::default(), 1).unwrap();
    assert_eq!(get(&log, 1, 1), None, "the device has its first part only");
    assert_eq!(get(&log, 0, 1), Some(value(0, 1, 40_000)));
    log.verify();
}

#[test]
fn a_region_marked_dead_is_not_corrupt() {
    let device = Eventful::new(16 * REGION_BYTES);
    let log = on(device.clone(), small());
    (0..20).for_each(|i| _ = insert(&log, i, &value(i, i, 40_000), 0, 1).unwrap());
    let theirs = log.clone();
    *device.at_mark.lock().unwrap() = Some(Box::new(move || (0..20).for_each(|i| _ = get(&theirs, i, 1))));
    (20..40).for_each(|i| _ = insert(&log, i, &value(i, i, 40_000), 0, 1).unwrap());
    assert!(log.stats().misses_gone > 0, "a region was read when it had been marked");
    assert_eq!(log.stats().misses_corrupt, 0, "the device is in order");
}

#[test]
fn a_region_being_opened_is_not_shrunk_away() {
    let log = on_memory(64, small());
    // More than the whole log, all of which expires.
    (0..64 * 8).for_each(|number| _ = insert(&log, number, &value(number, 1, 9000), 10, 1).unwrap());
    log.seal_all(1);
    log.maintain(100);
    let free = log.free_lists().free.len();
    assert!(free > 60, "{free}");
    thread::scope(|scope| {
        // As lookups hold them while they copy from a buffer.
        let contents: Vec<_> = log.slots.iter().map(|slot| slot.read().unwrap()).collect();
        let inserting = scope.spawn(|| insert(&log, 1 << 40, &value(1 << 40, 1, 9000), 0, 100).unwrap());
        while log.free_lists().free.len() == free {
            thread::yield_now();
        }
        assert_eq!(log.shrink_front(32 * REGION_BYTES as u64), 32 * REGION_BYTES as u64);
        drop(contents);
        inserting.join().unwrap();
    });
    assert!(get(&log, 1 << 40, 100).is_some());
    log.verify();
}

#[test]
fn sequences_are_drawn_in_order_of_opening() {
    let log = on(Eventful::new(64 * REGION_BYTES), Options { expiry_groups: 1, ..small() });
    let has_seen_enough = AtomicBool::new(false);
    let started = thread::scope(|scope| {
        scope.spawn(|| {
            (0..).take_while(|_| !has_seen_enough.load(Relaxed)).for_each(|i| {
                insert(&log, i, &value(i, i, 60_000), 0, 1).unwrap();
            });
        });
        let (mut started, mut last) = (Vec::new(), 0);
        while started.len() < 300 {
            let free_lists = log.free_lists();
            let newest = log.regions.iter().map(|region| region.sequence()).max().unwrap();
            if free_lists.next_sequence != last {
                last = free_lists.next_sequence;
                started.push((newest, last - 1));
            }
            drop(free_lists);
            thread::yield_now();
        }
        has_seen_enough.store(true, Relaxed);
        started
    });
    assert!(started.iter().all(|(newest, drawn)| newest == drawn), "{started:?}");
    log.verify();
}

#[test]
fn a_scan_skips_a_region_without_a_buffer() {
    let log = on(Eventful::new(16 * REGION_BYTES), small());
    insert(&log, 1, &value(1, 1, 1000), 0, 1).unwrap();
    let sequence = {
        let mut free_lists = log.free_lists();
        free_lists.next_sequence += 1;
        free_lists.next_sequence - 1
    };
    log.regions[3].begin(sequence, 4, 0, log.next_order());
    let (mut scan, mut met) = (log.scan(), 0);
    while log.advance_scan(&mut scan, (ScanContent::Values, Unread::Kept), 1, &mut |_| met += 1) {}
    assert_eq!((met, log.stats().read_bytes), (1, 0));
}
