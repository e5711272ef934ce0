//! The large-object log: objects one after another in regions, which are written whole and reclaimed whole.
//!
//! ```text
//! insert -> group of expiry -> open region, in a buffer -> device          index: hash -> place, in RAM
//!                                   |                         |
//!                                 lookup                   lookup, one read
//! ```
//! A region belongs to a group of objects that expire at about the same time, so all of its objects expire together.
//! Only the index decides which objects are current: an object is found if its address is in the index and its region
//! is in the same life. A value that does not fit the rest of a region may be cut; each of its parts is found by the
//! index under a hash of its own.
//!
//! | where | what |
//! |---|---|
//! | `format` | the bytes on the device |
//! | `options` | options; positions of regions |
//! | `index`, `index_page`, `address` | addresses of objects: a little over 10 bytes each |
//! | `regions` | the state of each region in RAM |
//! | `log` | the log: its parts, and the methods that need no file of their own |
//! | `open_region`, `buffers` | open regions, and regions that are being written |
//! | `insert`, `read`, `read_range` | inserts, lookups, and lookups of ranges |
//! | `reclaim_choice`, `reclaim`, `longest_object` | which regions are reclaimed, how, and how many stay free |
//! | `reinsertion_value`, `reinsert` | which of their objects are written again |
//! | `scan` | a walk over all objects |
//! | `recover`, `checkpoint` | restarts |
//! | `stats` | counters |
//!
//! Locks, access to fields, and why no lookup returns a stale value: `docs/concurrency.md`.

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

#[cfg(test)]
pub(crate) use format::part_hash;
pub use insert::Inserted;
pub use log::LargeLog;
pub use options::{Options, Reclaim, Reinsertion};
pub(crate) use read::{FinalCheck, Located};
pub use recover::Recovered;
pub(crate) use scan::LargeScan;
pub use stats::{LargeDrop, Stats};
