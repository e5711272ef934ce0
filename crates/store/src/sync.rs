//! The atomics, locks and fences of the crate: the standard library's, or loom's in a `--cfg loom` build.

#[cfg(loom)]
pub use loom::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread::yield_now,
};
#[cfg(not(loom))]
pub use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread::yield_now,
};

/// Locks a mutex. A poisoned one means that an invariant broke inside: the panic goes on.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("a thread panicked inside the cache")
}

/// Locks a mutex if nobody holds it.
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    mutex.try_lock().ok()
}

/// Loads a word that the caller may write next. Loom notes only the latest load of a word: the caller's would hide that of
/// another thread, whose order with the write would not be tried. So loom is given a read-modify-write.
#[inline(always)]
pub fn load_to_write(word: &AtomicU64, ordering: Ordering) -> u64 {
    if cfg!(loom) { word.fetch_or(0, ordering) } else { word.load(ordering) }
}

/// Stores to a word that others change by read-modify-writes. Loom leaves a plain store unordered with those that came
/// before it, so it is given one more.
#[inline(always)]
pub fn store_over(word: &AtomicU64, value: u64, ordering: Ordering) {
    if cfg!(loom) {
        word.swap(value, ordering);
    } else {
        word.store(value, ordering);
    }
}

/// Spins of a wait before it lets others run.
const SPINS: u32 = 64;

/// Spins briefly, then lets others run: whoever is waited for may need this core.
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

    /// Spins. False if it has spun long enough: something else must be done.
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

/// A value on cache lines of its own (two, as the adjacent-line prefetcher fetches pairs).
#[repr(align(128))]
#[derive(Default)]
pub struct Padded<T>(pub T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
