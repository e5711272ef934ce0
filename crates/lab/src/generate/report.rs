use std::collections::HashMap;

use serde::Serialize;

use crate::trace::{Op, Request};
use crate::workload::mix;

/// Report of a generated trace.
#[derive(Clone, Debug, Serialize)]
pub struct GenerateReport {
    pub requests: u64,
    pub gets: u64,
    pub sets: u64,
    pub deletes: u64,
    /// Adds, replaces, appends and counts.
    pub other_writes: u64,
    /// The time of the last request.
    pub seconds: u64,
    /// Distinct keys. Exact up to four millions, and where the workload knows them; else within 0.2 %.
    pub keys: u64,
    /// Bytes of all keys and their values.
    pub footprint_bytes: u64,
    /// Parts of the input that were skipped.
    pub note: Option<String>,
}

/// The requests so far.
#[derive(Clone, Debug, Default)]
pub(super) struct OperationCounts {
    pub(super) requests: u64,
    pub(super) gets: u64,
    pub(super) sets: u64,
    pub(super) deletes: u64,
    pub(super) seconds: u64,
    pub(super) objects: DistinctObjects,
}

impl OperationCounts {
    pub(super) fn add(&mut self, request: &Request) {
        self.requests += 1;
        self.gets += u64::from(matches!(request.op, Op::Get | Op::Gets));
        self.sets += u64::from(request.op == Op::Set);
        self.deletes += u64::from(request.op == Op::Delete);
        self.seconds = request.time_seconds;
        if request.op != Op::Delete {
            self.objects.add(request.key, u64::from(request.key_size) + u64::from(request.value_size));
        }
    }
}

/// Objects that are counted one by one; with more, every other one by its hash, every fourth, and so on.
const MAX_COUNTED: usize = 4 << 20;

/// Distinct objects, each with the size that it had first.
#[derive(Clone, Debug, Default)]
pub(super) struct DistinctObjects {
    bytes_of_key: HashMap<u64, u64>,
    /// One key of 2^this is counted.
    shift: u32,
}

impl DistinctObjects {
    fn add(&mut self, key: u64, bytes: u64) {
        if !self.counts(key) {
            return;
        }
        self.bytes_of_key.entry(key).or_insert(bytes);
        if self.bytes_of_key.len() > MAX_COUNTED {
            self.halve();
        }
    }

    fn counts(&self, key: u64) -> bool {
        mix(key).trailing_zeros() >= self.shift
    }

    fn halve(&mut self) {
        self.shift += 1;
        let mut kept = std::mem::take(&mut self.bytes_of_key);
        kept.retain(|&key, _| self.counts(key));
        self.bytes_of_key = kept;
    }

    /// How many, and the bytes of their keys and values.
    pub(super) fn size(&self) -> (u64, u64) {
        let (keys, bytes) = (self.bytes_of_key.len() as u64, self.bytes_of_key.values().sum::<u64>());
        (keys << self.shift, bytes << self.shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_count_once_and_many_are_sampled() {
        let mut objects = DistinctObjects::default();
        (0..1000_u64).chain(0..1000).for_each(|key| objects.add(key, 10 + key % 2));
        assert_eq!(objects.size(), (1000, 10_500));
        (0..3).for_each(|_| objects.halve());
        (1000..400_000).for_each(|key| objects.add(key, 20));
        let (keys, bytes) = objects.size();
        assert!((keys as f64 / 400_000.0 - 1.0).abs() < 0.02, "{keys}");
        assert!((bytes as f64 / (399_000.0 * 20.0 + 10_500.0) - 1.0).abs() < 0.02, "{bytes}");
    }
}
