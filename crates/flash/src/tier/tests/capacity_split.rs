//! The capacity is divided by the objects that arrive.

use super::{get, put};
use crate::device::MemoryDevice;
use crate::large::Reinsertion;
use crate::{FlashHash, Tier, TierOptions};
use std::sync::Arc;

const CAPACITY: u64 = 24 << 20;
/// Bytes of key and value.
const SMALL: u64 = 500;
const LARGE: u64 = 5000;

fn tier(small_share: Option<f64>) -> Arc<Tier> {
    let options = TierOptions { small_share, reinsertion: Reinsertion::Never, ..TierOptions::default() };
    Tier::on(Arc::new(MemoryDevice::new(CAPACITY as usize)), &options).unwrap()
}

/// Inserts `times` times the capacity, with a share of small objects by bytes. Returns the bytes of each kind that are
/// found afterwards.
fn fill(tier: &Arc<Tier>, times: u64, small_share: f64) -> [u64; 2] {
    let (mut put_bytes, mut keys) = ([0, 0], Vec::new());
    while put_bytes[0] + put_bytes[1] < times * CAPACITY {
        let is_small = (put_bytes[0] as f64) < small_share * (put_bytes[0] + put_bytes[1]) as f64 || small_share == 1.0;
        let bytes = if is_small { SMALL } else { LARGE };
        let key = (keys.len() as u64).to_le_bytes();
        put(tier, &key, &vec![keys.len() as u8; bytes as usize - key.len()], 1);
        put_bytes[usize::from(!is_small)] += bytes;
        keys.push(bytes);
        if keys.len() % 64 == 0 {
            tier.maintain(1);
        }
    }
    let mut there = [0, 0];
    for (number, &bytes) in keys.iter().enumerate() {
        if let Some(found) = get(tier, &(number as u64).to_le_bytes(), 1) {
            assert_eq!(found.value(), vec![number as u8; bytes as usize - 8]);
            there[usize::from(bytes == LARGE)] += bytes;
        }
    }
    tier.verify();
    there
}

#[test]
fn objects_of_one_kind_get_nearly_all() {
    let [_, large] = fill(&tier(None), 2, 0.0);
    assert!(large > CAPACITY / 100 * 90, "{large}");
    let [small, _] = fill(&tier(None), 2, 1.0);
    // The log has a tenth, of which a part is free or holds objects that were moved to pages.
    assert!(small > CAPACITY / 100 * 75, "{small}");
}

#[test]
fn the_split_gives_small_objects_longer_stays() {
    // Ten runs, of which eight count.
    for share in [0.05, 0.2] {
        let [small, large] = fill(&tier(None), 8, share);
        let (found, expected) = (small as f64 / (small + large) as f64, 8.0 * share / (8.0 * share + 1.0 - share));
        assert!((expected - 0.1..expected + 0.1).contains(&found), "{share}: {small} {large}");
        assert!(small + large > CAPACITY / 100 * 75, "{share}: {small} {large}");
    }
}

#[test]
fn many_small_objects_that_take_little_stay() {
    for (one_in, stay) in [(10, true), (100, false)] {
        let tier = tier(None);
        let objects = 2 * CAPACITY / LARGE;
        let is_small = |number: u64| number.is_multiple_of(one_in);
        for number in 0..objects {
            let bytes = if is_small(number) { 16 } else { LARGE as usize };
            put(&tier, &number.to_le_bytes(), &vec![7; bytes - 8], 1);
            tier.maintain(1);
        }
        let first = (0..objects / 4).filter(|&number| is_small(number));
        let there = first.clone().filter(|number| get(&tier, &number.to_le_bytes(), 1).is_some()).count();
        // Objects from before the split are in regions of large objects.
        assert_eq!(there > first.count() / 4, stay, "{there}, one in {one_in}");
        assert_eq!(tier.small.is_there(), stay);
    }
}

