//! CAS tokens that are issued to clients and kept beyond the sequence of their bucket (see `token_table`).

#[cfg(not(loom))]
use crate::index::Slot;
use crate::index::SlotPlace;
#[cfg(not(loom))]
use crate::ops::Item;
use crate::store::Store;
use crate::token_table::TokenTable;

impl Store {
    /// Retains issued tokens ([`Item::issue_token`]) beyond the sequences of their buckets, in a table of at most
    /// `bytes` bytes. For stores above a lower tier, from which values return.
    ///
    /// # Panics
    /// If tokens are retained already.
    pub fn retain_tokens(&self, bytes: u64) {
        assert!(self.issued_tokens.set(TokenTable::new(bytes)).is_ok(), "tokens are retained once");
    }

    /// Memory of the retained tokens, which is not in the budget of the store.
    pub fn token_bytes(&self) -> u64 {
        self.issued_tokens.get().map_or(0, TokenTable::memory_bytes)
    }

    /// Writes refused by a token although the value was promoted and has not changed since: the token was for an older
    /// value, or was not retained.
    pub fn unknown_tokens(&self) -> u64 {
        self.issued_tokens.get().map_or(0, TokenTable::unknown)
    }

    /// Retains the token of a value that was just written, if its bucket has not changed since. Returns the token to
    /// issue.
    pub fn retain_token(&self, key: &[u8], hash: u64, token: u64) -> u64 {
        let Some(tokens) = self.issued_tokens.get() else { return token };
        let pair = self.index.lock_pair(hash);
        let place = pair.find(|slot| self.is_key(slot, key));
        let is_its = |place: &SlotPlace| self.token_of(&self.item(place.slot), pair.sequence(place)) == token;
        if place.is_some_and(|place| is_its(&place)) { tokens.insert(hash, token) } else { token }
    }

    /// The token that was issued for the present value of a key, if it is retained.
    pub(crate) fn issued_token(&self, hash: u64) -> Option<u64> {
        self.issued_tokens.get()?.token_of(hash)
    }

    /// Whether this token was issued for the present value of a key.
    pub(crate) fn is_issued(&self, hash: u64, token: u64) -> bool {
        self.issued_token(hash) == Some(token)
    }

    /// The value of a key, whose buckets are locked, changes.
    #[inline]
    pub(crate) fn forget_issued_token(&self, hash: u64) {
        if let Some(tokens) = self.issued_tokens.get() {
            tokens.forget(hash);
        }
    }
}

#[cfg(not(loom))]
impl Item<'_> {
    /// Whether a CAS token is valid for this value, if the value has not changed meanwhile.
    pub fn has_token(&self, token: u64) -> bool {
        self.store().token_fits(&self.item_at(), self.store().hash(self.key()), self.sequence(), token)
    }

    /// The CAS token to return to a client. With retained tokens it is valid until the value changes, also across
    /// demotion and promotion and changes of neighbours, unless the table is full.
    pub fn issue_token(&self) -> u64 {
        let store = self.store();
        let Some(tokens) = store.issued_tokens.get() else { return self.token() };
        let (key, item) = (self.key(), self.item_at());
        let hash = store.hash(key);
        let is_it = |slot: Slot| store.is_key(slot, key) && slot.location() == item.at;
        // The order matters: the item is pinned, so if its slot is in place after the table was read, it was so before.
        let in_place = item.header.changes_in_place();
        if !in_place
            && let Some(token) = tokens.token_of(hash)
            && store.index.find(hash, is_it).is_some()
        {
            return token;
        }
        let pair = store.index.lock_pair(hash);
        let place = pair.find(is_it);
        let is_unchanged = |place: &SlotPlace| !in_place || pair.sequence(place) == self.sequence();
        match place.filter(is_unchanged) {
            Some(place) => tokens.insert(hash, store.token_of(&item, pair.sequence(&place))),
            None => self.token(),
        }
    }
}
