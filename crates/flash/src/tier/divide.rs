//! When the capacity is divided between small and large objects, if nobody said how: once a part of it was written, by how many
//! objects of each kind came. A hit is worth the same whatever its length, so a byte of small objects is worth more by as much as large
//! ones are longer, up to [`WORTH_MOST`] times: so much longer a small object stays.
//!
//! ```text
//! Undivided ---- enough came ----> Drawn ---- outgrown by large objects: small ones end ----> Undivided
//! ```
//! The superblock is durable before anything is written to the area of small objects: whoever comes after a crash finds the
//! boundary, or an area that was never used. One that the device says it has not written may be there: until another is, the area stays unused.

use super::layout::Layout;
use super::superblock::{Shape, Superblock};
use super::{Tier, TierOptions, start};
use crate::removals::Store;
use crate::small::{self, PAGE, RECORD_MOST, record_bytes};
use crate::{Object, device};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// The share of the capacity that has to come before it is divided, and so many bytes at most, if such a share gets to small objects: what
/// comes first has too many large ones, as memory evicts these earlier.
const NEEDED: u64 = 64;
const NEEDED_MOST: u64 = 64 << 20;
const CLEAR_SHARE: f64 = 0.75;
/// The share that has to come otherwise, and so many times the memory of flash at most: then all memory has been evicted once, of which that
/// is an eighth.
const NEEDED_OTHERWISE: u64 = 8;
const NEEDED_OTHERWISE_MOST: u64 = 8;
/// As long as the share of small objects is more than so many times that of the part before, it is not yet what it will be: memory keeps small objects
/// longer.
const RISING: f64 = 2.0;
/// It is waited for that only while so many more such parts are left that nothing was written to: what is written to cannot be given to small objects.
const PARTS_LEFT: u64 = 2;
/// With such a share large objects hardly come, and small ones get an area for which the memory will be enough; with less, one for which it is enough now.
const NEARLY_ALL: f64 = 0.99;
/// More leaves large objects so little that they come and go.
const WORTH_MOST: f64 = 8.0;
/// A smaller share of small objects is not worth an area, by their bytes and by their number.
const LEAST: u64 = 64;
/// So large a part of the capacity has to come before a boundary that was drawn is judged.
const NEEDED_TO_JUDGE: u64 = 4;
/// A boundary is taken back only if large objects would get so many times the area that they have, and a byte of theirs is hit so many times
/// as often as one of small objects.
const OUTGROWN: f64 = 4.0;
/// So few hits of small objects, one in so many requests, are as good as none: a byte of large ones need not be hit more often then.
const FEW_HITS: f64 = 64.0;
/// How long a stop waits for whoever draws the boundary, and how often it looks.
const WAIT_MOST: Duration = Duration::from_secs(5);
const WAIT_STEP: Duration = Duration::from_micros(200);
/// What a large object takes beside key and value, with the rounding.
const LARGE_HEADER: usize = 80;
/// Pages hold so many percent of their size in records.
const PAGE_FILL: f64 = 94.0;

/// Bytes of an object in the index of large ones, at most.
const LARGE_ENTRY: u64 = 12;
/// Four of these fit a page. Longer ones leave a third of it empty.
const SMALL_MOST: usize = RECORD_MOST / 2;

/// What comes, and how the capacity is divided for it.
pub(super) struct Mix {
    /// The longest record of small objects.
    small_most: usize,
    options: TierOptions,
    small: Came,
    large: Came,
    /// Requests that memory had not.
    missed: AtomicU64,
    division: Mutex<Division>,
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

enum Division {
    /// Somebody said how.
    Named,
    Undivided(Undivided),
    /// By what came.
    Drawn(Drawn),
}

struct Undivided {
    layout: Layout,
    /// The share of small objects of the part that came before.
    share_before: f64,
    /// The device may say that there is a boundary, as a superblock with one was perhaps written: until it says for sure that there is none, what lies
    /// below belongs to nobody.
    is_in_doubt: bool,
}

struct Drawn {
    layout: Layout,
    /// Before what came was counted.
    before: Asked,
    /// It is to be taken back.
    is_outgrown: bool,
}

impl Mix {
    pub fn new(layout: Layout, options: &TierOptions) -> Self {
        let end = layout.checkpoint.end;
        // Where the memory has an index for objects as short as that, they are large ones.
        let shortest = LARGE_ENTRY.saturating_mul(end) / options.memory_bytes.max(1);
        let small_most = (shortest as usize).clamp(SMALL_MOST, RECORD_MOST);
        let small_most = if options.small_share.is_some() { RECORD_MOST } else { small_most };
        let division = match (options.small_share, &layout.small_options) {
            (Some(_), _) => Division::Named,
            (None, None) => Division::Undivided(Undivided { layout, share_before: 0.0, is_in_doubt: false }),
            (None, Some(_)) => Division::Drawn(Drawn { layout, before: Asked::default(), is_outgrown: false }),
        };
        let (small, large) = Default::default();
        let (options, missed, division) = (options.clone(), AtomicU64::new(0), Mutex::new(division));
        Self { small_most, options, small, large, missed, division }
    }

