//! The condition of a change, which `publish` checks under the bucket locks of the key, and its outcome.

use crate::lower_copy::LowerCopy;
use crate::segment::Location;

/// Condition of a change, checked under the bucket locks of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Always,
    Absent,
    Present,
    Token(u64),
    /// The index has no slot for the key, and this copy in the lower tier is current.
    Copy(LowerCopy),
    /// The key is absent, and has not changed since this load ticket was given.
    Load(u64),
    /// The key has not changed since this load ticket was given.
    Reload(u64),
    /// For a removal: the key is live, or the copy found in the lower tier is current, or none was found.
    Found(Option<LowerCopy>),
    /// The item that was read under a pin that the caller still holds.
    Unchanged(SeenItem),
}

/// An item that was read under a pin. The pin keeps its segment from reuse, and published bytes do not change: as long
/// as the slot of the key names this location, the item is unchanged. Only numeric and structured items change in
/// place, with their word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenItem {
    pub at: Location,
    pub word: SeenWord,
}

/// Condition on the word of an item that changes in place: the number, or the commit word of a structured value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeenWord {
    /// The write does not depend on the word.
    Any,
    /// The write was made from this word.
    Equal(u64),
    /// The word has not changed since its bucket had this sequence: the write depends on a token of that sequence.
    Uncounted { sequence: u64 },
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done {
        /// The CAS token of the key from now on.
        token: u64,
    },
    /// No live item of the key exists.
    Absent,
    /// A live item exists, or another version than the condition names.
    Present,
    /// A flush since the reservation has invalidated the new item: reserve and write it again.
    Flushed,
}

impl Outcome {
    pub fn is_done(self) -> bool {
        matches!(self, Self::Done { .. })
    }
}
