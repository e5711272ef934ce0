//! Counts of a thread.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest latency that is told apart, in nanoseconds.
const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// Counts of one thread.
pub(super) struct LatencyTally {
    pub(super) gets: u64,
    pub(super) hits: u64,
    pub(super) sets: u64,
    pub(super) fills: u64,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    pub(super) get_latency: Histogram<u64>,
    pub(super) set_latency: Histogram<u64>,
    /// From a request's due time until it was sent.
    pub(super) delay: Histogram<u64>,
    /// Requests that were due and not sent.
    pub(super) unsent: u64,
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
}

impl Default for LatencyTally {
    fn default() -> Self {
        Self {
            gets: 0,
            hits: 0,
            sets: 0,
            fills: 0,
            errors: 0,
            first_error: None,
            get_latency: empty_histogram(),
            set_latency: empty_histogram(),
            delay: empty_histogram(),
            unsent: 0,
            bytes_sent: 0,
            bytes_received: 0,
        }
    }
}

impl LatencyTally {
    pub(super) fn requests(&self) -> u64 {
        self.gets + self.sets + self.fills
    }

    /// `reason` is asked for only once.
    pub(super) fn error(&mut self, reason: impl FnOnce() -> String) {
        self.errors += 1;
        self.first_error.get_or_insert_with(reason);
    }

    pub(super) fn add(&mut self, other: LatencyTally) {
        self.gets += other.gets;
        self.hits += other.hits;
        self.sets += other.sets;
        self.fills += other.fills;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.get_latency += other.get_latency;
        self.set_latency += other.set_latency;
        self.delay += other.delay;
        self.unsent += other.unsent;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
    }
}

/// Takes down a latency.
pub(super) fn record(histogram: &mut Histogram<u64>, latency: Duration) {
    histogram.saturating_record(latency.as_nanos().min(u128::from(MAX_LATENCY_NS)) as u64);
}

pub(super) fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3).expect("the bounds are valid")
}
