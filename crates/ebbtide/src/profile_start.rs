//! Profiles of caches and of their pools. `profile.rs` names neither, so that both may hold profiles.

use crate::cache::Cache;
use crate::pool::Pool;
use crate::profile::CacheProfile;

impl CacheProfile {
    /// Begins to sample the accesses of a cache without other pools, or of the pool `default`.
    pub fn of(cache: &Cache) -> Self {
        Self::of_pool(cache)
    }

    /// Begins to sample the accesses of a pool.
    pub fn of_pool(pool: &Pool) -> Self {
        Self::of_state(&pool.0.pool)
    }
}
