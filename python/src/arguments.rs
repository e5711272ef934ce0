//! Keys, values, times and sizes as Python gives them.

use crate::error;
use ebbtide::{ByteSize, Ttl};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
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
    bytes(object, "a key is str or bytes")
}

/// A value: bytes, or a copy of an object's bytes (bytearray, memoryview, arrays of bytes).
pub fn bytes<'a>(object: &'a Bound<'_, PyAny>, expected: &str) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Cow::Borrowed(bytes.as_bytes()));
    }
    let wrong =
        || -> PyResult<PyErr> { Ok(PyTypeError::new_err(format!("{expected}, not {}", object.get_type().name()?))) };
    match PyBuffer::<u8>::get(object) {
        Ok(buffer) => Ok(Cow::Owned(buffer.to_vec(object.py())?)),
        Err(_) => Err(wrong()?),
    }
}

pub fn value<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    bytes(object, "a value is bytes or has bytes")
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
