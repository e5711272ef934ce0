//! Compact tables: caches of small objects whose keys have one length and whose values have one length.
//!
//! A table is a set-associative cache in frames of the engine. An object costs its bytes and a small share of a control
//! word; there is no index, no segment and no header. A hit moves to the front of its set if it was in the back half;
//! the last entry is evicted. An entry is a value or a **negative result**: the knowledge that the backend has nothing
//! for the key.
//!
//! | where | what |
//! |---|---|
//! | `layout` | the format: frames, sets, control words |
//! | `shape` | which set a key belongs to, also while the table is resized |
//! | `words` | the bytes of sets as atomic words; reading beside writers |
//! | `edit` | a locked set |
//! | `table` | the operations |
//! | `resize` | the memory of a table, and its change |

mod edit;
mod layout;
#[cfg(all(test, loom))]
mod loom_tests;
mod resize;
mod shape;
mod stats;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;
mod words;

pub use stats::CompactStats;
pub use table::{CompactTable, CompactWrite, MissTicket};

/// Lengths of all entries of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactSizes {
    pub key_bytes: usize,
    pub value_bytes: usize,
    /// Whether entries may expire: 4 bytes each.
    pub has_ttl: bool,
}

/// The answer to a get of a compact table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactLookup<T> {
    Hit(T),
    /// The backend has nothing for the key.
    Negative,
    Miss,
}

/// When a write stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactMode {
    Set,
    /// Only if the key has no entry, negative ones included.
    Add,
    /// Only if the key has an entry.
    Replace,
    /// Only if the set of the key has not changed since the ticket was taken.
    Since(MissTicket),
}
