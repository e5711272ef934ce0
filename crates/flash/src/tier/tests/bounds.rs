//! The memory stays within its bound, and the tier goes on taking objects there.

use super::{get, put};
use crate::device::Memory;
use crate::{Tier, TierOptions};
use std::sync::Arc;

/// Enough for the indexes of 300 B and 16 KiB, but not for these objects, far more than flash can hold.
#[test]
fn many_tiny_objects_stay_within_the_memory_and_new_ones_are_taken() {
    for (share, bytes, least) in [(0.95, 8, 20_000), (0.05, 2100, 2000)] {
        let base = TierOptions { small_share: Some(share), memory_bytes: 2 << 20, ..TierOptions::default() };
        let device = || Arc::new(Memory::new(32 << 20));
        let refusal = Tier::on(device(), &TierOptions { memory_bytes: 1 << 16, ..base.clone() }).err().unwrap();
        let mebibytes = refusal.to_string();
        assert!(mebibytes.contains("raise that to 1 MiB"), "{mebibytes}");
        let tier = Tier::on(device(), &TierOptions { memory_bytes: 1 << 20, ..base }).unwrap();
        let (mut taken, mut found) = (0, 0);
        let objects = (3 * (32 << 20)) / (bytes as u64 + 16);
        for number in 0..objects.min(600_000) {
            let (key, value) = (number.to_le_bytes(), vec![number as u8; bytes]);
            let is_late = number > objects.min(600_000) * 9 / 10;
            let token = put(&tier, &key, &value, 1);
            taken += u64::from(token.is_some() && is_late);
            if number % 64 == 0 {
                tier.maintain(1);
                assert!(tier.memory_bytes() <= 1 << 20, "{} bytes", tier.memory_bytes());
                found += u64::from(get(&tier, &key, 1).is_some());
            }
        }
        assert!(taken > least && found > 0, "{taken} {:?}", tier.stats());
        tier.verify();
    }
}

#[test]
fn an_object_of_several_regions_finds_room_after_the_next_upkeep() {
    let options = TierOptions { small_share: Some(0.5), ..TierOptions::default() };
    let tier = Tier::on(Arc::new(Memory::new(8 << 20)), &options).unwrap();
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
