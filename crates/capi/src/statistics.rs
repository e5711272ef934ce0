//! Statistics of a cache or a pool.

use crate::cache::{ebbtide_cache, not_null};
use crate::status::{ebbtide_status, guard};

/// Counters since the cache was opened, and gauges.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ebbtide_statistics {
    /// Lookups that found a value.
    pub hits: u64,
    /// Lookups that found a negative result of a compact pool.
    pub negative_hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Entries in memory.
    pub entries: u64,
    /// The memory budget.
    pub memory_limit_bytes: u64,
    /// The used part of the budget.
    pub memory_used_bytes: u64,
    /// Writes that stored a value.
    pub inserts: u64,
    /// Entries that left memory to make space.
    pub evictions: u64,
    /// Expired and invalidated entries whose memory was freed.
    pub expirations: u64,
}

/// The statistics of the whole cache, which are the sums of all pools, compact ones included; with a handle that
/// `ebbtide_pool` has given, those of its pool.
///
/// # Safety
/// `cache` is null or a handle that was not freed; `statistics` is null or points to memory for the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_stats(
    cache: *const ebbtide_cache,
    statistics: *mut ebbtide_statistics,
) -> ebbtide_status {
    guard(|| {
        let out = not_null(statistics, "statistics")?;
        // SAFETY: the caller promises a handle that lives.
        let handle = unsafe { ebbtide_cache::open(cache)? };
        let stats = if handle.is_whole { handle.cache.stats() } else { handle.pool.stats() };
        let statistics = ebbtide_statistics {
            hits: stats.hits,
            negative_hits: stats.negative_hits,
            misses: stats.misses,
            entries: stats.entries,
            memory_limit_bytes: stats.memory_limit_bytes,
            memory_used_bytes: stats.memory_used_bytes,
            inserts: stats.inserts,
            evictions: stats.evictions,
            expirations: stats.expirations,
        };
        // SAFETY: the caller promises memory for the struct.
        unsafe { out.write(statistics) };
        Ok(ebbtide_status::Ok)
    })
}
