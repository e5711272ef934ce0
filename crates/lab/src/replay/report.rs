use ebbtide::FlashStats;
use serde::Serialize;
use std::collections::BTreeMap;

use super::audit::Findings;
use crate::Error;

/// What a replay found; the names of the fields are the names in the JSON object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// All requests, of every operation.
    pub requests: u64,
    /// Gets only, as are misses and both ratios.
    pub hits: u64,
    pub misses: u64,
    /// misses / gets; 0 without gets.
    pub miss_ratio: f64,
    /// Bytes of keys and values that missed / that were asked for.
    pub byte_miss_ratio: f64,
    /// Requests per second of time spent in the cache; reading the trace is not counted.
    pub ops_per_second: f64,
    pub memory_used_bytes: u64,
    pub objects: u64,
    pub evictions: u64,
    pub expired: u64,
    pub memory_limit_bytes: u64,
    pub trace: String,
    pub format: &'static str,
    pub policy: &'static str,
    pub threads: u16,
    pub gets: u64,
    pub deletes: u64,
    /// Writes that the cache accepted, fills after a miss included.
    pub stored: u64,
    /// Writes that the cache refused: the value too large, or no memory.
    pub store_failures: u64,
    /// Lines of the trace that were skipped.
    pub malformed_lines: u64,
    /// Requests whose key has another length than the trace says: 1 to 250, and enough to tell keys apart.
    pub keys_resized: u64,
    /// Requests with an earlier time than the one before.
    pub time_steps_back: u64,
    /// How much of the trace's time the replay covers.
    pub trace_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flash: Option<FlashReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditReport>,
}

/// What flash did in a replay with `--flash`. Its hits are among the hits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlashReport {
    pub hits: u64,
    /// Objects that were written to it, and their bytes.
    pub inserts: u64,
    pub inserted_bytes: u64,
    /// Objects that it did not take, by its admission or because the device did not keep up.
    pub refused: u64,
    pub dropped: u64,
    /// The latter by reason, those that there were.
    pub dropped_by_reason: BTreeMap<&'static str, u64>,
    /// Evicted objects that it held already.
    pub unchanged: u64,
    /// Bytes that reached the device, over those of the objects written.
    pub written_bytes: u64,
    pub write_amplification: f64,
    pub objects: u64,
    pub capacity_bytes: u64,
    /// Memory for its buffers and indexes, a part of `memory_used_bytes`.
    pub memory_bytes: u64,
}

impl FlashReport {
    pub(super) fn new(stats: &FlashStats) -> Self {
        let tier = &stats.tier;
        let refused = &tier.admission;
        let written_bytes = tier.written.total();
        Self {
            hits: stats.promoted,
            inserts: tier.inserts,
            inserted_bytes: tier.inserted_bytes,
            refused: refused.refused_held
                + refused.refused_expires_soon
                + refused.refused_by_policy
                + refused.refused_by_budget,
            dropped: tier.drops.total(),
            dropped_by_reason: tier.drops.by_reason().into_iter().filter(|&(_, count)| count > 0).collect(),
            unchanged: stats.unchanged,
            written_bytes,
            write_amplification: written_bytes as f64 / tier.inserted_bytes.max(1) as f64,
            objects: tier.objects,
            capacity_bytes: tier.capacity_bytes,
            memory_bytes: tier.memory_bytes,
        }
    }
}

/// What `--audit` found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditReport {
    /// Hits at or past the expiry.
    pub late_hits: u64,
    /// Hits with the value of another key or version.
    pub wrong_values: u64,
    /// Misses of objects with life left. These three are known only if nothing was evicted.
    pub early_misses: Option<u64>,
    /// The longest life that such an object had left, in seconds.
    pub early_seconds_max: Option<f64>,
    /// Misses of objects with more life left than 1 s or 1.6 % of their TTL.
    pub lost: Option<u64>,
}

impl AuditReport {
    /// With evictions, a miss of an object with life left says nothing.
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
