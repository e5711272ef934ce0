//! When the capacity is divided between small and large objects, if nobody said how: once a part of it was written, by how many
//! objects of each kind came. A hit is worth the same whatever its length, so a byte of small objects is worth more by as much as large
//! ones are longer, up to [`WORTH_MOST`] times: so much longer a small object stays.
//!
//! The superblock is durable before anything is written to the area of small objects: whoever comes after a crash finds the
//! boundary, or an area that was never used.

use super::layout::Layout;
use super::superblock::{Shape, Superblock};
use super::{Tier, TierOptions};
use crate::small::{self, PAGE, RECORD_MOST, SmallStore, record_bytes};
use crate::{Object, device};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// The share of the capacity that has to come before it is divided, and so many bytes at most, if such a share gets to small objects: what
/// comes first has too many large ones, as memory evicts these earlier.
const NEEDED: u64 = 64;
const NEEDED_MOST: u64 = 64 << 20;
const CLEAR_SHARE: f64 = 0.75;
/// The share that has to come otherwise, and so many times the memory of flash at most: then all memory has been evicted once, of which that
/// is an eighth.
const NEEDED_OTHERWISE: u64 = 8;
const NEEDED_OTHERWISE_MOST: u64 = 8;
/// More leaves large objects so little that they come and go.
const WORTH_MOST: f64 = 8.0;
/// A smaller share of small objects is not worth an area, by their bytes and by their number.
const LEAST: u64 = 64;
/// What a large object takes beside key and value, with the rounding.
const LARGE_HEADER: usize = 80;
/// Pages hold so many percent of their size in records.
const PAGE_FILL: f64 = 94.0;

/// Bytes of an object in the index of large ones, at most.
const LARGE_ENTRY: u64 = 12;
/// Four of these fit a page. Longer ones leave a third of it empty.
const SMALL_MOST: usize = RECORD_MOST / 2;

/// What came, until it is known how to divide.
pub(super) struct Mix {
    /// The longest record of small objects.
    small_most: usize,
    small: Came,
    large: Came,
    /// What is to be divided; none once that is done.
    undivided: Mutex<Option<Undivided>>,
}

/// Of one kind.
#[derive(Default)]
struct Came {
    objects: AtomicU64,
    bytes: AtomicU64,
}

impl Came {
    fn read(&self) -> (f64, f64) {
        (self.objects.load(Relaxed) as f64, self.bytes.load(Relaxed) as f64)
    }

    fn forget(&self) {
        self.objects.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
    }
}

struct Undivided {
    layout: Layout,
    options: TierOptions,
}

impl Mix {
    pub fn new(layout: Layout, options: &TierOptions) -> Self {
        let end = layout.checkpoint.end;
        let undivided = layout.small_options.is_none().then(|| Undivided { layout, options: options.clone() });
        // Where the memory has an index for objects as short as that, they are large ones.
        let shortest = LARGE_ENTRY.saturating_mul(end) / options.memory_bytes.max(1);
        let small_most = (shortest as usize).clamp(SMALL_MOST, RECORD_MOST);
        let small_most = if options.small_share.is_some() { RECORD_MOST } else { small_most };
        Self { small_most, small: Came::default(), large: Came::default(), undivided: Mutex::new(undivided) }
    }

    /// The bytes of an object's record, if it is a small one.
    pub fn record(&self, object: &Object<'_>) -> Option<usize> {
        record_bytes(object).filter(|&bytes| bytes <= self.small_most)
    }

    /// An object is taken, with a record of so many bytes if it is small.
    pub fn note(&self, record: Option<usize>, bytes: usize) {
        let (came, bytes) = match record {
            Some(bytes) => (&self.small, bytes),
            None => (&self.large, bytes + LARGE_HEADER),
        };
        came.objects.fetch_add(1, Relaxed);
        came.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// The share of the capacity that is for small objects, if enough came to tell, which is forgotten then.
    fn small_share(&self, capacity: u64, memory_bytes: u64) -> Option<f64> {
        let ((small, small_bytes), (large, large_bytes)) = (self.small.read(), self.large.read());
        let came = (small_bytes + large_bytes) as u64;
        if came < (capacity / NEEDED).clamp(PAGE as u64, NEEDED_MOST) {
            return None;
        }
        let longer = (large_bytes * small) / (large * small_bytes).max(1.0);
        let small_worth = small_bytes * 100.0 / PAGE_FILL * longer.clamp(1.0, WORTH_MOST);
        let share = small_worth / (small_worth + large_bytes);
        let most = memory_bytes.saturating_mul(NEEDED_OTHERWISE_MOST);
        if share < CLEAR_SHARE && came < (capacity / NEEDED_OTHERWISE).min(most) {
            return None;
        }
        self.small.forget();
        self.large.forget();
        // Many that take little are cheap to keep for long.
        let are_many = small * LEAST as f64 >= small + large;
        Some(if are_many { share.max(1.0 / LEAST as f64) } else { share })
    }
}

impl Tier {
    /// Draws the boundary when enough is known. Waits for the device.
    pub(super) fn divide(&self) {
        let mut place = self.mix.undivided.lock().unwrap();
        // The superblock of the beginning must not come after this one's.
        let Some(Undivided { layout, options }) = place.as_ref().filter(|_| self.superblock_bytes.load(Relaxed) > 0)
        else {
            return;
        };
        let capacity = layout.capacity;
        let Some(small_share) = self.mix.small_share(capacity, options.memory_bytes) else { return };
        let boundary = (capacity as f64 * small_share) as u64;
        if boundary < capacity / LEAST {
            return;
        }
        let Some(wanted) = layout.divided_below(boundary, options) else { return };
        let boundary = self.large.narrow(wanted.boundary);
        let Some(mut divided) = layout.divided_below(boundary, options) else { return };
        divided.leave_to_large(self.large.index_bytes() / 4 * 5);
        let mut superblock = self.superblock.lock().unwrap();
        let with_boundary = Superblock { shape: Shape::of(superblock.shape.identity, &divided), ..*superblock };
        let block = with_boundary.encode();
        let (bytes, area) = (block.len() as u64, divided.small_area());
        let salt = superblock.lives.small;
        let store = divided
            .small_options
            .map(|options| SmallStore::new(Arc::clone(&self.device), area, small::Options { salt, ..options }));
        let Some(Ok(store)) = store else { return };
        let written =
            store.erase_marks().and_then(|()| device::write(&*self.device, 0, block)).and_then(|_| self.device.sync());
        if written.is_ok() {
            *superblock = with_boundary;
            self.superblock_bytes.fetch_add(bytes, Relaxed);
            self.large
                .limit_index(divided.large_options.index_bytes.saturating_add(self.raised_for_large.load(Relaxed)));
            self.small.set(store);
            *place = None;
        }
    }
}
