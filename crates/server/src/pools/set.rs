//! The pools of a server at one time, and how others take their place.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ebbtide::memcached::{
    Cache, CompactPool, CompactSizes, CompactStats, CounterSnapshot, Error as CacheError, FlashPoolStats, Pool,
    SegmentSnapshot, Stats, TtlBucketSnapshot,
};

use super::counts::{Gets, PoolCounts, PoolTotals};
use super::prefix_table::PrefixTable;
use super::{DEFAULT_POOL, PoolRule};
use crate::Error;
use crate::counters::{CommandCounters, CommandTotals};
use crate::sync::lock;

/// A pool that the server routes keys to.
pub struct PoolEntry<P = Pool> {
    /// Its number among the slab classes of `stats slabs`: 1 for the pool `default`.
    pub class: u32,
    pub rule: PoolRule,
    pub pool: P,
    pub counts: Arc<PoolCounts>,
}

/// The pools of a server, and which keys belong to which.
pub struct PoolSet {
    /// The pool `default` first.
    pub entries: Vec<PoolEntry>,
    /// Compact pools; their numbers follow those of the entries.
    pub compact: Vec<PoolEntry<CompactPool>>,
    pub prefixes: PrefixTable,
    /// With one pool: gets of the server that were those of other pools. With several: gets of the pool `default` that
    /// its counts do not have.
    uncounted: Gets,
}

/// Gauges and counters of a pool.
pub struct PoolReading {
    pub class: u32,
    pub rule: PoolRule,
    /// `None` of a compact pool.
    pub pool: Option<Pool>,
    /// Of a compact pool.
    pub compact: Option<CompactStats>,
    pub stats: Stats,
    /// With flash.
    pub flash: Option<FlashPoolStats>,
    /// Of the object evicted last, seconds between its last use and the eviction.
    pub evicted_idle_seconds: u64,
    /// Since the start of the server.
    pub totals: PoolTotals,
    /// Since the last `stats reset`.
    pub since_reset: PoolTotals,
}

impl PoolReading {
    /// Of a compact pool.
    pub fn compact(&self) -> Option<(CompactSizes, CompactStats)> {
        self.rule.compact.zip(self.compact)
    }
}

/// The set that is in use.
pub struct PublishedPools {
    published: Mutex<Arc<PoolSet>>,
    /// Changes when another set is published.
    version: AtomicU64,
    /// Set while entries whose keys belong to another pool are deleted.
    pub is_sweeping: AtomicBool,
    /// Held by a reload.
    pub reloading: Mutex<()>,
    /// Earlier sets, which threads may still use.
    replaced: Mutex<Vec<Weak<PoolSet>>>,
    /// Names of pools that are to be removed once no thread uses an earlier set.
    leaving: Mutex<Vec<String>>,
}

/// Bytes of names, prefixes and listeners of most pools.
const WORD_BYTES: u64 = 512;

impl PoolSet {
    /// Bytes that a set has for a pool in a server with this many workers.
    pub fn bytes_of_pool(workers: usize) -> u64 {
        size_of::<PoolEntry>() as u64 + PoolCounts::bytes(workers) + WORD_BYTES
    }

    /// The pools of a cache by these rules. Rules that the cache was built with.
    pub fn new(cache: &Cache, rules: &[PoolRule], workers: usize) -> Result<Self, Error> {
        PoolRule::check_all(rules)?;
        let default = rules.iter().find(|rule| rule.is_default()).cloned();
        let default = default.unwrap_or_else(|| PoolRule::named(DEFAULT_POOL));
        let others = rules.iter().filter(|rule| !rule.is_default());
        let (mut entries, mut compact) = (Vec::new(), Vec::new());
        for (class, rule) in (1..).zip(std::iter::once(&default).chain(others)) {
            let (counts, rule) = (Arc::new(PoolCounts::new(workers)), rule.clone());
            if rule.compact.is_some() {
                let pool = cache.compact_pool(&rule.name).map_err(Error::Cache)?;
                compact.push(PoolEntry { class, rule, pool, counts });
            } else {
                let pool = cache.pool(&rule.name).map_err(Error::Cache)?;
                entries.push(PoolEntry { class, rule, pool, counts });
            }
        }
        Ok(Self::of(entries, compact))
    }

