//! What a log tells of both stores, and why it does not.

use crate::recovery::RecoveryInput;

/// Of which store something was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Small,
    Large,
}

/// What both stores write their checksums with: another one whenever they start empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incarnations {
    pub small: u64,
    pub large: u64,
}

/// What the log held.
#[derive(Debug)]
pub(crate) struct LogContents {
    /// None if it is another life's.
    pub small: Option<RecoveryInput>,
    pub large: RecoveryInput,
    /// Seconds since 1970.
    pub latest: u32,
    /// A flush was to come.
    pub flush_is_pending: bool,
}

/// Why a log says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It is new, or another life's.
    Missing,
    /// It belongs to another run of the flash.
    OtherRun,
    Damaged,
    /// What the file lacks was in a front, which is gone.
    WithoutWalBuffer,
}
