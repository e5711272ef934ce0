//! Keys, values, times and sizes as Python gives them.

use crate::error;
use ebbtide::{ByteSize, Ttl};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyString};
use std::borrow::Cow;
use std::time::Duration;

/// A key: the UTF-8 of a `str`, or bytes as they are.
pub fn key<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(match text.to_cow()? {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        });
    }
    match bytes(object) {
        Some(bytes) => bytes,
        None => Err(not("a key is str or bytes", object)?),
    }
}

/// A value: bytes, or a copy of an object's bytes: bytearray, memoryview, an array of numbers.
pub fn value<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    match bytes(object) {
        Some(bytes) => bytes,
        None => bytes_of_elements(object),
    }
}

/// Bytes, or a copy of those of a buffer of bytes, also one with gaps.
fn bytes<'a>(object: &'a Bound<'_, PyAny>) -> Option<PyResult<Cow<'a, [u8]>>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Some(Ok(Cow::Borrowed(bytes.as_bytes())));
    }
    let buffer = PyBuffer::<u8>::get(object).ok()?;
    Some(buffer.to_vec(object.py()).map(Cow::Owned))
}

/// A copy of the bytes of a buffer whose elements are no bytes, as they lie in memory.
fn bytes_of_elements<'a>(object: &Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    let view = match PyMemoryView::from(object) {
        Ok(view) => view,
        Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => {
            return Err(not("a value is bytes or has bytes", object)?);
        }
        // It has a buffer for some of its types only, and says so.
        Err(error) => return Err(error),
    };
    if !view.getattr("c_contiguous")?.extract::<bool>()? {
        let kind = object.get_type().name()?;
        return Err(error::value(format!(
            "the bytes of a value lie in one piece, and those of this {kind} do not: give a copy, such as its tobytes()"
        )));
    }
    let copy = view.call_method0("tobytes")?;
    Ok(Cow::Owned(copy.cast::<PyBytes>()?.as_bytes().to_vec()))
}

fn not(expected: &str, object: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    Ok(PyTypeError::new_err(format!("{expected}, not {}", object.get_type().name()?)))
}

/// Seconds of life as a TTL.
pub fn ttl(seconds: f64) -> PyResult<Ttl> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(ttl) if !ttl.is_zero() => Ok(ttl.into()),
        _ => Err(error::value(format!("ttl = {seconds}: seconds above 0, or None for ever"))),
    }
}

/// Seconds above 0.
pub fn duration(seconds: f64, name: &str) -> PyResult<Duration> {
    let duration = Duration::try_from_secs_f64(seconds).ok().filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| error::value(format!("{name} = {seconds}: seconds above 0, or None")))
}

/// A number of bytes, or text such as `64m`.
pub fn size(object: &Bound<'_, PyAny>, name: &str) -> PyResult<ByteSize> {
    if let Ok(text) = object.cast::<PyString>() {
        let text = text.to_cow()?;
        return text.parse().map_err(|_| error::value(format!("{name} = {text}: a number of bytes, or 64m, 1g")));
    }
    let bytes: u64 = object
        .extract()
        .map_err(|_| PyTypeError::new_err(format!("{name} is a number of bytes, or text such as \"64m\"")))?;
    Ok(ByteSize::bytes(bytes))
}
