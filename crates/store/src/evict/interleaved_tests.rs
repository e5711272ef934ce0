//! Random operations while several jobs are running, each paused at any item and resumed at any time, as by preempted
//! threads.

use super::Progress;
use super::jobs::Job;
use crate::epoch::Participant;
use crate::ops::{Mode, Write};
use crate::options::Options;
use crate::store::Store;
use crate::time::Moment;
use crate::ttl::Ttl;
use crate::{Error, Policy};
use std::collections::HashMap;

/// A generator of random numbers (xorshift64*).
struct Dice(u64);

impl Dice {
    fn uniform(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % sides
    }
}

struct Run {
    store: Store,
    participant: Participant,
    jobs: Vec<Job>,
    dice: Dice,
    now_ms: u64,
    /// An earlier moment, which slow threads still work with.
    slow: Moment,
    /// The latest value of each key, and its latest expiry.
    written: HashMap<u64, (Vec<u8>, u64)>,
    sizes: [u64; 3],
    ttls: u64,
}

impl Run {
    fn new(options: Options, seed: u64, sizes: [u64; 3], ttls: u64) -> Self {
        let store = Store::new(options).unwrap();
        let participant = store.participate();
        let slow = store.moment(1000);
        let dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        Self { store, participant, jobs: Vec::new(), dice, now_ms: 1000, slow, written: HashMap::new(), sizes, ttls }
    }

    fn moment(&mut self) -> Moment {
        if self.dice.uniform(3) == 0 { self.slow } else { self.store.moment(self.now_ms) }
    }

    /// Runs a slice of one job, or starts a job.
    fn step(&mut self) {
        let moment = self.moment();
        let begins = self.jobs.is_empty() || self.jobs.len() < 4 && self.dice.uniform(8) == 0;
        if begins && let Some(job) = self.store.plan_job(&self.participant, moment, true) {
            self.jobs.push(job);
        }
        if !self.jobs.is_empty() {
            self.work_on_one(40);
        }
        self.store.segments.reclaim();
    }

    fn work_on_one(&mut self, items_max: u64) {
        let moment = self.moment();
        let number = self.dice.uniform(self.jobs.len() as u64) as usize;
        let items = 1 + self.dice.uniform(items_max) as u32;
        if self.jobs[number].run(&self.store, &self.participant, moment, items) {
            self.jobs.swap_remove(number);
        }
    }

    fn set(&mut self, number: u64) {
        let key = number.to_le_bytes();
        let hash = self.store.hash(&key);
        let max = self.sizes[self.dice.uniform(3) as usize];
        let length = self.dice.uniform(max) as usize;
        let value = vec![self.dice.uniform(256) as u8; length];
        let ttl = match self.dice.uniform(self.ttls + 1) {
            0 => Ttl::Never,
            kind => Ttl::seconds(1 << (kind % 12)),
        };
        let write = Write { key: &key, hash, value: &value, flags: 0.into(), ttl, mode: Mode::Set, token: None };
        for _ in 0..20_000 {
            match self.store.write(&self.participant, &write, self.now_ms) {
                Ok(_) => {
                    let expiry = match ttl {
                        Ttl::Seconds(seconds) => self.now_ms + u64::from(seconds) * 1000,
                        _ => u64::MAX,
                    };
                    self.written.insert(number, (value, expiry));
                    return;
                }
                Err(Error::NeedSegment) => self.step(),
                Err(other) => panic!("{other}"),
            }
        }
        panic!("no free memory after 20000 steps: {:?}", self.store.stats());
    }

    fn get(&mut self, number: u64) {
        let key = number.to_le_bytes();
        let found = self.store.get(&self.participant, &key, self.store.hash(&key), self.now_ms).map(|item| {
            let mut value = Vec::new();
            item.copy_to(&mut value);
            value
        });
        if let Some(found) = found {
            let (value, expiry_ms) = self.written.get(&number).expect("what was flushed or deleted is gone");
            assert_eq!(&found, value);
            assert!(self.now_ms < *expiry_ms, "it has expired");
        }
    }

