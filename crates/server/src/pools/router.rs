//! Which pool a key belongs to, for one thread.

use std::sync::Arc;

use ebbtide::memcached::{CompactPool, Pool};

use super::counts::WorkerGets;
use super::{PoolSet, PublishedPools};

/// A thread's handles of all pools.
pub struct Router {
    version: u64,
    set: Arc<PoolSet>,
    /// Handles that do not wait.
    pools: Box<[Pool]>,
    is_single: bool,
    worker: usize,
}

impl Router {
    pub fn new(published: &PublishedPools, worker: usize) -> Self {
        // The version before the set: if another one is published in between, the next refresh takes it.
        let version = published.version();
        let set = published.current();
        let pools = set.entries.iter().map(|entry| entry.pool.without_waiting()).collect();
        Self { version, is_single: set.is_single(), set, pools, worker }
    }

    /// Takes another set over if one was published.
    #[inline]
    pub fn refresh(&mut self, published: &PublishedPools) {
        if published.version() != self.version {
            *self = Self::new(published, self.worker);
        }
    }

    /// Whether all keys belong to the pool `default`.
    #[inline(always)]
    pub fn is_single(&self) -> bool {
        self.is_single
    }

    /// The number of the key's pool.
    #[inline]
    pub fn find(&self, key: &[u8]) -> usize {
        if self.is_single() { 0 } else { self.set.prefixes.find(key) }
    }

    /// The pool of this number. A compact pool is none: then it is the pool `default`, which has none of its keys.
    #[inline]
    pub fn pool(&self, number: usize) -> &Pool {
        self.pools.get(number).unwrap_or(&self.pools[0])
    }

    /// The compact pool of this number, if it is one.
    #[inline]
    pub fn compact(&self, number: usize) -> Option<&CompactPool> {
        let at = number.checked_sub(self.pools.len())?;
        Some(&self.set.compact[at].pool)
    }

    /// Whether there are compact pools.
    #[inline(always)]
    pub fn has_compact(&self) -> bool {
        !self.set.compact.is_empty()
    }

    /// The slab class of the key's pool.
    pub fn class(&self, key: &[u8]) -> u32 {
        self.set.class_and_counts(self.find(key)).0
    }

    /// Where this thread counts the gets of a pool.
    #[inline]
    pub fn gets(&self, number: usize) -> &WorkerGets {
        &self.set.class_and_counts(number).1.workers[self.worker]
    }

    pub fn set(&self) -> &PoolSet {
        &self.set
    }
}
