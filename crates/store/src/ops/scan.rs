//! Scans of all entries, beside other operations.
//!
//! A scan visits a few buckets of the index at a time and holds nothing in between but its position. An entry that is
//! present from the beginning to the end is visited at least once, and exactly once if the index neither grows nor
//! displaces keys meanwhile. An entry that is written, removed or evicted meanwhile may be visited or not. See
//! `index/walk.rs`.

use super::read::Item;
use crate::epoch::{Participant, Pin};
use crate::error::Error;
use crate::index::{BUCKET_SLOTS, Found, IndexWalk, Items, WALKS_MAX, WalkedBucket};
use crate::store::Store;
use crate::time::Moment;
use std::ops::Deref;
use std::sync::Arc;

/// Buckets that are visited under one pin: enough to overlap the cache misses of their items.
const STEP_BUCKETS: usize = 8;

/// A scan in progress. It borrows the store or shares it.
pub struct Scan<S: Deref<Target = Store>> {
    store: S,
    walk: IndexWalk,
}

/// An entry that a scan visits.
pub struct Scanned<'s> {
    pub item: Item<'s>,
    /// How often it was read recently: at most one count per second, halved when it survives an eviction.
    pub frequency: u8,
    /// The approximate time of the last use, or of the write if there was none, in milliseconds of the store's time.
    /// Entries share the words that it is computed from, so it may be too late, by the age of the segment at most.
    pub active_ms: u64,
    /// Bytes of metadata, key and value.
    pub memory_bytes: u64,
}

impl Store {
    /// Begins a scan.
    ///
    /// # Errors
    /// `ScanLimit` if the maximum number of scans is running.
    pub fn scan(self: &Arc<Self>) -> Result<Scan<Arc<Self>>, Error> {
        Scan::begin(Arc::clone(self))
    }
}

impl<S: Deref<Target = Store>> Scan<S> {
    pub(crate) fn begin(store: S) -> Result<Self, Error> {
        let walk = store.index.begin_walk().ok_or(Error::ScanLimit { limit: WALKS_MAX })?;
        Ok(Self { store, walk })
    }

    /// Visits the next entries alive at `now_ms`, at most 112. False when there are no more. The thread is pinned while
    /// `visit` runs.
    pub fn advance(&mut self, participant: &Participant, now_ms: u64, mut visit: impl FnMut(Scanned<'_>)) -> bool {
        let store = &*self.store;
        let moment = store.moment(now_ms);
        let pin = participant.pin();
        let mut meet = |found: Found| {
            if let Some(scanned) = store.scanned(&found, &pin, moment) {
                visit(scanned);
            }
        };
        let visited: [_; STEP_BUCKETS] = std::array::from_fn(|_| store.index.next_bucket(&mut self.walk));
        let slots = || {
            visited.iter().flatten().flat_map(|visited| {
                let full = visited.slots.iter().enumerate().filter(|(_, slot)| !slot.is_empty());
                let WalkedBucket { bucket, control, .. } = *visited;
                full.map(move |(position, slot)| Found { bucket, position, slot: *slot, control })
            })
        };
        slots().for_each(|found| store.prefetch_item(found.slot));
        slots().for_each(&mut meet);
        let met_moved = store.visit_moved(&self.walk, meet);
        visited[0].is_some() || met_moved
    }

    /// The share of the index that has been visited, from 0 to 1.
    pub fn progress(&self) -> f64 {
        self.store.index.walk_progress(&self.walk)
    }
}

impl Store {
    /// An entry for a scan, if it is alive. The caller is pinned.
    fn scanned(&self, found: &Found, pin: &Pin, moment: Moment) -> Option<Scanned<'_>> {
        let item = self.item(found.slot);
        if !self.is_live(&item, moment) {
            return None;
        }
        let frequency = found.slot.frequency();
        let item = self.hit(item, found, pin.clone());
        let unlinked = self.footprint(found.slot);
        let memory_bytes = u64::from(unlinked.size) + unlinked.body_bytes;
        Some(Scanned { active_ms: item.active_ms(moment), item, frequency, memory_bytes })
    }

    /// Visits some of the keys that were moved behind the walk. False if there are none.
    fn visit_moved(&self, walk: &IndexWalk, mut meet: impl FnMut(Found)) -> bool {
        let mut met = false;
        for hash in std::iter::from_fn(|| self.index.next_moved(walk)).take(STEP_BUCKETS * BUCKET_SLOTS) {
            met = true;
            if let Some(found) = self.index.find(hash, |slot| self.hash_at(slot.location()) == hash) {
                meet(found);
            }
        }
        met
    }
}

impl<S: Deref<Target = Store>> Drop for Scan<S> {
    fn drop(&mut self) {
        self.store.index.end_walk(&self.walk);
    }
}
