//! RangeMap: a map whose keys are ordered, with range queries. The format is that of `sorted_log`.

use super::flat::{Flat, Ordered, bytes_of};
use super::head::Structure;
use super::map::Map;
use crate::error::Error;
use crate::library::Pool;
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
pub type RangeMap<K, V> = Map<K, V, InKeyOrder>;

/// The keys of a [`RangeMap`] have an order.
#[derive(Debug)]
pub enum InKeyOrder {}

impl Pool {
    /// The range map of a key. Nothing is created by this call.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let prices = cache.range_map::<u64, f64>("prices");
    /// assert_eq!(prices.get(&100)?, None);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn range_map<K: Ordered, V: Flat>(&self, key: impl AsRef<[u8]>) -> RangeMap<K, V> {
        Map::new(self, key.as_ref(), Structure::RangeMap)
    }
}

impl<K: Ordered, V: Flat> RangeMap<K, V> {
    /// The entries with keys in a range, in order, from one moment. None are in an absent map: the answer is empty.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// let prices = cache.range_map::<u64, f64>("prices");
    /// prices.insert(&100, &1.5)?;
    /// assert_eq!((prices.range(..=100)?.len(), prices.range(101..)?.len()), (1, 0));
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
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
