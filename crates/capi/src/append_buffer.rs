//! Append buffers: records of bytes, the oldest first.

use crate::cache::{bytes, ebbtide_cache, insert_options};
use crate::status::{Failure, ebbtide_status, guard};
use ebbtide::structured::AppendBuffer;
use std::ffi::c_void;

/// Receives a record, whose bytes are good during the call; false ends the walk.
pub type ebbtide_record_visitor =
    Option<unsafe extern "C" fn(record: *const u8, length: usize, context: *mut c_void) -> bool>;

/// # Safety
/// As `ebbtide_buffer_append`.
unsafe fn buffer(cache: *const ebbtide_cache, key: *const u8, key_length: usize) -> Result<AppendBuffer, Failure> {
    // SAFETY: the caller promises handle and bytes.
    let (handle, key) = unsafe { (ebbtide_cache::open(cache)?, bytes(key, key_length, "key")?) };
    Ok(handle.pool.append_buffer(key))
}

/// Appends a record to the buffer of a key. An absent buffer is created, with `ttl_ms` as `ebbtide_insert` knows it; a
/// present one keeps its TTL.
///
/// # Safety
/// `cache` is null or a handle that was not freed; `key` and `record` have as many bytes as said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_buffer_append(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    record: *const u8,
    record_length: usize,
    ttl_ms: u64,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and bytes.
        let (buffer, record) = unsafe { (buffer(cache, key, key_length)?, bytes(record, record_length, "record")?) };
        buffer.append_with(record, insert_options(ttl_ms))?;
        Ok(ebbtide_status::Ok)
    })
}

/// Removes all records but the last `count`. `removed` may be null; else it gets their number.
///
/// # Safety
/// As `ebbtide_buffer_append`; `removed` is null or points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_buffer_retain_last(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    count: usize,
    removed: *mut usize,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and bytes.
        let number = unsafe { buffer(cache, key, key_length)? }.retain_last(count)?;
        if !removed.is_null() {
            // SAFETY: the caller promises memory for the number.
            unsafe { removed.write(number) };
        }
        Ok(ebbtide_status::Ok)
    })
}

/// Calls `visit` with every record, the oldest first, as they are at one moment: `OK`, or `MISS` if the buffer is
/// absent.
///
/// # Safety
/// As `ebbtide_buffer_append`; `visit` does not leave by `longjmp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_buffer_each(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    visit: ebbtide_record_visitor,
    context: *mut c_void,
) -> ebbtide_status {
    guard(|| {
        let visit = visit.ok_or_else(|| Failure::argument("visit is null"))?;
        // SAFETY: the caller promises handle and bytes.
        let Some(records) = (unsafe { buffer(cache, key, key_length)? }).records()? else {
            return Ok(ebbtide_status::Miss);
        };
        for record in records.iter() {
            // SAFETY: the caller promises a function of this kind.
            if !unsafe { visit(record.as_ptr(), record.len(), context) } {
                break;
            }
        }
        Ok(ebbtide_status::Ok)
    })
}
