//! State that every handle of a cache carries: its pool, and how its operations wait.

use crate::engine::Owner;
use crate::error::Error;
use crate::pool_state::PoolState;
use crate::retry::{PatienceCell, Waiting};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The state of a handle. Operations are implemented on it, in the files of their families.
#[derive(Clone)]
pub(crate) struct Access {
    pub pool: Arc<PoolState>,
    pub owner: Arc<Owner>,
    /// Whether operations wait for flash, for memory, and long values for other uploads.
    pub waits: bool,
    /// Of a handle that does not wait.
    pub patience: PatienceCell,
}

impl Access {
    pub fn waiting(&self) -> Waiting {
        if self.waits { Waiting::Sleeps } else { Waiting::Answers(self.patience.get()) }
    }

    /// The answer of a removal: one that found nothing may have been refused, because the cache is closed.
    pub fn removal(&self, was_present: bool) -> Result<bool, Error> {
        // Acquire pairs with the swap in `Cache::close`, which precedes the first refusal.
        let is_certain = was_present || !self.owner.0.is_closed.load(Ordering::Acquire);
        if is_certain { Ok(was_present) } else { Err(Error::Closed) }
    }
}
