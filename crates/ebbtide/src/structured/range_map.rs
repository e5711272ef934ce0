//! RangeMap: a map whose keys are ordered, with range queries. The format is that of `sorted_log`.

use super::flat::{Flat, Ordered, bytes_of};
use super::head::Structure;
use super::map::{Table, entry_bytes};
use super::sorted_log::Change;
use crate::error::Error;
use crate::library::{InsertOptions, Pool};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

/// An ordered map in one value of the cache, at most a segment long; made by [`Pool::range_map`]. A clone is of the
/// same key.
///
/// ```
/// # use ebbtide::{ByteSize, Cache};
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// let prices = cache.range_map::<u64, f64>("prices");
/// prices.insert(&100, &1.5)?;
/// prices.insert(&200, &2.5)?;
/// assert_eq!(prices.range(100..=150)?, vec![(100, 1.5)]);
/// # Ok::<(), ebbtide::Error>(())
/// ```
pub struct RangeMap<K, V> {
    table: Table,
    types: PhantomData<fn(K) -> V>,
}

impl Pool {
    /// The range map of a key. Nothing is created by this call.
    pub fn range_map<K: Ordered, V: Flat>(&self, key: impl AsRef<[u8]>) -> RangeMap<K, V> {
        RangeMap { table: Table::new::<K, V>(self, key.as_ref(), Structure::RangeMap), types: PhantomData }
    }
}

impl<K: Ordered, V: Flat> RangeMap<K, V> {
    /// Stores an empty map if the key is absent. False, with nothing changed, if it is present.
    ///
    /// # Errors
    /// `KeyLength`, `OutOfMemory`.
    pub fn create(&self, options: InsertOptions) -> Result<bool, Error> {
        self.table.create(options)
    }

    /// The value of an entry. `None` if the entry or the map is absent.
    ///
    /// # Errors
    /// `WrongStructure`.
    pub fn get(&self, key: &K) -> Result<Option<V>, Error> {
        self.table.get(key)
    }

    /// Writes an entry. An absent map is created, with the cache's default TTL.
    ///
    /// # Errors
    /// As [`super::Map::insert`].
    pub fn insert(&self, key: &K, value: &V) -> Result<(), Error> {
        self.insert_many([(key, value)], InsertOptions::new())
    }

    /// Writes entries as one operation: see [`super::Map::insert_many`].
    ///
    /// # Errors
    /// As `insert`.
    pub fn insert_many<'a>(
        &self,
        entries: impl IntoIterator<Item = (&'a K, &'a V)>,
        options: InsertOptions,
    ) -> Result<(), Error>
    where
        K: 'a,
        V: 'a,
    {
        let entries = entry_bytes(entries);
        let changes: Vec<Change<'_>> = entries.iter().map(|(key, value)| (&key[..], Some(&value[..]))).collect();
        self.table.change(&changes, options)
    }

    /// Replaces an entry by what `update` makes of it: see [`super::Map::update`].
    ///
    /// # Errors
    /// As `insert`.
    pub fn update<R>(&self, key: &K, update: impl FnMut(Option<V>) -> (Option<V>, R)) -> Result<Option<R>, Error> {
        self.table.update(key, update)
    }

    /// Removes an entry. False if it was absent.
    ///
    /// # Errors
    /// As `insert`.
    pub fn remove(&self, key: &K) -> Result<bool, Error> {
        self.table.remove(key)
    }

    /// The entries with keys in a range, in order, from one moment. None if the map is absent.
    ///
    /// # Errors
    /// `WrongStructure`.
    pub fn range(&self, range: impl RangeBounds<K>) -> Result<Vec<(K, V)>, Error> {
        // No bytes lie between those of a key and the same followed by a zero.
        let behind = |key: &K| [bytes_of(key), vec![0]].concat();
        let from = match range.start_bound() {
            Bound::Included(key) => bytes_of(key),
            Bound::Excluded(key) => behind(key),
            Bound::Unbounded => Vec::new(),
        };
        let to = match range.end_bound() {
            Bound::Included(key) => Some(behind(key)),
            Bound::Excluded(key) => Some(bytes_of(key)),
            Bound::Unbounded => None,
        };
        let found = self
            .table
            .read(|map| map.range(&from, to.as_deref())?.into_iter().map(|entry| self.table.pair(entry)).collect());
        Ok(found?.unwrap_or_default())
    }
}

impl<K, V> Clone for RangeMap<K, V> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), types: PhantomData }
    }
}

impl<K, V> Debug for RangeMap<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RangeMap").field("table", &self.table).finish_non_exhaustive()
    }
}
