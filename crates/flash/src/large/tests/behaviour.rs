//! Tests of single operations.

use super::super::options::Options;
use super::*;
use crate::FlashHash;
use crate::device::{BLOCK, Delivery, Faults, FaultyDevice};

#[test]
fn an_object_is_found_in_buffer_and_device() {
    let log = on_memory(16, small());
    for bytes in [0, 1, 2000, 4000, 5000, 60_000, 64_000, REGION_BYTES, 3 * REGION_BYTES + 17] {
        let stored = value(1, bytes as u64, bytes);
        insert(&log, 1, &stored, 0, 1).unwrap();
        assert_eq!(get(&log, 1, 1), Some(stored.clone()), "{bytes} bytes");
        log.seal_all(1);
        assert_eq!(get(&log, 1, 1), Some(stored), "{bytes} bytes");
        log.verify();
    }
    assert!(log.stats().hits_memory > 0 && log.stats().hits_device > 0);
    assert_eq!(log.stats().replaced, 8);
}

#[test]
fn what_cannot_be_stored_says_why() {
    let log = on_memory(16, small());
    assert_eq!(insert(&log, 1, b"value", 5, 5), Err(LargeDrop::Expired));
    assert_eq!(insert(&log, 1, &vec![0; 5 * REGION_BYTES], 0, 5), Err(LargeDrop::TooLarge));
    let long = [0; 251];
    for bytes in [&long[..], b""] {
        let object = Object { key: Key::new(bytes), value: &[], client_flags: 0, is_annotated: false, expiry: 0 };
        assert_eq!(log.insert(&object, 5), Err(LargeDrop::TooLarge));
    }
    assert_eq!((log.stats().dropped_expired, log.stats().dropped_too_large), (1, 3));
    log.verify();
}

#[test]
fn a_value_of_many_regions_is_read_whole() {
    let options = Options { region_bytes: 256 << 10, ..small() };
    let log = on_memory(400, options);
    let stored = value(1, 1, 20 << 20);
    insert(&log, 1, &stored, 0, 1).unwrap();
    log.seal_all(1);
    assert_eq!(get(&log, 1, 1), Some(stored));
    assert!(remove(&log, 1));
    assert_eq!(get(&log, 1, 1), None);
    log.verify();
}

#[test]
fn an_expired_object_is_a_miss() {
    let log = on_memory(16, small());
    insert(&log, 1, b"short", 10, 1).unwrap();
    insert(&log, 2, b"long", 0, 1).unwrap();
    assert!(get(&log, 1, 9).is_some() && get(&log, 1, 10).is_none());
    assert!(get(&log, 1, 9).is_none(), "time does not go back");
    log.seal_all(5);
    assert!(get(&log, 1, 5).is_none() && get(&log, 2, 5).is_some());
}

/// A lookup of key 1 whose read is pending while `change` happens.
fn meanwhile(change: impl FnOnce(&Arc<LargeLog>)) -> Option<Option<Vec<u8>>> {
    let device = Arc::new(FaultyDevice::new(16 * REGION_BYTES, 1, Delivery::Later { queue_depth: 64 }));
    let log = on(device.clone(), small());
    insert(&log, 1, b"old", 0, 1).unwrap();
    log.seal_all(1);
    device.drain();
    let (sender, receiver) = mpsc::channel();
    let done = Box::new(move |found: Option<FlashHit>| sender.send(found.map(|found| found.value().to_vec())).unwrap());
    assert!(matches!(log.lookup(Key::new(&key(1)), 1, done), FlashLookup::Reading));
    assert_eq!(device.pending(), 1);
    change(&log);
    device.drain();
    log.verify();
    receiver.try_recv().ok()
}

#[test]
fn what_goes_during_the_read_is_not_found() {
    assert_eq!(meanwhile(|_| ()), Some(Some(b"old".to_vec())));
    assert_eq!(meanwhile(|log| assert!(remove(log, 1))), Some(None));
    assert_eq!(meanwhile(|log| log.flush()), Some(None));
    assert_eq!(
        meanwhile(|log| {
            insert(log, 1, b"new", 0, 1).unwrap();
        }),
        Some(Some(b"new".to_vec()))
    );
    assert_eq!(
        meanwhile(|log| {
            log.flush();
            insert(log, 2, b"other", 0, 1).unwrap();
        }),
        Some(None)
    );
}

