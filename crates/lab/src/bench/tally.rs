//! Counts of a thread.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::load_kind::LoadKind;

/// Longest latency that is recorded, in nanoseconds; longer ones count as this one.
const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// Counts of one thread.
pub(super) struct LatencyTally {
    pub(super) gets: u64,
    pub(super) hits: u64,
    pub(super) sets: u64,
    pub(super) fills: u64,
    pub(super) deletes: u64,
    pub(super) writes: OtherWrites,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    pub(super) get_latency: Histogram<u64>,
    pub(super) set_latency: Histogram<u64>,
    pub(super) delete_latency: Histogram<u64>,
    /// Gets and hits of each pool of the workload.
    pub(super) pools: Vec<PoolTally>,
    /// From a request's due time until it was sent.
    pub(super) delay: Histogram<u64>,
    /// Requests that were due and not sent.
    pub(super) unsent: u64,
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
}

/// Writes of a trace or a workload that are neither sets nor deletes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OtherWrites {
    pub adds: u64,
    pub replaces: u64,
    /// Appends and prepends.
    pub appends: u64,
    /// Numbers that were to be counted up or down.
    pub counts: u64,
    /// Of all these, those whose condition did not hold: an add of a key that is present, any other of an absent one.
    pub not_stored: u64,
}

impl OtherWrites {
    pub(crate) fn requests(&self) -> u64 {
        self.adds + self.replaces + self.appends + self.counts
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.adds += other.adds;
        self.replaces += other.replaces;
        self.appends += other.appends;
        self.counts += other.counts;
        self.not_stored += other.not_stored;
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolTally {
    pub(super) gets: u64,
    pub(super) hits: u64,
}

impl Default for LatencyTally {
    fn default() -> Self {
        Self {
            gets: 0,
            hits: 0,
            sets: 0,
            fills: 0,
            deletes: 0,
            writes: OtherWrites::default(),
            errors: 0,
            first_error: None,
            get_latency: empty_histogram(),
            set_latency: empty_histogram(),
            delete_latency: empty_histogram(),
            pools: Vec::new(),
            delay: empty_histogram(),
            unsent: 0,
            bytes_sent: 0,
            bytes_received: 0,
        }
    }
}

impl LatencyTally {
    pub(super) fn requests(&self) -> u64 {
        self.gets + self.sets + self.fills + self.deletes + self.writes.requests()
    }

    /// Counts a write or a delete, and returns the histogram of its latency.
    pub(super) fn count_write(&mut self, kind: LoadKind) -> &mut Histogram<u64> {
        let count = match kind {
            LoadKind::Delete => &mut self.deletes,
            LoadKind::Get | LoadKind::Set => &mut self.sets,
            LoadKind::Add => &mut self.writes.adds,
            LoadKind::Replace => &mut self.writes.replaces,
            LoadKind::Append | LoadKind::Prepend => &mut self.writes.appends,
            LoadKind::Incr | LoadKind::Decr => &mut self.writes.counts,
        };
        *count += 1;
        match kind {
            LoadKind::Delete => &mut self.delete_latency,
            _ => &mut self.set_latency,
        }
    }

    /// A write or a delete, and when it began if its latency is taken.
    pub(super) fn note_write(&mut self, kind: LoadKind, start: Option<Instant>) {
        let latency = self.count_write(kind);
        if let Some(start) = start {
            record(latency, start.elapsed());
        }
    }

    /// A get of a key in the pool at this place.
    pub(super) fn note_pool(&mut self, place: Option<usize>, is_hit: bool) {
        let Some(place) = place else { return };
        if self.pools.len() <= place {
            self.pools.resize(place + 1, PoolTally::default());
        }
        self.pools[place].gets += 1;
        self.pools[place].hits += u64::from(is_hit);
    }

    /// `reason` is called only for the first error.
    pub(super) fn error(&mut self, reason: impl FnOnce() -> String) {
        self.errors += 1;
        self.first_error.get_or_insert_with(reason);
    }

    pub(super) fn add(&mut self, other: LatencyTally) {
        self.gets += other.gets;
        self.hits += other.hits;
        self.sets += other.sets;
        self.fills += other.fills;
        self.deletes += other.deletes;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.get_latency += other.get_latency;
        self.set_latency += other.set_latency;
        self.delete_latency += other.delete_latency;
        self.delay += other.delay;
        self.writes.add(other.writes);
        self.pools.resize(self.pools.len().max(other.pools.len()), PoolTally::default());
        for (sum, pool) in self.pools.iter_mut().zip(&other.pools) {
            sum.gets += pool.gets;
            sum.hits += pool.hits;
        }
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
