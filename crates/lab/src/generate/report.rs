use serde::Serialize;

use crate::trace::{Op, Request};

/// What was written.
#[derive(Clone, Debug, Serialize)]
pub struct GenerateReport {
    pub requests: u64,
    pub gets: u64,
    pub sets: u64,
    pub deletes: u64,
    /// The time of the last request.
    pub seconds: u64,
    /// Distinct keys, where the workload knows them without counting.
    pub keys: Option<u64>,
    /// Bytes of all keys and their values.
    pub footprint_bytes: Option<u64>,
    /// What was passed over of the input.
    pub note: Option<String>,
}

/// The requests so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OperationCounts {
    pub(super) requests: u64,
    pub(super) sets: u64,
    pub(super) deletes: u64,
    pub(super) seconds: u64,
}

impl OperationCounts {
    pub(super) fn add(&mut self, request: &Request) {
        self.requests += 1;
        self.sets += u64::from(request.op == Op::Set);
        self.deletes += u64::from(request.op == Op::Delete);
        self.seconds = request.time_seconds;
    }
}
