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
    /// Objects that an eviction discarded for their memory.
    Evicted,
    /// Objects that the full index had no place for.
    IndexReplaced,
    /// Dead objects removed that had expired.
    Expired,
    /// Dead objects removed that a flush had made worthless.
    Flushed,
    /// Lookups that found an object that had expired, or that was flushed.
    ExpiredFound,
    FlushedFound,
    /// Objects that evictions kept.
    Survived,
    /// Segments given back by expiry, by eviction, and by compaction without loss.
    SegmentsExpired,
    SegmentsEvicted,
    SegmentsCompacted,
}

const COUNTERS: usize = Counter::SegmentsCompacted as usize + 1;

/// The share of the index's slots by which `Counters::items_estimate` may be wrong, at most.
const ESTIMATE_SHARE: u64 = 64;

/// The counters of a store.
pub struct Counters {
    stripes: Box<[Padded<[AtomicU64; COUNTERS]>]>,
    /// `Linked` less `Unlinked` in whole batches of `1 << batch_shift`: a stripe adds a batch when it has counted one.
    /// Wraps below zero while what a stripe has linked is not added yet.
    items_in_batches: Padded<AtomicU64>,
    batch_shift: u32,
}

impl Counters {
    /// Counters of a store whose index has at least so many slots.
    pub fn new(threads: usize, slots_min: u64) -> Self {
        let stripe = || Padded(std::array::from_fn(|_| AtomicU64::new(0)));
        let stripes: Box<[_]> = (0..threads.next_power_of_two()).map(|_| stripe()).collect();
        // Of `Linked` and of `Unlinked` each stripe withholds less than a batch, with opposite signs.
        let batch = slots_min / ESTIMATE_SHARE / stripes.len() as u64;
        Self { stripes, items_in_batches: Padded::default(), batch_shift: batch.max(1).ilog2() }
    }

    /// Counts an object that came into the index.
    #[inline(always)]
    pub fn link(&self, thread: usize) {
        if self.count_ends_batch(thread, Counter::Linked) {
            self.items_in_batches.fetch_add(1 << self.batch_shift, Ordering::Relaxed);
        }
    }

    /// Counts an object that left the index.
    #[inline(always)]
    pub fn unlink(&self, thread: usize) {
        if self.count_ends_batch(thread, Counter::Unlinked) {
            self.items_in_batches.fetch_sub(1 << self.batch_shift, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn count_ends_batch(&self, thread: usize, counter: Counter) -> bool {
        let count = self.add(thread, counter, 1) + 1;
        count & ((1 << self.batch_shift) - 1) == 0
    }

    /// About how many objects are in the index, from one word.
    pub fn items_estimate(&self) -> u64 {
        u64::try_from(self.items_in_batches.load(Ordering::Relaxed) as i64).unwrap_or(0)
    }

    /// Adds to a counter, in the stripe of the calling thread's number. Answers what the stripe had before.
    #[inline(always)]
    pub fn add(&self, thread: usize, counter: Counter, amount: u64) -> u64 {
        let stripe = &self.stripes[thread & (self.stripes.len() - 1)];
        stripe[counter as usize].fetch_add(amount, Ordering::Relaxed)
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
    /// Dead objects that maintenance removed: expired or flushed.
    pub expired: u64,
    /// Those of them that were flushed.
    pub flushed: u64,
    /// Lookups that missed because the object had expired, or was flushed, and was still there to be found.
    pub expired_found: u64,
    pub flushed_found: u64,
    pub survived: u64,
    pub segments_expired: u64,
    pub segments_evicted: u64,
    pub segments_compacted: u64,
}

/// What changes from moment to moment, cheap to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    pub items: u64,
    pub memory_limit_bytes: u64,
    pub memory_used_bytes: u64,
    pub stored_total: u64,
    pub evictions: u64,
    pub index_replaced: u64,
    pub expired: u64,
    pub flushed: u64,
}

/// Where the memory is, as the headers of the segments say. Headers are read one after the other while writers go on:
/// it is exact only when nobody writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentSnapshot {
    /// Bytes of objects that are alive, with the segments of long values.
    pub live_bytes: u64,
    /// Bytes of objects that have expired or were flushed, and wait for their segment to be emptied. Where others in the
    /// segment are alive: those that had expired at the last maintenance, overwritten ones included.
    pub expired_bytes: u64,
    /// The rest of the segments in use: overwritten, deleted, not yet filled, or waiting for readers.
    pub dead_bytes: u64,
    pub index_bytes: u64,
    /// Headers and other fixed tables.
    pub metadata_bytes: u64,
    /// What is left of the limit: free segments, and what is too little for one.
    pub free_bytes: u64,
    pub segments_free: u64,
    pub segments_open: u64,
    /// Full or closed, those that are being emptied included.
    pub segments_sealed: u64,
    pub segments_retired: u64,
    /// How long ago the oldest segment with objects was opened; 0 without any.
    pub age_seconds: u64,
    /// The TTL buckets that have segments, shortest lives first, then the one that does not expire.
    pub ttl_buckets: Vec<TtlBucketSnapshot>,
}

/// The segments of one TTL bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlBucketSnapshot {
    /// The range of the TTLs that its objects were stored with, or have left after an eviction moved them; none if they do
    /// not expire. Some may have been stored with longer ones, where TTLs share segments.
    pub ttl_seconds: Option<(u32, u32)>,
    /// Segments, those of long values included.
    pub segments: u64,
    pub segment_bytes: u64,
    /// See `SegmentSnapshot`.
    pub live_bytes: u64,
    pub expired_bytes: u64,
    /// Objects, alive or not.
    pub items: u64,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_of_items_is_wrong_by_a_share_of_the_slots() {
        for (threads, slots) in [(1, 448), (16, 14_336), (64, 448), (64, 1 << 20)] {
            let counters = Counters::new(threads, slots);
            let mut furthest = 0;
            for step in 0..50_000u64 {
                let thread = (step * step % 61) as usize;
                if step % 3 == 2 {
                    counters.unlink(thread)
                } else {
                    counters.link(thread)
                }
                furthest = furthest.max(counters.items().abs_diff(counters.items_estimate()));
            }
            assert!(furthest <= (slots / ESTIMATE_SHARE), "{furthest} of {slots} slots with {threads} threads");
        }
    }
}
