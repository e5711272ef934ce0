//! The state of maintenance between two calls.

use std::time::{Duration, Instant};

/// Length of the rest after writing zeros, as a multiple of the time that it took: the device is left to other
/// transfers.
const REST: u32 = 3;

/// The state of maintenance.
#[derive(Default)]
pub(super) struct MaintenanceState {
    /// The mark that is written next: never the newest one, which a torn write would destroy.
    pub mark: u32,
    pub zero_fill: ZeroFill,
}

/// The progress of writing zeros.
#[derive(Default)]
pub(super) struct ZeroFill {
    /// The next set, whose page has not been checked yet.
    pub next: u64,
    /// The end of the rest.
    pub rests_until: Option<Instant>,
}

impl ZeroFill {
    pub fn rest(&mut self, busy: Duration) {
        self.rests_until = Some(Instant::now() + REST * busy);
    }

    pub fn is_resting(&self) -> bool {
        self.rests_until.is_some_and(|until| Instant::now() < until)
    }
}
