use serde::Serialize;

use super::audit::Findings;
use super::decision::Decision;
use super::pools::PoolReport;
use crate::Error;
use crate::bench::OtherWrites;
use crate::flash::FlashReport;

/// Results of a replay; the names of the fields are the names in the JSON object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayReport {
    /// All requests, of every operation.
    pub requests: u64,
    /// Gets only, as are misses and both ratios.
    pub hits: u64,
    pub misses: u64,
    /// misses / gets; 0 without gets.
    pub miss_ratio: f64,
    /// Bytes of keys and values of missed gets / of all gets.
    pub byte_miss_ratio: f64,
    /// Requests per second of time spent in the cache; reading the trace is not counted.
    pub ops_per_second: f64,
    pub memory_used_bytes: u64,
    pub objects: u64,
    /// Objects that left memory to make space, also to flash.
    pub evictions: u64,
    pub expired: u64,
    pub memory_limit_bytes: u64,
    pub trace: String,
    pub format: &'static str,
    pub policy: &'static str,
    pub threads: u16,
    pub gets: u64,
    /// With gets and deletes, and the other writes where there are such, these are the requests.
    pub sets: u64,
    pub deletes: u64,
    #[serde(flatten)]
    pub writes: Option<OtherWrites>,
    /// Sets after a miss, and counters that were absent; not among the requests.
    pub fills: u64,
    /// Writes that the cache accepted, fills after a miss included.
    pub stored: u64,
    /// Writes that the cache refused: the value too large, or no memory.
    pub store_failures: u64,
    /// Lines of the trace that were skipped.
    pub malformed_lines: u64,
    /// Requests whose key has another length than in the trace: 1 to 250 bytes, and enough to distinguish keys.
    pub keys_resized: u64,
    /// Requests with an earlier time than the one before.
    pub time_steps_back: u64,
    /// How much of the trace's time the replay covers.
    pub trace_seconds: f64,
    /// Keys of the configuration of CacheBench that have no effect here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash: Option<FlashReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditReport>,
    /// Of `--pools`, in the order of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pools: Option<Vec<PoolReport>>,
    /// Changes of the division, in their order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decisions: Option<Vec<Decision>>,
}

/// Findings of `--audit`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditReport {
    /// Hits at or past the expiry.
    pub late_hits: u64,
    /// Hits with the value of another key or version.
    pub wrong_values: u64,
    /// Misses of objects before their expiry. `None`, as the next two, if anything was evicted.
    pub early_misses: Option<u64>,
    /// Longest remaining life of such an object, in seconds.
    pub early_seconds_max: Option<f64>,
    /// Misses of objects with a remaining life of more than 1 s and 1.6 % of their TTL.
    pub lost: Option<u64>,
}

impl AuditReport {
    /// With objects that left memory, early misses are no errors, so their counts are left out.
    pub(super) fn new(findings: &Findings, evictions: u64) -> Self {
        let known = |number: u64| (evictions == 0).then_some(number);
        Self {
            late_hits: findings.late_hits,
            wrong_values: findings.wrong_values,
            early_misses: known(findings.early_misses),
            early_seconds_max: known(findings.early_milliseconds).map(|ms| ms as f64 / 1000.0),
            lost: known(findings.lost),
        }
    }

    /// An error if the cache broke a promise.
    pub fn verdict(&self) -> Result<(), Error> {
        let lost = self.lost.unwrap_or(0);
        if self.late_hits + self.wrong_values + lost == 0 {
            return Ok(());
        }
        Err(Error::Audit { late_hits: self.late_hits, wrong_values: self.wrong_values, lost })
    }
}
