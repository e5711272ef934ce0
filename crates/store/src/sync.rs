//! The atomics, locks and fences of the crate: the standard library's, or loom's in a `--cfg loom` build.

#[cfg(all(feature = "coherence", not(loom)))]
pub use crate::coherence::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(loom)]
pub use loom::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread::yield_now,
};
#[cfg(not(any(feature = "coherence", loom)))]
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(not(loom))]
pub use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{Ordering, fence},
    },
    thread::yield_now,
};

/// Notes that a lock was taken, or that another thread holds it, in builds that count locks (see `coherence`).
#[cfg(all(any(test, feature = "coherence"), not(loom)))]
#[track_caller]
pub fn note_lock<T>(lock: &T, is_taken: bool) {
    crate::coherence::note(lock, crate::coherence::Access::Lock, is_taken);
}

#[cfg(any(not(any(test, feature = "coherence")), loom))]
#[inline(always)]
pub const fn note_lock<T>(_lock: &T, _is_taken: bool) {}

/// Locks a mutex. A poisoned mutex means that an invariant broke in another thread: the panic spreads.
#[cfg_attr(all(any(test, feature = "coherence"), not(loom)), track_caller)]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    note_lock(mutex, true);
    mutex.lock().expect("a thread panicked inside the cache")
}

/// Locks a mutex if no thread holds it.
#[cfg_attr(all(any(test, feature = "coherence"), not(loom)), track_caller)]
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let guard = mutex.try_lock().ok();
    note_lock(mutex, guard.is_some());
    guard
}

/// Loads a word that the caller may write next. Loom records only the latest load of a word, which would hide the load
/// of another thread and its order with the write. So loom gets a read-modify-write.
#[inline(always)]
pub fn load_to_write(word: &AtomicU64, ordering: Ordering) -> u64 {
    if cfg!(loom) { word.fetch_or(0, ordering) } else { word.load(ordering) }
}

/// Stores to a word that other threads change by read-modify-writes. Loom leaves a plain store unordered with earlier
/// ones, so loom gets a read-modify-write.
#[inline(always)]
pub fn store_over(word: &AtomicU64, value: u64, ordering: Ordering) {
    if cfg!(loom) {
        word.swap(value, ordering);
    } else {
        word.store(value, ordering);
    }
}

/// Spins before the thread yields.
const SPINS: u32 = 64;

/// Spins briefly, then yields: the thread that is waited for may need this core.
pub struct Backoff(u32);

impl Backoff {
    pub const fn new() -> Self {
        Self(0)
    }

    pub fn wait(&mut self) {
        if cfg!(loom) || !self.wait_briefly() {
            yield_now();
        }
    }

    /// Spins. False if it has spun long enough and the caller must react.
    pub fn wait_briefly(&mut self) -> bool {
        self.0 = self.0.saturating_add(1);
        if cfg!(loom) {
            yield_now();
            return true;
        }
        std::hint::spin_loop();
        self.0 <= SPINS
    }
}

/// A value on separate cache lines (two, because the adjacent-line prefetcher fetches pairs).
#[repr(align(128))]
#[derive(Default)]
pub struct Padded<T>(pub T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
