//! Pools of objects with the negative results of their keys.

use super::compact::CompactPool;
use super::insert_options::InsertOptions;
use super::load_options::{LoadOptions, Loaded};
use super::loader::{LoadError, Look, flatten};
use super::pool::Pool;
use super::value::Value;
use crate::error::Error;
use ebbtide_store::{CompactLookup as Lookup, MissTicket};
use std::sync::atomic::{AtomicBool, Ordering};

/// A pool of objects with the negative results of its keys in a compact pool: made by [`Pool::with_negatives`].
///
/// A key that was inserted is never `Negative` afterwards, until it is removed from the backend and loaded again.
#[derive(Clone, Debug)]
pub struct NegativeCache {
    objects: Pool,
    negatives: CompactPool,
}

impl Pool {
    /// This pool with the negative results of its keys in a compact pool. All keys have the length of that pool's, and
    /// all writers of the objects use this interface, or call [`CompactPool::remove_negative`] after they have written.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Lookup, PoolOptions};
    /// let absent = PoolOptions::named("absent").compact(4, 0).max(ByteSize::mib(8));
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).pool(absent).build()?;
    /// let users = cache.with_negatives(cache.compact_pool("absent")?);
    /// assert_eq!(users.get_or_load("u001", || Ok::<_, std::convert::Infallible>(None::<&str>))?, Lookup::Negative);
    /// assert_eq!(users.get("u001"), Lookup::Negative);
    /// users.insert("u001", "Ada")?;
    /// assert!(matches!(users.get("u001"), Lookup::Hit(name) if *name == *b"Ada"));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn with_negatives(&self, negatives: CompactPool) -> NegativeCache {
        NegativeCache { objects: self.clone(), negatives }
    }
}

