//! Threads on a device that is slow, reorders and fails. Every hit must be a value that was current at some moment of
//! its lookup. A key has one writer, which counts its versions: `started` before an operation, `done` after it.

use super::super::{Options, SmallStore};
use super::{Random, put, store_on};
use crate::FlashLookup;
use crate::device::{Delivery, Device, Faults, FaultyDevice};
use crate::object::{FlashHash, FlashHit, Key, Token};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock, mpsc};
use std::thread;

const KEYS: usize = 6000;
const WRITERS: usize = 2;
const READERS: usize = 2;

#[derive(Default)]
struct History {
    started: AtomicU64,
    done: AtomicU64,
}

struct World {
    store: SmallStore,
    histories: Vec<History>,
    flushes: AtomicU64,
    /// Writers hold it shared, a flush holds it exclusively.
    flushing: RwLock<()>,
    over: AtomicBool,
    now: AtomicU64,
}

/// State that a reader records before a lookup.
struct Question {
    key: usize,
    done: u64,
    flushes: u64,
}

fn value_of(key: usize, version: u64, flushes: u64) -> Vec<u8> {
    let mut value = [key as u64, version, flushes].map(u64::to_le_bytes).concat();
    let seed = key as u64 ^ version << 20;
    value.extend((0..seed % 400).map(|i| (seed.wrapping_mul(31) + i) as u8));
    value
}

impl World {
    fn now(&self) -> u32 {
        self.now.load(Ordering::SeqCst) as u32
    }

    /// Inserts, with some patience.
    fn put(&self, key: &[u8], value: &[u8], expiry: u32) -> Option<Token> {
        (0..500).find_map(|_| {
            let token = put(&self.store, key, value, expiry, self.now()).ok();
            if token.is_none() {
                thread::yield_now();
            }
            token
        })
    }

    fn write(&self, writer: usize, seed: u64, operations: u64) {
        let mut random = Random(seed);
        for _ in 0..operations {
            let skewed = random.uniform(KEYS as u64) * random.uniform(KEYS as u64) / KEYS as u64;
            let key = skewed as usize / WRITERS * WRITERS + writer;
            let shared = self.flushing.read().unwrap();
            let history = &self.histories[key];
            let version = history.started.fetch_add(1, Ordering::SeqCst) + 1;
            let bytes = (key as u64).to_le_bytes();
            let flushes = self.flushes.load(Ordering::SeqCst);
            match random.uniform(10) {
                0..7 => {
                    let expiry = if random.uniform(4) == 0 { self.now() + 1 + random.uniform(3) as u32 } else { 0 };
                    let token = self.put(&bytes, &value_of(key, version, flushes), expiry);
                    if token.is_some() && random.uniform(20) == 0 {
                        history.started.fetch_add(1, Ordering::SeqCst);
                        self.store.remove(FlashHash::of(&bytes));
                        history.done.store(version + 1, Ordering::SeqCst);
                        continue;
                    }
                }
                _ => drop(self.store.remove(FlashHash::of(&bytes))),
            }
            history.done.store(version, Ordering::SeqCst);
            drop(shared);
        }
    }

    fn check(&self, question: &Question, found: Option<FlashHit>) -> bool {
        let Some(found) = found else {
            return false;
        };
        let word = |at: usize| u64::from_le_bytes(found.value()[at..at + 8].try_into().unwrap());
        let (key, version, flushes) = (word(0), word(8), word(16));
        assert_eq!(key, question.key as u64, "a foreign value");
        assert_eq!(found.value(), value_of(question.key, version, flushes), "a torn value");
        assert!(version >= question.done, "key {key}: version {version} after {} was done", question.done);
        assert!(version <= self.histories[question.key].started.load(Ordering::SeqCst));
        assert!(flushes >= question.flushes, "key {key}: a value from before a flush");
        true
    }

