//! Deletes over both tiers. The answer says whether the key was there.
//!
//! ```text
//! in memory? -- yes --> removed, with its copy on flash
//!     | no
//! flash may have it? -> read ---> found, and still the key's value --> removed
//!                         ^  |--> found, and moved or changed since, or not found and undecided --> read again
//!                         +--+
//!                            +--> not found --> absent
//! ```
//! The index of flash is approximate, so a key that flash may have is read. The copy that was read is compared under
//! the lock of the key's buckets with the one that is removed: of two deletes of one value only one finds it. A key
//! that was not found is removed from flash nevertheless, since the device may have failed to read it. In a closed
//! cache and in a removed pool nothing is removed, and the answer is that of an absent key.

use crate::access::Access;
use crate::change::Tried;
use crate::error::Error;
use crate::flash::pool_flash::PoolFlash;
use crate::flash::read::{Blocking, FlashProbe, FlashReads, ReadWaiter, ReadWake, Woken};
use crate::flash::resolve::{ReadPurpose, read_keys};
use ebbtide_flash::Key;
use ebbtide_store::{Changed, KEY_LIMIT, LowerCopy};

impl Access {
    pub fn delete(&self, key: &[u8]) -> bool {
        if self.pool.is_removed() {
            return false;
        }
        let deleted = match &self.pool.flash {
            Some(flash) if self.waits && is_key(key) => self.delete_in_memory(key) || self.wait_for_delete(flash, key),
            _ => self.remove_unread(key),
        };
        self.tell_removals();
        deleted
    }

    #[cold]
    fn wait_for_delete(&self, flash: &PoolFlash, key: &[u8]) -> bool {
        let mut waiter = Blocking::new(&flash.reads, flash.seconds(self.pool.clock.now_ms()));
        let deleted = self.delete_from_flash(flash, &mut FlashReads::default(), key, &mut waiter);
        deleted.expect("a blocking read has an outcome")
    }

    /// As `delete`, for a caller that does not wait. `None`: a read is pending, and nothing was changed.
    pub fn try_delete(&self, reads: &mut FlashReads, key: &[u8], wake: impl FnMut() -> ReadWake) -> Option<bool> {
        if self.pool.is_removed() {
            return Some(false);
        }
        let deleted = match &self.pool.flash {
            Some(flash) if is_key(key) && !self.delete_in_memory(key) => {
                self.delete_from_flash(flash, reads, key, &mut Woken(wake))
            }
            Some(_) if is_key(key) => Some(true),
            _ => Some(self.remove_unread(key)),
        };
        self.tell_removals();
        deleted
    }

    #[cold]
    fn delete_from_flash(
        &self,
        flash: &PoolFlash,
        reads: &mut FlashReads,
        key: &[u8],
        waiter: &mut dyn ReadWaiter,
    ) -> Option<bool> {
        let Key { hash, pool, .. } = flash.key(key);
        let keys = read_keys(FlashProbe { hash, pool, place: None }, std::slice::from_ref(&key), ReadPurpose::Answer);
        let now = flash.seconds(self.pool.clock.now_ms());
        reads.run(&flash.reads, &keys, now, &|_| None, waiter, |_, ended, is_last| {
            if ended.as_ref().is_some_and(|ended| ended.read.is_undecided()) {
                return is_last.then(|| self.remove_unread(key));
            }
            let copy = ended.and_then(|ended| ended.read.value().map(|value| flash.copy_of(value)));
            self.delete_found(key, copy).or_else(|| is_last.then(|| self.remove_unread(key)))
        })
    }

    /// Removes a key if memory has it.
    pub fn delete_in_memory(&self, key: &[u8]) -> bool {
        let (store, participant) = (&self.pool.store, self.pool.participant());
        let Some(_change) = participant.begin_change() else { return false };
        is_key(key) && store.delete_present(&participant, key, store.hash(key), self.pool.clock.now_ms())
    }

    /// Removes a key of which this copy, or none, was found. `None`, with nothing changed, if the key has another
    /// value.
    fn delete_found(&self, key: &[u8], copy: Option<LowerCopy>) -> Option<bool> {
        let (store, now_ms) = (&self.pool.store, self.pool.clock.now_ms());
        let participant = self.pool.participant();
        let Some(_change) = participant.begin_change() else { return Some(false) };
        match store.delete_found(&participant, (key, store.hash(key)), copy, now_ms) {
            Changed::Done(()) => Some(true),
            Changed::Absent => Some(false),
            Changed::Exists => None,
        }
    }

    /// Removes a key from both tiers. Flash is not read: the answer is that of its approximate index.
    pub fn delete_unread(&self, key: &[u8]) -> bool {
        let deleted = self.remove_unread(key);
        self.tell_removals();
        deleted
    }

    fn tell_removals(&self) {
        self.pool.tell_removals(&self.pool.participant());
    }

    fn remove_unread(&self, key: &[u8]) -> bool {
        if self.pool.is_removed() {
            return false;
        }
        let (store, participant) = (&self.pool.store, self.pool.participant());
        let Some(_change) = participant.begin_change() else { return false };
        is_key(key) && store.delete(&participant, key, store.hash(key), self.pool.clock.now_ms())
    }

    pub fn delete_if(&self, key: &[u8], token: u64) -> Result<Changed<()>, Error> {
        if !is_key(key) {
            return Ok(Changed::Absent);
        }
        let (store, participant) = (&self.pool.store, self.pool.participant());
        let deleted = self.change(key, |now_ms, _| {
            let deleted = store.delete_if(&participant, key, store.hash(key), token, now_ms);
            Ok(Tried::of(deleted, deleted == Changed::Absent))
        });
        match deleted {
            Err(Error::Closed | Error::PoolRemoved { .. }) => Ok(Changed::Absent),
            deleted => deleted,
        }
    }
}

fn is_key(key: &[u8]) -> bool {
    !key.is_empty() && key.len() <= KEY_LIMIT
}
