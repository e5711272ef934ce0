//! Compact tables: caches of small objects whose keys have one length and whose values have one length.
//!
//! A table is a set-associative cache in frames of the engine. An object costs its bytes and a small share of a control
//! word; there is no index, no segment and no header. A hit moves to the front of its set if it was in the back half;
//! the last entry is evicted. An entry is a value or a **negative result**: the knowledge that the backend has nothing
//! for the key.
//!
//! | where | what |
//! |---|---|
//! | `types` | what callers give and get |
//! | `layout` | the format: frames, sets, control words |
//! | `shape` | which set a key belongs to, also while the table is resized |
//! | `words` | the bytes of sets as atomic words; reading beside writers |
//! | `locked_set` | a locked set |
//! | `table` | the operations |
//! | `memory` | the frames and the budget of a table |
//! | `resize` | the change of its size |
//! | `image` | save and load |

#[cfg(not(loom))]
mod image;
#[cfg(all(test, not(loom)))]
mod image_tests;
mod layout;
mod locked_set;
#[cfg(all(test, loom))]
mod loom_tests;
mod memory;
mod resize;
mod shape;
mod stats;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;
mod types;
mod words;

pub use stats::CompactStats;
pub use table::CompactTable;
pub use types::{CompactLookup, CompactMode, CompactSizes, CompactWrite, MissTicket};