    /// The bytes of an object's record, if it is a small one.
    pub fn record(&self, object: &Object<'_>) -> Option<usize> {
        record_bytes(object).filter(|&bytes| bytes <= self.small_most)
    }

    /// A key was requested that memory had not.
    pub fn missed(&self) {
        self.missed.fetch_add(1, Relaxed);
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

    /// Waits until nobody draws the boundary. False if the device keeps whoever does for long.
    pub fn wait(&self) -> bool {
        let deadline = Instant::now() + WAIT_MOST;
        while matches!(self.division.try_lock(), Err(TryLockError::WouldBlock)) {
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
        let small_worth = small_bytes * 100.0 / PAGE_FILL * longer.clamp(1.0, WORTH_MOST);
        small_worth / (small_worth + large_bytes).max(1.0)
    }

    fn came_bytes(&self) -> u64 {
        (self.small.read().1 + self.large.read().1) as u64
    }

    fn forget(&self) {
        self.small.forget();
        self.large.forget();
    }

    /// The share of the capacity that is for small objects, if enough came to tell, which is forgotten then. Of the capacity so many bytes
    /// are left that nothing was written to: while they are enough, a share that rises is left to grow.
    fn small_share(&self, capacity: u64, left: impl FnOnce() -> u64, share_before: &mut f64) -> Option<f64> {
        let came = self.came_bytes();
        if came < (capacity / NEEDED).clamp(PAGE as u64, NEEDED_MOST) {
            return None;
        }
        let share = self.share();
        let most = self.options.memory_bytes.saturating_mul(NEEDED_OTHERWISE_MOST);
        if share < CLEAR_SHARE && came < (capacity / NEEDED_OTHERWISE).min(most) {
            return None;
        }
        let (small, large) = (self.small.read().0, self.large.read().0);
        self.forget();
        let before = std::mem::replace(share_before, share);
        if share < CLEAR_SHARE && share > before * RISING && left() / PARTS_LEFT >= capacity / NEEDED_OTHERWISE {
            return None;
        }
        // Many that take little are cheap to keep for long.
        let are_many = small * LEAST as f64 >= small + large;
        Some(if are_many { share.max(1.0 / LEAST as f64) } else { share })
    }

    /// Whether enough came to judge a boundary by.
    fn can_judge(&self, layout: &Layout) -> bool {
        self.came_bytes() >= layout.capacity / NEEDED_TO_JUDGE
    }

    /// Whether large objects need several times what a boundary leaves to them, and small ones are hardly found any more; what came is
    /// forgotten.
    fn has_outgrown(&self, layout: &Layout, asked: Asked) -> bool {
        let (small_bytes, large_bytes) = (layout.boundary as f64, (layout.capacity - layout.boundary) as f64);
        let wanted = (1.0 - self.share()) * layout.capacity as f64;
        let came = self.small.read().0 + self.large.read().0;
        let (lookups, small, large) = (asked.lookups as f64, asked.small_hits as f64, asked.large_hits as f64);
        // Who only writes says nothing of what is worth its place.
        let is_asked_for = lookups >= came;
        let are_rare = small * FEW_HITS <= lookups;
        let are_poor = small <= large && small / small_bytes * OUTGROWN <= large / large_bytes;
        self.forget();
        wanted >= OUTGROWN * large_bytes && is_asked_for && (are_rare || are_poor)
    }
}

impl Tier {
    /// Draws the boundary when enough is known, or takes it back when it has become wrong. Waits for the device.
    pub(super) fn divide(&self) {
        let mut division = self.mix.division.lock().unwrap();
        // The superblock of the beginning must not come after this one's.
        if self.superblock_bytes.load(Relaxed) == 0 || self.is_closed.load(Relaxed) {
            return;
        }
        let next = match &mut *division {
            Division::Named => None,
            Division::Undivided(undivided) => self.draw(undivided),
            Division::Drawn(drawn) => {
                if self.mix.can_judge(&drawn.layout) {
                    let asked = self.asked();
                    drawn.is_outgrown |= self.mix.has_outgrown(&drawn.layout, asked.since(&drawn.before));
                    drawn.before = asked;
                }
                if drawn.is_outgrown { self.join(&drawn.layout) } else { None }
            }
        };
        next.into_iter().for_each(|next| *division = next);
    }

    fn asked(&self) -> Asked {
        let (small, large_hits) = (self.small.stats().counts, self.large.hits());
        // Keys that flash has not for sure are not looked up.
        let lookups = self.mix.missed.load(Relaxed) + small.lookups + large_hits;
        Asked { lookups, small_hits: small.log_hits + small.set_hits, large_hits }
    }

    /// As if large objects had outgrown what they have.
    #[cfg(test)]
    pub(super) fn join_now(&self) {
        if let Division::Drawn(drawn) = &mut *self.mix.division.lock().unwrap() {
            drawn.is_outgrown = true;
        }
        self.divide();
    }

    fn draw(&self, undivided: &mut Undivided) -> Option<Division> {
        self.end_doubt(undivided)?;
        let Undivided { layout, share_before, is_in_doubt } = undivided;
        let capacity = layout.capacity;
        let small_share = self.mix.small_share(capacity, || self.large.untouched_bytes(), share_before)?;
        let boundary = (capacity as f64 * small_share) as u64;
        if boundary < capacity / LEAST {
            return None;
        }
        let memory_later = if small_share >= NEARLY_ALL { self.mix.options.memory_later } else { 0 };
        let options = TierOptions { memory_later, ..self.mix.options.clone() };
        let wanted = layout.divided_below(boundary, &options)?;
        let boundary = self.large.narrow(wanted.boundary);
        let drawn = self.draw_below(layout, boundary, &options);
        if drawn.is_none() {
            *is_in_doubt = true;
            self.end_doubt(undivided)?;
        }
        drawn
    }

    /// Has the device say that there is no boundary, if it may say something else. None if it does not take that.
    fn end_doubt(&self, undivided: &mut Undivided) -> Option<()> {
        if undivided.is_in_doubt {
            self.write_division(&undivided.layout, |_| ())?;
            undivided.is_in_doubt = false;
            self.large.widen(undivided.layout.large_options.first_region);
        }
        Some(())
    }

    fn draw_below(&self, layout: &Layout, boundary: u64, options: &TierOptions) -> Option<Division> {
        let mut divided = layout.divided_below(boundary, options)?;
        divided.leave_to_large(self.large.index_bytes() / 4 * 5);
        let salt = self.superblock.lock().unwrap().lives.small;
        let small_options = divided.small_options.clone().map(|options| small::Options { salt, ..options })?;
        let store = self.small.next(Arc::clone(&self.device), divided.small_area(), small_options).ok()?;
        store.erase_marks().ok()?;
        self.write_division(&divided, |_| ())?;
        self.limit_large(&divided);
        self.small.set(store);
        Some(Division::Drawn(Drawn { layout: divided, before: self.asked(), is_outgrown: false }))
    }

    /// Gives the whole capacity to large objects; what was small and on flash is gone. A boundary may be drawn again.
    fn join(&self, divided: &Layout) -> Option<Division> {
        let (joined, superblock) = self.write_joined(divided)?;
        self.end_small(joined, &superblock)
    }

    /// From now on no start finds small objects.
    fn write_joined(&self, divided: &Layout) -> Option<(Layout, Superblock)> {
        let joined = divided.joined(&self.mix.options).ok()?;
        let small = start::draw();
        let superblock = self.write_division(&joined, |superblock| superblock.lives.small = small)?;
        Some((joined, superblock))
    }

    /// Their area gets no other use while something of them is being written, and what happens to them until then ends none that come later.
    fn end_small(&self, joined: Layout, superblock: &Superblock) -> Option<Division> {
        if !self.small.end() {
            return None;
        }
        self.removals.iter().for_each(|log| log.begin_again(Store::Small, superblock.lives.small));
        self.raised_for_large.fetch_add(self.raised_for_small.swap(0, Relaxed), Relaxed);
        self.limit_large(&joined);
        self.large.widen(joined.large_options.first_region);
        Some(Division::Undivided(Undivided { layout: joined, share_before: 0.0, is_in_doubt: false }))
    }

    /// Gives the index of large objects what a division leaves to it.
    fn limit_large(&self, layout: &Layout) {
        let raised = self.raised_for_large.load(Relaxed);
        self.large.limit_index(layout.large_options.index_bytes.saturating_add(raised));
    }

    /// As [`Tier::join`], when something happens between its superblock and the end of the small objects.
    #[cfg(test)]
    pub(super) fn join_after(&self, happens: impl FnOnce()) {
        let division = self.mix.division.lock().unwrap();
        let Division::Drawn(drawn) = &*division else { panic!("there is no boundary") };
        let (joined, superblock) = self.write_joined(&drawn.layout).expect("the device takes it");
        happens();
        self.end_small(joined, &superblock).expect("the device does all");
    }

    /// Makes a division durable. None if the device does not take it.
    fn write_division(&self, layout: &Layout, change: impl FnOnce(&mut Superblock)) -> Option<Superblock> {
        let mut superblock = self.superblock.lock().unwrap();
        let mut next = Superblock { shape: Shape::of(superblock.shape.identity, layout), ..*superblock };
        change(&mut next);
        let block = next.encode();
        let bytes = block.len() as u64;
        device::write(&*self.device, 0, block).and_then(|_| self.device.sync()).ok()?;
        *superblock = next;
        self.superblock_bytes.fetch_add(bytes, Relaxed);
        Some(next)
    }
}
