//! The state of one pool: a store, with the clock, flash tier and wake-up of its engine; and its participants of
//! threads.

use crate::clock::EngineClock;
use crate::flash::tier::FlashTier;
use crate::library::lookup_counters::LookupCounters;
use crate::wakeup::Waker;
use ebbtide_store::{Participant, Store};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// A store, with the clock, flash tier and wake-up of its engine.
pub(crate) struct PoolState {
    pub name: Box<str>,
    pub store: Arc<Store>,
    pub clock: Arc<EngineClock>,
    pub waker: Arc<Waker>,
    pub flash: Option<Arc<FlashTier>>,
    /// Lookups of library users; the server counts its own.
    pub lookups: LookupCounters,
    is_removed: AtomicBool,
    this: Weak<PoolState>,
}

thread_local! {
    /// The pools that this thread has used, with its participant of each.
    static PARTICIPANTS: RefCell<Vec<(Weak<PoolState>, Participant)>> = const { RefCell::new(Vec::new()) };
}

impl PoolState {
    pub fn new(
        name: impl Into<Box<str>>,
        store: Store,
        clock: Arc<EngineClock>,
        waker: Arc<Waker>,
        flash: Option<Arc<FlashTier>>,
    ) -> Arc<Self> {
        let (name, store, is_removed) = (name.into(), Arc::new(store), AtomicBool::new(false));
        let lookups = LookupCounters::default();
        Arc::new_cyclic(|this| Self { name, store, clock, waker, flash, lookups, is_removed, this: this.clone() })
    }

    /// Its handles refuse writes and miss from now on.
    pub fn remove(&self) {
        // Before the flush: a write that has passed the check is flushed, or its item is not served.
        self.is_removed.store(true, Ordering::Relaxed);
        self.store.flush(self.clock.now_ms(), 0);
    }

    #[inline(always)]
    pub fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
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
