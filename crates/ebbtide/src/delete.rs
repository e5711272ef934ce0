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
//! cache and in a removed pool nothing is removed, and the answer is that of an absent key; in a closed cache it is
//! `Closed` where the caller takes an error.

use crate::access::Access;
use crate::change::Tried;
use crate::error::Error;
use crate::flash::pool_flash::PoolFlash;
use crate::flash::read::{Blocking, FlashProbe, FlashReads, ReadWaiter, ReadWake, Woken};
use crate::flash::resolve::{ReadPurpose, read_keys};
use crate::lookup::Item;
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

    /// Removes a key if its value is accepted, as one operation: the value that `accepts` saw last is the one removed.
    /// False, with nothing changed, if the key is absent or its value is not accepted. A value that only flash has is
    /// removed there.
    ///
    /// # Errors
    /// `KeyLength`, `Closed`, `PoolRemoved`; those of [`Access::change`] if other threads change or evict the key all
    /// the time, or the handle does not wait.
    pub fn delete_accepted(&self, key: &[u8], accepts: &dyn Fn(&Item<'_>) -> bool) -> Result<bool, Error> {
        if let Some(flash) = self.pool.flash.as_ref().filter(|_| self.waits && is_key(key) && !self.pool.is_removed())
            && !self.peek(key).is_hit()
            && let Some(deleted) = self.delete_accepted_on_flash(flash, key, accepts)
        {
            self.tell_removals();
            return Ok(deleted);
        }
        let (store, participant) = (&self.pool.store, self.pool.participant());
        let is_accepted = |item: &ebbtide_store::Item<'_>| accepts(&Item::in_memory(item.clone(), store));
        let deleted = self.change(key, |now_ms, _| {
            let deleted = store.delete_accepted(&participant, (key, store.hash(key)), now_ms, is_accepted)?;
            Ok(Tried::of(deleted, deleted == Changed::Absent))
        })?;
        Ok(deleted == Changed::Done(()))
    }

    /// `None`: flash does not have the value, or other threads have changed the key since it was read.
    #[cold]
    fn delete_accepted_on_flash(
        &self,
        flash: &PoolFlash,
        key: &[u8],
        accepts: &dyn Fn(&Item<'_>) -> bool,
    ) -> Option<bool> {
        let probe = flash.probe(key)?;
        let keys = read_keys(probe, std::slice::from_ref(&key), ReadPurpose::Answer);
        let now = flash.seconds(self.pool.clock.now_ms());
        let mut waiter = Blocking::new(&flash.reads, now);
        let mut reads = FlashReads::default();
        let decided = reads.run(&flash.reads, &keys, now, &|_| None, &mut waiter, |_, ended, is_last| {
            let Some(value) = ended.as_ref().and_then(|ended| ended.read.value().cloned()) else { return Some(None) };
            // Before the value is looked at: a returned permit starts reads of others, and runs their callbacks.
            drop(ended);
            let is_accepted = self.pool.current_item(flash, &value).map(|item| accepts(&item));
            let deleted = match is_accepted {
                Some(true) => self.delete_found(key, Some(flash.copy_of(&value))).filter(|deleted| *deleted),
                Some(false) => Some(false),
                None => None,
            };
            if deleted.is_some() || is_last { Some(deleted) } else { None }
        });
        decided.expect("a blocking read has an outcome")
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
            Err(Error::PoolRemoved { .. }) => Ok(Changed::Absent),
            deleted => deleted,
        }
    }
}

fn is_key(key: &[u8]) -> bool {
    !key.is_empty() && key.len() <= KEY_LIMIT
}

#[cfg(test)]
mod tests {
    use crate::flash::promotion::FlashPromotion;
    use crate::flash::read::{FlashReads, ReadWake};
    use crate::memcached::{ByteSize, Cache, Clock, FlashOptions, Pool, PoolOptions};
    use ebbtide_flash::Object;
    use ebbtide_flash::device::{Delivery, FaultyDevice};
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const KEY: &[u8] = b"key";

    /// A cache with a pool whose flash has a large object of the key, on a device that completes nothing.
    fn with_pool_on_flash() -> (Cache, Pool, Arc<FaultyDevice>) {
        let device = Arc::new(FaultyDevice::new(64 << 20, 7, Delivery::Later { queue_depth: 8 }));
        let options = FlashOptions { seal_seconds: 1, ..FlashOptions::default() };
        let builder = Cache::builder().memory(ByteSize::mib(8)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let builder = builder.flash_options(options).flash_promotion(FlashPromotion::Never);
        let builder = builder.flash_device(device.clone()).pool(PoolOptions::named("a"));
        let cache = builder.build().unwrap();
        let pool = cache.pool("a").unwrap();
        let flash = pool.0.pool.flash.as_ref().unwrap();
        let (key, value) = (flash.key(KEY), [7; 9000]);
        let object = Object { key, value: &[&value], client_flags: 0, is_annotated: false, expiry: 0 };
        flash.tier.insert(&object, 2).unwrap();
        cache.maintain(Duration::from_secs(100));
        flash.tier.settle(100);
        device.stall();
        (cache, pool, device)
    }

    fn wake() -> ReadWake {
        Box::new(|| ())
    }

    #[test]
    fn a_removed_pool_deletes_nothing() {
        let builder = Cache::builder().memory(ByteSize::mib(8)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let cache = builder.pool(PoolOptions::named("a")).build().unwrap();
        let pool = cache.pool("a").unwrap();
        pool.insert(KEY, b"value").apply().unwrap();
        let state = &pool.0.pool;
        let is_there = || state.store.peek(&state.participant(), KEY, state.store.hash(KEY), 0).is_some();
        // A removal says that the pool is removed, and then flushes it.
        state.begin_removal();
        assert!(!pool.delete(KEY) && is_there());
        assert!(!pool.0.delete_unread(KEY) && is_there());
        assert_eq!(pool.without_waiting().try_delete(&mut FlashReads::default(), KEY, wake), Some(false));
        assert!(is_there());
        cache.remove_pool("a").unwrap();
        assert!(!is_there() && !pool.delete(KEY));
    }

    #[test]
    fn a_delete_during_a_removal_finds_nothing() {
        for is_answered in [false, true] {
            let (cache, pool, device) = with_pool_on_flash();
            let (handle, mut reads) = (pool.without_waiting(), FlashReads::default());
            let (sender, woken) = channel();
            let mut delete = || {
                let sender = sender.clone();
                handle.try_delete(&mut reads, KEY, || {
                    Box::new({
                        let sender = sender.clone();
                        move || _ = sender.send(())
                    })
                })
            };
            assert_eq!(delete(), None, "its read is pending");
            pool.0.pool.begin_removal();
            if is_answered {
                device.resume();
            } else {
                pool.0.pool.flash.as_ref().unwrap().reads.cancel();
            }
            woken.recv().unwrap();
            assert_eq!(delete(), Some(false), "answered: {is_answered}");
            device.resume();
            drop(cache);
        }
    }
}
