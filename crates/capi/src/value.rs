//! Hits.

use ebbtide::Value;

/// The value of a hit. It stays as it is whatever happens to its key, until `ebbtide_value_free`.
#[derive(Debug)]
pub struct ebbtide_value(pub(crate) Value);

/// The bytes of a value. Null for null.
///
/// # Safety
/// `value` is null or comes from `ebbtide_get` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_value_data(value: *const ebbtide_value) -> *const u8 {
    // SAFETY: the caller promises a value that lives.
    unsafe { value.as_ref() }.map_or(std::ptr::null(), |value| value.0.as_ptr())
}

/// How many bytes a value has. 0 for null.
///
/// # Safety
/// As `ebbtide_value_data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_value_length(value: *const ebbtide_value) -> usize {
    // SAFETY: the caller promises a value that lives.
    unsafe { value.as_ref() }.map_or(0, |value| value.0.len())
}

/// Frees a value. Does nothing with null.
///
/// # Safety
/// As `ebbtide_value_data`; the value is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_value_free(value: *mut ebbtide_value) {
    if !value.is_null() {
        // SAFETY: it came from a `Box`, and the caller gives it back.
        drop(unsafe { Box::from_raw(value) });
    }
}
