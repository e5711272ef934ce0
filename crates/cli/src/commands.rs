//! The words that a command line may begin with.

use std::ffi::OsString;

/// The commands beside the server, which have arguments of their own.
pub const NAMES: [&str; 11] =
    ["replay", "mrc", "advise", "capture", "trace", "generate", "bench", "top", "doctor", "dashboard", "health"];

/// All words.
pub fn all() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().chain(["serve", "help", "version", "completions", "man"])
}

/// Whether `word` is a command beside the server.
pub fn knows(word: &OsString) -> bool {
    NAMES.iter().any(|name| word == name)
}