    fn operate(&mut self, keys: u64, flushes: bool) {
        let number = self.dice.uniform(keys);
        match self.dice.uniform(100) {
            0..50 => self.set(number),
            50..80 => (0..4).for_each(|_| self.get(number / 8)),
            80..88 => self.get(number),
            88..92 => {
                let key = number.to_le_bytes();
                self.store.delete(&self.participant, &key, self.store.hash(&key), self.now_ms);
                self.written.remove(&number);
            }
            92..95 => self.now_ms += self.dice.uniform(1500),
            95 => {
                self.slow = self.store.moment(self.now_ms);
                self.now_ms += 1;
            }
            96..98 => (0..3).for_each(|_| self.step()),
            98 => {
                self.store.maintain(&self.participant, self.now_ms);
            }
            _ if flushes && self.dice.uniform(20) == 0 => {
                self.store.flush(self.now_ms, 0);
                self.written.clear();
            }
            _ => {}
        }
    }

    /// Nothing is alive: within a second after the end of all jobs all memory is free.
    fn assert_empties(&mut self) {
        while self.store.maintain(&self.participant, self.now_ms) == Progress::Working {}
        while !self.jobs.is_empty() {
            self.work_on_one(100);
        }
        for _ in 0..10 {
            self.now_ms += 100;
            while self.store.maintain(&self.participant, self.now_ms) == Progress::Working {}
        }
        let stats = self.store.stats();
        assert_eq!((stats.items, stats.segments_free), (0, stats.segments_total), "{stats:?}");
    }
}

fn options(policy: Policy, memory_kib: u64, segment_kib: u32) -> Options {
    Options {
        memory_bytes: memory_kib << 10,
        memory_bytes_max: Some(memory_kib << 10),
        segment_size: Some(segment_kib << 10),
        value_bytes_max: 4000,
        policy,
        writers: 1,
        ..Options::default()
    }
}

#[test]
fn concurrent_evictions_lose_and_revive_nothing() {
    let shapes = [(256, 4, [10, 200, 3500]), (1024, 16, [1, 2, 3]), (1024, 4, [100, 3900, 3900])];
    for (number, policy) in Policy::ALL.into_iter().enumerate() {
        for (memory_kib, segment_kib, sizes) in shapes {
            for ttls in [0, 3, 12] {
                let seed = 1 + number as u64 * 1000 + memory_kib + ttls;
                let mut run = Run::new(options(policy, memory_kib, segment_kib), seed, sizes, ttls);
                let keys = 4 * (memory_kib << 10) / (sizes.iter().sum::<u64>() / 6 + 40);
                for round in 0..12 {
                    (0..keys / 12 + 200).for_each(|_| run.operate(keys, round % 2 == 0));
                    if round % 3 == 0 {
                        while !run.jobs.is_empty() {
                            run.work_on_one(100);
                        }
                        run.store.verify(&run.participant, run.now_ms);
                    }
                }
                run.store.flush(run.now_ms, 0);
                run.assert_empties();
                run.store.verify(&run.participant, run.now_ms);
            }
        }
    }
}

/// A store without evictions, and the items that must be in it.
struct Lossless {
    run: Run,
    /// For each key: its value, until when it must be present, and from when it must be absent, in milliseconds.
    alive: HashMap<u64, (Vec<u8>, u64, u64)>,
}

impl Lossless {
    fn new(memory_kib: u64, segment_kib: u32, seed: u64, sizes: [u64; 3]) -> Self {
        let options = Options { evicts: false, ..options(Policy::Fifo, memory_kib, segment_kib) };
        Self { run: Run::new(options, seed, sizes, 0), alive: HashMap::new() }
    }

    fn step(&mut self) {
        let run = &mut self.run;
        let moment = run.moment();
        if run.jobs.len() < 3 && run.dice.uniform(3) == 0 {
            run.jobs.extend(run.store.plan_job(&run.participant, moment, false));
        }
        if !run.jobs.is_empty() {
            run.work_on_one(40);
        }
        match run.dice.uniform(8) {
            0..4 => _ = run.store.evict(&run.participant, run.now_ms),
            4 => _ = run.store.expire_due(&run.participant, moment),
            5 => _ = run.store.maintain(&run.participant, run.now_ms),
            _ => {}
        }
        run.store.segments.reclaim();
    }

    /// A TTL, with the earliest and the latest end of the lifetime.
    fn lifetime(&mut self) -> (Ttl, u64, u64) {
        let dice = &mut self.run.dice;
        let max = 1 << dice.uniform(13);
        let seconds = match dice.uniform(8) {
            0 => return (Ttl::Never, u64::MAX, u64::MAX),
            1..4 => 1 + dice.uniform(8),
            4..6 => [127, 128, 255, 256, 511][dice.uniform(5) as usize],
            _ => 1 + dice.uniform(max),
        };
        if dice.uniform(3) == 0 {
            let until = self.run.now_ms / 1000 + seconds;
            return (Ttl::Until(until), until * 1000, until * 1000);
        }
        let end_ms = self.run.now_ms + 1000 * seconds;
        (Ttl::seconds(seconds as u32), end_ms - 1000.max(16 * seconds), end_ms)
    }

