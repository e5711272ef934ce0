//! The system's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time since the Unix epoch, by the system's clock.
pub fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
