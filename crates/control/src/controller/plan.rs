//! The best division by the curves, and one step towards it.

use super::decision::{GainUnit, KeepReason, Move, PoolInCliff};
use super::situation::{ControllerOptions, PoolReading, Situation};
use super::target::Target;
use crate::division::{Division, DivisionError, Tenant, divide};

/// Steps in which a memory is divided: finer ones cost time and gain nothing.
const DIVISION_STEPS: u64 = 512;
/// 97.5 % of a normal distribution lie below its mean plus this many standard deviations.
const NORMAL_975: f64 = 1.96;

/// The next step of the controller.
pub(super) enum Plan {
    Keep(KeepReason),
    /// `serves_target`: towards the budget of a target hit ratio, whatever that costs other pools.
    Move {
        moves: Vec<Move>,
        bytes: Vec<u64>,
        serves_target: bool,
    },
}

/// Plans moves of at most `step_bytes`: first those for target hit ratios, and without any those that gain hits. `may`
/// tells whether a pool may grow, and shrink, to gain hits.
pub(super) fn plan(
    situation: &Situation<'_>,
    options: &ControllerOptions,
    step_bytes: u64,
    targets: &[Option<Target>],
    may: impl Fn(usize) -> (bool, bool),
) -> Result<Plan, DivisionError> {
    let pools = situation.pools;
    let budget = |at: usize| targets.get(at).and_then(Option::as_ref).and_then(Target::budget_bytes);
    let is_off =
        |at: usize| budget(at).is_some_and(|bytes| bytes.abs_diff(pools[at].memory_bytes) >= options.min_move_bytes);
    let step_of_division = (situation.total_bytes / DIVISION_STEPS).max(1);
    if (0..pools.len()).any(is_off) {
        let tenants: Vec<Tenant> = (0..pools.len()).map(|at| tenant(&pools[at], budget(at), (true, true))).collect();
        let division = divide(&tenants, situation.total_bytes, step_of_division)?;
        let moves = moves(situation, &division.bytes, options.min_move_bytes, step_bytes, Some(&is_off));
        if !moves.is_empty() {
            let bytes = budgets_after(pools, &moves);
            return Ok(Plan::Move { moves, bytes, serves_target: true });
        }
    }
    let stays = |at: usize| budget(at).map(|_| pools[at].memory_bytes);
    let tenants: Vec<Tenant> = (0..pools.len()).map(|at| tenant(&pools[at], stays(at), may(at))).collect();
    let division = divide(&tenants, situation.total_bytes, step_of_division)?;
    let targets = &division.bytes;
    let present: Vec<u64> = pools.iter().map(|pool| pool.memory_bytes).collect();
    let gain: f64 = (0..pools.len()).map(|at| change(&pools[at], present[at], targets[at])).sum();
    let avoidable: f64 = pools.iter().map(|pool| change(pool, pool.memory_bytes, situation.total_bytes)).sum();
    let uncertainty = (0..pools.len()).map(|at| uncertainty(&pools[at], targets[at]).powi(2)).sum::<f64>().sqrt();
    let wanted = avoidable.max(0.0) * options.min_gain;
    if pools.iter().all(|pool| pool.curve.points().is_empty()) {
        return Ok(Plan::Keep(KeepReason::NothingSeen));
    }
    let (in_cliff, unit) = (in_cliff(pools, &division), situation.unit());
    if gain <= wanted {
        return Ok(Plan::Keep(KeepReason::LittleGain { gain: gain.max(0.0), wanted, unit, in_cliff }));
    }
    if gain <= uncertainty {
        return Ok(Plan::Keep(KeepReason::Uncertain { gain, uncertainty, unit, in_cliff }));
    }
    let moves = moves(situation, targets, options.min_move_bytes, step_bytes, None);
    if moves.is_empty() {
        return Ok(Plan::Keep(KeepReason::LittleGain { gain, wanted, unit, in_cliff }));
    }
    let bytes = budgets_after(pools, &moves);
    Ok(Plan::Move { moves, bytes, serves_target: false })
}

