//! Counters of a compact table, striped over threads.

use crate::sync::{AtomicU64, Ordering, Padded};

/// More stripes than most programs have threads that write at the same time.
const STRIPES: usize = if cfg!(loom) { 1 } else { 16 };

/// Counted events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write stored a value.
    StoredValue,
    /// A write stored a negative result.
    StoredNegative,
    /// An entry entered the table; in the other direction `Left`.
    Entered,
    EnteredNegative,
    /// An entry left the table, for whatever reason.
    Left,
    LeftNegative,
    /// An entry left to make space.
    Evicted,
    /// An expired entry left.
    Expired,
    /// A flushed entry left.
    Flushed,
    /// A hit moved its entry to the front.
    Promoted,
}

const EVENTS: usize = 10;

#[derive(Default)]
struct Stripe([AtomicU64; EVENTS]);

/// Counters of a table.
#[derive(Default)]
pub struct CompactCounters([Padded<Stripe>; STRIPES]);

impl CompactCounters {
    #[inline]
    pub fn add(&self, thread: usize, event: Event, count: u64) {
        self.0[thread % STRIPES].0.0[event as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Sets the sums of unused counters.
    #[cfg(not(loom))]
    pub fn restore(&self, sums: &[(Event, u64)]) {
        sums.iter().for_each(|(event, sum)| self.add(0, *event, *sum));
    }

    pub fn sum(&self, event: Event) -> u64 {
        let counts = self.0.iter().map(|stripe| stripe.0.0[event as usize].load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }
}

/// Counters since the start, and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactStats {
    /// Entries, negative ones and expired ones included.
    pub items: u64,
    /// The negative ones of them.
    pub negatives: u64,
    /// The memory budget.
    pub memory_limit_bytes: u64,
    /// Bytes of the budget that hold entries, and those that the table needs beside them.
    pub memory_used_bytes: u64,
    /// Bytes of keys, values and expiries.
    pub live_bytes: u64,
    /// Entries that fit.
    pub capacity: u64,
    /// Writes that stored a value.
    pub stored_values: u64,
    /// Writes that stored a negative result.
    pub stored_negatives: u64,
    /// Entries that left to make space, those of a smaller table included.
    pub evictions: u64,
    /// Expired entries that left.
    pub expired: u64,
    /// Flushed entries.
    pub flushed: u64,
    /// Hits that moved their entry to the front of its set.
    pub promotions: u64,
}
