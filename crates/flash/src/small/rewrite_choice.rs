//! Pure decisions: the result for an object at the log's end, and the sets of a group to rewrite.

/// Bytes of an object that count as one more object.
const OBJECT_BYTES: usize = 300;
/// The decision for an object at the log's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RewriteDecision {
    /// Write it to its set's page, with all others of its set in the log.
    Rewrite,
    /// Append it to the log's front.
    Readmit,
    End,
}

/// The objects of a set in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetBatch {
    pub objects: usize,
    /// Bytes of those at the log's end.
    pub bytes: usize,
    /// Whether the set's page has space for them.
    pub fit: bool,
}

/// Decides for an object of a set with `together` in the log. If the objects fit the page, the rewrite evicts none; if
/// they are long, they are worth a page write.
pub(crate) fn decision(together: SetBatch, threshold: u8, hit: bool) -> RewriteDecision {
    let is_much = together.objects >= usize::from(threshold) || together.bytes >= usize::from(threshold) * OBJECT_BYTES;
    if is_much || together.fit {
        RewriteDecision::Rewrite
    } else if hit {
        RewriteDecision::Readmit
    } else {
        RewriteDecision::End
    }
}

/// The sets to rewrite so that a group keeps at most `max_tombstones`: those with the most tombstones, and all unclean
/// ones. `sets` has the tombstones of each set, and whether it is unclean.
pub(crate) fn choose_cleanup(sets: impl Iterator<Item = (usize, bool)>, max_tombstones: usize) -> Vec<usize> {
    let mut sets: Vec<_> = sets.enumerate().map(|(set, (tombstones, unclean))| (unclean, tombstones, set)).collect();
    let mut left: usize = sets.iter().map(|&(_, tombstones, _)| tombstones).sum();
    sets.sort_unstable_by(|a, b| b.cmp(a));
    let chosen = sets.into_iter().take_while(|&(unclean, tombstones, _)| {
        let take = unclean || left > max_tombstones;
        left -= if take { tombstones } else { 0 };
        take
    });
    chosen.map(|(_, _, set)| set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_together_end_unless_they_were_hit() {
        let decision = |objects, threshold, hit| decision(SetBatch { objects, bytes: 300, fit: false }, threshold, hit);
        assert_eq!(decision(2, 2, false), RewriteDecision::Rewrite);
        assert_eq!(decision(1, 2, true), RewriteDecision::Readmit);
        assert_eq!(decision(1, 2, false), RewriteDecision::End);
        assert_eq!(decision(1, 1, false), RewriteDecision::Rewrite);
    }

    #[test]
    fn objects_that_fit_or_are_long_move_alone() {
        let decision = |bytes, fit| decision(SetBatch { objects: 1, bytes, fit }, 2, false);
        assert_eq!(
            [(10, true), (600, false), (599, false)].map(|(bytes, fit)| decision(bytes, fit)),
            [RewriteDecision::Rewrite, RewriteDecision::Rewrite, RewriteDecision::End]
        );
    }

    #[test]
    fn cleanup_chooses_unclean_sets_and_most_tombstones() {
        let sets = [(3, false), (0, true), (9, false), (1, false), (4, true)];
        assert_eq!(choose_cleanup(sets.into_iter(), 4), [4, 1, 2]);
        assert_eq!(choose_cleanup(sets.into_iter(), 100), [4, 1]);
        assert_eq!(choose_cleanup([(0, false)].into_iter(), 0), []);
    }
}
