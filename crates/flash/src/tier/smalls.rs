//! The store of small objects, which is not there before it is known how much of the capacity it needs: until then, and where they
//! need next to none, small objects lie among the large ones. It ends when large objects need its area.

use crate::device::Device;
use crate::small::{Dropped, Legacy, Options, SmallStore, Stats};
use crate::{Done, Error, Key, KeyHash, Lookup, Met, Object, Token};
use arc_swap::ArcSwapOption;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

#[derive(Default)]
pub(super) struct Smalls {
    store: ArcSwapOption<SmallStore>,
    /// Of the store before, or of the one that is there, which counts with the same counters.
    legacy: Mutex<Legacy>,
    /// Lookups while there was no store.
    absent: AtomicU64,
}

impl Smalls {
    /// An empty store that can be the next one.
    pub fn next(&self, device: Arc<dyn Device>, area: Range<u64>, options: Options) -> Result<SmallStore, Error> {
        SmallStore::after(&self.legacy.lock().unwrap(), device, area, options)
    }

    /// While there is none.
    pub fn set(&self, store: SmallStore) {
        *self.legacy.lock().unwrap() = store.legacy();
        let before = self.store.swap(Some(Arc::new(store)));
        assert!(before.is_none(), "there is one store of small objects");
    }

    /// All small objects are gone, and nothing of them is being written when this returns. Waits for the device, and says no if that does
    /// nothing for long: then nothing has changed.
    pub fn end(&self) -> bool {
        let Some(store) = self.store.load_full() else { return true };
        let Some(legacy) = store.end() else { return false };
        *self.legacy.lock().unwrap() = legacy;
        self.store.store(None);
        true
    }

    pub fn is_there(&self) -> bool {
        self.store.load().is_some()
    }

    /// None if there is no store.
    pub fn insert(&self, object: &Object<'_>, now: u32) -> Option<Result<Token, Dropped>> {
        Some(self.store.load().as_ref()?.insert(object, now))
    }

    pub fn lookup(&self, key: Key<'_>, now: u32, done: Done) -> Lookup {
        match &*self.store.load() {
            Some(store) => store.lookup(key, now, done),
            None => {
                self.absent.fetch_add(1, Relaxed);
                Lookup::Absent
            }
        }
    }

    pub fn could_exist(&self, hash: KeyHash) -> bool {
        self.store.load().as_ref().is_some_and(|store| store.could_exist(hash))
    }

    pub fn remove(&self, hash: KeyHash) -> bool {
        self.store.load().as_ref().is_some_and(|store| store.remove(hash))
    }

    pub fn is_current(&self, hash: KeyHash, token: Token) -> bool {
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

    pub fn has_room(&self) -> bool {
        self.store.load().as_ref().is_none_or(|store| store.has_room())
    }

    pub fn maintain(&self, now: u32) {
        self.store.load().as_ref().inspect(|store| store.maintain(now));
    }

    /// As [`SmallStore::walk_on`]: nothing to walk over if there is no store.
    pub fn walk_on(&self, from: u32, now: u32, visit: &mut dyn FnMut(Met<'_>)) -> Option<u32> {
        self.store.load_full()?.walk_on(from, now, visit)
    }

    pub fn sets(&self) -> u32 {
        self.store.load().as_ref().map_or(0, |store| store.sets())
    }

    pub fn stats(&self) -> Stats {
        let legacy = || Stats { counts: self.legacy.lock().unwrap().counts(), ..Stats::default() };
        let mut stats = self.store.load().as_ref().map_or_else(legacy, |store| store.stats());
        stats.counts.lookups += self.absent.load(Relaxed);
        stats
    }

    pub fn wants_memory(&self) -> bool {
        self.store.load().as_ref().is_some_and(|store| store.wants_memory())
    }

    pub fn raise_index(&self, bytes: usize) {
        self.store.load().as_ref().inspect(|store| store.raise_index(bytes));
    }

    pub fn memory_bytes(&self) -> usize {
        self.store.load().as_ref().map_or(0, |store| store.memory_bytes())
    }

    pub fn verify(&self) {
        self.store.load().as_ref().inspect(|store| store.verify());
    }
}
