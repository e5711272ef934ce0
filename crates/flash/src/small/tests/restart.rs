//! Crashes at random writes. A removed, overwritten, flushed or damaged object is never found afterwards.

use super::super::{Options, SmallStore};
use super::{Random, get, put, store_on};
use crate::device::{Delivery, Device, Faults, FaultyDevice};
use crate::object::FlashHash;
use crate::recovery::{LoggedDeletion, RecoveryInput};
use std::collections::HashMap;
use std::sync::Arc;

const KEYS: u64 = 3000;

struct World {
    random: Random,
    device: Arc<FaultyDevice>,
    options: Options,
    store: SmallStore,
    known: RecoveryInput,
    map: HashMap<u64, Vec<u8>>,
    hits: usize,
}

fn hash_of(key: u64) -> FlashHash {
    FlashHash::of(&key.to_le_bytes())
}

impl World {
    fn new(seed: u64, options: Options) -> Self {
        let device = Arc::new(FaultyDevice::new(1 << 20, seed, Delivery::AtOnce));
        let store = store_on(Arc::clone(&device) as Arc<dyn Device>, options.clone());
        let (known, map) = (RecoveryInput::default(), HashMap::new());
        Self { random: Random(seed), device, options, store, known, map, hits: 0 }
    }

    fn remove(&mut self, key: u64) {
        if self.store.remove(hash_of(key)) {
            self.known.deletions.push(LoggedDeletion { hash: hash_of(key), order: self.store.next_order() });
        }
        self.map.remove(&key);
    }

    fn step(&mut self) {
        let key = self.random.uniform(KEYS) * self.random.uniform(KEYS) / KEYS;
        match self.random.uniform(1000) {
            0..600 => {
                self.remove(key);
                let value = self.random.next().to_le_bytes().repeat(1 + self.random.uniform(40) as usize);
                if put(&self.store, &key.to_le_bytes(), &value, 0, 1).is_ok() {
                    self.map.insert(key, value);
                }
            }
            600..700 => self.remove(key),
            700..999 => self.store.maintain(1),
            _ => {
                if self.random.uniform(20) == 0 {
                    self.store.flush();
                    self.known.flushed = self.store.next_order();
                    self.map.clear();
                }
            }
        }
        self.device.sync().unwrap();
    }

    fn look_at_all(&mut self) -> usize {
        let mut hits = 0;
        for key in 0..KEYS {
            if let Some((value, _)) = get(&self.store, &key.to_le_bytes(), 1) {
                let kept = self.map.get(&key).unwrap_or_else(|| panic!("key {key} is gone, and came back"));
                assert_eq!(&value, kept, "key {key} came back with another value");
                hits += 1;
            }
        }
        hits
    }

    /// Continues until a write is cut off, and starts again with the state of flash at that time.
    fn crash(&mut self) {
        self.cut();
        self.recover();
        self.hits += self.look_at_all();
    }

    fn cut(&mut self) {
        self.device.cut_at(self.device.writes() + 1 + self.random.uniform(400));
        while !self.device.is_cut() {
            self.step();
        }
        self.device = Arc::new(self.device.power_cut(self.random.next()));
    }

    fn recover(&mut self) {
        self.recover_in(8192..self.device.capacity());
    }

    fn recover_in(&mut self, area: std::ops::Range<u64>) {
        assert!(self.try_recover_in(area));
    }

    fn try_recover_in(&mut self, area: std::ops::Range<u64>) -> bool {
        let device = Arc::clone(&self.device) as Arc<dyn Device>;
        let recovery = SmallStore::recover(device, area, self.options.clone(), &self.known, 1);
        let Ok((store, recovered)) = recovery else { return false };
        assert_eq!(recovered.objects, store.stats().objects());
        store.verify();
        self.store = store;
        true
    }
}

#[test]
fn a_crash_recovers_no_removed_object() {
    for seed in 0..6u64 {
        let log_percent = [10, 30, 0][seed as usize % 3];
        let rewrite_threshold = 1 + seed as u8 % 2;
        let options = Options { log_percent, rewrite_threshold, segment_bytes: 8192, salt: seed, ..Options::default() };
        println!("seed {seed}, {options:?}");
        let mut world = World::new(seed, options);
        let crashes = 15;
        (0..crashes).for_each(|_| world.crash());
        assert!(world.hits > 200 * crashes, "{} hits", world.hits);
    }
}

