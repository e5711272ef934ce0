//! A cache with a manual clock as the subject of a random run.
#![allow(dead_code, reason = "each test binary uses a part")]

use ebbtide::memcached::{
    Cache, Error, Handle, Item, Lookup, MetaFlags, MetaFlagsChange, MetaFlagsLookup, MetaFlagsOutcome, Mode, Pool,
    Stored, Ttl,
};
use ebbtide_testkit::{Answer, Hit, Life, Operation, Subject, Write};
use std::time::{Duration, Instant};

/// Bytes of the process that are in memory.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Where a manual clock begins.
pub const ORIGIN_MS: u64 = 1000;

/// The cache, and the handles that are held on it.
pub struct CacheSubject {
    pub cache: Cache,
    now_ms: u64,
    held: Vec<(Handle, Vec<u8>)>,
}

impl CacheSubject {
    pub fn new(cache: Cache) -> Self {
        Self { cache, now_ms: ORIGIN_MS, held: Vec::new() }
    }

    fn hit(&self, item: &Item<'_>) -> Hit {
        let slices: Vec<u8> = item.slices().flatten().copied().collect();
        assert_eq!(slices, item.to_vec(), "slices and copies are the same bytes");
        assert_eq!(slices.len(), item.len());
        let expiry_ms = item.ttl().map(|ttl| self.now_ms + ttl.as_millis() as u64);
        let (stale, won) = (item.is_stale(), item.is_won());
        Hit { value: slices, flags: item.flags(), token: item.cas(), stale, won, expiry_ms }
    }

