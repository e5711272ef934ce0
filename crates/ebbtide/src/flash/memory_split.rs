//! The division of memory between items and flash.
//!
//! The capacity of flash is divided as if flash had a planned part of the memory: an eighth, or more where its size
//! needs more. Buffers and filters have their part of that from the start: `max_buffers` and `segment_bytes` of the
//! flash crate (`tier/layout.rs`) compute it. The indexes have the bytes that they use and a spare; the items have the
//! rest, and release it in steps while the indexes grow. Beyond the planned part the steps continue up to a quarter of
//! the memory: a byte of index finds ten bytes of small objects on flash and a hundred bytes of large ones. Where flash
//! loses objects and an index shrinks, the items get the memory back. Memory that an index uses is never taken from it:
//! the objects that it finds would be lost.
//!
//! ```text
//! grow:    budgets of items fall by a step ---they have freed it---> the bound of an index grows by the step
//! release: the bound of an index falls to its use and a spare ---at once---> budgets of items grow by as much
//! ```
//! In both directions the giver's bound falls first, so that the sum never exceeds the memory, but while a stop drains
//! (`give_ahead`). No thread waits for a step: maintenance looks again. Until a step is complete an index at its bound
//! drops objects, which are counted.

use ebbtide_flash::Tier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// The spare of an index is two of these parts of the memory, within the bound.
const RESERVE_SHARE: u64 = 256;
/// The pages of an index grow by steps of 40 KiB together: in a small cache the reserve is twice or three times that,
/// or a larger part of the memory.
const MIN_RESERVE: u64 = 128 << 10;
const SMALL_RESERVE_SHARE: u64 = 64;
/// An index does not grow by this much before maintenance has looked again: it has entries of 1.5 to 12 bytes, and a
/// drive takes a few million objects a second.
const MAX_RESERVE: u64 = 16 << 20;
/// The part of the planned memory that keeps issued CAS tokens, 18 bytes each.
pub(crate) const TOKENS_SHARE: u64 = 64;
/// Flash grows up to this part of the memory: with less memory the most used items do not fit.
const MAX_SHARE: u64 = 4;

/// By how many bytes flash may grow, with `flash_bytes` of `all_bytes` now and a bound of its own.
pub(crate) fn max_growth(flash_bytes: u64, all_bytes: u64, max_bytes: u64) -> u64 {
    (all_bytes / MAX_SHARE).min(max_bytes).saturating_sub(flash_bytes)
}

/// Bytes that an index has ahead of its use, of `all_bytes` of memory.
fn reserve_of(all_bytes: u64) -> u64 {
    let min = MIN_RESERVE.min(all_bytes / SMALL_RESERVE_SHARE);
    (all_bytes / RESERVE_SHARE).clamp(min, MAX_RESERVE)
}

/// Bytes of an empty index, of `all_bytes` of memory.
pub(crate) fn spare_of(all_bytes: u64) -> u64 {
    2 * reserve_of(all_bytes)
}

/// The memory of the items: that of the pools, or in tests a model of it.
pub(crate) trait ItemMemory: Send + Sync {
    /// The memory of items and flash together.
    fn all_bytes(&self) -> u64;
    /// Has the budgets follow [`MemorySplit::bytes`], which has changed. False, and they stay, if items need more than
    /// is left.
    fn follow_flash(&self) -> bool;
    /// Whether items hold no more than their budgets.
    fn has_followed(&self) -> bool;
}

/// The memory of flash.
pub(crate) struct MemorySplit {
    /// Includes bytes that the items have not freed yet.
    bytes: AtomicU64,
    /// Memory of flash while its indexes have released nothing. Its buffers, filters and reads are sized by it, and
    /// items never depend on it.
    planned_bytes: u64,
    /// The bound that the options set.
    max_bytes: u64,
    /// Whether items evict: otherwise they could not return the memory that flash releases.
    items_evict: bool,
    /// Bytes that the items must free before flash uses them. Held while the memory of items or of flash changes.
    pending_bytes: Mutex<u64>,
    items: OnceLock<Weak<dyn ItemMemory>>,
}

