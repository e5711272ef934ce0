//! Structured values: words, and maps of bytes to bytes.

use crate::cache::{bytes, ebbtide_cache, found, insert_options, not_null};
use crate::status::{Failure, ebbtide_status, guard};
use crate::value::ebbtide_value;
use ebbtide::structured::Map;
use std::ffi::c_void;

type BytesMap = Map<Vec<u8>, Vec<u8>>;

/// The largest number of words of a value.
pub const EBBTIDE_WORDS_MAX: usize = 64;

/// Changes words in place; called with the context that was given. It may be called more than once for one edit: only
/// the last call counts.
pub type ebbtide_words_editor = Option<unsafe extern "C" fn(words: *mut u64, count: usize, context: *mut c_void)>;

/// Receives an entry of a map, whose bytes are good during the call; false ends the walk.
pub type ebbtide_map_visitor = Option<
    unsafe extern "C" fn(
        key: *const u8,
        key_length: usize,
        value: *const u8,
        value_length: usize,
        context: *mut c_void,
    ) -> bool,
>;

/// # Safety
/// `words` is null or has `count` numbers.
unsafe fn numbers<'a>(words: *const u64, count: usize) -> Result<&'a [u64], Failure> {
    if words.is_null() || count == 0 || count > EBBTIDE_WORDS_MAX {
        return Err(Failure::argument(format!("words has {count} numbers: 1 to {EBBTIDE_WORDS_MAX}, and not null")));
    }
    // SAFETY: the caller promises the numbers.
    Ok(unsafe { std::slice::from_raw_parts(words, count) })
}

/// Adds to the words of a key, each modulo 2^64, as one operation. Absent words are created as zeros, with `ttl_ms` as
/// `ebbtide_insert` knows it; present ones keep their TTL. `sums` may be null; else it gets `count` numbers.
///
/// # Safety
/// `cache` is null or a handle that was not freed; `key` has as many bytes as said, `deltas` has `count` numbers, and
/// `sums` is null or has memory for as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_words_add(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    deltas: *const u64,
    count: usize,
    ttl_ms: u64,
    sums: *mut u64,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle, bytes and numbers.
        let (handle, key, deltas) =
            unsafe { (ebbtide_cache::open(cache)?, bytes(key, key_length, "key")?, numbers(deltas, count)?) };
        let initial = [0; EBBTIDE_WORDS_MAX];
        let edited = handle.pool.words(key).edit_or_create(&initial[..count], insert_options(ttl_ms), |words| {
            if words.len() != count {
                return Err(words.len());
            }
            words.iter_mut().zip(deltas).for_each(|(word, delta)| *word = word.wrapping_add(*delta));
            Ok(words.to_vec())
        })?;
        let new =
            edited.map_err(|length| Failure::argument(format!("count = {count}: the value has {length} words")))?;
        if !sums.is_null() {
            // SAFETY: the caller promises memory for the numbers.
            unsafe { std::ptr::copy_nonoverlapping(new.as_ptr(), sums, count) };
        }
        Ok(ebbtide_status::Ok)
    })
}

/// Reads the words of a key, all from one moment. `count` is set to their number, also where it is more than
/// `capacity`: then nothing is copied, and the answer is `TOO_LARGE`.
///
/// # Safety
/// As `ebbtide_words_add`; `words` has memory for `capacity` numbers, `count` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_words_get(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    words: *mut u64,
    capacity: usize,
    count: *mut usize,
) -> ebbtide_status {
    guard(|| {
        let count = not_null(count, "count")?;
        if words.is_null() && capacity > 0 {
            return Err(Failure::argument(format!("words is null, with a capacity of {capacity}")));
        }
        // SAFETY: the caller promises handle and bytes.
        let (handle, key) = unsafe { (ebbtide_cache::open(cache)?, bytes(key, key_length, "key")?) };
        let Some(found) = handle.pool.words(key).get()? else { return Ok(ebbtide_status::Miss) };
        // SAFETY: the caller promises memory for the number.
        unsafe { count.write(found.len()) };
        if found.len() > capacity {
            let text = format!("the value has {} words, the buffer {capacity}", found.len());
            return Err(Failure(ebbtide_status::TooLarge, text));
        }
        // SAFETY: the caller promises memory for `capacity` numbers.
        unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), words, found.len()) };
        Ok(ebbtide_status::Ok)
    })
}

