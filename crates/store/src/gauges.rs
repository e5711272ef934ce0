//! Snapshots of a store: counters, gauges, and the use of its memory.

use crate::index::Bucket;
use crate::item::{EXTENSION_BYTES_MAX, ITEM_HEADER_BYTES, VALUE_PART_BYTES_MAX};
use crate::segment::{Header, State};
use crate::stats::{Counter, CounterSnapshot, SegmentSnapshot, SegmentView, Stats, TtlBucketSnapshot};
use crate::store::Store;
use crate::sync::Ordering;
use crate::ttl::TtlBucket;

/// The largest metadata of an item: with client flags and an extension.
const INLINE_METADATA_BYTES: usize = (ITEM_HEADER_BYTES + 4 + EXTENSION_BYTES_MAX) as usize;

impl Store {
    /// The largest value of an item in one piece, for a key of `key_length` bytes: longer values are uploads.
    pub fn contiguous_value_bytes(&self, key_length: usize) -> usize {
        let in_segment = (self.segments.segment_bytes() as usize).saturating_sub(INLINE_METADATA_BYTES + key_length);
        in_segment.min(VALUE_PART_BYTES_MAX as usize)
    }

    /// All counters and gauges.
    pub fn stats(&self) -> Stats {
        let segments = &self.segments;
        let sum = |counter| self.counters.sum(counter);
        // Read once, so that a sum less its part never decreases while counting continues.
        let (index_replaced, flushed) = (sum(Counter::IndexReplaced), sum(Counter::Flushed));
        let live_bytes =
            segments.ids().map(|id| segments.header(id)).map(|h| u64::from(h.live_bytes()) + h.body_bytes());
        Stats {
            items: self.counters.items(),
            memory_limit_bytes: self.budget.memory_bytes(),
            memory_used_bytes: self.memory_used_bytes(),
            live_bytes: live_bytes.sum(),
            index_bytes: self.index_bytes(),
            table_bytes: self.budget.fixed_bytes(),
            index_load: self.index_load(),
            segment_bytes: segments.segment_bytes().into(),
            segments_total: segments.usable().into(),
            segments_free: segments.free_count().into(),
            segments_open: (self.chains.open_count() + self.open_destination_count()).into(),
            segments_retired: segments.retired_count().into(),
            pinned_bytes: segments.pinned_bytes(),
            upload_bytes: self.upload_bytes.load(Ordering::Relaxed),
            stored_total: sum(Counter::Stored),
            evictions: sum(Counter::Evicted) + index_replaced,
            index_replaced,
            demotions: sum(Counter::Demoted),
            index_split_waits: self.index.turns.waits(),
            expired: sum(Counter::Expired) + flushed,
            flushed,
            expired_found: sum(Counter::ExpiredFound),
            flushed_found: sum(Counter::FlushedFound),
            survived: sum(Counter::Survived),
            segments_expired: sum(Counter::SegmentsExpired),
            segments_evicted: sum(Counter::SegmentsEvicted),
            segments_compacted: sum(Counter::SegmentsCompacted),
        }
    }

    fn index_bytes(&self) -> u64 {
        self.index.paid_buckets() * size_of::<Bucket>() as u64
    }

    fn memory_used_bytes(&self) -> u64 {
        let segments = &self.segments;
        let each = u64::from(segments.segment_bytes()) + size_of::<Header>() as u64;
        let used_segments = u64::from(segments.usable().saturating_sub(segments.free_count()));
        self.budget.fixed_bytes() + self.index_bytes() + used_segments * each
    }

    /// The counters and gauges that need no pass over the segments.
    pub fn counter_snapshot(&self) -> CounterSnapshot {
        let sum = |counter| self.counters.sum(counter);
        // Read once, so that a sum less its part never decreases while counting continues.
        let (index_replaced, flushed) = (sum(Counter::IndexReplaced), sum(Counter::Flushed));
        CounterSnapshot {
            items: self.counters.items(),
            memory_limit_bytes: self.budget.memory_bytes(),
            memory_used_bytes: self.memory_used_bytes(),
            stored_total: sum(Counter::Stored),
            evictions: sum(Counter::Evicted) + index_replaced,
            index_replaced,
            demotions: sum(Counter::Demoted),
            expired: sum(Counter::Expired) + flushed,
            flushed,
        }
    }

