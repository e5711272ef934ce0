//! When the capacity is divided between small and large objects, if nobody said how: once a part of it was written, by how many
//! objects of each kind came. A hit is worth the same whatever its length, so a byte of small objects is worth more by as much as large
//! ones are longer, up to [`MAX_WORTH`] times: so much longer a small object stays.
//!
//! ```text
//! Undivided ---- enough came ----> Drawn ---- outgrown by large objects: small ones end ----> Undivided
//! ```
//! The superblock is durable before anything is written to the area of small objects: whoever comes after a crash finds the
//! boundary, or an area that was never used. One that the device says it has not written may be there: until another is, the area stays unused.

use super::layout::TierLayout;
use super::superblock::{Partition, Superblock};
use super::{Tier, TierOptions, open};
use crate::deletion_log::StoreKind;
use crate::small::{self, MAX_RECORD_BYTES, PAGE, record_bytes};
use crate::{Object, device};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// The share of the capacity that has to come before it is divided, and so many bytes at most, if such a share gets to small objects: what
/// comes first has too many large ones, as memory evicts these earlier.
const NEEDED: u64 = 64;
const MAX_NEEDED: u64 = 64 << 20;
const CLEAR_SHARE: f64 = 0.75;
/// The share that has to come otherwise, and so many times the memory of flash at most: then all memory has been evicted once, of which that
/// is an eighth.
const NEEDED_OTHERWISE: u64 = 8;
const MAX_NEEDED_OTHERWISE: u64 = 8;
/// As long as the share of small objects is more than so many times that of the part before, it is not yet what it will be: memory keeps small objects
/// longer.
const RISING: f64 = 2.0;
/// It is waited for that only while so many more such parts are left that nothing was written to: what is written to cannot be given to small objects.
const PARTS_LEFT: u64 = 2;
/// With such a share large objects hardly come, and small ones get an area for which the memory will be enough; with less, one for which it is enough now.
const NEARLY_ALL: f64 = 0.99;
/// More leaves large objects so little that they come and go.
const MAX_WORTH: f64 = 8.0;
/// A smaller share of small objects is not worth an area, by their bytes and by their number.
const MIN_SHARE_DIVISOR: u64 = 64;
/// So large a part of the capacity has to come before a boundary that was drawn is judged.
const NEEDED_TO_JUDGE: u64 = 4;
/// A boundary is taken back only if large objects would get so many times the area that they have, and a byte of theirs is hit so many times
/// as often as one of small objects.
const OUTGROWN: f64 = 4.0;
/// So few hits of small objects, one in so many requests, are as good as none: a byte of large ones need not be hit more often then.
const FEW_HITS: f64 = 64.0;
/// How long a stop waits for whoever draws the boundary, and how often it looks.
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
    options: TierOptions,
    small: Arrivals,
    large: Arrivals,
    /// Requests that memory had not.
    missed: AtomicU64,
    split: Mutex<SplitState>,
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

/// Requests that memory had not, one that flash looked up counted twice, and the lookups that found something.
#[derive(Clone, Copy, Default)]
struct Asked {
    lookups: u64,
    small_hits: u64,
    large_hits: u64,
}

impl Asked {
    fn since(&self, before: &Self) -> Self {
        Self {
            lookups: self.lookups - before.lookups,
            small_hits: self.small_hits - before.small_hits,
            large_hits: self.large_hits - before.large_hits,
        }
    }
}

enum SplitState {
    /// Somebody said how.
    Fixed,
    Unsplit(Unsplit),
    /// By what came.
    Split(Split),
}

struct Unsplit {
    layout: TierLayout,
    /// The share of small objects of the part that came before.
    share_before: f64,
    /// The device may say that there is a boundary, as a superblock with one was perhaps written: until it says for sure that there is none, what lies
    /// below belongs to nobody.
    is_in_doubt: bool,
}

struct Split {
    layout: TierLayout,
    /// Before what came was counted.
    before: Asked,
    /// It is to be taken back.
    is_outgrown: bool,
}

impl CapacitySplit {
    pub fn new(layout: TierLayout, options: &TierOptions) -> Self {
        let end = layout.checkpoint.end;
        // Where the memory has an index for objects as short as that, they are large ones.
        let shortest = LARGE_ENTRY.saturating_mul(end) / options.memory_bytes.max(1);
        let max_small = (shortest as usize).clamp(MAX_SMALL, MAX_RECORD_BYTES);
        let max_small = if options.small_share.is_some() { MAX_RECORD_BYTES } else { max_small };
        let split = match (options.small_share, &layout.small_options) {
            (Some(_), _) => SplitState::Fixed,
            (None, None) => SplitState::Unsplit(Unsplit { layout, share_before: 0.0, is_in_doubt: false }),
            (None, Some(_)) => SplitState::Split(Split { layout, before: Asked::default(), is_outgrown: false }),
        };
        let (small, large) = Default::default();
        let (options, missed, split) = (options.clone(), AtomicU64::new(0), Mutex::new(split));
        Self { max_small, options, small, large, missed, split }
    }

