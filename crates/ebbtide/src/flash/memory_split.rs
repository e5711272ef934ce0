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

    /// Continues a step, or starts one if an index needs it. True if there is more to do. Does not wait: the
    /// maintenance of the store frees the bytes between two calls.
    pub fn rebalance(&self, tier: &Tier, store: &Store) -> bool {
        let Ok(mut pending_bytes) = self.pending_bytes.try_lock() else { return false };
        if *pending_bytes > 0 {
            if store.resize_done() {
                tier.grow_memory(*pending_bytes);
                *pending_bytes = 0;
            }
            return true;
        }
        let (items, flash) = (store.memory_bytes(), self.bytes());
        let step = (items + flash) / STEP_SHARE;
        let is_allowed = step <= max_growth(flash, items + flash, self.max_bytes);
        // A store that needs all of its memory keeps it.
        if !tier.wants_memory() || !is_allowed || store.resize(items - step).is_err() {
            return false;
        }
        self.bytes.fetch_add(step, Ordering::Relaxed);
        *pending_bytes = step;
        true
    }
}
