//! What maintenance remembers between two calls.

use std::time::{Duration, Instant};

/// So many times as long as finding and writing them took, the device is left to others.
const REST: u32 = 3;

/// What the upkeep remembers.
#[derive(Default)]
pub(super) struct MaintenanceState {
    /// Which of the two marks is written next: never the newest, of which a torn write would leave nothing.
    pub mark: u32,
    pub zero_fill: ZeroFill,
}

/// How far the zeros have come.
#[derive(Default)]
pub(super) struct ZeroFill {
    /// The next set; its page was not looked at yet.
    pub next: u64,
    /// When the device is left to others no longer.
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
