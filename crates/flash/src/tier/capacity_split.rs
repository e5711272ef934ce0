//! When the capacity is divided between small and large objects, if the options name no share: once a part of the
//! capacity was written, by the number and bytes of the objects of each kind. Every hit has the same value, whatever
//! its length. So a byte of small objects is worth more than a byte of large ones by the ratio of their mean lengths,
//! up to [`MAX_WORTH`]. Small objects stay on flash longer by this factor.
//!
//! ```text
//! Unsplit ---- enough objects arrived ----> Split
//! ```
//! The split is decided once: it lasts until flash starts empty.
//!
//! The superblock with the boundary is durable before anything is written to the area of small objects. A start after a
//! crash therefore finds the boundary, or an area that was never used. A boundary whose write failed may be on the
//! device nevertheless: its area stays unused until a superblock without it is durable.

use super::TierOptions;
use super::layout::TierLayout;
use crate::Object;
use crate::small::{MAX_RECORD_BYTES, PAGE, record_bytes};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// The capacity is divided after one part in `NEEDED` of it has arrived, or `MAX_NEEDED` bytes if that is less, if
/// small objects get at least `CLEAR_SHARE`. The first arrivals contain too many large objects, as memory evicts these
/// earlier.
const NEEDED: u64 = 64;
const MAX_NEEDED: u64 = 64 << 20;
const CLEAR_SHARE: f64 = 0.75;
/// Tiny objects are also enough when they take one part in this of the memory while they count as large ones.
const INDEX_PART: u64 = 4;
/// Otherwise the capacity is divided after one part in `NEEDED_OTHERWISE` of it has arrived, or `MAX_NEEDED_OTHERWISE`
/// times the memory of flash if that is less. Flash has an eighth of all memory, so all memory has been evicted once by
/// then.
const NEEDED_OTHERWISE: u64 = 8;
const MAX_NEEDED_OTHERWISE: u64 = 8;
/// While the share of small objects is more than `GROWING` times that of the last part, it is still growing: memory
/// keeps small objects longer.
const GROWING: f64 = 2.0;
/// The split waits for a growing share only while at least this number of further parts is unwritten: written capacity
/// cannot be given to small objects.
const PARTS_LEFT: u64 = 2;
/// From this share on large objects are rare, and small ones get an area for which the memory will be enough. With a
/// lower share they get one for which it is enough now.
pub(super) const NEARLY_ALL: f64 = 0.99;
/// A higher value would leave large objects so little capacity that they are evicted at once.
const MAX_WORTH: f64 = 8.0;
/// Small objects get no area if they are less than one part in this number, both by bytes and by count.
pub(super) const MIN_SHARE_DIVISOR: u64 = 64;
/// Longest wait of a stop for the thread that sets the boundary, and the time between two of its checks.
const MAX_WAIT: Duration = Duration::from_secs(5);
const WAIT_STEP: Duration = Duration::from_micros(200);
/// Bytes of a large object beside key and value, with the rounding.
const LARGE_HEADER: usize = 80;
/// Percent of a page that records fill.
const PAGE_FILL: f64 = 94.0;

/// Bytes of an object in the index of large ones, at most.
const LARGE_ENTRY: u64 = 12;
/// Longest record of a small object, where memory allows: four of these fit a page. With longer ones a third of a page
/// stays empty.
const MAX_SMALL: usize = MAX_RECORD_BYTES / 2;

/// Counts of arrivals, and the division of the capacity by them.
pub(super) struct CapacitySplit {
    /// The longest record of small objects.
    max_small: usize,
    pub options: TierOptions,
    small: Arrivals,
    large: Arrivals,
    pub split: Mutex<SplitState>,
}

/// Arrivals of one kind.
#[derive(Default)]
struct Arrivals {
    objects: AtomicU64,
    bytes: AtomicU64,
}

impl Arrivals {
    fn read(&self) -> (f64, f64) {
        (self.objects.load(Relaxed) as f64, self.bytes.load(Relaxed) as f64)
    }

    fn forget(&self) {
        self.objects.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
    }
}

pub(super) enum SplitState {
    /// The options name the share of small objects.
    Fixed,
    Unsplit(Box<Unsplit>),
    /// Decided by the objects that arrived.
    Split,
}

pub(super) struct Unsplit {
    pub layout: TierLayout,
    /// The share of small objects in the last part of the arrivals.
    pub share_before: f64,
    /// The write of a superblock with a boundary failed, so the device may hold one. Until a superblock without a
    /// boundary is durable, neither store uses the area in front of the boundary.
    pub is_in_doubt: bool,
}