#[test]
fn what_comes_first_does_not_decide_alone() {
    let tier = tier(None);
    for number in 0..CAPACITY / 40 / LARGE {
        put(&tier, &(number | 1 << 40).to_le_bytes(), &[1; LARGE as usize], 1);
        tier.maintain(1);
    }
    let [small, large] = fill(&tier, 8, 0.2);
    assert!(small > large, "{small} {large}");
}

#[test]
fn a_share_that_still_grows_does_not_decide() {
    let tier = tier(None);
    let bytes_of = |number: u64| if number.is_multiple_of(8) { SMALL } else { LARGE };
    let mut came = 0;
    for number in 0.. {
        came += bytes_of(number);
        if came > CAPACITY * 11 / 80 {
            break;
        }
        put(&tier, &(number | 1 << 40).to_le_bytes(), &vec![1; bytes_of(number) as usize], 1);
        tier.maintain(1);
    }
    assert!(!tier.small.is_there(), "a tenth, and before it nothing");
    let [small, large] = fill(&tier, 8, 0.2);
    assert!(small > large, "{small} {large}");
}

#[test]
fn a_share_that_was_named_is_kept() {
    let [_, large] = fill(&tier(Some(0.75)), 2, 0.0);
    assert!((CAPACITY / 100 * 20..CAPACITY / 4).contains(&large), "{large}");
}

#[test]
fn objects_survive_the_split_and_can_change() {
    let tier = tier(None);
    let value = vec![7; 400];
    for number in 0..100_u64 {
        put(&tier, &number.to_le_bytes(), &value, 1).unwrap();
    }
    tier.maintain(1);
    assert!(!tier.small.is_there(), "too little came");
    assert_eq!(tier.stats().large.objects, 100);
    for number in 100..2000_u64 {
        put(&tier, &number.to_le_bytes(), &value, 1).unwrap();
    }
    tier.maintain(1);
    assert!(tier.small.is_there());
    assert!((0..2000_u64).all(|number| get(&tier, &number.to_le_bytes(), 1).is_some()));
    assert_eq!(tier.stats().large.objects, 2000);
    put(&tier, &0_u64.to_le_bytes(), &[8; 400], 1).unwrap();
    assert_eq!(tier.stats().large.objects, 1999, "it is a small one now");
    assert_eq!(get(&tier, &0_u64.to_le_bytes(), 1).unwrap().value(), [8; 400]);
    assert!(tier.remove(FlashHash::of(&1_u64.to_le_bytes())));
    assert!(get(&tier, &1_u64.to_le_bytes(), 1).is_none());
    assert_eq!(tier.stats().written.superblock, 2 * 4096, "the boundary is on the device");
    tier.flush();
    assert!((0..2000_u64).all(|number| get(&tier, &number.to_le_bytes(), 1).is_none()));
    tier.verify();
}

#[test]
fn flushed_large_objects_do_not_prevent_the_split() {
    let tier = tier(None);
    fill(&tier, 2, 0.0);
    tier.flush();
    (0..10).for_each(|_| tier.maintain(1));
    let [small, large] = fill(&tier, 8, 0.2);
    assert!(small > large, "{small} {large}");
}

#[test]
fn tiny_objects_survive_the_split() {
    for (memory_bytes, capacity) in [(1 << 20, 64 << 20), (1 << 20, 128 << 20), (2 << 20, 64 << 20)] {
        let options = TierOptions { memory_bytes, reinsertion: Reinsertion::Never, ..TierOptions::default() };
        let tier = Tier::on(Arc::new(MemoryDevice::new(capacity)), &options).unwrap();
        let objects = memory_bytes / 12 / 4 + 1;
        (0..objects).for_each(|number| _ = put(&tier, &number.to_le_bytes(), &[7; 36], 1).unwrap());
        (0..100).for_each(|_| tier.settle(1));
        assert!(tier.small.is_there());
        let left = (0..objects).filter(|&number| get(&tier, &number.to_le_bytes(), 1).is_some()).count();
        assert_eq!(left as u64, objects, "{memory_bytes} bytes of memory for {capacity}");
        tier.verify();
    }
}
