//! The large-object log: objects one behind the other in regions, which are written whole and reclaimed whole.
//!
//! ```text
//! insert -> group of expiry -> open region, in a buffer -> device          index: hash -> place, in RAM
//!                                   |                         |
//!                                 lookup                   lookup, one read
//! ```
//! A region belongs to a group of objects that expire at about the same time, so that it dies as a whole. Nobody but
//! the index says what is current: an object is there if its place is in the index and its region is in the life of
//! that place. Values that do not fit a region are stored in parts, each found by the index under a hash of its own.
//!
//! | where | what |
//! |---|---|
//! | `format` | the bytes on the device |
//! | `options` | what can be chosen; where regions lie |
//! | `index`, `index_page`, `address` | where the objects are: 10 bytes each, and a little |
//! | `regions` | what RAM knows of each region; its states |
//! | `log` | the log: its parts, and what needs no file of its own |
//! | `open_region`, `buffers` | open regions, and those that are being written |
//! | `insert`, `read`, `read_range` | objects in, out, and ranges of their values |
//! | `reclaim_choice`, `reclaim`, `longest_object` | which regions are reclaimed, how, and how many stay free |
//! | `reinsertion_value`, `reinsert` | what of them is written again |
//! | `scan` | a walk over all objects |
//! | `recover`, `checkpoint` | after a restart |
//! | `stats` | what is counted |
//!
//! Who may touch what, and why no stale value comes out: `docs/concurrency.md`.

mod address;
mod buffers;
mod checkpoint;
mod format;
mod index;
mod index_page;
mod insert;
mod log;
mod longest_object;
mod open_region;
mod options;
mod read;
mod read_range;
mod reclaim;
mod reclaim_choice;
mod recover;
mod regions;
mod reinsert;
mod reinsertion_value;
mod scan;
mod stats;
#[cfg(test)]
mod tests;

pub use insert::Inserted;
pub use log::LargeLog;
pub use options::{Options, Reclaim, Reinsertion};
pub use recover::Recovered;
pub(crate) use scan::LargeScan;
pub use stats::{LargeDrop, Stats};
