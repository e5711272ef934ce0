//! What of the memory is for flash. It begins with an eighth, or with what the size of flash needs; while an index of flash has too
//! little, memory goes over to it from the items, step by step: a byte of index finds ten bytes of small objects on flash, a hundred
//! of large ones. It never goes back: what it finds would be gone.

use crate::cache::Shared;
use crate::flash::tier::FlashTier;
use ebbtide_store::Store;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// So much of the memory goes over at a time,
const STEP: u64 = 64;
/// up to so much in all: with less, the items that are asked for all the time have no room.
const MOST: u64 = 4;

/// By how much flash with so much memory may have more in the end, of so much in all, if it may have this at most.
pub(crate) fn max_growth(flash_bytes: u64, all_bytes: u64, most: u64) -> u64 {
    (all_bytes / MOST).min(most).saturating_sub(flash_bytes)
}

/// What flash may take.
pub(crate) struct MemorySplit {
    /// Also what the items still have to leave.
    bytes: AtomicU64,
    /// What whoever built the cache allows.
    most: u64,
    /// What the items have to leave before flash may use it. HeldValue by whoever changes the memory of items or of flash.
    pending_bytes: Mutex<u64>,
}

impl MemorySplit {
    pub fn new(bytes: u64, most: u64) -> Self {
        Self { bytes: AtomicU64::new(bytes), most, pending_bytes: Mutex::new(0) }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Runs a change of the memory of items, with what flash has.
    pub fn with_flash_bytes<T>(&self, change: impl FnOnce(u64) -> T) -> T {
        let _changing = self.pending_bytes.lock().expect("nobody panics with it");
        change(self.bytes())
    }
}

impl FlashTier {
    /// Goes on with giving memory to flash, if an index needs it; says whether there is more to do. To be called again and again, with the
    /// maintenance of the store in between. Does not wait.
    pub fn rebalance_memory(&self, store: &Store) -> bool {
        self.promotions.note_memory(store.memory_bytes());
        let Ok(mut pending_bytes) = self.memory_split.pending_bytes.try_lock() else { return false };
        if *pending_bytes > 0 {
            if store.resize_done() {
                self.tier.grow_memory(*pending_bytes);
                *pending_bytes = 0;
            }
            return true;
        }
        let (items, flash) = (store.memory_bytes(), self.memory_split.bytes());
        let step = (items + flash) / STEP;
        let is_allowed = step <= max_growth(flash, items + flash, self.memory_split.most);
        // Items that need all that they have keep it.
        if !self.tier.wants_memory() || !is_allowed || store.resize(items - step).is_err() {
            return false;
        }
        self.memory_split.bytes.fetch_add(step, Ordering::Relaxed);
        *pending_bytes = step;
        true
    }
}

impl Shared {
    /// As [`FlashTier::rebalance_memory`], if there is flash.
    pub fn rebalance_memory(&self) {
        self.flash.as_ref().map(|flash| flash.rebalance_memory(&self.store));
    }
}
