//! Reinsertion: which objects are written again, the cost, and concurrent events.

use super::super::options::Options;
use super::super::{FinalCheck, Reclaim, Reinsertion};
use super::eventful::Eventful;
use super::reclaim::survivors;
use super::*;
use crate::device::{Delivery, Direction, FaultyDevice};
use crate::object::{ScanContent, Unread};
use crate::recovery::RecoveryInput;
use crate::{FlashHash, Token};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

const AREA: Range<u64> = 0..(16 * REGION_BYTES) as u64;
const CHECKPOINT: Range<u64> = AREA.end..AREA.end + (64 << 10);

/// Options of a tier: inserts never wait, and there is one group.
fn without_patience() -> Options {
    Options { max_buffer_wait: Duration::ZERO, expiry_groups: 1, ..small() }
}

fn region_of(log: &LargeLog, number: u64) -> Option<u32> {
    log.find(FlashHash::of(&key(number)), |address| log.geometry.split(address.unit()).0)
}

/// Inserts objects of `bytes` until only `free` regions are free, and returns the number of objects.
fn fill(log: &Arc<LargeLog>, free: u64, bytes: usize) -> u64 {
    let mut next = 0;
    while log.stats().regions_free > free {
        insert(log, next, &value(next, next, bytes), 0, 1).unwrap();
        next += 1;
    }
    next
}

/// A hit that the lookup or its caller checks.
fn hit(log: &Arc<LargeLog>, number: u64, check: FinalCheck) {
    let hash = FlashHash::of(&key(number));
    match check {
        FinalCheck::ByLookup => assert!(get(log, number, 1).is_some()),
        FinalCheck::ByCaller => {
            let token = log.locate(hash, check).unwrap().token;
            assert!(log.is_current_hit(hash, token) && !log.is_current_hit(hash, Token(token.0 + 1)));
        }
    }
}

fn hit_all(log: &Arc<LargeLog>, count: u64) {
    (0..count).for_each(|i| assert!(get(log, i, 1).is_some()));
}

fn reclaim_one(log: &Arc<LargeLog>) {
    log.reclaim(1, log.stats().regions_free as usize + 1);
}

/// A log that was stopped and begins anew.
fn restarted(log: Arc<LargeLog>, device: Arc<dyn Device>, options: Options) -> Arc<LargeLog> {
    log.checkpoint(CHECKPOINT, 1).unwrap();
    drop(log);
    let known = RecoveryInput { checkpoint: Some(CHECKPOINT), ..RecoveryInput::default() };
    let (log, recovered) = LargeLog::recover(device, AREA, options, &known, 1).unwrap();
    assert!(recovered.from_checkpoint);
    log
}

#[test]
fn what_was_hit_is_written_again() {
    let kept_by = [
        (Reinsertion::Never, [false; 3]),
        (Reinsertion::Forced(1), [true, true, false]),
        (Reinsertion::Forced(2), [true, false, false]),
    ];
    let checks = [FinalCheck::ByLookup, FinalCheck::ByCaller];
    for ((reinsertion, kept), check) in kept_by.into_iter().flat_map(|it| checks.map(|check| (it, check))) {
        let log = on_memory(16, Options { reinsertion, ..small() });
        let mut next = 0;
        while log.stats().regions_evicted == 0 {
            insert(&log, next, &value(next, next, 10 << 10), 0, 1).unwrap();
            if next == 8 {
                [0, 0, 1].into_iter().for_each(|i| hit(&log, i, check));
                assert!(log.locate(FlashHash::of(&key(2)), FinalCheck::ByCaller).is_some(), "that is no hit");
            }
            log.maintain(1);
            next += 1;
        }
        // 0, 1 and 2 were in the first region.
        let found = [0, 1, 2].map(|i| log.could_exist(Key::new(&key(i)).hash));
        assert_eq!(found, kept, "{reinsertion:?}, {check:?}");
        assert_eq!(log.stats().reinserted, kept.iter().filter(|&&kept| kept).count() as u64);
        log.verify();
    }
}