/// Changes the words of a key as one operation: `OK`, or `MISS` if it is absent. `edit` must be brief: until it
/// returns, writes of all other threads wait where the cache is full, and fail with `OUT_OF_MEMORY` after two seconds.
/// It may edit other keys; an edit of the same key within it is `REFUSED`.
///
/// # Safety
/// As `ebbtide_words_add`; `edit` writes no more than `count` numbers, and does not leave by `longjmp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_words_edit(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    edit: ebbtide_words_editor,
    context: *mut c_void,
) -> ebbtide_status {
    guard(|| {
        let edit = edit.ok_or_else(|| Failure::argument("edit is null"))?;
        // SAFETY: the caller promises handle and bytes.
        let (handle, key) = unsafe { (ebbtide_cache::open(cache)?, bytes(key, key_length, "key")?) };
        let edited = handle.pool.words(key).edit(|words| {
            // SAFETY: the caller promises a function that keeps to the numbers.
            unsafe { edit(words.as_mut_ptr(), words.len(), context) }
        })?;
        Ok(found(edited.is_some()))
    })
}

/// Writes an entry of the map of a key. An absent map is created, with `ttl_ms` as `ebbtide_insert` knows it; a present
/// one keeps its TTL. Entries have keys of 1 to 255 bytes.
///
/// # Safety
/// `cache` is null or a handle that was not freed; `key`, `entry` and `value` have as many bytes as said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_map_insert(
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

/// Looks an entry up. A hit is a value that is to be freed by `ebbtide_value_free`; a miss of the entry or the map
/// leaves null in `value`.
///
/// # Safety
/// As `ebbtide_map_insert`; `value` points to memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_map_get(
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
/// As `ebbtide_map_insert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_map_remove(
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

/// Calls `visit` with every entry of a map, in the order of their keys, as they are at one moment: `OK`, or `MISS` if
/// the map is absent.
///
/// # Safety
/// As `ebbtide_map_insert`; `visit` does not leave by `longjmp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_map_each(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    visit: ebbtide_map_visitor,
    context: *mut c_void,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and bytes.
        let map = unsafe { map(cache, key, key_length)? };
        let entries = map.snapshot()?.map(|map| map.entries()).transpose()?;
        // SAFETY: the caller promises a function of this kind.
        let visited = unsafe { visit_all(entries.iter().flatten(), visit, context)? };
        Ok(if entries.is_some() { visited } else { ebbtide_status::Miss })
    })
}

/// # Safety
/// As `ebbtide_map_each`.
pub(crate) unsafe fn visit_all<'a>(
    entries: impl IntoIterator<Item = &'a (Vec<u8>, Vec<u8>)>,
    visit: ebbtide_map_visitor,
    context: *mut c_void,
) -> Result<ebbtide_status, Failure> {
    let visit = visit.ok_or_else(|| Failure::argument("visit is null"))?;
    for (entry, value) in entries {
        // SAFETY: the caller promises a function of this kind.
        if !unsafe { visit(entry.as_ptr(), entry.len(), value.as_ptr(), value.len(), context) } {
            break;
        }
    }
    Ok(ebbtide_status::Ok)
}

/// # Safety
/// As `ebbtide_map_insert`.
unsafe fn map(cache: *const ebbtide_cache, key: *const u8, key_length: usize) -> Result<BytesMap, Failure> {
    // SAFETY: the caller promises handle and bytes.
    let (handle, key) = unsafe { (ebbtide_cache::open(cache)?, bytes(key, key_length, "key")?) };
    Ok(handle.pool.map(key))
}
