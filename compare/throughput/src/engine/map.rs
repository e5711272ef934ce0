//! A sharded hash map without evictions: an upper bound for simple designs. Its memory is not bounded.
//!
//! Many shards, so that threads seldom meet; an overwrite of the same length goes into the same bytes.

use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::RwLock;

use super::{Engine, Size};
use crate::workload::Key;

const SHARDS: usize = 256;

type Object = (Key, Box<[u8]>);

/// On lines of its own, so that a lock disturbs no other shard.
#[repr(align(128))]
struct Shard(RwLock<HashTable<Object>>);

pub struct Map {
    shards: Box<[Shard]>,
    hasher: DefaultHashBuilder,
}

impl Map {
    /// The table in a shard goes by the lowest bits of the hash and its highest.
    #[inline(always)]
    fn shard(&self, hash: u64) -> &RwLock<HashTable<Object>> {
        &self.shards[(hash >> 40) as usize % SHARDS].0
    }
}

impl Engine for Map {
    fn build(size: &Size) -> Result<Self, String> {
        let each = (size.objects as usize * 11 / 10).div_ceil(SHARDS);
        let shards = (0..SHARDS).map(|_| Shard(RwLock::new(HashTable::with_capacity(each)))).collect();
        Ok(Self { shards, hasher: DefaultHashBuilder::default() })
    }

    #[inline(always)]
    fn look<R>(&self, key: &Key, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let hash = self.hasher.hash_one(key);
        let table = self.shard(hash).read();
        table.find(hash, |object| object.0 == *key).map(|object| look(&object.1))
    }

    #[inline(always)]
    fn set(&self, key: &Key, value: &[u8]) -> bool {
        let hash = self.hasher.hash_one(key);
        let mut table = self.shard(hash).write();
        match table.entry(hash, |object| object.0 == *key, |object| self.hasher.hash_one(object.0)) {
            Entry::Occupied(mut entry) => match &mut entry.get_mut().1 {
                old if old.len() == value.len() => old.copy_from_slice(value),
                old => *old = value.into(),
            },
            Entry::Vacant(entry) => {
                entry.insert((*key, value.into()));
            }
        }
        true
    }
}
