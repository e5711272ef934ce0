//! Threads on a device that is slow, reorders and fails. Every hit must be a version that was current at some moment of
//! its lookup. A key has one writer, which counts its versions: `started` before an operation, `done` after it. Some
//! keys have two writers: at most one store may have a version of such a key in the end.

use super::{SMALL, Stopping, put, put_until, serve, tier_on};
use crate::device::{Delivery, Faults, FaultyDevice, MemoryDevice};
use crate::{FlashHash, FlashHit, FlashLookup, Key, Tier, TierOptions, TierStats};
use ebbtide_testkit::Random;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const KEYS: u64 = 1000;
const WRITERS: u64 = 2;
const READERS: u64 = 2;
/// Number of keys with two writers, which follow the others.
const SHARED: u64 = 20;
const DURATION: Duration = Duration::from_secs(2);
/// Maximum time until there are enough hits, on a machine with other load.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct History {
    started: AtomicU64,
    done: AtomicU64,
}

struct World {
    tier: Arc<Tier>,
    histories: Vec<History>,
    flushes: AtomicU64,
    /// Writers hold it shared, a flush holds it exclusively.
    flushing: RwLock<()>,
    over: AtomicBool,
    now: AtomicU32,
    hits: AtomicU64,
}

/// State that a reader records before a lookup.
struct Question {
    key: u64,
    done: u64,
    flushes: u64,
}

fn value_of(key: u64, version: u64, flushes: u64) -> Vec<u8> {
    let mut random = Random::new(key << 40 ^ version << 8 ^ flushes);
    let bytes = match random.uniform(10) {
        0..5 => random.uniform(SMALL as u64),
        5..9 => 2100 + random.uniform(6000),
        _ => 50_000 + random.uniform(100_000),
    };
    let mut value = [key, version, flushes].map(u64::to_le_bytes).concat();
    value.resize(24 + bytes as usize, key as u8 ^ version as u8);
    value
}

impl World {
    fn now(&self) -> u32 {
        self.now.load(SeqCst)
    }

    fn write(&self, writer: u64, mut random: Random) {
        while !self.over.load(SeqCst) {
            let key = random.uniform(KEYS).min(random.uniform(KEYS)) / WRITERS * WRITERS + writer;
            let (bytes, hash) = (key.to_le_bytes(), FlashHash::of(&key.to_le_bytes()));
            let shared = self.flushing.read().unwrap();
            let history = &self.histories[key as usize];
            let version = history.started.fetch_add(1, SeqCst) + 1;
            let flushes = self.flushes.load(SeqCst);
            if random.uniform(5) == 0 {
                self.tier.remove(hash);
                history.done.store(version, SeqCst);
                continue;
            }
            let expiry = if random.uniform(4) == 0 { self.now() + 10 + random.uniform(5) as u32 } else { 0 };
            let token = put_until(&self.tier, &bytes, &value_of(key, version, flushes), expiry, self.now());
            if token.is_some() && random.uniform(10) == 0 {
                history.started.fetch_add(1, SeqCst);
                self.tier.remove(hash);
                history.done.store(version + 1, SeqCst);
                continue;
            }
            history.done.store(version, SeqCst);
            drop(shared);
            let key = KEYS + random.uniform(SHARED);
            put_until(&self.tier, &key.to_le_bytes(), &value_of(key, version, 0), 0, self.now());
        }
    }

    fn read(&self, mut random: Random) {
        let (sender, receiver) = mpsc::channel::<(Question, Option<FlashHit>)>();
        let mut open = 0;
        while !self.over.load(SeqCst) {
            let key = random.uniform(KEYS).min(random.uniform(KEYS));
            let flushes = self.flushes.load(SeqCst);
            let question = || Question { key, done: self.histories[key as usize].done.load(SeqCst), flushes };
            let (noted, asked, sender) = (question(), question(), sender.clone());
            let done = Box::new(move |found| drop(sender.send((noted, found))));
            let bytes = key.to_le_bytes();
            let of_flash = Key::new(&bytes);
            let looked_up = match random.chance(50) {
                true => self.tier.lookup(of_flash, self.now(), done),
                false => self
                    .tier
                    .probe(of_flash.hash)
                    .map_or(FlashLookup::Absent, |probe| self.tier.read(of_flash, probe, None, self.now(), done)),
            };
            match looked_up {
                FlashLookup::Absent => {}
                FlashLookup::Found(found) => self.check(&asked, &found),
                FlashLookup::Reading => open += 1,
            }
            while open > 0 {
                let answer = if open > 20 { receiver.recv().ok() } else { receiver.try_recv().ok() };
                let Some((question, found)) = answer else { break };
                open -= 1;
                found.iter().for_each(|found| self.check(&question, found));
            }
        }
        for _ in 0..open {
            let (question, found) = receiver.recv().expect("every lookup is answered");
            found.iter().for_each(|found| self.check(&question, found));
        }
    }