    /// The bytes of an object's record, if it is a small one.
    pub fn record(&self, object: &Object<'_>) -> Option<usize> {
        record_bytes(object).filter(|&bytes| bytes <= self.max_small)
    }

    /// A key was requested that memory had not.
    pub fn missed(&self) {
        self.missed.fetch_add(1, Relaxed);
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

    /// Waits until nobody draws the boundary. False if the device keeps whoever does for long.
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

    /// The share of the capacity that is for small objects, if enough came to tell, which is forgotten then. Of the capacity so many bytes
    /// are left that nothing was written to: while they are enough, a share that rises is left to grow.
    fn small_share(&self, capacity: u64, left: impl FnOnce() -> u64, share_before: &mut f64) -> Option<f64> {
        let arrivals = self.arrived_bytes();
        if arrivals < (capacity / NEEDED).clamp(PAGE as u64, MAX_NEEDED) {
            return None;
        }
        let share = self.share();
        let max = self.options.memory_bytes.saturating_mul(MAX_NEEDED_OTHERWISE);
        if share < CLEAR_SHARE && arrivals < (capacity / NEEDED_OTHERWISE).min(max) {
            return None;
        }
        let (small, large) = (self.small.read().0, self.large.read().0);
        self.forget();
        let before = std::mem::replace(share_before, share);
        if share < CLEAR_SHARE && share > before * RISING && left() / PARTS_LEFT >= capacity / NEEDED_OTHERWISE {
            return None;
        }
        // Many that take little are cheap to keep for long.
        let are_many = small * MIN_SHARE_DIVISOR as f64 >= small + large;
        Some(if are_many { share.max(1.0 / MIN_SHARE_DIVISOR as f64) } else { share })
    }

    /// Whether enough came to judge a boundary by.
    fn can_judge(&self, layout: &TierLayout) -> bool {
        self.arrived_bytes() >= layout.capacity / NEEDED_TO_JUDGE
    }

    /// Whether large objects need several times what a boundary leaves to them, and small ones are hardly found any more; what came is
    /// forgotten.
    fn has_outgrown(&self, layout: &TierLayout, asked: Asked) -> bool {
        let (small_bytes, large_bytes) = (layout.boundary as f64, (layout.capacity - layout.boundary) as f64);
        let wanted = (1.0 - self.share()) * layout.capacity as f64;
        let arrivals = self.small.read().0 + self.large.read().0;
        let (lookups, small, large) = (asked.lookups as f64, asked.small_hits as f64, asked.large_hits as f64);
        // Who only writes says nothing of what is worth its place.
        let is_asked_for = lookups >= arrivals;
        let are_rare = small * FEW_HITS <= lookups;
        let are_poor = small <= large && small / small_bytes * OUTGROWN <= large / large_bytes;
        self.forget();
        wanted >= OUTGROWN * large_bytes && is_asked_for && (are_rare || are_poor)
    }
}

impl Tier {
    /// Draws the boundary when enough is known, or takes it back when it has become wrong. Waits for the device.
    pub(super) fn update_split(&self) {
        let mut split = self.capacity_split.split.lock().unwrap();
        // The superblock of the beginning must not come after this one's.
        if self.superblock_bytes.load(Relaxed) == 0 || self.is_closed.load(Relaxed) {
            return;
        }
        let next = match &mut *split {
            SplitState::Fixed => None,
            SplitState::Unsplit(unsplit) => self.random_id(unsplit),
            SplitState::Split(split) => {
                if self.capacity_split.can_judge(&split.layout) {
                    let asked = self.asked();
                    split.is_outgrown |= self.capacity_split.has_outgrown(&split.layout, asked.since(&split.before));
                    split.before = asked;
                }
                if split.is_outgrown { self.join(&split.layout) } else { None }
            }
        };
        next.into_iter().for_each(|next| *split = next);
    }

    fn asked(&self) -> Asked {
        let (small, large_hits) = (self.small.stats().counts, self.large.hits());
        // Keys that flash has not for sure are not looked up.
        let lookups = self.capacity_split.missed.load(Relaxed) + small.lookups + large_hits;
        Asked { lookups, small_hits: small.log_hits + small.set_hits, large_hits }
    }

    /// As if large objects had outgrown what they have.
    #[cfg(test)]
    pub(super) fn join_now(&self) {
        if let SplitState::Split(split) = &mut *self.capacity_split.split.lock().unwrap() {
            split.is_outgrown = true;
        }
        self.update_split();
    }