fn budgets_after(pools: &[PoolReading], moves: &[Move]) -> Vec<u64> {
    let mut bytes: Vec<u64> = pools.iter().map(|pool| pool.memory_bytes).collect();
    let at = |name: &str| pools.iter().position(|pool| pool.name == name);
    for step in moves {
        step.from.as_deref().and_then(at).into_iter().for_each(|from| bytes[from] -= step.bytes);
        at(&step.to).into_iter().for_each(|to| bytes[to] += step.bytes);
    }
    bytes
}

/// A pool as a tenant of the division, with the budget of its target, if that is pursued.
fn tenant(pool: &PoolReading, budget_bytes: Option<u64>, (may_grow, may_shrink): (bool, bool)) -> Tenant {
    // Without a curve the value of memory is unknown, unless there are no gets: then it is zero.
    let stays = pool.is_fixed || pool.curve.points().is_empty() && pool.gets_per_second > 0.0;
    let has = pool.memory_bytes;
    // A budget outside its bounds is the division's to correct, not the controller's.
    let (min_bytes, max_bytes) = (pool.min_bytes.min(has), pool.max_bytes.max(has));
    let floor_bytes = if stays || !may_shrink { has } else { min_bytes };
    let greatest = if stays || !may_grow { has } else { max_bytes };
    Tenant {
        curve: pool.curve.clone(),
        gets: pool.gets_per_second,
        value: pool.value(),
        min_bytes: budget_bytes.unwrap_or(floor_bytes),
        max_bytes: budget_bytes.unwrap_or(greatest),
    }
}

/// Refuses bounds that contradict each other.
pub(super) fn check_bounds(pools: &[PoolReading]) -> Result<(), DivisionError> {
    let Some(tenant) = pools.iter().position(|pool| pool.min_bytes > pool.max_bytes) else { return Ok(()) };
    let PoolReading { min_bytes, max_bytes, .. } = pools[tenant];
    Err(DivisionError::Bounds { tenant, min_bytes, max_bytes })
}

/// Value a second that another budget gains; negative where it loses.
fn change(pool: &PoolReading, from_bytes: u64, to_bytes: u64) -> f64 {
    let ratio = |bytes| pool.curve.miss_ratio_at(bytes).unwrap_or(1.0);
    pool.gets_per_second * pool.value() * (ratio(from_bytes) - ratio(to_bytes))
}

/// Half of the 95 % interval of [`change`] to a budget: the count of gets between both sizes is a sample, and so are
/// the keys of the profile.
fn uncertainty(pool: &PoolReading, to_bytes: u64) -> f64 {
    let between = |part: fn(&crate::Point) -> f64| {
        let points = pool.curve.points().iter().map(|point| crate::Point { miss_ratio: part(point), ..*point });
        let curve = crate::Curve::new(points.collect());
        let ratio = |bytes| curve.miss_ratio_at(bytes).unwrap_or(1.0);
        ratio(pool.memory_bytes) - ratio(to_bytes)
    };
    if to_bytes == pool.memory_bytes || pool.curve.points().is_empty() {
        return 0.0;
    }
    let [middle, low, high] =
        [between(|point| point.miss_ratio), between(|point| point.low), between(|point| point.high)];
    let of_keys = (low - middle).abs().max((high - middle).abs());
    let of_gets = NORMAL_975 * (middle.abs().max(1.0 / pool.sampled_gets.max(1.0)) / pool.sampled_gets.max(1.0)).sqrt();
    pool.gets_per_second * pool.value() * (of_keys + of_gets)
}

/// A pool that is away from its target.
struct Side {
    pool: Option<usize>,
    bytes: u64,
    /// Value a second of each byte, over the distance to the target.
    per_byte: f64,
    /// Whether it has another budget than its target hit ratio takes.
    is_off: bool,
}

