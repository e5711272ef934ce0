//! A cache: its pool `default`, and what concerns all of its pools.

use super::Settings;
use super::builder::CacheBuilder;
use super::compact::CompactPool;
use super::flash_stats::FlashStats;
use super::pool::Pool;
use super::stats::{Counts, Stats};
use crate::byte_size::ByteSize;
use crate::error::Error;
use crate::live_profiles::LiveProfiles;
use crate::memcached;
use crate::pool_controller::PoolDecision;
use crate::pool_options::PoolOptions;
use std::fmt::{Debug, Formatter};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// A cache. A clone is a handle of the same cache and may be used from any thread. It derefs to its pool `default`:
/// [`Pool`] has the operations on keys. `&Cache` is no iterator, as [`Pool::iter`] may fail.
///
/// The last handle that is dropped ends the cache. [`Cache::close`] ends it so that the next start finds its entries.
#[derive(Clone)]
pub struct Cache {
    pub(super) pool: Pool,
    pub(super) commands: memcached::Cache,
}

/// A handle that does not keep the cache alive, for an eviction listener that uses its cache. Made by
/// [`Cache::downgrade`].
#[derive(Clone)]
pub struct WeakCache {
    commands: memcached::WeakCache,
    settings: Arc<Settings>,
}

impl WeakCache {
    /// The cache, if a handle of it exists.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let weak = cache.downgrade();
    /// if let Some(cache) = weak.upgrade() {
    ///     cache.insert("k", "v")?;
    /// }
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn upgrade(&self) -> Option<Cache> {
        let commands = self.commands.upgrade()?;
        let pool = Pool { commands: (*commands).clone(), settings: Arc::clone(&self.settings) };
        Some(Cache { pool, commands })
    }
}

impl Debug for WeakCache {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakCache")
    }
}

impl Deref for Cache {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.pool
    }
}

impl CacheBuilder {
    /// Builds the cache, with what flash and the memory file hold, and starts its maintenance thread.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # use std::time::Duration;
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).default_ttl(Duration::from_secs(3600)).build()?;
    /// assert_eq!(cache.entry_count(), 0);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Configuration` names the option that cannot work, and why.
    pub fn build(self) -> Result<Cache, Error> {
        let commands = self.engine.build()?;
        let pool = Pool { commands: (*commands).clone(), settings: Arc::new(self.settings) };
        Ok(Cache { pool, commands })
    }
}

