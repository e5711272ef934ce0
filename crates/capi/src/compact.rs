//! Compact pools: keys of one length, values of one length, and negative results.

use crate::cache::{bytes, ebbtide_cache, found, insert_options, no_handle, not_null};
use crate::options::text;
use crate::pool::{ebbtide_pool_options, pool_name, pool_options};
use crate::status::{Failure, ebbtide_status, guard};
use ebbtide::{CompactPool, Lookup, MissTicket};
use std::ffi::c_char;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A compact pool.
#[derive(Debug)]
pub struct ebbtide_compact {
    pool: CompactPool,
    /// Shared with the cache.
    is_closed: Arc<AtomicBool>,
}

/// The state of a key before the backend is asked, for `ebbtide_compact_insert_negative_since`.
#[derive(Debug)]
pub struct ebbtide_compact_ticket(MissTicket);

/// Counters since the cache was opened, and gauges, of a compact pool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ebbtide_compact_statistics {
    /// Lookups that found a value.
    pub hits: u64,
    /// Lookups that found a negative result.
    pub negative_hits: u64,
    /// Lookups that found neither.
    pub misses: u64,
    /// Entries, negative and expired ones included.
    pub entries: u64,
    /// Negative results among the entries.
    pub negatives: u64,
    /// Entries that fit.
    pub capacity: u64,
    /// The memory budget.
    pub memory_limit_bytes: u64,
    /// The used part of the budget.
    pub memory_used_bytes: u64,
    /// Writes that stored a value.
    pub inserts: u64,
    /// Writes that stored a negative result.
    pub negative_inserts: u64,
    /// Entries that left to make space.
    pub evictions: u64,
    /// Expired and invalidated entries that left.
    pub expirations: u64,
}

/// The pool behind a pointer.
///
/// # Safety
/// The pointer is null or of a handle that lives.
unsafe fn open<'a>(pointer: *const ebbtide_compact) -> Result<&'a CompactPool, Failure> {
    // SAFETY: the caller promises a handle that lives.
    let handle = unsafe { pointer.as_ref() }.ok_or_else(|| Failure::argument("pool is null"))?;
    // Pairs with the store of `ebbtide_close`.
    match handle.is_closed.load(Ordering::Acquire) {
        true => Err(Failure::closed()),
        false => Ok(&handle.pool),
    }
}

/// Adds a compact pool: all keys have `key_length` bytes and all values `value_length`, which may be 0, 128 together at
/// most. With `has_ttl` its entries may expire, at 4 more bytes each. `options` may be null.
///
/// # Safety
/// As `ebbtide_pool_add`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_compact_add(
    cache: *const ebbtide_cache,
    name: *const c_char,
    key_length: usize,
    value_length: usize,
    has_ttl: bool,
    options: *const ebbtide_pool_options,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle, string and options.
        let (handle, options) = unsafe { (ebbtide_cache::open(cache)?, pool_options(pool_name(name)?, options)?) };
        let options = match has_ttl {
            true => options.compact_with_ttl(key_length, value_length),
            false => options.compact(key_length, value_length),
        };
        handle.cache.add_pool(&options)?;
        Ok(ebbtide_status::Ok)
    })
}

/// A handle of a compact pool, to be freed by `ebbtide_compact_free`. `ebbtide_pool_remove` removes such a pool, too.
/// After a failure `pool` is null.
///
/// # Safety
/// As `ebbtide_pool_add`; `pool` points to memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_compact_pool(
    cache: *const ebbtide_cache,
    name: *const c_char,
    pool: *mut *mut ebbtide_compact,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises memory for the pointer.
        let out = unsafe { no_handle(pool, "pool")? };
        // SAFETY: the caller promises handle and string.
        let (handle, name) = unsafe { (ebbtide_cache::open(cache)?, text(name, "name")?) };
        let pool = handle.cache.compact_pool(name.ok_or_else(|| Failure::argument("name is null"))?)?;
        let handle = ebbtide_compact { pool, is_closed: Arc::clone(&handle.is_closed) };
        // SAFETY: the caller promises memory for the pointer.
        unsafe { out.write(Box::into_raw(Box::new(handle))) };
        Ok(ebbtide_status::Ok)
    })
}

/// Frees a handle. Does nothing with null.
///
/// # Safety
/// `pool` is null or a handle that was not freed; it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_compact_free(pool: *mut ebbtide_compact) {
    if !pool.is_null() {
        // SAFETY: it came from a `Box`, and the caller gives it back.
        let handle = unsafe { Box::from_raw(pool) };
        guard(|| {
            drop(handle);
            Ok(ebbtide_status::Ok)
        });
    }
}

/// Looks a key up: `OK` for a value, `NEGATIVE` for a negative result, or `MISS`. A value is copied to `value`, which
/// has memory for the value length of the pool; null copies nothing.
///
/// # Safety
/// `pool` is null or a handle that was not freed; `key` has as many bytes as said; `value` is null or has memory for
/// `value_length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_compact_get(
    pool: *const ebbtide_compact,
    key: *const u8,
    key_length: usize,
    value: *mut u8,
    value_length: usize,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and bytes.
        let (pool, key) = unsafe { (open(pool)?, bytes(key, key_length, "key")?) };
        let copy = |found: &[u8]| {
            if value.is_null() {
                return Ok(());
            }
            if found.len() > value_length {
                let text = format!("the value has {} bytes, the buffer {value_length}", found.len());
                return Err(Failure(ebbtide_status::TooLarge, text));
            }
            // SAFETY: the caller promises memory for the value.
            unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), value, found.len()) };
            Ok(())
        };
        match pool.with(key, copy) {
            Lookup::Hit(copied) => copied.map(|()| ebbtide_status::Ok),
            Lookup::Negative => Ok(ebbtide_status::Negative),
            Lookup::Miss => Ok(ebbtide_status::Miss),
        }
    })
}

