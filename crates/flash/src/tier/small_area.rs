//! The store of small objects, which is not there before it is known how much of the capacity it needs: until then, and where they
//! need next to none, small objects lie among the large ones. It ends when large objects need its area.

use crate::device::Device;
use crate::small::{Options, SmallDrop, SmallStore, Stats, StorePredecessor};
use crate::{Error, FlashHash, FlashLookup, Key, Object, OnLookup, ScannedObject, Token};
use arc_swap::ArcSwapOption;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

#[derive(Default)]
pub(super) struct SmallArea {
    store: ArcSwapOption<SmallStore>,
    /// Of the store before, or of the one that is there, which counts with the same counters.
    predecessor: Mutex<StorePredecessor>,
    /// Lookups while there was no store.
    absent: AtomicU64,
}

impl SmallArea {
    /// An empty store that can be the next one.
    pub fn next(&self, device: Arc<dyn Device>, area: Range<u64>, options: Options) -> Result<SmallStore, Error> {
        SmallStore::after(&self.predecessor.lock().unwrap(), device, area, options)
    }

    /// While there is none.
    pub fn set(&self, store: SmallStore) {
        *self.predecessor.lock().unwrap() = store.predecessor();
        let before = self.store.swap(Some(Arc::new(store)));
        assert!(before.is_none(), "there is one store of small objects");
    }

    /// All small objects are gone, and nothing of them is being written when this returns. Waits for the device, and says no if that does
    /// nothing for long: then nothing has changed.
    pub fn end(&self) -> bool {
        let Some(store) = self.store.load_full() else { return true };
        let Some(predecessor) = store.end() else { return false };
        *self.predecessor.lock().unwrap() = predecessor;
        self.store.store(None);
        true
    }

    pub fn is_there(&self) -> bool {
        self.store.load().is_some()
    }

    /// None if there is no store.
    pub fn insert(&self, object: &Object<'_>, now: u32) -> Option<Result<Token, SmallDrop>> {
        Some(self.store.load().as_ref()?.insert(object, now))
    }

    pub fn lookup(&self, key: Key<'_>, now: u32, done: OnLookup) -> FlashLookup {
        match &*self.store.load() {
            Some(store) => store.lookup(key, now, done),
            None => {
                self.absent.fetch_add(1, Relaxed);
                FlashLookup::Absent
            }
        }
    }

    pub fn could_exist(&self, hash: FlashHash) -> bool {
        self.store.load().as_ref().is_some_and(|store| store.could_exist(hash))
    }

    pub fn remove(&self, hash: FlashHash) -> bool {
        self.store.load().as_ref().is_some_and(|store| store.remove(hash))
    }

    pub fn is_current(&self, hash: FlashHash, token: Token) -> bool {
        self.store.load().as_ref().is_some_and(|store| store.is_current(hash, token))
    }

    pub fn next_order(&self) -> u64 {
        self.store.load().as_ref().map_or(0, |store| store.next_order())
    }

    /// Writes a checkpoint at the beginning of an area; says where it ends.
    pub fn checkpoint(&self, area: Range<u64>, now: u32) -> Result<u64, Error> {
        let Some(store) = &*self.store.load() else { return Ok(area.start) };
        Ok(area.start + store.checkpoint(area, now)?)
    }

    pub fn flush(&self) {
        self.store.load().as_ref().inspect(|store| store.flush());
    }

    pub fn has_space(&self) -> bool {
        self.store.load().as_ref().is_none_or(|store| store.has_space())
    }

    pub fn maintain(&self, now: u32) {
        self.store.load().as_ref().inspect(|store| store.maintain(now));
    }

    /// As [`SmallStore::advance_scan`]: nothing to walk over if there is no store.
    pub fn advance_scan(&self, from: u32, now: u32, visit: &mut dyn FnMut(ScannedObject<'_>)) -> Option<u32> {
        self.store.load_full()?.advance_scan(from, now, visit)
    }

    pub fn sets(&self) -> u32 {
        self.store.load().as_ref().map_or(0, |store| store.sets())
    }

    pub fn stats(&self) -> Stats {
        let predecessor = || Stats { counts: self.predecessor.lock().unwrap().counts(), ..Stats::default() };
        let mut stats = self.store.load().as_ref().map_or_else(predecessor, |store| store.stats());
        stats.counts.lookups += self.absent.load(Relaxed);
        stats
    }

    pub fn wants_memory(&self) -> bool {
        self.store.load().as_ref().is_some_and(|store| store.wants_memory())
    }

    pub fn grow_index(&self, bytes: usize) {
        self.store.load().as_ref().inspect(|store| store.grow_index(bytes));
    }

    pub fn memory_bytes(&self) -> usize {
        self.store.load().as_ref().map_or(0, |store| store.memory_bytes())
    }

    pub fn verify(&self) {
        self.store.load().as_ref().inspect(|store| store.verify());
    }
}
