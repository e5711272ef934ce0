//! A cache or a pool: opening, closing, and the operations on keys.

use crate::options::ebbtide_options;
use crate::status::{Failure, ebbtide_status, guard};
use crate::value::ebbtide_value;
use ebbtide::{ByteSize, Cache, InsertOptions, Pool, Ttl};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The TTL that the options of the cache name.
pub const EBBTIDE_TTL_DEFAULT: u64 = 0;

/// A TTL that never ends.
pub const EBBTIDE_TTL_NEVER: u64 = u64::MAX;

/// A cache, or one of its pools.
#[derive(Debug)]
pub struct ebbtide_cache {
    pub(crate) cache: Cache,
    pub(crate) pool: Pool,
    /// The handle that `ebbtide_open` has given: its statistics are those of all pools.
    pub(crate) is_whole: bool,
    /// Shared by the handles of all pools of the cache.
    pub(crate) is_closed: Arc<AtomicBool>,
}

impl ebbtide_cache {
    /// The handle behind a pointer.
    ///
    /// # Safety
    /// The pointer is null or of a handle that lives.
    pub(crate) unsafe fn open<'a>(pointer: *const Self) -> Result<&'a Self, Failure> {
        // SAFETY: the caller promises a handle that lives.
        let handle = unsafe { pointer.as_ref() }.ok_or_else(|| Failure::argument("cache is null"))?;
        // Pairs with the store of `ebbtide_close`: what the close wrote has happened for a caller that is refused.
        if handle.is_closed.load(Ordering::Acquire) {
            return Err(Failure::closed());
        }
        Ok(handle)
    }

    /// Hands a handle out.
    pub(crate) fn publish(self, out: *mut *mut Self) -> ebbtide_status {
        // SAFETY: callers have checked that `out` is not null; its memory is the C caller's promise.
        unsafe { out.write(Box::into_raw(Box::new(self))) };
        ebbtide_status::Ok
    }
}

/// The bytes of a key or a value.
///
/// # Safety
/// `data` is null or has `length` bytes that nobody changes during the call.
pub(crate) unsafe fn bytes<'a>(data: *const u8, length: usize, name: &str) -> Result<&'a [u8], Failure> {
    match (data.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::argument(format!("{name} is null, with a length of {length}"))),
        (false, _) if length > isize::MAX as usize => {
            Err(Failure::argument(format!("{name} has an impossible length of {length}")))
        }
        // SAFETY: the caller promises the bytes.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(data, length) }),
    }
}

/// Memory for a pointer, with null in it until `publish`.
///
/// # Safety
/// `pointer` is null or points to memory for a pointer.
pub(crate) unsafe fn no_handle<T>(pointer: *mut *mut T, name: &str) -> Result<*mut *mut T, Failure> {
    let out = not_null(pointer, name)?;
    // SAFETY: the caller promises memory for the pointer.
    unsafe { out.write(std::ptr::null_mut()) };
    Ok(out)
}

pub(crate) fn not_null<T>(pointer: *mut T, name: &str) -> Result<*mut T, Failure> {
    if pointer.is_null() { Err(Failure::argument(format!("{name} is null"))) } else { Ok(pointer) }
}

/// Opens a cache. With a memory file or flash it begins with what these hold. After a failure `cache` is null.
///
/// # Safety
/// `options` is null (then the defaults are taken) or was filled by `ebbtide_options_init`; `cache` points to memory
/// for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_open(
    options: *const ebbtide_options,
    cache: *mut *mut ebbtide_cache,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises memory for the pointer.
        let out = unsafe { no_handle(cache, "cache")? };
        // SAFETY: the caller promises options that were filled in.
        let cache = match unsafe { options.as_ref() } {
            // SAFETY: the caller promises the strings of the options.
            Some(options) => unsafe { options.open()? },
            None => Cache::builder().build()?,
        };
        let pool = cache.pool("default")?;
        Ok(ebbtide_cache { cache, pool, is_whole: true, is_closed: Arc::default() }.publish(out))
    })
}

