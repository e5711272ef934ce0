//! The objective of evictions.
//!
//! | objective | value of a use | consequence |
//! |---|---|---|
//! | `objects` | one hit | memory goes to the uses per byte: a small item needs fewer uses than a large one |
//! | `bytes` | the bytes of the item | the uses per byte of memory times the bytes are the uses: size does not count |
//! | `cost` | the cost of the item's miss | an item of twice the cost counts as one of half the size |
//!
//! A cache in front of a slow network or an expensive origin saves bytes; one in front of a database saves queries; one
//! of results that take from a millisecond to minutes to compute saves time, which is the cost of each entry then.
//!
//! Costs have no unit: they are compared with those of the other items. So sizes divided by costs are brought to the
//! mean size of what evictions meet (`CostScale`), and policies know no costs. An old item of n times the usual cost is
//! spared in all but one of n rounds: no policy lowers its frequency then, and `s3fifo` keeps it without a use. There
//! GreedyDual-Size (Cao and Irani, USITS'97) would let its priority fall n times as slowly.

use super::scores::use_per_byte;
use crate::sync::{AtomicU64, Ordering};
use std::str::FromStr;

/// The objective of an eviction: hits, the bytes that hits serve, or the cost of the misses that they save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// The object hit ratio.
    #[default]
    Objects,
    /// The byte hit ratio.
    Bytes,
    /// The share of the cost of all lookups that hits save, by the cost of each entry.
    Cost,
}

/// The cost class of the cost 1, which entries without one have, too.
const USUAL_COST_CLASS: i32 = 16;
const COST_CLASS_MAX: i32 = 31;

/// The class of a cost, a power of two from 2^-15 to 2^15, for an annotation. Zero, negative costs and NaN have the
/// smallest.
pub fn cost_class(cost: f64) -> u8 {
    let exponent = if cost > 0.0 { cost.log2().round() } else { f64::NEG_INFINITY };
    let class = (exponent as i32).saturating_add(USUAL_COST_CLASS).clamp(1, COST_CLASS_MAX);
    // Entries without a class take no annotation.
    if class == USUAL_COST_CLASS { 0 } else { class as u8 }
}

/// The cost of a class.
fn cost_of(class: u8) -> f64 {
    let class = if class == 0 { USUAL_COST_CLASS } else { class.into() };
    f64::from(class - USUAL_COST_CLASS).exp2()
}

/// Maximum number of rounds, on average, for which an expensive item without a use stays.
const UNUSED_ROUNDS_MAX: f64 = 1024.0;

/// The weight of a run in the scale.
const SCALE_STEP: f64 = 1.0 / 16.0;

/// Factor between sizes divided by costs and the mean size.
#[derive(Debug)]
pub(crate) struct CostScale(AtomicU64);

/// The sums of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CostTotals {
    bytes: f64,
    bytes_by_cost: f64,
}

impl Default for CostScale {
    fn default() -> Self {
        Self(AtomicU64::new(1.0_f64.to_bits()))
    }
}

impl CostScale {
    /// The cost of an item as a multiple of the usual one.
    pub fn relative_cost(&self, class: u8) -> f64 {
        cost_of(class) / f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// The bytes that an item counts as, by its cost; it is added to the totals of its run.
    pub fn weigh(&self, bytes: u64, class: u8, totals: &mut CostTotals) -> u64 {
        totals.bytes += bytes as f64;
        totals.bytes_by_cost += bytes as f64 / cost_of(class);
        ((bytes as f64 / self.relative_cost(class)) as u64).max(1)
    }

    /// A run has been scored. A count of another thread at the same time may be lost: this is a mean.
    pub fn note(&self, totals: CostTotals) {
        if totals.bytes_by_cost > 0.0 {
            let scale = f64::from_bits(self.0.load(Ordering::Relaxed));
            let scale = scale + SCALE_STEP * (totals.bytes / totals.bytes_by_cost - scale);
            self.0.store(scale.to_bits(), Ordering::Relaxed);
        }
    }
}

/// The size that all items have for `Objective::Bytes`: any one gives an order by uses.
const UNIT_BYTES: u64 = 64;

/// A uniform number for a hash in a round.
pub(super) fn draw_of(hash: u64, round: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (hash ^ round.wrapping_mul(ODD)).wrapping_mul(ODD)
}

/// Whether a round costs an item nothing, for its cost as a multiple of the usual one. `draw` is uniform.
pub(super) fn is_spared(relative_cost: f64, draw: u64) -> bool {
    let paid_share = 1.0 / relative_cost.min(UNUSED_ROUNDS_MAX);
    draw as f64 > paid_share * u64::MAX as f64
}

impl Objective {
    pub const ALL: [Self; 3] = [Self::Objects, Self::Bytes, Self::Cost];

    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::Bytes => "bytes",
            Self::Cost => "cost",
        }
    }

    /// The score of an item with `frequency` uses and `bytes` bytes, by its cost if that counts.
    pub(super) fn score(self, frequency: u8, bytes: u64) -> u8 {
        match self {
            Self::Objects | Self::Cost => use_per_byte(frequency, bytes),
            Self::Bytes => use_per_byte(frequency, UNIT_BYTES),
        }
    }
}

/// A name that no objective has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no objective {name:?}; choose one of {}", Objective::ALL.map(Objective::name).join(", "))]
pub struct UnknownObjective {
    name: String,
}

impl FromStr for Objective {
    type Err = UnknownObjective;

    fn from_str(name: &str) -> Result<Self, UnknownObjective> {
        let named = Self::ALL.into_iter().find(|objective| objective.name().eq_ignore_ascii_case(name));
        named.ok_or_else(|| UnknownObjective { name: name.into() })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_objectives() {
        for objective in Objective::ALL {
            assert_eq!(objective.name().parse(), Ok(objective));
        }
        assert!("money".parse::<Objective>().unwrap_err().to_string().contains("cost"));
    }

    #[test]
    fn sizes_count_for_objects_only() {
        assert!(Objective::Objects.score(1, 100) > Objective::Objects.score(2, 10_000));
        assert!(Objective::Bytes.score(1, 100) < Objective::Bytes.score(2, 10_000));
        assert!(Objective::Bytes.score(127, 1) < u8::MAX, "all uses are told apart");
    }

    #[test]
    fn costs_have_classes() {
        assert_eq!((cost_class(1.0), cost_of(0)), (0, 1.0));
        for cost in [1.0 / 32_768.0, 0.25, 0.5, 2.0, 1024.0, 32_768.0] {
            assert_eq!(cost_of(cost_class(cost)), cost);
        }
        assert_eq!(cost_class(3.0), cost_class(4.0));
        for cost in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY, f64::MIN_POSITIVE] {
            assert_eq!(cost_class(cost), 1, "{cost}");
        }
        assert_eq!(i32::from(cost_class(f64::INFINITY)), COST_CLASS_MAX);
    }

    #[test]
    fn costs_are_compared_with_those_of_others() {
        // Costs of 2 and 512, in equal shares, or all equal: only their ratio counts.
        for (classes, expected) in [([2.0, 512.0], [199, 0]), ([8.0, 8.0], [100, 100])] {
            let scale = CostScale::default();
            let mut weighed = [0; 2];
            for _ in 0..200 {
                let mut totals = CostTotals::default();
                weighed = classes.map(|cost| scale.weigh(100, cost_class(cost), &mut totals));
                scale.note(totals);
            }
            assert!(weighed.iter().zip(expected).all(|(found, wanted)| found.abs_diff(wanted) <= 1), "{weighed:?}");
        }
    }
}
