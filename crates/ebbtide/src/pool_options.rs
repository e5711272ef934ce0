//! Options of a pool.

use crate::byte_size::ByteSize;
use ebbtide_control::Share;
use ebbtide_store::Policy;

/// The name of the pool that every cache has.
pub(crate) const DEFAULT_POOL: &str = "default";

/// Options of a pool, for [`crate::CacheBuilder::pool`] and [`crate::Cache::add_pool`].
#[derive(Clone, Debug, PartialEq)]
pub struct PoolOptions {
    pub(crate) name: String,
    pub(crate) min_bytes: u64,
    pub(crate) max_bytes: u64,
    pub(crate) weight: u32,
    pub(crate) policy: Option<Policy>,
    pub(crate) max_value: Option<u64>,
    pub(crate) flash_share: Option<u8>,
}

impl PoolOptions {
    /// A pool of weight 1 without bounds. A name has 1 to 64 printable characters without blanks; `default` changes the
    /// options of the pool that every cache has.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            min_bytes: 0,
            max_bytes: u64::MAX,
            weight: 1,
            policy: None,
            max_value: None,
            flash_share: None,
        }
    }

    /// Memory that the pool has in any case. Default: as little as it works with, twice its largest value.
    pub fn min(mut self, memory: ByteSize) -> Self {
        self.min_bytes = memory.as_bytes();
        self
    }

    /// Memory that the pool never exceeds. Default: no bound.
    pub fn max(mut self, memory: ByteSize) -> Self {
        self.max_bytes = memory.as_bytes();
        self
    }

    /// The pool's part of the memory between the bounds of all pools, relative to the other weights. Default 1.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// The eviction policy. Default: that of the cache.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The largest value. Default: that of the cache. A pool needs twice as much memory.
    pub fn max_value(mut self, value: ByteSize) -> Self {
        self.max_value = Some(value.as_bytes());
        self
    }

    /// Percent of flash, 1 to 100, that the pool may have while flash is full. Default: what the shares of others
    /// leave, divided among the pools without one as the memory is.
    pub fn flash_share(mut self, percent: u8) -> Self {
        self.flash_share = Some(percent);
        self
    }

    pub(crate) fn share(&self, floor_bytes: u64) -> Share {
        let Self { name, min_bytes, max_bytes, weight, .. } = self.clone();
        Share { name, min_bytes, max_bytes, weight, floor_bytes }
    }
}
