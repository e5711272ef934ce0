//! Issued CAS tokens over a restart: the checkpoint of flash keeps those of each pool.
//!
//! ```text
//! stop    no insert into flash follows -> tokens of all stores -> checkpoint
//! start   no memory file               the stores are empty, and adopt the tokens of their pools
//!         a warm memory file           they are of the same stop, and continue with them
//!         a cold memory file           none: an image has no base of adopted tokens
//! ```
//! The tokens of a pool are those of its incarnation on flash. Those of a key that flash has lost match nothing.

use ebbtide_flash::{FlashPool, PoolTokens};
use ebbtide_store::{KeptTokens, Store};
use std::sync::{Arc, Mutex, Weak};

/// Stores above flash.
#[derive(Default)]
pub(crate) struct TokenStores(Mutex<Vec<(Arc<FlashPool>, Weak<Store>)>>);

/// Which tokens the stores of a start resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenStart {
    Adopt,
    Continue,
    None,
}

impl TokenStores {
    /// A store above the flash of its pool, for as long as it lives.
    pub fn register(&self, pool: &Arc<FlashPool>, store: &Arc<Store>) {
        let mut all = self.0.lock().expect("nothing panics under this lock");
        all.retain(|(_, store)| store.strong_count() > 0);
        all.push((Arc::clone(pool), Arc::downgrade(store)));
    }

    /// The issued tokens of all stores, which nothing changes any more.
    pub fn kept(&self) -> Vec<PoolTokens> {
        let all = self.0.lock().expect("nothing panics under this lock");
        let of_store = |(pool, store): &(Arc<FlashPool>, Weak<Store>)| {
            let KeptTokens { seed, base, limit, tokens } = store.upgrade()?.kept_tokens()?;
            Some(PoolTokens { pool: pool.number(), seed, base, limit, tokens })
        };
        all.iter().filter_map(of_store).collect()
    }
}

/// Has the stores of these pools resume the tokens that the last stop kept.
pub(crate) fn resume(kept: Vec<PoolTokens>, pools: &[Arc<FlashPool>], stores: &mut [Store], start: TokenStart) {
    for PoolTokens { pool, seed, base, limit, tokens } in kept {
        let kept = KeptTokens { seed, base, limit, tokens };
        let position = pools.iter().position(|present| present.number() == pool);
        // A pool that is not configured any more, or was flushed after the checkpoint, has none.
        let Some(store) = position.map(|position| &mut stores[position]) else { continue };
        // A store that refuses them starts with tokens of its own.
        match start {
            TokenStart::Adopt => _ = store.adopt_tokens(&kept),
            TokenStart::Continue => {
                store.keep_limit(limit);
                store.continue_tokens(&kept);
            }
            TokenStart::None => store.keep_limit(limit),
        }
    }
}
