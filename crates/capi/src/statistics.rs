//! Statistics of a cache or a pool.

use crate::cache::{ebbtide_cache, not_null};
use crate::status::{Failure, ebbtide_status, guard};
use ebbtide::Stats;
use ebbtide::flash::Health;

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
    /// Entries that left memory to make space, also those that flash took.
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
        let stats = stats_of(handle);
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

fn stats_of(handle: &ebbtide_cache) -> Stats {
    if handle.is_whole { handle.cache.stats() } else { handle.pool.stats() }
}

/// Counters since the cache was opened, and gauges, of flash. Those from `entries` on are of all pools.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ebbtide_flash_statistics {
    /// Lookups that found a value on flash; they are hits of `ebbtide_statistics`, too.
    pub hits: u64,
    /// Bytes of entries on flash. Removed, replaced and expired ones count until their space is reclaimed.
    pub used_bytes: u64,
    /// Bytes that a pool may use while flash is full; of the whole cache the capacity.
    pub share_bytes: u64,
    /// Bytes of keys and values of the entries that were written.
    pub inserted_bytes: u64,
    /// Evicted entries that were not written because the pool used more than its share.
    pub refused_by_share: u64,
    /// Entries on flash.
    pub entries: u64,
    /// Bytes that entries may use.
    pub capacity_bytes: u64,
    /// Entries that were written.
    pub inserts: u64,
    /// Bytes that the device was given.
    pub written_bytes: u64,
    /// Evicted entries that could not be written.
    pub drops: u64,
    /// Entries that left flash to make space.
    pub evictions: u64,
    /// Expired entries whose space was reclaimed.
    pub expirations: u64,
    /// Reads that the device failed.
    pub read_errors: u64,
    /// Writes that the device failed.
    pub write_errors: u64,
    /// The device has failed, and is not used any more.
    pub has_failed: bool,
}

/// The statistics of flash: of the whole cache, or of a pool, as for `ebbtide_stats`. `REFUSED` without flash.
///
/// # Safety
/// As for `ebbtide_stats`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_flash_stats(
    cache: *const ebbtide_cache,
    statistics: *mut ebbtide_flash_statistics,
) -> ebbtide_status {
    guard(|| {
        let out = not_null(statistics, "statistics")?;
        // SAFETY: the caller promises a handle that lives.
        let handle = unsafe { ebbtide_cache::open(cache)? };
        let no_flash = || Failure(ebbtide_status::Refused, "the cache has no flash".to_owned());
        let flash = stats_of(handle).flash.ok_or_else(no_flash)?;
        let totals = flash.totals;
        let statistics = ebbtide_flash_statistics {
            hits: flash.hits,
            used_bytes: flash.used_bytes,
            share_bytes: flash.share_bytes,
            inserted_bytes: flash.inserted_bytes,
            refused_by_share: flash.refused_by_share,
            entries: totals.entries,
            capacity_bytes: totals.capacity_bytes,
            inserts: totals.inserts,
            written_bytes: totals.written_bytes,
            drops: totals.drops,
            evictions: totals.evictions,
            expirations: totals.expirations,
            read_errors: totals.read_errors,
            write_errors: totals.write_errors,
            has_failed: totals.health == Health::Failed,
        };
        // SAFETY: the caller promises memory for the struct.
        unsafe { out.write(statistics) };
        Ok(ebbtide_status::Ok)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::EBBTIDE_TTL_NEVER;
    use crate::{ebbtide_free, ebbtide_insert, ebbtide_open, ebbtide_options_init};
    use std::ffi::CString;
    use std::mem::MaybeUninit;
    use std::ptr;

    #[test]
    fn flash_counts_the_entries_that_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = CString::new(folder.path().join("flash").into_os_string().into_encoded_bytes()).unwrap();
        let (mut options, mut statistics) = (MaybeUninit::uninit(), MaybeUninit::<ebbtide_flash_statistics>::uninit());
        let (mut cache, value) = (ptr::null_mut(), [7; 4000]);
        // SAFETY: pointers are those of variables of this function, of the lengths that are said, and the cache is
        // freed once, at the end.
        let statistics = unsafe {
            ebbtide_options_init(options.as_mut_ptr());
            let mut options = options.assume_init();
            (options.memory_bytes, options.flash_bytes, options.flash_path) = (16 << 20, 64 << 20, path.as_ptr());
            assert_eq!(ebbtide_open(&raw const options, &raw mut cache), ebbtide_status::Ok);
            for number in 0..10_000_u32 {
                let key = number.to_le_bytes();
                let (key, value) = (key.as_ptr(), value.as_ptr());
                let inserted = ebbtide_insert(cache, key, size_of::<u32>(), value, 4000, EBBTIDE_TTL_NEVER);
                assert_eq!(inserted, ebbtide_status::Ok);
            }
            assert_eq!(ebbtide_flash_stats(cache, statistics.as_mut_ptr()), ebbtide_status::Ok);
            ebbtide_free(cache);
            statistics.assume_init()
        };
        assert!(statistics.inserts > 3000 && statistics.entries > 3000, "{statistics:?}");
        assert!(statistics.inserted_bytes == statistics.inserts * 4004 && !statistics.has_failed, "{statistics:?}");
        assert!(statistics.share_bytes == statistics.capacity_bytes && statistics.hits == 0, "{statistics:?}");
    }
}