    fn check(&self, question: &Question, found: &FlashHit) {
        let word = |at: usize| u64::from_le_bytes(found.value()[at..at + 8].try_into().unwrap());
        let (key, version, flushes) = (word(0), word(8), word(16));
        assert_eq!(key, question.key, "a foreign value");
        assert_eq!(found.value(), value_of(key, version, flushes), "a torn value");
        assert!(version >= question.done, "key {key}: version {version} after {} was done", question.done);
        assert!(version <= self.histories[key as usize].started.load(SeqCst));
        assert!(flushes >= question.flushes, "key {key}: a value from before a flush");
        // An answer is of this moment, however old the question is.
        let (done, flushed) = (self.histories[key as usize].done.load(SeqCst), self.flushes.load(SeqCst));
        if self.tier.is_current_hit(FlashHash::of(&key.to_le_bytes()), found.token) {
            assert!(version >= done, "key {key}: version {version} is current after {done} was done");
            assert!(flushes >= flushed, "key {key}: a value from before a flush is current");
        }
        self.hits.fetch_add(1, SeqCst);
    }

    /// Whether there were hits of both stores to check.
    fn has_hits(&self) -> bool {
        let stats = self.tier.stats();
        self.hits.load(SeqCst) > 200 && stats.hits_large > 50 && stats.hits_small > 50
    }

    fn flush(&self) {
        let _alone = self.flushing.write().unwrap();
        self.tier.flush();
        self.flushes.fetch_add(1, SeqCst);
    }

    /// Each store is asked directly: the tier would stop at the first hit.
    fn assert_one_store(&self, key: u64) {
        let bytes = key.to_le_bytes();
        let answers = [0, 1].map(|store| {
            let (sender, receiver) = mpsc::channel();
            let done =
                Box::new(move |found: Option<FlashHit>| sender.send(found.is_some()).expect("this thread waits"));
            match store {
                0 => match self.tier.large.lookup(Key::new(&bytes), self.now(), done) {
                    FlashLookup::Reading => receiver.recv().unwrap(),
                    answer => matches!(answer, FlashLookup::Found(_)),
                },
                _ => match self.tier.small.lookup(Key::new(&bytes), self.now(), done) {
                    FlashLookup::Reading => receiver.recv().unwrap(),
                    answer => matches!(answer, FlashLookup::Found(_)),
                },
            }
        });
        assert_ne!(answers, [true, true], "key {key} is in both stores");
    }
}

fn run(seed: u64, faults: Faults) -> TierStats {
    println!("seed {seed}");
    let device = Arc::new(FaultyDevice::new(8 << 20, seed, Delivery::Later { queue_depth: 32 }));
    let options = TierOptions { region_bytes: 64 << 10, seal_seconds: 20, ..TierOptions::default() };
    let world = World {
        tier: Tier::on(Arc::clone(&device) as _, &options).unwrap(),
        histories: (0..KEYS).map(|_| History::default()).collect(),
        flushes: AtomicU64::new(0),
        flushing: RwLock::new(()),
        over: AtomicBool::new(false),
        now: AtomicU32::new(1000),
        hits: AtomicU64::new(0),
    };
    device.set(faults);
    thread::scope(|scope| {
        let _stopping = Stopping(&world.tier);
        serve(scope, &world.tier);
        let world = &world;
        let writers = (0..WRITERS).map(|i| scope.spawn(move || world.write(i, Random::new(seed + i))));
        let mut all: Vec<_> = writers.collect();
        all.extend((0..READERS).map(|i| scope.spawn(move || world.read(Random::new(seed + 100 + i)))));
        let began = Instant::now();
        for round in 1_u64.. {
            world.tier.maintain(world.now());
            if round.is_multiple_of(50) {
                world.now.fetch_add(1, SeqCst);
            }
            if round.is_multiple_of(400) {
                world.flush();
            }
            let is_enough = || world.has_hits() || began.elapsed() > PATIENCE;
            if began.elapsed() > DURATION && round > 1000 && is_enough()
                || all.iter().any(|thread| thread.is_finished())
            {
                break;
            }
        }
        world.over.store(true, SeqCst);
        all.into_iter().for_each(|thread| thread.join().unwrap());
        device.set(Faults::default());
        (KEYS..KEYS + SHARED).for_each(|key| world.assert_one_store(key));
    });
    world.tier.verify();
    let stats = world.tier.stats();
    assert!(world.has_hits(), "{stats:?}");
    stats
}

#[test]
fn every_hit_was_current() {
    let stats = run(1, Faults::default());
    assert_eq!((stats.large.misses_corrupt, stats.small.counts.corrupt_pages), (0, 0), "nothing writes over others");
}

#[test]
fn every_hit_was_current_on_a_bad_device() {
    run(
        2,
        Faults {
            read_errors: 500,
            write_errors: 500,
            read_flips: 100,
            write_flips: 100,
            lost_writes: 100,
            misplaced_writes: 100,
            refusals: 50,
            ..Faults::default()
        },
    );
}

#[test]
fn of_two_inserts_that_meet_one_is_found() {
    let tier = tier_on(Arc::new(MemoryDevice::new(8 << 20)));
    let barrier = Barrier::new(2);
    let rounds = 20_000;
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                barrier.wait();
                put(&tier, b"key", &[1; 2100], 1);
                barrier.wait();
            }
        });
        let mut in_both = 0;
        for round in 0..rounds {
            if round % 50 == 0 {
                tier.maintain(1);
            }
            barrier.wait();
            put(&tier, b"key", &[2; 1000], 1);
            barrier.wait();
            let hash = FlashHash::of(b"key");
            in_both += u32::from(tier.large.could_exist(hash) && tier.small.could_exist(hash));
            tier.remove(hash);
        }
        assert_eq!(in_both, 0, "rounds after which both stores had a version");
    });
    assert!(tier.stats().drops.total() < rounds / 4, "{:?}", tier.stats().drops);
    tier.verify();
}
