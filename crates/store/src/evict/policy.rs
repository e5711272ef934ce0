//! Eviction policies: pure functions. Each looks at the sampled segments and decides which run of a chain to evict and
//! which items to keep; `eviction_job` executes the decision.
//!
//! | policy | evicts | keeps |
//! |---|---|---|
//! | `s3fifo` | young segments while they hold over 15 %, else old ones | items used enough for their size |
//! | `merge` | the run that was written or merged longest ago | the most used per byte, in one segment (Segcache) |
//! | `fifo` | the oldest segment | nothing |
//! | `random` | any segment | nothing |
//! | `cte` | the segment closest to expiry | nothing |
//! | `utilization` | the segment with the fewest live bytes | nothing |
//! | `lru` | the segment that was evicted or written longest ago | items used since (CLOCK, Corbató 1969) |
//! | `lru:insertion=1/2` | the last segment of an order that new items enter in the middle | items used since |
//! | `lru:insertion=1/4`, `1/8` | the same, a quarter or an eighth from its end (see `insertion`) | items used since |
//! | `2q` | young segments while they hold over a fifth, else old ones | returned keys, then used items (2Q, VLDB'94) |
//! | `merge-sketch` | the run that was evicted or written longest ago | the most used per byte, with a sketch of keys |
//!
//! `s3fifo`, the default, is S3-FIFO (Yang and others, SOSP'23) on segments. Most items that are used once leave early,
//! from a small queue of young segments. Items that qualify move on to old segments, where each round costs them one
//! use. A key that returns soon after its eviction starts with as many uses as it needs to move on. Unlike in the paper
//! a use counts by the byte, as in GreedyDual-Size-Frequency: an item is kept while it has at most three mean sizes per
//! use. A young item of less than half the mean size is kept without a use. The paper needs two uses of a young item;
//! here one is enough, unless `return_rates` finds that items with a single use earn less than the old ones.

use super::insertion::InsertionPoint;
use super::objective::Objective;
use super::sampled_segment::SampledSegment;
use crate::index::FREQUENCY_EXACT;
use crate::segment::SegmentId;
use std::str::FromStr;

/// The eviction policy: which items an eviction keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    #[default]
    S3Fifo,
    Merge,
    Fifo,
    Random,
    Cte,
    Utilization,
    Lru,
    /// LRU in which a new item enters the order at a point below its head.
    LruInsertion(InsertionPoint),
    TwoQ,
    MergeSketch,
}

impl Policy {
    pub const ALL: [Self; 12] = [
        Self::S3Fifo,
        Self::Merge,
        Self::Fifo,
        Self::Random,
        Self::Cte,
        Self::Utilization,
        Self::Lru,
        Self::LruInsertion(InsertionPoint::Half),
        Self::LruInsertion(InsertionPoint::Quarter),
        Self::LruInsertion(InsertionPoint::Eighth),
        Self::TwoQ,
        Self::MergeSketch,
    ];

    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Merge => "merge",
            Self::Fifo => "fifo",
            Self::Random => "random",
            Self::Cte => "cte",
            Self::Utilization => "utilization",
            Self::S3Fifo => "s3fifo",
            Self::Lru => "lru",
            Self::LruInsertion(InsertionPoint::Half) => "lru:insertion=1/2",
            Self::LruInsertion(InsertionPoint::Quarter) => "lru:insertion=1/4",
            Self::LruInsertion(InsertionPoint::Eighth) => "lru:insertion=1/8",
            Self::TwoQ => "2q",
            Self::MergeSketch => "merge-sketch",
        }
    }

    /// The policy that an alias stands for. An alias is no name: it promises something else than the policy does.
    pub fn of_alias(name: &str) -> Option<Self> {
        name.eq_ignore_ascii_case(SKETCH_ALIAS).then_some(Self::MergeSketch)
    }

    /// Kind of its history of evicted or written keys.
    pub fn history_kind(self) -> HistoryKind {
        match self {
            Self::S3Fifo => HistoryKind::Ghosts,
            Self::TwoQ => HistoryKind::Returned,
            Self::MergeSketch => HistoryKind::Sketch,
            _ => HistoryKind::None,
        }
    }
}

/// `merge-sketch` has a frequency sketch, as TinyLFU has, but no admission by it.
const SKETCH_ALIAS: &str = "tinylfu";

/// A name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {name:?}; choose one of {}", Policy::ALL.map(Policy::name).join(", "))]
pub struct UnknownPolicy {
    name: String,
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let named = Self::ALL.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(name));
        named.or_else(|| Self::of_alias(name)).ok_or_else(|| UnknownPolicy { name: name.into() })
    }
}

/// Kind of a policy's memory of keys that are not in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryKind {
    None,
    /// Recent evictions: a returning key counts as used.
    Ghosts,
    /// Recent evictions: only a returning key moves on to the old segments.
    Returned,
    /// How often keys were written, and used before their eviction.
    Sketch,
}

impl HistoryKind {
    pub const COUNT: usize = 4;
}

