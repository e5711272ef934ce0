//! One thread that runs random operations of a cache, and has the record judge each answer.

use crate::record::{NEVER, Operation, Record, What};
use crate::value::{self, COUNTS, Version};
use crate::{Mover, THREADS};
use ebbtide::memcached::{
    Cache, Changed, Error, FlashReads, Item, Lookup, Mode, Patience, Pool, ReadOutcome, ReadPurpose, Stored, Ttl,
};
use ebbtide_testkit::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

/// Number of keys that all threads use at a time; after `OPERATIONS_PER_WINDOW` they turn to others, and these are
/// evicted.
const WINDOW: u64 = 10;
const OPERATIONS_PER_WINDOW: u64 = 60;
const MAX_TOKENS: usize = 6;

/// State that all threads share.
pub struct Table {
    pub cache: Cache,
    /// The one that its players use.
    pub pool: Pool,
    pub record: Record,
    pub keys: u64,
    pub now: Box<dyn Fn() -> Bounds + Send + Sync>,
    pub done: AtomicU64,
    pub hits: AtomicU64,
    pub over: AtomicBool,
}

impl Table {
    /// A table of this pool of the cache, in the time of the mover.
    pub fn new(cache: Cache, pool: Pool, keys: u64, mover: &Arc<Mover>) -> Self {
        let times = Arc::clone(mover);
        Self {
            cache,
            pool,
            record: Record::new(keys, THREADS + 1),
            keys,
            now: Box::new(move || times.bounds()),
            done: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }
}

/// Bounds of the cache's time in milliseconds, and the maximum age of lifetimes that it reports.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub earliest: u64,
    pub latest: u64,
    pub staleness: u64,
}

pub struct Player<'a> {
    table: &'a Table,
    /// Waits for flash, or does not.
    cache: Pool,
    waits: bool,
    thread: usize,
    random: Random,
    /// Keys, tokens and the versions that they name.
    tokens: Vec<(u64, u64, Version)>,
}

fn full(error: &Error) {
    assert!(matches!(error, Error::OutOfMemory { .. } | Error::PoolRemoved { .. }), "{error}");
}

impl<'a> Player<'a> {
    pub fn new(table: &'a Table, thread: usize, seed: u64) -> Self {
        let random = Random::new(seed << 8 | thread as u64);
        Self { table, cache: table.pool.clone(), waits: true, thread, random, tokens: Vec::new() }
    }

    /// Plays until all threads together have done `operations`.
    pub fn play(&mut self, operations: u64) {
        while !self.table.over.load(Relaxed) {
            let done = self.table.done.fetch_add(1, Relaxed);
            if done >= operations {
                return self.table.done.store(operations, Relaxed);
            }
            let key = self.key(done);
            if let Err(wrong) = self.step(key) {
                self.table.over.store(true, Relaxed);
                panic!("operation {done}, thread {}, key {key}: {wrong}", self.thread);
            }
            self.table.record.over(self.thread);
        }
    }

    fn key(&mut self, done: u64) -> u64 {
        if self.random.chance(25) {
            return self.random.uniform(self.table.keys);
        }
        let window = done / OPERATIONS_PER_WINDOW * WINDOW * 7;
        (window + self.random.uniform(WINDOW)) % self.table.keys
    }

    fn begin(&self) -> Operation {
        self.table.record.begin(self.thread, (self.table.now)().earliest)
    }

    /// The latest time at which a life ends that began up to now.
    fn until(&self, ttl: Ttl) -> u64 {
        match ttl {
            Ttl::Seconds(seconds) => ((self.table.now)().latest / 1000 + u64::from(seconds)) * 1000,
            Ttl::Never => NEVER,
            Ttl::Until(second) => second * 1000,
            Ttl::Expired => 0,
        }
    }

    fn ttl(&mut self) -> Ttl {
        match self.random.uniform(20) {
            0..4 => Ttl::seconds(1 + self.random.uniform(4) as u32),
            4..8 => Ttl::seconds(20 + self.random.uniform(60) as u32),
            8..10 => Ttl::seconds(2000),
            _ => Ttl::Never,
        }
    }

    fn step(&mut self, key: u64) -> Result<(), String> {
        match self.random.uniform(1000) {
            0..330 => self.get(key).map(drop),
            330..380 => self.get_batch(key),
            380..460 => self.fetch(key),
            460..640 => self.store(key, Mode::Set),
            640..670 => self.store(key, Mode::Add),
            670..700 => self.store(key, Mode::Replace),
            700..760 => self.compare_and_swap(key),
            760..860 if value::is_number(key) => self.count(key),
            760..860 => self.append(key),
            860..910 => self.touch(key),
            910..930 => self.get_and_touch(key),
            930..990 => self.delete(key),
            990..999 => self.delete_if(),
            _ if self.random.chance(5) => self.flush(),
            _ => Ok(()),
        }
    }

