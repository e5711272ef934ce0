//! Statuses, the text of the last error of each thread, and the guard that every function runs in.

use ebbtide::Error;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Result of a function.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ebbtide_status {
    /// It was done.
    Ok = 0,
    /// The key is absent; nothing was changed.
    Miss = 1,
    /// A null pointer, a string that is no UTF-8, or an option that cannot work.
    InvalidArgument = 2,
    /// The key has no byte or too many.
    KeyLength = 3,
    /// The value is longer than the cache takes, or than the buffer given.
    TooLarge = 4,
    /// No memory is free, and nothing can be evicted now.
    OutOfMemory = 5,
    /// The value of an increment is not a decimal number.
    NotNumeric = 6,
    /// No pool has this name, or it was removed.
    UnknownPool = 7,
    /// The cache was closed.
    Closed = 8,
    /// Every other refusal; `ebbtide_last_error` names it.
    Refused = 9,
    /// The cache has found itself broken. Nothing may be relied on after this.
    Broken = 10,
    /// The value is another structure than the function is for, or none.
    WrongStructure = 11,
    /// A compact pool has a negative result for the key.
    Negative = 12,
}

/// Why a function failed: a status and its words.
pub(crate) struct Failure(pub ebbtide_status, pub String);

impl Failure {
    pub fn argument(text: impl Into<String>) -> Self {
        Self(ebbtide_status::InvalidArgument, text.into())
    }

    pub fn closed() -> Self {
        Self(ebbtide_status::Closed, "the cache was closed".to_owned())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::KeyLength { .. } => ebbtide_status::KeyLength,
            Error::ValueTooLarge { .. } => ebbtide_status::TooLarge,
            Error::OutOfMemory { .. } | Error::PinnedLimit { .. } => ebbtide_status::OutOfMemory,
            Error::NotNumeric => ebbtide_status::NotNumeric,
            // Another thread closed the cache during the call.
            Error::Closed => ebbtide_status::Closed,
            Error::WrongStructure { .. } => ebbtide_status::WrongStructure,
            Error::StructureTooLarge { .. } => ebbtide_status::TooLarge,
            Error::UnknownPool { .. } | Error::PoolRemoved { .. } => ebbtide_status::UnknownPool,
            Error::PoolExists { .. }
            | Error::Configuration { .. }
            | Error::CompactLength { .. }
            | Error::WordCount { .. }
            | Error::CompactTtl => ebbtide_status::InvalidArgument,
            _ => ebbtide_status::Refused,
        };
        Self(status, error.to_string())
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Remembers the words; a zero byte in them ends the text early.
fn remember(text: &str) {
    let text = text.split('\0').next().unwrap_or_default();
    LAST_ERROR.set(CString::new(text).expect("the zero byte was cut off"));
}

/// Runs a function's body: an error becomes its status and the thread's last error, a panic becomes `Broken`.
pub(crate) fn guard(body: impl FnOnce() -> Result<ebbtide_status, Failure>) -> ebbtide_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(Failure(status, text))) => {
            remember(&text);
            status
        }
        Err(_) => {
            remember("the cache has found itself broken; its message is on standard error");
            ebbtide_status::Broken
        }
    }
}

/// Why the last function that failed on this thread did, as text that ends with a zero byte. Empty before the first
/// failure; a success does not change it. The pointer is good until the next call on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn ebbtide_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_another_thread_closes_answers_closed() {
        let Failure(status, text) = Error::Closed.into();
        assert!(matches!(status, ebbtide_status::Closed) && text.contains("closed"), "{text}");
    }
}
