//! Threads that insert, look up, remove, flush and maintain on a device that is slow and fails; every hit is judged by
//! a history.

use super::super::options::Options;
use super::super::{LargeLog, Reclaim, Reinsertion};
use super::history::History;
use super::*;
use crate::device::{Delivery, Faults, FaultyDevice};
use crate::{ByteRange, FlashHash};
use ebbtide_testkit::Random;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

const KEYS: u64 = 60;
const REGIONS: usize = 48;

struct Shared {
    log: Arc<LargeLog>,
    history: Arc<History>,
    versions: AtomicU64,
    hits: Arc<AtomicU64>,
    now: AtomicU32,
    has_ended: AtomicBool,
}

impl Shared {
    fn insert(&self, random: &mut Random) {
        let (number, version) = (random.uniform(KEYS), self.versions.fetch_add(1, SeqCst));
        let bytes = if random.chance(5) { random.uniform(200_000) } else { random.uniform(9000) };
        let now = self.now.load(SeqCst);
        let expiry = if random.chance(50) { 0 } else { now + random.uniform(50) as u32 };
        let stored = value(number, version, bytes as usize);
        let keys = || std::iter::once(number);
        let begin = self.history.begin(keys(), Some(version));
        let result = insert(&self.log, number, &stored, expiry, now);
        self.history.end(keys(), begin, result.is_err());
        if result.is_ok() && random.chance(10) {
            let begin = self.history.begin(keys(), None);
            remove(&self.log, number);
            self.history.end(keys(), begin, false);
        }
    }

    fn look_up(&self, random: &mut Random) {
        let number = random.uniform(KEYS);
        let (log, history, hits) = (self.log.clone(), self.history.clone(), self.hits.clone());
        let now = self.now.load(SeqCst);
        let begin = history.now();
        let copies_pay = move |found: Option<FlashHit>| {
            let Some(found) = found else { return };
            let stamp = Stamp::read(found.value()).expect("a whole value");
            assert_eq!(stamp.key, number, "a foreign value");
            assert!(found.expiry == 0 || found.expiry > now, "an expired value");
            history.check(number, stamp.version, begin);
            hits.fetch_add(1, SeqCst);
            let begin = history.now();
            if log.is_current(FlashHash::of(&key(number)), found.token) {
                history.check(number, stamp.version, begin);
            }
        };
        let again = Box::new(copies_pay.clone());
        let key = key(number);
        // A range that is longer than the value is the value, read block by block.
        let looked_up = match random.chance(50) {
            true => self.log.lookup_range(Key::new(&key), ByteRange { offset: 0, length: 1 << 20 }, now, again),
            false => self.log.lookup(Key::new(&key), now, again),
        };
        if let FlashLookup::Found(found) = looked_up {
            copies_pay(Some(found));
        }
    }

    fn remove(&self, random: &mut Random) {
        let keys = if random.chance(3) {
            0..KEYS
        } else {
            let number = random.uniform(KEYS);
            number..number + 1
        };
        let begin = self.history.begin(keys.clone(), None);
        if keys.end - keys.start == KEYS {
            self.log.flush();
        } else {
            self.log.remove(FlashHash::of(&key(keys.start)));
        }
        self.history.end(keys, begin, false);
    }

    fn work(&self, seed: u64, steps: u64) {
        let mut random = Random::new(seed);
        for _ in 0..steps {
            match random.uniform(100) {
                0..15 => self.insert(&mut random),
                15..20 => self.remove(&mut random),
                _ => self.look_up(&mut random),
            }
        }
    }

    fn maintain(&self) {
        while !self.has_ended.load(SeqCst) {
            self.log.maintain(self.now.fetch_add(1, SeqCst));
            std::thread::yield_now();
        }
    }
}

/// Hits, and the log's counters.
fn stress(seed: u64, steps: u64, faults: Faults, options: Options) -> (u64, Stats) {
    println!("seed {seed}");
    let device = Arc::new(FaultyDevice::new(REGIONS * REGION_BYTES, seed, Delivery::Later { queue_depth: 16 }));
    device.set(faults);
    let log = on(device.clone(), options);
    let shared = Shared {
        log: log.clone(),
        history: Arc::new(History::new(KEYS)),
        versions: AtomicU64::new(1),
        hits: Arc::default(),
        now: AtomicU32::new(1000),
        has_ended: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let _stop = served(scope, &*device);
        let maintenance = scope.spawn(|| shared.maintain());
        let workers: Vec<_> = (0..3).map(|i| (seed * 10 + i, &shared)).collect();
        let workers: Vec<_> =
            workers.into_iter().map(|(seed, shared)| scope.spawn(move || shared.work(seed, steps))).collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        shared.has_ended.store(true, SeqCst);
        maintenance.join().unwrap();
        log.seal_all(shared.now.load(SeqCst));
        while device.pending() > 0 {
            std::thread::yield_now();
        }
        results.into_iter().for_each(|result| result.unwrap());
    });
    log.verify();
    (shared.hits.load(SeqCst), log.stats())
}

fn options(seed: u64) -> Options {
    let reinsertion = [Reinsertion::Forced(1), Reinsertion::Forced(0), Reinsertion::Auto][seed as usize % 3];
    let reclaim = if seed.is_multiple_of(2) { Reclaim::Fifo } else { Reclaim::Lru };
    Options { reinsertion, reclaim, discard: true, seal_seconds: 20, ..small() }
}

#[test]
fn no_hit_is_stale_or_foreign() {
    for seed in 1..4 {
        let (hits, stats) = stress(seed, 10_000, Faults::default(), options(seed));
        assert!(hits > 1000 && stats.hits_device > 100, "{hits} hits, {stats:?}");
        assert_eq!([stats.misses_corrupt, stats.write_errors], [0; 2]);
    }
}

#[test]
fn hits_on_a_failing_device_are_right() {
    let faults = Faults {
        read_errors: 2000,
        write_errors: 100,
        read_flips: 50,
        write_flips: 20,
        lost_writes: 20,
        misplaced_writes: 20,
        refusals: 20,
        ..Faults::default()
    };
    for seed in 1..4 {
        let (hits, stats) = stress(seed, 10_000, faults, options(seed));
        assert!(hits > 500 && stats.misses_corrupt > 10 && stats.misses_refused > 10, "{hits} hits, {stats:?}");
    }
}
