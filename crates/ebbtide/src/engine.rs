//! The engine of a cache: its store, its clock, its flash tier, and the participants of its threads.
//!
//! ```text
//! Cache, Insert, Upload, Scan --> Access --> Owner --> Engine <-- the maintenance thread, weakly
//!                                    |                    |
//!                                    +----> PoolState <---+        a store, and what its operations need
//! ```
//! The engine ends with the last [`Owner`], also while its own threads are at work.

use crate::clock::EngineClock;
use crate::flash::idle_demotion::IdleScan;
use crate::flash::threads::{FlashShutdown, FlashThreads};
use crate::flash::tier::FlashTier;
use crate::wakeup::Waker;
use ebbtide_store::{Participant, Store};
use std::cell::RefCell;
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
    pub fn new(store: Store, clock: EngineClock, flash: Option<(Arc<FlashTier>, FlashThreads)>) -> Arc<Self> {
        let (flash, threads) = flash.unzip();
        let (clock, waker) = (Arc::new(clock), Arc::<Waker>::default());
        Arc::new(Self {
            default_pool: PoolState::new(store, Arc::clone(&clock), Arc::clone(&waker), flash),
            clock,
            waker,
            maintaining: Mutex::new(()),
            idle_scan: Mutex::default(),
            flash_shutdown: threads.map_or_else(FlashShutdown::default, FlashShutdown::of),
        })
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
