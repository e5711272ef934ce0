//! Profiles that a cache keeps of its pools: see `profile.rs`, and `profile_thread.rs` for the thread that updates
//! them. A cache with a controller has those of its controller, as a pool has one profile at a time.

use crate::pool_controller::{PoolController, PoolDecision};
use crate::pool_state::PoolState;
use crate::profile::CacheProfile;
use std::sync::{Arc, Mutex, MutexGuard};

/// A profile of each pool.
pub(crate) enum LiveProfiles {
    Alone(Mutex<Vec<CacheProfile>>),
    OfController(Box<Mutex<PoolController>>),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of the lock panics")
}

impl Default for LiveProfiles {
    fn default() -> Self {
        Self::Alone(Mutex::default())
    }
}

impl LiveProfiles {
    pub fn of_controller(controller: PoolController) -> Self {
        Self::OfController(Box::new(Mutex::new(controller)))
    }

    /// The result of `look` for the profile of a pool; `None` if it has no profile.
    pub fn look<T>(&self, pool: &Arc<PoolState>, look: impl FnOnce(&CacheProfile) -> Option<T>) -> Option<T> {
        if pool.is_removed() {
            return None;
        }
        match self {
            Self::Alone(profiles) => lock(profiles).iter().find(|profile| profile.is_of(pool)).and_then(look),
            Self::OfController(controller) => {
                lock(controller).profile(&pool.name).filter(|profile| profile.is_of(pool)).and_then(look)
            }
        }
    }

    /// The newest decisions of the controller, oldest first.
    pub fn decisions(&self) -> Vec<PoolDecision> {
        match self {
            Self::Alone(_) => Vec::new(),
            Self::OfController(controller) => lock(controller).decisions().cloned().collect(),
        }
    }

    /// Takes the samples since the last call. Added pools are sampled from now on. The controller decides if that is
    /// due.
    pub fn update(&self, pools: &[Arc<PoolState>], memory_bytes: u64) {
        let mut profiles = match self {
            Self::Alone(profiles) => lock(profiles),
            Self::OfController(controller) => {
                // A closed cache: the pools stay as they are. Refused budgets are among the decisions.
                let _ = lock(controller).update();
                return;
            }
        };
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
