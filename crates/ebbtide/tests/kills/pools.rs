//! Pools on flash of the process that is killed. One thread removes pools, adds them again by the same name, and
//! flushes them, while all threads write to them: after a kill nothing of a removed or flushed pool is found, and
//! nothing of another pool.
//!
//! All pools have the same keys in the cache. In the journal a key has the number of its pool, too, so that a value of
//! another pool is a foreign one.

use super::PATIENCE;
use super::child::{KEYS, THREADS, Values, Worker};
use super::journal::What;
use ebbtide::memcached::{ByteSize, Cache, CacheBuilder, Error, FlashOptions, Pool, PoolOptions};
use ebbtide_testkit::Random;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

const NAMES: [&str; 3] = ["default", "a", "b"];
/// Keys of a pool.
const POOL_KEYS: u32 = KEYS / NAMES.len() as u32;
/// Operations between two turns of changes.
const CHANGE_EVERY: u64 = 1000;
/// Values that the thread writes to a pool which it has changed: more than its memory has.
const REFILL: u64 = 600;
/// Bytes of a value: small and large objects of flash.
const VALUE_BYTES: Range<u64> = 24..3000;
pub const CACHE_BYTES: u64 = 2 << 20;
pub const LARGER_BYTES: u64 = 3 << 20;

/// The keys of a pool in the journal.
pub fn keys(pool: u32) -> Range<u32> {
    pool * POOL_KEYS..(pool + 1) * POOL_KEYS
}

pub fn length(random: &mut Random) -> usize {
    (VALUE_BYTES.start + random.uniform(VALUE_BYTES.end - VALUE_BYTES.start)) as usize
}

/// The pool of a key of the journal, and the key in the cache.
pub fn place(key: u32) -> (&'static str, u32) {
    (NAMES[(key / POOL_KEYS) as usize], key % POOL_KEYS)
}

pub fn configure(builder: CacheBuilder) -> CacheBuilder {
    let options =
        FlashOptions { small_share: Some(0.3), region_bytes: 64 << 10, seal_seconds: 1, ..FlashOptions::default() };
    let builder = builder.max_value(ByteSize::kib(16)).flash_options(options);
    NAMES[1..].iter().fold(builder, |builder, name| builder.pool(PoolOptions::named(*name)))
}

/// The steps of changes until the process ends itself; none is the one of a process that does not.
pub struct Steps(AtomicU64);

impl Steps {
    pub fn until_kill(steps: Option<u64>) -> Self {
        Self(AtomicU64::new(steps.map_or(0, |steps| steps + 1)))
    }

    /// A step of a change is complete. A kill by the process itself is between this step and the next one.
    fn complete(&self) {
        if self.0.load(SeqCst) > 0 && self.0.fetch_sub(1, SeqCst) == 1 {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}

impl Worker<'_> {
    pub fn change_pools(&mut self, operation: u64, steps: &Steps) {
        if !operation.is_multiple_of(CHANGE_EVERY) || operation == 0 {
            return;
        }
        for _ in 0..1 + self.random.uniform(3) {
            let pool = self.random.uniform(NAMES.len() as u64) as u32;
            if pool == 0 || self.random.chance(40) {
                self.flush_pool(pool);
            } else {
                self.replace_pool(pool, steps);
            }
            self.assert_empty(pool);
            steps.complete();
            for _ in 0..REFILL {
                let key = self.key_of(pool);
                self.set(key);
            }
            steps.complete();
        }
    }

    /// A key of the pool that this thread writes.
    fn key_of(&mut self, pool: u32) -> u32 {
        keys(pool).start + self.random.uniform((POOL_KEYS / THREADS).into()) as u32 * THREADS + self.thread
    }

    fn flush_pool(&mut self, pool: u32) {
        let moment = self.journal.begin(pool, What::FlushPool);
        self.cache.pool(NAMES[pool as usize]).unwrap().flush(Duration::ZERO);
        self.journal.end(pool, What::FlushPool, moment);
    }

    fn replace_pool(&mut self, pool: u32, steps: &Steps) {
        let moment = self.journal.begin(pool, What::FlushPool);
        self.cache.remove_pool(NAMES[pool as usize]).unwrap();
        self.journal.end(pool, What::FlushPool, moment);
        steps.complete();
        add(self.cache, NAMES[pool as usize]);
    }

    /// This thread has written none of its keys of the pool since the change.
    fn assert_empty(&mut self, pool: u32) {
        let handle = self.cache.pool(NAMES[pool as usize]).unwrap();
        for _ in 0..REFILL {
            let key = self.key_of(pool);
            let found = handle.get(&place(key).1.to_le_bytes()).hit();
            assert!(found.is_none(), "key {key} has a value of before the change of {}", handle.name());
        }
    }

    /// The pool of a key, unless it is being replaced.
    pub fn pool(&self, key: u32) -> Option<(Pool, [u8; 4])> {
        let (name, key) = if self.values == Values::InPools { place(key) } else { (NAMES[0], key) };
        self.cache.pool(name).ok().map(|pool| (pool, key.to_le_bytes()))
    }
}

/// Other threads hold borrowed items for a moment, so that the first try may find too little memory.
fn add(cache: &Cache, name: &str) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = cache.add_pool(&PoolOptions::named(name)) {
        assert!(matches!(error, Error::OutOfMemory { .. }) && Instant::now() < deadline, "{error}");
    }
}