    fn hold(&mut self, key: &[u8]) -> Answer {
        let cache = self.cache.clone();
        let Lookup::Hit(item) = cache.get(key) else { return Answer::Lookup(None) };
        assert_eq!(item.key(), key);
        let hit = self.hit(&item);
        match item.to_handle() {
            Ok(handle) => self.held.push((handle, hit.value.clone())),
            Err(Error::PinnedLimit { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        Answer::Lookup(Some(hit))
    }

    fn ttl(&self, life: Life) -> Ttl {
        match life {
            Life::Never => Ttl::Never,
            Life::Past => Ttl::Expired,
            Life::Seconds(seconds) => Ttl::seconds(seconds),
            Life::Exactly(seconds) => Ttl::Until(self.now_ms / 1000 + u64::from(seconds)),
        }
    }

    fn write(&self, write: &Write) -> Result<Stored, Error> {
        let (ttl, mode) = (self.ttl(write.life), mode(write.mode));
        let Some(bytes) = write.pieces else {
            return self.cache.insert(&write.key, &write.value).flags(write.flags).ttl(ttl).mode(mode).apply();
        };
        let mut upload = self.cache.upload(&write.key, write.value.len() as u64, write.flags, ttl, mode)?;
        write.value.chunks(bytes).try_for_each(|piece| upload.write(piece))?;
        upload.finish()
    }

    fn abandon(&self, key: &[u8], length: usize, written: usize) -> Result<Answer, Error> {
        let mut upload = self.cache.upload(key, length as u64, 7, Ttl::Never, Mode::Add)?;
        upload.write(&vec![1; written])?;
        Ok(Answer::Done)
    }

    fn change_meta_flags(&self, key: &[u8], mut mark: impl FnMut(&Item<'_>) -> MetaFlags) -> Result<bool, Error> {
        let change = |item: &Item<'_>| Some(MetaFlagsChange { ttl: None, flags: mark(item) });
        let outcome = self.cache.update_meta_flags(key, MetaFlagsLookup { create: None, counts: true }, change)?;
        Ok(!matches!(outcome, MetaFlagsOutcome::Absent))
    }

    fn try_apply(&mut self, operation: &Operation, now_ms: u64) -> Result<Answer, Error> {
        let cache = &self.cache;
        Ok(match operation {
            Operation::Get(key) => Answer::Lookup(cache.get(key).hit().map(|item| self.hit(&item))),
            Operation::GetBatch(keys) => {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let mut hits = Vec::new();
                cache.get_batch(&keys, |number, lookup| {
                    assert_eq!(number, hits.len(), "answers come in order");
                    hits.push(lookup.hit().map(|item| self.hit(&item)));
                });
                Answer::Lookups(hits)
            }
            Operation::Hold(key) => self.hold(key),
            Operation::Release => {
                self.look_at_held();
                self.held.clear();
                Answer::Done
            }
            Operation::Write(write) => match self.write(write)? {
                Stored::Stored => Answer::Stored,
                Stored::NotStored => Answer::NotStored,
                Stored::Exists => Answer::Exists,
                Stored::NotFound => Answer::NotFound,
            },
            Operation::Abandon { key, length, written } => self.abandon(key, *length, *written)?,
            Operation::Delete(key) => Answer::Was(cache.delete(key)),
            Operation::Touch(key, life) => Answer::Was(cache.touch(key, self.ttl(*life))?),
            Operation::GetAndTouch(key, life) => {
                let lookup = cache.get_and_touch(key, self.ttl(*life))?;
                Answer::Lookup(lookup.hit().map(|item| self.hit(&item)))
            }
            Operation::Increment(key, delta) => Answer::Number(cache.increment(key, *delta)?),
            Operation::Decrement(key, delta) => Answer::Number(cache.decrement(key, *delta)?),
            Operation::MarkStale(key, token) => {
                Answer::Was(self.change_meta_flags(key, |_| MetaFlags::Stale { token: *token })?)
            }
            Operation::Win(key) => {
                let mut wins = false;
                let found = self.change_meta_flags(key, |item| {
                    wins = !item.is_won();
                    MetaFlags::Won
                })?;
                Answer::Won(found.then_some(wins))
            }
            Operation::Flush { delay_ms } => {
                cache.flush(Duration::from_millis(*delay_ms));
                Answer::Done
            }
            Operation::Maintain => {
                self.now_ms = self.now_ms.max(now_ms);
                cache.maintain(Duration::from_millis(self.now_ms - ORIGIN_MS));
                Answer::Done
            }
        })
    }

    fn look_at_held(&self) {
        for (handle, value) in &self.held {
            assert_eq!(read(handle), *value, "a handle keeps its value");
        }
    }
}

/// All bytes of a handle, piece by piece.
pub fn read(handle: &Handle) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < handle.len() {
        let slice = handle.slice_at(bytes.len());
        assert!(!slice.is_empty(), "a slice within the value has bytes");
        bytes.extend_from_slice(slice);
    }
    bytes
}

impl Subject for CacheSubject {
    fn apply(&mut self, operation: &Operation, now_ms: u64) -> Answer {
        match self.try_apply(operation, now_ms) {
            Ok(answer) => answer,
            Err(Error::ValueTooLarge { .. }) => Answer::TooLarge,
            Err(Error::OutOfMemory { .. }) => Answer::Full,
            Err(Error::NotNumeric) => Answer::NotNumeric,
            Err(other) => panic!("{other}"),
        }
    }

    fn verify(&mut self, _now_ms: u64) {
        self.look_at_held();
        self.cache.verify();
    }
}

fn mode(mode: ebbtide_testkit::Mode) -> Mode {
    use ebbtide_testkit::Mode as Asked;
    match mode {
        Asked::Set => Mode::Set,
        Asked::Add => Mode::Add,
        Asked::Replace => Mode::Replace,
        Asked::Append => Mode::Append,
        Asked::Prepend => Mode::Prepend,
        Asked::Cas(token) => Mode::Cas(token),
    }
}

/// Moves the time of a cache with a manual clock to `ms` after its start, with the maintenance that is due.
pub fn at(cache: &Cache, ms: u64) {
    cache.maintain(Duration::from_millis(ms));
}

/// Writes until the value is stored: a write is refused that waits for long behind a slow device of flash.
pub fn store(pool: &Pool, key: u32, value: &[u8]) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while let Err(error) = pool.insert(&key.to_le_bytes(), value).apply() {
        assert!(matches!(error, Error::OutOfMemory { .. }) && Instant::now() < deadline, "{error}");
    }
}

/// A folder for each mode of a memory file: on the file system of temporary files, and on tmpfs, where there is one.
pub fn folders() -> Vec<tempfile::TempDir> {
    let on_tmpfs = tempfile::tempdir_in("/dev/shm").ok();
    std::iter::once(tempfile::tempdir().unwrap()).chain(on_tmpfs).collect()
}
