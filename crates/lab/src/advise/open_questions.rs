//! Questions that the capture of a warm server leaves open: the advice asks for a longer one in place of a number.

use serde::Serialize;

use super::units::{percent, size};
use crate::mrc::{FirstHits, TraceLoad};

/// Hits that a claim may leave open, as a share of the gets.
const NEGLIGIBLE: f64 = 0.01;
/// Part of an advised memory within which less may do.
const NEAR: f64 = 0.1;

/// Why the memory for a hit ratio takes a longer capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OpenQuestion {
    /// The memory that is named has the hit ratio; less may have it.
    LessMayDo,
    /// Only the memory that the server holds is known to have it.
    BelowServer,
    /// The server has it, or memory beyond the server's may have it.
    BeyondServer,
}

/// The question that stays open after this answer, the memory for a hit ratio or none.
pub(super) fn about_hit_ratio(
    load: &TraceLoad,
    hit_ratio: f64,
    dram_bytes: Option<f64>,
    reachable: f64,
) -> Option<OpenQuestion> {
    let first = &load.first;
    if first.hit_share + first.unknown_share == 0.0 {
        return None;
    }
    let Some(bytes) = dram_bytes else {
        let is_had = first.server.and_then(|server| server.hit_ratio()).is_some_and(|had| had >= hit_ratio);
        // Without the memory of the server the first hits are in no curve.
        let more = first.unknown_share + if first.held_bytes.is_none() { first.hit_share } else { 0.0 };
        return (is_had || reachable + more >= hit_ratio).then_some(OpenQuestion::BeyondServer);
    };
    if first.holds_all(bytes) && first.hit_share > 0.0 && first.held_bytes.is_some_and(|held| bytes <= held as f64) {
        return Some(OpenQuestion::BelowServer);
    }
    let min_bytes = load.min_memory_for(hit_ratio).map_or(bytes, |min_bytes| min_bytes as f64);
    (min_bytes < bytes * (1.0 - NEAR)).then_some(OpenQuestion::LessMayDo)
}

/// Whether the hits of smaller memories are known well enough to divide them.
pub(super) fn is_divisible(first: &FirstHits) -> bool {
    first.hit_share <= NEGLIGIBLE
}

/// Whether it is known where more memory hardly earns hits.
pub(super) fn is_end_known(first: &FirstHits) -> bool {
    first.hit_share <= NEGLIGIBLE && first.unknown_share <= NEGLIGIBLE
}

/// Whether hits that are left open would change the price or the hits of a plan.
pub(super) fn is_open(hit_ratio: f64, max_hit_ratio: f64) -> bool {
    max_hit_ratio - hit_ratio > NEGLIGIBLE
}

/// The hit ratio of the server, with its memory.
pub(super) fn of_server(first: &FirstHits) -> Option<String> {
    let server = first.server?;
    let ratio = percent(server.hit_ratio()?);
    let memory = match (first.held_bytes, server.memory_bytes) {
        (Some(held), Some(limit)) if held < limit => {
            format!("at its present {} (of {})", size(held as f64), size(limit as f64))
        }
        (Some(held), _) => format!("at its present {}", size(held as f64)),
        (None, _) => "with its DRAM and flash".to_owned(),
    };
    Some(format!("the server itself hits {ratio} {memory}"))
}

/// Hits of the server, and those unknown for less memory; `None` for a server whose keys were all seen before.
pub(super) fn sentence(first: &FirstHits) -> Option<String> {
    if first.hit_share == 0.0 {
        return None;
    }
    let server = of_server(first).unwrap_or_else(|| "the server was warm".to_owned());
    Some(format!(
        "{server}; {} keys, with {} of the gets, were first seen in the capture and hit there, so the hits of less \
         memory are known to these gets only: a longer capture, or --warmup, narrows that",
        first.keys,
        percent(first.hit_share)
    ))
}