    fn read(self: &Arc<Self>, seed: u64) -> u64 {
        let mut random = Random(seed);
        let (sender, receiver) = mpsc::channel::<(Question, Option<FlashHit>)>();
        let (mut hits, mut open) = (0, 0);
        while !self.over.load(Ordering::SeqCst) {
            let key = (random.uniform(KEYS as u64) * random.uniform(KEYS as u64) / KEYS as u64) as usize;
            let bytes = (key as u64).to_le_bytes();
            let ask = || Question {
                key,
                done: self.histories[key].done.load(Ordering::SeqCst),
                flushes: self.flushes.load(Ordering::SeqCst),
            };
            let (question, again, sender) = (ask(), ask(), sender.clone());
            // A reader that failed takes no answers.
            let done = Box::new(move |found| drop(sender.send((again, found))));
            match self.store.lookup(Key::new(&bytes), self.now(), done) {
                FlashLookup::Absent => {}
                FlashLookup::Found(found) => hits += u64::from(self.check(&question, Some(found))),
                FlashLookup::Reading => open += 1,
            }
            while open > 16 || (open > 0 && random.uniform(4) == 0) {
                let (question, found) = receiver.recv().unwrap();
                hits += u64::from(self.check(&question, found));
                open -= 1;
            }
        }
        for _ in 0..open {
            let (question, found) = receiver.recv().unwrap();
            hits += u64::from(self.check(&question, found));
        }
        hits
    }

    fn keep_up(&self, seed: u64) {
        let mut random = Random(seed);
        while !self.over.load(Ordering::SeqCst) {
            self.store.maintain(self.now());
            match random.uniform(400) {
                0 => drop(self.now.fetch_add(1, Ordering::SeqCst)),
                1 => {
                    let _alone = self.flushing.write().unwrap();
                    self.store.flush();
                    self.flushes.fetch_add(1, Ordering::SeqCst);
                }
                _ => thread::yield_now(),
            }
        }
    }
}

fn run(seed: u64, options: Options, faults: Faults, operations: u64) {
    println!("seed {seed}, {options:?}, {faults:?}");
    let device = Arc::new(FaultyDevice::new(1 << 20, seed, Delivery::Later { queue_depth: 32 }));
    device.set(faults);
    let mut histories = Vec::new();
    histories.resize_with(KEYS, History::default);
    let world = Arc::new(World {
        store: store_on(Arc::clone(&device) as Arc<dyn Device>, options),
        histories,
        flushes: AtomicU64::new(0),
        flushing: RwLock::new(()),
        over: AtomicBool::new(false),
        now: AtomicU64::new(1),
    });
    let hits: u64 = thread::scope(|scope| {
        scope.spawn(|| device.serve());
        let readers: Vec<_> = (0..READERS)
            .map(|i| {
                scope.spawn({
                    let world = Arc::clone(&world);
                    move || world.read(seed ^ (100 + i as u64))
                })
            })
            .collect();
        let maintenance = scope.spawn(|| world.keep_up(seed ^ 200));
        let writers: Vec<_> = (0..WRITERS)
            .map(|i| {
                let world = &world;
                scope.spawn(move || world.write(i, seed ^ (300 + i as u64), operations))
            })
            .collect();
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        world.over.store(true, Ordering::SeqCst);
        let hits = readers.into_iter().map(|reader| reader.join()).collect::<Vec<_>>();
        let kept = maintenance.join();
        world.store.maintain(world.now());
        device.stop();
        written.into_iter().chain([kept]).for_each(|result| result.expect("no thread fails"));
        hits.into_iter().map(|hits| hits.expect("no reader fails")).sum()
    });
    world.store.verify();
    let counts = world.store.stats().counts;
    assert!(hits > operations / 50 && counts.set_hits > 0 && counts.log_hits > 0, "{hits} hits, {counts:?}");
    if faults.lost_writes == 0 {
        assert_eq!((counts.corrupt_pages, counts.voided_by_failure), (0, 0), "{counts:?}");
    } else {
        assert!(counts.corrupt_pages > 0 && counts.read_errors > 0 && counts.write_errors > 0, "{counts:?}");
    }
}

fn options(seed: u64) -> Options {
    Options {
        log_percent: [15, 30, 0][seed as usize % 3],
        rewrite_threshold: 1 + (seed as u8 & 1),
        segment_bytes: 8192,
        tombstones_per_group: [128, 12][seed as usize % 2],
        max_concurrent_rewrites: 8,
        ..Options::default()
    }
}

#[test]
fn every_hit_was_current_on_a_slow_device() {
    for seed in 0..3 {
        run(seed, options(seed), Faults { refusals: 50, ..Faults::default() }, 12_000);
    }
}

#[test]
fn every_hit_was_current_on_a_failing_device() {
    let faults = Faults {
        read_errors: 200,
        write_errors: 200,
        read_flips: 200,
        write_flips: 200,
        lost_writes: 100,
        misplaced_writes: 200,
        refusals: 50,
        ..Faults::default()
    };
    for seed in 10..13 {
        run(seed, options(seed), faults, 12_000);
    }
}
