//! Both stores, admission and the device as one: what the cache sees of flash.
//!
//! ```text
//! insert -> device failed? -> admission -> by size --> the other store's version is removed -> large log, or small
//! lookup -> device failed? -> large log --- not there, or another key's ---> small objects
//! ```
//! | where | what |
//! |---|---|
//! | `options`, `device_size`, `layout` | options; sizes of files and devices; division of capacity and memory |
//! | `state` | the tier: its parts, and what needs no file of its own |
//! | `capacity_split`, `split`, `small_area` | when the capacity is split; how; the store of small objects after it |
//! | `superblock` | the format of the first block |
//! | `open`, `close`, `created_files` | start and stop; files that a refused start removes again |
//! | `insert`, `lookup` | objects in and out |
//! | `pools`, `pool_names`, `pool_table` | pools by name, the end of their incarnations; their table on the device |
//! | `scan` | a walk over all objects |
//! | `stats` | what is counted |
//!
//! Invariant: of a key at most one store has a version that could be found. An insert first takes the key out of the
//! other store, and inserts of one key go one after the other; so what ends in one store never uncovers something in
//! the other.
//!
//! Any thread may call any method. [`Tier::maintain`], [`Tier::settle`] and [`TierScan::advance`] wait for the device;
//! nothing else does.

mod capacity_split;
mod close;
mod created_files;
mod device_size;
mod insert;
mod layout;
mod lookup;
mod open;
mod options;
mod pool_names;
mod pool_table;
mod pools;
mod scan;
mod small_area;
mod split;
mod state;
mod stats;
mod superblock;
#[cfg(test)]
mod tests;

pub use open::{Opening, remove_stale_wal_buffers};
pub use options::TierOptions;
pub use scan::TierScan;
pub use state::Tier;
pub use stats::{Drops, Evictions, TierStats, WrittenBytes};

use state::{STRIPES, token_of_large};