impl MemorySplit {
    pub fn new(planned_bytes: u64, max_bytes: u64, items_evict: bool) -> Self {
        Self {
            bytes: AtomicU64::new(planned_bytes),
            planned_bytes,
            max_bytes,
            items_evict,
            pending_bytes: Mutex::new(0),
            items: OnceLock::new(),
        }
    }

    pub fn planned_bytes(&self) -> u64 {
        self.planned_bytes
    }

    /// The memory of flash now.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether items free memory for the indexes of flash, or may begin to just now.
    pub fn is_growing(&self) -> bool {
        self.pending_bytes.try_lock().map_or(true, |pending_bytes| *pending_bytes > 0)
    }

    /// Bytes that flash may take at any time, so that items must fit beside them.
    pub fn reserved_bytes(&self) -> u64 {
        self.bytes().max(self.planned_bytes)
    }

    /// Runs a change of the memory of items, with the bytes that flash may take at any time.
    pub fn with_reserved_bytes<T>(&self, change: impl FnOnce(u64) -> T) -> T {
        let _changing = self.pending_bytes.lock().expect("nothing panics under this lock");
        change(self.reserved_bytes())
    }

    /// Divides the memory of a start, before there are items: the indexes release the bytes that they do not use, or
    /// get the bytes for the objects found on flash, if `fits` says that the rest of the memory suffices for items.
    pub fn begin(&self, tier: &Tier, all_bytes: u64, fits: impl Fn(u64) -> bool) {
        let reserve = reserve_of(all_bytes);
        let wanted = tier.wanted_memory(reserve).min(max_growth(self.bytes(), all_bytes, self.max_bytes));
        let is_given = wanted > 0 && fits(all_bytes.saturating_sub(self.bytes() + wanted));
        if is_given && tier.grow_memory(wanted, reserve) {
            self.bytes.fetch_add(wanted, Ordering::Relaxed);
        }
        let released = self.released_by(tier, reserve);
        self.bytes.fetch_sub(released, Ordering::Relaxed);
    }

    /// Bytes that the indexes release.
    fn released_by(&self, tier: &Tier, reserve: u64) -> u64 {
        if self.items_evict { tier.release_memory(reserve) } else { 0 }
    }

    /// From here on items give and take. Once.
    pub fn set_items(&self, items: &Arc<dyn ItemMemory>) {
        let is_first = self.items.set(Arc::downgrade(items)).is_ok();
        assert!(is_first, "flash belongs to one cache");
    }

    /// Asserts that the indexes have the bytes that items gave, less those that they released: a byte that both count
    /// is used twice.
    pub fn verify(&self, tier: &Tier) {
        let pending_bytes = self.pending_bytes.lock().expect("nothing panics under this lock");
        let of_indexes = self.planned_bytes.checked_add_signed(tier.moved_memory());
        assert_eq!(Some(self.bytes() - *pending_bytes), of_indexes, "bytes of flash, and of its indexes and buffers");
    }

    /// Continues a step, or starts one in either direction if one is due. Does not wait: the maintenance of the stores
    /// frees the bytes between two calls.
    pub fn rebalance(&self, tier: &Tier) {
        let Some(items) = self.items.get().and_then(Weak::upgrade) else { return };
        let Ok(mut pending_bytes) = self.pending_bytes.try_lock() else { return };
        let reserve = reserve_of(items.all_bytes());
        if *pending_bytes > 0 {
            if items.has_followed() && tier.grow_memory(*pending_bytes, reserve) {
                *pending_bytes = 0;
            }
            return;
        }
        let wanted = tier.wanted_memory(reserve);
        if wanted == 0 {
            return self.release(tier, &*items, reserve);
        }
        let step = wanted.min(self.growth_left(&*items));
        self.bytes.fetch_add(step, Ordering::Relaxed);
        if step > 0 && items.follow_flash() {
            *pending_bytes = step;
        } else {
            self.bytes.fetch_sub(step, Ordering::Relaxed);
        }
    }

