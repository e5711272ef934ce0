//! The condition of a change, which `publish` checks under the bucket locks of the key, and its outcome.

use crate::segment::Location;

/// What a write must find under the locks of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Always,
    Absent,
    Present,
    Token(u64),
    /// The index has no slot for the key, and this copy below is current.
    Copy(u64),
    /// Of a removal: the key is live, or the copy below that was found is current, or none was found.
    Found(Option<u64>),
    /// The very item that was read under a pin that the caller still holds.
    Unchanged(SeenItem),
}

/// An item that was read under a pin. The pin keeps its segment from another life, and published bytes do not change: as
/// long as the key's slot names this place, the item is what was read. Only the word of a numeric item changes where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenItem {
    pub at: Location,
    pub number: SeenNumber,
}

/// What must hold of the number of a numeric item that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeenNumber {
    /// Nothing: the write does not depend on it.
    Any,
    /// It is this: the write was made from it.
    Equal(u64),
    /// Nobody has counted since its bucket had this sequence: the write is bound to the token of that.
    Uncounted { sequence: u64 },
}

/// How a condition was met or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done {
        /// What a `gets` would answer from here on.
        token: u64,
    },
    /// Nothing alive is there.
    Absent,
    /// Something alive is there, or another version than the condition names.
    Present,
    /// A flush since the reservation has made the new item worthless: reserve and write it again.
    Flushed,
}

impl Outcome {
    pub fn is_done(self) -> bool {
        matches!(self, Self::Done { .. })
    }
}
