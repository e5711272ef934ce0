//! The flash tier: objects that DRAM has no room for, on files and block devices.
//!
//! It knows nothing of segments in DRAM: objects come in as bytes, time as an argument. It starts no thread; what works in
//! the background is called.
//!
//! | where | what |
//! |---|---|
//! | `admission` | which objects are worth a write |
//! | `bound` | what an index may have of the memory |
//! | `busy_poll` | when a thread that waits asks instead of sleeping |
//! | `device` | transfers of aligned blocks, each with a completion; memory, for tests |
//! | `large` | the log of large objects |
//! | `object` | what is stored: keys, their hash, values, expiry |
//! | `recent` | keys that were seen a moment ago |
//! | `removals` | the log of what is gone, for a restart after a crash |
//! | `small` | objects under 2 KiB: set pages with a log before them |
//! | `stream` | numbers and bytes one behind the other, as formats have them |
//! | `tier` | all of these as one |

#![deny(unsafe_code)]

pub mod admission;
mod bound;
pub mod busy_poll;
pub mod device;
mod error;
pub mod large;
mod object;
mod recent;
mod removals;
pub mod small;
mod stream;
mod tier;

pub use error::Error;
pub use object::{Done, Found, Key, KeyHash, Lookup, Met, Object, Token, Wanted};
pub use recent::Recent;
pub use tier::{Drops, Ended, Opening, Tier, TierOptions, TierScan, TierStats, Written, remove_left_fronts};