    fn random_id(&self, unsplit: &mut Unsplit) -> Option<SplitState> {
        self.end_doubt(unsplit)?;
        let Unsplit { layout, share_before, is_in_doubt } = unsplit;
        let capacity = layout.capacity;
        let small_share = self.capacity_split.small_share(capacity, || self.large.unused_bytes(), share_before)?;
        let boundary = (capacity as f64 * small_share) as u64;
        if boundary < capacity / MIN_SHARE_DIVISOR {
            return None;
        }
        let memory_growth_bytes =
            if small_share >= NEARLY_ALL { self.capacity_split.options.memory_growth_bytes } else { 0 };
        let options = TierOptions { memory_growth_bytes, ..self.capacity_split.options.clone() };
        let wanted = layout.split_at_most(boundary, &options)?;
        let boundary = self.large.shrink_front(wanted.boundary);
        let split = self.draw_below(layout, boundary, &options);
        if split.is_none() {
            *is_in_doubt = true;
            self.end_doubt(unsplit)?;
        }
        split
    }

    /// Has the device say that there is no boundary, if it may say something else. None if it does not take that.
    fn end_doubt(&self, unsplit: &mut Unsplit) -> Option<()> {
        if unsplit.is_in_doubt {
            self.write_division(&unsplit.layout, |_| ())?;
            unsplit.is_in_doubt = false;
            self.large.grow_front(unsplit.layout.large_options.first_region);
        }
        Some(())
    }

    fn draw_below(&self, layout: &TierLayout, boundary: u64, options: &TierOptions) -> Option<SplitState> {
        let mut split_at_share = layout.split_at_most(boundary, options)?;
        split_at_share.leave_to_large(self.large.index_bytes() / 4 * 5);
        let salt = self.superblock.lock().unwrap().incarnations.small;
        let small_options = split_at_share.small_options.clone().map(|options| small::Options { salt, ..options })?;
        let store = self.small.next(Arc::clone(&self.device), split_at_share.small_area(), small_options).ok()?;
        store.erase_marks().ok()?;
        self.write_division(&split_at_share, |_| ())?;
        self.limit_large(&split_at_share);
        self.small.set(store);
        Some(SplitState::Split(Split { layout: split_at_share, before: self.asked(), is_outgrown: false }))
    }

    /// Gives the whole capacity to large objects; what was small and on flash is gone. A boundary may be drawn again.
    fn join(&self, split_at_share: &TierLayout) -> Option<SplitState> {
        let (joined, superblock) = self.write_joined(split_at_share)?;
        self.end_small(joined, &superblock)
    }

    /// From now on no start finds small objects.
    fn write_joined(&self, split_at_share: &TierLayout) -> Option<(TierLayout, Superblock)> {
        let joined = split_at_share.joined(&self.capacity_split.options).ok()?;
        let small = open::random_id();
        let superblock = self.write_division(&joined, |superblock| superblock.incarnations.small = small)?;
        Some((joined, superblock))
    }

    /// Their area gets no other use while something of them is being written, and what happens to them until then ends none that come later.
    fn end_small(&self, joined: TierLayout, superblock: &Superblock) -> Option<SplitState> {
        if !self.small.end() {
            return None;
        }
        self.removals.iter().for_each(|log| log.restart_ring(StoreKind::Small, superblock.incarnations.small));
        self.extra_large_bytes.fetch_add(self.extra_small_bytes.swap(0, Relaxed), Relaxed);
        self.limit_large(&joined);
        self.large.grow_front(joined.large_options.first_region);
        Some(SplitState::Unsplit(Unsplit { layout: joined, share_before: 0.0, is_in_doubt: false }))
    }

    /// Gives the index of large objects what a division leaves to it.
    fn limit_large(&self, layout: &TierLayout) {
        let extra = self.extra_large_bytes.load(Relaxed);
        self.large.limit_index(layout.large_options.index_bytes.saturating_add(extra));
    }

    /// As [`Tier::join`], when something happens between its superblock and the end of the small objects.
    #[cfg(test)]
    pub(super) fn join_after(&self, happens: impl FnOnce()) {
        let split = self.capacity_split.split.lock().unwrap();
        let SplitState::Split(split) = &*split else { panic!("there is no boundary") };
        let (joined, superblock) = self.write_joined(&split.layout).expect("the device takes it");
        happens();
        self.end_small(joined, &superblock).expect("the device does all");
    }

    /// Makes a division durable. None if the device does not take it.
    fn write_division(&self, layout: &TierLayout, change: impl FnOnce(&mut Superblock)) -> Option<Superblock> {
        let mut superblock = self.superblock.lock().unwrap();
        let mut next = Superblock { shape: Partition::of(superblock.shape.identity, layout), ..*superblock };
        change(&mut next);
        let block = next.encode();
        let bytes = block.len() as u64;
        device::write(&*self.device, 0, block).and_then(|_| self.device.sync()).ok()?;
        *superblock = next;
        self.superblock_bytes.fetch_add(bytes, Relaxed);
        Some(next)
    }
}