#[test]
fn a_token_names_one_version() {
    let log = on_memory(16, small());
    let hash = FlashHash::of(&key(1));
    let old = insert(&log, 1, b"value", 0, 1).unwrap().token;
    let new = insert(&log, 1, b"value", 0, 1).unwrap();
    assert!(new.replaced && !log.is_current(hash, old) && log.is_current(hash, new.token));
    log.seal_all(1);
    assert_eq!(find(&log, 1, 1).unwrap().token, new.token);
    assert!(log.remove(hash) && !log.could_exist(hash));
    let flushed = insert(&log, 1, b"value", 0, 1).unwrap().token;
    log.flush();
    assert!(!log.is_current(hash, flushed));
}

#[test]
fn two_keys_of_one_hash_are_not_mistaken() {
    let log = on_memory(16, small());
    let (mine, other) = (Key::new(b"mine"), Key { hash: FlashHash::of(b"mine"), ..Key::new(b"other") });
    let object = |key, value| Object { key, value, client_flags: 0, is_annotated: false, expiry: 0 };
    log.insert(&object(mine, &[b"value"]), 1).unwrap();
    let miss =
        |_: &str| matches!(log.lookup(other, 1, Box::new(|found| assert!(found.is_none()))), FlashLookup::Absent);
    assert!(miss("in the buffer"));
    log.seal_all(1);
    assert!(!miss("on the device"));
    assert_eq!(log.stats().misses_collision, 2);
}

#[test]
fn a_slow_device_drops_inserts_without_delay() {
    let device = Arc::new(FaultyDevice::new(16 * REGION_BYTES, 1, Delivery::Later { queue_depth: 1 }));
    let options = Options { max_buffer_wait: std::time::Duration::from_millis(1), ..small() };
    let log = on(device.clone(), options);
    let results: Vec<_> = (0..20).map(|i| insert(&log, i, &value(i, i, 50_000), 0, 1)).collect();
    // Five buffers hold six objects.
    assert!(results[..6].iter().all(Result::is_ok));
    assert!(results[6..].iter().all(|result| *result == Err(LargeDrop::Behind)));
    assert_eq!(log.stats().dropped_behind, 14);
    assert_eq!(get(&log, 2, 1), Some(value(2, 2, 50_000)), "from the buffer that waits");
    device.drain();
    log.maintain(2);
    device.drain();
    log.maintain(2);
    device.drain();
    insert(&log, 30, b"value", 0, 2).unwrap();
    log.verify();
}

#[test]
fn an_insert_waits_for_a_buffer_before_dropping() {
    let device = Arc::new(FaultyDevice::new(32 * REGION_BYTES, 1, Delivery::Later { queue_depth: 1 }));
    let options = Options { max_buffer_wait: std::time::Duration::from_secs(60), ..small() };
    let log = on(device.clone(), options);
    std::thread::scope(|scope| {
        let _stop = served(scope, &*device);
        assert!((0..20).all(|i| insert(&log, i, &value(i, i, 50_000), 0, 1).is_ok()));
    });
    assert_eq!(log.stats().dropped_behind, 0);
    log.verify();
}

#[test]
fn reads_that_the_device_refuses_are_misses() {
    let device = Arc::new(FaultyDevice::new(16 * REGION_BYTES, 1, Delivery::AtOnce));
    let log = on(device.clone(), small());
    insert(&log, 1, b"value", 0, 1).unwrap();
    log.seal_all(1);
    device.set(Faults { refusals: 1, ..Faults::default() });
    assert_eq!(get(&log, 1, 1), None);
    device.set(Faults::default());
    assert!(get(&log, 1, 1).is_some());
    assert_eq!(log.stats().misses_refused, 1);
}

#[test]
fn a_wrong_byte_is_a_miss() {
    let device = Arc::new(FaultyDevice::new(16 * REGION_BYTES, 1, Delivery::AtOnce));
    let log = on(device.clone(), small());
    insert(&log, 1, &value(1, 1, 3000), 0, 1).unwrap();
    log.seal_all(1);
    device.flip(15 * REGION_BYTES as u64 + 1000, 3);
    assert_eq!(get(&log, 1, 1), None);
    assert_eq!(log.stats().misses_corrupt, 1);
    assert!(remove(&log, 1), "what may be found after a restart is still known");
}

#[test]
fn lost_writes_are_misses() {
    let device = Arc::new(FaultyDevice::new(16 * REGION_BYTES, 1, Delivery::AtOnce));
    let log = on(device.clone(), small());
    device.set(Faults { lost_writes: 1, ..Faults::default() });
    insert(&log, 1, &value(1, 1, 3000), 0, 1).unwrap();
    log.seal_all(1);
    assert_eq!(get(&log, 1, 1), None);
    assert_eq!(log.stats().misses_corrupt, 1);
}

