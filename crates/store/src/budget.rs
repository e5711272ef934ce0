//! The memory budget: how it is laid out at the start, and the state of its changes (see `memory`).

use crate::access_samples::AccessSamples;
use crate::chains::Chains;
use crate::epoch::Ticket;
use crate::error::Error;
use crate::index::Bucket;
use crate::load_tickets::LoadTickets;
use crate::mapping::Pages;
use crate::options::{MEMORY_BYTES_MIN, Options, SEGMENTS_AT_START};
use crate::segment::{Header, SEGMENTS_MAX};
use crate::stats::Counters;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};
use crate::ttl::TtlScale;

/// The index begins at this part of the memory, enough for objects of 5 to 10 KiB; growth does the rest.
const INDEX_START_SHARE: u64 = 512;
/// Index and history of a start take less than this part of its memory.
const INDEX_AND_HISTORY_SHARE: u64 = 64;
/// Segments beside the index, at least.
pub const SEGMENTS_MIN: u32 = 16;
/// Address space for the index, as a part of the largest memory: more than the smallest objects, of 6 bytes, can need.
const INDEX_SHARE: (u64, u64) = (3, 4);
/// Fewer buckets than this have too few ways to make space for a key.
const INDEX_BUCKETS_MIN: u64 = 64;
/// Open segments, at most, as a share of all.
const OPEN_SHARE: u32 = 25;
/// A store of any memory may have this many segments open.
const OPEN_MIN: u32 = 4;

/// Bytes of the struct of a store, at most.
pub const STORE_BYTES: u64 = 3 << 10;
/// Bytes of the lists of a store: retired and withheld segments, open destinations, plans. All have a bounded length.
const LIST_BYTES: u64 = 1 << 10;

/// How the memory is laid out at the start.
pub(crate) struct MemoryLayout {
    pub segment_bytes: u32,
    pub segments: u32,
    pub segments_max: u32,
    pub index_level: u32,
    pub index_buckets_max: usize,
    pub scale: TtlScale,
    /// Bytes of tables that do not follow the budget.
    fixed_bytes: u64,
}

/// Segments that writers may have open at once in a memory.
pub(crate) fn open_limit(memory_bytes: u64, segment_bytes: u32) -> u32 {
    let segments = u32::try_from(memory_bytes / u64::from(segment_bytes)).unwrap_or(SEGMENTS_MAX);
    (segments / OPEN_SHARE).max(OPEN_MIN)
}

/// Index and headers of a store with less memory than this are on small pages: a huge page for each of them would be
/// a large part of its memory.
const HUGE_PAGES_MIN_BYTES: u64 = 64 << 20;

/// Buckets of one index among those of many stores, 64 GiB of them: the address space of all indexes is bounded.
const SHARED_INDEX_BUCKETS_MAX: usize = 1 << 30;

/// Choice of pages for index and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageRule {
    /// Huge pages: the store is the only one.
    Huge,
    /// Small pages in a small store, since there may be many of them.
    BySize,
}

impl PageRule {
    /// Whether other stores may get memory that this one releases.
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
    /// This layout with an index that leaves address space to those of other stores.
    pub fn with_shared_index(mut self) -> Self {
        self.index_buckets_max = self.index_buckets_max.min(SHARED_INDEX_BUCKETS_MAX.max(1 << self.index_level));
        self
    }

    /// Minimum memory at the start of a store with these options, whatever their memory.
    pub fn start_bytes(options: &Options) -> u64 {
        let segment_bytes = options.segment_bytes();
        let scale = TtlScale::for_open_segments(open_limit(options.layout_bytes(), segment_bytes));
        let each = u64::from(segment_bytes) + size_of::<Header>() as u64;
        let index_bytes = INDEX_BUCKETS_MIN * size_of::<Bucket>() as u64;
        let bytes = Self::fixed_bytes(options, scale) + index_bytes + SEGMENTS_AT_START * each;
        (bytes + bytes / INDEX_AND_HISTORY_SHARE).max(MEMORY_BYTES_MIN)
    }

    fn fixed_bytes(options: &Options, scale: TtlScale) -> u64 {
        let striped_bytes = Counters::bytes(options.writers) + AccessSamples::bytes(options.writers);
        let own_bytes = STORE_BYTES + LIST_BYTES + LoadTickets::SHARD_BYTES;
        Chains::bytes(scale, options.writers) + striped_bytes + own_bytes + options.owner_bytes
    }

