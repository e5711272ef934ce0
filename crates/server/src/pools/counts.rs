//! Gets by pool. Each worker counts for itself, as in `counters.rs`. Nothing is counted here while there is one pool:
//! the gets of the server are its gets.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ebbtide::memcached::Removal;

use crate::counters::{CommandTotals, WorkerCounter};

/// Counts of one pool.
#[derive(Default)]
pub struct PoolCounts {
    /// One per worker.
    pub workers: Box<[WorkerGets]>,
    pub evicted: EvictedCounts,
    /// Values at the last `stats reset`.
    pub baseline: Mutex<PoolTotals>,
}

#[derive(Default)]
#[repr(align(128))]
pub struct WorkerGets {
    pub hits: WorkerCounter,
    pub misses: WorkerCounter,
    /// Writes refused for lack of memory.
    pub refused: WorkerCounter,
}

/// Stripes of a count that all threads write to.
const STRIPES: usize = 8;

#[derive(Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// Evictions of a pool: unread objects, and the latest idle time.
#[derive(Default)]
pub struct EvictedCounts {
    unread: [Stripe; STRIPES],
    latest_idle_seconds: AtomicU64,
}

thread_local! {
    /// The stripe of the thread.
    static STRIPE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}

impl EvictedCounts {
    /// Counts an eviction.
    pub fn note(&self, removal: &Removal<'_>) {
        if removal.is_unread() {
            self.unread[STRIPE.with(|stripe| *stripe)].0.fetch_add(1, Ordering::Relaxed);
        }
        let idle_seconds = removal.idle().as_secs();
        // Neighbours are about equally old: mostly nothing is written, and the cache line stays with all threads.
        if self.latest_idle_seconds.load(Ordering::Relaxed) != idle_seconds {
            self.latest_idle_seconds.store(idle_seconds, Ordering::Relaxed);
        }
    }

    /// Evictions of objects without a counted read since their write.
    pub fn unread(&self) -> u64 {
        self.unread.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }

    /// Seconds between the last use and the eviction, of the object evicted last; 0 before there is one.
    pub fn latest_idle_seconds(&self) -> u64 {
        self.latest_idle_seconds.load(Ordering::Relaxed)
    }
}

/// Gets by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gets {
    pub hits: u64,
    pub misses: u64,
}

/// Counts of a pool that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolTotals {
    pub gets: Gets,
    /// Writes refused for lack of memory.
    pub refused: u64,
    pub stored: u64,
    /// Objects that were lost to make space.
    pub evictions: u64,
    /// Objects that left memory to make space, and that flash took.
    pub demotions: u64,
    /// Of objects without a counted read since their write.
    pub unread_evictions: u64,
    pub expired: u64,
}

impl Gets {
    /// All gets of a server.
    pub fn of(totals: &CommandTotals) -> Self {
        Self { hits: totals.get_hits, misses: totals.get_misses }
    }

    pub fn all(self) -> u64 {
        self.hits + self.misses
    }

    /// The gets that `other` does not have. Counts that are not read at one moment may contradict each other.
    pub fn without(self, other: Self) -> Self {
        Self { hits: self.hits.saturating_sub(other.hits), misses: self.misses.saturating_sub(other.misses) }
    }
}

impl std::ops::AddAssign for Gets {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.misses += other.misses;
    }
}

impl PoolTotals {
    /// A count that was read before a reset may be less than the baseline.
    pub fn since(&self, baseline: &Self) -> Self {
        Self {
            gets: self.gets.without(baseline.gets),
            refused: self.refused.saturating_sub(baseline.refused),
            stored: self.stored.saturating_sub(baseline.stored),
            evictions: self.evictions.saturating_sub(baseline.evictions),
            demotions: self.demotions.saturating_sub(baseline.demotions),
            unread_evictions: self.unread_evictions.saturating_sub(baseline.unread_evictions),
            expired: self.expired.saturating_sub(baseline.expired),
        }
    }
}

impl PoolCounts {
    /// Bytes of the counts of a pool in a server with this many workers.
    pub fn bytes(workers: usize) -> u64 {
        (size_of::<Self>() + workers * size_of::<WorkerGets>()) as u64
    }

    pub fn new(workers: usize) -> Self {
        let workers = (0..workers).map(|_| WorkerGets::default()).collect();
        Self { workers, evicted: EvictedCounts::default(), baseline: Mutex::default() }
    }

    pub fn gets(&self) -> Gets {
        let mut sum = Gets::default();
        for worker in &self.workers {
            sum += Gets { hits: worker.hits.get(), misses: worker.misses.get() };
        }
        sum
    }

    /// Writes refused for lack of memory, counted while there were several pools.
    pub fn refused(&self) -> u64 {
        self.workers.iter().map(|worker| worker.refused.get()).sum()
    }
}
