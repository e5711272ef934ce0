//! The pools of the tier: they are opened by name. A flush or a removal of a pool ends its incarnation.
//!
//! ```text
//! flush of a pool    deletion log: the number is over -> another number -> the table, in the next maintenance
//! ```
//! After a crash, a start drops the numbers that the log ends from the table.

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
    /// Opens the pools of a start by name, with their objects of the last run, or empty. The objects of other pools are
    /// removed. Waits for the device.
    ///
    /// # Errors
    ///
    /// The error of the device.
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

    /// Pools of the last run that are not among these, and the bytes that they have on flash.
    pub fn unnamed_pools(&self, names: &[&str]) -> (usize, u64) {
        let names: Vec<_> = names.iter().map(|name| hash_of_name(name)).collect();
        let state = self.pools.state();
        let unnamed = state.pools.iter().filter(|named| !named.is_open && !names.contains(&named.name));
        let bytes = unnamed.map(|named| named.pool.bytes()).filter(|bytes| *bytes > 0);
        bytes.fold((0, 0), |(pools, all), bytes| (pools + 1, all + bytes))
    }

    /// Opens a pool, with its objects of the last run, or empty.
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

    /// Removes all objects of a pool, also for lookups in progress, whose tokens stop being current.
    pub fn flush_pool(&self, pool: &FlashPool) {
        let mut state = self.pools.state();
        pool.flush_is_pending.store(false, Relaxed);
        if state.pools.len() == 1 && std::ptr::eq(&*state.pools[0].pool, pool) {
            // A flush of the only pool frees all space at once.
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

    /// Removes a pool with all its objects.
    pub fn remove_pool(&self, pool: &FlashPool) {
        let mut state = self.pools.state();
        let Some(at) = state.pools.iter().position(|named| std::ptr::eq(&*named.pool, pool)) else { return };
        state.pools.remove(at);
        self.end_incarnation(pool.number());
        pool.set_number(NO_POOL);
        state.is_changed = true;
        self.note_pending_flushes(&state);
    }

    /// Records that a flush of a pool is planned. A start before the flush is carried out finds no object of any pool.
    pub fn announce_pool_flush(&self, pool: &FlashPool) {
        pool.flush_is_pending.store(true, Relaxed);
        self.record_pending_flush(true);
    }

    /// A key of a pool, with the pool's current number.
    pub fn key<'a>(&self, pool: &FlashPool, bytes: &'a [u8]) -> Key<'a> {
        self.pools.live.key(pool.number(), bytes)
    }

    /// The hash of a key of the pool with this number.
    pub fn hash(&self, number: u16, bytes: &[u8]) -> FlashHash {
        self.pools.live.hash(number, bytes)
    }

    /// A salt that differs between incarnations, so tokens of different incarnations differ.
    pub fn pool_salt(&self, number: u16) -> u64 {
        self.pools.live.salt(number)
    }

    /// Called before another number is drawn: an insert under the new number does not remove an object under this one.
    fn end_incarnation(&self, number: u16) {
        if number == NO_POOL {
            return;
        }
        if let Some(deletion_log) = &self.deletion_log {
            for store in [StoreKind::Small, StoreKind::Large] {
                deletion_log.log_pool_end(store, number, self.next_order(store));
            }
        }
        self.pools.live.end(number);
    }

    /// For each region's worth of objects that a pool's share refused, a region is reclaimed for the pool.
    pub(super) fn turn_over_shares(&self, now: u32) {
        self.pools.live.compare_shares();
        for (number, pool) in self.pools.live.refused(self.large.region_bytes()) {
            pool.settle_refused(self.large.reclaim_of_pool(number, now));
        }
    }

    /// Writes the table of pools when it is due.
    pub(super) fn maintain_pools(&self) {
        // The next maintenance tries again after an error.
        let _ = self.pools.write(&*self.device);
    }
}