    pub fn plan(options: &Options, history_bytes: u64) -> Result<Self, Error> {
        options.validate()?;
        let memory = options.memory_bytes;
        let max = options.effective_memory_bytes_max();
        let segment_bytes = options.segment_bytes();
        let bucket_bytes = size_of::<Bucket>() as u64;
        let index_level = (memory / INDEX_START_SHARE / bucket_bytes).max(INDEX_BUCKETS_MIN).ilog2();
        let scale = TtlScale::for_open_segments(open_limit(options.layout_bytes(), segment_bytes));
        let mut layout = Self {
            segment_bytes,
            segments: 0,
            segments_max: u32::try_from(max / u64::from(segment_bytes)).unwrap_or(SEGMENTS_MAX).min(SEGMENTS_MAX),
            index_level,
            index_buckets_max: usize::try_from(max / INDEX_SHARE.1 * INDEX_SHARE.0 / bucket_bytes)
                .expect("addresses are 64 bits")
                .max(1 << index_level),
            scale,
            fixed_bytes: Self::fixed_bytes(options, scale),
        };
        layout.segments = layout.segments_within(memory, (bucket_bytes << index_level) + history_bytes);
        Ok(layout)
    }

    /// A layout of a few segments and buckets, which is all that loom can look through.
    #[cfg(all(test, loom))]
    pub fn tiny(segments: u32, index_level: u32, index_buckets_max: usize) -> Self {
        let scale = TtlScale::for_open_segments(OPEN_MIN);
        Self {
            segment_bytes: 64,
            segments,
            segments_max: segments,
            index_level,
            index_buckets_max,
            scale,
            fixed_bytes: 0,
        }
    }

    /// Segments that fit a memory beside the fixed bytes and `other_bytes`.
    pub fn segments_within(&self, memory: u64, other_bytes: u64) -> u32 {
        let each = u64::from(self.segment_bytes) + size_of::<Header>() as u64;
        let count = memory.saturating_sub(self.fixed_bytes + other_bytes) / each;
        u32::try_from(count).unwrap_or(SEGMENTS_MAX).min(self.segments_max)
    }
}

/// Buckets that are in no budget: the index may not use them any more, and their pages are resident.
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
    /// A smaller memory that the index was too large for; `u64::MAX` if there is none.
    pub wanted_bytes: AtomicU64,
    /// Target bytes of the histories of policies.
    history_bytes: AtomicU64,
    /// Where the segments shall end; above it they are being moved down.
    pub target: AtomicU32,
    /// Whether the index waits for the memory of a segment.
    pub index_waits: AtomicBool,
    /// Held while the budget changes. The buckets that are about to leave the index.
    pub changing: Mutex<Option<LeavingBuckets>>,
    /// Whether buckets may have become unused since all were returned.
    pub has_contracted: AtomicBool,
    /// Whether other stores may get memory that this one releases.
    pub is_shared: AtomicBool,
}

impl Budget {
    pub fn new(layout: MemoryLayout, memory_bytes: u64, history_bytes: u64, page_rule: PageRule) -> Self {
        let target = AtomicU32::new(layout.segments);
        Self {
            layout,
            memory_bytes: AtomicU64::new(memory_bytes),
            wanted_bytes: AtomicU64::new(u64::MAX),
            history_bytes: AtomicU64::new(history_bytes),
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

    /// Bytes of tables, but for those of histories, which follow the budget.
    pub fn unchanging_bytes(&self) -> u64 {
        self.layout.fixed_bytes
    }

    /// Segments that fit a memory beside an index of these bytes.
    pub fn segments_within(&self, memory_bytes: u64, index_bytes: u64) -> u32 {
        self.layout.segments_within(memory_bytes, index_bytes + self.history_bytes.load(Ordering::Relaxed))
    }

    /// Changes the bytes of histories that count.
    pub fn set_history_bytes(&self, bytes: u64) {
        self.history_bytes.store(bytes, Ordering::Relaxed);
    }
}

/// Buckets that fit the memory of one segment.
pub(crate) fn buckets_per_segment(segment_bytes: u32) -> u64 {
    (u64::from(segment_bytes) / size_of::<Bucket>() as u64).max(1)
}
