//! Random operations against a plain map.

use super::super::options::Options;
use super::super::{LargeLog, Reclaim, Reinsertion};
use super::*;
use crate::device::{Delivery, FaultyDevice};
use crate::{ByteRange, FlashHash, Token};
use ebbtide_testkit::Random;
use std::collections::HashMap;
use std::time::Duration;

/// Number of steps after which the test waits for a slow device.
const STEPS_AHEAD: usize = 10;

struct RecoveryInput {
    version: u64,
    expiry: u32,
    token: Token,
}

struct Run {
    log: Arc<LargeLog>,
    map: HashMap<u64, RecoveryInput>,
    random: Random,
    now: u32,
    versions: u64,
    /// Nothing may be missing: the log is large enough for everything.
    is_exact: bool,
    hits: u64,
    misses: u64,
}

impl Run {
    fn step(&mut self) {
        let number = self.random.uniform(100);
        let hash = FlashHash::of(&key(number));
        match self.random.uniform(1000) {
            0 => {
                self.log.flush();
                self.map.clear();
            }
            1..10 => self.now += self.random.uniform(100) as u32,
            10..20 => self.log.seal_all(self.now),
            20..60 => self.log.maintain(self.now),
            60..160 => {
                let could = self.log.could_exist(hash);
                assert!(could || !self.is_missed(number));
                self.map.remove(&number);
                assert!(self.log.remove(hash) || !could);
                assert!(!self.log.could_exist(hash));
            }
            160..200 => self.cancel(number, hash),
            200..600 => self.insert(number),
            _ => self.look_up(number, hash),
        }
    }

    fn insert(&mut self, number: u64) {
        self.versions += 1;
        let bytes = match self.random.uniform(20) {
            0 => self.random.uniform(4 * REGION_BYTES as u64),
            1..5 => self.random.uniform(40_000),
            _ => self.random.uniform(4000),
        };
        let expiry = if self.random.chance(50) { 0 } else { self.now + self.random.uniform(2000) as u32 };
        let result = insert(&self.log, number, &value(number, self.versions, bytes as usize), expiry, self.now);
        match result {
            Ok(Inserted { token, replaced, .. }) => {
                assert!(replaced || !self.is_missed(number));
                self.map.insert(number, RecoveryInput { version: self.versions, expiry, token });
            }
            Err(dropped) => assert!(dropped == LargeDrop::Expired || !self.is_exact, "{dropped:?}"),
        }
    }

    fn cancel(&mut self, number: u64, hash: FlashHash) {
        let token = self.map.get(&number).map_or(Token(1 << 30), |known| known.token);
        assert!(!self.log.is_current(hash, Token(token.0 + 1)));
        let is_current = self.log.is_current(hash, token);
        assert!(is_current || !self.is_missed(number));
        self.log.remove(hash);
        assert!(!self.log.is_current(hash, token));
        self.map.remove(&number);
    }

    /// Whether it is wrong that the log does not know a key.
    fn is_missed(&self, number: u64) -> bool {
        self.is_exact && self.known(number).is_some()
    }

    fn known(&self, number: u64) -> Option<&RecoveryInput> {
        self.map.get(&number).filter(|known| known.expiry == 0 || known.expiry > self.now)
    }

    fn look_up(&mut self, number: u64, hash: FlashHash) {
        let found = find(&self.log, number, self.now);
        let Some(found) = found else {
            assert!(!self.is_missed(number), "key {number} is lost");
            self.misses += u64::from(self.known(number).is_some());
            return;
        };
        let known = self.known(number).expect("a hit on what is not there");
        let stamp = Stamp::read(found.value()).expect("a whole value");
        assert_eq!(stamp, Stamp { key: number, version: known.version });
        assert_eq!(found.expiry, known.expiry);
        assert!(self.log.is_current(hash, found.token));
        let bytes = found.value().len();
        let offset = self.random.uniform(bytes as u64 + 10);
        let range = ByteRange { offset, length: self.random.uniform([100, 5000, 100_000][number as usize % 3]) };
        let part = super::ranges::find_range(&self.log, number, range, self.now);
        assert!(part.as_deref() == Some(&found.value()[range.within(bytes)]), "{range:?} of {bytes} bytes");
        self.hits += 1;
    }
}

