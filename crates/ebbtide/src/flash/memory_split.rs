//! The division of memory between items and flash.
//!
//! Flash starts with an eighth of the memory, or with what the size of flash needs. While an index of flash is near its
//! bound, memory moves from the items to flash, one step at a time: a byte of index finds ten bytes of small objects on
//! flash and a hundred bytes of large ones. Memory never moves back: the objects that it finds would be lost.
//!
//! ```text
//! items shrink by a step ---the store has freed it---> the index's bound grows by the step
//! ```

use ebbtide_flash::Tier;
use ebbtide_store::Store;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A step is this part of the memory.
const STEP_SHARE: u64 = 64;
/// Flash grows up to this part of the memory: with less memory the most used items do not fit.
const MAX_SHARE: u64 = 4;

/// The items that give memory to flash: stores before they are pools, or all pools together.
pub(crate) trait MemoryGiver {
    /// Memory of all items and of flash, which has `flash_bytes` of it.
    fn all_bytes(&self, flash_bytes: u64) -> u64;
    /// Begins to free `bytes`, which flash counts as its own already. False if the items need them.
    fn give(&self, bytes: u64) -> bool;
    /// Whether what was given is free.
    fn has_given(&self) -> bool;
}

/// Each gives in proportion to its memory, or none does.
impl MemoryGiver for [Store] {
    fn all_bytes(&self, flash_bytes: u64) -> u64 {
        self.iter().map(Store::memory_bytes).sum::<u64>() + flash_bytes
    }

    fn give(&self, bytes: u64) -> bool {
        let all_bytes = u128::from(self.all_bytes(0)).max(1);
        let before: Vec<u64> = self.iter().map(Store::memory_bytes).collect();
        let after = |has: u64| has - (u128::from(bytes) * u128::from(has)).div_ceil(all_bytes).min(has.into()) as u64;
        let is_given = self.iter().zip(&before).all(|(store, has)| store.resize(after(*has)).is_ok());
        if !is_given {
            // What a store has just had it can have again.
            self.iter().zip(&before).for_each(|(store, has)| _ = store.resize(*has));
        }
        is_given
    }

    fn has_given(&self) -> bool {
        self.iter().all(Store::resize_done)
    }
}

/// By how many bytes flash may grow, with `flash_bytes` of `all_bytes` now and a bound of its own.
pub(crate) fn max_growth(flash_bytes: u64, all_bytes: u64, max_bytes: u64) -> u64 {
    (all_bytes / MAX_SHARE).min(max_bytes).saturating_sub(flash_bytes)
}

/// The memory of flash.
pub(crate) struct MemorySplit {
    /// Includes bytes that the items have not freed yet.
    bytes: AtomicU64,
    /// The bound that the options set.
    max_bytes: u64,
    /// Bytes that the items must free before flash uses them. Held while the memory of items or of flash changes.
    pending_bytes: Mutex<u64>,
}

impl MemorySplit {
    pub fn new(bytes: u64, max_bytes: u64) -> Self {
        Self { bytes: AtomicU64::new(bytes), max_bytes, pending_bytes: Mutex::new(0) }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Runs a change of the memory of items, with the bytes of flash.
    pub fn with_flash_bytes<T>(&self, change: impl FnOnce(u64) -> T) -> T {
        let _changing = self.pending_bytes.lock().expect("nothing panics under this lock");
        change(self.bytes())
    }

    /// Whether `rebalance` has something to do.
    pub fn is_due(&self, tier: &Tier) -> bool {
        self.pending_bytes.try_lock().is_ok_and(|pending_bytes| *pending_bytes > 0) || tier.wants_memory()
    }

    /// Continues a step, or starts one if an index needs it. True if there is more to do. Does not wait: the
    /// maintenance of the stores frees the bytes between two calls.
    pub fn rebalance(&self, tier: &Tier, items: &(impl MemoryGiver + ?Sized)) -> bool {
        let Ok(mut pending_bytes) = self.pending_bytes.try_lock() else { return false };
        if *pending_bytes > 0 {
            if items.has_given() {
                tier.grow_memory(*pending_bytes);
                *pending_bytes = 0;
            }
            return true;
        }
        let flash_bytes = self.bytes();
        let all_bytes = items.all_bytes(flash_bytes);
        let step = all_bytes / STEP_SHARE;
        if !tier.wants_memory() || step > max_growth(flash_bytes, all_bytes, self.max_bytes) {
            return false;
        }
        self.bytes.fetch_add(step, Ordering::Relaxed);
        // Items that need all of their memory keep it.
        if !items.give(step) {
            self.bytes.fetch_sub(step, Ordering::Relaxed);
            return false;
        }
        *pending_bytes = step;
        true
    }
}
