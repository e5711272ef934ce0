//! quick_cache with its own hasher and its default number of shards, told how many objects to expect. Values are shared
//! references, as it clones what it returns.

use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use super::{Engine, Size};
use crate::workload::{KEY_BYTES, Key};

type Value = Arc<[u8]>;

/// Keys and values.
#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Value> for Bytes {
    fn weight(&self, _: &Key, value: &Value) -> u64 {
        (KEY_BYTES + value.len()) as u64
    }
}

pub struct QuickCache(Cache<Key, Value, Bytes>);

impl Engine for QuickCache {
    fn build(size: &Size) -> Result<Self, String> {
        let options = OptionsBuilder::new()
            .estimated_items_capacity(size.objects as usize)
            .weight_capacity(size.capacity_bytes)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self(Cache::with_options(options, Bytes, DefaultHashBuilder::default(), DefaultLifecycle::default())))
    }

    #[inline(always)]
    fn look<R>(&self, key: &Key, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.0.get(key).map(|value| look(&value))
    }

    #[inline(always)]
    fn set(&self, key: &Key, value: &[u8]) -> bool {
        self.0.insert(*key, value.into());
        true
    }
}