/// Ends the cache: saves it to its memory file, if it has one, and leaves on flash what the next start must know. From
/// then on every call with a handle of this cache or of one of its pools answers `CLOSED`; values keep their bytes. The
/// handle is still to be freed.
///
/// # Safety
/// `cache` is null or a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_close(cache: *mut ebbtide_cache) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises a handle that lives.
        let handle = unsafe { ebbtide_cache::open(cache)? };
        // Pairs with the load of `ebbtide_cache::open`.
        handle.is_closed.store(true, Ordering::Release);
        handle.cache.close()?;
        Ok(ebbtide_status::Ok)
    })
}

/// Frees a handle of a cache or a pool. The cache lives until its last handle and its last value are freed; without
/// `ebbtide_close` what it has in memory is lost. Does nothing with null.
///
/// # Safety
/// `cache` is null or a handle that was not freed; it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_free(cache: *mut ebbtide_cache) {
    if !cache.is_null() {
        // SAFETY: it came from a `Box`, and the caller gives it back.
        let handle = unsafe { Box::from_raw(cache) };
        guard(|| {
            drop(handle);
            Ok(ebbtide_status::Ok)
        });
    }
}

/// Changes the memory of the whole cache. Shrinking evicts in the background.
///
/// # Safety
/// `cache` is null or a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_resize(cache: *const ebbtide_cache, memory_bytes: u64) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises a handle that lives.
        unsafe { ebbtide_cache::open(cache)? }.cache.resize(ByteSize::bytes(memory_bytes))?;
        Ok(ebbtide_status::Ok)
    })
}

/// Inserts or overwrites. `ttl_ms` is `EBBTIDE_TTL_DEFAULT`, `EBBTIDE_TTL_NEVER` or milliseconds.
///
/// # Safety
/// `cache` is null or a handle that was not freed; `key` and `value` have as many bytes as said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_insert(
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
        handle.pool.insert_with(key, value, insert_options(ttl_ms))?;
        Ok(ebbtide_status::Ok)
    })
}

/// The options of an insert with this TTL.
pub(crate) fn insert_options(ttl_ms: u64) -> InsertOptions {
    match ttl_ms {
        EBBTIDE_TTL_DEFAULT => InsertOptions::new(),
        ttl_ms => InsertOptions::new().ttl(ttl(ttl_ms)),
    }
}

fn ttl(ttl_ms: u64) -> Ttl {
    if ttl_ms == EBBTIDE_TTL_NEVER { Ttl::Never } else { Duration::from_millis(ttl_ms).into() }
}

pub(crate) fn found(hit: bool) -> ebbtide_status {
    if hit { ebbtide_status::Ok } else { ebbtide_status::Miss }
}

/// Looks a key up. A hit is a value that is to be freed by `ebbtide_value_free`; a miss leaves null in `value`.
///
/// # Safety
/// As `ebbtide_insert`; `value` points to memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_get(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    value: *mut *mut ebbtide_value,
) -> ebbtide_status {
    guard(|| {
        let out = not_null(value, "value")?;
        // SAFETY: the caller promises memory for the pointer.
        unsafe { out.write(std::ptr::null_mut()) };
        // SAFETY: the caller promises handle and bytes.
        let (handle, key) = unsafe { (ebbtide_cache::open(cache)?, bytes(key, key_length, "key")?) };
        let Some(value) = handle.pool.get(key) else { return Ok(ebbtide_status::Miss) };
        // SAFETY: the caller promises memory for the pointer.
        unsafe { out.write(Box::into_raw(Box::new(ebbtide_value(value)))) };
        Ok(ebbtide_status::Ok)
    })
}