#[test]
fn hit_objects_are_reinserted_while_it_pays() {
    let run = |reinsertion, favourites: u64| {
        let log = on_memory(16, Options { reinsertion, ..small() });
        for i in 0..2000 {
            insert(&log, i, &value(i, i, 9 << 10), 0, 1).unwrap();
            // Either one of seven, which a region has, again and again; or each new one once.
            get(&log, if favourites == 0 { i } else { i % favourites * 7 }, 1);
            log.maintain(1);
        }
        log.verify();
        let left = (0..favourites).filter(|&i| log.could_exist(Key::new(&key(i * 7)).hash)).count();
        (log.stats().reinserted, left)
    };
    assert_eq!(run(Reinsertion::Auto, 10).1, 10);
    assert_eq!(run(Reinsertion::Never, 10).1, 0);
    let (copies, all) = (run(Reinsertion::Auto, 0).0, run(Reinsertion::Forced(1), 0).0);
    assert!(copies < all / 5, "{copies} of {all}");
}

#[test]
fn reinsertion_keeps_at_most_half_a_region() {
    let kept = |reinsertion| {
        let log = on_memory(16, Options { reinsertion, ..small() });
        survivors(&log, 400, 1);
        let stats = log.stats();
        stats.reinserted as f64 / (stats.objects_evicted + stats.reinserted) as f64
    };
    assert_eq!(kept(Reinsertion::Never), 0.0);
    let all = kept(Reinsertion::Forced(0));
    assert!((0.3..=0.5).contains(&all), "{all}");
}

#[test]
fn reinsertion_keeps_at_most_half_of_short_objects() {
    let log = on_memory(64, Options { reinsertion: Reinsertion::Forced(0), ..without_patience() });
    fill(&log, 1, 20);
    let before = log.stats();
    (0..20).for_each(|_| log.maintain(1));
    let deletions = log.stats().regions_evicted - before.regions_evicted;
    assert!((2..9).contains(&deletions), "{deletions} regions were reclaimed for none that came");
}

#[test]
fn uncopied_long_objects_take_no_reinsertion_space() {
    let copies = |hits_long: bool| {
        let log = on_memory(16, Options { reinsertion: Reinsertion::Forced(1), ..without_patience() });
        insert(&log, 5, &value(5, 5, 20 << 10), 0, 1).unwrap();
        // Its last part begins a region.
        insert(&log, 4, &value(4, 4, 66 << 10), 0, 1).unwrap();
        (0..4).for_each(|i| _ = insert(&log, i, &value(i, i, 9 << 10), 0, 1).unwrap());
        log.seal_all(1);
        hit_all(&log, if hits_long { 5 } else { 4 });
        (0..2).for_each(|_| reclaim_one(&log));
        (log.stats().reinserted, log.stats().regions_evicted)
    };
    assert_eq!([copies(false), copies(true)], [(3, 2); 2]);
}

#[test]
fn copies_of_several_groups_leave_free_regions() {
    let (now, ttls) = (400_000, [100, 600, 2400, 10_000, 40_000, 160_000, 400_000]);
    let log = on_memory(
        32,
        Options { reinsertion: Reinsertion::Forced(1), expiry_groups: 8, buffers: 12, ..without_patience() },
    );
    let mut next = 0;
    // All are of one group when they are inserted, and of seven at `now`.
    while log.stats().regions_free > 2 {
        insert(&log, next, &value(next, next, 9 << 10), now + ttls[next as usize % ttls.len()], 1).unwrap();
        next += 1;
    }
    hit_all(&log, next);
    log.reclaim(now, 3);
    let stats = log.stats();
    assert!(stats.reinserted > 0 && stats.regions_evicted == 1 && stats.regions_free >= 2, "{stats:?}");
}

#[test]
fn reinsertion_costs_small_logs_no_objects() {
    for (regions, long) in [(5, 9 << 10), (8, 65 << 10)] {
        let kept = [Reinsertion::Never, Reinsertion::Auto].map(|reinsertion| {
            let log = on_memory(regions, Options { reinsertion, reclaim: Reclaim::Lru, ..without_patience() });
            for i in 0..1000 {
                let bytes = if i % 12 == 0 { long } else { 9 << 10 };
                // Now and then there is no space.
                let _ = insert(&log, i, &value(i, i, bytes), 0, 1);
                log.maintain(1);
            }
            log.stats().objects
        });
        assert_eq!(kept[0], kept[1], "of {regions} regions");
    }
}

#[test]
fn copied_bytes_are_a_debt() {
    let log = on_memory(64, without_patience());
    hit_all(&log, fill(&log, 2, 9 << 10));
    log.reclaim(1, 12);
    let copied = log.stats().reinserted * (9 << 10);
    let debt =
        (0..10_000).filter(|&i| log.reinsertion_value.refuses_insert(FlashHash(i), 1 << 10)).count() as u64 * (1 << 10);
    assert!(
        copied > 0 && (copied * 9 / 10..copied * 11 / 10).contains(&debt),
        "{copied} were copied, {debt} are the debt"
    );
}

