//! How a value is put into an answer: copied, or sent from the cache.

use ebbtide::memcached::{Handle, Item};

use crate::output::{COPY_BYTES, Output};

/// Min length of a value that is sent from the cache without a copy.
const STREAM_BYTES: usize = 64 << 10;

/// How a value is sent.
pub enum Payload {
    Copy,
    /// Sent from the cache.
    Stream(Handle),
    /// The value can neither be pinned nor copied.
    Refused,
}

#[inline]
pub fn payload(item: &Item<'_>) -> Payload {
    if item.len() < STREAM_BYTES { Payload::Copy } else { payload_of_large(item) }
}

#[cold]
fn payload_of_large(item: &Item<'_>) -> Payload {
    let length = item.len();
    match item.to_handle() {
        Ok(handle) => Payload::Stream(handle),
        Err(_) if length <= COPY_BYTES => Payload::Copy,
        Err(_) => Payload::Refused,
    }
}

/// Appends a value to the answer.
#[inline]
pub fn send(item: &Item<'_>, payload: Payload, output: &mut Output) {
    match payload {
        Payload::Stream(handle) => output.push_value(handle),
        Payload::Copy | Payload::Refused => item.copy_to(output.bytes()),
    }
}
