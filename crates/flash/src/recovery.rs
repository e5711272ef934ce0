//! The input of a recovery: the checkpoint of a clean stop, and the deletion log.

use crate::FlashHash;
use std::ops::Range;

/// A removal of all versions of a hash with lower orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedDeletion {
    pub hash: FlashHash,
    pub order: u64,
}

/// The input of a recovery.
#[derive(Clone, Debug, Default)]
pub struct RecoveryInput {
    /// The area of the checkpoint, if one was written.
    pub checkpoint: Option<Range<u64>>,
    /// Removals, in any order.
    pub deletions: Vec<LoggedDeletion>,
    /// All objects with lower orders are flushed.
    pub flushed: u64,
    /// Incarnations of pools that have ended, by their numbers.
    pub ended_pools: Vec<u16>,
}
