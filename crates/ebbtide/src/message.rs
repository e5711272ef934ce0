//! Messages on standard error, for the programs of this workspace. The library itself prints nothing.

use std::fmt;
use std::io::{self, Write};

/// Writes a line to standard error, as `eprintln!` does, but goes on where nobody reads it any more: a server whose
/// log reader has ended must serve and stop all the same.
#[doc(hidden)]
#[macro_export]
macro_rules! message {
    ($($part:tt)*) => { $crate::memcached::write_message(::std::format_args!($($part)*)) };
}

/// Writes a line to standard error in one piece. An error is ignored: there is no place left to report it.
pub fn write_message(message: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{message}\n").as_bytes());
}