impl NegativeCache {
    /// The object of a key, or that there is none, or that neither is known. That there is none is known from the pool
    /// of the negative results, or from [`Pool::get_or_load`] with [`LoadOptions::negative_ttl`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Lookup, PoolOptions};
    /// # let absent = PoolOptions::named("absent").compact(4, 0).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(absent).build()?;
    /// # let users = cache.with_negatives(cache.compact_pool("absent")?);
    /// users.insert("u001", "Ada")?;
    /// assert!(matches!(users.get("u001"), Lookup::Hit(name) if name == *b"Ada"));
    /// assert_eq!(users.get("u002"), Lookup::Miss);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Lookup<Value> {
        let key = key.as_ref();
        self.lookup(key, self.objects.look(key))
    }

    /// Counts a lookup, and answers what was found, or what the negative results tell.
    fn lookup(&self, key: &[u8], found: Look) -> Lookup<Value> {
        self.objects.count(!matches!(found, Look::Missing | Look::Refused | Look::Failed));
        match found {
            Look::Value(value) | Look::Stale(value) => Lookup::Hit(value),
            Look::Absent => Lookup::Negative,
            Look::Missing | Look::Refused | Look::Failed => self.get_negative(key),
        }
    }

    /// Looks up a key that has no object.
    fn get_negative(&self, key: &[u8]) -> Lookup<Value> {
        match self.negatives.with(key, |_| ()) {
            Lookup::Negative => Lookup::Negative,
            Lookup::Hit(()) | Lookup::Miss => Lookup::Miss,
        }
    }

    /// As `get`; a key of which nothing is known is loaded, once for all callers. `None` from the loader is kept as a
    /// negative result, unless the object was inserted meanwhile. An answer that cannot be kept, as after a close, is
    /// returned all the same.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Lookup, PoolOptions};
    /// # let absent = PoolOptions::named("absent").compact(4, 0).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(absent).build()?;
    /// # let users = cache.with_negatives(cache.compact_pool("absent")?);
    /// let user = users.get_or_load("u001", || Ok::<Option<&str>, std::io::Error>(None)).unwrap();
    /// assert_eq!(user, Lookup::Negative);
    /// assert_eq!(users.get("u001"), Lookup::Negative);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pool::try_get_or_insert_with`]; `CompactLength`.
    pub fn get_or_load<V: Into<Loaded>, E>(
        &self,
        key: impl AsRef<[u8]>,
        load: impl FnOnce() -> Result<Option<V>, E>,
    ) -> Result<Lookup<Value>, LoadError<E>> {
        let key = key.as_ref();
        self.negatives.ticket(key)?;
        let found = self.objects.look(key);
        if self.is_known_absent(key, &found) {
            return Ok(Lookup::Negative);
        }
        let has_loaded = AtomicBool::new(false);
        // Waiters return when it has ended, so it remembers the answer first.
        let load = || {
            let ticket = self.negatives.ticket(key)?;
            let loaded = load().map_err(LoadError::Loader)?;
            self.remember(key, ticket, &has_loaded, loaded.is_some());
            Ok::<_, LoadError<E>>(loaded)
        };
        let conditions = (|| self.is_negative(key), |_: &[u8]| true);
        let loaded = self.objects.load_after(key, found, LoadOptions::new(), conditions, load).map_err(flatten)?;
        Ok(self.answer(key, loaded, &has_loaded))
    }

    /// Counts a lookup; true if there is no object, and a negative result.
    fn is_known_absent(&self, key: &[u8], found: &Look) -> bool {
        let is_missing = matches!(found, Look::Missing);
        self.objects.count(!is_missing);
        is_missing && self.negatives.with(key, |_| ()) == Lookup::Negative
    }

    /// Remembers what the loader of this call has answered: no value as a negative result.
    fn remember(&self, key: &[u8], ticket: MissTicket, has_loaded: &AtomicBool, is_value: bool) {
        has_loaded.store(is_value, Ordering::Relaxed);
        if !is_value {
            // An answer that the pool does not take is returned all the same.
            let _ = self.negatives.insert_negative_since(key, ticket, InsertOptions::new());
        }
    }

    /// Looks for a negative result without counting a lookup.
    fn is_negative(&self, key: &[u8]) -> bool {
        self.negatives.commands.get(key, |_| ()) == Lookup::Negative
    }

    fn answer(&self, key: &[u8], loaded: Option<Value>, has_loaded: &AtomicBool) -> Lookup<Value> {
        if has_loaded.load(Ordering::Relaxed) {
            // A pool that was closed or removed has no negative result to remove.
            let _ = self.negatives.remove_negative(key);
        }
        loaded.map_or(Lookup::Negative, Lookup::Hit)
    }

    /// Writes an object and removes its negative result.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Lookup, PoolOptions};
    /// # let absent = PoolOptions::named("absent").compact(4, 0).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(absent).build()?;
    /// # let users = cache.with_negatives(cache.compact_pool("absent")?);
    /// users.negatives().insert_negative("u001")?;
    /// users.insert("u001", "Ada")?;
    /// assert!(matches!(users.get("u001"), Lookup::Hit(_)));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pool::insert`]; `CompactLength`, with nothing written.
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let key = key.as_ref();
        self.negatives.ticket(key)?;
        self.objects.insert(key, value)?;
        self.negatives.remove_negative(key).map(drop)
    }

    /// Removes what is known of a key: its object, or that there is none.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Lookup, PoolOptions};
    /// # let absent = PoolOptions::named("absent").compact(4, 0).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(absent).build()?;
    /// # let users = cache.with_negatives(cache.compact_pool("absent")?);
    /// users.insert("u001", "Ada")?;
    /// assert!(users.remove("u001")?);
    /// assert_eq!(users.get("u001"), Lookup::Miss);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// `CompactLength`, with nothing removed; `Closed`.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let key = key.as_ref();
        let had_negative = self.negatives.remove(key)?;
        Ok(self.objects.remove(key) || had_negative)
    }

    /// The pool of the objects.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let absent = PoolOptions::named("absent").compact(4, 0).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(absent).build()?;
    /// # let users = cache.with_negatives(cache.compact_pool("absent")?);
    /// users.insert("u001", "Ada")?;
    /// assert_eq!(users.objects().entry_count(), 1);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn objects(&self) -> &Pool {
        &self.objects
    }

    /// The pool of the negative results.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let absent = PoolOptions::named("absent").compact(4, 0).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(absent).build()?;
    /// # let users = cache.with_negatives(cache.compact_pool("absent")?);
    /// assert_eq!(users.negatives().stats().negatives, 0);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn negatives(&self) -> &CompactPool {
        &self.negatives
    }
}

