//! A look at a store from outside.

use crate::index::Bucket;
use crate::segment::Header;
use crate::stats::{Counter, Stats};
use crate::store::Store;
use crate::sync::Ordering;

impl Store {
    /// Bytes that the largest item in one piece may take, for a key of `key_length` bytes: longer values are uploads.
    pub fn contiguous_value_bytes(&self, key_length: usize) -> usize {
        (self.segments.segment_bytes() as usize).saturating_sub(5 + 4 + key_length)
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        let segments = &self.segments;
        let sum = |counter| self.counters.sum(counter);
        let each = u64::from(segments.segment_bytes()) + size_of::<Header>() as u64;
        let index_bytes = self.index.paid_buckets() * size_of::<Bucket>() as u64;
        let used_segments = u64::from(segments.limit() - segments.free_count().min(segments.limit()));
        let live_bytes =
            segments.ids().map(|id| segments.header(id)).map(|h| u64::from(h.live_bytes()) + h.body_bytes());
        Stats {
            items: self.counters.items(),
            memory_limit_bytes: self.budget.memory_bytes(),
            memory_used_bytes: self.budget.fixed_bytes() + index_bytes + used_segments * each,
            live_bytes: live_bytes.sum(),
            index_bytes,
            index_load: self.index_load(),
            segment_bytes: segments.segment_bytes().into(),
            segments_total: segments.limit().into(),
            segments_free: segments.free_count().into(),
            segments_open: self.chains.open_count().into(),
            segments_retired: segments.retired_count().into(),
            pinned_bytes: segments.pinned_bytes(),
            upload_bytes: self.upload_bytes.load(Ordering::Relaxed),
            stored_total: sum(Counter::Stored),
            evictions: sum(Counter::Evicted),
            index_replaced: sum(Counter::IndexReplaced),
            expired: sum(Counter::Expired),
            survived: sum(Counter::Survived),
            segments_expired: sum(Counter::SegmentsExpired),
            segments_evicted: sum(Counter::SegmentsEvicted),
            segments_compacted: sum(Counter::SegmentsCompacted),
        }
    }
}
