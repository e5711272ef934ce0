//! Random operations against a plain map.

use super::super::{Options, SmallDrop, SmallStore};
use super::{Random, get, put, store};
use crate::object::FlashHash;
use std::collections::HashMap;

struct Kept {
    value: Vec<u8>,
    expiry: u32,
}

struct Run {
    random: Random,
    store: SmallStore,
    map: HashMap<u64, Kept>,
    now: u32,
    hits: usize,
    /// Tokens that are not current because of a neighbour with the same tag.
    outdated: usize,
    /// Whether the store has space for all objects.
    roomy: bool,
}

impl Run {
    fn key(&mut self, keys: u64) -> u64 {
        let skewed = self.random.uniform(keys) * self.random.uniform(keys) / keys;
        skewed.min(keys - 1)
    }

    fn insert(&mut self, key: u64) {
        let value = self.random.next().to_le_bytes().repeat(1 + self.random.uniform(40) as usize);
        let expiry = if self.random.uniform(4) == 0 { self.now + 1 + self.random.uniform(50) as u32 } else { 0 };
        match put(&self.store, &key.to_le_bytes(), &value, expiry, self.now) {
            Ok(_) => drop(self.map.insert(key, Kept { value, expiry })),
            Err(reason) => {
                assert_eq!(reason, SmallDrop::Busy);
                self.map.remove(&key);
                self.store.maintain(self.now);
            }
        }
    }

    fn look(&mut self, key: u64) {
        let found = get(&self.store, &key.to_le_bytes(), self.now);
        let kept = self.map.get(&key).filter(|kept| kept.expiry == 0 || kept.expiry > self.now);
        match (found, kept) {
            (Some((value, token)), kept) => {
                let kept = kept.unwrap_or_else(|| panic!("key {key} is not there, and was found"));
                assert_eq!(value, kept.value, "key {key} has another value");
                assert!(self.store.could_exist(FlashHash::of(&key.to_le_bytes())));
                self.outdated += usize::from(!self.store.is_current(FlashHash::of(&key.to_le_bytes()), token));
                self.hits += 1;
            }
            (None, kept) => assert!(!self.roomy || kept.is_none(), "key {key} is lost"),
        }
    }

    fn step(&mut self, keys: u64) {
        let key = self.key(keys);
        let hash = FlashHash::of(&key.to_le_bytes());
        match self.random.uniform(1000) {
            0..400 => self.insert(key),
            400..850 => self.look(key),
            850..960 => {
                let possible = self.store.remove(hash);
                let kept = self.map.remove(&key);
                assert!(!self.roomy || possible || kept.is_none_or(|kept| kept.expiry != 0), "key {key} is lost");
                assert!(!self.store.could_exist(hash));
            }
            960..998 => self.store.maintain(self.now),
            998 => self.now += 1,
            _ => {
                if self.random.uniform(40) == 0 {
                    self.store.flush();
                    self.map.clear();
                }
            }
        }
    }
}

fn run(seed: u64, bytes: usize, keys: u64, options: Options, roomy: bool) {
    println!("seed {seed}, {bytes} bytes, {keys} keys, {options:?}");
    let store = store(bytes, options);
    let mut run = Run { random: Random(seed), store, map: HashMap::new(), now: 1, hits: 0, outdated: 0, roomy };
    for _ in 0..30_000 {
        run.step(keys);
    }
    run.store.maintain(run.now);
    (0..keys).for_each(|key| run.look(key));
    run.store.verify();
    assert!(run.hits > 1500, "{} hits, {:?}", run.hits, run.store.stats());
    assert!(run.outdated * 100 < run.hits, "{} of {} tokens are outdated", run.outdated, run.hits);
    assert_eq!(run.store.stats().counts.corrupt_pages, 0);
}

#[test]
fn random_operations_agree_with_a_map() {
    for seed in 0..4 {
        let log_percent = [15, 0, 5, 40][seed as usize % 4];
        let options =
            Options { log_percent, rewrite_threshold: 1 + seed as u8 % 3, segment_bytes: 16384, ..Options::default() };
        run(seed, 1 << 20, 6000, Options { tombstones_per_group: 20, ..options.clone() }, false);
        run(seed, 1 << 20, 20_000, options, false);
    }
}

#[test]
fn with_space_for_all_nothing_is_lost() {
    for seed in 10..13 {
        let options = Options {
            log_percent: 15 * (seed as u8 % 2),
            rewrite_threshold: 1,
            tombstones_per_group: 10_000,
            ..Options::default()
        };
        run(seed, 8 << 20, 2000, options, true);
    }
}
