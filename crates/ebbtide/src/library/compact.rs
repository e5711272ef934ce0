//! Compact pools.

use super::insert_options::InsertOptions;
use super::stats::Counts;
use crate::byte_size::ByteSize;
use crate::error::Error;
use crate::memcached;
use ebbtide_store::{CompactLookup as Lookup, CompactMode, MissTicket, Stored, Ttl};
use std::fmt::{Debug, Formatter};

/// A handle of a compact pool ([`crate::PoolOptions::compact`]): a cache of small objects whose keys have one length
/// and whose values have one length. A clone is a handle of the same pool and may be used from any thread.
///
/// An entry is a value or a negative result: the knowledge that the backend has nothing for the key. A write of one
/// replaces the other. A full pool evicts the entry of the key's set, of 4 to 32 entries, that was used longest ago.
///
/// The eviction listener is not told of entries of compact pools: a removal costs a few nanoseconds there, and a copy
/// of the entry for the listener would cost more than the entry. [`CompactStats`] counts evictions and expirations.
///
/// ```
/// # use ebbtide::{ByteSize, Cache, Lookup, PoolOptions};
/// let visits = PoolOptions::named("visits").compact(8, 4).max(ByteSize::mib(8));
/// let cache = Cache::builder().memory(ByteSize::mib(64)).pool(visits).build()?;
/// let visits = cache.compact_pool("visits")?;
/// let user = 42_u64.to_le_bytes();
/// visits.insert(user, 7_u32.to_le_bytes())?;
/// assert_eq!(visits.get(user), Lookup::Hit(7_u32.to_le_bytes().to_vec()));
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone)]
pub struct CompactPool {
    pub(super) commands: memcached::CompactPool,
}

/// Counters since the start, and gauges, of a compact pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactStats {
    /// Lookups that found a value.
    pub hits: u64,
    /// Lookups that found a negative result.
    pub negative_hits: u64,
    pub misses: u64,
    /// Entries, negative and expired ones included.
    pub entries: u64,
    pub negatives: u64,
    /// Entries that fit.
    pub capacity: u64,
    /// The memory budget.
    pub memory_limit_bytes: u64,
    /// The used part of the budget.
    pub memory_used_bytes: u64,
    /// Writes that stored a value.
    pub inserts: u64,
    /// Writes that stored a negative result.
    pub negative_inserts: u64,
    /// Entries that left to make space.
    pub evictions: u64,
    /// Expired and invalidated entries that left.
    pub expirations: u64,
}

impl CompactPool {
    pub(super) fn new(commands: memcached::CompactPool) -> Self {
        Self { commands }
    }

