//! Lookups of parts of a value and of many keys, and writes that depend on the present value.

use crate::cache::{bytes, ebbtide_cache, found, insert_options, not_null};
use crate::status::{Failure, ebbtide_status, guard};
use crate::value::ebbtide_value;
use std::ptr;

/// Looks up many keys at once, which is faster than one after the other. `values` gets a pointer for each key, in their
/// order: a value that is to be freed by `ebbtide_value_free`, or null after a miss.
///
/// # Safety
/// `cache` is null or a handle that was not freed; `keys` and `key_lengths` have `count` elements, and each key has as
/// many bytes as said; `values` has memory for `count` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_get_many(
    cache: *const ebbtide_cache,
    keys: *const *const u8,
    key_lengths: *const usize,
    count: usize,
    values: *mut *mut ebbtide_value,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises a handle that lives.
        let handle = unsafe { ebbtide_cache::open(cache)? };
        if count == 0 {
            return Ok(ebbtide_status::Ok);
        }
        let out = not_null(values, "values")?;
        if keys.is_null() || key_lengths.is_null() || count > isize::MAX as usize / size_of::<usize>() {
            let text = format!("keys or key_lengths is null, or the count {count} is impossible");
            return Err(Failure::argument(text));
        }
        // SAFETY: the caller promises `count` elements.
        let (keys, lengths) =
            unsafe { (std::slice::from_raw_parts(keys, count), std::slice::from_raw_parts(key_lengths, count)) };
        let keys = keys.iter().zip(lengths).map(|(key, length)| {
            // SAFETY: the caller promises the bytes of each key.
            unsafe { bytes(*key, *length, "a key") }
        });
        let keys = keys.collect::<Result<Vec<&[u8]>, Failure>>()?;
        for (i, value) in handle.pool.get_many(&keys).into_iter().enumerate() {
            let value = value.map_or(ptr::null_mut(), |value| Box::into_raw(Box::new(ebbtide_value(value))));
            // SAFETY: the caller promises memory for `count` pointers.
            unsafe { out.add(i).write(value) };
        }
        Ok(ebbtide_status::Ok)
    })
}

/// Copies a part of a value: up to `capacity` bytes from `offset` on. `length` is set to the bytes copied: fewer at the
/// end of the value, 0 after it. Of a long value only the parts that hold these bytes are read.
///
/// # Safety
/// As `ebbtide_insert`; `buffer` has `capacity` bytes that may be written, `length` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_get_range(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    offset: usize,
    buffer: *mut u8,
    capacity: usize,
    length: *mut usize,
) -> ebbtide_status {
    guard(|| {
        let length = not_null(length, "length")?;
        if buffer.is_null() && capacity > 0 {
            return Err(Failure::argument(format!("buffer is null, with a capacity of {capacity}")));
        }
        // SAFETY: the caller promises handle and bytes.
        let (handle, key) = unsafe { (ebbtide_cache::open(cache)?, bytes(key, key_length, "key")?) };
        let Some(part) = handle.pool.get_range(key, offset, capacity) else { return Ok(ebbtide_status::Miss) };
        // SAFETY: the caller promises memory for the length, and `capacity` bytes behind `buffer`.
        unsafe {
            length.write(part.len());
            if !part.is_empty() {
                ptr::copy_nonoverlapping(part.as_ptr(), buffer, part.len());
            }
        }
        Ok(ebbtide_status::Ok)
    })
}

/// Inserts if the key is absent: `OK`, or `MISS`, with nothing changed, if it is present.
///
/// # Safety
/// As `ebbtide_insert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_insert_if_absent(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    value: *const u8,
    value_length: usize,
    ttl_ms: u64,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and bytes.
        let (handle, key, value) = unsafe {
            (ebbtide_cache::open(cache)?, bytes(key, key_length, "key")?, bytes(value, value_length, "value")?)
        };
        Ok(found(handle.pool.insert_if_absent(key, value, insert_options(ttl_ms))?))
    })
}

/// Overwrites if the value is `expected` at that moment: `OK`, or `MISS`, with nothing changed, if the key has another
/// value or none.
///
/// # Safety
/// As `ebbtide_insert`; `expected` has as many bytes as said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_compare_and_swap(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    expected: *const u8,
    expected_length: usize,
    value: *const u8,
    value_length: usize,
    ttl_ms: u64,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and bytes.
        let (handle, key, expected, value) = unsafe {
            (
                ebbtide_cache::open(cache)?,
                bytes(key, key_length, "key")?,
                bytes(expected, expected_length, "expected")?,
                bytes(value, value_length, "value")?,
            )
        };
        Ok(found(handle.pool.compare_and_swap(key, expected, value, insert_options(ttl_ms))?))
    })
}
