//! Deletes: whether a key was there is known before the answer, also where only flash may have it.
//!
//! ```text
//! in memory? -- yes --> gone, with its copy on flash
//!     | no
//! flash may have it? -> read ---> found, and still the key's value --> gone
//!                         ^  |--> found, and moved or changed meanwhile --> look again
//!                         +--+
//!                            +--> not found --> absent
//! ```
//! What memory knows of flash is approximate, so a key that flash may have is read before the answer. The copy that was read is compared
//! under the lock of the key's buckets with the one that is removed: of two deletes of one value only one finds it. A key that was not
//! found is removed from flash all the same: the device may have failed to read what is there.

use crate::cache::Cache;
use crate::flash::read::Fetched;
use crate::flash::tier::FlashTier;
use ebbtide_store::{Changed, KEY_LIMIT};
use std::sync::Arc;

/// How often a delete reads a key again that flash moves meanwhile.
const MAX_LOOKUPS: u32 = 4;

impl Cache {
    /// Removes a key. False if it was absent. With flash the calling thread waits for the device, as a get does, if only that may have
    /// the key. A name of the cache that does not wait ([`Cache::without_waiting`]) answers by what memory knows of flash, which is true
    /// also of some keys that are absent; [`Cache::delete_fetched`] is for those who want to know.
    pub fn delete(&self, key: &[u8]) -> bool {
        match &self.shared.flash {
            Some(flash) if self.waits && is_key(key) => {
                self.delete_in_memory(key) || self.delete_from_flash(flash, key)
            }
            _ => self.delete_unread(key),
        }
    }

    #[cold]
    fn delete_from_flash(&self, flash: &Arc<FlashTier>, key: &[u8]) -> bool {
        let look = |_| {
            let found = flash.read_one(key, self.shared.time.now_ms());
            self.delete_found(key, found.map(|value| value.found.token.0))
        };
        (0..MAX_LOOKUPS).find_map(look).unwrap_or_else(|| self.delete_unread(key))
    }

    /// Removes a key if memory has it. False, with nothing changed, if only flash may have it.
    pub fn delete_in_memory(&self, key: &[u8]) -> bool {
        let shared = &*self.shared;
        let store = &shared.store;
        is_key(key) && store.delete_present(&shared.participant(), key, store.hash(key), shared.time.now_ms())
    }

    /// Removes a key that memory did not have, after a fetch of it. Whether it was there; `None`, with nothing changed, if its value
    /// is not any more what was fetched: fetch it again.
    pub fn delete_fetched(&self, key: &[u8], fetched: &Fetched) -> Option<bool> {
        self.delete_found(key, fetched.value().map(|value| value.found.token.0))
    }

    fn delete_found(&self, key: &[u8], copy: Option<u64>) -> Option<bool> {
        let shared = &*self.shared;
        let target = (key, shared.store.hash(key));
        match shared.store.delete_found(&shared.participant(), target, copy, shared.time.now_ms()) {
            Changed::Done(()) => Some(true),
            Changed::Absent => Some(false),
            Changed::Exists => None,
        }
    }

    /// Removes a key wherever it is, without a look at flash.
    pub(crate) fn delete_unread(&self, key: &[u8]) -> bool {
        let shared = &*self.shared;
        is_key(key) && shared.store.delete(&shared.participant(), key, shared.store.hash(key), shared.time.now_ms())
    }

    /// Removes a key if its value still has this CAS token.
    pub fn delete_if(&self, key: &[u8], token: u64) -> Changed<()> {
        if !is_key(key) {
            return Changed::Absent;
        }
        let shared = &*self.shared;
        // What memory has no room for has no token that anyone was told.
        if shared.promote_if_on_flash(self.waits, key).is_err() {
            return Changed::Exists;
        }
        let store = &shared.store;
        store.delete_if(&shared.participant(), key, store.hash(key), token, shared.time.now_ms())
    }
}

fn is_key(key: &[u8]) -> bool {
    !key.is_empty() && key.len() <= KEY_LIMIT
}
