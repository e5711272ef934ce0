//! Which regions are reclaimed, which objects are kept, and the cost in writes.

use super::super::options::Options;
use super::super::{Reclaim, Reinsertion};
use super::*;
use crate::device::{BLOCK, Buffer, Delivery, Faults, FaultyDevice, read};
use ebbtide_testkit::Random;
use std::time::Duration;

/// Inserts `objects` objects, three to a region, and returns those that are found.
pub(super) fn survivors(log: &Arc<LargeLog>, objects: u64, now: u32) -> Vec<u64> {
    for i in 0..objects {
        insert(log, i, &value(i, i, whole_part(3)), 0, now).unwrap();
        log.maintain(now);
    }
    log.verify();
    (0..objects).filter(|&i| log.could_exist(Key::new(&key(i)).hash)).collect()
}

#[test]
fn an_index_at_its_bound_evicts_oldest_objects() {
    let bound = 60_000;
    let log = on_memory(64, Options { index_bytes: bound, ..small() });
    let mut dropped = 0;
    for i in 0..20_000 {
        if i % 100 == 0 {
            log.maintain(1);
        }
        let result = insert(&log, i, &value(i, i, 40), 0, 1);
        dropped += u64::from(result == Err(LargeDrop::Memory));
        assert!(log.index.bytes() < bound + BLOCK, "{}", log.index.bytes());
    }
    let stats = log.stats();
    assert_eq!(stats.dropped_memory, dropped);
    assert!(stats.regions_evicted > 5 && stats.regions_free > 20, "{stats:?}");
    assert!(log.could_exist(Key::new(&key(19_999)).hash) && !log.could_exist(Key::new(&key(0)).hash));
    assert!(dropped < 2000, "{dropped}");
    log.verify();
}

#[test]
fn few_regions_of_a_full_log_are_free() {
    let log = on_memory(640, Options { max_buffer_wait: Duration::ZERO, ..small() });
    let mut free = Vec::new();
    for i in 0..4000 {
        insert(&log, i, &value(i, i, 16 << 10), 0, 1).unwrap();
        log.maintain(1);
        free.push(log.stats().regions_free);
    }
    let full = &free[3000..];
    // Two for each of five buffers, and a 64th of the log that goes at once.
    assert!(full.iter().all(|free| (10..=20).contains(free)) && full.contains(&10), "{full:?}");
    log.verify();
}

#[test]
fn the_oldest_region_goes_first() {
    let log = on_memory(16, Options { ..small() });
    let left = survivors(&log, 200, 1);
    assert!(left.len() > 14 * 3 && left.iter().is_sorted() && left.last() == Some(&199), "{left:?}");
    assert_eq!(left.len() as u64, left[left.len() - 1] - left[0] + 1, "the last ones, all of them");
    assert!(left.iter().all(|&i| get(&log, i, 1) == Some(value(i, i, whole_part(3)))));
    let stats = log.stats();
    assert_eq!(stats.objects_evicted + left.len() as u64, 200);
    assert_eq!(stats.read_bytes, stats.hits_device * 6 * 4096, "reclaim read nothing");
}

#[test]
fn objects_beyond_half_a_region_leave_none_empty() {
    let log = on_memory(32, small());
    let bytes = 40 << 10;
    for i in 0..200 {
        insert(&log, i, &value(i, i, bytes), 0, 1).unwrap();
        log.maintain(1);
    }
    let found: Vec<_> = (0..200).filter(|&i| get(&log, i, 1) == Some(value(i, i, bytes))).collect();
    // Free regions, the open one, and the rest of a cut object.
    let min = (32 - log.stats().regions_free as usize - 2) * REGION_BYTES / bytes - 1;
    assert!(found.len() >= min, "{} of {min}", found.len());
    log.verify();
}

#[test]
fn lru_keeps_what_is_hit() {
    for (reclaim, is_reinserted) in [(Reclaim::Fifo, false), (Reclaim::Lru, true)] {
        let log = on_memory(16, Options { reclaim, reinsertion: Reinsertion::Never, ..small() });
        insert(&log, 1000, b"favourite", 0, 1).unwrap();
        for i in 0..200 {
            insert(&log, i, &value(i, i, 16 << 10), 0, 1).unwrap();
            log.maintain(1);
            get(&log, 1000, 1);
        }
        assert_eq!(get(&log, 1000, 1).is_some(), is_reinserted, "{reclaim:?}");
        log.verify();
    }
}

#[test]
fn reclaimed_regions_are_discarded_only_on_request() {
    let changed = |discard| {
        let device = Arc::new(FaultyDevice::new(16 * REGION_BYTES, 1, Delivery::AtOnce));
        let log = on(device.clone(), Options { discard, ..small() });
        for i in 0..14 {
            insert(&log, i, &value(i, i, 60_000), 0, 1).unwrap();
        }
        log.seal_all(1);
        let second = |region: u64| read(&*device, region * REGION_BYTES as u64 + 4096, Buffer::zeroed(4096)).unwrap();
        let before: Vec<_> = (0..14).map(second).collect();
        log.flush();
        log.maintain(1);
        log.verify();
        (0..14).filter(|&region| second(region)[..] != before[region as usize][..]).count()
    };
    assert_eq!(changed(false), 0);
    assert!(changed(true) > 3);
}

