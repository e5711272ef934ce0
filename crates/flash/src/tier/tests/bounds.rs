//! The memory stays within its bound, and the tier continues to accept objects.

use super::{Stopping, get, put, serve, stamped};
use crate::device::{Delivery, FaultyDevice, MemoryDevice};
use crate::{Tier, TierOptions};
use std::sync::Arc;

/// Enough for the indexes of 300 B and 16 KiB, but not for these objects, far more than flash can hold.
#[test]
fn tiny_objects_stay_within_the_memory_bound() {
    for (share, bytes, min) in [(0.95, 8, 8000), (0.05, 2100, 800)] {
        let base = TierOptions { small_share: Some(share), memory_bytes: 2 << 20, ..TierOptions::default() };
        let device = || Arc::new(MemoryDevice::new(32 << 20));
        let open_error = Tier::on(device(), &TierOptions { memory_bytes: 1 << 16, ..base.clone() }).err().unwrap();
        let mebibytes = open_error.to_string();
        assert!(mebibytes.contains("increase that to 1 MiB"), "{mebibytes}");
        let tier = Tier::on(device(), &TierOptions { memory_bytes: 1 << 20, ..base }).unwrap();
        let (mut taken, mut found) = (0, 0);
        let objects = ((3 * (32 << 20)) / (bytes as u64 + 16)).min(240_000);
        for number in 0..objects {
            let (key, value) = (number.to_le_bytes(), vec![number as u8; bytes]);
            let is_late = number > objects * 9 / 10;
            let token = put(&tier, &key, &value, 1);
            taken += u64::from(token.is_some() && is_late);
            if number % 64 == 0 {
                tier.maintain(1);
                assert!(tier.memory_bytes() <= 1 << 20, "{} bytes", tier.memory_bytes());
                found += u64::from(get(&tier, &key, 1).is_some());
            }
        }
        assert!(taken > min && found > 0, "{taken} {:?}", tier.stats());
        tier.verify();
    }
}

/// Values of the maximum length have more parts than there are buffers for short objects. A slow device gets two of
/// them at a time, and short objects find their buffers beside them.
#[test]
fn values_beyond_the_buffers_are_taken_in_pairs() {
    const LONGEST: u64 = 3 << 20;
    let device = Arc::new(FaultyDevice::new(64 << 20, 1, Delivery::Later { queue_depth: 64 }));
    let options = TierOptions { memory_bytes: 1 << 20, max_value_bytes: LONGEST, ..TierOptions::default() };
    let tier = Tier::on(Arc::clone(&device) as _, &options).unwrap();
    let long = |number: u8| stamped(number.into(), 1, LONGEST - 16);
    for number in (0..8).step_by(2) {
        device.drain();
        for number in [number, number + 1] {
            assert!(tier.has_space(), "{number}");
            assert!(put(&tier, &[number], &long(number), 1).is_some(), "{number}: {:?}", tier.stats().drops);
        }
        assert!(!tier.has_space() && tier.memory_bytes() > 2 * LONGEST, "{number}: they are in buffers");
        let before = tier.stats();
        assert!(put(&tier, b"another", &long(99), 1).is_none());
        let after = tier.stats();
        assert_eq!(
            (after.drops.behind, after.large.regions_free),
            (before.drops.behind + 1, before.large.regions_free)
        );
        assert!(put(&tier, b"short", &[number; 9000], 1).is_some());
        tier.maintain(1);
    }
    device.drain();
    assert!(tier.memory_bytes() < 1 << 20, "what was kept for them is given back");
    std::thread::scope(|scope| {
        let _stopping = Stopping(&tier);
        serve(scope, &tier);
        (0..8).for_each(|number| assert_eq!(get(&tier, &[number], 1).unwrap().value(), long(number)));
        assert_eq!(get(&tier, b"short", 1).unwrap().value(), [6; 9000]);
    });
    tier.verify();
}

#[test]
fn maintenance_makes_space_for_a_spanning_object() {
    let options = TierOptions { small_share: Some(0.5), ..TierOptions::default() };
    let tier = Tier::on(Arc::new(MemoryDevice::new(8 << 20)), &options).unwrap();
    let fill = |from: u64| (from..from + 900).all(|number| put(&tier, &number.to_le_bytes(), &[1; 5000], 1).is_some());
    assert!(!fill(0), "the log is full");
    let before = tier.stats().large.regions_written;
    assert!(put(&tier, b"long", &[2; 400_000], 1).is_none());
    assert_eq!(tier.stats().large.regions_written, before, "no region was spent on a part of it");
    tier.maintain(1);
    assert!(put(&tier, b"long", &[2; 400_000], 1).is_some());
    assert_eq!(get(&tier, b"long", 1).unwrap().value(), [2; 400_000]);
    tier.verify();
}

/// Long values arrive seldom, one after another, in a log that short ones fill: all but the first two are inserted,
/// since maintenance frees regions for them.
#[test]
fn long_values_find_space_whenever_they_come() {
    for (mib, share) in [(32, None), (64, Some(0.5))] {
        let device = Arc::new(FaultyDevice::new(mib << 20, 1, Delivery::Later { queue_depth: 64 }));
        let tier =
            Tier::on(Arc::clone(&device) as _, &TierOptions { small_share: share, ..TierOptions::default() }).unwrap();
        let settle = || (0..2).for_each(|_| (device.drain(), tier.maintain(1)).1);
        let (mut taken, mut lost) = (0, Vec::new());
        for number in 0..10 * mib as u64 {
            for short in 0..64_u64 {
                put(&tier, &(number << 6 | short).to_le_bytes(), &[1; 15_000], 1);
                device.drain();
                tier.maintain(1);
            }
            if number % 16 == 15 && number > 2 * mib as u64 {
                settle();
                assert!(tier.has_space());
                for key in [b"first", b"other"] {
                    let had_space = tier.has_space();
                    let is_taken = put(&tier, key, &[2; 1 << 20], 1).is_some();
                    taken += u32::from(is_taken);
                    lost.extend((had_space && !is_taken).then_some(number));
                }
            }
        }
        assert!(taken > 10 && lost.len() <= 2, "{mib} MiB: {taken}, lost after the short ones {lost:?}");
        settle();
        tier.verify();
    }
}