    /// The name of the pool.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// assert_eq!(tiny.name(), "tiny");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.commands.name()
    }

    /// Looks a key up. A key of another length is absent.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Lookup, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// tiny.insert("k001", "v1")?;
    /// assert_eq!(tiny.get("k001"), Lookup::Hit(b"v1".to_vec()));
    /// assert_eq!(tiny.get("k002"), Lookup::Miss);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Lookup<Vec<u8>> {
        self.with(key, <[u8]>::to_vec)
    }

    /// Looks a key up and calls `read` with a copy of its value on the stack: no allocation.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Lookup, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// tiny.insert("k001", 7_u16.to_le_bytes())?;
    /// let number = |bytes: &[u8]| u16::from_le_bytes(bytes.try_into().unwrap());
    /// assert_eq!(tiny.with("k001", number), Lookup::Hit(7));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    #[inline]
    pub fn with<R>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Lookup<R> {
        let lookup = self.commands.get(key.as_ref(), read);
        let pool = &self.commands.pool;
        match &lookup {
            Lookup::Negative => pool.negative_lookups.count(true),
            lookup => pool.lookups.count(matches!(lookup, Lookup::Hit(_))),
        }
        lookup
    }

    /// The answers for many keys, in their order: cache misses overlap.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Lookup, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// tiny.insert("k002", "v2")?;
    /// let found = tiny.get_many(&["k001", "k002"]);
    /// assert_eq!(found, [Lookup::Miss, Lookup::Hit(b"v2".to_vec())]);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Lookup<Vec<u8>>> {
        let bytes: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        self.commands.prefetch(&bytes);
        bytes.into_iter().map(|key| self.get(key)).collect()
    }

    /// Whether a get would find an entry, a negative one included. It is no lookup for the statistics.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// tiny.insert("k001", "v1")?;
    /// assert!(tiny.contains_key("k001") && !tiny.contains_key("k002"));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> bool {
        self.commands.contains(key.as_ref())
    }

    /// Writes a value, in place of a negative result or another value. It does not expire.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Error, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// tiny.insert("k001", "v1")?;
    /// assert!(matches!(tiny.insert("k001", "long"), Err(Error::CompactLength { .. })));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `CompactLength` with the lengths; `Closed`, `PoolRemoved`.
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.insert_with(key, value, InsertOptions::new())
    }

    /// Writes a value with options.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact_with_ttl(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// # use std::time::Duration;
    /// let a_minute = InsertOptions::new().ttl(Duration::from_secs(60));
    /// tiny.insert_with("k001", "v1", a_minute)?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `insert`; `CompactTtl` for a TTL in a pool without TTLs.
    pub fn insert_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: InsertOptions,
    ) -> Result<(), Error> {
        let ttl = options.ttl_or(Ttl::Never);
        self.commands.write(key.as_ref(), Some(value.as_ref()), ttl, CompactMode::Set).map(drop)
    }

    /// Writes that the backend has nothing for a key, in place of a value.
    ///
    /// Another thread may insert the object between the answer of the backend and this call, which then hides the
    /// object. [`CompactPool::insert_negative_since`] does not.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Lookup, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// tiny.insert_negative("k001")?;
    /// assert_eq!(tiny.get("k001"), Lookup::Negative);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `insert`.
    pub fn insert_negative(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        self.insert_negative_with(key, InsertOptions::new())
    }

    /// As [`CompactPool::insert_negative`], with options.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions, Lookup, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact_with_ttl(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// # use std::time::Duration;
    /// tiny.insert_negative_with("k001", InsertOptions::new().ttl(Duration::from_secs(5)))?;
    /// assert_eq!(tiny.get("k001"), Lookup::Negative);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `insert_with`.
    pub fn insert_negative_with(&self, key: impl AsRef<[u8]>, options: InsertOptions) -> Result<(), Error> {
        let ttl = options.ttl_or(Ttl::Never);
        self.commands.write(key.as_ref(), None, ttl, CompactMode::Set).map(drop)
    }

    /// A ticket for [`CompactPool::insert_negative_since`], to be taken before the backend is asked.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// let ticket = tiny.ticket("k001")?;
    /// // Here the backend is asked, and has nothing.
    /// assert!(tiny.insert_negative_since("k001", ticket, InsertOptions::new())?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `CompactLength`.
    pub fn ticket(&self, key: impl AsRef<[u8]>) -> Result<MissTicket, Error> {
        self.commands.ticket(key.as_ref())
    }

    /// Writes that the backend has nothing for a key, unless the key was written or removed since the ticket was taken.
    /// False if it was, or, rarely, a neighbour in its set.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions, Lookup, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// let ticket = tiny.ticket("k001")?;
    /// // The backend is asked, and has nothing. Meanwhile another thread inserts the object:
    /// tiny.insert("k001", "v1")?;
    /// assert!(!tiny.insert_negative_since("k001", ticket, InsertOptions::new())?);
    /// assert_eq!(tiny.get("k001"), Lookup::Hit(b"v1".to_vec()));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `insert`.
    pub fn insert_negative_since(
        &self,
        key: impl AsRef<[u8]>,
        ticket: MissTicket,
        options: InsertOptions,
    ) -> Result<bool, Error> {
        let ttl = options.ttl_or(Ttl::Never);
        let stored = self.commands.write(key.as_ref(), None, ttl, CompactMode::Since(ticket))?;
        Ok(stored == Stored::Stored)
    }

    /// Removes a key, negative or not. False if it was absent.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// tiny.insert("k001", "v1")?;
    /// assert!(tiny.remove("k001")? && !tiny.remove("k001")?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `insert`.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.commands.delete(key.as_ref())
    }

    /// Removes the negative result of a key, and voids all tickets for it. False if it has none; a value stays.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// tiny.insert_negative("k001")?;
    /// tiny.insert("k002", "v2")?;
    /// assert!(tiny.remove_negative("k001")? && !tiny.remove_negative("k002")?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As `insert`.
    pub fn remove_negative(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.commands.delete_negative(key.as_ref())
    }

    /// Removes all entries.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// tiny.insert("k001", "v1")?;
    /// tiny.invalidate_all();
    /// assert!(!tiny.contains_key("k001"));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn invalidate_all(&self) {
        self.commands.flush(std::time::Duration::ZERO);
    }

    /// The counts of this pool, which the statistics of the cache add up.
    pub(super) fn counts(&self) -> Counts {
        let (hits, misses) = self.commands.pool.lookups.sums();
        let negative_hits = self.commands.pool.negative_lookups.sums().0;
        Counts { hits, negative_hits, misses, ..Counts::default() }
    }

    /// Counters and gauges of this pool.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// tiny.insert_negative("k001")?;
    /// let _ = tiny.get("k001");
    /// let stats = tiny.stats();
    /// assert_eq!((stats.entries, stats.negatives, stats.negative_hits), (1, 1, 1));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn stats(&self) -> CompactStats {
        let table = self.commands.compact_stats();
        let Counts { hits, negative_hits, misses, .. } = self.counts();
        CompactStats {
            hits,
            negative_hits,
            misses,
            entries: table.items,
            negatives: table.negatives,
            capacity: table.capacity,
            memory_limit_bytes: table.memory_limit_bytes,
            memory_used_bytes: table.memory_used_bytes,
            inserts: table.stored_values,
            negative_inserts: table.stored_negatives,
            evictions: table.evictions,
            expirations: table.expired + table.flushed,
        }
    }

    /// Changes the bounds of this pool's memory. All pools are divided anew.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// tiny.resize(ByteSize::mib(1), ByteSize::mib(4))?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Configuration` if the bounds do not fit; `PoolRemoved`.
    pub fn resize(&self, min: ByteSize, max: ByteSize) -> Result<(), Error> {
        self.commands.resize(min, max)
    }

    /// Ends [`CompactPool::resize`]: the bounds of the options hold again.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let tiny = PoolOptions::named("tiny").compact(4, 2).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(tiny).build()?;
    /// # let tiny = cache.compact_pool("tiny")?;
    /// tiny.resize(ByteSize::mib(1), ByteSize::mib(4))?;
    /// tiny.release()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`CompactPool::resize`].
    pub fn release(&self) -> Result<(), Error> {
        self.commands.release()
    }
}

impl Debug for CompactPool {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompactPool").field("name", &self.name()).field("stats", &self.stats()).finish_non_exhaustive()
    }
}