/// Reads fail or return wrong bits, and writes fail, also during recovery.
#[test]
fn a_crash_with_faults_recovers_no_removed_object() {
    let faults = Faults { read_errors: 300, write_errors: 300, read_flips: 300, ..Faults::default() };
    let (mut empty, mut hits) = (0, 0);
    for seed in 0..24u64 {
        let (log_percent, rewrite_threshold) = ([10, 30, 30, 0][seed as usize % 4], [2, 8][seed as usize % 2]);
        let tombstones_per_group = [128, 12][seed as usize / 4 % 2];
        let options =
            Options { log_percent, rewrite_threshold, tombstones_per_group, segment_bytes: 8192, ..Options::default() };
        println!("seed {seed}, {options:?}");
        let mut world = World::new(seed, options);
        for _ in 0..12 {
            world.device.set(faults);
            world.cut();
            let broken = Faults { read_flips: 20, write_errors: 3, ..faults };
            world.device.set([Faults::default(), faults, broken][seed as usize % 3]);
            let area = 8192..world.device.capacity();
            if !world.try_recover_in(area) {
                empty += 1;
                world.options.salt += 1;
                (world.known, world.map) = (RecoveryInput::default(), HashMap::new());
                world.device.set(Faults::default());
                world.store = store_on(Arc::clone(&world.device) as _, world.options.clone());
                world.store.erase_marks().unwrap();
            }
            hits += world.look_at_all();
        }
    }
    assert!(hits > 20_000 && empty > 5, "{hits} hits, {empty} starts were empty");
}

#[test]
fn what_was_written_is_there_after_a_restart() {
    let options = Options { rewrite_threshold: 1, salt: 9, ..Options::default() };
    let mut world = World::new(1, options);
    for key in 0..1500u64 {
        while put(&world.store, &key.to_le_bytes(), &[key as u8; 200], 0, 1).is_err() {
            world.store.maintain(1);
        }
        world.map.insert(key, vec![key as u8; 200]);
    }
    world.remove(7);
    world.store.seal(1);
    let before = world.look_at_all();
    world.recover();
    let after = world.look_at_all();
    // Those in the log page that was open when their set's page was written.
    assert!(before == 1499 && after >= 1400, "{before} before, {after} after");
    world.options.salt = 10;
    world.recover();
    assert_eq!(world.look_at_all(), 0, "another salt");
}

const CHECKPOINT: std::ops::Range<u64> = 1 << 20..(1 << 20) + (64 << 10);

/// A world with a checkpoint, on a device with space for it.
fn checkpointed(seed: u64, log_percent: u8) -> World {
    let options = Options { log_percent, segment_bytes: 8192, salt: seed, ..Options::default() };
    let device = Arc::new(FaultyDevice::new(CHECKPOINT.end as usize, seed, Delivery::AtOnce));
    let store = SmallStore::new(Arc::clone(&device) as _, 8192..CHECKPOINT.start, options.clone()).unwrap();
    let (known, map) = (RecoveryInput::default(), HashMap::new());
    let mut world = World { random: Random(seed), device, options, store, known, map, hits: 0 };
    (0..8000).for_each(|_| world.step());
    while world.map.len() < 600 || world.store.stats().tombstones == 0 {
        world.step();
    }
    world.store.checkpoint(CHECKPOINT, 1).unwrap();
    assert!(world.store.checkpoint_bytes() <= CHECKPOINT.end - CHECKPOINT.start);
    world
}

fn resume(world: &World) -> Option<SmallStore> {
    let device = Arc::clone(&world.device) as Arc<dyn Device>;
    let known = RecoveryInput { checkpoint: Some(CHECKPOINT), ..world.known.clone() };
    SmallStore::resume(device, 8192..CHECKPOINT.start, world.options.clone(), &known).unwrap()
}

#[test]
fn a_checkpoint_recovers_everything_without_page_reads() {
    for (seed, log_percent) in [(1, 10), (2, 30), (3, 0)] {
        let mut world = checkpointed(seed, log_percent);
        let before = world.look_at_all();
        let tombstones = world.store.stats().tombstones;
        let device = Arc::clone(&world.device);
        let reads = || device.monitor().stats().reads.transfers;
        let reads_before = reads();
        world.store = resume(&world).expect("it was written");
        assert_eq!(reads() - reads_before, 2, "its head and its body");
        world.store.verify();
        assert_eq!((world.look_at_all(), world.store.stats().tombstones), (before, tombstones));
        assert!(before > 300, "{before} objects, {tombstones} tombstones");
        assert!(resume(&world).is_none(), "it is used up");
        // The store continues from there: objects that only a later scan finds are right, too.
        (0..3000).for_each(|_| world.step());
        world.store.seal(1);
        world.look_at_all();
        world.recover_in(8192..CHECKPOINT.start);
        assert!(world.look_at_all() > 300);
    }
}

