//! What lies below a store: it takes what evictions discard, and answers for keys that the store does not have.
//!
//! ```text
//! evict      lock key   demote(item)        slot goes              unlock
//! change     lock key   remove(key)         slot changes           unlock
//! promote    lock key   is_current(copy)?   slot of the copy       unlock
//! believe    lock key   is_current(copy)?   no slot                unlock
//! ```
//! A key's copy below is made, believed and forgotten under the lock of the key's buckets, so at any time it is the key's
//! value: the store has no item of the key, or one that was made of the copy and has not changed. Whoever finds nothing in
//! the store may look below without a lock. What is promoted is a plain item; a number that changes in place never is one, so
//! it has no copy.

use crate::epoch::Participant;
#[cfg(not(loom))]
use crate::index::Found;
use crate::index::{Control, Slot};
use crate::ops::Item;
use crate::store::{Condition, Store};
#[cfg(not(loom))]
use crate::sync::Ordering;
use crate::time::Moment;

/// All but `flush` are called with the lock of a key's buckets held: they must be quick, and must not use the store.
pub trait Below: Send + Sync {
    /// Copies an item that is evicted, or not. An older copy of the key is found no more in any case.
    fn demote(&self, item: &Item<'_>, now_ms: u64);

    /// Whether no flush was under way at the time of the call, and afterwards the copy of the key that `copy` names was what would
    /// be found.
    fn is_current(&self, key: &[u8], copy: u64) -> bool;

    /// From now on no copy of the key is found. True if there may have been one.
    fn remove(&self, key: &[u8]) -> bool;

    /// Calls `raise` once: everything stored before is worthless then. Afterwards no copy that was there is found. From
    /// before the call of `raise` until then no copy is current.
    fn flush(&self, raise: &mut dyn FnMut());
}

impl Store {
    /// Puts something below the store, for as long as it lives.
    ///
    /// # Panics
    /// If something is there already.
    pub fn put_below(&self, below: Box<dyn Below>) {
        assert!(self.below.set(below).is_ok(), "one thing lies below a store");
    }

    /// Whether a copy of the key that was found below is the key's value at this moment, so that it can be an answer. False also
    /// where the store has an item of the key: that is the answer.
    pub fn believes(&self, key: &[u8], hash: u64, copy: u64, now_ms: u64) -> bool {
        // A delayed flush whose time has come is done before.
        self.moment(now_ms);
        let pair = self.index.lock_pair(hash);
        let is_absent = pair.find(|slot| self.is_key(slot, key)).is_none();
        is_absent && self.below.get().is_some_and(|below| below.is_current(key, copy))
    }

    /// An item that maintenance takes out of the index goes below. Its bucket, whose control word is `control`, is locked, and
    /// the slot still there.
    #[inline]
    pub(crate) fn hand_down(&self, participant: &Participant, slot: Slot, control: Control, moment: Moment) {
        // The models lend no bytes, and have nothing below.
        #[cfg(loom)]
        let _ = (participant, slot, control, moment);
        #[cfg(not(loom))]
        if let Some(below) = self.below.get() {
            let found = Found { bucket: 0, position: 0, slot, control };
            let item = self.hit(self.item(slot), &found, participant.pin());
            if !self.is_live(&item.item_at(), moment) {
                below.remove(item.key());
                return;
            }
            // Acquire pairs with the Release in `raise_generation`.
            let generation = self.generation.load(Ordering::Acquire);
            below.demote(&item, moment.ms);
            if self.generation.load(Ordering::Acquire) != generation || !self.is_live(&item.item_at(), moment) {
                // The flush may have forgotten all copies before this one was made.
                below.remove(item.key());
            }
        }
    }

    /// A locked key changes on a condition that is met: its copy below is its value no more. True if there may have been one.
    #[inline]
    pub(crate) fn forget_below(&self, key: &[u8], condition: Condition, has_slot: bool) -> bool {
        let remove = || self.below.get().is_some_and(|below| below.remove(key));
        match condition {
            // The copy becomes the item.
            Condition::Copy(_) => false,
            // The caller has looked, and knows better than a filter that takes the key for another one.
            Condition::Found(copy) => remove() && copy.is_some() && !has_slot,
            _ => remove(),
        }
    }
}
