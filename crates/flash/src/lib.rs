//! The flash tier: objects that leave DRAM, on files and block devices.
//!
//! The crate does not know segments in DRAM: objects come in as bytes, the time as an argument. One thread of its own
//! writes the deletion log; all other work runs on threads of the caller.
//!
//! | module | contents |
//! |---|---|
//! | `tier` | the tier: large and small objects, admission and the device as one |
//! | `large` | the log of large objects |
//! | `small` | small objects: set pages, with a log before them |
//! | `admission`, `recent_keys` | which objects are written; keys seen in the last seconds |
//! | `deletion_log` | deletions that a start after a crash must know |
//! | `device`, `busy_poll` | transfers of aligned blocks; when a waiting thread polls |
//! | `object` | keys, hashes, values, expiry |
//! | `pools` | incarnations of pools: numbers, salts, bytes on flash |
//! | `key_routing` | which rules divide keys among pools, over a restart |
//! | `recovery`, `checkpoint_header`, `codec` | what both stores use to write and read their state |
//! | `memory_bound`, `bloom`, `hash` | bound of an index; a Bloom filter; a mixer of bits |

#![deny(unsafe_code)]

pub mod admission;
mod bloom;
pub mod busy_poll;
mod checkpoint_header;
mod codec;
mod deletion_log;
pub mod device;
mod error;
mod hash;
mod key_routing;
pub mod large;
mod memory_bound;
mod object;
mod pools;
mod recent_keys;
mod recovery;
pub mod small;
mod tier;

pub use error::Error;
pub use key_routing::KeyRouting;
pub use object::{
    ByteRange, FlashHash, FlashHit, FlashLookup, Key, Object, OnLookup, ScanContent, ScannedObject, Token,
};
pub use pools::{FlashPool, PoolStats};
pub use recent_keys::RecentKeys;
pub use recovery::{LoggedDeletion, RecoveryInput};
pub use tier::{
    DeviceRuns, Drops, Evictions, LastRun, Opening, PoolTokens, Probe, Tier, TierOptions, TierScan, TierStats,
    WrittenBytes, remove_stale_wal_buffers,
};
