//! Range maps: maps of bytes to bytes with queries of key ranges.

use crate::cache::{bytes, ebbtide_cache, found, insert_options, not_null};
use crate::status::{Failure, ebbtide_status, guard};
use crate::structured::{ebbtide_map_visitor, visit_all};
use crate::value::ebbtide_value;
use ebbtide::structured::RangeMap;
use std::ffi::c_void;
use std::ops::Bound;

type BytesRangeMap = RangeMap<Vec<u8>, Vec<u8>>;

/// # Safety
/// As `ebbtide_range_map_insert`.
unsafe fn map(cache: *const ebbtide_cache, key: *const u8, key_length: usize) -> Result<BytesRangeMap, Failure> {
    // SAFETY: the caller promises handle and bytes.
    let (handle, key) = unsafe { (ebbtide_cache::open(cache)?, bytes(key, key_length, "key")?) };
    Ok(handle.pool.range_map(key))
}

/// Writes an entry of the range map of a key. An absent map is created, with `ttl_ms` as `ebbtide_insert` knows it; a
/// present one keeps its TTL. Entries have keys of 1 to 255 bytes.
///
/// # Safety
/// `cache` is null or a handle that was not freed; `key`, `entry` and `value` have as many bytes as said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_range_map_insert(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    entry: *const u8,
    entry_length: usize,
    value: *const u8,
    value_length: usize,
    ttl_ms: u64,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises bytes.
        let (entry, value) =
            unsafe { (bytes(entry, entry_length, "entry")?.to_vec(), bytes(value, value_length, "value")?.to_vec()) };
        // SAFETY: the caller promises handle and bytes.
        let map = unsafe { map(cache, key, key_length)? };
        map.insert_many([(&entry, &value)], insert_options(ttl_ms))?;
        Ok(ebbtide_status::Ok)
    })
}

/// Looks an entry up, as `ebbtide_map_get`.
///
/// # Safety
/// As `ebbtide_range_map_insert`; `value` points to memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_range_map_get(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    entry: *const u8,
    entry_length: usize,
    value: *mut *mut ebbtide_value,
) -> ebbtide_status {
    guard(|| {
        let out = not_null(value, "value")?;
        // SAFETY: the caller promises memory for the pointer.
        unsafe { out.write(std::ptr::null_mut()) };
        // SAFETY: the caller promises handle and bytes.
        let (map, entry) = unsafe { (map(cache, key, key_length)?, bytes(entry, entry_length, "entry")?.to_vec()) };
        let Some(value) = map.get(&entry)? else { return Ok(ebbtide_status::Miss) };
        // SAFETY: the caller promises memory for the pointer.
        unsafe { out.write(Box::into_raw(Box::new(ebbtide_value(value.into())))) };
        Ok(ebbtide_status::Ok)
    })
}

/// Removes an entry: `OK`, or `MISS` if it or the map was absent.
///
/// # Safety
/// As `ebbtide_range_map_insert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_range_map_remove(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    entry: *const u8,
    entry_length: usize,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and bytes.
        let (map, entry) = unsafe { (map(cache, key, key_length)?, bytes(entry, entry_length, "entry")?.to_vec()) };
        Ok(found(map.remove(&entry)?))
    })
}

/// Calls `visit` with the entries whose keys are at least `from` and less than `to`, in the order of their bytes, as
/// they are at one moment. Null stands for no bound. An absent map has no entry.
///
/// # Safety
/// As `ebbtide_range_map_insert`; `from` and `to` are null or have as many bytes as said; `visit` does not leave by
/// `longjmp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_range_map_each(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    from: *const u8,
    from_length: usize,
    to: *const u8,
    to_length: usize,
    visit: ebbtide_map_visitor,
    context: *mut c_void,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and bytes.
        let (map, from_bytes, to_bytes) =
            unsafe { (map(cache, key, key_length)?, bytes(from, from_length, "from")?, bytes(to, to_length, "to")?) };
        let from = if from.is_null() { Bound::Unbounded } else { Bound::Included(from_bytes.to_vec()) };
        let to = if to.is_null() { Bound::Unbounded } else { Bound::Excluded(to_bytes.to_vec()) };
        let entries = map.range((from, to))?;
        // SAFETY: the caller promises a function of this kind.
        unsafe { visit_all(&entries, visit, context) }
    })
}
