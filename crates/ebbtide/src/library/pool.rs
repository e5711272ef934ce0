//! A pool: lookups, iteration and statistics. Writes are in `writes.rs`.

use super::Settings;
use super::entry_kind::EntryKind;
use super::flash_stats::FlashStats;
use super::iter::Iter;
use super::stats::{Counts, Stats};
use super::value::{Value, ValueRef};
use crate::byte_size::ByteSize;
use crate::error::Error;
use crate::lookup::{self, Lookup};
use crate::memcached;
use crate::pool_state::PoolState;
use ebbtide_flash::ByteRange;
use std::fmt::{Debug, Formatter};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A handle of one pool: a key space with memory of its own. A [`crate::Cache`] is a handle of its pool `default`, and
/// has all of these methods. A clone is a handle of the same pool and may be used from any thread.
///
/// Keys have 1 to 255 bytes. A key or value is anything that is `AsRef<[u8]>`: `&str`, `String`, `&[u8]`, `[u8; 8]`,
/// `Vec<u8>`.
#[derive(Clone)]
pub struct Pool {
    pub(super) commands: memcached::Pool,
    pub(super) settings: Arc<Settings>,
}

/// Lookups. If only flash may have the key, the calling thread waits for the device.
impl Pool {
    /// The value of a key. A value of less than 4 KiB is copied, a longer one is shared: see [`Value`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("k", "v")?;
    /// assert_eq!(cache.get("k").unwrap(), "v");
    /// assert!(cache.get("absent").is_none());
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Value> {
        self.with_item(key.as_ref(), Value::of)
    }