    /// The bytes by which flash may grow.
    fn growth_left(&self, items: &dyn ItemMemory) -> u64 {
        let flash_bytes = self.bytes();
        // Flash of this size was accepted because of its planned bytes: growth may always reach them.
        let planned = self.planned_bytes.saturating_sub(flash_bytes);
        max_growth(flash_bytes, items.all_bytes(), self.max_bytes).max(planned)
    }

    /// Gives the indexes what they want at once, though items have not freed it: for the drain of a stop, after which
    /// nothing is in memory. Until then flash and items may exceed the memory by the entries of what is drained.
    pub fn give_ahead(&self, tier: &Tier) {
        let Some(items) = self.items.get().and_then(Weak::upgrade) else { return };
        let Ok(mut pending_bytes) = self.pending_bytes.try_lock() else { return };
        let reserve = reserve_of(items.all_bytes());
        let step = match *pending_bytes {
            0 => tier.wanted_memory(reserve).min(self.growth_left(&*items)),
            pending => pending,
        };
        if step > 0 && tier.grow_memory(step, reserve) {
            self.bytes.fetch_add(step - *pending_bytes, Ordering::Relaxed);
            *pending_bytes = 0;
        }
    }

    /// Gives the items the bytes that the indexes do not use.
    fn release(&self, tier: &Tier, items: &dyn ItemMemory, reserve: u64) {
        let released = self.released_by(tier, reserve);
        if released > 0 {
            self.bytes.fetch_sub(released, Ordering::Relaxed);
            // Budgets that cannot grow, for want of address space, stay: the memory is unused then.
            items.follow_flash();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memcached::{ByteSize, Cache, Clock};
    use std::sync::atomic::AtomicBool;

    /// Items that give memory when the test says so.
    struct Items {
        all_bytes: u64,
        give: AtomicBool,
        have_freed: AtomicBool,
    }

    impl ItemMemory for Items {
        fn all_bytes(&self) -> u64 {
            self.all_bytes
        }

        fn follow_flash(&self) -> bool {
            self.give.load(Ordering::Relaxed)
        }

        fn has_followed(&self) -> bool {
            self.have_freed.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn flash_grows_to_a_quarter_of_the_memory() {
        assert_eq!(max_growth(100, 1000, u64::MAX), 150);
        assert_eq!(max_growth(100, 1000, 120), 20, "a bound of the options");
        assert_eq!(max_growth(300, 1000, u64::MAX), 0, "flash that was planned with more");
    }

    #[test]
    fn the_index_grows_after_items_free_memory() {
        let folder = tempfile::tempdir().unwrap();
        let builder = Cache::builder().memory(ByteSize::mib(4)).clock(Clock::Manual);
        let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(40)).build().unwrap();
        let tier = &cache.engine().flash().unwrap().tier;
        let (all_bytes, reserve) = (4 << 20, reserve_of(4 << 20));
        let mut number = 0_u32;
        // Ends: each object on flash takes memory of an index, and nothing gives it more.
        while tier.wanted_memory(reserve) == 0 {
            cache.insert(&number.to_le_bytes(), &[7; 60]).apply().unwrap();
            number += 1;
        }
        let items = Arc::new(Items { all_bytes, give: AtomicBool::new(false), have_freed: AtomicBool::new(false) });
        let moved = tier.moved_memory();
        let planned = 512 << 10;
        let split = MemorySplit::new(planned, u64::MAX, true);
        split.set_items(&(Arc::clone(&items) as _));
        split.rebalance(tier);
        assert_eq!((split.bytes(), tier.moved_memory()), (planned, moved), "items that give nothing");
        items.give.store(true, Ordering::Relaxed);
        (0..3).for_each(|_| split.rebalance(tier));
        let step = split.bytes() - planned;
        assert!(step > 0 && tier.moved_memory() == moved, "items that have not freed {step} bytes yet");
        items.have_freed.store(true, Ordering::Relaxed);
        split.rebalance(tier);
        assert_eq!((split.bytes(), tier.moved_memory()), (planned + step, moved + step as i64), "one step");
    }
}
