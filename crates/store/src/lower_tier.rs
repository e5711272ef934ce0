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

use crate::condition::Condition;
use crate::epoch::Participant;
#[cfg(not(loom))]
use crate::index::Found;
use crate::index::{Control, Slot, SlotPlace};
use crate::issued_tokens::IssuedTokens;
#[cfg(not(loom))]
use crate::item::Kind;
use crate::ops::Item;
use crate::store::Store;
#[cfg(not(loom))]
use crate::sync::Ordering;
use crate::time::Moment;

/// All but `flush` are called with the lock of a key's buckets held: they must be quick, and must not use the store.
pub trait LowerTier: Send + Sync {
    /// Copies an item that is evicted, or not. An older copy of the key is found no more in any case.
    fn demote(&self, item: &Item<'_>, now_ms: u64);

    /// Whether no flush was under way at the time of the call, and afterwards the copy of the key that `copy` names was what would
    /// be found.
    fn is_current(&self, key: &[u8], copy: u64) -> bool;

    /// From now on no copy of the key is found. True if there may have been one.
    fn remove(&self, key: &[u8]) -> bool;

    /// Calls `advance` once: everything stored before is worthless then. Afterwards no copy that was there is found. From
    /// before the call of `advance` until then no copy is current.
    fn flush(&self, advance: &mut dyn FnMut());
}

impl Store {
    /// Puts something below the store, for as long as it lives.
    ///
    /// # Panics
    /// If something is there already.
    pub fn set_lower_tier(&self, tier: Box<dyn LowerTier>) {
        assert!(self.lower_tier.set(tier).is_ok(), "a store has one lower tier");
    }

    /// Whether a copy of the key that was found below is the key's value at this moment, so that it can be an answer. False also
    /// where the store has an item of the key: that is the answer.
    pub fn is_current_copy(&self, key: &[u8], hash: u64, copy: u64, now_ms: u64) -> bool {
        // A delayed flush whose time has come is done before.
        self.moment(now_ms);
        let pair = self.index.lock_pair(hash);
        let is_absent = pair.find(|slot| self.is_key(slot, key)).is_none();
        is_absent && self.lower_tier.get().is_some_and(|tier| tier.is_current(key, copy))
    }

    /// An item that maintenance takes out of the index goes below. Its bucket, whose control word is `control`, is locked, and
    /// the slot still there.
    #[inline]
    pub(crate) fn demote(&self, participant: &Participant, slot: Slot, control: Control, moment: Moment) {
        // The models lend no bytes, and have nothing below.
        #[cfg(loom)]
        let _ = (participant, slot, control, moment);
        #[cfg(not(loom))]
        if let Some(tier) = self.lower_tier.get() {
            let found = Found { bucket: 0, position: 0, slot, control };
            let item = self.hit(self.item(slot), &found, participant.pin());
            if !self.is_live(&item.item_at(), moment) {
                tier.remove(item.key());
                return;
            }
            // Acquire pairs with the Release in `advance_generation`.
            let generation = self.generation.load(Ordering::Acquire);
            tier.demote(&item, moment.ms);
            if self.generation.load(Ordering::Acquire) != generation || !self.is_live(&item.item_at(), moment) {
                // The flush may have forgotten all copies before this one was made.
                tier.remove(item.key());
            }
        }
    }

    /// A locked key changes on a condition that is met: its copy below is its value no more. True if there may have been one.
    #[inline]
    pub(crate) fn invalidate_copy(&self, (key, hash): (&[u8], u64), condition: Condition, has_slot: bool) -> bool {
        let Some(tier) = self.lower_tier.get() else { return false };
        // The copy becomes the item, with the token that was handed out for the value.
        if matches!(condition, Condition::Copy(_)) {
            return false;
        }
        self.forget_issued_token(hash);
        let had_copy = tier.remove(key);
        match condition {
            // The caller has looked, and knows better than a filter that takes the key for another one.
            Condition::Found(copy) => had_copy && copy.is_some() && !has_slot,
            _ => had_copy,
        }
    }

    /// Keeps tokens that are handed out ([`Item::issue_token`]) beyond the sequences of their buckets, as many as fit these bytes: where
    /// values go below the store and come back.
    ///
    /// # Panics
    /// If it does so already.
    pub fn retain_tokens(&self, bytes: u64) {
        assert!(self.issued_tokens.set(IssuedTokens::new(bytes)).is_ok(), "tokens are kept once");
    }

    /// Memory of the tokens that are kept; none of it is in the budget of the store.
    pub fn token_bytes(&self) -> u64 {
        self.issued_tokens.get().map_or(0, IssuedTokens::memory_bytes)
    }

    /// Writes that a token has hindered though the value came from below and has not changed since: the token was of an older value, or
    /// was not kept.
    pub fn unknown_tokens(&self) -> u64 {
        self.issued_tokens.get().map_or(0, IssuedTokens::unknown)
    }

    /// Keeps the token of a value that was just written, if its bucket is as it was then. Answers the token to hand out.
    pub fn retain_token(&self, key: &[u8], hash: u64, token: u64) -> u64 {
        let Some(tokens) = self.issued_tokens.get() else { return token };
        let pair = self.index.lock_pair(hash);
        let place = pair.find(|slot| self.is_key(slot, key));
        let is_its = |place: &SlotPlace| self.token_of(&self.item(place.slot), pair.sequence(place)) == token;
        if place.is_some_and(|place| is_its(&place)) { tokens.insert(hash, token) } else { token }
    }

    /// Whether this token was handed out for the value of a key, which has not changed since.
    pub(crate) fn is_issued(&self, hash: u64, token: u64) -> bool {
        self.issued_tokens.get().is_some_and(|tokens| tokens.token_of(hash) == Some(token))
    }

    /// The value of a key changes, whose buckets are locked.
    #[inline]
    pub(crate) fn forget_issued_token(&self, hash: u64) {
        if let Some(tokens) = self.issued_tokens.get() {
            tokens.forget(hash);
        }
    }
}

#[cfg(not(loom))]
impl Item<'_> {
    /// Whether a CAS token stands for this value, if that has not changed meanwhile.
    pub fn has_token(&self, token: u64) -> bool {
        self.store().token_fits(&self.item_at(), self.store().hash(self.key()), self.sequence(), token)
    }

    /// The CAS token to give to a client. Where tokens are kept it stands for the value until that changes, whatever becomes of its
    /// neighbours, and of itself below the store; unless more tokens are handed out than are kept.
    pub fn issue_token(&self) -> u64 {
        let store = self.store();
        let Some(tokens) = store.issued_tokens.get() else { return self.token() };
        let (key, item) = (self.key(), self.item_at());
        let hash = store.hash(key);
        let is_it = |slot: Slot| store.is_key(slot, key) && slot.location() == item.at;
        // In this order: if the item is in its place after the look at the token, then it was so before, since it is pinned. The word of a
        // number changes in place.
        if item.header.kind != Kind::Numeric
            && let Some(token) = tokens.token_of(hash)
            && store.index.find(hash, is_it).is_some()
        {
            return token;
        }
        let pair = store.index.lock_pair(hash);
        let place = pair.find(is_it);
        let is_unchanged =
            |place: &SlotPlace| item.header.kind != Kind::Numeric || pair.sequence(place) == self.sequence();
        match place.filter(is_unchanged) {
            Some(place) => tokens.insert(hash, store.token_of(&item, pair.sequence(&place))),
            None => self.token(),
        }
    }
}
