//! Demotion to the lower tier: an evicted item is copied there, and a change of its key invalidates the copy.
//!
//! The protocol is drawn in `lower_tier`.

use crate::condition::Condition;
use crate::epoch::Participant;
#[cfg(not(loom))]
use crate::index::Found;
use crate::index::{Control, Slot};
#[cfg(not(loom))]
use crate::kill_point::{KillPoint, kill_point};
use crate::lower_copy::LowerCopy;
use crate::lower_tier::LowerTier;
use crate::store::Store;
#[cfg(not(loom))]
use crate::sync::Ordering;
use crate::time::Moment;

impl Store {
    /// Sets the lower tier, for as long as the store exists.
    ///
    /// # Panics
    /// If a lower tier is set already.
    pub fn set_lower_tier(&self, tier: Box<dyn LowerTier>) {
        assert!(self.lower_tier.set(tier).is_ok(), "a store has one lower tier");
    }

    /// Whether a copy found in the lower tier is the value of its key now, so that it can be an answer. False if the
    /// store has an item of the key, which is the answer then.
    pub fn is_current_copy(&self, key: &[u8], hash: u64, copy: LowerCopy, now_ms: u64) -> bool {
        self.token_of_copy(key, hash, copy, now_ms).is_some()
    }

    /// As [`Store::is_current_copy`], with the CAS token to return for the copy: the one that was issued for the value
    /// and is retained, else [`Store::invalid_token`]. None is issued anew.
    pub fn token_of_copy(&self, key: &[u8], hash: u64, copy: LowerCopy, now_ms: u64) -> Option<u64> {
        // Executes a delayed flush whose time has come.
        self.moment(now_ms);
        let pair = self.index.lock_pair(hash);
        let is_absent = pair.find(|slot| self.is_key(slot, key)).is_none();
        let is_current = is_absent && self.lower_tier.get().is_some_and(|tier| tier.is_current(copy));
        // Under the lock: after it, the token may be that of a later value.
        is_current.then(|| self.issued_token(hash).unwrap_or_else(|| self.invalid_token()))
    }

    /// Demotes an item that maintenance removes. Its bucket, with this control word, is locked, and its slot still in
    /// place. True if the lower tier has a copy of it now.
    #[inline]
    pub(crate) fn demote(&self, participant: &Participant, slot: Slot, control: Control, moment: Moment) -> bool {
        // Loom models have no lower tier.
        #[cfg(loom)]
        let _ = (participant, slot, control, moment);
        #[cfg(not(loom))]
        if let Some(tier) = self.lower_tier.get() {
            let found = Found { bucket: 0, position: 0, slot, control };
            let item = self.hit(self.item(slot), &found, participant.pin());
            if !self.is_live(&item.item_at(), moment) {
                tier.remove(item.key());
                return false;
            }
            // Acquire pairs with the Release in `advance_generation`.
            let generation = self.generation.load(Ordering::Acquire);
            let is_taken = tier.demote(&item, moment.ms);
            kill_point(KillPoint::Demotion);
            if self.generation.load(Ordering::Acquire) != generation || !self.is_live(&item.item_at(), moment) {
                // The flush may have invalidated all copies before this one was made.
                tier.remove(item.key());
                return false;
            }
            return is_taken;
        }
        false
    }

    /// After a demotion by maintenance, when no bucket is locked.
    #[inline]
    pub(crate) fn settle_lower_tier(&self, moment: Moment) {
        if let Some(tier) = self.lower_tier.get() {
            tier.settle(moment.ms);
        }
    }

    /// A locked key changes: invalidates its copy, and its issued token unless the new item keeps it. True if there may
    /// have been a copy.
    #[inline]
    pub(crate) fn invalidate_copy(
        &self,
        (key, hash): (&[u8], u64),
        condition: Condition,
        has_slot: bool,
        keeps_token: bool,
    ) -> bool {
        let Some(tier) = self.lower_tier.get() else { return false };
        // The copy becomes the item, with the token that was issued for the value.
        if matches!(condition, Condition::Copy(_)) {
            return false;
        }
        if !keeps_token {
            self.forget_issued_token(hash);
        }
        let had_copy = tier.remove(key);
        match condition {
            // The caller has searched; `remove` may have taken the key for another one.
            Condition::Found(copy) => had_copy && copy.is_some() && !has_slot,
            _ => had_copy,
        }
    }
}