#[test]
fn reinsertion_of_long_objects_leaves_inserts_half() {
    let new_for_each_region = |reinsertion| {
        let log = on_memory(256, Options { reinsertion, ..without_patience() });
        let (mut next, mut before) = (0, 0);
        while log.stats().regions_evicted < 100 {
            // Now and then there is no space for one.
            let _ = insert(&log, next, &value(next, next, 34_000), 0, 1);
            log.maintain(1);
            next += 1;
            before = if log.stats().regions_evicted == 0 { next } else { before };
        }
        (next - before) as f64 / log.stats().regions_evicted as f64
    };
    let (never, all) = (new_for_each_region(Reinsertion::Never), new_for_each_region(Reinsertion::Forced(0)));
    assert!(all >= never * 0.45, "{all} instead of {never}");
}

#[test]
fn where_copies_do_not_pay_little_changes() {
    let cost = |reinsertion| {
        let log = on_memory(64, Options { reinsertion, reclaim: Reclaim::Lru, ..without_patience() });
        let mut hits = 0;
        for i in 0..40_000 {
            // Each is asked for twice, the second time soon after it came.
            let number = if i % 2 == 0 { i / 2 } else { (i / 2_u64).saturating_sub(50) };
            if find(&log, number, 1).is_some() {
                hits += 1;
                continue;
            }
            let (bytes, key) = (200 + (number * 2_654_435_761 % 6000) as usize, key(number));
            let object = Object {
                key: Key::new(&key),
                value: &[&vec![1; bytes]],
                client_flags: 5,
                is_annotated: false,
                expiry: 0,
            };
            if log.prefers_copies(&object) || log.insert(&object, 1).is_err() {
                log.remove(object.key.hash);
            }
            log.maintain(1);
        }
        (log.stats().written_bytes() as f64, f64::from(hits))
    };
    let (never, auto) = (cost(Reinsertion::Never), cost(Reinsertion::Auto));
    assert!(auto.0 <= 1.03 * never.0 && auto.1 >= 0.99 * never.1, "{auto:?}, {never:?} without copies");
}

#[test]
fn flushed_and_refused_objects_pay_no_debt() {
    let log = on_memory(64, without_patience());
    let takes_all = |bytes: usize| {
        let value = vec![0; bytes];
        let value: &[&[u8]] = &[&value];
        let object = |hash| Object {
            key: Key { hash: FlashHash(hash), ..Key::new(b"key") },
            value,
            client_flags: 0,
            is_annotated: false,
            expiry: 0,
        };
        !(0..50).any(|hash| log.prefers_copies(&object(hash)))
    };
    assert!(takes_all(1000));
    log.reinsertion_value.add_debt(1 << 20);
    assert!(takes_all(20 << 20), "it is too long");
    assert!(!takes_all(1000));
    log.flush();
    assert!(takes_all(1000));
}

#[test]
fn reinsertion_continues_after_a_restart() {
    let device = Arc::new(FaultyDevice::new(CHECKPOINT.end as usize, 1, Delivery::AtOnce));
    let resume = |log: &Arc<LargeLog>, numbers: Range<u64>| {
        for i in numbers {
            insert(log, i, &value(i, i, 9 << 10), 0, 1).unwrap();
            get(log, i % 10 * 7, 1);
            log.maintain(1);
        }
        (0..10).filter(|&i| log.could_exist(Key::new(&key(i * 7)).hash)).count()
    };
    let log = LargeLog::new(device.clone(), AREA, small()).unwrap();
    assert_eq!(resume(&log, 0..1000), 10);
    let log = restarted(log, device, small());
    assert_eq!(resume(&log, 1000..2000), 10);
}

#[test]
fn hits_of_recovered_objects_are_no_evidence() {
    for first_order in [1, 0x9000_0000] {
        let device = Arc::new(FaultyDevice::new(CHECKPOINT.end as usize, 1, Delivery::AtOnce));
        let log = LargeLog::new(device.clone(), AREA, small()).unwrap();
        log.next_order.store(first_order, Relaxed);
        (0..50).for_each(|i| _ = insert(&log, i, &value(i, i, 9 << 10), 0, 1).unwrap());
        let log = restarted(log, device, small());
        hit_all(&log, 50);
        // Half of the bytes are copies, and only new objects are hit.
        (0..50).for_each(|_| log.reinsertion_value.first_hit(false, u16::MAX / 2));
        assert!(!log.reinsertion_value.copies_pay(0.0, 0), "orders from {first_order:#x} on");
    }
}

