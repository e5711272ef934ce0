//! Walks over all objects on flash, compared with a plain map, with all other operations in between.

use super::{SMALL, Stopping, get, put, put_until, serve, tier_on, value_of};
use crate::device::{Delivery, Device, Direction, Faults, FaultyDevice, MemoryDevice};
use crate::large::Reinsertion;
use crate::{FlashHash, ScanContent, ScannedObject, Tier, TierOptions};
use ebbtide_testkit::Random;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

const KEYS: u64 = 600;

struct Version {
    number: u64,
    expiry: u32,
}

struct Run {
    random: Random,
    tier: Arc<Tier>,
    /// The last insert of each key, unless it was evicted or removed since.
    versions: HashMap<u64, Version>,
    operation: u64,
    now: u32,
    /// Visits of small and of large objects.
    met: [u64; 2],
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl Run {
    fn new(seed: u64, device: Arc<dyn Device>) -> Self {
        println!("seed {seed}");
        let options = TierOptions {
            region_bytes: 64 << 10,
            seal_seconds: 5,
            small_share: Some(0.06),
            rewrite_threshold: 4,
            reinsertion: Reinsertion::Forced(1),
            ..TierOptions::default()
        };
        let tier = Tier::on(device, &options).unwrap();
        Self { random: Random::new(seed), tier, versions: HashMap::new(), operation: 0, now: 1000, met: [0; 2] }
    }

    fn insert(&mut self, key: u64) {
        let expiry = if self.random.uniform(8) == 0 { self.now + 10 + self.random.uniform(30) as u32 } else { 0 };
        let number = self.operation;
        let token = put_until(&self.tier, &key.to_le_bytes(), &value_of(key, number), expiry, self.now);
        self.versions.remove(&key);
        match token {
            Some(_) => drop(self.versions.insert(key, Version { number, expiry })),
            None => self.tier.maintain(self.now),
        }
    }

    /// `cold` keys are only read, so they move on flash and are present from a walk's start to its end.
    fn step(&mut self, cold: u64) {
        self.operation += 1;
        let key = self.random.uniform(KEYS);
        match self.random.uniform(1000) {
            0..300 if key >= cold => self.insert(key),
            300..880 => drop(get(&self.tier, &key.to_le_bytes(), self.now)),
            880..920 if key >= cold => {
                self.versions.remove(&key);
                self.tier.remove(FlashHash::of(&key.to_le_bytes()));
            }
            920..985 => self.tier.maintain(self.now),
            985..990 => self.now += 1,
            990 if cold == 0 && self.random.uniform(10) == 0 => {
                self.tier.flush();
                self.versions.clear();
            }
            _ => {}
        }
    }

    fn check(&self, met: &ScannedObject<'_>, wanted: ScanContent) -> (u64, u64) {
        let key = word(met.key.bytes, 0);
        let version = self.versions.get(&key).unwrap_or_else(|| panic!("key {key} is not there"));
        let value = value_of(key, version.number);
        assert_eq!(met.value_bytes, value.len() as u64, "key {key}");
        assert!(wanted == ScanContent::Keys || met.value.is_some(), "key {key}");
        assert!(met.value.is_none_or(|met| *met == value), "key {key} has another version, or a torn one");
        assert_eq!((met.client_flags, met.expiry), (5, version.expiry));
        assert!(version.expiry == 0 || version.expiry > self.now, "key {key} had expired");
        (key, version.number)
    }

    /// A walk with a number of operations after each piece.
    fn scan(&mut self, wanted: ScanContent, pause: u64, cold: u64) {
        let (began, mut counts) = (self.operation, HashMap::new());
        let mut scan = self.tier.scan(wanted);
        loop {
            let mut met = Vec::new();
            let goes_on = scan.advance(self.now, |object| met.push(self.check(&object, wanted)));
            met.into_iter().for_each(|object| *counts.entry(object).or_insert(0) += 1);
            assert!((0.0..=1.0).contains(&scan.progress()));
            if !goes_on {
                break;
            }
            for _ in 0..self.random.uniform(pause + 1) {
                self.step(cold);
            }
        }
        assert_eq!(scan.progress(), 1.0);
        for (&key, version) in &self.versions {
            let Some(found) = get(&self.tier, &key.to_le_bytes(), self.now).filter(|_| version.number <= began) else {
                continue;
            };
            assert_eq!(word(found.value(), 8), version.number);
            let is_small = found.value().len() < SMALL;
            let times = counts.get(&(key, version.number)).copied().unwrap_or(0);
            assert!(times > 0, "key {key} was there all the time and was not met, is small: {is_small}");
            assert!(times == 1 || !is_small, "a small object was met {times} times");
            self.met[usize::from(!is_small)] += 1;
        }
    }
}

#[test]
fn a_scan_visits_exactly_the_stable_objects() {
    for seed in 1..3 {
        let mut run = Run::new(seed, Arc::new(MemoryDevice::new(6 << 20)));
        for scan in 0..16 {
            for _ in 0..250 {
                run.step(0);
            }
            let wanted = if scan % 2 == 0 { ScanContent::Keys } else { ScanContent::Values };
            let cold = if scan % 3 == 0 { 0 } else { KEYS / 2 };
            run.scan(wanted, [0, 4, 40, 100][scan % 4], cold);
        }
        run.tier.verify();
        let stats = run.tier.stats();
        assert!(run.met.iter().all(|&met| met > 300), "{:?}", run.met);
        assert!(stats.large.reinserted > 20 && stats.large.regions_evicted > 50, "{stats:?}");
        assert!(stats.small.counts.readmitted > 0 && stats.small.counts.pages_written > 100, "{stats:?}");
        assert_eq!((stats.small.counts.scans_contended, stats.large.scans_corrupt), (0, 0));
    }
}

/// A scan of keys visits objects whose values do not fit a piece, too, with their keys and expiries.
#[test]
fn a_scan_reads_long_values_if_wanted() {
    let tier = Tier::on(
        Arc::new(MemoryDevice::new(64 << 20)),
        &TierOptions { small_share: Some(0.1), ..TierOptions::default() },
    );
    let tier = tier.unwrap();
    let sizes = [300_000, 800_000, 100, 3000, 1_000_000];
    let fill = |tier: &Arc<Tier>| {
        for (key, bytes) in (0_u64..).zip(sizes) {
            put_until(tier, &key.to_le_bytes(), &vec![key as u8; bytes], 77, 1).unwrap();
        }
    };
    fill(&tier);
    for _ in 0..2 {
        for wanted in [ScanContent::Keys, ScanContent::Values] {
            let (mut scan, mut met) = (tier.scan(wanted), Vec::new());
            while scan.advance(1, |object| {
                assert!(object.value.is_none_or(|value| value.iter().all(|&byte| u64::from(byte) == met_key(&object))));
                assert_eq!((object.expiry, object.client_flags), (77, 5));
                met.push((met_key(&object), object.value_bytes as usize, object.value.map(<[u8]>::len)));
            }) {}
            met.sort_unstable();
            let expected = (0..).zip(sizes).map(|(key, bytes)| {
                let is_read = wanted == ScanContent::Values || bytes < 250_000;
                (key, bytes, is_read.then_some(bytes))
            });
            assert_eq!(met, expected.collect::<Vec<_>>(), "{wanted:?}");
        }
        // The second walk reads the device.
        tier.large.seal_all(1);
    }
    let (mut scan, mut met) = (tier.scan(ScanContent::Values), 0);
    while scan.advance(77, |_| met += 1) {}
    assert_eq!(met, 0, "all have expired");
}

fn met_key(met: &ScannedObject<'_>) -> u64 {
    word(met.key.bytes, 0)
}

/// A visitor may call the tier: no lock is held during a visit.
#[test]
fn a_visitor_may_change_what_it_meets() {
    let tier = tier_on(Arc::new(MemoryDevice::new(8 << 20)));
    let value = |key: u64| vec![1; if key.is_multiple_of(20) { 5000 } else { 200 }];
    for key in 0..2000_u64 {
        put(&tier, &key.to_le_bytes(), &value(key), 1).unwrap();
        tier.maintain(1);
    }
    let (mut scan, mut met) = (tier.scan(ScanContent::Values), 0);
    while scan.advance(1, |object| {
        met += 1;
        let key = met_key(&object);
        assert!(key < 2000 && tier.remove(object.key.hash), "key {key}");
        // The next object is removed before its visit, or was visited before.
        tier.remove(FlashHash::of(&(key + 1).to_le_bytes()));
    }) {}
    assert!((700..2000).contains(&met), "{met} met");
    let (mut scan, mut left) = (tier.scan(ScanContent::Values), 0);
    while scan.advance(1, |_| left += 1) {}
    assert_eq!(left, 0, "all were removed");
    tier.verify();
}

/// A piece that cannot be read or is damaged is counted and skipped; the walk continues.
#[test]
fn a_scan_continues_after_device_errors() {
    let device = Arc::new(FaultyDevice::new(6 << 20, 1, Delivery::AtOnce));
    let mut run = Run::new(1, Arc::clone(&device) as _);
    for _ in 0..3000 {
        run.step(0);
    }
    run.tier.maintain(run.now);
    let count = |run: &Run| {
        let (mut scan, mut met) = (run.tier.scan(ScanContent::Values), 0);
        while scan.advance(run.now, |object| _ = (run.check(&object, ScanContent::Values), met += 1)) {}
        met
    };
    let all = count(&run);
    let before = run.tier.stats();
    device.set(Faults { read_errors: 5, read_flips: 5, ..Faults::default() });
    let some = count(&run);
    let after = run.tier.stats();
    device.set(Faults::default());
    assert!(some > 0 && some < all, "{some} of {all}");
    let errors = |stats: &crate::TierStats| stats.large.read_errors + stats.small.counts.read_errors;
    let corrupt = |stats: &crate::TierStats| stats.large.scans_corrupt + stats.small.counts.corrupt_pages;
    assert!(errors(&after) > errors(&before) && corrupt(&after) > corrupt(&before), "{after:?}");
    assert_eq!(count(&run), all, "nothing was given up for it");
}

/// With concurrent threads: an object that was removed before a piece started is not visited in it, and an unchanged
/// object is visited in every walk.
#[test]
fn walks_beside_threads_that_insert_remove_and_maintain() {
    let device = Arc::new(FaultyDevice::new(16 << 20, 1, Delivery::Later { queue_depth: 24 }));
    let tier = tier_on(device);
    let value = |key: u64, version: u64| [&key.to_le_bytes()[..], &version.to_le_bytes(), &[7; 200]].concat();
    // By key: all versions lower than this one have been removed.
    let min: Vec<AtomicU64> = (0..400).map(|_| AtomicU64::new(0)).collect();
    let is_over = &AtomicU64::new(0);
    thread::scope(|scope| {
        let _stopping = Stopping(&tier);
        serve(scope, &tier);
        for key in 1000..1400_u64 {
            put(&tier, &key.to_le_bytes(), &value(key, 0), 1).unwrap();
        }
        for owner in 0..2_u64 {
            let (tier, min) = (&tier, &min);
            scope.spawn(move || {
                let mut random = Random::new(owner);
                for version in 1.. {
                    let key = random.uniform(200) * 2 + owner;
                    if is_over.load(Relaxed) != 0 {
                        break;
                    }
                    let bytes = key.to_le_bytes();
                    tier.remove(FlashHash::of(&bytes));
                    min[key as usize].store(version, Relaxed);
                    put(tier, &bytes, &value(key, version), 1);
                    if version % 64 == 0 {
                        tier.maintain(1);
                    }
                }
            });
        }
        for _ in 0..10 {
            let (mut scan, mut seen) = (tier.scan(ScanContent::Values), std::collections::HashSet::new());
            loop {
                let before: Vec<u64> = min.iter().map(|min| min.load(Relaxed)).collect();
                let goes_on = scan.advance(1, |met| {
                    let (bytes, key) = (met.value.unwrap(), met_key(&met));
                    assert_eq!(word(bytes, 0), key, "a foreign value");
                    if key < 1000 {
                        assert!(word(bytes, 8) >= before[key as usize], "key {key} was removed");
                    }
                    seen.insert(key);
                });
                if !goes_on {
                    break;
                }
            }
            let there = (1000..1400_u64).filter(|key| get(&tier, &key.to_le_bytes(), 1).is_some());
            let missed: Vec<u64> = there.filter(|key| !seen.contains(key)).collect();
            assert!(missed.is_empty(), "{missed:?} were not met");
        }
        is_over.store(1, Relaxed);
    });
    assert_eq!(tier.stats().small.counts.scans_contended, 0);
    tier.verify();
}

/// A region that a read has failed is not read again, and a start could find its objects until it is marked dead.
#[test]
fn walks_beside_failed_regions_are_not_complete() {
    let device = Arc::new(FaultyDevice::new(32 << 20, 1, Delivery::AtOnce));
    let tier = Tier::on(device.clone(), &TierOptions { region_bytes: 64 << 10, ..TierOptions::default() }).unwrap();
    let is_complete = || {
        let mut scan = tier.scan(ScanContent::Keys);
        while scan.advance(1, |_| ()) {}
        scan.is_complete()
    };
    put(&tier, b"key", &[1; 20_000], 1).unwrap();
    tier.large.seal_all(1);
    assert!(is_complete() && !tier.hides_objects());
    device.set(Faults { read_errors: 1, ..Faults::default() });
    assert!(get(&tier, b"key", 1).is_none());
    device.set(Faults::default());
    assert!(!is_complete() && tier.hides_objects());
    tier.maintain(1);
    assert!(is_complete() && !tier.hides_objects());
}

/// Otherwise a page that stays unreadable keeps each walk from its end.
#[test]
fn a_walk_that_gives_up_ends() {
    let device = Arc::new(FaultyDevice::new(6 << 20, 1, Delivery::AtOnce));
    let (region_bytes, small_share, rewrite_threshold) = (64 << 10, Some(0.5), 1);
    let options = TierOptions { region_bytes, small_share, rewrite_threshold, ..TierOptions::default() };
    let tier = Tier::on(device.clone(), &options).unwrap();
    for key in 0..3000_u64 {
        put(&tier, &key.to_le_bytes(), &vec![7; if key.is_multiple_of(40) { 5000 } else { 400 }], 1);
        tier.maintain(1);
    }
    tier.large.seal_all(1);
    let walk = |gives_up| {
        let (scan, mut met) = (tier.scan(ScanContent::Keys), 0);
        let mut scan = if gives_up { scan.giving_up_unread() } else { scan };
        while scan.advance(1, |_| met += 1) {}
        (scan.is_complete(), met)
    };
    let (is_complete, all) = walk(false);
    assert!(is_complete && !tier.hides_objects());
    // One page in eight, so that other sets are read with a broken one.
    (0..6 << 20).step_by(32 << 10).for_each(|at| device.break_range(Direction::Read, at..at + 4096));
    assert!(!walk(false).0 && !walk(false).0);
    let voided = || tier.stats().small.counts.voided_by_failure;
    let (before, (is_complete, some)) = (voided(), walk(true));
    assert!(is_complete && tier.hides_objects() && (1..all).contains(&some), "{some} of {all}");
    let (given_up, sets) = (voided() - before, u64::from(tier.small.sets()));
    assert!((1..=sets / 4).contains(&given_up), "{given_up} of {sets} sets");
    (0..100).for_each(|_| tier.maintain(1));
    assert!(!tier.hides_objects());
    let left = walk(true);
    assert!(left.0 && (1..=some).contains(&left.1), "{left:?} of {some}");
    tier.verify();
}
