//! What is written again, what it costs, and what happens meanwhile.

use super::super::format::part_hash;
use super::super::options::Options;
use super::super::{Known, Reclaim, Reinsertion};
use super::eventful::Eventful;
use super::reclaim::survivors;
use super::*;
use crate::FlashHash;
use crate::device::{Delivery, Direction, FaultyDevice};
use crate::object::ScanContent;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

const AREA: Range<u64> = 0..(16 * REGION_BYTES) as u64;
const CHECKPOINT: Range<u64> = AREA.end..AREA.end + (64 << 10);

/// As the tier has it: nothing is waited for, and one group.
fn without_patience() -> Options {
    Options { max_buffer_wait: Duration::ZERO, expiry_groups: 1, ..small() }
}

fn region_of(log: &LargeLog, number: u64) -> Option<u32> {
    log.find(FlashHash::of(&key(number)), |address| log.geometry.split(address.unit()).0)
}

/// Inserts objects of so many bytes until so many regions are free, and says how many.
fn fill(log: &Arc<LargeLog>, free: u64, bytes: usize) -> u64 {
    let mut next = 0;
    while log.stats().regions_free > free {
        insert(log, next, &value(next, next, bytes), 0, 1).unwrap();
        next += 1;
    }
    next
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
    let known = Known { checkpoint: Some(CHECKPOINT), ..Known::default() };
    let (log, recovered) = LargeLog::recover(device, AREA, options, &known, 1).unwrap();
    assert!(recovered.from_checkpoint);
    log
}

#[test]
fn what_was_hit_is_written_again() {
    for (reinsertion, kept) in [
        (Reinsertion::Never, [false; 3]),
        (Reinsertion::Hits(1), [true, true, false]),
        (Reinsertion::Hits(2), [true, false, false]),
    ] {
        let log = on_memory(16, Options { reinsertion, ..small() });
        let mut next = 0;
        while log.stats().regions_evicted == 0 {
            insert(&log, next, &value(next, next, 10 << 10), 0, 1).unwrap();
            if next == 8 {
                get(&log, 0, 1);
                get(&log, 0, 1);
                get(&log, 1, 1);
            }
            log.maintain(1);
            next += 1;
        }
        // 0, 1 and 2 were in the first region.
        let found = [0, 1, 2].map(|i| log.could_exist(Key::new(&key(i)).hash));
        assert_eq!(found, kept, "{reinsertion:?}");
        assert_eq!(log.stats().reinserted, kept.iter().filter(|&&kept| kept).count() as u64);
        log.verify();
    }
}

#[test]
fn what_was_hit_is_written_again_for_as_long_as_that_pays() {
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
    let (copies, all) = (run(Reinsertion::Auto, 0).0, run(Reinsertion::Hits(1), 0).0);
    assert!(copies < all / 5, "{copies} of {all}");
}

#[test]
fn a_share_is_written_again_at_most_half_of_a_region() {
    let kept = |percent| {
        let log = on_memory(16, Options { reinsertion: Reinsertion::Percent(percent), fills_up: false, ..small() });
        survivors(&log, 400, 1);
        let stats = log.stats();
        stats.reinserted as f64 / (stats.objects_evicted + stats.reinserted) as f64
    };
    assert_eq!(kept(0), 0.0);
    assert!((0.1..0.4).contains(&kept(25)), "{}", kept(25));
    assert!((0.3..=0.5).contains(&kept(100)), "{}", kept(100));
}

#[test]
fn of_short_objects_at_most_half_is_written_again_too() {
    let log = on_memory(64, Options { reinsertion: Reinsertion::Percent(100), ..without_patience() });
    fill(&log, 1, 20);
    let before = log.stats();
    (0..20).for_each(|_| log.maintain(1));
    let deletions = log.stats().regions_evicted - before.regions_evicted;
    assert!((2..9).contains(&deletions), "{deletions} regions were reclaimed for none that came");
}

