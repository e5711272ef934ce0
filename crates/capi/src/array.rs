//! Fixed arrays: as many numbers as they were created with, of one type.

use crate::cache::{bytes, ebbtide_cache, found, insert_options, not_null};
use crate::status::{Failure, ebbtide_status, guard};
use ebbtide::structured::{Fixed, FixedArray};
use std::ffi::c_void;

/// Elements of an array are `int8_t`.
pub const EBBTIDE_ELEMENT_I8: u32 = 0;
/// Elements of an array are `uint8_t`.
pub const EBBTIDE_ELEMENT_U8: u32 = 1;
/// Elements of an array are `int16_t`.
pub const EBBTIDE_ELEMENT_I16: u32 = 2;
/// Elements of an array are `uint16_t`.
pub const EBBTIDE_ELEMENT_U16: u32 = 3;
/// Elements of an array are `int32_t`.
pub const EBBTIDE_ELEMENT_I32: u32 = 4;
/// Elements of an array are `uint32_t`.
pub const EBBTIDE_ELEMENT_U32: u32 = 5;
/// Elements of an array are `int64_t`.
pub const EBBTIDE_ELEMENT_I64: u32 = 6;
/// Elements of an array are `uint64_t`.
pub const EBBTIDE_ELEMENT_U64: u32 = 7;
/// Elements of an array are `float`.
pub const EBBTIDE_ELEMENT_F32: u32 = 8;
/// Elements of an array are `double`.
pub const EBBTIDE_ELEMENT_F64: u32 = 9;

/// Changes an element in place; called with the context that was given. It may be called more than once for one edit:
/// only the last call counts.
pub type ebbtide_element_editor = Option<unsafe extern "C" fn(element: *mut c_void, context: *mut c_void)>;

/// Runs a block with the type of elements that a number names.
macro_rules! with_elements {
    ($number:expr, $element:ident => $body:expr) => {
        match $number {
            EBBTIDE_ELEMENT_I8 => with_elements!(@ i8, $element, $body),
            EBBTIDE_ELEMENT_U8 => with_elements!(@ u8, $element, $body),
            EBBTIDE_ELEMENT_I16 => with_elements!(@ i16, $element, $body),
            EBBTIDE_ELEMENT_U16 => with_elements!(@ u16, $element, $body),
            EBBTIDE_ELEMENT_I32 => with_elements!(@ i32, $element, $body),
            EBBTIDE_ELEMENT_U32 => with_elements!(@ u32, $element, $body),
            EBBTIDE_ELEMENT_I64 => with_elements!(@ i64, $element, $body),
            EBBTIDE_ELEMENT_U64 => with_elements!(@ u64, $element, $body),
            EBBTIDE_ELEMENT_F32 => with_elements!(@ f32, $element, $body),
            EBBTIDE_ELEMENT_F64 => with_elements!(@ f64, $element, $body),
            other => Err(Failure::argument(format!("element_type = {other}: an EBBTIDE_ELEMENT, 0 to 9"))),
        }
    };
    (@ $type:ty, $element:ident, $body:expr) => {{
        type $element = $type;
        $body
    }};
}

/// # Safety
/// As `ebbtide_array_create`.
unsafe fn array<T: Fixed>(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
) -> Result<FixedArray<T>, Failure> {
    // SAFETY: the caller promises handle and bytes.
    let (handle, key) = unsafe { (ebbtide_cache::open(cache)?, bytes(key, key_length, "key")?) };
    Ok(handle.pool.fixed_array(key))
}