    fn get(&mut self, key: u64) -> Result<Option<u64>, String> {
        let operation = self.begin();
        let cache = self.cache.clone();
        match cache.get(&value::name(key)) {
            Lookup::Hit(item) => self.look(key, operation, &item).map(Some),
            Lookup::Miss => Ok(None),
        }
    }

    /// Judges a hit, and says which token it has.
    fn look(&mut self, key: u64, operation: Operation, item: &Item<'_>) -> Result<u64, String> {
        let table = self.table;
        let bytes = item.to_vec();
        let (version, before) = value::read(key, &bytes)?;
        if item.key() != value::name(key) || u64::from(item.flags()) != key {
            return Err(format!("flags {} and key {}", item.flags(), item.key().escape_ascii()));
        }
        let staleness = (table.now)().staleness;
        let until = item.ttl().map_or(NEVER, |ttl| (operation.time + ttl.as_millis() as u64).saturating_sub(staleness));
        table.record.saw(key, operation, version, until)?;
        before.map_or(Ok(()), |before| table.record.follows(key, version, before))?;
        table.hits.fetch_add(1, Relaxed);
        if self.tokens.len() == MAX_TOKENS {
            self.tokens.swap_remove(self.random.uniform(MAX_TOKENS as u64) as usize);
        }
        self.tokens.push((key, item.cas(), version));
        Ok(item.cas())
    }

    fn get_batch(&mut self, first: u64) -> Result<(), String> {
        let more = 1 + self.random.uniform(8);
        let keys: Vec<u64> = (0..more).map(|more| (first + more) % self.table.keys).collect();
        let names: Vec<Vec<u8>> = keys.iter().map(|&key| value::name(key)).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let operation = self.begin();
        let cache = self.cache.clone();
        let mut judged = Ok(());
        cache.get_batch(&names, |number, lookup| {
            if let (Lookup::Hit(item), Ok(())) = (lookup, &judged) {
                judged = self.look(keys[number], operation, &item).map(drop);
            }
        });
        judged
    }

    /// As a server does, which never waits: a value is promoted or served after other operations were done.
    fn fetch(&mut self, key: u64) -> Result<(), String> {
        let name = value::name(key);
        if !self.waits || self.cache.peek(&name).is_hit() {
            return Ok(());
        }
        let mut reads = FlashReads::default();
        let Some(probe) = self.cache.probe_flash(&reads, &name) else { return Ok(()) };
        let (sender, receiver) = mpsc::channel();
        self.cache.prefetch(&mut reads, probe, &[&name], Box::new(move || _ = sender.send(())));
        while !reads.collect() {
            receiver.recv().expect("the read ends");
        }
        // A caller that holds a value must not wait for other reads.
        let waiting = std::mem::replace(&mut self.cache, self.table.pool.without_waiting());
        // An operation that would wait is refused.
        self.cache.set_patience(Patience::Spent);
        self.waits = false;
        for _ in 0..self.random.uniform(3) {
            let other = key + self.random.uniform(2);
            self.step(other % self.table.keys)?;
        }
        let operation = self.begin();
        let cache = self.cache.clone();
        if let Some(probe) = cache.probe_flash(&reads, &name) {
            let wake = || -> ebbtide::memcached::ReadWake { Box::new(|| ()) };
            if let ReadOutcome::Hit(item) =
                cache.read_from_flash(&mut reads, probe, &[&name], ReadPurpose::Answer, wake)
            {
                self.look(key, operation, &item)?;
            }
        }
        self.get(key)?;
        (self.cache, self.waits) = (waiting, true);
        Ok(())
    }

    fn store(&mut self, key: u64, mode: Mode) -> Result<(), String> {
        let operation = self.begin();
        self.write(key, mode, operation).map(drop)
    }

    /// Whether it was stored.
    fn write(&mut self, key: u64, mode: Mode, operation: Operation) -> Result<bool, String> {
        let (record, ttl) = (&self.table.record, self.ttl());
        record.change(key, operation, What::Value(Version::of_write(operation.begin)));
        let (name, value) = (value::name(key), value::of(key, operation.begin));
        let insert = self.cache.insert(&name, &value).flags(key as u32).ttl(ttl).mode(mode);
        match insert.apply() {
            Ok(Stored::Stored) => {
                if mode == Mode::Replace {
                    record.found(key, operation)?;
                }
                record.changed(key, operation, self.until(ttl));
                Ok(true)
            }
            Err(error) if mode == Mode::Set => {
                full(&error);
                record.ended(key, operation).map(|()| false)
            }
            refused => {
                refused.as_ref().err().into_iter().for_each(full);
                if mode == Mode::Add && refused.is_ok() {
                    record.found(key, operation)?;
                }
                record.unchanged(key, operation).map(|()| false)
            }
        }
    }

