//! LRU with an insertion point, as in CacheLib (`lruInsertionPointSpec` of `MMLru`): a new item enters the order in the
//! middle or below it, and an item that is used goes to its head. So items without a use pass through a part of the
//! memory only, and a scan or a loop longer than the memory leaves the rest alone.
//!
//! ```text
//! head                               insertion point              tail
//! | old segments, the newest first | young ones and old ones, by entry | -> evicted
//! |<---- memory - tail share ----->|<---------- tail share ---------->|
//! ```
//!
//! On segments a use moves nothing at once: an eviction moves used items to an old segment, the head of the order.
//!
//! - An old segment is in the tail when the old segments newer than it hold more than the head. It entered the tail
//!   when they did: before a young segment, if those older than the young one hold as much.
//! - While the old segments do not fill the head, the oldest young segments are its end, and are spared.

use super::sampled_segment::SampledSegment;

/// The insertion point: the part of the order behind a new item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertionPoint {
    Half,
    Quarter,
    Eighth,
}

impl InsertionPoint {
    /// Bytes in front of a new item, of a total.
    pub fn head_bytes(self, total: u64) -> u64 {
        let tail_bytes = match self {
            Self::Half => total / 2,
            Self::Quarter => total / 4,
            Self::Eighth => total / 8,
        };
        total - tail_bytes
    }

    /// The segment at the end of the order. `views` are not empty.
    pub(super) fn last(self, views: &[SampledSegment]) -> &SampledSegment {
        let bytes = |views: &mut dyn Iterator<Item = &SampledSegment>| views.map(|view| view.live_bytes).sum::<u64>();
        let head = self.head_bytes(bytes(&mut views.iter()));
        let old = || views.iter().filter(|view| view.rounds > 0);
        let old_bytes = bytes(&mut old());
        if old_bytes < head
            && let Some(young) = oldest_beyond(views, head - old_bytes)
        {
            return young;
        }
        let oldest_young = views.iter().filter(|view| view.rounds == 0).min_by_key(|view| view.stamp);
        match (old().min_by_key(|view| view.stamp), oldest_young) {
            (Some(old_one), Some(young)) => {
                let between =
                    bytes(&mut old().filter(|view| view.stamp < young.stamp)).saturating_sub(old_one.live_bytes);
                if between >= head { old_one } else { young }
            }
            (old_one, young) => old_one.or(young).expect("there is a segment to choose"),
        }
    }
}

/// The oldest young segment of those beyond the oldest `spared` bytes of young ones; `None` if these are all. Each turn
/// halves the segments that are left, so the time is proportional to their number.
fn oldest_beyond(views: &[SampledSegment], mut spared: u64) -> Option<&SampledSegment> {
    let mut young: Vec<&SampledSegment> = views.iter().filter(|view| view.rounds == 0).collect();
    if young.iter().map(|view| view.live_bytes).sum::<u64>() <= spared {
        return None;
    }
    let mut left = &mut young[..];
    while left.len() > 1 {
        let middle = left.len() / 2;
        left.select_nth_unstable_by_key(middle, |view| view.stamp);
        let (older, newer) = left.split_at_mut(middle);
        let older_bytes = older.iter().map(|view| view.live_bytes).sum::<u64>();
        left = if older_bytes > spared {
            older
        } else {
            spared -= older_bytes;
            newer
        };
    }
    left.first().copied()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::segment::SegmentId;

    /// A segment of 100 bytes whose number is its stamp.
    fn view(stamp: u32, rounds: u8) -> SampledSegment {
        let segment = SegmentId::new(stamp);
        let (stamp, live_items, live_bytes, latest_expiry_seconds) = (stamp.into(), 10, 100, 100);
        SampledSegment { segment, stamp, live_items, live_bytes, latest_expiry_seconds, rounds }
    }

    fn last(point: InsertionPoint, young: &[u32], old: &[u32]) -> u64 {
        let views = young.iter().map(|&stamp| view(stamp, 0)).chain(old.iter().map(|&stamp| view(stamp, 1)));
        point.last(&views.collect::<Vec<_>>()).stamp
    }

    #[test]
    fn unused_segments_leave_before_old_head_segments() {
        assert_eq!(last(InsertionPoint::Half, &[20, 22, 21, 23], &[1, 2, 3, 4]), 20, "four of eight are the head");
        assert_eq!(last(InsertionPoint::Quarter, &[21, 20], &[1, 2, 3, 4, 5, 6]), 20, "and six of eight");
        assert_eq!(last(InsertionPoint::Eighth, &[20], &[1, 2, 3, 4, 5, 6, 7]), 20, "and seven");
    }

    #[test]
    fn old_segments_that_fell_before_leave_before() {
        // Half of eight is the head: 1 fell to the tail when 5 came.
        assert_eq!(last(InsertionPoint::Half, &[6, 7, 8], &[1, 2, 3, 4, 5]), 1);
        assert_eq!(last(InsertionPoint::Half, &[5, 7, 8], &[1, 2, 3, 4, 6]), 5, "it entered the tail before 1 fell");
    }

    #[test]
    fn the_oldest_segments_end_an_unfilled_head() {
        assert_eq!(last(InsertionPoint::Half, &[4, 1, 3, 2, 6, 5], &[]), 4, "three of six are the head");
        assert_eq!(last(InsertionPoint::Quarter, &[4, 1, 3, 2, 6, 5, 7], &[9]), 6, "five of seven, and one old");
        assert_eq!(last(InsertionPoint::Half, &[7], &[]), 7);
        assert_eq!(last(InsertionPoint::Half, &[], &[8, 7]), 7);
    }
}
