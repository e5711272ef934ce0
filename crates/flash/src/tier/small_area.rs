//! The store of small objects, which is absent until the capacity is split. Small objects are in the log of large
//! objects until then, and for as long as too few of them arrive.

use crate::object::Unread;
use crate::small::{SmallDrop, SmallStore, Stats};
use crate::{Error, FlashHash, FlashLookup, Key, Object, OnLookup, ScannedObject, Token};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Default)]
pub(super) struct SmallArea {
    store: OnceLock<SmallStore>,
    /// Lookups while there was no store.
    absent: AtomicU64,
}

impl SmallArea {
    /// Sets the store. Called at most once.
    pub fn set(&self, store: SmallStore) {
        assert!(self.store.set(store).is_ok(), "there is one store of small objects");
    }

    pub fn is_there(&self) -> bool {
        self.store.get().is_some()
    }

    /// None if there is no store.
    pub fn insert(&self, object: &Object<'_>, now: u32) -> Option<Result<Token, SmallDrop>> {
        Some(self.store.get()?.insert(object, now))
    }

    pub fn lookup(&self, key: Key<'_>, now: u32, done: OnLookup) -> FlashLookup {
        match self.store.get() {
            Some(store) => store.lookup(key, now, done),
            None => {
                self.absent.fetch_add(1, Relaxed);
                FlashLookup::Absent
            }
        }
    }

    pub fn could_exist(&self, hash: FlashHash) -> bool {
        self.store.get().is_some_and(|store| store.could_exist(hash))
    }

    /// As [`SmallStore::is_unclean`].
    pub fn is_unclean(&self) -> bool {
        self.store.get().is_some_and(|store| store.is_unclean())
    }

    pub fn remove(&self, hash: FlashHash) -> bool {
        self.store.get().is_some_and(|store| store.remove(hash))
    }

    pub fn is_current(&self, hash: FlashHash, token: Token) -> bool {
        self.store.get().is_some_and(|store| store.is_current(hash, token))
    }

    pub fn next_order(&self) -> u64 {
        self.store.get().map_or(0, |store| store.next_order())
    }

    /// Writes a checkpoint at the start of an area; returns its end.
    pub fn checkpoint(&self, area: Range<u64>, now: u32) -> Result<u64, Error> {
        let Some(store) = self.store.get() else { return Ok(area.start) };
        Ok(area.start + store.checkpoint(area, now)?)
    }

    pub fn flush(&self) {
        self.store.get().inspect(|store| store.flush());
    }

    pub fn has_space(&self) -> bool {
        self.store.get().is_none_or(|store| store.has_space())
    }

    pub fn maintain(&self, now: u32) {
        self.store.get().inspect(|store| store.maintain(now));
    }

    /// As [`SmallStore::advance_scan`]; the walk is over at once if there is no store.
    pub fn advance_scan(
        &self,
        from: u32,
        unread: Unread,
        now: u32,
        visit: &mut dyn FnMut(ScannedObject<'_>),
    ) -> Option<u32> {
        self.store.get()?.advance_scan(from, unread, now, visit)
    }

    pub fn sets(&self) -> u32 {
        self.store.get().map_or(0, |store| store.sets())
    }

    pub fn stats(&self) -> Stats {
        let mut stats = self.store.get().map_or_else(Stats::default, SmallStore::stats);
        stats.counts.lookups += self.absent.load(Relaxed);
        stats
    }

    pub fn undecided_lookups(&self) -> u64 {
        self.store.get().map_or(0, SmallStore::undecided_lookups)
    }

    pub fn index_bytes(&self) -> usize {
        self.store.get().map_or(0, |store| store.index_bytes())
    }

    pub fn wanted_memory(&self, reserve: usize) -> usize {
        self.store.get().map_or(0, |store| store.wanted_memory(reserve))
    }

    pub fn release_index(&self, reserve: usize) -> usize {
        self.store.get().map_or(0, |store| store.release_index(reserve))
    }

    pub fn grow_index(&self, bytes: usize) {
        self.store.get().inspect(|store| store.grow_index(bytes));
    }

    pub fn memory_bytes(&self) -> usize {
        self.store.get().map_or(0, |store| store.memory_bytes())
    }

    pub fn verify(&self) {
        self.store.get().inspect(|store| store.verify());
    }
}
