//! The engine of a cache: its store, its clock, its flash tier, and the participants of its threads.
//!
//! ```text
//! Cache, Insert, Upload, Scan --> Access --> Owner --> Engine <-- the maintenance thread, weakly
//!                                    |                    |
//!                                    +----> PoolState <---+        a store, and what its operations need
//! ```
//! The engine ends with the last [`Owner`], also while its own threads are at work.

use crate::clock::EngineClock;
use crate::error::Error;
use crate::flash::idle_demotion::IdleScan;
use crate::flash::threads::{FlashShutdown, FlashThreads};
use crate::flash::tier::FlashTier;
use crate::memory_file::MemoryFile;
use crate::memory_monitor::MemoryMonitor;
use crate::wakeup::Waker;
use ebbtide_store::{Participant, Store};
use std::cell::RefCell;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};

/// What the threads of a cache work on.
pub(crate) struct Engine {
    pub clock: Arc<EngineClock>,
    /// Wakes the maintenance thread.
    pub waker: Arc<Waker>,
    pub default_pool: Arc<PoolState>,
    /// Held by the maintenance thread while it works.
    pub maintaining: Mutex<()>,
    /// Held by the thread that demotes idle values.
    pub idle_scan: Mutex<IdleScan>,
    pub flash_shutdown: FlashShutdown,
    /// Whether the cache was closed: maintenance ends when it sees this under `maintaining`.
    pub is_closed: AtomicBool,
    pub memory_file: Option<MemoryFile>,
    pub memory_monitor: Option<MemoryMonitor>,
}

/// A store, with the clock, flash tier and wake-up of its engine.
pub(crate) struct PoolState {
    pub store: Arc<Store>,
    pub clock: Arc<EngineClock>,
    pub waker: Arc<Waker>,
    pub flash: Option<Arc<FlashTier>>,
    this: Weak<PoolState>,
}

/// What the handles of a cache share with its uploads and scans, and what no thread of the cache has. Dropping the last
/// one shuts the cache down.
pub(crate) struct Owner(pub Arc<Engine>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.flash_shutdown.close(true);
    }
}

impl Engine {
    pub fn new(
        store: Store,
        clock: EngineClock,
        flash: Option<(Arc<FlashTier>, FlashThreads)>,
        memory_file: Option<MemoryFile>,
        memory_monitor: Option<MemoryMonitor>,
    ) -> Arc<Self> {
        let (flash, threads) = flash.unzip();
        let (clock, waker) = (Arc::new(clock), Arc::<Waker>::default());
        Arc::new(Self {
            default_pool: PoolState::new(store, Arc::clone(&clock), Arc::clone(&waker), flash),
            clock,
            waker,
            maintaining: Mutex::new(()),
            idle_scan: Mutex::default(),
            flash_shutdown: threads.map_or_else(FlashShutdown::default, FlashShutdown::of),
            is_closed: AtomicBool::new(false),
            memory_file,
            memory_monitor,
        })
    }

    /// Changes the memory limit. With the system's clock the maintenance thread does the rest.
    pub fn resize(&self, memory_bytes: u64) -> Result<(), Error> {
        let resize = |for_flash| {
            let resized = self.default_pool.store.resize(memory_bytes.saturating_sub(for_flash));
            resized.map_err(|error| match Error::from_store(error) {
                Error::Configuration { option, reason, .. } => {
                    let beside = if for_flash > 0 { format!(", beside {for_flash} for flash") } else { String::new() };
                    Error::Configuration { option, value: memory_bytes.to_string(), reason: reason + &beside }
                }
                other => other,
            })
        };
        self.flash().map_or_else(|| resize(0), |flash| flash.memory_split.with_flash_bytes(resize))?;
        self.waker.wake();
        Ok(())
    }

    pub fn flash(&self) -> Option<&Arc<FlashTier>> {
        self.default_pool.flash.as_ref()
    }
}

thread_local! {
    /// The pools that this thread has used, with its participant of each.
    static PARTICIPANTS: RefCell<Vec<(Weak<PoolState>, Participant)>> = const { RefCell::new(Vec::new()) };
}

impl PoolState {
    fn new(store: Store, clock: Arc<EngineClock>, waker: Arc<Waker>, flash: Option<Arc<FlashTier>>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { store: Arc::new(store), clock, waker, flash, this: this.clone() })
    }

    /// The calling thread's participant.
    #[inline]
    pub fn participant(&self) -> Participant {
        let participant = PARTICIPANTS.try_with(|participants| {
            let participants = &mut *participants.borrow_mut();
            let mine = participants.iter().find(|(pool, _)| Weak::ptr_eq(pool, &self.this));
            mine.map(|(_, participant)| participant.clone()).unwrap_or_else(|| self.participate(participants))
        });
        // A thread that ends may use the cache in the destructor of another thread-local.
        participant.unwrap_or_else(|_| self.store.participate())
    }

    #[cold]
    fn participate(&self, participants: &mut Vec<(Weak<PoolState>, Participant)>) -> Participant {
        participants.retain(|(pool, _)| pool.strong_count() > 0);
        let participant = self.store.participate();
        participants.push((self.this.clone(), participant.clone()));
        participant
    }
}