    /// The use of the memory at `now_ms`, from the headers of all segments. Takes no lock; may run at any time.
    pub fn segment_snapshot(&self, now_ms: u64) -> SegmentSnapshot {
        let segments = &self.segments;
        let segment_bytes = u64::from(segments.segment_bytes());
        let generation = self.generation.load(Ordering::Relaxed);
        let mut snapshot = SegmentSnapshot::default();
        let mut buckets: Vec<Option<TtlBucketSnapshot>> = vec![None; self.chains.scale.buckets()];
        for header in segments.ids().map(|segment| segments.header(segment)) {
            match header.state() {
                State::Absent | State::Free => {
                    snapshot.segments_free += 1;
                    continue;
                }
                State::Retired => {
                    snapshot.segments_retired += 1;
                    continue;
                }
                State::Open => snapshot.segments_open += 1,
                State::Sealed | State::Body | State::Draining => snapshot.segments_sealed += 1,
            }
            if header.is_body.load(Ordering::Relaxed) == 1 {
                continue;
            }
            let age_ms = now_ms.saturating_sub(header.opened_ms.load(Ordering::Relaxed));
            if header.live_items() > 0 {
                snapshot.age_seconds = snapshot.age_seconds.max(age_ms / 1000);
            }
            let body_bytes = header.body_bytes();
            let object_bytes = u64::from(header.live_bytes()) + body_bytes;
            let is_dead =
                header.is_flushed(generation) || header.latest_expiry_seconds().saturating_mul(1000) <= now_ms;
            let expired_bytes = if is_dead { object_bytes } else { header.expired_bytes().min(object_bytes) };
            let live_bytes = object_bytes - expired_bytes;
            let index = usize::from(header.ttl_bucket.load(Ordering::Relaxed));
            let bucket = buckets[index].get_or_insert(TtlBucketSnapshot {
                ttl_seconds: self.chains.scale.range_seconds(TtlBucket::from_index(index)),
                segments: 0,
                segment_bytes: 0,
                live_bytes: 0,
                expired_bytes: 0,
                items: 0,
            });
            bucket.segments += 1 + body_bytes / segment_bytes;
            bucket.segment_bytes += segment_bytes + body_bytes;
            bucket.live_bytes += live_bytes;
            bucket.expired_bytes += expired_bytes;
            bucket.items += u64::from(header.live_items());
            snapshot.live_bytes += live_bytes;
            snapshot.expired_bytes += expired_bytes;
        }
        let used = snapshot.segments_open + snapshot.segments_sealed + snapshot.segments_retired;
        snapshot.index_bytes = self.index_bytes();
        snapshot.metadata_bytes = self.budget.fixed_bytes() + u64::from(segments.usable()) * size_of::<Header>() as u64;
        snapshot.dead_bytes = (used * segment_bytes).saturating_sub(snapshot.live_bytes + snapshot.expired_bytes);
        let spent = used * segment_bytes + snapshot.index_bytes + snapshot.metadata_bytes;
        snapshot.free_bytes = self.budget.memory_bytes().saturating_sub(spent);
        // The bucket that does not expire is the first.
        buckets.rotate_left(1);
        snapshot.ttl_buckets = buckets.into_iter().flatten().collect();
        snapshot
    }