    /// Calls `read` with the bytes of a value where they lie, without a copy or an allocation; a value that is longer
    /// than a segment is joined first. `read` should be brief and must not write to the cache: in a full cache the
    /// writes of all threads wait for its end, and fail after two seconds. See [`ValueRef`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("greeting", "hello")?;
    /// assert_eq!(cache.with("greeting", |bytes| bytes.len()), Some(5));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn with<R>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.with_item(key.as_ref(), |item| with_bytes(item, read))
    }

    /// A borrowed value. While the thread holds it and the cache is full, its own writes fail, and those of all other
    /// threads wait, and fail after two seconds: see [`ValueRef`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("k", "v")?;
    /// let value = cache.get_ref("k").expect("it was just written");
    /// assert_eq!(&value[..], b"v");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn get_ref(&self, key: impl AsRef<[u8]>) -> Option<ValueRef<'_>> {
        let hit = self.commands.get(key.as_ref()).hit().filter(has_value);
        self.count(hit.is_some());
        if hit.as_ref().is_some_and(|item| self.is_half_idle(item)) {
            self.touch_idle(&self.commands, key.as_ref());
        }
        hit.map(ValueRef::new)
    }

    /// The values of many keys, in the order of the keys. One call for a hundred keys is faster than a hundred calls:
    /// memory and flash are read for several keys at once.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("a", "1")?;
    /// cache.insert("c", "3")?;
    /// let values = cache.get_many(&["a", "b", "c"]);
    /// assert_eq!(values.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Option<Value>> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let (mut values, mut idle) = (Vec::with_capacity(keys.len()), Vec::new());
        self.commands.get_batch(&keys, |i, lookup| {
            let hit = lookup.hit().filter(has_value);
            self.count(hit.is_some());
            idle.extend(hit.as_ref().filter(|item| self.is_half_idle(item)).map(|_| i));
            values.push(hit.map(|item| Value::of(&item)));
        });
        idle.into_iter().for_each(|i| self.touch_idle(&self.commands, keys[i]));
        values
    }

    /// A copy of `length` bytes of a value, from `offset` on: fewer at its end, none after it. Only the parts of a long
    /// value that hold these bytes are read, in memory and on flash. A value that only flash has stays there until
    /// ranges have read as many bytes as it has: then it may be copied to memory, as by a get.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("file", "0123456789")?;
    /// assert_eq!(cache.get_range("file", 2, 3).unwrap(), b"234");
    /// assert_eq!(cache.get_range("file", 8, 100).unwrap(), b"89");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn get_range(&self, key: impl AsRef<[u8]>, offset: usize, length: usize) -> Option<Vec<u8>> {
        let (key, range) = (key.as_ref(), byte_range(offset, length));
        self.with_hit(key, self.commands.get_range(key, range), |item| item.range_to_vec(range))
    }

    /// Whether a get would find the key. It is no lookup for the statistics.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("k", "v")?;
    /// assert!(cache.contains_key("k") && !cache.contains_key("absent"));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> bool {
        self.commands.get(key.as_ref()).item().is_some_and(has_value)
    }

    /// Iterates over all entries.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("k", "v")?;
    /// for (key, value) in cache.iter()? {
    ///     assert_eq!((&key[..], &value[..]), (&b"k"[..], &b"v"[..]));
    /// }
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ScanLimit`: at most eight iterations at a time.
    pub fn iter(&self) -> Result<Iter, Error> {
        self.commands.scan().map(Iter::new)
    }

    fn with_item<R>(&self, key: &[u8], read: impl FnOnce(&lookup::Item<'_>) -> R) -> Option<R> {
        self.with_hit(key, self.commands.get(key), read)
    }

    fn with_hit<'a, R>(&self, key: &[u8], lookup: Lookup<'a>, read: impl FnOnce(&lookup::Item<'a>) -> R) -> Option<R> {
        let hit = lookup.item().filter(|item| has_value(item));
        self.count(hit.is_some());
        let is_idle = hit.is_some_and(|item| self.is_half_idle(item));
        let result = hit.map(read);
        if is_idle {
            // A thread that writes must not hold an item.
            drop(lookup);
            self.touch_idle(&self.commands, key);
        }
        result
    }

    /// Whether a use begins the life of an entry anew.
    #[inline]
    pub(super) fn is_half_idle(&self, item: &lookup::Item<'_>) -> bool {
        let Some(idle) = self.settings.time_to_idle else { return false };
        EntryKind::of(item) == EntryKind::Idle && item.ttl().is_some_and(|left| left < idle / 2)
    }

    pub(super) fn touch_idle(&self, commands: &memcached::Pool, key: &[u8]) {
        let idle = self.settings.time_to_idle.unwrap_or_default();
        // Without memory for the copy the entry lives as long as it would have.
        let _ = commands
            .touch_if(key, idle.into(), |flags| (EntryKind::of_flags(flags) == EntryKind::Idle).then_some(flags));
    }

    pub(super) fn count_undecodable(&self) {
        self.state().loads.counters.undecodable.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self, is_hit: bool) {
        self.commands.0.pool.lookups.count(is_hit);
    }
}

/// The pool itself.
impl Pool {
    /// The name of the pool.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// assert_eq!(cache.pool("default")?.name(), "default");
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.commands.name()
    }

    /// Entries in memory, with expired ones whose memory is not freed yet.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("k", "v")?;
    /// assert_eq!(cache.entry_count(), 1);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn entry_count(&self) -> u64 {
        self.commands.counter_snapshot().items
    }

    /// Counters and gauges of this pool.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("k", "v")?;
    /// let _ = (cache.get("k"), cache.get("absent"));
    /// let stats = cache.pool("default")?.stats();
    /// assert_eq!((stats.hits, stats.misses, stats.hit_ratio()), (1, 1, 0.5));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let tier = self.commands.0.pool.flash.as_ref().map(|flash| flash.shared.stats(0));
        let flash = tier.map(|tier| FlashStats::sum_of(self.commands.flash_stats().into_iter(), &tier));
        self.counts().stats(&self.commands.stats(), flash)
    }

    /// The pool that all handles of it share.
    pub(crate) fn state(&self) -> &PoolState {
        &self.commands.0.pool
    }

    /// Counters of this interface.
    pub(super) fn counts(&self) -> Counts {
        let pool = &self.commands.0.pool;
        let (hits, misses) = pool.lookups.sums();
        let loads = &pool.loads.counters;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let removals = pool.removals.as_ref();
        Counts {
            hits,
            negative_hits: 0,
            misses,
            loads: count(&loads.loaded),
            failed_loads: count(&loads.abandoned),
            undecodable: count(&loads.undecodable),
            listener_panics: removals.map_or(0, |removals| removals.panics()),
            untold_removals: removals.map_or(0, |removals| removals.untold()),
        }
    }

    /// Changes the bounds of this pool's memory. All pools are divided anew; pools that shrink evict in the background.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.add_pool(&PoolOptions::named("users"))?;
    /// cache.pool("users")?.resize(ByteSize::mib(8), ByteSize::mib(16))?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Configuration` if the bounds do not fit; `PoolRemoved`.
    pub fn resize(&self, min: ByteSize, max: ByteSize) -> Result<(), Error> {
        self.commands.resize(min, max)
    }

    /// Ends [`Pool::resize`]: the bounds of the options hold again.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// # cache.add_pool(&PoolOptions::named("users"))?;
    /// let users = cache.pool("users")?;
    /// users.resize(ByteSize::mib(8), ByteSize::mib(16))?;
    /// users.release()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Configuration` if the bounds of the options do not fit by now; `PoolRemoved`.
    pub fn release(&self) -> Result<(), Error> {
        self.commands.release()
    }

    /// A handle for callers that must not wait, as bindings that hold a lock of their language: its writes answer
    /// [`Error::WouldWait`] where others would wait, with nothing done, and its lookups miss what only flash has.
    #[doc(hidden)]
    pub fn without_waiting(&self) -> Self {
        Self { commands: self.commands.without_waiting(), settings: Arc::clone(&self.settings) }
    }

    /// The interface with CAS tokens, client flags and borrowed hits, which the memcached-compatible server uses.
    #[doc(hidden)]
    pub fn memcached(&self) -> &memcached::Pool {
        &self.commands
    }
}

pub(super) fn byte_range(offset: usize, length: usize) -> ByteRange {
    ByteRange { offset: offset as u64, length: length as u64 }
}

/// Calls `read` with the bytes of an item, joined if they lie in several segments.
pub(super) fn with_bytes<R>(item: &lookup::Item<'_>, read: impl FnOnce(&[u8]) -> R) -> R {
    match item.contiguous() {
        Some(bytes) => read(bytes),
        None => read(&item.to_vec()),
    }
}

/// Whether an entry is a value, and no remembered negative result.
#[inline]
pub(super) fn has_value(item: &lookup::Item<'_>) -> bool {
    EntryKind::of(item).has_value()
}

impl Debug for Pool {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("name", &self.name()).field("entries", &self.entry_count()).finish_non_exhaustive()
    }
}