/// For tasks of any executor; no call blocks it.
impl NegativeCache {
    /// As [`NegativeCache::get`]: see [`Pool::get_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Lookup, PoolOptions};
    /// # let absent = PoolOptions::named("absent").compact(4, 0).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(absent).build()?;
    /// # let users = cache.with_negatives(cache.compact_pool("absent")?);
    /// # let task = async {
    /// assert_eq!(users.get_async("u001").await, Lookup::Miss);
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub async fn get_async(&self, key: impl AsRef<[u8]>) -> Lookup<Value> {
        let key = key.as_ref();
        self.lookup(key, self.objects.look_async(key).await)
    }

    /// As [`NegativeCache::get_or_load`]: see [`Pool::get_or_load_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Lookup, PoolOptions};
    /// # let absent = PoolOptions::named("absent").compact(4, 0).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(absent).build()?;
    /// # let users = cache.with_negatives(cache.compact_pool("absent")?);
    /// # let task = async {
    /// let user = users.get_or_load_async("u001", async { Ok::<_, std::io::Error>(Some("Ada")) }).await;
    /// assert!(matches!(user.unwrap(), Lookup::Hit(name) if name == *b"Ada"));
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`NegativeCache::get_or_load`].
    pub async fn get_or_load_async<V: Into<Loaded>, E>(
        &self,
        key: impl AsRef<[u8]>,
        load: impl Future<Output = Result<Option<V>, E>>,
    ) -> Result<Lookup<Value>, LoadError<E>> {
        let key = key.as_ref();
        self.negatives.ticket(key)?;
        let found = self.objects.look_async(key).await;
        if self.is_known_absent(key, &found) {
            return Ok(Lookup::Negative);
        }
        let has_loaded = AtomicBool::new(false);
        let load = async {
            let ticket = self.negatives.ticket(key)?;
            let loaded = load.await.map_err(LoadError::Loader)?;
            self.remember(key, ticket, &has_loaded, loaded.is_some());
            Ok::<_, LoadError<E>>(loaded)
        };
        let conditions = (|| self.is_negative(key), |_: &[u8]| true);
        let loaded = self.objects.load_after_async(key, found, LoadOptions::new(), conditions, load).await;
        Ok(self.answer(key, loaded.map_err(flatten)?, &has_loaded))
    }

    /// As [`NegativeCache::insert`]: see [`Pool::insert_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let absent = PoolOptions::named("absent").compact(4, 0).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(absent).build()?;
    /// # let users = cache.with_negatives(cache.compact_pool("absent")?);
    /// # let task = async {
    /// users.insert_async("u001", "Ada").await?;
    /// assert!(users.remove_async("u001").await?);
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pool::insert_async`]; `CompactLength`, with nothing written.
    pub async fn insert_async(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let key = key.as_ref();
        self.negatives.ticket(key)?;
        self.objects.insert_async(key, value).await?;
        self.negatives.remove_negative(key).map(drop)
    }

    /// As [`NegativeCache::remove`]: see [`Pool::remove_async`].
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let absent = PoolOptions::named("absent").compact(4, 0).max(ByteSize::mib(8));
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).pool(absent).build()?;
    /// # let users = cache.with_negatives(cache.compact_pool("absent")?);
    /// # let task = async {
    /// users.insert_async("u001", "Ada").await?;
    /// assert!(users.remove_async("u001").await?);
    /// # Ok::<(), ebbtide::Error>(())
    /// # };
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`NegativeCache::remove`].
    pub async fn remove_async(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let key = key.as_ref();
        let had_negative = self.negatives.remove(key)?;
        Ok(self.objects.remove_async(key).await || had_negative)
    }
}