    /// The set after this one: the pools of the cache that the rules name. The others keep their classes.
    ///
    /// # Errors
    /// As `new`.
    pub fn successor(&self, cache: &Cache, rules: &[PoolRule], totals: &[CommandCounters]) -> Result<Self, Error> {
        let mut next = Self::new(cache, rules, totals.len())?;
        let totals = &CommandTotals::sum(totals.iter());
        let mut classes: BTreeSet<u32> = self.labels().map(|(_, class, _)| class).collect();
        let mut label = |name: &str, class: &mut u32, counts: &mut Arc<PoolCounts>| match self
            .labels()
            .find(|(before, ..)| *before == name)
        {
            Some((_, before, counts_before)) => (*class, *counts) = (before, Arc::clone(counts_before)),
            None => {
                let free = (1..).find(|class| !classes.contains(class));
                *class = free.expect("there are fewer pools than numbers");
                classes.insert(*class);
            }
        };
        next.entries.iter_mut().for_each(|entry| label(&entry.rule.name, &mut entry.class, &mut entry.counts));
        next.compact.iter_mut().for_each(|entry| label(&entry.rule.name, &mut entry.class, &mut entry.counts));
        let all = Gets::of(totals);
        let of_default = self.gets_of_default(all);
        let counted = if next.is_single() { all } else { next.entries[0].counts.gets() };
        next.uncounted = if next.is_single() { counted.without(of_default) } else { of_default.without(counted) };
        Ok(next)
    }

    /// A compact pool is not searched for entries whose keys belong to another pool by now: it starts empty.
    pub fn flush_compact(&self) {
        self.compact.iter().for_each(|entry| entry.pool.flush(Duration::ZERO));
    }

    /// Whether the pool `default` is the only one.
    pub fn is_single(&self) -> bool {
        self.entries.len() == 1 && self.compact.is_empty()
    }

    /// Name, slab class and counts of all pools.
    fn labels(&self) -> impl Iterator<Item = (&str, u32, &Arc<PoolCounts>)> {
        let stores = self.entries.iter().map(|entry| (&*entry.rule.name, entry.class, &entry.counts));
        stores.chain(self.compact.iter().map(|entry| (&*entry.rule.name, entry.class, &entry.counts)))
    }

    /// The rules of all pools.
    pub fn rules(&self) -> impl Iterator<Item = &PoolRule> {
        self.entries.iter().map(|entry| &entry.rule).chain(self.compact.iter().map(|entry| &entry.rule))
    }

    /// The slab class and the counts of the pool of this number.
    pub fn class_and_counts(&self, number: usize) -> (u32, &PoolCounts) {
        match number.checked_sub(self.entries.len()) {
            None => (self.entries[number].class, &self.entries[number].counts),
            Some(at) => (self.compact[at].class, &self.compact[at].counts),
        }
    }

    /// Gets of the pool `default`, of all gets of the server.
    fn gets_of_default(&self, all: Gets) -> Gets {
        if self.is_single() {
            return all.without(self.uncounted);
        }
        let mut gets = self.entries[0].counts.gets();
        gets += self.uncounted;
        gets
    }

    fn of(entries: Vec<PoolEntry>, compact: Vec<PoolEntry<CompactPool>>) -> Self {
        let rules = entries.iter().map(|entry| &entry.rule).chain(compact.iter().map(|entry| &entry.rule));
        let prefixes = rules.enumerate();
        let prefixes = prefixes.flat_map(|(at, rule)| rule.prefixes.iter().map(move |prefix| (&prefix[..], at)));
        Self { prefixes: PrefixTable::new(prefixes), entries, compact, uncounted: Gets::default() }
    }

    /// Reads the gauges and counters of each pool. `totals`: the counts of the whole server.
    pub fn read(&self, totals: &CommandTotals) -> Vec<PoolReading> {
        let of_default = self.gets_of_default(Gets::of(totals));
        let count = |class: u32, counts: &PoolCounts, stats: &Stats| {
            let gets = if class == 1 { of_default } else { counts.gets() };
            let refused = if self.is_single() { totals.store_no_memory } else { counts.refused() };
            let Stats { stored_total: stored, evictions, demotions, expired, .. } = *stats;
            let unread_evictions = counts.evicted.unread();
            let totals = PoolTotals { gets, refused, stored, evictions, demotions, unread_evictions, expired };
            (totals, totals.since(&lock(&counts.baseline)))
        };
        let read = |entry: &PoolEntry| {
            let stats = entry.pool.stats();
            let (totals, since_reset) = count(entry.class, &entry.counts, &stats);
            let (class, rule, pool) = (entry.class, entry.rule.clone(), Some(entry.pool.clone()));
            PoolReading {
                class,
                rule,
                pool,
                compact: None,
                stats,
                flash: entry.pool.flash_stats(),
                evicted_idle_seconds: entry.counts.evicted.latest_idle_seconds(),
                totals,
                since_reset,
            }
        };
        let read_compact = |entry: &PoolEntry<CompactPool>| {
            let (stats, compact) = (entry.pool.stats(), Some(entry.pool.compact_stats()));
            let (totals, since_reset) = count(entry.class, &entry.counts, &stats);
            let (class, rule) = (entry.class, entry.rule.clone());
            PoolReading {
                class,
                rule,
                pool: None,
                compact,
                stats,
                flash: None,
                evicted_idle_seconds: 0,
                totals,
                since_reset,
            }
        };
        self.entries.iter().map(read).chain(self.compact.iter().map(read_compact)).collect()
    }

