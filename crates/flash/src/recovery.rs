//! What a start knows about a store before it reads the store: the checkpoint of a clean stop, and the deletion log.

use crate::FlashHash;
use std::ops::Range;

/// All versions of a hash with a lower order are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedDeletion {
    pub hash: FlashHash,
    pub order: u64,
}

/// What a restart is told.
#[derive(Clone, Debug, Default)]
pub struct RecoveryInput {
    /// Where [`LargeLog::checkpoint`] wrote, if it was given an area.
    pub checkpoint: Option<Range<u64>>,
    /// What is gone, in any order.
    pub removals: Vec<LoggedDeletion>,
    /// Everything with a lower order is flushed.
    pub flushed: u64,
    /// Incarnations of pools that have ended, by their numbers.
    pub ended_pools: Vec<u16>,
}