/// Which items of a run are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    Nothing,
    /// The items with the highest scores, as many as fit the share of the run.
    TopScored,
    /// Items used at least once; at most seven eighths of a segment, as for `Qualified`.
    Used,
    /// Items whose key returned as a ghost; at most seven eighths of a segment.
    Returned,
    /// Items of at most `unused_bytes`, and `bytes_per_use` more for each counted use; at most seven eighths of a
    /// segment, give or take a part of an item, so that something is freed. The first use of a `young` item does not
    /// count where two uses are needed (see `return_rates`).
    Qualified {
        unused_bytes: u64,
        bytes_per_use: u64,
        young: bool,
    },
}

impl Retention {
    /// Whether survivors of one segment may fill nearly a whole one, instead of the share that a run of several leaves.
    pub fn keeps_all_that_qualify(self) -> bool {
        matches!(self, Self::Used | Self::Returned | Self::Qualified { .. })
    }
}

/// How the frequency of a kept item changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aging {
    Reset,
    Halve,
    Decrement,
    None,
}

impl Aging {
    /// The frequency of a kept item from then on.
    pub fn applied_to(self, frequency: u8) -> u8 {
        match self {
            Self::Reset => 0,
            Self::Halve => frequency / 2,
            // An item that was used often in the past must not live on that for long.
            Self::Decrement => frequency.min(FREQUENCY_EXACT).saturating_sub(1),
            Self::None => frequency,
        }
    }
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionChoice {
    /// The first segment of the run, which follows the chain.
    pub first: SegmentId,
    /// Segments in the run, at most.
    pub count: u32,
    pub retention: Retention,
    pub aging: Aging,
}

/// The share of bytes in young segments above which these are evicted.
const S3FIFO_YOUNG_SHARE: f64 = 0.15;
/// Less than the quarter of the paper, because returned keys pass through young segments, too.
const TWO_Q_YOUNG_SHARE: f64 = 0.2;

/// Mean item sizes that one use pays for, and that a young item without a use may have.
const SIZES_PER_USE: f64 = 3.0;
const SIZES_UNUSED: f64 = 0.45;

/// Chooses among `views`, which are not empty. `random` is uniform.
pub fn choose(
    policy: Policy,
    objective: Objective,
    views: &[SampledSegment],
    merge_run: u32,
    random: u32,
) -> EvictionChoice {
    let oldest = || views.iter().min_by_key(|view| view.stamp).expect("there is a segment to choose");
    let drop = |view: &SampledSegment| EvictionChoice {
        first: view.segment,
        count: 1,
        retention: Retention::Nothing,
        aging: Aging::None,
    };
    let run = |view: &SampledSegment, retention, aging| EvictionChoice {
        first: view.segment,
        count: merge_run,
        retention,
        aging,
    };
    let single = |view: &SampledSegment, retention| EvictionChoice {
        first: view.segment,
        count: 1,
        retention,
        aging: Aging::Reset,
    };
    match policy {
        Policy::Merge => run(oldest(), Retention::TopScored, Aging::Halve),
        Policy::MergeSketch => run(oldest(), Retention::TopScored, Aging::Reset),
        Policy::Lru => single(oldest(), Retention::Used),
        Policy::LruInsertion(point) => single(point.last(views), Retention::Used),
        Policy::Fifo => drop(oldest()),
        Policy::Random => drop(&views[((u64::from(random) * views.len() as u64) >> 32) as usize]),
        Policy::Cte => {
            drop(views.iter().min_by_key(|view| view.latest_expiry_seconds).expect("there is a segment to choose"))
        }
        Policy::Utilization => {
            drop(views.iter().min_by_key(|view| view.live_bytes).expect("there is a segment to choose"))
        }
        Policy::S3Fifo => qualified(by_age(views, S3FIFO_YOUNG_SHARE), mean_bytes(views), objective),
        Policy::TwoQ => {
            let view = by_age(views, TWO_Q_YOUNG_SHARE);
            single(view, if view.rounds == 0 { Retention::Returned } else { Retention::Used })
        }
    }
}

/// One segment at a time: survivors share a destination with those of the next eviction, so a longer run decides no
/// better.
fn qualified(view: &SampledSegment, mean_bytes: f64, objective: Objective) -> EvictionChoice {
    let young = view.rounds == 0;
    let (unused_bytes, bytes_per_use) = match (objective, young) {
        (Objective::Objects | Objective::Cost, true) => {
            ((SIZES_UNUSED * mean_bytes) as u64, (SIZES_PER_USE * mean_bytes) as u64)
        }
        (Objective::Objects | Objective::Cost, false) => (0, (SIZES_PER_USE * mean_bytes) as u64),
        (Objective::Bytes, _) => (0, u64::MAX),
    };
    let aging = if young { Aging::Reset } else { Aging::Decrement };
    EvictionChoice {
        first: view.segment,
        count: 1,
        retention: Retention::Qualified { unused_bytes, bytes_per_use, young },
        aging,
    }
}

/// The mean size of an object.
fn mean_bytes(views: &[SampledSegment]) -> f64 {
    let items: u64 = views.iter().map(|view| u64::from(view.live_items)).sum();
    let bytes: u64 = views.iter().map(|view| view.live_bytes).sum();
    bytes as f64 / items.max(1) as f64
}

/// The oldest young segment while young ones hold more than `share` of the bytes, else the oldest old one.
fn by_age(views: &[SampledSegment], share: f64) -> &SampledSegment {
    let total: u64 = views.iter().map(|view| view.live_bytes).sum();
    let young: u64 = views.iter().filter(|view| view.rounds == 0).map(|view| view.live_bytes).sum();
    let from_young = young as f64 > share * total as f64;
    let oldest = |young: bool| views.iter().filter(|view| (view.rounds == 0) == young).min_by_key(|view| view.stamp);
    oldest(from_young).or_else(|| oldest(!from_young)).expect("there is a segment to choose")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn view(number: u32, stamp: u64, live_bytes: u64, latest_expiry_seconds: u64, rounds: u8) -> SampledSegment {
        let segment = SegmentId::new(number);
        SampledSegment { segment, stamp, live_items: 10, live_bytes, latest_expiry_seconds, rounds }
    }

    fn first(policy: Policy, views: &[SampledSegment]) -> u32 {
        choose(policy, Objective::Objects, views, 4, u32::MAX).first.number()
    }

    #[test]
    fn policies_have_names_and_one_an_alias() {
        Policy::ALL.into_iter().for_each(|policy| assert_eq!(policy.name().parse(), Ok(policy)));
        assert_eq!("TinyLFU".parse(), Ok(Policy::MergeSketch));
        assert!("w-tinylfu".parse::<Policy>().is_err_and(|error| !error.to_string().contains(" tinylfu")));
    }

    #[test]
    fn every_policy_has_its_own_criterion() {
        let views = [view(1, 10, 500, 100, 0), view(2, 5, 900, 90, 1), view(3, 20, 100, 95, 0), view(4, 8, 700, 80, 1)];
        assert_eq!(first(Policy::Merge, &views), 2);
        assert_eq!(first(Policy::Fifo, &views), 2);
        assert_eq!(first(Policy::Lru, &views), 2);
        assert_eq!(first(Policy::MergeSketch, &views), 2);
        assert_eq!(first(Policy::Cte, &views), 4);
        assert_eq!(first(Policy::Utilization, &views), 3);
        assert_eq!(first(Policy::Random, &views), 4);
        assert_eq!(first(Policy::S3Fifo, &views), 1, "27 % young is more than 15 %");
        assert_eq!(first(Policy::TwoQ, &views), 1, "and more than a fifth");
        let fewer_young = [view(1, 10, 350, 100, 0), view(2, 5, 900, 90, 1), view(4, 8, 700, 80, 1)];
        assert_eq!(first(Policy::S3Fifo, &fewer_young), 1);
        assert_eq!(first(Policy::TwoQ, &fewer_young), 2, "18 % young is less than a fifth");
    }

    #[test]
    fn policies_of_single_objects_evict_one_segment() {
        let choose = |policy, views: &[SampledSegment]| {
            let choice = choose(policy, Objective::Objects, views, 4, 0);
            (choice.count, choice.retention, choice.aging)
        };
        let (young, old) = ([view(1, 10, 500, 100, 0)], [view(2, 5, 500, 90, 1)]);
        for views in [&young, &old] {
            assert_eq!(choose(Policy::Lru, views), (1, Retention::Used, Aging::Reset));
        }
        assert_eq!(choose(Policy::TwoQ, &young), (1, Retention::Returned, Aging::Reset), "a use while young is no use");
        assert_eq!(choose(Policy::TwoQ, &old), (1, Retention::Used, Aging::Reset));
    }

    #[test]
    fn an_object_earns_its_place_by_its_size() {
        let views = [view(1, 10, 500, 100, 0), view(2, 5, 500, 90, 1)];
        let young = choose(Policy::S3Fifo, Objective::Objects, &views, 4, 0);
        assert_eq!((young.first.number(), young.count, young.aging), (1, 1, Aging::Reset));
        assert_eq!(
            young.retention,
            Retention::Qualified { unused_bytes: 22, bytes_per_use: 150, young: true },
            "objects have 50 bytes"
        );
        let old = choose(Policy::S3Fifo, Objective::Objects, &views[1..], 4, 0);
        assert_eq!(old.retention, Retention::Qualified { unused_bytes: 0, bytes_per_use: 150, young: false });
        assert_eq!(old.aging, Aging::Decrement);
        let by_bytes = choose(Policy::S3Fifo, Objective::Bytes, &views, 4, 0).retention;
        let wanted = Retention::Qualified { unused_bytes: 0, bytes_per_use: u64::MAX, young: true };
        assert_eq!(by_bytes, wanted, "a use is enough at any size");
    }

    #[test]
    fn names_lead_back_to_policies() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        assert!("lirs".parse::<Policy>().unwrap_err().to_string().contains("s3fifo"));
    }
}
