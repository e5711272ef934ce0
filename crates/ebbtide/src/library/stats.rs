//! Statistics of a cache or of a pool.

use super::flash_stats::FlashStats;
use std::fmt::{Display, Formatter, Result};

/// Counters since the start, and gauges; those of a pool, or the sums of all pools.
///
/// ```
/// # use ebbtide::{ByteSize, Cache};
/// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
/// cache.insert("k", "v")?;
/// let _ = (cache.get("k"), cache.get("absent"));
/// let stats = cache.stats();
/// assert_eq!((stats.hits, stats.misses, stats.inserts), (1, 1, 1));
/// println!("{stats}");
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Lookups that found a value.
    pub hits: u64,
    /// Lookups that found a negative result of a compact pool.
    pub negative_hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Loaders that returned a value, or that there is none.
    pub loads: u64,
    /// Loaders that failed, panicked or were cancelled.
    pub failed_loads: u64,
    /// Values that the codec of a [`crate::TypedCache`] has refused to a call with a loader: misses, too.
    pub undecodable: u64,
    /// Calls of the eviction listener that have panicked, of all pools.
    pub listener_panics: u64,
    /// Removals that the eviction listener has caused and was not told of, of all pools.
    pub untold_removals: u64,
    /// Entries in memory, with expired ones whose memory is not freed yet.
    pub entries: u64,
    /// The memory budget.
    pub memory_limit_bytes: u64,
    /// The used part of the budget.
    pub memory_used_bytes: u64,
    /// Writes that stored a value, also one whose TTL was over at once.
    pub inserts: u64,
    /// Entries that left memory to make space. With flash most of them are there: see `demotions`.
    pub evictions: u64,
    /// The part of `evictions` that flash took, or had already. The cache has lost the others.
    pub demotions: u64,
    /// Expired and invalidated entries whose memory was freed.
    pub expirations: u64,
    /// Of flash; `None` without [`crate::CacheBuilder::flash`].
    pub flash: Option<FlashStats>,
}

impl Stats {
    /// Hits, negative ones included, over lookups; 0 without lookups.
    ///
    /// ```
    /// # use ebbtide::{ByteSize, Cache};
    /// # let cache = Cache::builder().memory(ByteSize::mib(64)).build()?;
    /// cache.insert("k", "v")?;
    /// let _ = (cache.get("k"), cache.get("absent"));
    /// assert_eq!(cache.stats().hit_ratio(), 0.5);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn hit_ratio(&self) -> f64 {
        let hits = self.hits + self.negative_hits;
        match hits + self.misses {
            0 => 0.0,
            lookups => hits as f64 / lookups as f64,
        }
    }
}

/// Counters of the library, beside those of the engine.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub hits: u64,
    pub negative_hits: u64,
    pub misses: u64,
    pub loads: u64,
    pub failed_loads: u64,
    pub undecodable: u64,
    pub listener_panics: u64,
    pub untold_removals: u64,
}

impl Counts {
    pub fn plus(self, other: Self) -> Self {
        Self {
            hits: self.hits + other.hits,
            negative_hits: self.negative_hits + other.negative_hits,
            misses: self.misses + other.misses,
            loads: self.loads + other.loads,
            failed_loads: self.failed_loads + other.failed_loads,
            undecodable: self.undecodable + other.undecodable,
            // Of the cache: all of its pools have the same, but compact ones, which have none.
            listener_panics: self.listener_panics.max(other.listener_panics),
            untold_removals: self.untold_removals.max(other.untold_removals),
        }
    }

    pub fn stats(self, engine: &ebbtide_store::Stats, flash: Option<FlashStats>) -> Stats {
        Stats {
            hits: self.hits,
            negative_hits: self.negative_hits,
            misses: self.misses,
            loads: self.loads,
            failed_loads: self.failed_loads,
            undecodable: self.undecodable,
            listener_panics: self.listener_panics,
            untold_removals: self.untold_removals,
            entries: engine.items,
            memory_limit_bytes: engine.memory_limit_bytes,
            memory_used_bytes: engine.memory_used_bytes,
            inserts: engine.stored_total,
            evictions: engine.displaced(),
            demotions: engine.demotions,
            expirations: engine.expired,
            flash,
        }
    }
}

impl Display for Stats {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let negative = match self.negative_hits {
            0 => String::new(),
            hits => format!("{hits} negative hits, "),
        };
        write!(
            f,
            "hit ratio {:.2} % ({} hits, {negative}{} misses), {} entries, {:.1} of {:.1} MiB, {} evictions, {} expirations",
            self.hit_ratio() * 100.0,
            self.hits,
            self.misses,
            self.entries,
            mib(self.memory_used_bytes),
            mib(self.memory_limit_bytes),
            self.evictions,
            self.expirations,
        )?;
        self.flash.map_or(Ok(()), |flash| write!(f, "; flash: {flash}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evictions_include_those_of_the_index_once() {
        let engine = ebbtide_store::Stats { evictions: 7, index_replaced: 3, ..Default::default() };
        assert_eq!(Counts::default().stats(&engine, None).evictions, 7);
        let engine = ebbtide_store::Stats { demotions: 4, ..engine };
        let stats = Counts::default().stats(&engine, None);
        assert_eq!((stats.evictions, stats.demotions), (11, 4), "entries that flash took left memory, too");
    }
}