    fn set(&mut self, number: u64) {
        let key = number.to_le_bytes();
        let max = self.run.sizes[self.run.dice.uniform(3) as usize];
        let value = vec![self.run.dice.uniform(256) as u8; self.run.dice.uniform(max) as usize];
        let hash = self.run.store.hash(&key);
        for _ in 0..60 {
            let (ttl, min_ms, end_ms) = self.lifetime();
            let write = Write { key: &key, hash, value: &value, flags: 0.into(), ttl, mode: Mode::Set, token: None };
            match self.run.store.write(&self.run.participant, &write, self.run.now_ms) {
                Ok(_) => {
                    self.alive.insert(number, (value, min_ms, end_ms));
                    return;
                }
                Err(Error::NeedSegment) => self.step(),
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn touch(&mut self, number: u64) {
        let key = number.to_le_bytes();
        let (ttl, min_ms, end_ms) = self.lifetime();
        let Run { store, participant, now_ms, .. } = &self.run;
        let is_touched = store.touch(participant, &key, store.hash(&key), ttl, *now_ms);
        if is_touched == Ok(true) {
            let item = self.alive.get_mut(&number).expect("what is gone is not touched");
            assert!(*now_ms < item.2);
            (item.1, item.2) = (min_ms, end_ms);
        }
    }

    fn check(&self, number: u64) {
        let Run { store, participant, now_ms, .. } = &self.run;
        let key = number.to_le_bytes();
        let found = store.get(participant, &key, store.hash(&key), *now_ms).map(|item| {
            let mut value = Vec::new();
            item.copy_to(&mut value);
            value
        });
        match (found, self.alive.get(&number)) {
            (None, None) => {}
            (None, Some((_, min_ms, _))) => assert!(now_ms >= min_ms, "{number} is lost at {now_ms} of {min_ms}"),
            (Some(_), None) => panic!("{number} was deleted"),
            (Some(found), Some((value, _, end_ms))) => {
                assert!(now_ms < end_ms, "{number} has expired");
                assert!(&found == value, "{number} is another value");
            }
        }
    }

    fn operate(&mut self, keys: u64) {
        let number = self.run.dice.uniform(keys);
        match self.run.dice.uniform(100) {
            0..50 => self.set(number),
            50..60 => self.touch(number),
            60..80 => self.check(number),
            80..84 => {
                let key = number.to_le_bytes();
                let Run { store, participant, now_ms, .. } = &self.run;
                store.delete(participant, &key, store.hash(&key), *now_ms);
                self.alive.remove(&number);
            }
            84..89 => self.run.now_ms += self.run.dice.uniform(1500),
            89..91 => self.run.slow = self.run.store.moment(self.run.now_ms),
            91..98 => self.step(),
            98 => {
                let memory = self.run.store.options().memory_bytes;
                let share = 100 - self.run.dice.uniform(40);
                _ = self.run.store.resize(memory * share / 100);
            }
            _ => _ = self.run.store.seal_open(crate::chains::Seal::All),
        }
    }
}

#[test]
fn without_evictions_live_items_stay() {
    for (shape, (memory_kib, segment_kib, sizes)) in
        [(512, 4, [10, 200, 3500]), (1024, 16, [1, 2, 3]), (1024, 4, [100, 3900, 3900])].into_iter().enumerate()
    {
        for seed in 0..SEEDS {
            let mut lossless = Lossless::new(memory_kib, segment_kib, 1 + seed * 3 + shape as u64, sizes);
            let keys = (memory_kib << 10) / (sizes.iter().sum::<u64>() / 6 + 40);
            for _ in 0..12 {
                (0..keys / 2 + 500).for_each(|_| lossless.operate(keys));
                (0..keys).for_each(|number| lossless.check(number));
                while !lossless.run.jobs.is_empty() {
                    lossless.run.work_on_one(100);
                }
                lossless.run.store.verify(&lossless.run.participant, lossless.run.now_ms);
                (0..keys).for_each(|number| lossless.check(number));
            }
        }
    }
}

/// Stores that each test of random operations tries.
const SEEDS: u64 = 6;
