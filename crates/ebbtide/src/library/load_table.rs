//! Loads under way: one for each key, which all callers that miss the key wait for.
//!
//! ```text
//!          join: no entry                          finish: the value was loaded
//! (none) -----------------> running, one leader -----------------------------------> loaded: waiters return the value
//!   ^                           |                                                        |
//!   |                           +--- the leader is dropped: error, panic, cancelled --> abandoned: waiters join again
//!   +--------------------- the entry is removed before the outcome is set ---------------+
//! ```
//! - The leader publishes the value before its entry is removed: a caller that misses either joins the load, or leads a
//!   new one and then finds the key present.
//! - A caller that joins after the key has changed gets a value from after the change: the entry of a load whose ticket
//!   is void is replaced by a new one. Callers that joined earlier get the value of the earlier load.
//! - The lock of a shard is held for a look or a change of its table, never while a loader runs: loads of different
//!   keys do not wait for each other. Lock order: a shard, then the state of a load.

use super::load_sync::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, ThreadId, thread};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

/// More shards than threads that miss at the same time, in most programs.
const SHARDS: usize = 16;

/// Loads by key.
type Loads = HashMap<Box<[u8]>, Arc<Load>>;

/// The loads of a pool.
#[derive(Default)]
pub(crate) struct LoadTable {
    shards: [Mutex<Loads>; SHARDS],
    pub counters: LoadCounters,
}

/// Counts of ended loads.
#[derive(Default)]
pub(crate) struct LoadCounters {
    pub loaded: AtomicU64,
    pub abandoned: AtomicU64,
    /// Values that the codec of a caller with a loader has refused.
    pub undecodable: AtomicU64,
}

/// The load of a key.
#[derive(Default)]
pub(crate) struct Load {
    state: Mutex<LoadState>,
    ended: Condvar,
    /// Of the store; 0 before it was given.
    ticket: AtomicU64,
}

#[derive(Default)]
struct LoadState {
    outcome: Option<Outcome>,
    /// The thread that runs the loader, or polls it, at this moment.
    runner: Option<ThreadId>,
    /// Tasks that wait, by their number.
    wakers: BTreeMap<u64, Waker>,
    next_waiter: u64,
}

/// The end of a load.
#[derive(Clone)]
pub(crate) enum Outcome {
    Loaded(Arc<[u8]>),
    /// The loader has found no value.
    Absent,
    Abandoned,
}

/// Role of a caller that has missed a key.
pub(crate) enum Join<'t> {
    Lead(Leader<'t>),
    Wait(Arc<Load>),
    /// The loader of this key runs on the calling thread: waiting for it would never end.
    Recursive,
}

/// The right to load a key. Dropping it without a value abandons the load.
pub(crate) struct Leader<'t> {
    table: &'t LoadTable,
    hash: u64,
    key: Box<[u8]>,
    load: Arc<Load>,
    /// Whether the loader has started. Relaxed: one task or thread after the other has the leader.
    has_run: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics under this lock")
}

impl LoadTable {
    fn shard(&self, hash: u64) -> MutexGuard<'_, Loads> {
        lock(&self.shards[(hash >> 40) as usize % SHARDS])
    }

    /// Joins the load of a key, or becomes its leader. `is_current` tells whether the key has not changed since a
    /// ticket was given.
    pub fn join(&self, key: &[u8], hash: u64, is_current: impl Fn(u64) -> bool) -> Join<'_> {
        let mut shard = self.shard(hash);
        if let Some(load) = shard.get(key) {
            if lock(&load.state).runner == Some(thread::current().id()) {
                return Join::Recursive;
            }
            let ticket = load.ticket.load(Ordering::Relaxed);
            if ticket == 0 || is_current(ticket) {
                return Join::Wait(Arc::clone(load));
            }
        }
        let load = Arc::<Load>::default();
        shard.insert(key.into(), Arc::clone(&load));
        Join::Lead(Leader { table: self, hash, key: key.into(), load, has_run: AtomicBool::new(false) })
    }
}

impl Leader<'_> {
    pub fn set_ticket(&self, ticket: u64) {
        self.load.ticket.store(ticket, Ordering::Relaxed);
    }

    /// Runs a part of the loader: a load of the same key inside it is recursive.
    pub fn run<T>(&self, part: impl FnOnce() -> T) -> T {
        struct Running<'l>(&'l Load);
        impl Drop for Running<'_> {
            fn drop(&mut self) {
                lock(&self.0.state).runner = None;
            }
        }
        self.has_run.store(true, Ordering::Relaxed);
        lock(&self.load.state).runner = Some(thread::current().id());
        let _running = Running(&self.load);
        part()
    }

    /// All waiters return this.
    pub fn finish(self, outcome: Outcome) {
        self.end(outcome);
    }

    fn end(&self, outcome: Outcome) {
        if lock(&self.load.state).outcome.is_some() {
            return;
        }
        let mut shard = self.table.shard(self.hash);
        if shard.get(&self.key).is_some_and(|load| Arc::ptr_eq(load, &self.load)) {
            shard.remove(&self.key);
        }
        drop(shard);
        let counters = &self.table.counters;
        let counter = if matches!(outcome, Outcome::Abandoned) { &counters.abandoned } else { &counters.loaded };
        counter.fetch_add(self.has_run.load(Ordering::Relaxed).into(), Ordering::Relaxed);
        let wakers = {
            let mut state = lock(&self.load.state);
            state.outcome = Some(outcome);
            std::mem::take(&mut state.wakers)
        };
        self.load.ended.notify_all();
        wakers.into_values().for_each(Waker::wake);
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        self.end(Outcome::Abandoned);
    }
}

impl Load {
    /// Blocks until the load ends. `None` at the deadline.
    pub fn wait(&self, deadline: Instant) -> Option<Outcome> {
        let mut state = lock(&self.state);
        // Ends at the deadline.
        while state.outcome.is_none() {
            let left = deadline.checked_duration_since(Instant::now())?;
            state = self.ended.wait_timeout(state, left).expect("nothing panics under this lock").0;
        }
        state.outcome.clone()
    }

    /// Registers a task to be woken, in place of the waker that it registered before under this number.
    pub fn poll(&self, waiter: &mut Option<u64>, waker: &Waker) -> Option<Outcome> {
        // Cloned before and dropped after the lock: both are code of the executor.
        let new = waker.clone();
        let (outcome, unused) = {
            let mut state = lock(&self.state);
            match state.outcome.clone() {
                Some(outcome) => (Some(outcome), Some(new)),
                None => {
                    let number = *waiter.get_or_insert_with(|| {
                        state.next_waiter += 1;
                        state.next_waiter
                    });
                    (None, state.wakers.insert(number, new))
                }
            }
        };
        drop(unused);
        outcome
    }

    /// Wakes a task, and forgets its waker.
    pub fn wake(&self, waiter: u64) {
        let waker = lock(&self.state).wakers.remove(&waiter);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Forgets the waker of a task that waits no more.
    pub fn forget(&self, waiter: u64) {
        // Dropped after the lock: a waker's drop is code of the executor.
        let _waker = lock(&self.state).wakers.remove(&waiter);
    }
}
