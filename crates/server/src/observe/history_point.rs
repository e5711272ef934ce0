//! A point of the history.

use serde::Serialize;

/// Number of one-minute points that are kept: a week.
pub const MINUTES: usize = 7 * 24 * 60;
pub const MINUTE_MS: u64 = 60_000;

/// Counts of a second or a minute, and gauges at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HistoryPoint {
    pub time_unix_ms: u64,
    pub gets: u64,
    pub hits: u64,
    pub sets: u64,
    pub evictions: u64,
    pub expirations: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub items: u64,
    pub used_bytes: u64,
    pub connections: u64,
    /// Of a minute the highest of its seconds, as of the next.
    pub get_p50_us: f64,
    pub get_p99_us: f64,
}

impl HistoryPoint {
    /// Adds the counts of a later point.
    pub fn add(&mut self, later: &Self) {
        let Self { get_p50_us, get_p99_us, .. } = *self;
        *self = Self {
            gets: self.gets + later.gets,
            hits: self.hits + later.hits,
            sets: self.sets + later.sets,
            evictions: self.evictions + later.evictions,
            expirations: self.expirations + later.expirations,
            bytes_read: self.bytes_read + later.bytes_read,
            bytes_written: self.bytes_written + later.bytes_written,
            get_p50_us: get_p50_us.max(later.get_p50_us),
            get_p99_us: get_p99_us.max(later.get_p99_us),
            ..*later
        };
    }
}
