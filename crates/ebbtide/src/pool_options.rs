//! Options of a pool.

use crate::byte_size::ByteSize;
use ebbtide_control::{HitRatio, Share};
use ebbtide_store::{CompactSizes, Objective, Policy};

/// The name of the pool that every cache has.
pub(crate) const DEFAULT_POOL: &str = "default";

/// Options of a pool, for [`crate::CacheBuilder::pool`] and [`crate::Cache::add_pool`].
///
/// ```
/// # use ebbtide::{ByteSize, Cache, PoolOptions};
/// let users = PoolOptions::named("users").min(ByteSize::mib(16)).max(ByteSize::mib(32));
/// let cache = Cache::builder().memory(ByteSize::mib(64)).pool(users).build()?;
/// cache.pool("users")?.insert("42", "Ada")?;
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PoolOptions {
    pub(crate) name: String,
    pub(crate) min_bytes: u64,
    pub(crate) max_bytes: u64,
    pub(crate) weight: u32,
    pub(crate) hit_value: u32,
    pub(crate) target_hit_ratio: Option<HitRatio>,
    pub(crate) policy: Option<Policy>,
    pub(crate) objective: Option<Objective>,
    pub(crate) max_value: Option<u64>,
    pub(crate) flash_share: Option<u8>,
    /// Of a compact pool.
    pub(crate) compact: Option<CompactSizes>,
}

impl PoolOptions {
    /// A pool of weight 1 without bounds. A name has 1 to 64 printable characters without blanks; `default` changes the
    /// options of the pool that every cache has.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// let users = PoolOptions::named("users");
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).pool(users).build()?;
    /// assert_eq!(cache.pools(), ["default", "users"]);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            min_bytes: 0,
            max_bytes: u64::MAX,
            weight: 1,
            hit_value: 1,
            target_hit_ratio: None,
            policy: None,
            objective: None,
            max_value: None,
            flash_share: None,
            compact: None,
        }
    }

    /// Memory that the pool has in any case. Default: as little as it works with, twice its largest value.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// let users = PoolOptions::named("users").min(ByteSize::mib(40));
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).pool(users).build()?;
    /// assert!(cache.pool("users")?.stats().memory_limit_bytes >= 40 << 20);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn min(mut self, memory: ByteSize) -> Self {
        self.min_bytes = memory.as_bytes();
        self
    }

    /// Memory that the pool never exceeds. Default: no bound.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// let users = PoolOptions::named("users").max(ByteSize::mib(8));
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).pool(users).build()?;
    /// assert!(cache.pool("users")?.stats().memory_limit_bytes <= 8 << 20);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn max(mut self, memory: ByteSize) -> Self {
        self.max_bytes = memory.as_bytes();
        self
    }

    /// The pool's part of the memory between the bounds of all pools, relative to the other weights. Default 1.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// let users = PoolOptions::named("users").weight(3);
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).pool(users).build()?;
    /// // The pool `default` has the weight 1.
    /// assert!(cache.pool("users")?.stats().memory_limit_bytes > 40 << 20);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// The worth of a hit of this pool to the controller, relative to hits of other pools: 5 where a miss costs
    /// five times as much as elsewhere. Default 1; 0 is a pool whose hits count for nothing.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// use ebbtide::controller::ControllerMode;
    ///
    /// let users = PoolOptions::named("users").hit_value(5);
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).controller(ControllerMode::Auto);
    /// let cache = builder.pool(users).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn hit_value(mut self, value: u32) -> Self {
        self.hit_value = value;
        self
    }

    /// The hit ratio for which the controller gives the pool memory, before the other pools share the rest by what they
    /// earn with it. Within the bounds of the pool, and only if the smallest budgets of the others leave that much.
    /// Default: none.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// use ebbtide::controller::ControllerMode;
    /// use ebbtide::options::HitRatio;
    ///
    /// let users = PoolOptions::named("users").target_hit_ratio(HitRatio::new(0.95).unwrap());
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).controller(ControllerMode::Auto);
    /// let cache = builder.pool(users).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn target_hit_ratio(mut self, ratio: HitRatio) -> Self {
        self.target_hit_ratio = Some(ratio);
        self
    }

    /// The eviction policy. Default: that of the cache.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Policy, PoolOptions};
    /// let users = PoolOptions::named("users").policy(Policy::Lru);
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).pool(users).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The objective of the pool's evictions. Default: that of the cache.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Objective, PoolOptions};
    /// let users = PoolOptions::named("users").objective(Objective::Cost);
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).pool(users).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn objective(mut self, objective: Objective) -> Self {
        self.objective = Some(objective);
        self
    }

    /// The largest value. Default: that of the cache. A pool needs twice as much memory.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// let users = PoolOptions::named("users").max_value(ByteSize::mib(8));
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).pool(users).build()?;
    /// cache.pool("users")?.insert("42", vec![0; 5 << 20])?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn max_value(mut self, value: ByteSize) -> Self {
        self.max_value = Some(value.as_bytes());
        self
    }

    /// Percent of flash, 1 to 100, that the pool may have while flash is full. Default: what the shares of others
    /// leave, divided among the pools without one as the memory is.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("app.flash");
    /// let users = PoolOptions::named("users").flash_share(75);
    /// let builder = Cache::builder().memory(ByteSize::mib(64)).pool(users);
    /// let cache = builder.flash(path, ByteSize::mib(256)).build()?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn flash_share(mut self, percent: u8) -> Self {
        self.flash_share = Some(percent);
        self
    }

    /// Makes this a compact pool: all keys have `key_bytes` bytes and all values `value_bytes`, which may be 0. An
    /// object has no overhead but its part of the 8 bytes of a set, of 4 to 32 objects. Key and value together have at
    /// most 128 bytes. [`crate::Cache::compact_pool`] gives the handle; policy and largest value have no meaning.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, Lookup, PoolOptions};
    /// let absent = PoolOptions::named("absent").compact(16, 0).max(ByteSize::mib(8));
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).pool(absent).build()?;
    /// let absent = cache.compact_pool("absent")?;
    /// absent.insert_negative(1234u128.to_be_bytes())?;
    /// assert_eq!(absent.get(1234u128.to_be_bytes()), Lookup::Negative);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn compact(mut self, key_bytes: usize, value_bytes: usize) -> Self {
        self.compact = Some(CompactSizes { key_bytes, value_bytes, has_ttl: false });
        self
    }

    /// As [`PoolOptions::compact`], with entries that may expire, to the second: 4 more bytes for each.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache, InsertOptions, PoolOptions};
    /// # use std::time::Duration;
    /// let absent = PoolOptions::named("absent").compact_with_ttl(16, 0).max(ByteSize::mib(8));
    /// let cache = Cache::builder().memory(ByteSize::mib(64)).pool(absent).build()?;
    /// let a_minute = InsertOptions::new().ttl(Duration::from_secs(60));
    /// cache.compact_pool("absent")?.insert_negative_with(7_u128.to_be_bytes(), a_minute)?;
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn compact_with_ttl(mut self, key_bytes: usize, value_bytes: usize) -> Self {
        self.compact = Some(CompactSizes { key_bytes, value_bytes, has_ttl: true });
        self
    }

    pub(crate) fn share(&self, floor_bytes: u64) -> Share {
        let Self { name, min_bytes, max_bytes, weight, hit_value, target_hit_ratio, .. } = self.clone();
        Share { name, min_bytes, max_bytes, weight, hit_value, target_hit_ratio, floor_bytes }
    }
}
