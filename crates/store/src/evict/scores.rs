//! What items of a run are worth, and from which score on they are kept.

/// Scores of items that are not in the index any more, of those that have expired, and of those alive that have not earned
/// their place.
pub(super) const SCORE_GONE: u8 = 0;
pub(super) const SCORE_EXPIRED: u8 = 1;
pub(super) const SCORE_UNEARNED: u8 = 2;
/// The lowest score of an item that may be kept.
pub(super) const SCORE_MIN: u8 = 3;

/// What scored the same.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub items: u32,
    /// Bytes in the segments.
    pub bytes: u64,
    /// The same and the bodies of long values.
    pub total_bytes: u64,
}

/// From which score on items are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub score: u8,
    /// Items of just that score that are dropped, the oldest, before the others are kept.
    pub dropped_at_score: u32,
}

/// The score of an item by its use per byte (GreedyDual-Size-Frequency without aging; Segcache, section 3.6.3): eighths of
/// a power of two. An item that was never used counts as a sixteenth of a use, so that small ones stay first.
pub(super) fn per_byte(frequency: u8, bytes: u64) -> u8 {
    let value = ((u64::from(frequency) * 16 + 1) << 23) / bytes.max(1);
    let exponent = value.max(1).ilog2();
    let eighths = if exponent >= 3 { value >> (exponent - 3) & 7 } else { 0 };
    (u64::from(exponent) * 8 + eighths).clamp(SCORE_MIN.into(), u8::MAX.into()) as u8
}

/// The score from which on items fit `room` bytes in a segment and `total_room` with their bodies; never below `lowest`.
/// `rounded` makes a whole number of those to drop.
pub(super) fn cut(tally: &[Tally; 256], room: u64, total_room: u64, lowest: u8, rounded: fn(f64) -> f64) -> Cut {
    let (mut bytes, mut total) = (0, 0);
    for score in (lowest..=u8::MAX).rev() {
        let here = tally[usize::from(score)];
        if bytes + here.bytes > room || total + here.total_bytes > total_room {
            let share = |left: u64, wanted: u64| if wanted == 0 { 1.0 } else { left as f64 / wanted as f64 };
            let fits = share(room - bytes, here.bytes).min(share(total_room - total, here.total_bytes)).min(1.0);
            let dropped_at_score = rounded(f64::from(here.items) * (1.0 - fits)) as u32;
            return Cut { score, dropped_at_score };
        }
        bytes += here.bytes;
        total += here.total_bytes;
    }
    Cut { score: lowest, dropped_at_score: 0 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_cut_fills_the_room_exactly() {
        let mut tally = [Tally::default(); 256];
        tally[200] = Tally { items: 10, bytes: 1000, total_bytes: 1000 };
        tally[100] = Tally { items: 10, bytes: 1000, total_bytes: 5000 };
        let all = cut(&tally, 10_000, 10_000, SCORE_MIN, f64::ceil);
        assert_eq!((all.score, all.dropped_at_score), (SCORE_MIN, 0));
        let half = cut(&tally, 1500, 10_000, SCORE_MIN, f64::ceil);
        assert_eq!((half.score, half.dropped_at_score), (100, 5));
        let by_bodies = cut(&tally, 10_000, 2000, SCORE_MIN, f64::ceil);
        assert_eq!((by_bodies.score, by_bodies.dropped_at_score), (100, 8));
        let used = cut(&tally, 10_000, 10_000, 150, f64::ceil);
        assert_eq!((used.score, used.dropped_at_score), (150, 0));
    }

    #[test]
    fn scores_rank_use_per_byte() {
        assert!(per_byte(2, 100) > per_byte(1, 100));
        assert!(per_byte(1, 100) > per_byte(1, 200));
        assert_eq!(per_byte(127, 6).max(SCORE_MIN), per_byte(127, 6));
        assert!(per_byte(0, 1 << 30) >= SCORE_MIN && per_byte(0, 100) > per_byte(0, 1 << 20));
        assert!(per_byte(127, 6) > per_byte(63, 6), "the top of the scale is not cut off");
    }
}
