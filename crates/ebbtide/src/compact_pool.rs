//! Operations on the keys of one compact pool.

use crate::byte_size::ByteSize;
use crate::compact_state::CompactState;
use crate::engine::Owner;
use crate::error::Error;
use crate::lookup::{Item, Lookup};
use crate::pool_options::PoolOptions;
use crate::pools::PoolRef;
use ebbtide_store::{CompactLookup, CompactMode, CompactSizes, CompactStats, MissTicket, Stats, Stored, Ttl};
use std::sync::Arc;
use std::time::Duration;

/// A handle of one compact pool. Clones are handles of the same pool. No operation waits for memory or flash.
#[derive(Clone)]
pub struct CompactPool {
    pub(crate) pool: Arc<CompactState>,
    pub(crate) owner: Arc<Owner>,
}

impl CompactPool {
    pub fn name(&self) -> &str {
        &self.pool.name
    }

    /// Lengths of keys and values, and whether entries may expire.
    pub fn sizes(&self) -> CompactSizes {
        self.pool.table.sizes()
    }

    /// Looks a key up. A key of another length is absent.
    #[inline]
    pub fn get<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> CompactLookup<R> {
        self.pool.get(key, read)
    }

    /// As `get`, as an item: the item of a negative result has an empty value.
    pub fn look_up(&self, key: &[u8]) -> Lookup<'static> {
        match self.get(key, |value| Item::of_compact(key, value)) {
            CompactLookup::Hit(item) => Lookup::Hit(item),
            CompactLookup::Negative => Lookup::Hit(Item::of_compact(key, &[])),
            CompactLookup::Miss => Lookup::Miss,
        }
    }

    /// Loads the sets of these keys into the processor's cache.
    pub fn prefetch(&self, keys: &[&[u8]]) {
        self.pool.table.prefetch(&self.pool.participant(), keys);
    }

    /// Whether the key has an entry. It does not count as a use.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.pool.contains(key)
    }

    /// Writes a value, or a negative result (`None`).
    ///
    /// # Errors
    /// `CompactLength`, `CompactTtl`; `Closed`, `PoolRemoved`.
    pub fn write(&self, key: &[u8], value: Option<&[u8]>, ttl: Ttl, mode: CompactMode) -> Result<Stored, Error> {
        self.pool.write(key, value, ttl, mode)
    }

    /// Removes a key, negative or not. False if it was absent.
    ///
    /// # Errors
    /// As `write`.
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        self.pool.delete(key)
    }

    /// Removes the negative result of a key. False if it has none; a value stays.
    ///
    /// # Errors
    /// As `write`.
    pub fn delete_negative(&self, key: &[u8]) -> Result<bool, Error> {
        self.pool.delete_negative(key)
    }

    /// Gives an entry a new TTL. False if the key is absent.
    ///
    /// # Errors
    /// As `write`.
    pub fn touch(&self, key: &[u8], ttl: Ttl) -> Result<bool, Error> {
        self.pool.touch(key, ttl)
    }

    /// A ticket for [`CompactMode::Since`].
    ///
    /// # Errors
    /// `CompactLength`.
    pub fn ticket(&self, key: &[u8]) -> Result<MissTicket, Error> {
        self.pool.ticket(key)
    }

    /// Everything that is stored before now + `delay` is absent from then on. The calling thread visits all sets: that
    /// takes about 10 ms for a gigabyte.
    pub fn flush(&self, delay: Duration) {
        self.pool.flush(delay.as_millis() as u64);
    }

    /// Counters and gauges of this pool, as those of others.
    pub fn stats(&self) -> Stats {
        self.pool.stats()
    }

    /// Counters and gauges that only compact pools have.
    pub fn compact_stats(&self) -> CompactStats {
        self.pool.table.stats()
    }

    /// Changes the bounds of this pool's memory. All pools are divided anew.
    ///
    /// # Errors
    /// `Configuration` if the bounds do not fit; `PoolRemoved`.
    pub fn resize(&self, min: ByteSize, max: ByteSize) -> Result<(), Error> {
        self.change_bounds(|engine| engine.pools.fix(PoolRef::Compact(&self.pool), min.as_bytes(), max.as_bytes()))
    }

    /// Ends [`CompactPool::resize`]: the bounds of the options hold again.
    ///
    /// # Errors
    /// As [`CompactPool::resize`].
    pub fn release(&self) -> Result<(), Error> {
        self.change_bounds(|engine| engine.pools.release(PoolRef::Compact(&self.pool)))
    }

    /// Changes bounds and weight to those of these options, and ends [`CompactPool::resize`].
    ///
    /// # Errors
    /// As [`CompactPool::resize`].
    pub fn configure(&self, options: &PoolOptions) -> Result<(), Error> {
        self.change_bounds(|engine| engine.pools.configure(PoolRef::Compact(&self.pool), options))
    }

    fn change_bounds(&self, change: impl FnOnce(&crate::engine::Engine) -> Result<(), Error>) -> Result<(), Error> {
        let engine = &self.owner.0;
        let participant = self.pool.participant();
        let _change = participant.begin_change().ok_or(Error::Closed)?;
        change(engine)?;
        engine.run_soon();
        Ok(())
    }
}
