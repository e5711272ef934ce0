//! The counters of a store, striped over threads so that counting shares no cache line, and the snapshots made from
//! them.

use crate::sync::{AtomicU64, Ordering, Padded};

/// The events that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Items put into the index; together with `Unlinked`, the number of objects.
    Linked,
    Unlinked,
    /// Writes that stored something.
    Stored,
    /// Objects that an eviction removed for their memory, and that the lower tier did not take.
    Evicted,
    /// Objects replaced by another key in a full index, and that the lower tier did not take.
    IndexReplaced,
    /// Expired objects removed.
    Expired,
    /// Flushed objects removed.
    Flushed,
    /// Lookups that found an expired or a flushed object.
    ExpiredFound,
    FlushedFound,
    /// Objects that evictions kept.
    Survived,
    /// Segments freed by expiry, by eviction, and by lossless compaction.
    SegmentsExpired,
    SegmentsEvicted,
    SegmentsCompacted,
    /// Objects removed for their memory, or from a full index, of which the lower tier has a copy now.
    Demoted,
}

const COUNTERS: usize = Counter::Demoted as usize + 1;

/// The error of `Counters::items_estimate` is at most this part of the index's slots.
const ESTIMATE_SHARE: u64 = 64;

/// The counters of a store.
pub struct Counters {
    stripes: Box<[Padded<[AtomicU64; COUNTERS]>]>,
    /// `Linked` less `Unlinked` in whole batches of `1 << batch_shift`: a stripe adds a batch when it has counted one.
    /// Wraps to less than zero while linked items of a stripe are not added yet.
    items_in_batches: Padded<AtomicU64>,
    batch_shift: u32,
}

impl Counters {
    /// Counters of a store whose index has at least `slots_min` slots.
    pub fn new(threads: usize, slots_min: u64) -> Self {
        let stripe = || Padded(std::array::from_fn(|_| AtomicU64::new(0)));
        let stripes: Box<[_]> = (0..threads.next_power_of_two()).map(|_| stripe()).collect();
        // Each stripe withholds less than a batch of `Linked` and of `Unlinked`, with opposite signs.
        let batch = slots_min / ESTIMATE_SHARE / stripes.len() as u64;
        Self { stripes, items_in_batches: Padded::default(), batch_shift: batch.max(1).ilog2() }
    }

    /// Bytes of the counters of a store into which this many threads write at once.
    pub fn bytes(threads: usize) -> u64 {
        (threads.next_power_of_two() * size_of::<Padded<[AtomicU64; COUNTERS]>>()) as u64
    }

    /// Counts an object added to the index.
    #[inline(always)]
    pub fn link(&self, thread: usize) {
        if self.count_ends_batch(thread, Counter::Linked) {
            self.items_in_batches.fetch_add(1 << self.batch_shift, Ordering::Relaxed);
        }
    }

    /// Counts an object removed from the index.
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

    /// The approximate number of objects in the index, from one word.
    pub fn items_estimate(&self) -> u64 {
        u64::try_from(self.items_in_batches.load(Ordering::Relaxed) as i64).unwrap_or(0)
    }

    /// Adds to a counter, in the stripe of the calling thread's number. Returns the former value of the stripe.
    #[inline(always)]
    pub fn add(&self, thread: usize, counter: Counter, amount: u64) -> u64 {
        let stripe = &self.stripes[thread & (self.stripes.len() - 1)];
        stripe[counter as usize].fetch_add(amount, Ordering::Relaxed)
    }

    /// The sum over all threads.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.stripes.iter().map(|stripe| stripe[counter as usize].load(Ordering::Relaxed)).sum()
    }

    /// How many counters there are.
    pub fn count() -> usize {
        COUNTERS
    }

    /// The sums over all threads, in the order of the counters.
    pub fn sums(&self) -> [u64; COUNTERS] {
        let sum = |counter: usize| self.stripes.iter().map(|stripe| stripe[counter].load(Ordering::Relaxed)).sum();
        std::array::from_fn(sum)
    }

    /// Continues with the sums of another store that has this many objects.
    pub fn restore(&self, sums: &[u64], items: u64) {
        let first = &self.stripes[0];
        first.iter().zip(sums).for_each(|(word, sum)| word.store(*sum, Ordering::Relaxed));
        let unlinked = first[Counter::Unlinked as usize].load(Ordering::Relaxed);
        first[Counter::Linked as usize].store(unlinked.wrapping_add(items), Ordering::Relaxed);
        let in_batches = |count: u64| count >> self.batch_shift << self.batch_shift;
        let linked = in_batches(unlinked.wrapping_add(items));
        self.items_in_batches.store(linked.wrapping_sub(in_batches(unlinked)), Ordering::Relaxed);
    }

    /// Objects in the index.
    pub fn items(&self) -> u64 {
        let unlinked = self.sum(Counter::Unlinked);
        self.sum(Counter::Linked).saturating_sub(unlinked)
    }
}

