//! The choice of regions to reclaim, with the cause. Pure functions; `reclaim` executes the choices.

use super::options::{Reclaim, Reinsertion};
use super::regions::{RegionState, RegionSummary};
use crate::object::has_expired;

/// While copies do not pay, one in this many is made.
const TRIAL_INTERVAL: u64 = 64;

/// Why a region is reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimCause {
    /// All of its objects are flushed, or it was never written.
    Flushed,
    /// All of its objects are expired.
    Expired,
    /// A transfer failed.
    Failed,
    /// Space is needed.
    Space,
}

/// A region, as the choice sees it.
#[derive(Clone, Copy, Debug)]
pub struct RegionCandidate {
    pub region: u32,
    pub state: RegionState,
    pub summary: RegionSummary,
    pub last_hit: u64,
}

/// The inputs of a choice beside the regions.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimNeed {
    pub now: u32,
    /// Lives with a lower sequence are flushed.
    pub floor: u64,
    /// Number of regions that must be free afterwards.
    pub wanted: usize,
    pub free: usize,
    pub reclaim: Reclaim,
}

/// All regions without live objects, all failed ones, and if that is not enough, the missing number of others in the
/// order of the policy.
pub fn choose(candidates: impl Iterator<Item = RegionCandidate>, need: ReclaimNeed) -> Vec<(u32, ReclaimCause)> {
    let (mut chosen, mut living) = (Vec::new(), Vec::new());
    for candidate in candidates {
        let cause = match candidate.state {
            RegionState::Emptied => ReclaimCause::Flushed,
            RegionState::Failed => ReclaimCause::Failed,
            RegionState::Sealed if candidate.summary.sequence < need.floor => ReclaimCause::Flushed,
            RegionState::Sealed if has_expired(candidate.summary.latest_expiry, need.now) => ReclaimCause::Expired,
            RegionState::Sealed => ReclaimCause::Space,
            _ => continue,
        };
        match cause {
            ReclaimCause::Space => living.push(candidate),
            _ => chosen.push((candidate.region, cause)),
        }
    }
    let gained = chosen.iter().filter(|(_, cause)| *cause != ReclaimCause::Failed).count();
    let missing = need.wanted.saturating_sub(need.free + gained).min(living.len());
    if missing > 0 {
        let rank = |candidate: &RegionCandidate| match need.reclaim {
            Reclaim::Fifo => (0, candidate.summary.sequence),
            Reclaim::Lru => (candidate.last_hit, candidate.summary.sequence),
        };
        living.select_nth_unstable_by_key(missing - 1, rank);
        chosen.extend(living[..missing].iter().map(|candidate| (candidate.region, ReclaimCause::Space)));
    }
    chosen
}

/// Whether to reinsert an object of a reclaimed region, given its hits since it was written. With `Auto`, hit objects
/// are reinserted while copies pay; otherwise a sample of them is, to measure whether copies would pay. `drawn` is a
/// random number of the object.
pub fn is_reinserted(reinsertion: Reinsertion, copies_pay: bool, hits: u8, drawn: u64) -> bool {
    match reinsertion {
        Reinsertion::Never => false,
        Reinsertion::Auto => hits > 0 && (copies_pay || drawn.is_multiple_of(TRIAL_INTERVAL)),
        #[cfg(test)]
        Reinsertion::Forced(min_hits) => hits >= min_hits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(region: u32, state: RegionState, sequence: u64, latest_expiry: u32, last_hit: u64) -> RegionCandidate {
        let summary = RegionSummary { sequence, lowest_order: 1, latest_expiry };
        RegionCandidate { region, state, summary, last_hit }
    }

    fn chosen(wanted: usize, free: usize, reclaim: Reclaim) -> Vec<(u32, ReclaimCause)> {
        let candidates = [
            candidate(0, RegionState::Free, 1, 0, 0),
            candidate(1, RegionState::Open, 90, 0, 0),
            candidate(2, RegionState::Sealed, 50, 0, 7),
            candidate(3, RegionState::Sealed, 30, 0, 9),
            candidate(4, RegionState::Sealed, 40, 99, 8),
            candidate(5, RegionState::Sealed, 60, 100, 0),
            candidate(6, RegionState::Sealed, 20, 0, 99),
            candidate(7, RegionState::Emptied, 80, 0, 0),
            candidate(8, RegionState::Failed, 81, 0, 0),
            candidate(9, RegionState::Lost, 31, 0, 0),
        ];
        let mut chosen = choose(candidates.into_iter(), ReclaimNeed { now: 100, floor: 25, wanted, free, reclaim });
        chosen.sort_by_key(|choice| choice.0);
        chosen
    }

    #[test]
    fn what_is_empty_goes_first() {
        let deletions = [
            (4, ReclaimCause::Expired),
            (5, ReclaimCause::Expired),
            (6, ReclaimCause::Flushed),
            (7, ReclaimCause::Flushed),
            (8, ReclaimCause::Failed),
        ];
        assert_eq!(chosen(4, 0, Reclaim::Fifo), deletions);
        assert_eq!(chosen(5, 1, Reclaim::Lru), deletions);
    }

    #[test]
    fn the_policy_says_who_else() {
        let space = |wanted, reclaim| {
            let chosen = chosen(wanted, 0, reclaim);
            chosen
                .into_iter()
                .filter(|choice| choice.1 == ReclaimCause::Space)
                .map(|choice| choice.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(space(5, Reclaim::Fifo), [3]);
        assert_eq!(space(5, Reclaim::Lru), [2]);
        assert_eq!(space(99, Reclaim::Lru), [2, 3]);
    }

    #[test]
    fn reinsertion_follows_hits_and_value() {
        for (reinsertion, hits, kept) in [
            (Reinsertion::Never, 3, 0),
            (Reinsertion::Forced(2), 1, 0),
            (Reinsertion::Forced(2), 2, 6400),
            (Reinsertion::Forced(0), 0, 6400),
            (Reinsertion::Auto, 0, 0),
            (Reinsertion::Auto, 1, 6400),
        ] {
            assert_eq!(
                (0..6400).filter(|&drawn| is_reinserted(reinsertion, true, hits, drawn)).count(),
                kept,
                "{reinsertion:?}"
            );
        }
        let tried =
            [0, 1].map(|hits| (0..6400).filter(|&drawn| is_reinserted(Reinsertion::Auto, false, hits, drawn)).count());
        assert_eq!(tried, [0, 100]);
    }
}