    /// Shows all segments in use that hold items, in no order. Takes no lock; while others write, a view may be of a
    /// segment that changes.
    pub fn view_segments(&self, mut view: impl FnMut(SegmentView)) {
        for segment in self.segments.ids() {
            let header = self.segments.header(segment);
            let is_sealed = match header.state() {
                State::Open => false,
                State::Sealed | State::Draining => true,
                State::Absent | State::Free | State::Retired | State::Body => continue,
            };
            if header.is_body.load(Ordering::Relaxed) == 1 {
                continue;
            }
            let bucket = TtlBucket::from_index(header.ttl_bucket.load(Ordering::Relaxed).into());
            view(SegmentView {
                place: segment.index() as u32,
                stamp: header.stamp.load(Ordering::Relaxed),
                ttl_seconds: self.chains.scale.range_seconds(bucket),
                opened_ms: header.opened_ms.load(Ordering::Relaxed),
                is_sealed,
                rounds: header.rounds.load(Ordering::Relaxed),
                written_items: header.written_items(),
                written_bytes: header.write_offset(),
                live_items: header.live_items(),
                live_bytes: header.live_bytes(),
            });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::evict::Progress;
    use crate::ops::{Mode, Write};
    use crate::options::Options;
    use crate::stats::SegmentView;
    use crate::store::Store;
    use crate::ttl::Ttl;

    #[test]
    fn the_segment_snapshot_follows_objects() {
        let store = Store::new(Options::default()).unwrap();
        let participant = store.participate();
        let write = |key: &[u8], ttl, now_ms| {
            let write = Write {
                key,
                hash: store.hash(key),
                value: &[7; 91],
                flags: 0.into(),
                ttl,
                mode: Mode::Set,
                token: None,
            };
            store.write(&participant, &write, now_ms).unwrap();
        };
        write(b"1234", Ttl::Never, 1000);
        write(b"5678", Ttl::seconds(10), 1000);
        write(b"9012", Ttl::seconds(10), 1000);
        let snapshot = store.segment_snapshot(2000);
        assert_eq!((snapshot.live_bytes, snapshot.expired_bytes, snapshot.segments_open), (300, 0, 2));
        let ranges: Vec<_> = snapshot.ttl_buckets.iter().map(|bucket| (bucket.ttl_seconds, bucket.items)).collect();
        assert_eq!(ranges.len(), 2);
        assert!(ranges[0].0.is_some_and(|(shortest, longest)| (shortest..=longest).contains(&10)) && ranges[0].1 == 2);
        assert_eq!(ranges[1], (None, 1));
        let mut views = Vec::new();
        store.view_segments(|view| views.push(view));
        views.sort_by_key(|view| view.stamp);
        let shown = |view: &SegmentView| (view.opened_ms, view.written_items, view.live_items, view.live_bytes);
        assert_eq!(views.iter().map(shown).collect::<Vec<_>>(), [(1000, 1, 1, 100), (1000, 2, 2, 200)]);
        assert!(views.iter().all(|view| !view.is_sealed && view.written_bytes >= view.live_bytes), "{views:?}");
        assert_eq!(views.iter().map(|view| view.ttl_seconds).collect::<Vec<_>>(), [None, ranges[0].0]);
        let snapshot = store.segment_snapshot(12_000);
        assert_eq!((snapshot.live_bytes, snapshot.expired_bytes, snapshot.age_seconds), (100, 200, 11));
        assert!(store.get(&participant, b"5678", store.hash(b"5678"), 12_000).is_none());
        assert!(store.peek(&participant, b"5678", store.hash(b"5678"), 12_000).is_none(), "not counted");
        assert!(store.get(&participant, b"none", store.hash(b"none"), 12_000).is_none());
        while store.maintain(&participant, 12_000) == Progress::Working {}
        let snapshot = store.segment_snapshot(12_000);
        assert_eq!((snapshot.live_bytes, snapshot.expired_bytes, snapshot.ttl_buckets.len()), (100, 0, 1));
        store.flush(12_000, 0);
        assert_eq!(store.segment_snapshot(12_000).expired_bytes, 100);
        assert!(store.get(&participant, b"1234", store.hash(b"1234"), 12_000).is_none());
        assert!(store.peek(&participant, b"1234", store.hash(b"1234"), 12_000).is_none(), "not counted");
        while store.maintain(&participant, 12_000) == Progress::Working {}
        let stats = store.stats();
        assert_eq!((stats.expired, stats.flushed), (3, 1));
        assert_eq!((stats.expired_found, stats.flushed_found), (1, 1));
        let snapshot = store.counter_snapshot();
        assert_eq!((snapshot.items, snapshot.stored_total, snapshot.expired, snapshot.flushed), (0, 3, 3, 1));
        assert_eq!(
            (snapshot.memory_used_bytes, snapshot.memory_limit_bytes),
            (stats.memory_used_bytes, stats.memory_limit_bytes)
        );
        store.verify(&participant, 12_000);
    }
}