    /// Evictions of objects without a counted read since their write.
    pub fn unread_evictions(&self) -> u64 {
        self.entries.iter().map(|entry| entry.counts.evicted.unread()).sum()
    }

    /// Makes the present counts those to which `stats` is relative.
    pub fn reset(&self, totals: &CommandTotals) {
        for ((.., counts), reading) in self.labels().zip(self.read(totals)) {
            *lock(&counts.baseline) = reading.totals;
        }
    }

    /// The sums of all pools; the oldest age. Pools of different sizes may divide TTLs differently.
    pub fn segment_snapshot(&self) -> SegmentSnapshot {
        let mut snapshots = self.entries.iter().map(|entry| entry.pool.segment_snapshot());
        let mut sum = snapshots.next().expect("there is the pool default");
        for snapshot in snapshots {
            sum.live_bytes += snapshot.live_bytes;
            sum.expired_bytes += snapshot.expired_bytes;
            sum.dead_bytes += snapshot.dead_bytes;
            sum.index_bytes += snapshot.index_bytes;
            sum.metadata_bytes += snapshot.metadata_bytes;
            sum.free_bytes += snapshot.free_bytes;
            sum.segments_free += snapshot.segments_free;
            sum.segments_open += snapshot.segments_open;
            sum.segments_sealed += snapshot.segments_sealed;
            sum.segments_retired += snapshot.segments_retired;
            sum.age_seconds = sum.age_seconds.max(snapshot.age_seconds);
            snapshot.ttl_buckets.iter().for_each(|bucket| add_bucket(&mut sum.ttl_buckets, bucket));
        }
        // The TTL bucket without expiry is last.
        sum.ttl_buckets.sort_by_key(|bucket| bucket.ttl_seconds.unwrap_or((u32::MAX, u32::MAX)));
        sum
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
            sum.demotions += counters.demotions;
            sum.expired += counters.expired;
            sum.flushed += counters.flushed;
        }
        for entry in &self.compact {
            let stats = entry.pool.stats();
            sum.items += stats.items;
            sum.memory_limit_bytes += stats.memory_limit_bytes;
            sum.memory_used_bytes += stats.memory_used_bytes;
            sum.stored_total += stats.stored_total;
            sum.evictions += stats.evictions;
            sum.expired += stats.expired;
            sum.flushed += stats.flushed;
        }
        sum
    }
}

fn add_bucket(buckets: &mut Vec<TtlBucketSnapshot>, bucket: &TtlBucketSnapshot) {
    match buckets.iter_mut().find(|other| other.ttl_seconds == bucket.ttl_seconds) {
        Some(sum) => {
            sum.segments += bucket.segments;
            sum.segment_bytes += bucket.segment_bytes;
            sum.live_bytes += bucket.live_bytes;
            sum.expired_bytes += bucket.expired_bytes;
            sum.items += bucket.items;
        }
        None => buckets.push(*bucket),
    }
}

impl PublishedPools {
    pub fn new(set: PoolSet) -> Self {
        Self {
            published: Mutex::new(Arc::new(set)),
            version: AtomicU64::new(0),
            is_sweeping: AtomicBool::new(false),
            reloading: Mutex::default(),
            replaced: Mutex::default(),
            leaving: Mutex::default(),
        }
    }

    pub fn current(&self) -> Arc<PoolSet> {
        Arc::clone(&lock(&self.published))
    }

    /// Makes all threads take this set over in their next rounds.
    pub fn publish(&self, set: PoolSet) {
        let mut published = lock(&self.published);
        let before = std::mem::replace(&mut *published, Arc::new(set));
        lock(&self.replaced).push(Arc::downgrade(&before));
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// The pools of these names get no keys once the next set is published and taken over.
    pub fn announce_leaving(&self, names: &[String]) {
        *lock(&self.leaving) = names.to_vec();
    }

    /// Removes the announced pools, but for those that get keys.
    ///
    /// # Errors
    /// `Closed`: the cache keeps the others.
    pub fn remove_leaving(&self, cache: &Cache) -> Result<(), CacheError> {
        let (current, mut leaving) = (self.current(), lock(&self.leaving));
        leaving.retain(|name| current.rules().all(|rule| rule.name != *name));
        while let Some(name) = leaving.last() {
            match cache.remove_pool(name) {
                Ok(()) | Err(CacheError::UnknownPool { .. }) => leaving.pop(),
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// Whether no thread uses an earlier set.
    pub fn is_taken_over(&self) -> bool {
        let mut replaced = lock(&self.replaced);
        replaced.retain(|set| set.strong_count() > 0);
        replaced.is_empty()
    }

    /// Changes with the set; another thread's set may be newer than the version that is read before it.
    #[inline]
    pub fn version(&self) -> u64 {
        // The set is behind a lock, so nothing depends on the order of this load.
        self.version.load(Ordering::Relaxed)
    }
}
