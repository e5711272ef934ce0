//! What the store counts, always: striped over threads, so that counting shares no line between them.

use crate::sync::{AtomicU64, Ordering, Padded};

/// One thing that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Items put into the index; together with `Unlinked`, the number of objects.
    Linked,
    Unlinked,
    /// Writes that stored something.
    Stored,
    /// Objects that an eviction discarded.
    Evicted,
    /// Objects of those that the full index had no place for.
    IndexReplaced,
    /// Objects removed because they had expired.
    Expired,
    /// Objects that evictions kept.
    Survived,
    /// Segments given back by expiry, by eviction, and by compaction without loss.
    SegmentsExpired,
    SegmentsEvicted,
    SegmentsCompacted,
}

const COUNTERS: usize = Counter::SegmentsCompacted as usize + 1;

/// The counters of a store.
pub struct Counters {
    stripes: Box<[Padded<[AtomicU64; COUNTERS]>]>,
}

impl Counters {
    pub fn new(threads: usize) -> Self {
        let stripe = || Padded(std::array::from_fn(|_| AtomicU64::new(0)));
        Self { stripes: (0..threads.next_power_of_two()).map(|_| stripe()).collect() }
    }

    /// Adds to a counter, in the stripe of the calling thread's number.
    #[inline(always)]
    pub fn add(&self, thread: usize, counter: Counter, amount: u64) {
        let stripe = &self.stripes[thread & (self.stripes.len() - 1)];
        stripe[counter as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// The sum over all threads.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.stripes.iter().map(|stripe| stripe[counter as usize].load(Ordering::Relaxed)).sum()
    }

    /// Objects in the index.
    pub fn items(&self) -> u64 {
        let unlinked = self.sum(Counter::Unlinked);
        self.sum(Counter::Linked).saturating_sub(unlinked)
    }
}

/// A look at the store. Gauges are exact when nobody writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Objects in the index, expired ones that have not been removed yet included.
    pub items: u64,
    /// The memory budget.
    pub memory_limit_bytes: u64,
    /// What of it is in use: everything but free segments.
    pub memory_used_bytes: u64,
    /// Bytes of objects with their metadata.
    pub live_bytes: u64,
    pub index_bytes: u64,
    /// Slots in use over slots.
    pub index_load: f64,
    pub segment_bytes: u64,
    pub segments_total: u64,
    pub segments_free: u64,
    pub segments_open: u64,
    pub segments_retired: u64,
    pub pinned_bytes: u64,
    pub upload_bytes: u64,
    /// Writes that stored something.
    pub stored_total: u64,
    pub evictions: u64,
    pub index_replaced: u64,
    pub expired: u64,
    pub survived: u64,
    pub segments_expired: u64,
    pub segments_evicted: u64,
    pub segments_compacted: u64,
}
