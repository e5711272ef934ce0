//! The engine of a cache: its pools, its clock and its flash tier.
//!
//! ```text
//! Cache, Insert, Upload, Scan --> Access --> Owner --> Engine <-- the maintenance thread, weakly
//!                                    |                    |
//!                                    +----> PoolState <---+        a store, and what its operations need
//! ```
//! The engine ends with the last [`Owner`], also while its own threads are at work.

use crate::clock::EngineClock;
use crate::compact_state::{CompactState, NewCompactPool};
use crate::error::Error;
use crate::flash::idle_demotion::IdleScan;
use crate::flash::memory_split::ItemMemory;
use crate::flash::pool_flash::PoolFlash;
use crate::flash::threads::{FlashShutdown, FlashThreads};
use crate::flash::tier::FlashTier;
use crate::live_profiles::LiveProfiles;
use crate::maintenance_queue::MaintenanceQueue;
use crate::memory_file::MemoryFile;
use crate::memory_monitor::MemoryMonitor;
use crate::pool_state::{PoolParts, PoolState};
use crate::pools::Pools;
use crate::removal_events::RemovalEvents;
use ebbtide_control::Share;
use ebbtide_store::{EngineMemory, Options, Policy, Process, Store};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

/// State that the threads of a cache share.
pub(crate) struct Engine {
    /// The process that has its threads.
    process: Process,
    pub clock: Arc<EngineClock>,
    /// Parts that a new pool uses.
    pub parts: PoolParts,
    pub default_pool: Arc<PoolState>,
    pub pools: Arc<Pools>,
    /// Held by the maintenance thread while it works.
    pub maintaining: Mutex<()>,
    /// Held by the thread that demotes idle values.
    pub idle_scan: Mutex<IdleScan>,
    pub flash_shutdown: FlashShutdown,
    /// Whether the cache was closed: maintenance ends when it sees this under `maintaining`.
    pub is_closed: AtomicBool,
    pub memory_file: Option<MemoryFile>,
    pub memory_monitor: Option<MemoryMonitor>,
    /// Policies that a controller may give to pools; set once, by the builder.
    pub controller_policies: OnceLock<Vec<Policy>>,
    /// Of a cache that profiles its accesses, or has a controller; set once, by the builder.
    pub profiles: OnceLock<LiveProfiles>,
}

/// Ownership of an engine, shared by the handles of a cache, its uploads and its scans. No thread of the cache has it.
/// Dropping the last one shuts the cache down.
pub(crate) struct Owner(pub Arc<Engine>);

/// A pool of a new engine.
pub(crate) struct NewPool {
    pub share: Share,
    pub flash_share: Option<u8>,
    pub store: Store,
    pub flash: Option<Arc<PoolFlash>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.0.is_inherited() {
            // Never ended: its threads are not here to be waited for, and its files are those of the parent.
            std::mem::forget(Arc::clone(&self.0));
            return;
        }
        // Nobody can make one: what flash keeps is the end.
        self.0.default_pool.store.refuse_changes();
        self.0.flash_shutdown.close(true);
        self.0.tell_all_removals();
    }
}

impl Engine {
    pub fn new(
        template: Options,
        (pools, compact): (Vec<NewPool>, Vec<NewCompactPool>),
        clock: EngineClock,
        flash: Option<(Arc<FlashTier>, FlashThreads)>,
        (memory_file, memory_monitor): (Option<MemoryFile>, Option<MemoryMonitor>),
        memory: EngineMemory,
        removals: Option<Arc<RemovalEvents>>,
    ) -> Result<Arc<Self>, Error> {
        let (flash, threads) = flash.unzip();
        let (clock, queue) = (Arc::new(clock), Arc::<MaintenanceQueue<PoolState>>::default());
        let parts = PoolParts {
            memory: Arc::new(memory),
            clock: Arc::clone(&clock),
            queue,
            memory_waiters: Arc::default(),
            removals,
        };
        let pools: Vec<_> = pools
            .into_iter()
            .map(|NewPool { share, flash_share, store, flash }| {
                let name = share.name.clone();
                (share, flash_share, PoolState::new(name, store, parts.clone(), flash))
            })
            .collect();
        if !compact.is_empty() {
            pools[0].2.store.share_memory();
        }
        let compact = compact
            .into_iter()
            .map(|NewCompactPool { share, plan, table }| {
                let pool = CompactState::build(&share.name, (plan, table), &parts.memory, &pools[0].2)?;
                Ok((share, pool))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let default_pool = Arc::clone(&pools[0].2);
        let pools = Arc::new(Pools::new(template, pools, compact, flash.clone()));
        if let Some(flash) = flash {
            let items: Arc<dyn ItemMemory> = Arc::clone(&pools) as _;
            flash.memory_split.set_items(&items);
        }
        Ok(Arc::new(Self {
            process: Process::this(),
            default_pool,
            pools,
            clock,
            parts,
            maintaining: Mutex::new(()),
            idle_scan: Mutex::default(),
            flash_shutdown: threads.map_or_else(FlashShutdown::default, FlashShutdown::of),
            is_closed: AtomicBool::new(false),
            memory_file,
            memory_monitor,
            controller_policies: OnceLock::new(),
            profiles: OnceLock::new(),
        }))
    }

    /// Whether this is a forked process, whose parent built the cache.
    pub fn is_inherited(&self) -> bool {
        self.process != Process::this()
    }

    /// Changes the memory limit. With the system's clock the maintenance thread does the rest.
    pub fn resize(&self, memory_bytes: u64) -> Result<(), Error> {
        if let Some(file) = self.memory_file.as_ref().filter(|_| memory_bytes > self.pools.memory_bytes()) {
            file.check_space(memory_bytes)?;
        }
        let resize = |for_flash| {
            let resized = self.pools.resize(memory_bytes);
            resized.map_err(|error| match error {
                Error::Configuration { reason, .. } => {
                    let beside = if for_flash > 0 { format!(", beside {for_flash} for flash") } else { String::new() };
                    Error::Configuration { option: "memory", value: memory_bytes.to_string(), reason: reason + &beside }
                }
                other => other,
            })
        };
        self.flash().map_or_else(|| resize(0), |flash| flash.memory_split.with_reserved_bytes(resize))?;
        self.default_pool.wake();
        Ok(())
    }

    /// Tells the eviction listener all events that wait, and those of the calling thread. The caller holds no lock.
    pub fn tell_all_removals(&self) {
        self.parts.removals.iter().for_each(|removals| removals.tell_all());
    }

    pub fn flash(&self) -> Option<&Arc<FlashTier>> {
        self.default_pool.flash.as_ref().map(|flash| &flash.shared)
    }
}
