//! Statistics of flash, of a cache or of a pool.

use crate::memcached;
use crate::memcached::FlashPoolStats;
use ebbtide_flash::device::Health;
use std::fmt::{Display, Formatter, Result};

/// Counters since the start, and gauges, of flash: [`crate::Stats::flash`]. Those of a pool, or the sums of all pools.
///
/// ```
/// # use ebbtide::{ByteSize, Cache};
/// use ebbtide::flash::Health;
///
/// # let folder = tempfile::tempdir().unwrap();
/// let builder = Cache::builder().memory(ByteSize::mib(64));
/// let cache = builder.flash(folder.path().join("app.flash"), ByteSize::mib(256)).build()?;
/// let flash = cache.stats().flash.expect("the cache has flash");
/// assert_eq!((flash.hits, flash.used_bytes), (0, 0));
/// assert!(flash.totals.capacity_bytes <= 256 << 20 && flash.totals.health == Health::Healthy);
/// println!("{flash}");
/// # Ok::<(), ebbtide::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlashStats {
    /// Lookups that found a value on flash, which [`crate::Stats::hits`] counts, too; and changes that read one there.
    pub hits: u64,
    /// Bytes of entries on flash. Removed, replaced and expired ones count until their space is reclaimed.
    pub used_bytes: u64,
    /// Bytes that the pool may use while flash is full; for a cache [`FlashTotals::capacity_bytes`].
    pub share_bytes: u64,
    /// Bytes of keys and values of the entries that were written.
    pub inserted_bytes: u64,
    /// Evicted entries that were not written because the pool used more than its share.
    pub refused_by_share: u64,
    /// Bytes of memory that the index of flash uses for the entries.
    pub index_bytes: u64,
    /// Of all pools, also in the statistics of one: flash does not count these by pool.
    pub totals: FlashTotals,
}

/// Counters since the start, and gauges, that flash keeps for all pools together: [`FlashStats::totals`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlashTotals {
    /// Entries on flash, with expired ones whose space is not reclaimed yet. An entry that is cut where a region ends
    /// counts once for each of its parts.
    pub entries: u64,
    /// Bytes that entries may use.
    pub capacity_bytes: u64,
    /// The part of [`crate::Stats::memory_limit_bytes`] that flash has.
    pub memory_limit_bytes: u64,
    /// The used part of it.
    pub memory_used_bytes: u64,
    /// Entries that were written.
    pub inserts: u64,
    /// Evicted entries that were not written because flash had them already.
    pub unchanged: u64,
    /// Bytes that the device was given: entries, their rewrites, and the frames around them.
    pub written_bytes: u64,
    /// Hits whose value was copied to memory ([`crate::flash::Options::promotion`]).
    pub promotions: u64,
    /// Evicted entries that [`crate::flash::Options::min_ttl`] refused.
    pub refused_by_min_ttl: u64,
    /// Evicted entries that [`crate::flash::Options::min_value`] refused.
    pub refused_by_min_value: u64,
    /// Evicted entries that [`crate::flash::Options::admission`] refused.
    pub refused_by_admission: u64,
    /// Evicted entries that [`crate::flash::Options::write_budget`] refused.
    pub refused_by_budget: u64,
    /// Evicted entries that were refused because the space earns more hits with entries that were hit
    /// ([`crate::flash::Reinsertion::Auto`]).
    pub refused_by_reinsertion: u64,
    /// Evicted entries that were admitted and could not be written: too long, or the device too slow, full or failed.
    pub drops: u64,
    /// Entries that left flash to make space.
    pub evictions: u64,
    /// Expired entries whose space was reclaimed.
    pub expirations: u64,
    /// Entries that were lost because the device failed to read or write their place.
    pub losses: u64,
    /// Reads that returned other bytes than were written: misses.
    pub corrupt_reads: u64,
    /// Reads that the device failed.
    pub read_errors: u64,
    /// Writes that the device failed.
    pub write_errors: u64,
    /// The state of the device, as of the last second. A failed one is not used any more.
    pub health: Health,
}

impl FlashStats {
    /// The sums of these pools, which are those of a cache or one of them.
    pub(super) fn sum_of(pools: impl Iterator<Item = FlashPoolStats>, tier: &memcached::FlashStats) -> Self {
        let totals = FlashTotals::of(tier);
        let sum = pools.fold(FlashPoolStats::default(), |sum, pool| FlashPoolStats {
            hits: sum.hits + pool.hits,
            written_bytes: sum.written_bytes + pool.written_bytes,
            bytes: sum.bytes + pool.bytes,
            // A pool alone may have all of flash.
            share_bytes: sum.share_bytes.saturating_add(pool.share_bytes),
            refused_by_share: sum.refused_by_share + pool.refused_by_share,
            index_bytes: sum.index_bytes + pool.index_bytes,
        });
        Self {
            hits: sum.hits,
            used_bytes: sum.bytes,
            share_bytes: sum.share_bytes.min(totals.capacity_bytes),
            inserted_bytes: sum.written_bytes,
            refused_by_share: sum.refused_by_share,
            index_bytes: sum.index_bytes,
            totals,
        }
    }
}

impl FlashTotals {
    fn of(flash: &memcached::FlashStats) -> Self {
        let tier = &flash.tier;
        Self {
            entries: tier.objects,
            capacity_bytes: tier.capacity_bytes,
            memory_limit_bytes: flash.memory_limit_bytes,
            memory_used_bytes: tier.memory_bytes,
            inserts: tier.inserts,
            unchanged: flash.unchanged,
            written_bytes: tier.written.total(),
            promotions: flash.promoted,
            refused_by_min_ttl: tier.admission.refused_expires_soon,
            refused_by_min_value: tier.admission.refused_too_small,
            refused_by_admission: tier.admission.refused_by_policy,
            refused_by_budget: tier.admission.refused_by_budget,
            refused_by_reinsertion: tier.displaced,
            drops: tier.drops.total(),
            evictions: tier.evictions.for_space(),
            expirations: tier.evictions.expired,
            losses: tier.evictions.failed,
            corrupt_reads: tier.large.misses_corrupt + tier.large.scans_corrupt + tier.small.counts.corrupt_pages,
            read_errors: tier.device.reads.errors,
            write_errors: tier.device.writes.errors,
            health: tier.device.health,
        }
    }

    /// Evicted entries that were not written by decision.
    fn refused(&self) -> u64 {
        let by_limits = self.refused_by_min_ttl + self.refused_by_min_value;
        by_limits + self.refused_by_admission + self.refused_by_budget + self.refused_by_reinsertion
    }
}

impl Display for FlashStats {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let health = match self.totals.health {
            Health::Healthy => "healthy",
            Health::Degraded => "degraded",
            Health::Failed => "failed",
        };
        write!(
            f,
            "{} hits, {:.1} of {:.1} MiB; of all pools: {} entries, {} written, {} refused, {} dropped, device {health}",
            self.hits,
            mib(self.used_bytes),
            mib(self.share_bytes),
            self.totals.entries,
            self.totals.inserts,
            self.totals.refused(),
            self.totals.drops,
        )
    }
}
