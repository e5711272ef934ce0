//! Random operations against a plain map, on a device that delays, reorders and fails. A hit must be a version that was
//! current at some moment of its lookup.

use super::{Stopping, put_until, serve, value_of};
use crate::device::{Delivery, Faults, FaultyDevice};
use crate::{FlashHash, FlashHit, FlashLookup, Key, Tier, TierOptions, TierStats, Token};
use ebbtide_testkit::Random;
use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::thread;

const KEYS: u64 = 400;
/// Maximum number of concurrent lookups.
const OPEN: usize = 40;

/// A version of a key, from one operation to another.
struct Version {
    number: u64,
    expiry: u32,
    token: Option<Token>,
    until: Option<u64>,
}

struct Question {
    key: u64,
    operation: u64,
    now: u32,
    answer: mpsc::Receiver<Option<FlashHit>>,
}

struct Run {
    random: Random,
    device: Arc<FaultyDevice>,
    tier: Arc<Tier>,
    versions: HashMap<u64, Vec<Version>>,
    open: Vec<Question>,
    operation: u64,
    now: u32,
    hits: u64,
}

impl Run {
    /// Ends the current version of a key.
    fn end(&mut self, key: u64) -> Option<&Version> {
        let operation = self.operation;
        let last = self.versions.get_mut(&key)?.last_mut().filter(|last| last.until.is_none())?;
        last.until = Some(operation);
        Some(last)
    }

    fn insert(&mut self, key: u64) {
        self.end(key);
        let expiry = if self.random.uniform(4) == 0 { self.now + 10 + self.random.uniform(30) as u32 } else { 0 };
        let number = self.operation;
        let token = put_until(&self.tier, &key.to_le_bytes(), &value_of(key, number), expiry, self.now);
        // An object that was not inserted is not found.
        let until = token.is_none().then_some(number);
        if token.is_none() {
            // Waits, however slow the serving thread is.
            self.tier.maintain(self.now);
            self.device.drain();
        }
        self.versions.entry(key).or_default().push(Version { number, expiry, token, until });
    }

    fn ask(&mut self, key: u64) {
        let (sender, answer) = mpsc::channel();
        let question = Question { key, operation: self.operation, now: self.now, answer };
        match self.tier.lookup(Key::new(&key.to_le_bytes()), self.now, Box::new(move |found| drop(sender.send(found))))
        {
            FlashLookup::Absent => {}
            FlashLookup::Found(found) => self.check(&question, &found),
            FlashLookup::Reading => self.open.push(question),
        }
        if self.open.len() > OPEN {
            let chosen = self.random.uniform(self.open.len() as u64) as usize;
            let question = self.open.swap_remove(chosen);
            self.await_answer(&question);
        }
    }

    fn await_answer(&mut self, question: &Question) {
        if let Some(found) = question.answer.recv().expect("every lookup is answered") {
            self.check(question, &found);
        }
    }

    fn check(&mut self, question: &Question, found: &FlashHit) {
        let word = |at: usize| u64::from_le_bytes(found.value()[at..at + 8].try_into().unwrap());
        let (key, number) = (word(0), word(8));
        assert_eq!(key, question.key, "a foreign value");
        assert_eq!(found.value(), value_of(key, number), "a torn value");
        let version = self.versions[&key].iter().find(|version| version.number == number).unwrap();
        let until = version.until.unwrap_or(u64::MAX);
        assert!(until >= question.operation, "key {key}: version {number} until {until} in {}", question.operation);
        assert!(version.expiry == 0 || version.expiry > question.now, "key {key} had expired");
        assert_eq!(found.expiry, version.expiry);
        self.hits += 1;
    }

    fn step(&mut self) {
        self.operation += 1;
        let key = self.random.uniform(KEYS).min(self.random.uniform(KEYS));
        let hash = FlashHash::of(&key.to_le_bytes());
        match self.random.uniform(1000) {
            0..250 => self.insert(key),
            250..850 => self.ask(key),
            850..920 => {
                self.end(key);
                self.tier.remove(hash);
                assert!(!self.tier.could_exist(hash), "key {key} was removed");
            }
            920..950 => {
                if let Some(token) = self.end(key).and_then(|version| version.token) {
                    self.tier.remove(hash);
                    assert!(!self.tier.is_current(hash, token));
                }
            }
            950..990 => self.tier.maintain(self.now),
            990..999 => self.now += 1,
            _ if self.random.uniform(20) > 0 => {}
            _ => {
                self.tier.flush();
                for key in 0..KEYS {
                    self.end(key);
                }
            }
        }
    }
}

/// Returns the number of hits and the stats of the tier.
fn run(seed: u64, operations: u64, faults: Faults) -> (u64, TierStats) {
    println!("seed {seed}");
    let device = Arc::new(FaultyDevice::new(6 << 20, seed, Delivery::Later { queue_depth: 24 }));
    let options = TierOptions { region_bytes: 64 << 10, seal_seconds: 5, ..TierOptions::default() };
    let tier = Tier::on(Arc::clone(&device) as _, &options).unwrap();
    let mut run = Run {
        random: Random::new(seed),
        device: Arc::clone(&device),
        tier: Arc::clone(&tier),
        versions: HashMap::new(),
        open: Vec::new(),
        operation: 0,
        now: 1000,
        hits: 0,
    };
    thread::scope(|scope| {
        let _stopping = Stopping(&tier);
        serve(scope, &tier);
        device.set(faults);
        for _ in 0..operations {
            run.step();
        }
        for question in std::mem::take(&mut run.open) {
            run.await_answer(&question);
        }
        device.set(Faults::default());
        while device.pending() > 0 {
            thread::yield_now();
        }
    });
    tier.verify();
    (run.hits, tier.stats())
}

#[test]
fn a_hit_is_a_current_version() {
    for seed in 1..4 {
        let (hits, stats) = run(seed, 30_000, Faults::default());
        assert_eq!(hits, stats.hits_large + stats.hits_small);
        assert!(stats.hits_large > 1000 && stats.hits_small > 1000, "{stats:?}");
        assert!(stats.large.regions_evicted > 100 && stats.small.counts.pages_written > 100, "{stats:?}");
        assert!(stats.large.hits_device > 100 && stats.small.counts.lookups_read > 100, "{stats:?}");
    }
}

#[test]
fn device_faults_cause_no_stale_hits() {
    let silent = Faults {
        read_flips: 60,
        write_flips: 60,
        lost_writes: 60,
        misplaced_writes: 60,
        refusals: 30,
        ..Faults::default()
    };
    let loud = Faults { read_errors: 200, write_errors: 200, ..silent };
    let (mut corrupt_large, mut corrupt_small) = (0, 0);
    for (seed, faults) in [(10, silent), (11, silent), (20, loud), (21, loud)] {
        let (hits, stats) = run(seed, 20_000, faults);
        assert!(hits > 100, "{stats:?}");
        corrupt_large += stats.large.misses_corrupt;
        corrupt_small += stats.small.counts.corrupt_pages;
    }
    // The schedule of the threads decides which reads meet a fault; a single run may meet none.
    assert!(corrupt_large > 0 && corrupt_small > 0, "{corrupt_large} {corrupt_small}");
}
