//! The pools of the tier: they are opened by name, and a flush or a removal ends the incarnation of one.
//!
//! ```text
//! flush of a pool    log of removals: the number is over -> another number -> the table, in the next upkeep
//! ```
//! After a crash a number that the log ends is in no table.

use super::Tier;
use super::pool_names::{NamedPool, State};
use super::pool_table::{MAX_ENTRIES, hash_of_name};
use crate::Error;
use crate::deletion_log::StoreKind;
use crate::object::{FlashHash, Key};
use crate::pools::{FlashPool, NO_POOL};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Tier {
    /// The pools of a start, by name: with what they had, or empty. What other pools had is gone. Waits for the device.
    ///
    /// # Errors
    ///
    /// What the device did.
    pub fn open_pools(&self, names: &[&str]) -> Result<Vec<Arc<FlashPool>>, Error> {
        let opened = names.iter().map(|name| self.open_pool(name)).collect();
        let mut state = self.pools.state();
        let closed: Vec<u16> =
            state.pools.iter().filter(|named| !named.is_open).map(|named| named.pool.number()).collect();
        state.pools.retain(|named| named.is_open);
        state.is_changed = true;
        closed.iter().for_each(|&number| self.end_incarnation(number));
        drop(state);
        self.pools.write(&*self.device)?;
        if self.pools.area.is_some() { self.device.sync().map(|()| opened) } else { Ok(opened) }
    }

    /// A pool, with what it had, or empty.
    pub fn open_pool(&self, name: &str) -> Arc<FlashPool> {
        let (name, mut state) = (hash_of_name(name), self.pools.state());
        if let Some(named) = state.pools.iter_mut().find(|named| named.name == name) {
            named.is_open = true;
            return Arc::clone(&named.pool);
        }
        let number = if state.pools.len() < MAX_ENTRIES { state.draw() } else { NO_POOL };
        let pool = FlashPool::new(number);
        if number != NO_POOL {
            self.pools.live.add(number, &pool);
        }
        state.pools.push(NamedPool { name, pool: Arc::clone(&pool), is_open: true });
        state.is_changed = true;
        pool
    }

    /// All objects of a pool are gone, also for lookups under way, whose tokens are not current any more.
    pub fn flush_pool(&self, pool: &FlashPool) {
        let mut state = self.pools.state();
        pool.flush_is_pending.store(false, Relaxed);
        if state.pools.len() == 1 && std::ptr::eq(&*state.pools[0].pool, pool) {
            // Alone, its space is free at once.
            self.flush();
            return;
        }
        let Some(at) = state.pools.iter().position(|named| std::ptr::eq(&*named.pool, pool)) else { return };
        self.end_incarnation(pool.number());
        let number = state.draw();
        if number != NO_POOL {
            self.pools.live.add(number, &state.pools[at].pool);
        }
        pool.set_number(number);
        state.is_changed = true;
        self.note_pending_flushes(&state);
    }

    fn note_pending_flushes(&self, state: &State) {
        if !state.pools.iter().any(|named| named.pool.flush_is_pending.load(Relaxed)) {
            self.record_pending_flush(false);
        }
    }

    /// The pool is gone with all its objects.
    pub fn remove_pool(&self, pool: &FlashPool) {
        let mut state = self.pools.state();
        let Some(at) = state.pools.iter().position(|named| std::ptr::eq(&*named.pool, pool)) else { return };
        state.pools.remove(at);
        self.end_incarnation(pool.number());
        pool.set_number(NO_POOL);
        state.is_changed = true;
        self.note_pending_flushes(&state);
    }

    /// A flush of a pool is to come: a start before it finds nothing of any pool.
    pub fn announce_pool_flush(&self, pool: &FlashPool) {
        pool.flush_is_pending.store(true, Relaxed);
        self.record_pending_flush(true);
    }

    /// A key of a pool, under its present number.
    pub fn key<'a>(&self, pool: &FlashPool, bytes: &'a [u8]) -> Key<'a> {
        self.pools.live.key(pool.number(), bytes)
    }

    /// The hash of a key under a number.
    pub fn hash(&self, number: u16, bytes: &[u8]) -> FlashHash {
        self.pools.live.hash(number, bytes)
    }

    /// Another number for each incarnation: tokens of different ones are told apart by it.
    pub fn pool_salt(&self, number: u16) -> u64 {
        self.pools.live.salt(number)
    }

    /// Before another number is drawn: what comes under that does not remove what lies under this one.
    fn end_incarnation(&self, number: u16) {
        if number == NO_POOL {
            return;
        }
        if let Some(removals) = &self.removals {
            for store in [StoreKind::Small, StoreKind::Large] {
                removals.log_pool_end(store, number, self.next_order(store));
            }
        }
        self.pools.live.end(number);
    }

    /// For each region of objects that were refused for its share, a pool gives up a region of what it has.
    pub(super) fn turn_over_shares(&self, now: u32) {
        for number in self.pools.live.take_refused(self.large.region_bytes()) {
            self.large.reclaim_of_pool(number, now);
        }
    }

    /// Writes the table of pools when it is due.
    pub(super) fn maintain_pools(&self) {
        // Tried again by the next upkeep.
        let _ = self.pools.write(&*self.device);
    }
}
