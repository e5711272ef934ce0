//! Gets by pool. Each worker counts for itself, as in `counters.rs`. Nothing is counted here while there is one pool:
//! the gets of the server are its gets.

use std::sync::Mutex;

use crate::counters::{CommandTotals, WorkerCounter};

/// What is counted of one pool.
#[derive(Default)]
pub struct PoolCounts {
    /// One per worker.
    pub workers: Box<[WorkerGets]>,
    /// Values at the last `stats reset`.
    pub baseline: Mutex<PoolTotals>,
}

#[derive(Default)]
#[repr(align(128))]
pub struct WorkerGets {
    pub hits: WorkerCounter,
    pub misses: WorkerCounter,
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
    pub stored: u64,
    pub evictions: u64,
    pub expired: u64,
}

impl Gets {
    /// All gets of a server.
    pub fn of(totals: &CommandTotals) -> Self {
        Self { hits: totals.get_hits, misses: totals.get_misses }
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
            stored: self.stored.saturating_sub(baseline.stored),
            evictions: self.evictions.saturating_sub(baseline.evictions),
            expired: self.expired.saturating_sub(baseline.expired),
        }
    }
}

impl PoolCounts {
    pub fn new(workers: usize) -> Self {
        Self { workers: (0..workers).map(|_| WorkerGets::default()).collect(), baseline: Mutex::default() }
    }

    pub fn gets(&self) -> Gets {
        let mut sum = Gets::default();
        for worker in &self.workers {
            sum += Gets { hits: worker.hits.get(), misses: worker.misses.get() };
        }
        sum
    }
}