#[test]
fn a_region_with_older_contents_is_a_miss() {
    let device = Arc::new(FaultyDevice::new(16 * REGION_BYTES, 1, Delivery::AtOnce));
    let log = on(device.clone(), small());
    for summary in 0..2 {
        // The death mark covers a block: the key is after it.
        insert(&log, 0, &value(0, summary, 9000), 0, 1).unwrap();
        insert(&log, 1, &value(1, summary, 3000), 0, 1).unwrap();
        log.seal_all(1);
        if summary == 0 {
            for i in 0..15 {
                insert(&log, 10 + i, &value(i, i, 60_000), 0, 1).unwrap();
            }
            log.flush();
            log.maintain(1);
            device.set(Faults { lost_writes: 1, ..Faults::default() });
        }
    }
    assert_eq!((get(&log, 1, 1), log.stats().misses_corrupt), (None, 1));
}

#[test]
fn buffers_are_sealed_when_they_are_old() {
    let log = on_memory(16, Options { seal_seconds: 50, ..small() });
    insert(&log, 1, b"value", 0, 100).unwrap();
    log.maintain(149);
    assert_eq!(log.stats().regions_written, 0);
    log.maintain(150);
    assert_eq!(log.stats().regions_written, 1);
    insert(&log, 2, b"value", 170, 160).unwrap();
    log.maintain(170);
    assert_eq!((log.stats().regions_written, log.stats().regions_unwritten), (1, 1), "nothing in it lives");
    log.verify();
}

#[test]
fn memory_is_what_is_in_use() {
    let log = on_memory(16, small());
    let empty = log.memory_bytes();
    insert(&log, 1, b"value", 0, 1).unwrap();
    assert!((REGION_BYTES..REGION_BYTES + 200).contains(&(log.memory_bytes() - empty)));
    insert(&log, 2, b"value", 100, 1).unwrap();
    assert!(log.memory_bytes() - empty > 2 * REGION_BYTES, "another group");
    log.seal_all(1);
    assert!(log.memory_bytes() - empty < 1000);
    let device = Arc::new(FaultyDevice::new(16 * REGION_BYTES, 1, Delivery::Later { queue_depth: 64 }));
    let log = on(device.clone(), small());
    insert(&log, 1, &[1; 5000], 0, 1).unwrap();
    log.seal_all(1);
    device.drain();
    let idle = log.memory_bytes();
    log.lookup(Key::new(&key(1)), 1, Box::new(|_| ()));
    assert_eq!(log.memory_bytes() - idle, 2 * BLOCK, "the buffer of the read");
    device.drain();
    assert_eq!(log.memory_bytes(), idle);
}

#[test]
fn a_read_covers_few_blocks() {
    let log = on_memory(128, small());
    let mut min = 0;
    for i in 0..500 {
        let bytes = 2000 + (i as usize * 7919) % 14_000;
        insert(&log, i, &value(i, 1, bytes), 0, 1).unwrap();
        min += (bytes + key(i).len() + 48).div_ceil(BLOCK);
    }
    log.seal_all(1);
    assert!((0..500).all(|i| get(&log, i, 1).is_some()));
    let read = log.stats().read_bytes as usize / BLOCK;
    println!("{read} blocks read, {min} at least");
    assert!(read <= min + 500 * 6 / 10, "{read} blocks read, {min} at least");
}

#[test]
fn objects_that_fill_a_block_lie_in_one() {
    let log = on_memory(8, Options { region_bytes: 256 * BLOCK, ..small() });
    let read = |number| {
        let before = log.stats().read_bytes;
        assert!(get(&log, number, 1).is_some());
        (log.stats().read_bytes - before) as usize / BLOCK
    };
    for i in 0..200 {
        // Now and then one that does not.
        let bytes = if i % 50 == 7 { 2500 } else { 4000 };
        insert(&log, i, &value(i, 1, bytes), 0, 1).unwrap();
    }
    log.seal_all(1);
    let split = (0..200).filter(|&i| read(i) > 1).count();
    assert!(split <= 8, "{split} of 200 objects lie across two blocks");
    assert_eq!(log.stats().regions_written, 1, "gaps are few");
}

#[test]
fn objects_up_to_region_size_fit_empty_regions() {
    for region_bytes in [64 << 10, 128 << 10, 1 << 20] {
        let log = on_memory(16, Options { region_bytes, ..small() });
        // With its header it fills its blocks, and would span one more after the region's header.
        for bytes in region_bytes - BLOCK - 120..region_bytes - BLOCK - 40 {
            log.seal_all(1);
            log.maintain(1);
            insert(&log, 1, &vec![1; bytes], 0, 1).unwrap();
        }
        log.verify();
    }
}
