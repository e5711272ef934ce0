//! State that every handle of a cache carries: its pool, and how its operations wait.

use crate::engine::Owner;
use crate::pool_state::PoolState;
use crate::retry::{PatienceCell, Waiting};
use std::sync::Arc;

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
}
