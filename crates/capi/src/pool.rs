//! Pools.

use crate::cache::{ebbtide_cache, no_handle};
use crate::options::text;
use crate::status::{Failure, ebbtide_status, guard};
use ebbtide::{ByteSize, PoolOptions};
use std::ffi::c_char;
use std::sync::Arc;

/// Options of a pool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ebbtide_pool_options {
    /// Bytes of this struct, set by `ebbtide_pool_options_init`.
    pub size: usize,
    /// Memory that the pool has in any case. 0: as little as it works with.
    pub min_bytes: u64,
    /// Memory that the pool never exceeds. 0: no bound.
    pub max_bytes: u64,
    /// The pool's part of the memory between the bounds, relative to the other pools. Default 1.
    pub weight: u32,
}

/// Fills in the defaults. Does nothing with null.
///
/// # Safety
/// `options` is null or points to memory for the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_pool_options_init(options: *mut ebbtide_pool_options) {
    let size = size_of::<ebbtide_pool_options>();
    if !options.is_null() {
        // SAFETY: the caller promises memory for the struct.
        unsafe { options.write(ebbtide_pool_options { size, min_bytes: 0, max_bytes: 0, weight: 1 }) };
    }
}

/// # Safety
/// `name` is null or of a string that ends with a zero byte.
pub(crate) unsafe fn pool_name<'a>(name: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: the caller promises the string.
    unsafe { text(name, "name")? }.ok_or_else(|| Failure::argument("name is null"))
}

/// The options of a pool of this name.
///
/// # Safety
/// `options` is null or was filled by `ebbtide_pool_options_init`.
pub(crate) unsafe fn pool_options(name: &str, options: *const ebbtide_pool_options) -> Result<PoolOptions, Failure> {
    let pool = PoolOptions::named(name);
    // SAFETY: the caller promises the options.
    let Some(options) = (unsafe { options.as_ref() }) else { return Ok(pool) };
    if options.size != size_of::<ebbtide_pool_options>() {
        return Err(Failure::argument("options.size is wrong: call ebbtide_pool_options_init first"));
    }
    let pool = pool.min(ByteSize::bytes(options.min_bytes)).weight(options.weight);
    Ok(if options.max_bytes > 0 { pool.max(ByteSize::bytes(options.max_bytes)) } else { pool })
}

/// Adds a pool. `options` may be null.
///
/// # Safety
/// `cache` is null or a handle that was not freed; `name` is null or ends with a zero byte; `options` is null or was
/// filled by `ebbtide_pool_options_init`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_pool_add(
    cache: *const ebbtide_cache,
    name: *const c_char,
    options: *const ebbtide_pool_options,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle, string and options.
        let (handle, options) = unsafe { (ebbtide_cache::open(cache)?, pool_options(pool_name(name)?, options)?) };
        handle.cache.add_pool(&options)?;
        Ok(ebbtide_status::Ok)
    })
}

/// A handle of a pool, for all functions that take a cache; to be freed by `ebbtide_free`. The first handle of a cache
/// is of its pool `default`. After a failure `pool` is null.
///
/// # Safety
/// As `ebbtide_pool_add`; `pool` points to memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_pool(
    cache: *const ebbtide_cache,
    name: *const c_char,
    pool: *mut *mut ebbtide_cache,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises memory for the pointer.
        let out = unsafe { no_handle(pool, "pool")? };
        // SAFETY: the caller promises handle and string.
        let (handle, name) = unsafe { (ebbtide_cache::open(cache)?, pool_name(name)?) };
        let pool = handle.cache.pool(name)?;
        let is_closed = Arc::clone(&handle.is_closed);
        Ok(ebbtide_cache { cache: handle.cache.clone(), pool, is_whole: false, is_closed }.publish(out))
    })
}

/// Removes a pool with all its entries. Handles of it miss, and refuse writes as `UNKNOWN_POOL`.
///
/// # Safety
/// As `ebbtide_pool_add`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_pool_remove(cache: *const ebbtide_cache, name: *const c_char) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and string.
        let (handle, name) = unsafe { (ebbtide_cache::open(cache)?, pool_name(name)?) };
        handle.cache.remove_pool(name)?;
        Ok(ebbtide_status::Ok)
    })
}

/// Changes the bounds of the memory of the pool of this handle. All pools are divided anew.
///
/// # Safety
/// `pool` is null or a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_pool_resize(
    pool: *const ebbtide_cache,
    min_bytes: u64,
    max_bytes: u64,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises a handle that lives.
        let handle = unsafe { ebbtide_cache::open(pool)? };
        handle.pool.resize(ByteSize::bytes(min_bytes), ByteSize::bytes(max_bytes))?;
        Ok(ebbtide_status::Ok)
    })
}
