//! The memory budget: how it is laid out at the start, and the state of its changes (see `memory`).

use crate::access_samples::AccessSamples;
use crate::chains::Chains;
use crate::epoch::Ticket;
use crate::error::Error;
use crate::index::Bucket;
use crate::mapping::Pages;
use crate::options::Options;
use crate::segment::{Header, SEGMENTS_MAX};
use crate::stats::Counters;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};
use crate::ttl::TtlScale;

/// The index begins at this part of the memory, enough for objects of 5 to 10 KiB; growth does the rest.
const INDEX_START_SHARE: u64 = 512;
/// Segments beside the index, at least.
pub const SEGMENTS_MIN: u32 = 16;
/// Address space for the index, as a part of the largest memory: more than the smallest objects, of 6 bytes, can need.
const INDEX_SHARE: (u64, u64) = (3, 4);
/// Fewer buckets than this have too few ways to make room for a key.
const INDEX_BUCKETS_MIN: u64 = 64;
/// Open segments, at most, as a share of all.
const OPEN_SHARE: u32 = 25;

/// How the memory is laid out at the start.
pub(crate) struct MemoryLayout {
    pub segment_bytes: u32,
    pub segments: u32,
    pub segments_max: u32,
    pub index_level: u32,
    pub index_buckets_max: usize,
    pub scale: TtlScale,
    pub open_limit: u32,
    fixed_bytes: u64,
}

/// Index and headers of a store with less memory than this are on small pages: a huge page for each of them would be
/// a large part of its memory.
const HUGE_PAGES_MIN_BYTES: u64 = 64 << 20;

/// Buckets of one index among those of many stores, 64 GiB of them: the address space of all indexes is bounded.
const SHARED_INDEX_BUCKETS_MAX: usize = 1 << 30;

/// What decides about the pages of index and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageRule {
    /// Huge pages: the store is the only one.
    Huge,
    /// Small pages in a small store, since there may be many of them.
    BySize,
}

impl PageRule {
    /// Whether other stores may have the memory that this one gives up.
    pub fn is_shared(self) -> bool {
        self == Self::BySize
    }

    pub fn pages(self, memory_bytes: u64) -> Pages {
        match self {
            Self::BySize if memory_bytes < HUGE_PAGES_MIN_BYTES => Pages::Small,
            Self::BySize | Self::Huge => Pages::Huge,
        }
    }
}

impl MemoryLayout {
    /// The same layout with an index that leaves address space to those of other stores.
    pub fn with_shared_index(mut self) -> Self {
        self.index_buckets_max = self.index_buckets_max.min(SHARED_INDEX_BUCKETS_MAX.max(1 << self.index_level));
        self
    }

    pub fn plan(options: &Options, history_bytes: u64) -> Result<Self, Error> {
        options.validate()?;
        let memory = options.memory_bytes;
        let max = options.effective_memory_bytes_max();
        let segment_bytes = options.segment_bytes();
        let bucket_bytes = size_of::<Bucket>() as u64;
        let index_level = (memory / INDEX_START_SHARE / bucket_bytes).max(INDEX_BUCKETS_MIN).ilog2();
        let rough_segments = u32::try_from(memory / u64::from(segment_bytes)).unwrap_or(SEGMENTS_MAX);
        let open_limit = (rough_segments / OPEN_SHARE).max(4);
        let scale = TtlScale::for_open_segments(open_limit);
        let striped_bytes = Counters::bytes(options.writers) + AccessSamples::bytes(options.writers);
        let fixed_bytes = Chains::bytes(scale, options.writers) + striped_bytes + history_bytes;
        let mut layout = Self {
            segment_bytes,
            segments: 0,
            segments_max: u32::try_from(max / u64::from(segment_bytes)).unwrap_or(SEGMENTS_MAX).min(SEGMENTS_MAX),
            index_level,
            index_buckets_max: usize::try_from(max / INDEX_SHARE.1 * INDEX_SHARE.0 / bucket_bytes)
                .expect("addresses are 64 bits")
                .max(1 << index_level),
            scale,
            open_limit,
            fixed_bytes,
        };
        layout.segments = layout.segments_within(memory, bucket_bytes << index_level);
        Ok(layout)
    }

    /// A layout of a few segments and buckets, which is all that loom can look through.
    #[cfg(all(test, loom))]
    pub fn tiny(segments: u32, index_level: u32, index_buckets_max: usize) -> Self {
        let open_limit = 4;
        let scale = TtlScale::for_open_segments(open_limit);
        Self {
            segment_bytes: 64,
            segments,
            segments_max: segments,
            index_level,
            index_buckets_max,
            scale,
            open_limit,
            fixed_bytes: 0,
        }
    }

    pub fn segments_within(&self, memory: u64, index_bytes: u64) -> u32 {
        let each = u64::from(self.segment_bytes) + size_of::<Header>() as u64;
        let count = memory.saturating_sub(self.fixed_bytes + index_bytes) / each;
        u32::try_from(count).unwrap_or(SEGMENTS_MAX).min(self.segments_max)
    }
}

/// Buckets that are in the budget of nobody: the index may not use them any more, and their pages are resident.
pub(crate) struct LeavingBuckets {
    pub first: u64,
    pub count: u64,
    /// They were merged before this was taken.
    pub ticket: Ticket,
}

/// The budget of a store.
pub(crate) struct Budget {
    pub layout: MemoryLayout,
    pub memory_bytes: AtomicU64,
    /// Of histories of policies that were switched to.
    history_bytes: AtomicU64,
    /// Where the segments shall end; above it they are being moved down.
    pub target: AtomicU32,
    /// Whether the index waits for the memory of a segment.
    pub index_waits: AtomicBool,
    /// Held while the budget changes. The buckets that are about to leave the index.
    pub changing: Mutex<Option<LeavingBuckets>>,
    /// Whether buckets may have become unused since all were returned.
    pub has_contracted: AtomicBool,
    /// Whether other stores may have the memory that this one gives up.
    pub is_shared: AtomicBool,
}

impl Budget {
    pub fn new(layout: MemoryLayout, memory_bytes: u64, page_rule: PageRule) -> Self {
        let target = AtomicU32::new(layout.segments);
        Self {
            layout,
            memory_bytes: AtomicU64::new(memory_bytes),
            history_bytes: AtomicU64::new(0),
            target,
            index_waits: AtomicBool::new(false),
            changing: Mutex::default(),
            has_contracted: AtomicBool::new(false),
            is_shared: AtomicBool::new(page_rule.is_shared()),
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    pub fn page_rule(&self) -> PageRule {
        if self.is_shared.load(Ordering::Relaxed) { PageRule::BySize } else { PageRule::Huge }
    }

    pub fn fixed_bytes(&self) -> u64 {
        self.layout.fixed_bytes + self.history_bytes.load(Ordering::Relaxed)
    }

    /// Segments that fit a memory beside an index of these bytes.
    pub fn segments_within(&self, memory_bytes: u64, index_bytes: u64) -> u32 {
        self.layout.segments_within(memory_bytes, index_bytes + self.history_bytes.load(Ordering::Relaxed))
    }

    /// Counts a history that is added.
    pub fn add_history(&self, bytes: u64) {
        self.history_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes a history that was not added out of the count.
    pub fn remove_history(&self, bytes: u64) {
        self.history_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Buckets that fit the memory of one segment.
pub(crate) fn buckets_per_segment(segment_bytes: u32) -> u64 {
    (u64::from(segment_bytes) / size_of::<Bucket>() as u64).max(1)
}