/// A reclaim that makes copies opens regions for them.
#[test]
fn a_checkpoint_waits_for_a_running_reclaim() {
    let device = Eventful::new(CHECKPOINT.end as usize);
    let options = Options { reinsertion: Reinsertion::Forced(1), max_buffer_wait: Duration::ZERO, ..small() };
    let log = LargeLog::new(device.clone(), AREA, options).unwrap();
    hit_all(&log, fill(&log, 4, 9 << 10));
    let (theirs, stopping) = (log.clone(), Arc::new(Mutex::new(None)));
    let slot = stopping.clone();
    // The header and the footer of the region are read before.
    device.after(2, Direction::Read, move || {
        *slot.lock().unwrap() = Some(thread::spawn(move || theirs.checkpoint(CHECKPOINT, 1)));
        // As far as it gets.
        thread::sleep(Duration::from_millis(100));
    });
    log.reclaim(1, 5);
    stopping.lock().unwrap().take().expect("copies were made").join().unwrap().unwrap();
    assert!(log.stats().reinserted > 0);
    let there = log.stats().objects;
    drop(log);
    let known = RecoveryInput { checkpoint: Some(CHECKPOINT), ..RecoveryInput::default() };
    let (_, recovered) = LargeLog::recover(device, AREA, options, &known, 1).unwrap();
    assert!(recovered.from_checkpoint && recovered.objects == there, "of {there} objects: {recovered:?}");
}

/// Inserts that are accepted after copies were made, and before their originals' region is free.
fn taken_during_a_reclaim(reinsertion: Reinsertion, is_region_open: bool) -> usize {
    let device = Eventful::new(16 * REGION_BYTES);
    let log = on(device.clone(), Options { reinsertion, ..without_patience() });
    let free = if is_region_open { 0 } else { 1 };
    let mut next = 0;
    // Three to a region.
    while log.stats().regions_free > free || next % 3 != 1 {
        insert(&log, next, &value(next, next, whole_part(3)), 0, 1).unwrap();
        next += 1;
    }
    if is_region_open {
        // The rest of the open region is too short for a copy.
        insert(&log, next, &value(next, next, 30 << 10), 0, 1).unwrap();
    }
    hit_all(&log, next);
    let (theirs, taken) = (log.clone(), Arc::new(Mutex::new(None)));
    let count = taken.clone();
    *device.at_mark.lock().unwrap() = Some(Box::new(move || {
        let put = |i: &u64| insert(&theirs, 1000 + i, &value(1000 + i, 1, 1 << 10), 0, 1).is_ok();
        *count.lock().unwrap() = Some((0..8).filter(put).count());
    }));
    log.reclaim(1, if is_region_open { 1 } else { 8 });
    log.verify();
    taken.lock().unwrap().take().expect("a region was reclaimed")
}

#[test]
fn copies_leave_two_regions_to_inserts() {
    for is_region_open in [true, false] {
        let taken = [Reinsertion::Never, Reinsertion::Forced(1)].map(|it| taken_during_a_reclaim(it, is_region_open));
        assert_eq!(taken, [8, 8], "{is_region_open}");
    }
}

#[test]
fn copies_leave_space_for_inserts_between_maintenance() {
    for reinsertion in [Reinsertion::Never, Reinsertion::Forced(1), Reinsertion::Auto] {
        let log = on_memory(128, Options { reinsertion, reclaim: Reclaim::Lru, ..without_patience() });
        for i in 0..10_000 {
            if insert(&log, i, &value(i, i, 3000), 0, 1).is_ok() {
                get(&log, i, 1);
            }
            if i % 60 == 0 {
                log.maintain(1);
            }
        }
        let stats = log.stats();
        assert_eq!((stats.dropped_no_region, stats.reinserted > 0), (0, reinsertion != Reinsertion::Never));
    }
}

#[test]
fn single_reclaims_copy_no_part_of_spanning_objects() {
    let log = on_memory(16, Options { reinsertion: Reinsertion::Forced(0), ..without_patience() });
    insert(&log, 0, &value(0, 0, 70 << 10), 0, 1).unwrap();
    log.seal_all(1);
    (0..2).for_each(|_| reclaim_one(&log));
    assert_eq!((log.stats().reinserted, log.stats().objects), (0, 0));
}