/// All counters and gauges. Gauges are exact when no thread writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Objects in the index, with expired ones that are not removed yet.
    pub items: u64,
    /// The memory budget.
    pub memory_limit_bytes: u64,
    /// The used part of the budget: everything but free segments.
    pub memory_used_bytes: u64,
    /// Bytes of objects with their metadata.
    pub live_bytes: u64,
    pub index_bytes: u64,
    /// Memory on the heap, and the history of evicted keys: counters, tables of TTL buckets and of loads, the state of
    /// the store and of its owner. With open segments of all writers in each TTL bucket, which are the most.
    pub table_bytes: u64,
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
    /// Objects that were lost to make space: the lower tier, if there is one, did not take them.
    pub evictions: u64,
    /// The part of them that gave its slot in a full index.
    pub index_replaced: u64,
    /// Objects that left to make space, and that the lower tier has.
    pub demotions: u64,
    /// Writes that waited for another thread to split buckets of the index, since the start.
    pub index_split_waits: u64,
    /// Dead objects removed by maintenance: expired or flushed.
    pub expired: u64,
    /// The flushed ones of them.
    pub flushed: u64,
    /// Lookups that missed because the object had expired or was flushed, and was not removed yet.
    pub expired_found: u64,
    pub flushed_found: u64,
    pub survived: u64,
    pub segments_expired: u64,
    pub segments_evicted: u64,
    pub segments_compacted: u64,
}

/// The counters and gauges that change all the time, cheap to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    pub items: u64,
    pub memory_limit_bytes: u64,
    pub memory_used_bytes: u64,
    pub stored_total: u64,
    pub evictions: u64,
    pub index_replaced: u64,
    pub demotions: u64,
    pub expired: u64,
    pub flushed: u64,
}

impl Stats {
    /// Objects that left to make space, lost or demoted.
    pub fn displaced(&self) -> u64 {
        self.evictions + self.demotions
    }
}

impl CounterSnapshot {
    /// Objects that left to make space, lost or demoted: above 0 once memory was short.
    pub fn displaced(&self) -> u64 {
        self.evictions + self.demotions
    }
}

/// The use of the memory by the headers of the segments. Headers are read one after the other while writers continue:
/// exact only when no thread writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentSnapshot {
    /// Bytes of live objects, with the segments of long values.
    pub live_bytes: u64,
    /// Bytes of expired and flushed objects that wait for their segment to be emptied. In a segment with live objects:
    /// those that had expired at the last maintenance, overwritten ones included.
    pub expired_bytes: u64,
    /// The rest of the segments in use: overwritten, deleted, not filled yet, or waiting for readers.
    pub dead_bytes: u64,
    pub index_bytes: u64,
    /// Headers and other fixed tables.
    pub metadata_bytes: u64,
    /// The rest of the limit: free segments, and the bytes that are too few for one.
    pub free_bytes: u64,
    pub segments_free: u64,
    pub segments_open: u64,
    /// Full or closed segments, with those that are being emptied.
    pub segments_sealed: u64,
    pub segments_retired: u64,
    /// The age of the oldest segment with objects; 0 without any.
    pub age_seconds: u64,
    /// The TTL buckets with segments, shortest TTLs first, then the one that does not expire.
    pub ttl_buckets: Vec<TtlBucketSnapshot>,
}

/// One segment of items, by its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentView {
    /// Its place in the store's memory, which another segment takes after it.
    pub place: u32,
    /// Orders the segments of a store by their opening; no two have the same.
    pub stamp: u64,
    /// See `TtlBucketSnapshot`.
    pub ttl_seconds: Option<(u32, u32)>,
    /// When it was opened; for one that an eviction has filled with survivors, when the oldest of its sources was.
    pub opened_ms: u64,
    /// It takes no more items.
    pub is_sealed: bool,
    /// Evictions that its items have survived.
    pub rounds: u8,
    pub written_items: u32,
    pub written_bytes: u32,
    pub live_items: u32,
    /// Without bodies of long values.
    pub live_bytes: u32,
}

/// The segments of one TTL bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlBucketSnapshot {
    /// The range of TTLs with which its objects were stored, or that remained when an eviction copied them; none if
    /// they do not expire. When TTLs share segments, some objects may have longer ones.
    pub ttl_seconds: Option<(u32, u32)>,
    /// Segments, with those of long values.
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
    fn the_item_estimate_has_a_bounded_error() {
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