/// Writes a value, in place of a negative result. `ttl_ms` is as `ebbtide_insert` knows it, in whole seconds.
///
/// # Safety
/// `pool` is null or a handle that was not freed; `key` and `value` have as many bytes as said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_compact_insert(
    pool: *const ebbtide_compact,
    key: *const u8,
    key_length: usize,
    value: *const u8,
    value_length: usize,
    ttl_ms: u64,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and bytes.
        let (pool, key, value) =
            unsafe { (open(pool)?, bytes(key, key_length, "key")?, bytes(value, value_length, "value")?) };
        pool.insert_with(key, value, insert_options(ttl_ms))?;
        Ok(ebbtide_status::Ok)
    })
}

/// Writes that the backend has nothing for a key, in place of a value. Another thread may insert the object between the
/// answer of the backend and this call, which then hides it: `ebbtide_compact_insert_negative_since` does not.
///
/// # Safety
/// `pool` is null or a handle that was not freed; `key` has as many bytes as said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_compact_insert_negative(
    pool: *const ebbtide_compact,
    key: *const u8,
    key_length: usize,
    ttl_ms: u64,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and bytes.
        let (pool, key) = unsafe { (open(pool)?, bytes(key, key_length, "key")?) };
        pool.insert_negative_with(key, insert_options(ttl_ms))?;
        Ok(ebbtide_status::Ok)
    })
}

/// A ticket, to be taken before the backend is asked, and given to `ebbtide_compact_insert_negative_since`.
///
/// # Safety
/// As `ebbtide_compact_insert_negative`; `ticket` points to memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_compact_take_ticket(
    pool: *const ebbtide_compact,
    key: *const u8,
    key_length: usize,
    ticket: *mut *mut ebbtide_compact_ticket,
) -> ebbtide_status {
    guard(|| {
        let out = not_null(ticket, "ticket")?;
        // SAFETY: the caller promises handle and bytes.
        let (pool, key) = unsafe { (open(pool)?, bytes(key, key_length, "key")?) };
        let ticket = ebbtide_compact_ticket(pool.ticket(key)?);
        // SAFETY: the caller promises memory for the pointer.
        unsafe { out.write(Box::into_raw(Box::new(ticket))) };
        Ok(ebbtide_status::Ok)
    })
}

/// Writes that the backend has nothing for a key, unless the key was written or removed since the ticket was taken:
/// `OK`, or `MISS` if it was. Frees the ticket in any case.
///
/// # Safety
/// As `ebbtide_compact_insert_negative`; `ticket` is null or was not freed; it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_compact_insert_negative_since(
    pool: *const ebbtide_compact,
    key: *const u8,
    key_length: usize,
    ticket: *mut ebbtide_compact_ticket,
    ttl_ms: u64,
) -> ebbtide_status {
    guard(|| {
        let ticket = not_null(ticket, "ticket")?;
        // SAFETY: it came from a `Box`, and the caller gives it back.
        let ticket = unsafe { Box::from_raw(ticket) };
        // SAFETY: the caller promises handle and bytes.
        let (pool, key) = unsafe { (open(pool)?, bytes(key, key_length, "key")?) };
        Ok(found(pool.insert_negative_since(key, ticket.0, insert_options(ttl_ms))?))
    })
}

/// Removes a key, negative or not: `OK`, or `MISS` if it was absent.
///
/// # Safety
/// As `ebbtide_compact_insert_negative`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_compact_remove(
    pool: *const ebbtide_compact,
    key: *const u8,
    key_length: usize,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and bytes.
        let (pool, key) = unsafe { (open(pool)?, bytes(key, key_length, "key")?) };
        Ok(found(pool.remove(key)?))
    })
}

/// Removes the negative result of a key: `OK`, or `MISS` if it has none. A value stays.
///
/// # Safety
/// As `ebbtide_compact_insert_negative`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_compact_remove_negative(
    pool: *const ebbtide_compact,
    key: *const u8,
    key_length: usize,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and bytes.
        let (pool, key) = unsafe { (open(pool)?, bytes(key, key_length, "key")?) };
        Ok(found(pool.remove_negative(key)?))
    })
}

/// Makes every entry of the pool absent.
///
/// # Safety
/// `pool` is null or a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_compact_invalidate_all(pool: *const ebbtide_compact) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises a handle that lives.
        unsafe { open(pool)? }.invalidate_all();
        Ok(ebbtide_status::Ok)
    })
}

/// The statistics of a compact pool.
///
/// # Safety
/// `pool` is null or a handle that was not freed; `statistics` is null or points to memory for the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_compact_stats(
    pool: *const ebbtide_compact,
    statistics: *mut ebbtide_compact_statistics,
) -> ebbtide_status {
    guard(|| {
        let out = not_null(statistics, "statistics")?;
        // SAFETY: the caller promises a handle that lives.
        let stats = unsafe { open(pool)? }.stats();
        let statistics = ebbtide_compact_statistics {
            hits: stats.hits,
            negative_hits: stats.negative_hits,
            misses: stats.misses,
            entries: stats.entries,
            negatives: stats.negatives,
            capacity: stats.capacity,
            memory_limit_bytes: stats.memory_limit_bytes,
            memory_used_bytes: stats.memory_used_bytes,
            inserts: stats.inserts,
            negative_inserts: stats.negative_inserts,
            evictions: stats.evictions,
            expirations: stats.expirations,
        };
        // SAFETY: the caller promises memory for the struct.
        unsafe { out.write(statistics) };
        Ok(ebbtide_status::Ok)
    })
}