/// Returns the hits, and the misses of inserted objects.
fn run(seed: u64, steps: usize, regions: usize, options: Options, delivery: Delivery) -> (u64, u64) {
    println!("seed {seed}, {options:?}");
    let device = Arc::new(FaultyDevice::new(regions * options.region_bytes, seed, delivery));
    let log = on(device.clone(), options);
    let is_exact = regions > 1000;
    let mut run = Run {
        log: log.clone(),
        map: HashMap::new(),
        random: Random::new(seed),
        now: 1000,
        versions: 0,
        is_exact,
        hits: 0,
        misses: 0,
    };
    std::thread::scope(|scope| {
        let _stop = served(scope, &*device);
        for step in 0..steps {
            run.step();
            // However busy the machine is, the device comes after.
            while step.is_multiple_of(STEPS_AHEAD) && device.pending() > 0 {
                std::thread::yield_now();
            }
            if step.is_multiple_of(1000) && delivery == Delivery::AtOnce {
                log.verify();
            }
        }
    });
    log.verify();
    let stats = log.stats();
    let clean = [stats.misses_corrupt, stats.misses_error, stats.read_errors, stats.write_errors];
    assert_eq!(clean, [0; 4]);
    assert!(stats.hits_device > 0 && stats.hits_memory > 0 && stats.removes > 0);
    (run.hits, run.misses)
}

#[test]
fn without_need_nothing_is_lost() {
    for seed in 1..4 {
        let (_, misses) = run(seed, 4000, 2000, small(), Delivery::AtOnce);
        assert_eq!(misses, 0);
    }
}

#[test]
fn hits_are_right_while_regions_are_reclaimed() {
    for seed in 10..14 {
        for reinsertion in [Reinsertion::Never, Reinsertion::Forced(1), Reinsertion::Forced(0)] {
            let reclaim = if seed % 2 == 0 { Reclaim::Fifo } else { Reclaim::Lru };
            let options = Options { reinsertion, reclaim, discard: true, ..small() };
            let (hits, misses) = run(seed, 5000, 24, options, Delivery::AtOnce);
            assert!(hits > 250 && misses > 5, "{hits} hits, {misses} misses");
        }
    }
}

#[test]
fn hits_are_right_on_a_slow_device() {
    for seed in 20..24 {
        let options = Options { reinsertion: Reinsertion::Forced(1), ..small() };
        let (hits, _) = run(seed, 4000, 24, options, Delivery::Later { queue_depth: 8 });
        assert!(hits > 200, "{hits} hits");
    }
}

#[test]
fn hits_are_right_with_random_log_options() {
    for seed in 100..130 {
        let mut random = Random::new(seed);
        let mut one_of = |count: usize| random.uniform(count as u64) as usize;
        let expiry_groups = 1 + one_of(8);
        let buffers = expiry_groups + 1 + one_of(8);
        let options = Options {
            region_bytes: [16 << 10, 32 << 10, REGION_BYTES, 3 * REGION_BYTES][one_of(4)],
            expiry_groups,
            buffers,
            long_buffers: one_of(20),
            max_buffer_wait: Duration::from_millis([0, 100][one_of(2)]),
            reclaim: [Reclaim::Fifo, Reclaim::Lru][one_of(2)],
            reinsertion: [Reinsertion::Auto, Reinsertion::Forced(1), Reinsertion::Forced(0)][one_of(3)],
            ..small()
        };
        let delivery = [Delivery::AtOnce, Delivery::Later { queue_depth: 4 }][one_of(2)];
        let (hits, _) = run(seed, 3000, options.min_regions() + one_of(24), options, delivery);
        assert!(hits > 100, "{hits} hits");
    }
}
