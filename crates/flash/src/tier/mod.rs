//! Both stores, admission and the device as one: the interface of flash to the cache.
//!
//! ```text
//! insert -> device failed? -> admission -> by size --> the other store's version is removed -> large log, or small
//! lookup -> device failed? -> large log --- not there, or another key's ---> small objects
//! ```
//! | where | what |
//! |---|---|
//! | `options`, `device_size`, `layout` | options; sizes of files and devices; division of capacity and memory |
//! | `state` | the tier: its parts, and the methods that need no file of their own |
//! | `capacity_split`, `split`, `small_area` | when the capacity is split; how; the store of small objects after it |
//! | `superblock` | the format of the first block |
//! | `open`, `open/resume` | a start; what it takes from the last run |
//! | `close`, `token_section`; `created_files` | a stop; CAS tokens that it keeps; files that a refused start removes |
//! | `check` | whether a start would work |
//! | `insert`, `lookup` | inserts and lookups |
//! | `pools`, `pool_names`, `pool_table` | pools by name, the end of their incarnations; their table on the device |
//! | `scan` | a walk over all objects |
//! | `stats` | counters and gauges |
//!
//! Invariant: at most one store has a version of a key that a lookup could find. An insert first removes the key from
//! the other store, and inserts of one key are serialized. So an eviction in one store never uncovers a version in the
//! other.
//!
//! Any thread may call any method. [`Tier::maintain`], [`Tier::settle`] and [`TierScan::advance`] wait for the device;
//! nothing else does.

mod capacity_split;
mod check;
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
mod token_section;

pub use lookup::Probe;
pub use open::{Opening, remove_stale_wal_buffers};
pub use options::TierOptions;
pub use scan::TierScan;
pub use state::Tier;
pub use stats::{Drops, Evictions, TierStats, WrittenBytes};
pub use superblock::{DeviceRuns, LastRun};
pub use token_section::PoolTokens;

use state::{STRIPES, token_of_large};