impl Cache {
    /// Options of a new cache, each with a default.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Error};
    /// let cache = Cache::builder().memory(ByteSize::gib(1)).build()?;
    /// assert_eq!(cache.stats().memory_limit_bytes, 1 << 30);
    /// let too_small = Cache::builder().memory(ByteSize::kib(1)).build();
    /// assert!(matches!(too_small, Err(Error::Configuration { option: "memory", .. })));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn builder() -> CacheBuilder {
        CacheBuilder::default()
    }

    /// A handle of a pool.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).pool(PoolOptions::named("users"));
    /// let cache = builder.build()?;
    /// let users = cache.pool("users")?;
    /// users.insert("42", "Ada")?;
    /// assert!(cache.get("42").is_none(), "the pool `default` has keys of its own");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `UnknownPool`; `PoolKind` for a compact pool.
    pub fn pool(&self, name: &str) -> Result<Pool, Error> {
        Ok(Pool { commands: self.commands.pool(name)?, ..self.pool.clone() })
    }

    /// A handle of a compact pool.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Lookup, PoolOptions};
    /// let tiny = PoolOptions::named("tiny").compact(8, 4).max(ByteSize::mib(8));
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// let tiny = cache.compact_pool("tiny")?;
    /// tiny.insert(42_u64.to_le_bytes(), 7_u32.to_le_bytes())?;
    /// assert_eq!(tiny.get(42_u64.to_le_bytes()), Lookup::Hit(7_u32.to_le_bytes().to_vec()));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `UnknownPool`; `PoolKind` for a pool that is not compact.
    pub fn compact_pool(&self, name: &str) -> Result<CompactPool, Error> {
        self.commands.compact_pool(name).map(CompactPool::new)
    }

    /// A handle that does not keep the cache alive.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let weak = cache.downgrade();
    /// assert!(weak.upgrade().is_some());
    /// drop(cache);
    /// assert!(weak.upgrade().is_none());
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn downgrade(&self) -> WeakCache {
        WeakCache { commands: self.commands.downgrade(), settings: Arc::clone(&self.pool.settings) }
    }

    /// The names of all pools, `default` first and compact ones last.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// assert_eq!(cache.pools(), ["default"]);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn pools(&self) -> Vec<String> {
        self.commands.pools()
    }

    /// Adds a pool. The other pools shrink for it in the background.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.add_pool(&PoolOptions::named("users").min(ByteSize::mib(8)))?;
    /// cache.pool("users")?.insert("42", "Ada")?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `PoolExists`; `Configuration` if the name or the shares cannot work.
    pub fn add_pool(&self, options: &PoolOptions) -> Result<(), Error> {
        self.commands.add_pool(options)
    }

    /// Removes a pool with all its entries. Lookups of handles that exist miss, and their writes fail as
    /// `PoolRemoved`.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.add_pool(&PoolOptions::named("users"))?;
    /// cache.remove_pool("users")?;
    /// assert!(cache.pool("users").is_err());
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `UnknownPool`; `Configuration` for the pool `default`, which stays.
    pub fn remove_pool(&self, name: &str) -> Result<(), Error> {
        self.commands.remove_pool(name)
    }

    /// Counters and gauges: the sums of all pools, compact ones included. The counts of lookups are those of the pools
    /// that exist; a lookup of a [`crate::NegativeCache`] that finds no object looks into both of its pools.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("k", "v")?;
    /// let _ = cache.get("k");
    /// let text = cache.stats().to_string();
    /// assert!(text.starts_with("hit ratio 100.00 % (1 hits, 0 misses), 1 entries, "), "{text}");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let counts_of = |name: String| match self.pool(&name) {
            Ok(pool) => Some(pool.counts()),
            Err(Error::PoolKind { .. }) => self.compact_pool(&name).ok().map(|pool| pool.counts()),
            // It was removed since.
            Err(_) => None,
        };
        let counts = self.pools().into_iter().filter_map(counts_of).fold(Counts::default(), Counts::plus);
        let flash = self.commands.flash_stats().map(|tier| {
            let pools = self.pools().into_iter().filter_map(|name| self.commands.pool(&name).ok()?.flash_stats());
            FlashStats::sum_of(pools, &tier)
        });
        counts.stats(&self.commands.stats(), flash)
    }

    /// Changes the memory limit; the memory of flash stays as it is. Shrinking evicts, and returns memory to the
    /// system, in the background. The limit of [`Cache::stats`] falls step by step where the index of many small
    /// entries must contract first.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.resize(ByteSize::mib(32))?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Configuration` if the new limit cannot hold what the cache is configured for.
    pub fn resize(&self, memory: ByteSize) -> Result<(), Error> {
        self.commands.resize(memory)
    }

    /// The newest decisions of the controller, up to a hundred, the oldest first: those of a dry run, too. Empty
    /// without [`CacheBuilder::controller`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, controller::ControllerMode};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).controller(ControllerMode::DryRun).build()?;
    /// for decision in cache.controller_decisions() {
    ///     println!("{:?}: {}", decision.at, decision.reason);
    /// }
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn controller_decisions(&self) -> Vec<PoolDecision> {
        self.commands.engine().profiles.get().map_or_else(Vec::new, LiveProfiles::decisions)
    }

    /// Ends the cache so that the next one with the same files starts with its entries: leaves on flash what the next
    /// start must know, and writes memory to the memory file, if there is one. Values keep their bytes. A change that
    /// begins later is refused as `Closed`; [`Pool::remove`] answers false then, and [`Pool::invalidate_all`] does
    /// nothing. A second call does nothing.
    ///
    /// The memory file stays locked until the last handle is dropped, and the last [`crate::Value`] of 4 KiB or more,
    /// which shares the memory: another start with the file waits half a minute for that, also in the same process, and
    /// fails then.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let folder = tempfile::tempdir().unwrap();
    /// let open = || Cache::builder().memory(ByteSize::mib(64)).memory_file(folder.path().join("app.cache")).build();
    /// let cache = open()?;
    /// cache.insert("k", "v")?;
    /// cache.close()?;
    /// drop(cache);
    /// assert_eq!(open()?.get("k").unwrap(), "v");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Configuration` names the memory file and why it could not be written: the next start is cold then.
    pub fn close(&self) -> Result<(), Error> {
        self.commands.close().map(drop)
    }

    /// With [`crate::Clock::Manual`], for tests: moves time on to this long after the cache was built, and does all
    /// maintenance that is due.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Clock, InsertOptions};
    /// use std::time::Duration;
    ///
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).clock(Clock::Manual).build()?;
    /// cache.insert_with("k", "v", InsertOptions::new().ttl(Duration::from_secs(60)))?;
    /// cache.maintain(Duration::from_secs(60));
    /// assert!(cache.get("k").is_none());
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the cache uses the system's clock.
    pub fn maintain(&self, since_start: Duration) {
        self.commands.maintain(since_start);
    }

    /// Walks all data structures and asserts every invariant. For tests: slow, and no other thread may use the cache
    /// meanwhile.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("k", "v")?;
    /// cache.verify();
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn verify(&self) {
        self.commands.verify();
    }

    /// The interface with CAS tokens, client flags and borrowed hits, which the memcached-compatible server uses, of
    /// the same cache.
    #[doc(hidden)]
    pub fn memcached(&self) -> &memcached::Cache {
        &self.commands
    }
}

impl Debug for Cache {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("pools", &self.pools()).field("stats", &self.stats()).finish_non_exhaustive()
    }
}
