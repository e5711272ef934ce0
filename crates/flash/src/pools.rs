//! Incarnations of pools on flash.
//!
//! ```text
//! pool "users"   opened: number 7 ---flushed---> number 12 ---removed---> none
//!                        salt s(7)               salt s(12)
//!                objects of 7: found             found by nobody; their space is reclaimed like that of others
//! ```
//! A flush or a removal of a pool ends its incarnation: the pool gets another number, and a hash with another salt. The
//! salt is XXH3 of the number with the seed of this life of flash, 64 random bits, so no table of salts is needed. The
//! salt of number 0 is 0. A number is used once in a life of flash; so the number in an object identifies its
//! incarnation permanently, and readers compare it with the one of the lookup.

use crate::object::{FIRST_POOL, FlashHash, Key};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock};
use twox_hash::XxHash3_64;

/// The number of a pool that has no incarnation: no object has it.
pub(crate) const NO_POOL: u16 = u16::MAX;

const UNHARMED: &str = "nothing panics under this lock";

/// A pool on flash, from [`crate::Tier::open_pool`].
#[derive(Debug)]
pub struct FlashPool {
    /// The number of its incarnation.
    number: AtomicU16,
    large_bytes: AtomicU64,
    small_bytes: AtomicU64,
    written_bytes: AtomicU64,
    hits: AtomicU64,
    refused_by_share: AtomicU64,
    /// Bytes that were refused, less those for which regions were reclaimed.
    refused_bytes: AtomicI64,
    /// Bytes of its share of flash.
    share_bytes: AtomicU64,
    /// Whether it has more than its share ([`LivePools::compare_shares`]).
    is_above_share: AtomicBool,
    /// A flush is pending.
    pub(crate) flush_is_pending: AtomicBool,
}

/// Counters and gauges of a pool on flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Lookups that found an object.
    pub hits: u64,
    /// Bytes of keys and values that were inserted.
    pub written_bytes: u64,
    /// Bytes written less bytes reclaimed, of the present incarnation.
    pub bytes: u64,
    /// Bytes that the pool may have on flash while flash is full.
    pub share_bytes: u64,
    /// Objects refused because the pool has more than its share.
    pub refused_by_share: u64,
    /// Bytes of RAM of both indexes for the pool's objects, in proportion to its bytes on flash.
    pub index_bytes: u64,
}

impl FlashPool {
    pub(crate) fn new(number: u16) -> Arc<Self> {
        Arc::new(Self {
            number: AtomicU16::new(number),
            large_bytes: AtomicU64::new(0),
            small_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            refused_by_share: AtomicU64::new(0),
            refused_bytes: AtomicI64::new(0),
            share_bytes: AtomicU64::new(u64::MAX),
            is_above_share: AtomicBool::new(false),
            flush_is_pending: AtomicBool::new(false),
        })
    }

    /// The number of the present incarnation. It is Relaxed: the store orders a flush and the operations on its keys by
    /// the locks of buckets, and no lookup finds an object under an earlier number.
    pub fn number(&self) -> u16 {
        self.number.load(Relaxed)
    }

    /// Starts another incarnation, without objects.
    pub(crate) fn set_number(&self, number: u16) {
        self.number.store(number, Relaxed);
        self.large_bytes.store(0, Relaxed);
        self.small_bytes.store(0, Relaxed);
    }

    /// Bytes written less bytes reclaimed.
    pub fn bytes(&self) -> u64 {
        self.large_bytes.load(Relaxed) + self.small_bytes.load(Relaxed)
    }

    /// The pool's part of the bytes of both indexes, in proportion to its share of the bytes of live pools.
    pub(crate) fn index_part(&self, (all_large, large_index): (u64, u64), (all_small, small_index): (u64, u64)) -> u64 {
        let part = |bytes: u64, all: u64, index: u64| {
            let bytes = u128::from(bytes.min(all)) * u128::from(index) / u128::from(all.max(1));
            bytes as u64
        };
        let (large, small) = (self.large_bytes.load(Relaxed), self.small_bytes());
        part(large, all_large, large_index) + part(small, all_small, small_index)
    }

    pub(crate) fn small_bytes(&self) -> u64 {
        self.small_bytes.load(Relaxed)
    }

    pub(crate) fn set_small_bytes(&self, bytes: u64) {
        self.small_bytes.store(bytes, Relaxed);
    }

    pub fn share_bytes(&self) -> u64 {
        self.share_bytes.load(Relaxed)
    }

    pub fn set_share_bytes(&self, bytes: u64) {
        self.share_bytes.store(bytes, Relaxed);
    }

    /// Whether the pool had more than its share at the last comparison, both of all objects on flash and of the large
    /// ones: a pool whose small objects fill their area still has its part of the log of large objects.
    pub(crate) fn is_above_share(&self) -> bool {
        self.is_above_share.load(Relaxed)
    }

