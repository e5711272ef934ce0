//! Inserts.

use super::{STRIPES, Tier, token_of_large};
use crate::admission::{Decision, Limits, Offer};
use crate::deletion_log::StoreKind;
use crate::{Object, Token};
use std::sync::atomic::Ordering::Relaxed;

/// Whether the log may refuse an object in favour of copies of hit objects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    New,
    Kept,
}

impl Tier {
    /// The limits of admission, which apply under every policy.
    pub fn limits(&self) -> Limits {
        self.admission.limits()
    }

    pub fn set_limits(&self, limits: Limits) {
        self.admission.set_limits(limits);
    }

    /// Inserts an object, in place of any older version of its key. Lookups find it from now on. `now` is in seconds
    /// since 1970. Never waits for the device. `None` if it is not inserted, which is counted by reason; then no older
    /// version is found either. The caller must remove a version with another value before: an insert alone is not
    /// logged, and the replaced version might be found after a crash.
    pub fn insert(&self, object: &Object<'_>, now: u32) -> Option<Token> {
        let hash = object.key.hash;
        let now = self.observe_time(now);
        let _one = self.inserting[hash.0 as usize % STRIPES].lock().unwrap();
        if self.has_failed(now) {
            self.dropped_failed.fetch_add(1, Relaxed);
            self.remove(hash);
            return None;
        }
        let bytes = object.key.bytes.len() + object.value_bytes();
        let offer = Offer { key: hash, bytes, value_bytes: object.value_bytes(), expiry: object.expiry };
        if self.admission.offer(&offer, now) != Decision::Admit {
            self.remove(hash);
            return None;
        }
        self.place(object, now, Rank::New)
    }

    /// Tells ahead that an object of this length may be inserted: the maintenance that follows makes space for it.
    pub fn expect(&self, key_bytes: usize, value_bytes: usize) {
        self.large.expect(key_bytes, value_bytes);
    }

    /// As [`Tier::insert`], without admission, and even where the log prefers copies of hit objects: for objects that
    /// would be lost otherwise. The caller checks [`Tier::limits`] and [`Tier::write_budget`].
    pub fn insert_past_admission(&self, object: &Object<'_>, now: u32) -> Option<Token> {
        let now = self.observe_time(now);
        let _one = self.inserting[object.key.hash.0 as usize % STRIPES].lock().unwrap();
        if self.has_failed(now) {
            self.dropped_failed.fetch_add(1, Relaxed);
            self.remove(object.key.hash);
            return None;
        }
        self.place(object, now, Rank::Kept)
    }

    /// Bytes per second that may be written to the device; `None` without a budget.
    pub fn write_budget(&self) -> Option<f64> {
        self.admission.budget_bytes_per_second()
    }

    /// Whether the write budget has something left for an insert that no eviction requires. `now` as for
    /// [`Tier::insert`].
    pub fn has_write_budget(&self, now: u32) -> bool {
        self.admission.has_budget(now)
    }

    /// Writes the object to the store for its size. The stripe of its key is locked.
    fn place(&self, object: &Object<'_>, now: u32, rank: Rank) -> Option<Token> {
        let hash = object.key.hash;
        let bytes = object.key.bytes.len() + object.value_bytes();
        if self.is_closed.load(Relaxed) {
            self.dropped_closed.fetch_add(1, Relaxed);
            return None;
        }
        // An object of an ended incarnation would not be found.
        let pool = self.pools.live.find(object.key.pool)?;
        let record = self.capacity_split.record(object);
        self.capacity_split.record_arrival(record, bytes);
        if record.is_some() && self.small.is_there() {
            self.remove_large(hash);
            if let Some(inserted) = self.small.insert(object, now) {
                inserted.iter().for_each(|_| pool.note_written(bytes));
                return inserted.inspect_err(|_| _ = self.remove_small(hash)).ok();
            }
        }
        self.remove_small(hash);
        if rank == Rank::New && self.large.prefers_copies(object) {
            self.displaced.fetch_add(1, Relaxed);
            self.remove_large(hash);
            return None;
        }
        if rank == Rank::New && pool.is_above_share() && self.large.is_full() {
            pool.note_refused(bytes);
            self.remove_large(hash);
            return None;
        }
        match self.large.insert(object, now) {
            Ok(inserted) => {
                pool.note_written(bytes);
                if inserted.replaced {
                    self.log(StoreKind::Large, hash, inserted.order);
                }
                Some(token_of_large(inserted.token))
            }
            Err(_) => {
                self.remove_large(hash);
                None
            }
        }
    }
}
