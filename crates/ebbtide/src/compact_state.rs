//! The state of one compact pool: a table of small objects in the memory of its engine.

use crate::clock::EngineClock;
use crate::error::Error;
use crate::library::lookup_counters::LookupCounters;
use crate::pool_state::PoolState;
use ebbtide_control::Share;
use ebbtide_store::{
    CompactLookup, CompactMode, CompactSizes, CompactStats, CompactTable, CompactWrite, EngineMemory, MissTicket,
    Participant, Stats, Stored, Ttl,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A table, with the clock and the participants of its engine.
pub(crate) struct CompactState {
    pub name: Box<str>,
    pub table: CompactTable,
    /// The pool `default` of the engine: its clock, and the participants of threads.
    default_pool: Arc<PoolState>,
    /// Hits with a value, and misses.
    pub lookups: LookupCounters,
    /// Hits on negative results; the misses are not used.
    pub negative_lookups: LookupCounters,
    is_removed: AtomicBool,
}

/// Parts of a new compact pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactPlan {
    pub sizes: CompactSizes,
    pub memory_bytes: u64,
    pub seed: u64,
}

/// A compact pool of a new engine.
pub(crate) struct NewCompactPool {
    pub share: Share,
    pub plan: CompactPlan,
    /// Its table, from a memory file.
    pub table: Option<CompactTable>,
}

impl CompactState {
    /// With a table that there is, or a new one.
    ///
    /// # Errors
    /// `Configuration` if the budget or the lengths cannot work.
    pub fn build(
        name: &str,
        (plan, table): (CompactPlan, Option<CompactTable>),
        memory: &EngineMemory,
        default_pool: &Arc<PoolState>,
    ) -> Result<Arc<Self>, Error> {
        let CompactPlan { sizes, memory_bytes, seed } = plan;
        let build = || CompactTable::build(sizes, memory_bytes, seed, memory).map_err(Error::from_store);
        let table = table.map_or_else(build, Ok)?;
        Ok(Arc::new(Self {
            name: name.into(),
            table,
            default_pool: Arc::clone(default_pool),
            lookups: LookupCounters::default(),
            negative_lookups: LookupCounters::default(),
            is_removed: AtomicBool::new(false),
        }))
    }

    fn clock(&self) -> &EngineClock {
        &self.default_pool.clock
    }

    pub fn participant(&self) -> Participant {
        self.default_pool.participant()
    }

    /// The time of a lookup. The coarse time is behind: only entries that may expire need the exact one.
    #[inline]
    fn lookup_ms(&self) -> u64 {
        if self.table.sizes().has_ttl { self.clock().now_ms() } else { self.clock().coarse_ms() }
    }

    /// Its handles refuse writes and miss from now on.
    pub fn remove(&self) {
        // Before the flush: a write that has passed the check is flushed, or its entry is not served.
        self.is_removed.store(true, Ordering::Relaxed);
        self.table.flush(&self.participant(), self.clock().now_ms(), 0);
    }

    fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }

    /// # Errors
    /// `PoolRemoved`: another pool may have its name.
    pub fn check_present(&self) -> Result<(), Error> {
        if self.is_removed() { Err(Error::PoolRemoved { name: self.name.to_string() }) } else { Ok(()) }
    }

    #[inline]
    pub fn get<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> CompactLookup<R> {
        match self.table.get(&self.participant(), key, self.lookup_ms(), read) {
            _ if self.is_removed() => CompactLookup::Miss,
            lookup => lookup,
        }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.table.contains(&self.participant(), key, self.lookup_ms()) && !self.is_removed()
    }

    /// Changes the table, unless the cache is closed or the pool was removed.
    fn change<T>(&self, change: impl FnOnce(&Participant, u64) -> Result<T, ebbtide_store::Error>) -> Result<T, Error> {
        let participant = self.participant();
        let _change = participant.begin_change().ok_or(Error::Closed)?;
        self.check_present()?;
        change(&participant, self.clock().now_ms()).map_err(Error::from_store)
    }

    pub fn write(&self, key: &[u8], value: Option<&[u8]>, ttl: Ttl, mode: CompactMode) -> Result<Stored, Error> {
        self.change(|participant, now_ms| {
            self.table.write(participant, &CompactWrite { key, value, ttl, mode }, now_ms)
        })
    }

    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        self.change(|participant, now_ms| self.table.remove(participant, key, now_ms))
    }

    pub fn delete_negative(&self, key: &[u8]) -> Result<bool, Error> {
        self.change(|participant, now_ms| self.table.remove_negative(participant, key, now_ms))
    }

    pub fn touch(&self, key: &[u8], ttl: Ttl) -> Result<bool, Error> {
        self.change(|participant, now_ms| self.table.touch(participant, key, ttl, now_ms))
    }

    pub fn ticket(&self, key: &[u8]) -> Result<MissTicket, Error> {
        self.table.ticket(&self.participant(), key).map_err(Error::from_store)
    }

    pub fn flush(&self, delay_ms: u64) {
        let flushed = self.change(|participant, now_ms| {
            self.table.flush(participant, now_ms, delay_ms);
            Ok(())
        });
        // A closed cache is not flushed, and a removed pool has nothing.
        drop(flushed);
    }

    /// The numbers of the table as those of a store.
    pub fn stats(&self) -> Stats {
        stats_of(&self.table.stats())
    }
}

fn stats_of(table: &CompactStats) -> Stats {
    Stats {
        items: table.items,
        memory_limit_bytes: table.memory_limit_bytes,
        memory_used_bytes: table.memory_used_bytes,
        live_bytes: table.live_bytes,
        stored_total: table.stored_values + table.stored_negatives,
        evictions: table.evictions,
        expired: table.expired + table.flushed,
        flushed: table.flushed,
        ..Stats::default()
    }
}