    /// Lookups have found this number of objects.
    pub fn note_hits(&self, hits: u64) {
        self.hits.fetch_add(hits, Relaxed);
    }

    pub(crate) fn note_written(&self, bytes: usize) {
        self.written_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// A large object was refused because the pool has more than its share.
    pub(crate) fn note_refused(&self, bytes: usize) {
        self.refused_by_share.fetch_add(1, Relaxed);
        self.refused_bytes.fetch_add(bytes as i64, Relaxed);
    }

    /// A region was reclaimed for this number of refused bytes, which may still be to come.
    pub(crate) fn settle_refused(&self, bytes: u64) {
        self.refused_bytes.fetch_sub(bytes as i64, Relaxed);
    }

    /// `index_bytes` is the pool's part of both indexes.
    pub(crate) fn stats(&self, index_bytes: u64) -> PoolStats {
        PoolStats {
            index_bytes,
            hits: self.hits.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            bytes: self.bytes(),
            share_bytes: self.share_bytes(),
            refused_by_share: self.refused_by_share.load(Relaxed),
        }
    }
}

/// Which of the stores an object is in, for the bytes of its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occupied {
    Large,
    Small,
}

/// The live incarnations, by their numbers.
pub struct LivePools {
    seed: u64,
    pools: RwLock<HashMap<u16, Arc<FlashPool>>>,
}

impl Default for LivePools {
    /// Only number 0.
    fn default() -> Self {
        Self::new(0, [(FIRST_POOL, FlashPool::new(FIRST_POOL))])
    }
}

impl fmt::Debug for LivePools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LivePools").field("pools", &self.pools.read().expect(UNHARMED).len()).finish_non_exhaustive()
    }
}

impl LivePools {
    pub(crate) fn new(seed: u64, pools: impl IntoIterator<Item = (u16, Arc<FlashPool>)>) -> Self {
        Self { seed, pools: RwLock::new(pools.into_iter().collect()) }
    }

    pub(crate) fn salt(&self, number: u16) -> u64 {
        match number {
            FIRST_POOL => 0,
            _ => XxHash3_64::oneshot_with_seed(self.seed, &number.to_le_bytes()),
        }
    }

    pub(crate) fn hash(&self, number: u16, key: &[u8]) -> FlashHash {
        FlashHash::salted(key, self.salt(number))
    }

