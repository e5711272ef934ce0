//! Profiles and controllers of caches. Their files name neither caches nor pools, so that both may hold them.

use crate::cache::Cache;
use crate::pool::Pool;
use crate::pool_controller::{ControllerMode, ControllerOptions, InvalidController, PoolController};
use crate::profile::CacheProfile;

impl PoolController {
    /// Begins to profile all pools of a cache.
    ///
    /// # Errors
    /// The option without a meaning.
    pub fn new(cache: &Cache, mode: ControllerMode, options: ControllerOptions) -> Result<Self, InvalidController> {
        let engine = cache.engine();
        let allowed = engine.controller_policies.get().map_or(&[][..], Vec::as_slice);
        Self::of_pools((&engine.pools, &engine.default_pool), allowed, mode, options)
    }
}

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
