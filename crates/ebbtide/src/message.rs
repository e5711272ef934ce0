//! Messages on standard error, for the programs of this workspace. The library itself prints nothing.

use std::fmt;
use std::io::{self, Write};

/// Writes a line to standard error, as `eprintln!` does, but ignores a closed reader: a server whose log reader has
/// ended must still serve and stop.
#[doc(hidden)]
#[macro_export]
macro_rules! message {
    ($($part:tt)*) => { $crate::memcached::write_message(::std::format_args!($($part)*)) };
}

/// Writes a line to standard error in one piece. An error is ignored: there is no place left to report it.
pub fn write_message(message: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{message}\n").as_bytes());
}
