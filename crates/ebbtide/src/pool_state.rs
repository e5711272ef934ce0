//! The state of one pool: a store, with the clock, flash tier and maintenance queue of its engine; and the engine's
//! participants of threads.

use crate::clock::EngineClock;
use crate::error::Error;
use crate::flash::pool_flash::PoolFlash;
use crate::library::load_table::LoadTable;
use crate::library::lookup_counters::LookupCounters;
use crate::maintenance_queue::{MaintenanceQueue, QueueMark};
use crate::memory_waiters::MemoryWaiters;
use crate::removal_events::RemovalEvents;
use ebbtide_store::{EngineMemory, Participant, Policy, Store};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

/// Values from this length on may need several regions of flash: no region is smaller.
const LONG_ON_FLASH: u64 = 16 << 10;

/// Parts that all pools of an engine share.
#[derive(Clone)]
pub(crate) struct PoolParts {
    /// Address space and epochs: a thread has one participant for all pools.
    pub memory: Arc<EngineMemory>,
    pub clock: Arc<EngineClock>,
    pub queue: Arc<MaintenanceQueue<PoolState>>,
    pub memory_waiters: Arc<MemoryWaiters>,
    /// With an eviction listener.
    pub removals: Option<Arc<RemovalEvents>>,
}

/// A store, with the clock, flash tier and maintenance queue of its engine.
pub(crate) struct PoolState {
    pub name: Box<str>,
    pub store: Arc<Store>,
    pub clock: Arc<EngineClock>,
    pub flash: Option<Arc<PoolFlash>>,
    memory: Arc<EngineMemory>,
    /// Tells the thread's participant for `memory`.
    memory_key: Weak<EngineMemory>,
    queue: Arc<MaintenanceQueue<PoolState>>,
    queue_mark: QueueMark,
    /// Lookups of library users; the server counts its own.
    pub lookups: LookupCounters,
    pub loads: LoadTable,
    pub memory_waiters: Arc<MemoryWaiters>,
    pub removals: Option<Arc<RemovalEvents>>,
    is_removed: AtomicBool,
    /// Since when maintenance has kept back evictions because flash is full.
    pub evictions_wait_since: Mutex<Option<Instant>>,
    this: Weak<PoolState>,
}

impl AsRef<QueueMark> for PoolState {
    fn as_ref(&self) -> &QueueMark {
        &self.queue_mark
    }
}

thread_local! {
    /// The engines that this thread has used, with its participant of each.
    static PARTICIPANTS: RefCell<Vec<(Weak<EngineMemory>, Participant)>> = const { RefCell::new(Vec::new()) };
}

impl PoolState {
    /// With flash its store must have been told of that already.
    pub fn new(name: impl Into<Box<str>>, store: Store, parts: PoolParts, flash: Option<Arc<PoolFlash>>) -> Arc<Self> {
        let PoolParts { memory, clock, queue, memory_waiters, removals } = parts;
        if let Some(events) = removals.clone() {
            store.on_any_removal(move |removed| events.note(removed));
        }
        let store = Arc::new(store);
        flash.iter().for_each(|flash| flash.token_stores.register(&flash.on_flash, &store));
        Arc::new_cyclic(|this| Self {
            name: name.into(),
            store,
            clock,
            flash,
            memory_key: Arc::downgrade(&memory),
            memory,
            queue,
            queue_mark: QueueMark::default(),
            lookups: LookupCounters::default(),
            loads: LoadTable::default(),
            memory_waiters,
            removals,
            is_removed: AtomicBool::new(false),
            evictions_wait_since: Mutex::default(),
            this: this.clone(),
        })
    }

    /// Tells flash of a long value, which memory may evict later: flash makes space for it before.
    pub fn expect_on_flash(&self, key: &[u8], length: u64) {
        if length >= LONG_ON_FLASH
            && let Some(flash) = &self.flash
        {
            flash.tier.expect(key.len(), usize::try_from(length).unwrap_or(usize::MAX));
        }
    }

    /// Its handles refuse writes and miss from now on.
    pub fn remove(&self) {
        // Before the flush: a write that has passed the check is flushed, or its item is not served.
        self.is_removed.store(true, Ordering::Relaxed);
        self.flash.iter().for_each(|flash| flash.remove());
        self.store.flush(self.clock.now_ms(), 0);
    }

    /// The moment of a removal before its flush.
    #[cfg(test)]
    pub fn begin_removal(&self) {
        self.is_removed.store(true, Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }

    /// # Errors
    /// `PoolRemoved`: another pool may have its name.
    pub fn check_present(&self) -> Result<(), Error> {
        if self.is_removed() { Err(Error::PoolRemoved { name: self.name.to_string() }) } else { Ok(()) }
    }

    /// # Errors
    /// As `Pool::set_policy`.
    pub fn set_policy(&self, policy: Policy) -> Result<(), Error> {
        let participant = self.participant();
        let _change = participant.begin_change().ok_or(Error::Closed)?;
        self.check_present()?;
        self.store.set_policy(policy).map_err(Error::from_store)
    }

    /// Asks for maintenance: in the background, with the system's clock.
    #[inline]
    pub fn wake(&self) {
        self.queue.push(self, || self.this.clone());
    }

    /// Notifies the eviction listener: the calling thread has ended an operation, and holds no lock.
    #[inline]
    pub fn tell_removals(&self, participant: &Participant) {
        if let Some(removals) = &self.removals {
            removals.tell(participant.is_pinned());
        }
    }

    /// The calling thread's participant.
    #[inline]
    pub fn participant(&self) -> Participant {
        let participant = PARTICIPANTS.try_with(|participants| {
            let participants = &mut *participants.borrow_mut();
            let mine = participants.iter().find(|(memory, _)| Weak::ptr_eq(memory, &self.memory_key));
            mine.map(|(_, participant)| participant.clone()).unwrap_or_else(|| self.participate(participants))
        });
        // A thread that ends may use the cache in the destructor of another thread-local.
        participant.unwrap_or_else(|_| self.memory.participate())
    }

    /// Whether both are pools of one cache.
    #[inline]
    pub fn is_beside(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.memory_key, &other.memory_key)
    }

    #[cold]
    fn participate(&self, participants: &mut Vec<(Weak<EngineMemory>, Participant)>) -> Participant {
        participants.retain(|(memory, _)| memory.strong_count() > 0);
        let participant = self.memory.participate();
        participants.push((self.memory_key.clone(), participant.clone()));
        participant
    }
}