/// A log whose object 0 was hit and has three parts, of which the second one fills a region; and the hash of the last.
fn with_a_long_one(device: Arc<dyn Device>, options: Options) -> Arc<LargeLog> {
    let log = LargeLog::new(device, AREA, options).unwrap();
    insert(&log, 1, &value(1, 1, 40 << 10), 0, 1).unwrap();
    insert(&log, 0, &value(0, 0, 100 << 10), 0, 1).unwrap();
    (2..9).for_each(|i| _ = insert(&log, i, &value(i, i, 36 << 10), 0, 1).unwrap());
    log.seal_all(1);
    hit_all(&log, 1);
    log
}

#[test]
fn parts_of_a_spanning_object_are_not_copied() {
    let options = Options { reinsertion: Reinsertion::Forced(1), ..without_patience() };
    let log = with_a_long_one(Arc::new(MemoryDevice::new(CHECKPOINT.end as usize)), options);
    log.reclaim(1, log.stats().regions_free as usize + 7);
    assert_eq!(log.stats().reinserted, 0);
}

#[test]
fn both_parts_of_a_cut_object_are_copied() {
    let log = on_memory(16, Options { reinsertion: Reinsertion::Forced(1), ..without_patience() });
    (0..2).for_each(|i| _ = insert(&log, i, &value(i, i, 40 << 10), 0, 1).unwrap());
    assert_eq!((log.stats().inserts, log.stats().later_parts), (2, 1), "the second one is cut");
    log.seal_all(1);
    assert_eq!(get(&log, 1, 1), Some(value(1, 1, 40 << 10)));
    for copies in 1..=2 {
        reclaim_one(&log);
        assert_eq!(log.stats().reinserted, copies);
        assert_eq!(get(&log, 1, 1), Some(value(1, 1, 40 << 10)));
    }
    assert!(get(&log, 0, 1).is_none(), "it was never hit");
    log.verify();
}

#[test]
fn an_insert_without_a_next_region_writes_nothing() {
    let written = |inserts_more: bool| {
        let log = on_memory(16, without_patience());
        let mut next = 0;
        while log.stats().regions_free > 0 {
            insert(&log, next, &value(next, next, 40 << 10), 0, 1).unwrap();
            next += 1;
        }
        if inserts_more {
            assert_eq!(insert(&log, next, &value(next, next, 60 << 10), 0, 1), Err(LargeDrop::NoRegion));
        }
        log.seal_all(1);
        log.verify();
        log.stats().written_payload_bytes
    };
    assert_eq!(written(true), written(false));
}

#[test]
fn forced_reinsertion_copies_far_longer_objects() {
    for (reinsertion, kept) in [(Reinsertion::Auto, [true, false]), (Reinsertion::Forced(1), [true, true])] {
        let log = on_memory(16, Options { reinsertion, ..without_patience() });
        (0..8).for_each(|i| _ = insert(&log, i, &value(i, i, if i == 1 { 16_000 } else { 4000 }), 0, 1).unwrap());
        log.seal_all(1);
        hit_all(&log, 2);
        reclaim_one(&log);
        assert_eq!([0, 1].map(|i| region_of(&log, i).is_some()), kept, "{reinsertion:?}");
    }
}

#[test]
fn what_reclaim_reads_is_counted() {
    let device = Eventful::new(16 * REGION_BYTES);
    let log = on(device.clone(), Options { reinsertion: Reinsertion::Forced(1), ..small() });
    insert(&log, 0, &value(0, 0, 20 << 10), 0, 1).unwrap();
    log.seal_all(1);
    hit_all(&log, 1);
    let before = log.memory_bytes();
    let (theirs, seen) = (log.clone(), Arc::new(Mutex::new(0)));
    let bytes = seen.clone();
    device.after(2, Direction::Read, move || *bytes.lock().unwrap() = theirs.memory_bytes());
    reclaim_one(&log);
    let stats = log.stats();
    assert_eq!((stats.reinserted, stats.read_bytes), (1, device.monitor().stats().reads.bytes));
    let during = *seen.lock().unwrap();
    assert!(during >= before + (20 << 10), "{before} bytes of memory before, {during} with a read of 20 KiB under way");
}

