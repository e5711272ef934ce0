//! The flash tier: objects that DRAM has no room for, on files and block devices.
//!
//! It knows nothing of segments in DRAM: objects come in as bytes, time as an argument. It starts no thread; what works in
//! the background is called.
//!
//! | where | what |
//! |---|---|
//! | `admission` | which objects are worth a write |
//! | `memory_bound` | what an index may have of the memory |
//! | `busy_poll` | when a thread that waits asks instead of sleeping |
//! | `device` | transfers of aligned blocks, each with a completion; memory, for tests |
//! | `large` | the log of large objects |
//! | `object` | what is stored: keys, their hash, values, expiry |
//! | `recent_keys` | keys that were seen a moment ago |
//! | `deletion_log` | the log of what is gone, for a restart after a crash |
//! | `small` | objects under 2 KiB: set pages with a log before them |
//! | `codec` | numbers and bytes one behind the other, as formats have them |
//! | `tier` | all of these as one |

#![deny(unsafe_code)]

pub mod admission;
pub mod busy_poll;
mod codec;
mod deletion_log;
pub mod device;
mod error;
pub mod large;
mod memory_bound;
mod object;
mod recent_keys;
pub mod small;
mod tier;

pub use error::Error;
pub use object::{FlashHash, FlashHit, FlashLookup, Key, Object, OnLookup, ScanContent, ScannedObject, Token};
pub use recent_keys::RecentKeys;
pub use tier::{
    Drops, Evictions, Opening, Tier, TierOptions, TierScan, TierStats, WrittenBytes, remove_stale_wal_buffers,
};
