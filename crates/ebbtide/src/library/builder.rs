//! Options of a cache.

use super::Settings;
use crate::byte_size::ByteSize;
use crate::clock::Clock;
use crate::memcached;
use crate::memory_monitor::PressureOptions;
use crate::pool_options::PoolOptions;
use ebbtide_store::{Policy, Ttl};
use std::path::Path;
use std::time::Duration;

/// A clock must not overflow: a year is no bound for any loader.
const MAX_LOAD_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Options of a cache; see [`crate::Cache::builder`]. Each has a default that works.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing before build"]
pub struct CacheBuilder {
    pub(super) engine: memcached::CacheBuilder,
    pub(super) settings: Settings,
}

impl CacheBuilder {
    /// All the memory that the cache may use: entries, index, headers and spares. Default 64 MiB.
    pub fn memory(self, memory: ByteSize) -> Self {
        self.engine(|engine| engine.memory(memory))
    }

    /// The TTL of writes that name none, and of loaded values. Default: entries never expire.
    pub fn default_ttl(mut self, ttl: impl Into<Ttl>) -> Self {
        self.settings.default_ttl = ttl.into();
        self
    }

    /// How long a caller that misses a key waits for another caller's loader of this key: longer than any loader should
    /// take. Default 60 s.
    pub fn load_timeout(mut self, timeout: Duration) -> Self {
        self.settings.load_timeout = timeout.min(MAX_LOAD_TIMEOUT);
        self
    }

    /// The largest value: up to half of the memory and 1 GiB. Default 1 MiB, or half of the memory if that is less.
    pub fn max_value(self, value: ByteSize) -> Self {
        self.engine(|engine| engine.max_value(value))
    }

    /// Which entries an eviction keeps. Default `s3fifo`.
    pub fn policy(self, policy: Policy) -> Self {
        self.engine(|engine| engine.policy(policy))
    }

    /// Adds a pool: a key space with memory of its own. The memory is divided by the pools' bounds and weights.
    pub fn pool(self, options: PoolOptions) -> Self {
        self.engine(|engine| engine.pool(options))
    }

    /// Adds a flash tier: a file, which is created, or a block device, of which this size is used. Several are used as
    /// one. Evicted entries of the pool `default` go there, and are found there.
    pub fn flash(self, path: impl AsRef<Path>, size: ByteSize) -> Self {
        self.engine(|engine| engine.flash(path, size))
    }

    /// A file that [`crate::Cache::close`] writes all entries to, and the next cache with the same file starts with.
    /// After a crash the next start is cold.
    pub fn memory_file(self, path: impl AsRef<Path>) -> Self {
        self.engine(|engine| engine.memory_file(path))
    }

    /// Returns memory while the host or the control group is short of it, and takes it again later. Default: none.
    pub fn memory_monitor(self, options: PressureOptions) -> Self {
        self.engine(|engine| engine.memory_monitor(options))
    }

    /// Where the time comes from. Default: the system. Tests use [`Clock::Manual`].
    pub fn clock(self, clock: Clock) -> Self {
        self.engine(|engine| engine.clock(clock))
    }

    /// Changes options of the engine that have no method here.
    #[doc(hidden)]
    pub fn engine(mut self, change: impl FnOnce(memcached::CacheBuilder) -> memcached::CacheBuilder) -> Self {
        self.engine = change(self.engine);
        self
    }
}
