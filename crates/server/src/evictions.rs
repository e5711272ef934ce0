//! The listener of evictions: it counts them by pool, reports them to watchers, and samples them for the admin
//! interface. An object that flash took was not evicted: watchers alone hear of it.

use std::sync::Arc;

use ebbtide::memcached::{Cause, Error, Removal};

use crate::observe::EvictionSamples;
use crate::pools::PoolEntry;
use crate::watch::{WatchKind, Watching};

/// Listens to the evictions of pools.
pub struct EvictionListener {
    pub watching: Arc<Watching>,
    pub samples: Arc<EvictionSamples>,
    /// True with an admin interface.
    pub is_sampling: bool,
    pub prefix_delimiter: u8,
}

impl EvictionListener {
    /// Listens to the evictions of a pool, as long as it exists. The listener is called by the evicting thread, and
    /// never waits.
    ///
    /// # Errors
    /// If the pool has too many listeners.
    pub fn listen(&self, entry: &PoolEntry) -> Result<(), Error> {
        let (watching, counts) = (Arc::clone(&self.watching), Arc::clone(&entry.counts));
        let sampled = self.is_sampling.then(|| (Arc::clone(&self.samples), entry.rule.name.clone()));
        let delimiter = self.prefix_delimiter;
        entry.pool.on_removal(move |removal: Removal<'_>| {
            if !matches!(removal.cause(), Cause::Memory | Cause::IndexFull) {
                return;
            }
            if watching.wants(WatchKind::Eviction) {
                watching.evict(&removal);
            }
            if removal.is_demoted() {
                return;
            }
            counts.evicted.note(&removal);
            if let Some((samples, pool)) = &sampled {
                samples.note(&removal, pool, delimiter);
            }
        })
    }
}
