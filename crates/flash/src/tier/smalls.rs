//! The store of small objects, which is not there before it is known how much of the capacity it needs: until then, and where they
//! need next to none, small objects lie among the large ones.

use crate::small::{Dropped, SmallStore, Stats};
use crate::{Done, Error, Key, KeyHash, Lookup, Met, Object, Token};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Default)]
pub(super) struct Smalls {
    store: OnceLock<SmallStore>,
    /// Lookups while there was no store.
    absent: AtomicU64,
}

impl Smalls {
    /// Once.
    pub fn set(&self, store: SmallStore) {
        assert!(self.store.set(store).is_ok(), "there is one store of small objects");
    }

    pub fn is_there(&self) -> bool {
        self.store.get().is_some()
    }

    /// None if there is no store.
    pub fn insert(&self, object: &Object<'_>, now: u32) -> Option<Result<Token, Dropped>> {
        Some(self.store.get()?.insert(object, now))
    }

    pub fn lookup(&self, key: Key<'_>, now: u32, done: Done) -> Lookup {
        match self.store.get() {
            Some(store) => store.lookup(key, now, done),
            None => {
                self.absent.fetch_add(1, Relaxed);
                Lookup::Absent
            }
        }
    }

    pub fn could_exist(&self, hash: KeyHash) -> bool {
        self.store.get().is_some_and(|store| store.could_exist(hash))
    }

    pub fn remove(&self, hash: KeyHash) -> bool {
        self.store.get().is_some_and(|store| store.remove(hash))
    }

    pub fn is_current(&self, hash: KeyHash, token: Token) -> bool {
        self.store.get().is_some_and(|store| store.is_current(hash, token))
    }

    pub fn next_order(&self) -> u64 {
        self.store.get().map_or(0, SmallStore::next_order)
    }

    /// Writes a checkpoint at the beginning of an area; says where it ends.
    pub fn checkpoint(&self, area: Range<u64>, now: u32) -> Result<u64, Error> {
        let Some(store) = self.store.get() else { return Ok(area.start) };
        Ok(area.start + store.checkpoint(area, now)?)
    }

    pub fn flush(&self) {
        self.store.get().inspect(|store| store.flush());
    }

    pub fn has_room(&self) -> bool {
        self.store.get().is_none_or(SmallStore::has_room)
    }

    pub fn maintain(&self, now: u32) {
        self.store.get().inspect(|store| store.maintain(now));
    }

    /// As [`SmallStore::walk_on`]: nothing to walk over if there is no store.
    pub fn walk_on(&self, from: u32, now: u32, visit: &mut dyn FnMut(Met<'_>)) -> Option<u32> {
        self.store.get()?.walk_on(from, now, visit)
    }

    pub fn sets(&self) -> u32 {
        self.store.get().map_or(0, SmallStore::sets)
    }

    pub fn stats(&self) -> Stats {
        let mut stats = self.store.get().map_or_else(Stats::default, SmallStore::stats);
        stats.counts.lookups += self.absent.load(Relaxed);
        stats
    }

    pub fn wants_memory(&self) -> bool {
        self.store.get().is_some_and(SmallStore::wants_memory)
    }

    pub fn raise_index(&self, bytes: usize) {
        self.store.get().inspect(|store| store.raise_index(bytes));
    }

    pub fn memory_bytes(&self) -> usize {
        self.store.get().map_or(0, SmallStore::memory_bytes)
    }

    pub fn verify(&self) {
        self.store.get().inspect(|store| store.verify());
    }
}