/// Stores an array of `count` elements if the key is absent: `OK`, or `MISS`, with nothing changed, if it is present.
/// `element_type` is one of `EBBTIDE_ELEMENT_...`, and `ttl_ms` is as `ebbtide_insert` knows it.
///
/// # Safety
/// `cache` is null or a handle that was not freed; `key` has as many bytes as said, and `elements` as many elements of
/// this type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_array_create(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    element_type: u32,
    elements: *const c_void,
    count: usize,
    ttl_ms: u64,
) -> ebbtide_status {
    guard(|| {
        with_elements!(element_type, Element => {
            let size = count.saturating_mul(size_of::<Element>());
            // SAFETY: the caller promises handle and bytes.
            let (array, elements) = unsafe {
                (array::<Element>(cache, key, key_length)?, bytes(elements.cast(), size, "elements")?)
            };
            let (parts, _) = elements.as_chunks::<{ size_of::<Element>() }>();
            let numbers: Vec<Element> = parts.iter().map(|part| Element::from_ne_bytes(*part)).collect();
            Ok(found(array.create(&numbers, insert_options(ttl_ms))?))
        })
    })
}

/// Copies all elements of the array of a key, from one moment: `OK`, or `MISS` if it is absent. `count` is set to their
/// number, also where it is more than `capacity`: then nothing is copied, and the answer is `TOO_LARGE`.
///
/// # Safety
/// As `ebbtide_array_create`; `elements` has memory for `capacity` elements, `count` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_array_get(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    element_type: u32,
    elements: *mut c_void,
    capacity: usize,
    count: *mut usize,
) -> ebbtide_status {
    guard(|| {
        let count = not_null(count, "count")?;
        if elements.is_null() && capacity > 0 {
            return Err(Failure::argument(format!("elements is null, with a capacity of {capacity}")));
        }
        with_elements!(element_type, Element => {
            // SAFETY: the caller promises handle and bytes.
            let array = unsafe { array::<Element>(cache, key, key_length)? };
            let Some(numbers) = array.elements()? else { return Ok(ebbtide_status::Miss) };
            // SAFETY: the caller promises memory for the number.
            unsafe { count.write(numbers.len()) };
            if numbers.len() > capacity {
                let text = format!("the array has {} elements, the buffer {capacity}", numbers.len());
                return Err(Failure(ebbtide_status::TooLarge, text));
            }
            for (index, number) in numbers.iter().enumerate() {
                // SAFETY: the caller promises memory for `capacity` elements.
                unsafe { elements.cast::<Element>().add(index).write_unaligned(*number) };
            }
            Ok(ebbtide_status::Ok)
        })
    })
}

/// Writes an element of the array of a key: `OK`, or `MISS` if the array is absent. An index beyond it is `REFUSED`.
///
/// # Safety
/// As `ebbtide_array_create`; `element` points to an element of this type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_array_set(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    element_type: u32,
    index: usize,
    element: *const c_void,
) -> ebbtide_status {
    guard(|| {
        let element = not_null(element.cast_mut(), "element")?;
        with_elements!(element_type, Element => {
            // SAFETY: the caller promises handle, bytes and an element.
            let (array, number) =
                unsafe { (array::<Element>(cache, key, key_length)?, element.cast::<Element>().read_unaligned()) };
            Ok(found(array.set(index, &number)?))
        })
    })
}

/// Changes an element of the array of a key as one operation: `OK`, or `MISS` if the array is absent. An index beyond
/// it is `REFUSED`.
///
/// # Safety
/// As `ebbtide_array_create`; `edit` writes no more than an element of this type, and does not leave by `longjmp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ebbtide_array_edit(
    cache: *const ebbtide_cache,
    key: *const u8,
    key_length: usize,
    element_type: u32,
    index: usize,
    edit: ebbtide_element_editor,
    context: *mut c_void,
) -> ebbtide_status {
    guard(|| {
        let edit = edit.ok_or_else(|| Failure::argument("edit is null"))?;
        with_elements!(element_type, Element => {
            // SAFETY: the caller promises handle and bytes.
            let array = unsafe { array::<Element>(cache, key, key_length)? };
            let edited = array.update(index, |mut number| {
                // SAFETY: the caller promises a function that keeps to the element.
                unsafe { edit((&raw mut number).cast(), context) };
                number
            })?;
            Ok(found(edited.is_some()))
        })
    })
}
