//! The contents of a log, and the reasons why it cannot be used.

use crate::recovery::RecoveryInput;

/// The store from which an object was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Small,
    Large,
}

/// The seeds of the checksums of both stores. A store that starts empty gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incarnations {
    pub small: u64,
    pub large: u64,
}

/// The removals and notes in a log.
#[derive(Debug)]
pub(crate) struct LogContents {
    /// `None` if the ring is of another life.
    pub small: Option<RecoveryInput>,
    pub large: RecoveryInput,
    /// Seconds since 1970.
    pub latest: u32,
    /// A flush was pending.
    pub flush_is_pending: bool,
}

/// Why a log cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The log is new, or of another life.
    Missing,
    /// The log belongs to another run of the flash.
    OtherRun,
    Damaged,
    /// The WAL buffer with the writes that the file lacks is missing.
    WithoutWalBuffer,
}
