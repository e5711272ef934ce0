//! Properties that hold for every input. Each module checks one reader of strangers' bytes, and panics where it breaks
//! a promise; the fuzz targets of the same names feed them.
//!
//! `cargo fuzz run --sanitizer none TARGET` looks for inputs that break one; `cargo test` runs the seeds.
#![forbid(unsafe_code)]

pub mod binary;
pub mod image;
#[cfg(feature = "memory-file")]
pub mod memory_file;
pub mod meta;
mod split;
mod table;
pub mod text;
#[cfg(feature = "trace")]
pub mod trace;

#[cfg(test)]
mod seeds;
