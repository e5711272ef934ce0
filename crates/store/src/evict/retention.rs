//! Which items of a run an eviction keeps: the score of each item, and the threshold from which on items are kept.
//!
//! Both are pure, so that the store and the model of its segments (see `model`) decide the same.

use super::history::{History, RETURNED_FREQUENCY};
use super::objective::Objective;
use super::policy::Retention;
use super::scores::{SCORE_MIN, SCORE_UNQUALIFIED, ScoreThreshold, ScoreTotals, threshold};

/// Evictions in a row that may free nothing, because the items are large and all in use: a writer waits for no more.
pub(crate) const EVICTIONS_WITHOUT_GAIN_MAX: u32 = 64;

/// A run whose items have been scored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoredRun<'t> {
    pub segments: usize,
    pub segment_bytes: u64,
    /// Segments that an eviction merges into one, by the options.
    pub merge_run: u64,
    pub totals: &'t [ScoreTotals; 256],
    /// Evictions in a row before this one that freed nothing.
    pub evictions_without_gain: u32,
}

/// Attributes of a live item that decide its score.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoredItem {
    pub hash: u64,
    /// Frequency in its slot.
    pub frequency: u8,
    /// Bytes, bodies included, by its cost if that counts.
    pub bytes: u64,
    /// Whether it costs so much that this round is free.
    pub is_spared: bool,
}

impl Retention {
    /// The score of a live item.
    pub(crate) fn score(self, objective: Objective, history: &History, item: ScoredItem) -> u8 {
        let ScoredItem { hash, bytes, is_spared, .. } = item;
        let frequency = item.frequency.saturating_add(history.frequency(hash));
        match self {
            Self::Used if frequency == 0 => SCORE_UNQUALIFIED,
            Self::Returned if frequency < RETURNED_FREQUENCY => SCORE_UNQUALIFIED,
            Self::Used | Self::Returned => frequency.saturating_add(SCORE_MIN),
            Self::Qualified { unused_bytes, bytes_per_use, young } => {
                let earns =
                    |uses: u8| bytes <= unused_bytes.saturating_add(u64::from(uses).saturating_mul(bytes_per_use));
                let after_first = earns(frequency.saturating_sub(1));
                let is_kept = if young && history.needs_two_uses() { after_first } else { earns(frequency) };
                history.note_scored(hash, young && is_kept && !after_first, !young && frequency > 0);
                if is_kept || is_spared && !young { objective.score(frequency, bytes) } else { SCORE_UNQUALIFIED }
            }
            Self::TopScored => objective.score(frequency, bytes),
            Self::Nothing => panic!("{self:?} needs no scores"),
        }
    }

    /// The score from which on items of the run are kept.
    pub(crate) fn threshold(self, run: &ScoredRun<'_>) -> ScoreThreshold {
        let &ScoredRun { segments, segment_bytes, merge_run, totals, evictions_without_gain } = run;
        let live: u64 = totals.iter().map(|totals| totals.bytes).sum();
        let total: u64 = totals.iter().map(|totals| totals.total_bytes).sum();
        let is_alone = segments == 1;
        let has_bodies = total - live > segment_bytes;
        // The run may keep its share by the length of runs, or all beyond the bytes that it must free, if that is more.
        let total_bytes_max = match self {
            by_use if by_use.keeps_all_that_qualify() && !has_bodies => total,
            _ if is_alone && !has_bodies => total / merge_run,
            _ => {
                let freed = if is_alone { merge_run - 1 } else { segments as u64 - 1 };
                (total / merge_run).max(total.saturating_sub(freed * segment_bytes))
            }
        };
        // One of a few large items is a large part of the segment: rounding down keeps a qualified item that just
        // misses.
        let (bytes_max, rounded): (_, fn(f64) -> f64) = match self {
            by_use
                if by_use.keeps_all_that_qualify()
                    && !has_bodies
                    && evictions_without_gain >= EVICTIONS_WITHOUT_GAIN_MAX =>
            {
                (segment_bytes / 2, f64::ceil)
            }
            by_use if by_use.keeps_all_that_qualify() && !has_bodies => (segment_bytes / 8 * 7, f64::floor),
            _ => (segment_bytes, f64::ceil),
        };
        // Each long value frees so much that unqualified items can stay until their memory is needed.
        let lowest = if has_bodies { SCORE_UNQUALIFIED } else { SCORE_MIN };
        threshold(totals, bytes_max, total_bytes_max, lowest, rounded)
    }
}

impl ScoreThreshold {
    /// Whether an item of this score is kept. Items are asked for in the order of the run, each once.
    pub(crate) fn keeps(&mut self, score: u8) -> bool {
        if score == self.score && self.dropped_at_threshold > 0 {
            self.dropped_at_threshold -= 1;
            return false;
        }
        score >= self.score.max(SCORE_UNQUALIFIED)
    }

    /// Whether only as much is freed as is needed now: survivors keep the age of the run and are judged again.
    pub(crate) fn is_partial(&self) -> bool {
        self.score == SCORE_UNQUALIFIED
    }
}
