//! Which pool a key belongs to, for one thread.

use std::sync::Arc;

use ebbtide::memcached::Pool;

use super::counts::WorkerGets;
use super::{PoolSet, PublishedPools};

/// A thread's handles of all pools.
pub struct Router {
    version: u64,
    set: Arc<PoolSet>,
    /// Handles that do not wait.
    pools: Box<[Pool]>,
    worker: usize,
}

impl Router {
    pub fn new(published: &PublishedPools, worker: usize) -> Self {
        // The version before the set: if another one is published in between, the next refresh takes it.
        let version = published.version();
        let set = published.current();
        let pools = set.entries.iter().map(|entry| entry.pool.without_waiting()).collect();
        Self { version, set, pools, worker }
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
        self.pools.len() == 1
    }

    /// The number of the key's pool.
    #[inline]
    pub fn find(&self, key: &[u8]) -> usize {
        if self.is_single() { 0 } else { self.set.prefixes.find(key) }
    }

    #[inline]
    pub fn pool(&self, number: usize) -> &Pool {
        &self.pools[number]
    }

    /// The slab class of the key's pool.
    pub fn class(&self, key: &[u8]) -> u32 {
        self.set.entries[self.find(key)].class
    }

    /// Where this thread counts the gets of a pool.
    #[inline]
    pub fn gets(&self, number: usize) -> &WorkerGets {
        &self.set.entries[number].counts.workers[self.worker]
    }

    pub fn set(&self) -> &PoolSet {
        &self.set
    }
}