/// Looks a key up and copies the value into a buffer. `length` is set to the bytes of the value, also where they are
/// more than the buffer has: then nothing is copied, and the answer is `TOO_LARGE`.
///
/// # Safety
/// As `ebbtide_insert`; `buffer` has `capacity` bytes that may be written, `length` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_get_into(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
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
        let copied = handle.pool.with(key, |value| {
            // SAFETY: the caller promises memory for the length, and `capacity` bytes behind `buffer`.
            unsafe {
                length.write(value.len());
                if value.len() <= capacity {
                    std::ptr::copy_nonoverlapping(value.as_ptr(), buffer, value.len());
                }
            }
            value.len()
        });
        match copied {
            None => Ok(ebbtide_status::Miss),
            Some(length) if length > capacity => {
                let text = format!("the value has {length} bytes, the buffer {capacity}");
                Err(Failure(ebbtide_status::TooLarge, text))
            }
            Some(_) => Ok(ebbtide_status::Ok),
        }
    })
}

/// Whether a get would hit: `OK` or `MISS`.
///
/// # Safety
/// As `ebbtide_insert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_contains(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and bytes.
        let (handle, key) = unsafe { (ebbtide_cache::open(cache)?, bytes(key, key_length, "key")?) };
        Ok(found(handle.pool.contains_key(key)))
    })
}

/// Removes a key: `OK`, or `MISS` if it was absent.
///
/// # Safety
/// As `ebbtide_insert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_remove(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and bytes.
        let (handle, key) = unsafe { (ebbtide_cache::open(cache)?, bytes(key, key_length, "key")?) };
        Ok(found(handle.pool.remove(key)))
    })
}

/// Gives an entry a new TTL, as `ebbtide_insert` knows them.
///
/// # Safety
/// As `ebbtide_insert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_touch(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    ttl_ms: u64,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and bytes.
        let (handle, key) = unsafe { (ebbtide_cache::open(cache)?, bytes(key, key_length, "key")?) };
        if ttl_ms == EBBTIDE_TTL_DEFAULT {
            return Err(Failure::argument("ttl_ms = 0: a touch needs milliseconds or EBBTIDE_TTL_NEVER"));
        }
        Ok(found(handle.pool.touch(key, ttl(ttl_ms))?))
    })
}

/// Adds to the decimal number that a value is, modulo 2^64. `number` may be null; else it gets the new number.
///
/// # Safety
/// As `ebbtide_insert`; `number` is null or points to a `uint64_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_increment(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    delta: u64,
    number: *mut u64,
) -> ebbtide_status {
    // SAFETY: the caller's promises are the same.
    unsafe { change_number(cache, key, key_length, number, |pool, key| pool.increment(key, delta)) }
}

/// Subtracts from the decimal number that a value is, down to 0.
///
/// # Safety
/// As `ebbtide_increment`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_decrement(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    delta: u64,
    number: *mut u64,
) -> ebbtide_status {
    // SAFETY: the caller's promises are the same.
    unsafe { change_number(cache, key, key_length, number, |pool, key| pool.decrement(key, delta)) }
}

/// # Safety
/// As `ebbtide_increment`.
unsafe fn change_number(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    number: *mut u64,
    change: impl FnOnce(&Pool, &[u8]) -> Result<Option<u64>, ebbtide::Error>,
) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises handle and bytes.
        let (handle, key) = unsafe { (ebbtide_cache::open(cache)?, bytes(key, key_length, "key")?) };
        let changed = change(&handle.pool, key)?;
        if let (Some(changed), false) = (changed, number.is_null()) {
            // SAFETY: the caller promises memory for the number.
            unsafe { number.write(changed) };
        }
        Ok(found(changed.is_some()))
    })
}

/// Makes every entry of the cache or pool absent.
///
/// # Safety
/// `cache` is null or a handle that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_invalidate_all(cache: *const ebbtide_cache) -> ebbtide_status {
    guard(|| {
        // SAFETY: the caller promises a handle that lives.
        let handle = unsafe { ebbtide_cache::open(cache)? };
        handle.pool.invalidate_all();
        Ok(ebbtide_status::Ok)
    })
}
