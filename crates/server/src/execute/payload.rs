//! How a value gets into an answer: copied, or sent from where it lies in the cache.

use ebbtide::{Handle, Item};

use crate::output::Output;

/// Values from here on are not copied but sent from where they lie in the cache.
const STREAM_BYTES: usize = 64 << 10;
/// The largest value that is copied after all, when the cache does not let more memory be pinned.
const COPY_BYTES: usize = 1 << 20;

/// How a value is sent.
pub enum Payload {
    Copy,
    /// From where it lies.
    Stream(Handle),
    /// It can neither be pinned nor copied.
    Refused,
}

#[inline]
pub fn payload(item: &Item<'_>) -> Payload {
    let length = item.len();
    if length < STREAM_BYTES {
        return Payload::Copy;
    }
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
