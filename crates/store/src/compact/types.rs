//! Arguments and results of compact tables.

use crate::ttl::Ttl;

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

impl<T> CompactLookup<T> {
    /// The value of a hit.
    pub fn hit(self) -> Option<T> {
        match self {
            Self::Hit(value) => Some(value),
            Self::Negative | Self::Miss => None,
        }
    }
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

/// A write of a table.
#[derive(Clone, Copy, Debug)]
pub struct CompactWrite<'a> {
    pub key: &'a [u8],
    /// `None`: a negative result.
    pub value: Option<&'a [u8]>,
    pub ttl: Ttl,
    pub mode: CompactMode,
}

/// The state of a key's set at one time, for a write that must not hide a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissTicket {
    pub(super) version: u64,
    /// In one version a key may move to another set, whose sequence says nothing of the former one.
    pub(super) set: u32,
    pub(super) sequence: u32,
}