    pub(crate) fn key<'a>(&self, number: u16, bytes: &'a [u8]) -> Key<'a> {
        Key::salted(bytes, number, self.salt(number))
    }

    pub(crate) fn is_live(&self, number: u16) -> bool {
        self.pools.read().expect(UNHARMED).contains_key(&number)
    }

    /// The numbers of all of them.
    pub(crate) fn numbers(&self) -> HashSet<u16> {
        self.pools.read().expect(UNHARMED).keys().copied().collect()
    }

    /// Whether there is more than one.
    pub(crate) fn are_several(&self) -> bool {
        self.pools.read().expect(UNHARMED).len() > 1
    }

    pub(crate) fn find(&self, number: u16) -> Option<Arc<FlashPool>> {
        self.pools.read().expect(UNHARMED).get(&number).cloned()
    }

    pub(crate) fn add(&self, number: u16, pool: &Arc<FlashPool>) {
        self.pools.write().expect(UNHARMED).insert(number, Arc::clone(pool));
    }

    /// Ends an incarnation.
    pub(crate) fn end(&self, number: u16) {
        self.pools.write().expect(UNHARMED).remove(&number);
    }

    /// Bytes of an incarnation that were written, or read back from a checkpoint.
    pub(crate) fn occupy(&self, store: Occupied, number: u16, bytes: u64) {
        self.with_bytes(store, number, |total| _ = total.fetch_add(bytes, Relaxed));
    }

    /// Bytes of an incarnation that were reclaimed.
    pub(crate) fn reclaim(&self, store: Occupied, number: u16, bytes: u64) {
        self.with_bytes(store, number, |total| {
            let less = |before: u64| Some(before.saturating_sub(bytes));
            let _ = total.fetch_update(Relaxed, Relaxed, less);
        });
    }

    fn with_bytes(&self, store: Occupied, number: u16, change: impl FnOnce(&AtomicU64)) {
        if let Some(pool) = self.pools.read().expect(UNHARMED).get(&number) {
            change(match store {
                Occupied::Large => &pool.large_bytes,
                Occupied::Small => &pool.small_bytes,
            });
        }
    }

    /// Bytes of all large and all small objects of live incarnations.
    pub(crate) fn total_bytes(&self) -> (u64, u64) {
        let pools = self.pools.read().expect(UNHARMED);
        let add = |(large, small): (u64, u64), pool: &Arc<FlashPool>| {
            (large + pool.large_bytes.load(Relaxed), small + pool.small_bytes())
        };
        pools.values().fold((0, 0), add)
    }

    /// An object left a page because its pool has more than its share.
    pub(crate) fn note_left_page(&self, number: u16) {
        self.find(number).iter().for_each(|pool| _ = pool.refused_by_share.fetch_add(1, Relaxed));
    }

    /// The incarnations whose part of all small objects is larger than their share beside those of the others that have
    /// some. Small objects have an area of their own, in which a pool without large objects may never reach its share
    /// of all of flash.
    pub(crate) fn above_share_of_small(&self) -> Vec<u16> {
        let pools = self.pools.read().expect(UNHARMED);
        let with_small = pools.iter().filter(|(_, pool)| pool.small_bytes() > 0);
        let sizes: Vec<(u16, u128, u128)> =
            with_small.map(|(number, pool)| (*number, pool.small_bytes().into(), pool.share_bytes().into())).collect();
        let all_bytes: u128 = sizes.iter().map(|(_, bytes, _)| bytes).sum();
        let all_shares: u128 = sizes.iter().map(|(.., share)| share).sum();
        let above = sizes.iter().filter(|(_, bytes, share)| bytes * all_shares > share * all_bytes);
        above.map(|(number, ..)| *number).collect()
    }

    /// Compares the part of each pool of all bytes on flash, and of those of the large objects, with its share beside
    /// the shares of the pools that have some.
    pub(crate) fn compare_shares(&self) {
        let pools = self.pools.read().expect(UNHARMED);
        // Each number is read once: others write meanwhile.
        let read =
            |pool: &FlashPool| [pool.bytes(), pool.large_bytes.load(Relaxed), pool.share_bytes()].map(u128::from);
        let parts: Vec<_> = pools.values().map(|pool| (pool, read(pool))).collect();
        let sums = |kind: usize| {
            let with_bytes = parts.iter().filter(|(_, part)| part[kind] > 0);
            with_bytes.fold((0, 0), |(bytes, shares), (_, part)| (bytes + part[kind], shares + part[2]))
        };
        let is_above =
            |bytes: u128, share: u128, (all_bytes, all_shares): (u128, u128)| bytes * all_shares > share * all_bytes;
        let (all, large) = (sums(0), sums(1));
        for (pool, part) in &parts {
            let is_above = is_above(part[0], part[2], all) && is_above(part[1], part[2], large);
            pool.is_above_share.store(is_above, Relaxed);
        }
    }

    /// The incarnations above their share for which a region is due: at least `min_bytes` were refused.
    pub(crate) fn refused(&self, min_bytes: u64) -> Vec<(u16, Arc<FlashPool>)> {
        let pools = self.pools.read().expect(UNHARMED);
        let is_due = |pool: &FlashPool| {
            if !pool.is_above_share() {
                pool.refused_bytes.store(0, Relaxed);
            }
            pool.refused_bytes.load(Relaxed) >= min_bytes as i64
        };
        let due = pools.iter().filter(|(_, pool)| is_due(pool));
        due.map(|(number, pool)| (*number, Arc::clone(pool))).collect()
    }

    /// Sets the bytes of all small objects to 0.
    pub(crate) fn clear_small(&self) {
        self.pools.read().expect(UNHARMED).values().for_each(|pool| pool.small_bytes.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salts_are_these_numbers() {
        let pools = LivePools::new(0x0123_4567_89ab_cdef, []);
        assert_eq!(pools.salt(0), 0);
        assert_eq!([pools.salt(1), pools.salt(0x0201)], SALTS);
        assert_ne!(pools.salt(1), LivePools::new(1, []).salt(1), "the seed of a life");
        assert_eq!(pools.hash(0, b"ebbtide"), FlashHash::of(b"ebbtide"));
        assert_ne!(pools.hash(1, b"ebbtide"), pools.hash(2, b"ebbtide"));
    }

    const SALTS: [u64; 2] = [0x33d1_7540_6b5d_3558, 0xe551_b449_041f_19d1];

    #[test]
    fn bytes_of_an_ended_incarnation_count_for_nobody() {
        let (pool, pools) = (FlashPool::new(3), LivePools::new(1, []));
        pools.add(3, &pool);
        pools.occupy(Occupied::Large, 3, 100);
        pools.occupy(Occupied::Small, 3, 10);
        pools.reclaim(Occupied::Small, 3, 11);
        assert_eq!(pool.bytes(), 100);
        pools.end(3);
        pool.set_number(4);
        pools.add(4, &pool);
        pools.reclaim(Occupied::Large, 3, 100);
        pools.occupy(Occupied::Large, 3, 7);
        assert_eq!((pool.bytes(), pools.is_live(3), pools.is_live(4)), (0, false, true));
    }
}