    fn compare_and_swap(&mut self, key: u64) -> Result<(), String> {
        if self.tokens.is_empty() || self.random.chance(70) {
            self.get(key)?;
        }
        let Some((key, token, version)) = self.take_token() else { return Ok(()) };
        let operation = self.begin();
        if self.write(key, Mode::Cas(token), operation)? {
            self.table.record.replaced(key, operation, version)?;
        }
        Ok(())
    }

    fn take_token(&mut self) -> Option<(u64, u64, Version)> {
        if self.random.chance(70) {
            return self.tokens.pop();
        }
        let number = self.random.uniform(self.tokens.len().max(1) as u64) as usize;
        (number < self.tokens.len()).then(|| self.tokens.swap_remove(number))
    }

    fn count(&mut self, key: u64) -> Result<(), String> {
        let operation = self.begin();
        let record = &self.table.record;
        record.change(key, operation, What::Count);
        match self.cache.increment(&value::name(key), 1) {
            Ok(Some(number)) => {
                let version = value::of_number(number);
                record.counted(key, operation, version)?;
                if version.counts > COUNTS / 2 { self.store(key, Mode::Set) } else { Ok(()) }
            }
            Ok(None) => record.unchanged(key, operation),
            Err(error) => {
                full(&error);
                record.unchanged(key, operation)
            }
        }
    }

    fn append(&mut self, key: u64) -> Result<(), String> {
        let operation = self.begin();
        let record = &self.table.record;
        record.change(key, operation, What::Value(Version::of_write(operation.begin)));
        let (name, addition) = (value::name(key), value::addition(key, operation.begin));
        match self.cache.insert(&name, &addition).mode(Mode::Append).apply() {
            Ok(Stored::Stored) => {
                record.found(key, operation)?;
                record.extended(key, operation);
                Ok(())
            }
            refused => {
                refused.as_ref().err().into_iter().for_each(full);
                record.unchanged(key, operation)
            }
        }
    }

    fn touch(&mut self, key: u64) -> Result<(), String> {
        let ttl = if self.random.chance(5) { Ttl::Expired } else { self.ttl() };
        let operation = self.begin();
        let record = &self.table.record;
        record.change(key, operation, if ttl == Ttl::Expired { What::Gone } else { What::Touch });
        match self.cache.touch(&value::name(key), ttl) {
            Ok(true) => {
                record.found(key, operation)?;
                record.changed(key, operation, self.until(ttl));
                Ok(())
            }
            missed => {
                missed.as_ref().err().into_iter().for_each(full);
                record.unchanged(key, operation)
            }
        }
    }

    fn get_and_touch(&mut self, key: u64) -> Result<(), String> {
        let ttl = self.ttl();
        let operation = self.begin();
        let (table, cache) = (self.table, self.cache.clone());
        table.record.change(key, operation, What::Touch);
        match cache.get_and_touch(&value::name(key), ttl) {
            Ok(Lookup::Hit(item)) => {
                self.look(key, operation, &item)?;
                table.record.changed(key, operation, self.until(ttl));
                Ok(())
            }
            missed => {
                missed.as_ref().err().into_iter().for_each(full);
                table.record.perhaps_touched(key, operation, self.until(ttl));
                Ok(())
            }
        }
    }

    fn delete(&mut self, key: u64) -> Result<(), String> {
        let operation = self.begin();
        self.table.record.change(key, operation, What::Gone);
        self.cache.delete(&value::name(key));
        self.table.record.ended(key, operation)
    }

    fn delete_if(&mut self) -> Result<(), String> {
        let Some((key, token, version)) = self.take_token() else { return Ok(()) };
        let operation = self.begin();
        let record = &self.table.record;
        record.change(key, operation, What::Gone);
        match self.cache.delete_if(&value::name(key), token) {
            Ok(Changed::Done(())) => {
                record.replaced(key, operation, version)?;
                record.ended(key, operation)
            }
            refused => {
                refused.as_ref().err().into_iter().for_each(full);
                record.unchanged(key, operation)
            }
        }
    }

    fn flush(&mut self) -> Result<(), String> {
        let operation = self.begin();
        self.cache.flush(Duration::ZERO);
        self.table.record.flushed(operation);
        Ok(())
    }
}
