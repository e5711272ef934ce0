//! Profiles that a cache keeps of its pools: see `profile.rs`, and `profile_thread.rs` for the thread that updates
//! them.

use crate::pool_state::PoolState;
use crate::profile::CacheProfile;
use std::sync::{Arc, Mutex, MutexGuard};

/// A profile of each pool.
#[derive(Default)]
pub(crate) struct LiveProfiles(Mutex<Vec<CacheProfile>>);

impl LiveProfiles {
    fn locked(&self) -> MutexGuard<'_, Vec<CacheProfile>> {
        self.0.lock().expect("no holder of the lock panics")
    }

    /// The result of `look` for the profile of a pool; `None` if it has no profile.
    pub fn look<T>(&self, pool: &Arc<PoolState>, look: impl FnOnce(&CacheProfile) -> Option<T>) -> Option<T> {
        if pool.is_removed() {
            return None;
        }
        self.locked().iter().find(|profile| profile.is_of(pool)).and_then(look)
    }

    /// Takes the samples since the last call. Added pools are sampled from now on.
    pub fn update(&self, pools: &[Arc<PoolState>], memory_bytes: u64) {
        let mut profiles = self.locked();
        let count = profiles.len();
        profiles.retain(|profile| pools.iter().any(|pool| profile.is_of(pool)));
        for pool in pools {
            if !profiles.iter().any(|profile| profile.is_of(pool)) {
                profiles.push(CacheProfile::of_state(pool));
            }
        }
        if profiles.len() != count {
            profiles.iter_mut().for_each(|profile| profile.share_memory(pools.len(), memory_bytes));
        }
        profiles.iter_mut().for_each(CacheProfile::update);
    }
}