#[test]
fn an_unreadable_footer_retires_its_region() {
    let device = Arc::new(FaultyDevice::new(16 * REGION_BYTES, 1, Delivery::AtOnce));
    let log = on(device.clone(), Options { reinsertion: Reinsertion::Forced(1), ..small() });
    hit_all(&log, fill(&log, 1, 9 << 10));
    let begin = log.geometry.offset(region_of(&log, 0).unwrap());
    device.break_range(Direction::Read, begin..begin + 1);
    log.reclaim(1, 2);
    let stats = log.stats();
    assert_eq!((stats.read_errors, stats.regions_retired, stats.reinserted), (1, 1, 0));
}

#[test]
fn a_scan_visits_objects_copied_during_it() {
    let log = on_memory(16, Options { reinsertion: Reinsertion::Forced(1), ..small() });
    // Each in a group of its own.
    for (number, expiry) in [(0, 200), (1, 10_000), (2, 0)] {
        insert(&log, number, b"value", expiry, 1).unwrap();
    }
    hit_all(&log, 3);
    let (mut met, mut scan, mut visits) = (Vec::new(), log.scan(), 0);
    while log.advance_scan(&mut scan, (ScanContent::Keys, Unread::Kept), 1, &mut |it| met.push(it.key.bytes.to_vec())) {
        visits += 1;
        if visits == 1 {
            log.seal_all(1);
            log.reclaim(1, log.stats().regions_free as usize + 3);
            assert_eq!(log.stats().reinserted, 3);
        }
    }
    assert!((0..3).all(|number| met.contains(&key(number))), "{} of 3 were met", met.len());
}

#[test]
fn a_scan_revisits_open_regions_for_copies() {
    let log = on_memory(16, Options { reinsertion: Reinsertion::Forced(1), ..small() });
    // Each in a group of its own.
    (0..2).for_each(|number| _ = insert(&log, number, b"value", [200, 400][number as usize], 1).unwrap());
    hit_all(&log, 2);
    let (mut met, mut scan, mut visits) = (Vec::new(), log.scan(), 0);
    while log.advance_scan(&mut scan, (ScanContent::Keys, Unread::Kept), 1, &mut |it| met.push(it.key.bytes.to_vec())) {
        visits += 1;
        if visits == 1 {
            // The region of the second one is full, and goes; now it has as little time left as the first one had.
            (100..102).for_each(|i| _ = insert(&log, i, &value(i, 1, 60_000), 501, 101).unwrap());
            log.reclaim(101, log.stats().regions_free as usize + 1);
            assert_eq!(log.stats().reinserted, 1);
        }
    }
    assert!((0..2).all(|number| met.contains(&key(number))), "{} of 2 were met", met.len());
}

#[test]
fn copies_of_one_read_stay_within_space() {
    const BYTES: usize = 3500;
    let log = on_memory(16, Options { reinsertion: Reinsertion::Forced(1), ..without_patience() });
    hit_all(&log, fill(&log, 4, BYTES));
    reclaim_one(&log);
    let copied = log.stats().reinserted as usize * BYTES;
    assert!((REGION_BYTES / 2 - 2 * BYTES..=REGION_BYTES / 2).contains(&copied), "{copied} bytes of {REGION_BYTES}");
}

#[test]
fn a_checkpoint_fails_on_a_stuck_reclaim() {
    let device = Eventful::new(CHECKPOINT.end as usize);
    let max_checkpoint_wait = Duration::from_millis(100);
    let options = Options { reinsertion: Reinsertion::Forced(1), max_checkpoint_wait, ..without_patience() };
    let log = LargeLog::new(device.clone(), AREA, options).unwrap();
    hit_all(&log, fill(&log, 4, 9 << 10));
    let (resume, stuck) = mpsc::channel::<()>();
    let (is_stuck, reached) = mpsc::channel();
    // The header and the footer of the region are read before.
    device.after(2, Direction::Read, move || {
        is_stuck.send(()).unwrap();
        let _ = stuck.recv();
    });
    thread::scope(|scope| {
        scope.spawn(|| log.reclaim(1, 5));
        reached.recv().unwrap();
        let (sender, result) = mpsc::channel();
        let theirs = log.clone();
        scope.spawn(move || sender.send(theirs.checkpoint(CHECKPOINT, 1)));
        let result = result.recv_timeout(Duration::from_secs(120));
        drop(resume);
        assert!(matches!(result, Ok(Err(_))), "{result:?}");
    });
}