#[test]
fn only_recoverable_logs_mark_regions_dead() {
    let marks = |recovers| {
        let log = on_memory(16, Options { recovers, ..small() });
        (0..100).for_each(|i| _ = insert(&log, i, &value(i, i, 16 << 10), 0, 1).unwrap());
        log.verify();
        let stats = log.stats();
        assert!(stats.regions_evicted > 10, "{stats:?}");
        stats.written_death_bytes / 4096 * 10 / stats.regions_evicted
    };
    assert_eq!((marks(true), marks(false)), (10, 0));
}

#[test]
fn expired_regions_go_unread_and_before_the_others() {
    let log = on_memory(16, Options { ..small() });
    for i in 0..15 {
        insert(&log, i, &value(i, i, whole_part(3)), if i % 2 == 0 { 100 } else { 0 }, 1).unwrap();
    }
    log.seal_all(1);
    let writes = log.stats().written_death_bytes;
    log.maintain(99);
    assert_eq!(log.stats().regions_expired, 0);
    log.maintain(100);
    let stats = log.stats();
    assert_eq!((stats.regions_expired, stats.objects_expired, stats.regions_evicted), (3, 8, 0));
    assert_eq!((stats.read_bytes, stats.written_death_bytes - writes), (0, 0));
    assert_eq!(stats.objects, 7, "no memory is left with them");
    log.verify();
}

#[test]
fn a_flush_frees_everything() {
    let log = on_memory(16, small());
    survivors(&log, 40, 1);
    log.flush();
    assert!((0..40).all(|i| !log.could_exist(Key::new(&key(i)).hash) && get(&log, i, 1).is_none()));
    insert(&log, 3, b"after", 0, 1).unwrap();
    log.maintain(1);
    assert_eq!((log.stats().objects, log.stats().regions_free), (1, 15));
    assert_eq!(get(&log, 3, 1), Some(b"after".to_vec()));
    log.verify();
}

#[test]
fn a_write_that_fails_retires_its_region() {
    let device = Arc::new(FaultyDevice::new(16 * REGION_BYTES, 1, Delivery::AtOnce));
    let log = on(device.clone(), small());
    insert(&log, 1, b"value", 0, 1).unwrap();
    device.set(Faults { write_errors: 1, ..Faults::default() });
    log.seal_all(1);
    assert_eq!(get(&log, 1, 1), None);
    assert!(log.stats().regions_retired == 1 && remove(&log, 1), "still known, for it may be on the device");
    insert(&log, 2, b"value", 0, 1).unwrap();
    log.seal_all(1);
    log.maintain(1);
    assert_eq!((log.stats().regions_retired, log.stats().objects), (2, 1), "they cannot be buried");
    device.set(Faults::default());
    insert(&log, 3, b"value", 0, 1).unwrap();
    log.seal_all(1);
    assert!(get(&log, 3, 1).is_some(), "others go on");
    log.verify();
}

#[test]
fn a_read_that_fails_retires_its_region() {
    let device = Arc::new(FaultyDevice::new(16 * REGION_BYTES, 1, Delivery::AtOnce));
    let log = on(device.clone(), small());
    insert(&log, 1, b"value", 0, 1).unwrap();
    insert(&log, 2, b"value", 0, 1).unwrap();
    log.seal_all(1);
    device.set(Faults { read_errors: 1, ..Faults::default() });
    assert_eq!(get(&log, 1, 1), None);
    device.set(Faults::default());
    assert_eq!(get(&log, 2, 1), None);
    log.maintain(1);
    let stats = log.stats();
    assert_eq!((stats.read_errors, stats.regions_retired, stats.regions_failed, stats.objects), (1, 1, 1, 0));
    log.verify();
}

#[test]
fn a_failed_device_retires_all_regions() {
    let device = Arc::new(FaultyDevice::new(16 * REGION_BYTES, 1, Delivery::AtOnce));
    let log = on(device.clone(), small());
    device.set(Faults { write_errors: 1, read_errors: 1, ..Faults::default() });
    for i in 0..100 {
        let _ = insert(&log, i, &value(i, i, 16 << 10), 0, 1);
        log.maintain(1);
    }
    assert!(log.stats().dropped_no_region > 0);
    assert_eq!(log.stats().regions_retired, 16);
    log.verify();
}

#[test]
fn write_amplification_of_large_objects_is_small() {
    // Exponential sizes with a mean of 8 KiB; regions of 1 MiB, a sixteenth of the default, show footers and ends
    // larger.
    let log = on_memory(32, Options { region_bytes: 1 << 20, ..small() });
    let mut random = Random::new(1);
    for i in 0..20_000 {
        let uniform = (random.uniform(1 << 32) + 1) as f64 / (1_u64 << 32) as f64;
        let bytes = (2048.0 - 6144.0 * uniform.ln()) as usize;
        insert(&log, i, &vec![1; bytes], 0, 1).unwrap();
        log.maintain(1);
    }
    log.seal_all(1);
    let stats = log.stats();
    println!("write amplification {:.4}: {stats:?}", stats.write_amplification());
    assert!(stats.written_payload_bytes as f64 / 20_000.0 > 8000.0);
    assert!(stats.regions_evicted > 100 && stats.write_amplification() <= 1.05);
    log.verify();
}

#[test]
fn evictions_of_parts_add_up_to_inserts() {
    let log = on_memory(16, Options { reinsertion: Reinsertion::Never, expiry_groups: 1, ..small() });
    (0..200).for_each(|number| _ = insert(&log, number, &value(number, 1, 9000), 0, 1).unwrap());
    let stats = log.stats();
    assert!(stats.objects_evicted > 100 && stats.later_parts > 10, "{stats:?}");
    assert_eq!(stats.objects_evicted + stats.objects, stats.parts_inserted());
}
