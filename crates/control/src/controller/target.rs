//! Target hit ratios: a pool with a target gets the memory that its curve predicts for the hit ratio, before the others
//! share the rest.
//!
//! A pool whose hit ratio is in a band from the target upwards keeps its budget, so that noise moves nothing. A target
//! is out of reach if it takes more memory than the other pools' minimums leave. Then the pool takes part in the
//! division like any other one, and its report has the memory that the target would take.

use std::fmt;

use super::decision::size;
use super::situation::PoolReading;

/// Hit ratio above the target at which a pool keeps its budget. A budget that changes aims at half of it.
const BAND: f64 = 0.01;

/// The target of a pool, and the memory that it needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub pool: String,
    pub hit_ratio: f64,
    pub state: TargetState,
}

/// Whether a target can be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetState {
    /// The pool was sized by hand, or too few of its accesses were sampled.
    NotPursued,
    /// The pool has this budget, or gets it.
    Pursued { bytes: u64 },
    /// The target takes more than the maximum of the pool, or than other pools leave.
    TooLittle { needed_bytes: u64, available_bytes: u64 },
    /// No memory on the curve reaches it: the best hit ratio of the curve, and its memory.
    OutOfReach { hit_ratio: f64, bytes: u64 },
}

/// The measured hit ratio of a pool, with half of its 95 % interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub hit_ratio: f64,
    pub error: f64,
}

/// The targets of the pools that have one. `measured` is that of each pool, where there is one.
pub(super) fn targets(pools: &[PoolReading], total_bytes: u64, measured: &[Option<Measured>]) -> Vec<Option<Target>> {
    let wish = |(pool, measured): (&PoolReading, &Option<Measured>)| {
        pool.target_hit_ratio.map(|hit_ratio| Wish::of(pool, hit_ratio, *measured))
    };
    let wishes: Vec<Option<Wish>> = pools.iter().zip(measured).map(wish).collect();
    let mut targets: Vec<Option<Target>> = vec![None; pools.len()];
    let mut left_bytes = total_bytes.saturating_sub(pools.iter().map(smallest_bytes).sum());
    // The cheapest first: as many targets as possible are reached.
    let mut order: Vec<usize> = (0..pools.len()).collect();
    order.sort_by_key(|&at| wishes[at].as_ref().map_or(0, Wish::bytes));
    for at in order {
        let (pool, Some(wish)) = (&pools[at], &wishes[at]) else { continue };
        let state = match *wish {
            Wish::Unknown => TargetState::NotPursued,
            Wish::OutOfReach { hit_ratio, bytes } => TargetState::OutOfReach { hit_ratio, bytes },
            Wish::Bytes(bytes) => {
                let available_bytes = (smallest_bytes(pool) + left_bytes).min(pool.max_bytes);
                if bytes > available_bytes {
                    TargetState::TooLittle { needed_bytes: bytes, available_bytes }
                } else {
                    left_bytes -= bytes.saturating_sub(smallest_bytes(pool));
                    TargetState::Pursued { bytes: bytes.max(smallest_bytes(pool)) }
                }
            }
        };
        let hit_ratio = pool.target_hit_ratio.unwrap_or_default();
        targets[at] = Some(Target { pool: pool.name.clone(), hit_ratio, state });
    }
    targets
}

/// The smallest budget that a division may give: a pool that was sized by hand keeps its budget.
fn smallest_bytes(pool: &PoolReading) -> u64 {
    if pool.is_fixed { pool.memory_bytes } else { pool.min_bytes.min(pool.memory_bytes) }
}

/// The budget of a target, whatever others need.
enum Wish {
    Unknown,
    Bytes(u64),
    OutOfReach { hit_ratio: f64, bytes: u64 },
}

impl Wish {
    fn of(pool: &PoolReading, target: f64, measured: Option<Measured>) -> Self {
        let (curve, has) = (&pool.curve, pool.memory_bytes);
        let Some(on_curve) = curve.miss_ratio_at(has).filter(|_| !pool.is_fixed) else { return Self::Unknown };
        // The curve is shifted by the certain part of its difference from the measurement.
        let shift = measured.map_or(0.0, |measured| {
            let differs = measured.hit_ratio - (1.0 - on_curve);
            differs.signum() * (differs.abs() - measured.error).max(0.0)
        });
        let present = 1.0 - on_curve + shift;
        if (target..=target + BAND).contains(&present) {
            return Self::Bytes(has);
        }
        let memory_for = |hit_ratio: f64| curve.memory_for(1.0 - hit_ratio + shift);
        match (memory_for((target + BAND / 2.0).min(1.0)).or_else(|| memory_for(target)), curve.points().last()) {
            (Some(bytes), _) => Self::Bytes(bytes),
            (None, Some(last)) => {
                Self::OutOfReach { hit_ratio: 1.0 - last.miss_ratio + shift, bytes: last.memory_bytes }
            }
            (None, None) => Self::Unknown,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Unknown | Self::OutOfReach { .. } => 0,
            Self::Bytes(bytes) => *bytes,
        }
    }
}

impl Target {
    /// The budget that the pool shall have.
    pub(super) fn budget_bytes(&self) -> Option<u64> {
        match self.state {
            TargetState::Pursued { bytes } => Some(bytes),
            _ => None,
        }
    }

    /// Whether the pool has, or gets, the memory that the target takes.
    pub fn is_pursued(&self) -> bool {
        self.budget_bytes().is_some()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |ratio: f64| format!("{} %", (ratio * 1e4).round() / 100.0);
        let (pool, wanted) = (&self.pool, percent(self.hit_ratio));
        match self.state {
            TargetState::NotPursued => {
                write!(f, "{pool}: what {wanted} of hits take is not known yet, or the pool was sized by hand")
            }
            TargetState::Pursued { bytes } => write!(f, "{pool}: {wanted} of hits take {}", size(bytes)),
            TargetState::TooLittle { needed_bytes, available_bytes } => {
                let (needed, available) = (size(needed_bytes), size(available_bytes));
                write!(f, "{pool}: {wanted} of hits would take {needed}, and it can have {available}")
            }
            TargetState::OutOfReach { hit_ratio, bytes } => {
                let (best, bytes) = (percent(hit_ratio.max(0.0)), size(bytes));
                write!(f, "{pool}: {wanted} of hits are out of reach, {bytes} would have {best}")
            }
        }
    }
}
