//! The guarantees of the tier, one by one, on a device that completes at once.

use super::{SMALL, get, put, put_until, tier_on};
use crate::admission::{AdmissionOptions, AdmissionPolicy};
use crate::device::{BLOCK, Delivery, Faults, FaultyDevice, Health, MemoryDevice};
use crate::{FlashHash, FlashLookup, Key, Tier, TierOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const CAPACITY: usize = 8 << 20;

fn tier() -> Arc<Tier> {
    tier_on(Arc::new(MemoryDevice::new(CAPACITY)))
}

#[test]
fn sizes_go_to_their_store_and_come_back() {
    let tier = tier();
    for bytes in [0, 1, 300, SMALL, 2100, 70_000, 200_000] {
        let (key, value) = (format!("k{bytes}"), vec![bytes as u8; bytes]);
        let token = put(&tier, key.as_bytes(), &value, 1).unwrap_or_else(|| panic!("{bytes} bytes"));
        let found = get(&tier, key.as_bytes(), 1).unwrap();
        assert_eq!((found.value(), found.token), (&value[..], token));
        assert!(tier.is_current(FlashHash::of(key.as_bytes()), token));
        assert!(tier.could_exist(FlashHash::of(key.as_bytes())));
    }
    let stats = tier.stats();
    assert_eq!((stats.large.inserts, stats.small.counts.inserted), (3, 4));
    assert_eq!((stats.hits_large, stats.hits_small, stats.misses, stats.inserts), (3, 4, 0, 7));
    assert!(get(&tier, b"other", 1).is_none());
    assert_eq!(tier.stats().misses, 1);
    assert_eq!(tier.stats().drops.total(), 0);
    tier.verify();
}

#[test]
fn expected_long_objects_find_space() {
    const LONG: usize = 300_000;
    let dropped = |is_expected: bool| {
        let is_dropped = |objects: u64| {
            let options = TierOptions { region_bytes: 64 << 10, ..TierOptions::default() };
            let tier = Tier::on(Arc::new(MemoryDevice::new(CAPACITY)), &options).unwrap();
            for number in 0..objects {
                put(&tier, &number.to_le_bytes(), &[1; 5000], 1);
                tier.maintain(1);
            }
            if is_expected {
                tier.expect(4, LONG);
                tier.maintain(1);
            }
            assert!(tier.has_space());
            put(&tier, b"long", &[1; LONG], 1).is_none()
        };
        (3000..3020).filter(|objects| is_dropped(*objects)).count()
    };
    assert_eq!(dropped(true), 0);
    assert!(dropped(false) > 0, "they would be taken without that, too");
}

#[test]
fn versions_of_another_size_hide_older_ones() {
    for sizes in [[100, 5000], [5000, 100]] {
        let tier = tier();
        let hash = FlashHash::of(b"key");
        let tokens = sizes.map(|bytes| put(&tier, b"key", &vec![1; bytes], 1).unwrap());
        assert_eq!(get(&tier, b"key", 1).unwrap().value().len(), sizes[1]);
        assert_eq!(tokens.map(|token| tier.is_current(hash, token)), [false, true]);
        assert!(!tier.large.could_exist(hash) || !tier.small.could_exist(hash), "only one store has it");
        tier.remove(hash);
        assert!(get(&tier, b"key", 1).is_none(), "nothing is uncovered");
        tier.verify();
    }
}

#[test]
fn removed_flushed_and_expired_objects_are_misses() {
    for bytes in [100, 5000] {
        let tier = tier();
        let value = vec![1; bytes];
        put(&tier, b"removed", &value, 1).unwrap();
        assert!(tier.remove(FlashHash::of(b"removed")));
        assert!(get(&tier, b"removed", 1).is_none());
        put_until(&tier, b"expired", &value, 20, 1).unwrap();
        assert!(get(&tier, b"expired", 19).is_some());
        assert!(get(&tier, b"expired", 20).is_none());
        put(&tier, b"flushed", &value, 20).unwrap();
        tier.flush();
        assert!(get(&tier, b"flushed", 20).is_none());
        assert!(!tier.could_exist(FlashHash::of(b"flushed")));
        put_until(&tier, b"expired", &value, 200, 20).unwrap();
        assert!(get(&tier, b"expired", 20).is_some());
        assert!(get(&tier, b"expired", 200).is_none());
        assert!(get(&tier, b"expired", 20).is_none(), "time does not go back");
        tier.verify();
    }
}

#[test]
fn what_is_not_taken_leaves_no_older_version() {
    for bytes in [100, 5000] {
        let tier = tier();
        put(&tier, b"key", &vec![1; bytes], 100).unwrap();
        assert!(put_until(&tier, b"key", &vec![2; bytes], 101, 100).is_none(), "expires too soon");
        assert_eq!(tier.stats().admission.refused_expires_soon, 1);
        assert!(get(&tier, b"key", 100).is_none());
        put(&tier, b"key", &vec![1; bytes], 100).unwrap();
        assert!(put(&tier, b"key", &vec![2; CAPACITY], 100).is_none());
        assert_eq!(tier.stats().drops.too_large, 1);
        assert!(get(&tier, b"key", 100).is_none());
        tier.verify();
    }
}

#[test]
fn admission_decides() {
    let admission = AdmissionOptions {
        policy: AdmissionPolicy::RejectFirst { times: 1, keys: 100 },
        ..AdmissionOptions::default()
    };
    let options = TierOptions { admission, ..TierOptions::default() };
    let tier = Tier::on(Arc::new(MemoryDevice::new(CAPACITY)), &options).unwrap();
    assert!(put(&tier, b"key", b"value", 1).is_none());
    assert!(put(&tier, b"key", b"value", 1).is_some());
    let stats = tier.stats().admission;
    assert_eq!((stats.refused_by_policy, stats.admitted), (1, 1));
}

#[test]
fn a_failed_device_neither_serves_nor_accepts() {
    let device = Arc::new(FaultyDevice::new(CAPACITY, 1, Delivery::AtOnce));
    let tier = tier_on(Arc::clone(&device) as _);
    let token = put(&tier, b"key", b"value", 1).unwrap();
    device.set(Faults { read_errors: 1, ..Faults::default() });
    for _ in 0..16 {
        let _ = crate::device::read(&*device, 0, crate::device::Buffer::zeroed(BLOCK));
    }
    assert_eq!(tier.health(), Health::Healthy, "nobody looked yet");
    assert!(matches!(tier.lookup(Key::new(b"key"), 2, Box::new(|_| ())), FlashLookup::Absent));
    assert_eq!(tier.health(), Health::Failed);
    assert!(!tier.could_exist(FlashHash::of(b"key")) && !tier.is_current(FlashHash::of(b"key"), token));
    assert!(put(&tier, b"key", b"value", 2).is_none());
    assert_eq!(tier.stats().drops.failed, 1);
    assert!(!tier.remove(FlashHash::of(b"key")), "the insert took the older version away");
    tier.flush();
    tier.maintain(3);
    tier.verify();
}

#[test]
fn a_closed_tier_has_space_and_refuses() {
    let device = Arc::new(FaultyDevice::new(CAPACITY, 1, Delivery::Later { queue_depth: 64 }));
    let tier = tier_on(Arc::clone(&device) as _);
    let has_space = |number: &u64| tier.has_space() && put(&tier, &number.to_le_bytes(), &[1; 1000], 1).is_some();
    assert!((0..100_000).take_while(has_space).count() < 100_000);
    assert!(!tier.has_space());
    tier.close(1).unwrap();
    assert!(tier.has_space() && put(&tier, b"key", b"value", 1).is_none());
    assert_eq!(tier.stats().drops.closed, 1);
    device.drain();
}

#[test]
fn keys_with_equal_hashes_are_told_apart() {
    let tier = tier();
    put(&tier, b"mine", b"small", 1).unwrap();
    let hash = FlashHash::of(b"mine");
    // A hash collision. The object is inserted directly into the large log, since the tier would remove the small
    // object.
    let foreign = crate::Object {
        key: Key { hash, ..Key::new(b"foreign") },
        value: &[&[7; 5000]],
        client_flags: 0,
        is_annotated: false,
        expiry: 0,
    };
    tier.large.insert(&foreign, 1).unwrap();
    assert_eq!(get(&tier, b"mine", 1).unwrap().value(), b"small", "from the buffer");
    tier.large.seal_all(1);
    let answered = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&answered);
    let done = Box::new(move |found: Option<crate::FlashHit>| {
        counter.fetch_add(found.expect("it is small").value().len(), Relaxed);
    });
    assert!(matches!(tier.lookup(Key::new(b"mine"), 1, done), FlashLookup::Reading));
    assert_eq!(answered.load(Relaxed), 5);
    tier.verify();
}