#[test]
fn removals_and_flushes_after_the_checkpoint_hold() {
    let mut world = checkpointed(4, 10);
    let kept: Vec<u64> = world.map.keys().copied().take(50).collect();
    kept.iter().for_each(|&key| world.remove(key));
    world.store = resume(&world).unwrap();
    assert!(world.look_at_all() > 300);
    world.store.checkpoint(CHECKPOINT, 1).unwrap();
    world.store.flush();
    world.known.flushed = world.store.next_order();
    world.map.clear();
    world.store = resume(&world).unwrap();
    assert_eq!(world.look_at_all(), 0);
}

#[test]
fn damaged_or_oversized_checkpoints_are_not_used() {
    let world = checkpointed(5, 10);
    let short = CHECKPOINT.start..CHECKPOINT.start + 4096;
    assert_eq!(world.store.checkpoint(short, 1).unwrap(), 4096);
    assert!(resume(&world).is_none(), "not even the older one");
    let body = world.store.checkpoint_bytes() - 4096;
    for offset in [0, 20, 60, 4096, 4096 + body / 2, 4096 + body - 4096] {
        world.store.checkpoint(CHECKPOINT, 1).unwrap();
        world.device.flip(CHECKPOINT.start + offset, 2);
        assert!(resume(&world).is_none(), "byte {offset}");
    }
}

#[test]
fn pages_that_cannot_be_read_stay_away() {
    let mut world = World::new(2, Options { salt: 3, ..Options::default() });
    (0..8000).for_each(|_| world.step());
    world.store.seal(1);
    let bytes = world.device.capacity();
    (0..60).for_each(|i| world.device.flip(8192 + (i * 13_007) % (bytes - 8192), 3));
    world.recover();
    let some = world.look_at_all();
    assert!(some > 100, "{some}");
    (0..60).for_each(|i| world.device.flip(8192 + (i * 13_007) % (bytes - 8192), 3));
    world.known.deletions.clear();
    assert_eq!(world.look_at_all(), some);
    world.store.verify();
}

#[test]
fn a_damaged_mark_restores_no_removed_object() {
    for mark in 0..2 {
        let options =
            Options { log_percent: 30, rewrite_threshold: 100, segment_bytes: 8192, salt: 5, ..Options::default() };
        let mut world = World::new(4, options);
        for key in 0..KEYS {
            while put(&world.store, &key.to_le_bytes(), &[key as u8; 600], 0, 1).is_err() {
                world.store.maintain(1);
            }
            world.map.insert(key, vec![key as u8; 600]);
        }
        world.store.seal(1);
        (0..KEYS).filter(|key| key % 8 > 0).for_each(|key| world.remove(key));
        assert!(world.store.stats().counts.mark_bytes_written > 0);
        let damaged = 8192 + mark * 4096 + 9;
        world.device.flip(damaged, 0);
        world.recover();
        world.look_at_all();
        // Some of these were in the log, and are no longer known.
        (0..KEYS).for_each(|key| world.remove(key));
        world.device.flip(damaged, 0);
        world.recover();
        assert_eq!(world.look_at_all(), 0, "the mark is right again");
        put(&world.store, b"12345678", b"value", 0, 1).unwrap();
        world.store.seal(1);
        world.recover();
        assert!(get(&world.store, b"12345678", 1).is_some(), "the log goes on behind the marks");
    }
}

#[test]
fn removed_objects_absent_from_ram_stay_removed() {
    let lonely = Options { log_percent: 30, rewrite_threshold: 100, ..Options::default() };
    let crowded = Options { tombstones_per_group: 4, ..Options::default() };
    for options in [lonely, crowded] {
        let mut world = World::new(4, Options { segment_bytes: 8192, salt: 5, ..options });
        for key in 0..KEYS {
            while put(&world.store, &key.to_le_bytes(), &[key as u8; 200], 0, 1).is_err() {
                world.store.maintain(1);
            }
        }
        world.store.seal(1);
        (0..KEYS).for_each(|key| world.remove(key));
        let counts = world.store.stats().counts;
        assert!(counts.ended_below_threshold + counts.voided_by_tombstones > 100, "{counts:?}");
        world.recover();
        assert_eq!(world.look_at_all(), 0);
    }
}
