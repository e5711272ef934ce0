//! When the capacity is divided between small and large objects, if nobody said how: once a part of it was written, by
//! how many objects of each kind came. A hit is worth the same whatever its length, so a byte of small objects is worth
//! more by as much as large ones are longer, up to [`MAX_WORTH`] times: so much longer a small object stays.
//!
//! ```text
//! Unsplit ---- enough objects arrived ----> Split
//! ```
//! The split is decided once: it lasts until flash starts empty.
//!
//! The superblock with the boundary is durable before anything is written to the area of small objects. A start after a
//! crash therefore finds the boundary, or an area that was never used. A boundary whose write failed may be on the
//! device all the same: its area stays unused until a superblock without it is durable.

use super::TierOptions;
use super::layout::TierLayout;
use crate::Object;
use crate::small::{MAX_RECORD_BYTES, PAGE, record_bytes};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// The share of the capacity that has to come before it is divided, and so many bytes at most, if such a share gets to
/// small objects: what comes first has too many large ones, as memory evicts these earlier.
const NEEDED: u64 = 64;
const MAX_NEEDED: u64 = 64 << 20;
const CLEAR_SHARE: f64 = 0.75;
/// The share that has to come otherwise, and so many times the memory of flash at most: then all memory has been
/// evicted once, of which that is an eighth.
const NEEDED_OTHERWISE: u64 = 8;
const MAX_NEEDED_OTHERWISE: u64 = 8;
/// As long as the share of small objects is more than so many times that of the part before, it is not yet what it will
/// be: memory keeps small objects longer.
const GROWING: f64 = 2.0;
/// It is waited for that only while so many more such parts are left that nothing was written to: what is written to
/// cannot be given to small objects.
const PARTS_LEFT: u64 = 2;
/// With such a share large objects hardly come, and small ones get an area for which the memory will be enough; with
/// less, one for which it is enough now.
pub(super) const NEARLY_ALL: f64 = 0.99;
/// More leaves large objects so little that they come and go.
const MAX_WORTH: f64 = 8.0;
/// A smaller share of small objects is not worth an area, by their bytes and by their number.
pub(super) const MIN_SHARE_DIVISOR: u64 = 64;
/// How long a stop waits for the thread that draws the boundary, and how often it looks.
const MAX_WAIT: Duration = Duration::from_secs(5);
const WAIT_STEP: Duration = Duration::from_micros(200);
/// What a large object takes beside key and value, with the rounding.
const LARGE_HEADER: usize = 80;
/// Pages hold so many percent of their size in records.
const PAGE_FILL: f64 = 94.0;

/// Bytes of an object in the index of large ones, at most.
const LARGE_ENTRY: u64 = 12;
/// Four of these fit a page. Longer ones leave a third of it empty.
const MAX_SMALL: usize = MAX_RECORD_BYTES / 2;

/// What comes, and how the capacity is divided for it.
pub(super) struct CapacitySplit {
    /// The longest record of small objects.
    max_small: usize,
    pub options: TierOptions,
    small: Arrivals,
    large: Arrivals,
    pub split: Mutex<SplitState>,
}

/// Of one kind.
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
    /// The share of small objects of the part that came before.
    pub share_before: f64,
    /// The device may say that there is a boundary, as a superblock with one was perhaps written: until it says for
    /// sure that there is none, what lies below belongs to nobody.
    pub is_in_doubt: bool,
}

impl CapacitySplit {
    pub fn new(layout: TierLayout, options: &TierOptions) -> Self {
        let end = layout.tail.end;
        // Where the memory has an index for objects as short as that, they are large ones.
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

    /// An object is taken, with a record of so many bytes if it is small.
    pub fn record_arrival(&self, record: Option<usize>, bytes: usize) {
        let (arrivals, bytes) = match record {
            Some(bytes) => (&self.small, bytes),
            None => (&self.large, bytes + LARGE_HEADER),
        };
        arrivals.objects.fetch_add(1, Relaxed);
        arrivals.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Waits until nobody draws the boundary. False if the device keeps the thread that does for long.
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

    /// The share of the capacity that what came would give to small objects.
    fn share(&self) -> f64 {
        let ((small, small_bytes), (large, large_bytes)) = (self.small.read(), self.large.read());
        let longer = (large_bytes * small) / (large * small_bytes).max(1.0);
        let small_worth = small_bytes * 100.0 / PAGE_FILL * longer.clamp(1.0, MAX_WORTH);
        small_worth / (small_worth + large_bytes).max(1.0)
    }

    fn arrived_bytes(&self) -> u64 {
        (self.small.read().1 + self.large.read().1) as u64
    }

    fn forget(&self) {
        self.small.forget();
        self.large.forget();
    }

    /// Begins another part of the arrivals after one that was enough to tell. True if the split waits for it: the share
    /// of small objects grows, and of the capacity enough bytes are left that nothing was written to.
    pub fn begin_part(&self, capacity: u64, left: u64, share_before: &mut f64) -> bool {
        let (share, is_growing) = (self.share(), self.is_growing(capacity, left, *share_before));
        self.forget();
        *share_before = share;
        is_growing
    }

    /// Whether [`CapacitySplit::begin_part`] would say that the split waits.
    pub fn is_growing(&self, capacity: u64, left: u64, share_before: f64) -> bool {
        let share = self.share();
        share < CLEAR_SHARE && share > share_before * GROWING && left / PARTS_LEFT >= capacity / NEEDED_OTHERWISE
    }

    /// The share of the capacity that is for small objects, if enough has arrived to tell.
    pub fn due_share(&self, capacity: u64) -> Option<f64> {
        let arrivals = self.arrived_bytes();
        if arrivals < (capacity / NEEDED).clamp(PAGE as u64, MAX_NEEDED) {
            return None;
        }
        let share = self.share();
        let max = self.options.memory_bytes.saturating_mul(MAX_NEEDED_OTHERWISE);
        if share < CLEAR_SHARE && arrivals < (capacity / NEEDED_OTHERWISE).min(max) {
            return None;
        }
        // Many that take little are cheap to keep for long.
        let (small, large) = (self.small.read().0, self.large.read().0);
        let are_many = small * MIN_SHARE_DIVISOR as f64 >= small + large;
        Some(if are_many { share.max(1.0 / MIN_SHARE_DIVISOR as f64) } else { share })
    }
}