#[test]
fn what_is_not_copied_for_its_length_takes_no_room_from_what_is() {
    let copies = |hits_long: bool| {
        let log = on_memory(16, Options { reinsertion: Reinsertion::Hits(1), ..without_patience() });
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
fn copies_of_several_groups_take_half_of_what_is_won_at_most() {
    let (now, incarnations) = (400_000, [100, 600, 2400, 10_000, 40_000, 160_000, 400_000]);
    let log = on_memory(
        32,
        Options { reinsertion: Reinsertion::Hits(1), expiry_groups: 8, buffers: 12, ..without_patience() },
    );
    let mut next = 0;
    // Of one group as they come, of seven later.
    while log.stats().regions_free > 2 {
        insert(&log, next, &value(next, next, 9 << 10), now + incarnations[next as usize % incarnations.len()], 1)
            .unwrap();
        next += 1;
    }
    hit_all(&log, next);
    log.reclaim(now, 3);
    let stats = log.stats();
    assert!(stats.reinserted > 0 && stats.regions_evicted == 1 && stats.regions_free >= 2, "{stats:?}");
}

#[test]
fn a_log_of_few_regions_keeps_as_much_with_copies_as_without() {
    for (regions, long) in [(5, 9 << 10), (8, 65 << 10)] {
        let kept = [Reinsertion::Never, Reinsertion::Auto].map(|reinsertion| {
            let log = on_memory(regions, Options { reinsertion, reclaim: Reclaim::Lru, ..without_patience() });
            for i in 0..1000 {
                let bytes = if i % 12 == 0 { long } else { 9 << 10 };
                // Now and then there is no room.
                let _ = insert(&log, i, &value(i, i, bytes), 0, 1);
                log.maintain(1);
            }
            log.stats().objects
        });
        assert_eq!(kept[0], kept[1], "of {regions} regions");
    }
}

#[test]
fn what_was_copied_is_owed() {
    let log = on_memory(64, without_patience());
    hit_all(&log, fill(&log, 2, 9 << 10));
    log.reclaim(1, 12);
    let copied = log.stats().reinserted * (9 << 10);
    let debt =
        (0..10_000).filter(|&i| log.reinsertion_value.refuses_insert(FlashHash(i), 1 << 10)).count() as u64 * (1 << 10);
    assert!(copied > 0 && (copied * 9 / 10..copied * 11 / 10).contains(&debt), "{copied} were copied, {debt} are owed");
}

#[test]
fn of_objects_longer_than_half_a_region_at_most_half_is_written_again() {
    let new_for_each_region = |reinsertion, fills_up| {
        let log = on_memory(256, Options { reinsertion, fills_up, ..without_patience() });
        let (mut next, mut before) = (0, 0);
        while log.stats().regions_evicted < 100 {
            // Now and then there is no room for one.
            let _ = insert(&log, next, &value(next, next, 34_000), 0, 1);
            log.maintain(1);
            next += 1;
            before = if log.stats().regions_evicted == 0 { next } else { before };
        }
        (next - before) as f64 / log.stats().regions_evicted as f64
    };
    for fills_up in [false, true] {
        let (never, all) = (
            new_for_each_region(Reinsertion::Never, fills_up),
            new_for_each_region(Reinsertion::Percent(100), fills_up),
        );
        assert!(all >= never * 0.45, "{all} instead of {never}");
    }
}

#[test]
fn copies_fill_regions_up_and_a_restart_finds_them() {
    // Two do not fit a region.
    const BYTES: usize = 34_000;
    const COUNT: u64 = 5000;
    let device = Arc::new(MemoryDevice::new(512 * REGION_BYTES));
    let options = Options { reinsertion: Reinsertion::Hits(1), ..without_patience() };
    let log = on(device.clone(), options);
    for i in 0..COUNT {
        // Now and then there is no room for one.
        let is_in = insert(&log, i, &value(i, i, BYTES), 0, 1).is_ok();
        assert_eq!(get(&log, i, 1).is_some(), is_in);
        log.maintain(1);
    }
    log.seal_all(1);
    log.verify();
    let stats = log.stats();
    let copied = stats.written_reinsertion_bytes as f64 / (stats.regions_evicted * stats.region_bytes) as f64;
    let found = |log: &Arc<LargeLog>| -> Vec<u64> {
        let is_found = |i: &u64| get(log, *i, 1).is_some_and(|it| it == value(*i, *i, BYTES));
        (0..COUNT).filter(is_found).collect()
    };
    let before = found(&log);
    let capacity = 512 * REGION_BYTES;
    assert!(
        copied > 0.4 && before.len() * BYTES > capacity * 9 / 10,
        "{copied} copied, {} found: {stats:?}",
        before.len()
    );
    drop(log);
    let (log, _) = LargeLog::recover(device, 0..capacity as u64, options, &Known::default(), 1).unwrap();
    assert_eq!(found(&log), before);
    log.verify();
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
            let object =
                Object { key: Key::new(&key), value: &[&vec![1; bytes]], client_flags: 5, attributes: 6, expiry: 0 };
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
fn what_is_owed_is_neither_for_a_flush_nor_for_what_would_not_be_taken() {
    let log = on_memory(64, without_patience());
    let takes_all = |bytes: usize| {
        let value = vec![0; bytes];
        let value: &[&[u8]] = &[&value];
        let object = |hash| Object {
            key: Key { bytes: b"key", hash: FlashHash(hash) },
            value,
            client_flags: 0,
            attributes: 0,
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
fn copies_that_pay_are_made_after_a_restart_too() {
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
fn hits_of_what_a_restart_found_say_nothing_of_copies() {
    for first_order in [1, 0x9000_0000] {
        let device = Arc::new(FaultyDevice::new(CHECKPOINT.end as usize, 1, Delivery::AtOnce));
        let log = LargeLog::new(device.clone(), AREA, small()).unwrap();
        log.next_order.store(first_order, Relaxed);
        (0..50).for_each(|i| _ = insert(&log, i, &value(i, i, 9 << 10), 0, 1).unwrap());
        let log = restarted(log, device, small());
        hit_all(&log, 50);
        // Half of the bytes are copies, and only what is new is hit.
        (0..50).for_each(|_| log.reinsertion_value.first_hit(false, u16::MAX / 2));
        assert!(!log.reinsertion_value.copies_pay(0.0, 0), "orders from {first_order:#x} on");
    }
}

/// A reclaim that makes copies opens regions for them.
#[test]
fn a_checkpoint_waits_for_a_reclaim_that_has_begun() {
    let device = Eventful::new(CHECKPOINT.end as usize);
    let options = Options { reinsertion: Reinsertion::Hits(1), max_buffer_wait: Duration::ZERO, ..small() };
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
    let known = Known { checkpoint: Some(CHECKPOINT), ..Known::default() };
    let (_, recovered) = LargeLog::recover(device, AREA, options, &known, 1).unwrap();
    assert!(recovered.from_checkpoint && recovered.objects == there, "of {there} objects: {recovered:?}");
}

/// Inserts that are taken after copies were made, and before what they were made of is free.
fn taken_during_a_reclaim(reinsertion: Reinsertion, is_region_open: bool) -> usize {
    let device = Eventful::new(16 * REGION_BYTES);
    let log = on(device.clone(), Options { reinsertion, fills_up: false, ..without_patience() });
    let free = if is_region_open { 0 } else { 1 };
    let mut next = 0;
    // Three to a region.
    while log.stats().regions_free > free || next % 3 != 1 {
        insert(&log, next, &value(next, next, 20 << 10), 0, 1).unwrap();
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
fn copies_leave_inserts_the_open_region_and_another_one() {
    for is_region_open in [true, false] {
        let taken = [Reinsertion::Never, Reinsertion::Hits(1)].map(|it| taken_during_a_reclaim(it, is_region_open));
        assert_eq!(taken, [8, 8], "{is_region_open}");
    }
}

#[test]
fn inserts_find_room_between_upkeeps_with_copies_as_without() {
    for reinsertion in [Reinsertion::Never, Reinsertion::Hits(1), Reinsertion::Auto] {
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
fn of_an_object_in_two_regions_the_first_part_is_copied_with_the_other() {
    for has_second in [true, false] {
        let log = on_memory(16, Options { reinsertion: Reinsertion::Hits(1), ..without_patience() });
        insert(&log, 0, &value(0, 0, 50 << 10), 0, 1).unwrap();
        let order = insert(&log, 1, &value(1, 1, 24 << 10), 0, 1).unwrap().order;
        log.seal_all(1);
        assert!(get(&log, 1, 1).is_some());
        let hash = FlashHash::of(&key(1));
        assert!(has_second || log.remove(part_hash(hash, order, 1)));
        while region_of(&log, 0).is_some() {
            reclaim_one(&log);
        }
        assert_eq!(get(&log, 1, 1).is_some(), has_second);
        assert_eq!(log.stats().reinserted > 0, has_second);
    }
}

#[test]
fn of_an_object_longer_than_a_region_nothing_is_copied_where_one_goes_at_a_time() {
    let log = on_memory(16, Options { reinsertion: Reinsertion::Percent(100), ..without_patience() });
    insert(&log, 0, &value(0, 0, 70 << 10), 0, 1).unwrap();
    log.seal_all(1);
    (0..2).for_each(|_| reclaim_one(&log));
    assert_eq!((log.stats().reinserted, log.stats().objects), (0, 0));
}

/// A log whose object 0 was hit and has three parts, of which the second one fills a region; and the hash of the last.
fn with_a_long_one(device: Arc<dyn Device>, options: Options) -> (Arc<LargeLog>, FlashHash) {
    let log = LargeLog::new(device, AREA, options).unwrap();
    insert(&log, 1, &value(1, 1, 40 << 10), 0, 1).unwrap();
    let order = insert(&log, 0, &value(0, 0, 100 << 10), 0, 1).unwrap().order;
    (2..9).for_each(|i| _ = insert(&log, i, &value(i, i, 36 << 10), 0, 1).unwrap());
    log.seal_all(1);
    hit_all(&log, 1);
    (log, part_hash(FlashHash::of(&key(0)), order, 2))
}

#[test]
fn an_object_of_several_regions_is_copied_part_by_part() {
    let device = Arc::new(MemoryDevice::new(CHECKPOINT.end as usize));
    let options = Options { reinsertion: Reinsertion::Hits(1), buffers: 6, ..without_patience() };
    let (log, last) = with_a_long_one(device.clone(), options);
    insert(&log, 10, &value(10, 10, 1000), 0, 1).unwrap();
    let open = region_of(&log, 10);
    log.reclaim(1, log.stats().regions_free as usize + 7);
    let stats = log.stats();
    assert_eq!((stats.reinserted, stats.reinsertions_dropped), (3, 0));
    assert_eq!(get(&log, 0, 1), Some(value(0, 0, 100 << 10)));
    assert!((1..9).all(|i| region_of(&log, i).is_none()), "they were in the same regions");
    // What fills a region has one of its own: the open one has the others, and goes on.
    insert(&log, 11, &value(11, 11, 1000), 0, 1).unwrap();
    let last = log.find(last, |address| log.geometry.split(address.unit()).0);
    assert_eq!([region_of(&log, 0), last, region_of(&log, 11)], [open; 3]);
    log.verify();
    let log = restarted(log, device.clone(), options);
    assert_eq!(get(&log, 0, 1), Some(value(0, 0, 100 << 10)));
    drop(log);
    let (log, _) = LargeLog::recover(device, AREA, options, &Known::default(), 1).unwrap();
    assert_eq!(get(&log, 0, 1), Some(value(0, 0, 100 << 10)), "after a crash");
}

#[test]
fn of_an_object_that_lacks_a_part_the_first_is_not_copied() {
    let options = Options { reinsertion: Reinsertion::Hits(1), ..without_patience() };
    let (log, last) = with_a_long_one(Arc::new(MemoryDevice::new(CHECKPOINT.end as usize)), options);
    assert!(log.remove(last));
    log.reclaim(1, log.stats().regions_free as usize + 7);
    assert!(region_of(&log, 0).is_none());
}

#[test]
fn of_an_object_that_is_long_as_a_whole_no_part_is_copied_by_itself() {
    let (log, _) = with_a_long_one(Arc::new(MemoryDevice::new(CHECKPOINT.end as usize)), without_patience());
    log.reclaim(1, log.stats().regions_free as usize + 7);
    assert_eq!(log.stats().reinserted, 0);
}

#[test]
fn what_is_longer_than_others_by_far_is_copied_if_that_was_asked_for() {
    for (reinsertion, kept) in [(Reinsertion::Auto, [true, false]), (Reinsertion::Hits(1), [true, true])] {
        let log = on_memory(16, Options { reinsertion, fills_up: false, ..without_patience() });
        (0..8).for_each(|i| _ = insert(&log, i, &value(i, i, if i == 1 { 16_000 } else { 4000 }), 0, 1).unwrap());
        log.seal_all(1);
        hit_all(&log, 2);
        reclaim_one(&log);
        assert_eq!([0, 1].map(|i| region_of(&log, i).is_some()), kept, "{reinsertion:?}");
    }
}

#[test]
fn chance_keeps_all_parts_of_an_object_or_none() {
    let log = on_memory(64, Options { reinsertion: Reinsertion::Percent(50), buffers: 8, ..without_patience() });
    let mut in_two = Vec::new();
    for i in 0..20 {
        let order = insert(&log, i, &value(i, i, 50 << 10), 0, 1).unwrap().order;
        let rest = part_hash(FlashHash::of(&key(i)), order, 1);
        in_two.extend(log.could_exist(rest).then_some((i, rest)));
    }
    log.seal_all(1);
    log.reclaim(1, log.stats().regions_free as usize + 30);
    let kept = in_two.iter().filter(|&&(i, rest)| {
        assert_eq!(region_of(&log, i).is_some(), log.could_exist(rest), "object {i}");
        log.could_exist(rest)
    });
    let kept = kept.count();
    assert!((1..in_two.len()).contains(&kept), "{kept} of {}", in_two.len());
}

#[test]
fn an_object_of_which_the_first_part_moves_during_the_lookup_is_found() {
    let device = Eventful::new(16 * REGION_BYTES);
    let log = on(device.clone(), Options { reinsertion: Reinsertion::Hits(1), ..without_patience() });
    insert(&log, 0, &value(0, 0, 50 << 10), 0, 1).unwrap();
    insert(&log, 1, &value(1, 1, 24 << 10), 0, 1).unwrap();
    log.seal_all(1);
    assert!(get(&log, 1, 1).is_some());
    let theirs = log.clone();
    device.after(1, Direction::Read, move || reclaim_one(&theirs));
    assert_eq!(get(&log, 1, 1), Some(value(1, 1, 24 << 10)));
    assert!(log.stats().reinserted > 0);
}

#[test]
fn what_reclaim_reads_is_counted() {
    let device = Eventful::new(16 * REGION_BYTES);
    let log = on(device.clone(), Options { reinsertion: Reinsertion::Hits(1), ..small() });
    insert(&log, 0, &value(0, 0, 20 << 10), 0, 1).unwrap();
    log.seal_all(1);
    hit_all(&log, 1);
    let before = log.memory_bytes();
    let (theirs, seen) = (log.clone(), Arc::new(Mutex::new(0)));
    let bytes = seen.clone();
    device.after(2, Direction::Read, move || *bytes.lock().unwrap() = theirs.memory_bytes());
    reclaim_one(&log);
    let stats = log.stats();
    assert_eq!((stats.reinserted, stats.read_bytes), (1, device.account().stats().reads.bytes));
    let during = *seen.lock().unwrap();
    assert!(during >= before + (20 << 10), "{before} bytes of memory before, {during} with a read of 20 KiB under way");
}

#[test]
fn a_region_whose_footer_cannot_be_read_has_failed() {
    let device = Arc::new(FaultyDevice::new(16 * REGION_BYTES, 1, Delivery::AtOnce));
    let log = on(device.clone(), Options { reinsertion: Reinsertion::Hits(1), ..small() });
    hit_all(&log, fill(&log, 1, 9 << 10));
    let begin = log.geometry.offset(region_of(&log, 0).unwrap());
    device.break_range(Direction::Read, begin..begin + 1);
    log.reclaim(1, 2);
    let stats = log.stats();
    assert_eq!((stats.read_errors, stats.regions_retired, stats.reinserted), (1, 1, 0));
}

#[test]
fn a_walk_meets_what_is_copied_at_its_end() {
    let log = on_memory(16, Options { reinsertion: Reinsertion::Hits(1), ..small() });
    // Each in a group of its own.
    for (number, expiry) in [(0, 200), (1, 10_000), (2, 0)] {
        insert(&log, number, b"value", expiry, 1).unwrap();
    }
    hit_all(&log, 3);
    let (mut met, mut scan, mut visits) = (Vec::new(), log.scan(), 0);
    while log.advance_scan(&mut scan, ScanContent::Keys, 1, &mut |it| met.push(it.key.bytes.to_vec())) {
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
fn a_walk_meets_what_is_copied_to_an_open_region_that_it_has_visited() {
    let log = on_memory(16, Options { reinsertion: Reinsertion::Hits(1), ..small() });
    // Each in a group of its own.
    (0..2).for_each(|number| _ = insert(&log, number, b"value", [200, 400][number as usize], 1).unwrap());
    hit_all(&log, 2);
    let (mut met, mut scan, mut visits) = (Vec::new(), log.scan(), 0);
    while log.advance_scan(&mut scan, ScanContent::Keys, 1, &mut |it| met.push(it.key.bytes.to_vec())) {
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

/// A log whose object 0 was hit, and is to be copied.
fn with_one_to_copy(device: &Arc<Eventful>, options: Options) -> (Arc<LargeLog>, u64) {
    let log = on(device.clone(), Options { reinsertion: Reinsertion::Hits(1), ..options });
    let order = insert(&log, 0, &value(0, 0, 30_000), 0, 1).unwrap().order;
    log.seal_all(1);
    hit_all(&log, 1);
    (log, order)
}

#[test]
fn what_is_copied_in_two_parts_is_found_meanwhile() {
    let device = Eventful::new(16 * REGION_BYTES);
    let (log, _) = with_one_to_copy(&device, without_patience());
    insert(&log, 1, &value(1, 1, 50_000), 0, 1).unwrap();
    let (theirs, found) = (log.clone(), Arc::new(Mutex::new(None)));
    let seen = found.clone();
    // The region of the first part.
    device.at_next(Direction::Write, move || *seen.lock().unwrap() = get(&theirs, 0, 1));
    reclaim_one(&log);
    assert_eq!((log.stats().reinserted, found.lock().unwrap().take()), (1, Some(value(0, 0, 30_000))));
    assert_eq!(get(&log, 0, 1), Some(value(0, 0, 30_000)));
}

#[test]
fn a_copy_is_not_begun_that_finds_no_buffer_for_its_second_part() {
    let device = Eventful::new(16 * REGION_BYTES);
    let (log, _) = with_one_to_copy(&device, Options { buffers: 3, ..without_patience() });
    device.is_busy.store(true, Relaxed);
    // One buffer is left, for inserts.
    (1..3).for_each(|i| _ = insert(&log, i, &value(i, i, 55_000), 0, 1).unwrap());
    assert_eq!(log.free_lists().free_slots.len(), log.buffers_reserved_for_inserts());
    let open = log.expiry_groups[0].lock().unwrap().as_ref().unwrap().region;
    reclaim_one(&log);
    assert_eq!((log.stats().reinserted, log.regions[open as usize].copied()), (0, 0));
    device.is_busy.store(false, Relaxed);
    log.maintain(1);
    log.verify();
}

#[test]
fn a_copy_has_two_parts_at_most() {
    let device = Eventful::new(16 * REGION_BYTES);
    let options = Options { max_buffer_wait: Duration::from_secs(10), expiry_groups: 2, buffers: 4, ..small() };
    let (log, order) = with_one_to_copy(&device, options);
    let put = |number, bytes, expiry| insert(&log, number, &value(number, 1, bytes), expiry, 1).unwrap();
    put(1, 50_000, 0);
    device.is_busy.store(true, Relaxed);
    let slot = usize::from(log.regions[region_of(&log, 1).unwrap() as usize].slot());
    thread::scope(|scope| {
        // As a lookup holds it while it copies from a buffer.
        let contents = log.slots[slot].read().unwrap();
        let reclaiming = scope.spawn(|| reclaim_one(&log));
        while log.expiry_groups[1].try_lock().is_ok() {
            thread::yield_now();
        }
        // Of another group: the second part has to wait for a buffer.
        (2..4).for_each(|i| _ = put(i, 60_000, 200));
        drop(contents);
        // The next region of its own group has room for a part of it.
        put(4, 58_000, 0);
        device.is_busy.store(false, Relaxed);
        log.submit_waiting();
        reclaiming.join().unwrap();
    });
    let parts = [1, 2].map(|part| log.could_exist(part_hash(FlashHash::of(&key(0)), order, part)));
    assert_eq!((parts, get(&log, 0, 1)), ([true, false], Some(value(0, 0, 30_000))));
    log.verify();
}

#[test]
fn of_what_is_read_at_once_no_more_is_copied_than_there_is_room_for() {
    const BYTES: usize = 3500;
    let log = on_memory(16, Options { reinsertion: Reinsertion::Hits(1), ..without_patience() });
    hit_all(&log, fill(&log, 4, BYTES));
    reclaim_one(&log);
    let copied = log.stats().reinserted as usize * BYTES;
    assert!((REGION_BYTES / 2 - 2 * BYTES..=REGION_BYTES / 2).contains(&copied), "{copied} bytes of {REGION_BYTES}");
}

/// Its first part lies in a region that is complete before the other part has its place.
#[test]
fn a_walk_meets_what_is_copied_in_two_parts() {
    let device = Eventful::new(16 * REGION_BYTES);
    let log = on(device.clone(), Options { reinsertion: Reinsertion::Hits(1), ..small() });
    insert(&log, 1, &value(1, 1, 50_000), 250, 1).unwrap();
    insert(&log, 0, &value(0, 0, 30_000), 400, 1).unwrap();
    insert(&log, 2, &value(2, 2, 40_000), 500, 1).unwrap();
    hit_all(&log, 1);
    let met = Arc::new(Mutex::new(Vec::new()));
    let advance_scan = {
        let (log, met) = (log.clone(), met.clone());
        move |scan: &mut _| {
            log.advance_scan(scan, ScanContent::Keys, 150, &mut |it| met.lock().unwrap().push(it.key.bytes.to_vec()))
        }
    };
    let (theirs, scan) = (advance_scan.clone(), Arc::new(Mutex::new(log.scan())));
    let started = scan.clone();
    // The region of the first part.
    device.at_next(Direction::Write, move || assert!(theirs(&mut started.lock().unwrap())));
    // By now it has as little time left as the one that is open.
    log.reclaim(150, log.stats().regions_free as usize + 1);
    assert_eq!((log.stats().reinserted, met.lock().unwrap().clone()), (1, vec![key(1)]));
    while advance_scan(&mut scan.lock().unwrap()) {}
    assert!(get(&log, 0, 150).is_some() && met.lock().unwrap().contains(&key(0)), "it was there all the time");
}

#[test]
fn a_checkpoint_gives_up_on_a_device_that_is_stuck_during_a_reclaim() {
    let device = Eventful::new(CHECKPOINT.end as usize);
    let options = Options { reinsertion: Reinsertion::Hits(1), ..without_patience() };
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
        let result = result.recv_timeout(Duration::from_secs(30));
        drop(resume);
        assert!(matches!(result, Ok(Err(_))), "{result:?}");
    });
}
