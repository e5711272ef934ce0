//! foyer's cache in memory with S3-FIFO, a faster hasher than its own, which must be the same in all processes, and
//! many shards, as each is behind a lock.

use foyer_memory::{Cache, CacheBuilder, CacheProperties, S3FifoConfig};

use super::{Engine, Size};
use crate::workload::{KEY_BYTES, Key};

const SHARDS_PER_THREAD: usize = 16;

type Value = Box<[u8]>;

pub struct Foyer(Cache<Key, Value, ahash::RandomState, CacheProperties>);

impl Engine for Foyer {
    fn build(size: &Size) -> Result<Self, String> {
        let cache = CacheBuilder::new(size.capacity_bytes as usize)
            .with_shards(SHARDS_PER_THREAD * size.threads as usize)
            .with_eviction_config(S3FifoConfig::default())
            .with_hash_builder(ahash::RandomState::new())
            .with_weighter(|_: &Key, value: &Value| KEY_BYTES + value.len())
            .build();
        Ok(Self(cache))
    }

    #[inline(always)]
    fn look<R>(&self, key: &Key, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.0.get(key).map(|entry| look(entry.value()))
    }

    #[inline(always)]
    fn set(&self, key: &Key, value: &[u8]) -> bool {
        self.0.insert(*key, value.into());
        true
    }
}
