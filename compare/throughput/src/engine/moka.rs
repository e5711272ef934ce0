//! moka's cache for threads with the hasher that its documentation names as a faster one, told how many objects to
//! expect. Values are shared references, as its documentation advises.

use std::sync::Arc;

use moka::sync::Cache;

use super::{Engine, Size};
use crate::workload::{KEY_BYTES, Key};

type Value = Arc<[u8]>;

pub struct Moka(Cache<Key, Value, ahash::RandomState>);

impl Engine for Moka {
    fn build(size: &Size) -> Result<Self, String> {
        let cache = Cache::builder()
            .max_capacity(size.capacity_bytes)
            .initial_capacity(size.objects as usize)
            .weigher(|_: &Key, value: &Value| (KEY_BYTES + value.len()) as u32)
            .build_with_hasher(ahash::RandomState::new());
        Ok(Self(cache))
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