/// Pairs the givers that lose least with the receivers that gain most. With `is_off` only pairs with such a pool.
fn moves(
    situation: &Situation<'_>,
    targets: &[u64],
    min_bytes: u64,
    step_bytes: u64,
    is_off: Option<&dyn Fn(usize) -> bool>,
) -> Vec<Move> {
    let pools = situation.pools;
    let used: u64 = pools.iter().map(|pool| pool.memory_bytes).sum();
    let side = |at: usize| {
        let (has, target) = (pools[at].memory_bytes, targets[at]);
        let bytes = has.abs_diff(target);
        let per_byte = change(&pools[at], has, target).abs() / bytes.max(1) as f64;
        Side { pool: Some(at), bytes, per_byte, is_off: is_off.is_some_and(|is_off| is_off(at)) }
    };
    let sides = |is_one: fn(u64, u64) -> bool| {
        (0..pools.len()).filter(move |&at| is_one(targets[at], pools[at].memory_bytes)).map(side)
    };
    let unused = situation.total_bytes.saturating_sub(used);
    let unused = (unused > 0).then_some(Side { pool: None, bytes: unused, per_byte: 0.0, is_off: false });
    let mut givers: Vec<Side> = unused.into_iter().chain(sides(|target, has| target < has)).collect();
    let mut receivers: Vec<Side> = sides(|target, has| target > has).collect();
    givers.sort_by(|one, other| one.is_off.cmp(&other.is_off).then(other.per_byte.total_cmp(&one.per_byte)));
    receivers.sort_by(|one, other| one.is_off.cmp(&other.is_off).then(one.per_byte.total_cmp(&other.per_byte)));
    for sides in [&mut givers, &mut receivers] {
        sides.retain(|side| side.bytes >= min_bytes);
    }
    let (mut moves, mut left) = (Vec::new(), step_bytes.max(min_bytes));
    // Each round ends with a giver, a receiver or the step used up.
    while left >= min_bytes
        && let (Some(giver), Some(receiver)) = (givers.last_mut(), receivers.last_mut())
        && (if is_off.is_some() { giver.is_off || receiver.is_off } else { receiver.per_byte > giver.per_byte })
    {
        let bytes = giver.bytes.min(receiver.bytes).min(left);
        let hits = |side: &Side| side.pool.map_or(0.0, |at| hits(&pools[at], side.per_byte * bytes as f64));
        let bytes_of = |side: &Side| match (situation.unit(), side.pool) {
            (GainUnit::Hits, _) => None,
            (GainUnit::Bytes, pool) => Some(hits(side) * pool.and_then(|at| pools[at].bytes_of_hit).unwrap_or(0.0)),
        };
        let name = |side: &Side| side.pool.map(|at| pools[at].name.clone());
        moves.push(Move {
            from: name(giver),
            to: name(receiver).unwrap_or_default(),
            bytes,
            gained_hits_per_second: hits(receiver),
            lost_hits_per_second: hits(giver),
            gained_bytes_per_second: bytes_of(receiver),
            lost_bytes_per_second: bytes_of(giver),
            cliff_to_bytes: receiver.pool.and_then(|at| cliff_end(&pools[at], targets[at])),
        });
        left -= bytes;
        for (side, sides) in [(giver.bytes - bytes, &mut givers), (receiver.bytes - bytes, &mut receivers)] {
            match (side < min_bytes, sides.last_mut()) {
                (false, Some(last)) => last.bytes = side,
                _ => _ = sides.pop(),
            }
        }
    }
    moves
}

/// The pools that a division leaves inside a cliff of their curve.
fn in_cliff(pools: &[PoolReading], division: &Division) -> Vec<PoolInCliff> {
    let found = division.in_cliff.iter().filter_map(|&at| {
        let to_bytes = cliff_end(&pools[at], division.bytes[at])?;
        Some(PoolInCliff { pool: pools[at].name.clone(), to_bytes })
    });
    found.collect()
}

/// Where the cliff ends inside which this budget of a pool is.
fn cliff_end(pool: &PoolReading, bytes: u64) -> Option<u64> {
    let cliffs = pool.curve.cliffs();
    cliffs.iter().find(|cliff| cliff.from_bytes < bytes && bytes < cliff.to_bytes).map(|cliff| cliff.to_bytes)
}

fn hits(pool: &PoolReading, value: f64) -> f64 {
    if pool.value() > 0.0 { value / pool.value() } else { 0.0 }
}
