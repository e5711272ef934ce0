//! The pools of a server at one time, and how others take their place.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ebbtide::memcached::{Cache, CounterSnapshot, Pool, Stats};

use super::counts::{Gets, PoolCounts, PoolTotals};
use super::prefix_table::PrefixTable;
use super::{DEFAULT_POOL, PoolRule};
use crate::Error;
use crate::counters::CommandTotals;
use crate::sync::lock;

/// A pool that the server routes keys to.
pub struct PoolEntry {
    /// Its number among the slab classes of `stats slabs`: 1 for the pool `default`.
    pub class: u32,
    pub rule: PoolRule,
    pub pool: Pool,
    pub counts: Arc<PoolCounts>,
}

/// The pools of a server, and which keys belong to which.
pub struct PoolSet {
    /// The pool `default` first.
    pub entries: Vec<PoolEntry>,
    pub prefixes: PrefixTable,
}

/// What a pool has and has counted.
pub struct PoolReading {
    pub class: u32,
    pub rule: PoolRule,
    pub pool: Pool,
    pub stats: Stats,
    /// Since the start of the server.
    pub totals: PoolTotals,
    /// Since the last `stats reset`.
    pub since_reset: PoolTotals,
}

/// The set that is in use.
pub struct PublishedPools {
    published: Mutex<Arc<PoolSet>>,
    /// Changes when another set is published.
    version: AtomicU64,
}

impl PoolSet {
    /// The pools of a cache by these rules. Rules that the cache was built with.
    pub fn new(cache: &Cache, rules: &[PoolRule], workers: usize) -> Result<Self, Error> {
        PoolRule::check_all(rules)?;
        let default = rules.iter().find(|rule| rule.is_default()).cloned();
        let default = default.unwrap_or_else(|| PoolRule::named(DEFAULT_POOL));
        let others = rules.iter().filter(|rule| !rule.is_default());
        let mut entries = Vec::new();
        for (class, rule) in (1..).zip(std::iter::once(&default).chain(others)) {
            let pool = cache.pool(&rule.name).map_err(Error::Cache)?;
            let counts = Arc::new(if class == 1 { PoolCounts::default() } else { PoolCounts::new(workers) });
            entries.push(PoolEntry { class, rule: rule.clone(), pool, counts });
        }
        Ok(Self::of(entries))
    }

    fn of(entries: Vec<PoolEntry>) -> Self {
        let prefixes = entries.iter().enumerate();
        let prefixes = prefixes.flat_map(|(at, entry)| entry.rule.prefixes.iter().map(move |prefix| (&prefix[..], at)));
        Self { prefixes: PrefixTable::new(prefixes), entries }
    }

    /// What each pool has and has counted, beside the counts of the whole server.
    pub fn read(&self, totals: &CommandTotals) -> Vec<PoolReading> {
        let mut others = Gets::default();
        self.entries[1..].iter().for_each(|entry| others += entry.counts.gets());
        let all = Gets { hits: totals.get_hits, misses: totals.get_misses };
        let read = |entry: &PoolEntry| {
            let stats = entry.pool.stats();
            let gets = if entry.class == 1 { all.without(others) } else { entry.counts.gets() };
            let Stats { stored_total: stored, evictions, expired, .. } = stats;
            let totals = PoolTotals { gets, stored, evictions, expired };
            let since_reset = totals.since(&lock(&entry.counts.baseline));
            let (class, rule, pool) = (entry.class, entry.rule.clone(), entry.pool.clone());
            PoolReading { class, rule, pool, stats, totals, since_reset }
        };
        self.entries.iter().map(read).collect()
    }

    /// Makes the present counts those to which `stats` is relative.
    pub fn reset(&self, totals: &CommandTotals) {
        for (entry, reading) in self.entries.iter().zip(self.read(totals)) {
            *lock(&entry.counts.baseline) = reading.totals;
        }
    }

    /// The sums of all pools.
    pub fn counter_snapshot(&self) -> CounterSnapshot {
        let mut sum = CounterSnapshot::default();
        for entry in &self.entries {
            let counters = entry.pool.counter_snapshot();
            sum.items += counters.items;
            sum.memory_limit_bytes += counters.memory_limit_bytes;
            sum.memory_used_bytes += counters.memory_used_bytes;
            sum.stored_total += counters.stored_total;
            sum.evictions += counters.evictions;
            sum.index_replaced += counters.index_replaced;
            sum.expired += counters.expired;
            sum.flushed += counters.flushed;
        }
        sum
    }
}

impl PublishedPools {
    pub fn new(set: PoolSet) -> Self {
        Self { published: Mutex::new(Arc::new(set)), version: AtomicU64::new(0) }
    }

    pub fn current(&self) -> Arc<PoolSet> {
        Arc::clone(&lock(&self.published))
    }

    /// Changes with the set; another thread's set may be newer than the version that is read before it.
    #[inline]
    pub fn version(&self) -> u64 {
        // The set is behind a lock, so nothing depends on the order of this load.
        self.version.load(Ordering::Relaxed)
    }
}
