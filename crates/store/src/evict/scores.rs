//! Scores of the items of a run, and the threshold from which on items are kept.

/// Scores of unlinked items, of expired ones, and of live ones that the policy does not keep.
pub(crate) const SCORE_UNLINKED: u8 = 0;
pub(crate) const SCORE_EXPIRED: u8 = 1;
pub(super) const SCORE_UNQUALIFIED: u8 = 2;
/// The lowest score of an item that the policy may keep.
pub(super) const SCORE_MIN: u8 = 3;

/// The sums over all items of one score.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScoreTotals {
    pub items: u32,
    /// Bytes in the segments.
    pub bytes: u64,
    /// Bytes with the bodies of long values.
    pub total_bytes: u64,
}

/// The score from which on items are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoreThreshold {
    pub score: u8,
    /// Items with exactly that score that are dropped, the first in the run, before the others are kept.
    pub dropped_at_threshold: u32,
}

/// The score of an item by its use per byte (GreedyDual-Size-Frequency without aging; Segcache, section 3.6.3): eighths
/// of a power of two. An item that was never used counts as a sixteenth of a use, so that small ones stay first.
pub(super) fn use_per_byte(frequency: u8, bytes: u64) -> u8 {
    let value = ((u64::from(frequency) * 16 + 1) << 23) / bytes.max(1);
    let exponent = value.max(1).ilog2();
    let eighths = if exponent >= 3 { value >> (exponent - 3) & 7 } else { 0 };
    (u64::from(exponent) * 8 + eighths).clamp(SCORE_MIN.into(), u8::MAX.into()) as u8
}

/// The score from which on items fit `bytes_max` in a segment and `total_bytes_max` with their bodies; at least
/// `lowest`. `rounded` rounds the number of items to drop.
pub(super) fn threshold(
    totals: &[ScoreTotals; 256],
    bytes_max: u64,
    total_bytes_max: u64,
    lowest: u8,
    rounded: fn(f64) -> f64,
) -> ScoreThreshold {
    let (mut bytes, mut total) = (0, 0);
    for score in (lowest..=u8::MAX).rev() {
        let here = totals[usize::from(score)];
        if bytes + here.bytes > bytes_max || total + here.total_bytes > total_bytes_max {
            let share = |left: u64, wanted: u64| if wanted == 0 { 1.0 } else { left as f64 / wanted as f64 };
            let fits =
                share(bytes_max - bytes, here.bytes).min(share(total_bytes_max - total, here.total_bytes)).min(1.0);
            let dropped_at_threshold = rounded(f64::from(here.items) * (1.0 - fits)) as u32;
            return ScoreThreshold { score, dropped_at_threshold };
        }
        bytes += here.bytes;
        total += here.total_bytes;
    }
    ScoreThreshold { score: lowest, dropped_at_threshold: 0 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_fills_the_space_exactly() {
        let mut totals = [ScoreTotals::default(); 256];
        totals[200] = ScoreTotals { items: 10, bytes: 1000, total_bytes: 1000 };
        totals[100] = ScoreTotals { items: 10, bytes: 1000, total_bytes: 5000 };
        let all = threshold(&totals, 10_000, 10_000, SCORE_MIN, f64::ceil);
        assert_eq!((all.score, all.dropped_at_threshold), (SCORE_MIN, 0));
        let half = threshold(&totals, 1500, 10_000, SCORE_MIN, f64::ceil);
        assert_eq!((half.score, half.dropped_at_threshold), (100, 5));
        let by_bodies = threshold(&totals, 10_000, 2000, SCORE_MIN, f64::ceil);
        assert_eq!((by_bodies.score, by_bodies.dropped_at_threshold), (100, 8));
        let used = threshold(&totals, 10_000, 10_000, 150, f64::ceil);
        assert_eq!((used.score, used.dropped_at_threshold), (150, 0));
    }

    #[test]
    fn scores_rank_use_per_byte() {
        assert!(use_per_byte(2, 100) > use_per_byte(1, 100));
        assert!(use_per_byte(1, 100) > use_per_byte(1, 200));
        assert_eq!(use_per_byte(127, 6).max(SCORE_MIN), use_per_byte(127, 6));
        assert!(use_per_byte(0, 1 << 30) >= SCORE_MIN && use_per_byte(0, 100) > use_per_byte(0, 1 << 20));
        assert!(use_per_byte(127, 6) > use_per_byte(63, 6), "the top of the scale is not cut off");
    }
}