impl CapacitySplit {
    pub fn new(layout: TierLayout, options: &TierOptions) -> Self {
        let end = layout.tail.end;
        // Objects longer than this can be large: the memory is enough for the index entries of a device full of them.
        let shortest = LARGE_ENTRY.saturating_mul(end) / options.memory_bytes.max(1);
        let max_small = (shortest as usize).clamp(MAX_SMALL, MAX_RECORD_BYTES);
        let max_small = if options.small_share.is_some() { MAX_RECORD_BYTES } else { max_small };
        let split = match (options.small_share, &layout.small_options) {
            (Some(_), _) => SplitState::Fixed,
            (None, None) => SplitState::Unsplit(Box::new(Unsplit { layout, share_before: 0.0, is_in_doubt: false })),
            (None, Some(_)) => SplitState::Split,
        };
        let (small, large) = Default::default();
        let (options, split) = (options.clone(), Mutex::new(split));
        Self { max_small, options, small, large, split }
    }

    /// The bytes of an object's record, if it is a small one.
    pub fn record(&self, object: &Object<'_>) -> Option<usize> {
        record_bytes(object).filter(|&bytes| bytes <= self.max_small)
    }

    /// Counts an insert: `record` is the length of the record of a small object.
    pub fn record_arrival(&self, record: Option<usize>, bytes: usize) {
        let (arrivals, bytes) = match record {
            Some(bytes) => (&self.small, bytes),
            None => (&self.large, bytes + LARGE_HEADER),
        };
        arrivals.objects.fetch_add(1, Relaxed);
        arrivals.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Waits until no thread sets the boundary. False if the device delays that thread for longer than [`MAX_WAIT`].
    pub fn wait_until_idle(&self) -> bool {
        let deadline = Instant::now() + MAX_WAIT;
        while matches!(self.split.try_lock(), Err(TryLockError::WouldBlock)) {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(WAIT_STEP);
        }
        true
    }

    /// The share of the capacity for small objects, by the arrivals.
    fn share(&self) -> f64 {
        let ((small, small_bytes), (large, large_bytes)) = (self.small.read(), self.large.read());
        let longer = (large_bytes * small) / (large * small_bytes).max(1.0);
        let small_worth = small_bytes * 100.0 / PAGE_FILL * longer.clamp(1.0, MAX_WORTH);
        small_worth / (small_worth + large_bytes).max(1.0)
    }

    fn arrived_bytes(&self) -> u64 {
        (self.small.read().1 + self.large.read().1) as u64
    }

    fn arrived_objects(&self) -> u64 {
        (self.small.read().0 + self.large.read().0) as u64
    }

    fn forget(&self) {
        self.small.forget();
        self.large.forget();
    }

    /// Starts another part of the arrivals after one that was large enough for an estimate. True if the split waits for
    /// that part: the share of small objects is growing, and enough of the capacity is unwritten.
    pub fn begin_part(&self, capacity: u64, left: u64, share_before: &mut f64) -> bool {
        let (share, is_growing) = (self.share(), self.is_growing(capacity, left, *share_before));
        self.forget();
        *share_before = share;
        is_growing
    }

    /// Whether [`CapacitySplit::begin_part`] would return that the split waits.
    pub fn is_growing(&self, capacity: u64, left: u64, share_before: f64) -> bool {
        let share = self.share();
        share < CLEAR_SHARE && share > share_before * GROWING && left / PARTS_LEFT >= capacity / NEEDED_OTHERWISE
    }

    /// The share of the capacity that is for small objects, if enough has arrived for an estimate.
    pub fn due_share(&self, capacity: u64) -> Option<f64> {
        let arrivals = self.arrived_bytes();
        let is_index_filling = self.arrived_objects() * LARGE_ENTRY >= self.options.memory_bytes / INDEX_PART;
        if arrivals < (capacity / NEEDED).clamp(PAGE as u64, MAX_NEEDED) && !is_index_filling {
            return None;
        }
        let share = self.share();
        let max = self.options.memory_bytes.saturating_mul(MAX_NEEDED_OTHERWISE);
        if share < CLEAR_SHARE && arrivals < (capacity / NEEDED_OTHERWISE).min(max) {
            return None;
        }
        // Many objects with few bytes are cheap to keep.
        let (small, large) = (self.small.read().0, self.large.read().0);
        let are_many = small * MIN_SHARE_DIVISOR as f64 >= small + large;
        Some(if are_many { share.max(1.0 / MIN_SHARE_DIVISOR as f64) } else { share })
    }
}
