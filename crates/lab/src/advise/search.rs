//! The cheapest cache for a hit ratio, and the best one for a budget.

use ebbtide::flash::MIN_SINGLE_PATH_BYTES;
use serde::Serialize;

use super::flags::{MIN_DRAM, MIN_DRAM_WITH_FLASH, dram_beside_flash};
use super::open_questions::{self, OpenQuestion};
use super::plan::{GIB, Plan};
use super::planner::Planner;

/// Sizes of DRAM that are tried with flash, and shares of a budget.
const STEPS: usize = 64;
/// The smallest part of the DRAM that would do alone.
const SMALLEST_SHARE: f64 = 1.0 / 128.0;
/// Halvings of the search for the flash that reaches a hit ratio.
const HALVINGS: usize = 48;
/// A mixture that saves less than this part of the price is not worth a second kind of memory.
const WORTHWHILE: f64 = 0.1;

/// The least flash of a cache.
pub(super) const MIN_FLASH: f64 = MIN_SINGLE_PATH_BYTES as f64;

/// Caches that reach a hit ratio.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Wanted {
    pub hit_ratio: f64,
    /// Largest possible hit ratio: each object's first get misses, unless the server of a capture had the object.
    pub reachable: f64,
    /// Why a longer capture is needed for the number. Flash is not judged then.
    pub longer_capture: Option<OpenQuestion>,
    pub dram: Option<Plan>,
    pub hybrid: Option<Plan>,
    pub flash_pays: bool,
    /// Where flash does not pay: the cheapest mixture with which it would, if hardware carried it.
    pub beyond_limit: Option<Plan>,
}

/// The best caches for some money.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Budget {
    pub money: f64,
    /// None if the money buys less than the least memory of a cache.
    pub dram: Option<Plan>,
    pub hybrid: Option<Plan>,
    pub flash_pays: bool,
    /// Where flash does not pay: the best mixture with which it would, if hardware carried it.
    pub beyond_limit: Option<Plan>,
    /// A longer capture is needed for its hits. Flash is not judged then.
    pub longer_capture: bool,
}

/// Whether hardware carries it. A network that DRAM alone would exceed as well is no reason against flash.
fn is_possible(plan: &Plan, dram: Option<&Plan>) -> bool {
    plan.device_used <= 1.0 && (plan.network_used <= 1.0 || dram.is_some_and(|dram| dram.network_used > 1.0))
}

/// Whether the flash is a part of the drive that was named.
fn fits_drive(planner: &Planner<'_>, plan: &Plan) -> bool {
    planner.hardware.flash_drive_bytes.is_none_or(|drive_bytes| plan.flash_bytes <= drive_bytes)
}

/// Bytes of DRAM for this money.
pub(super) fn dram_bytes(money: f64, dram_price: f64) -> f64 {
    money / dram_price * GIB
}

pub(super) fn for_hit_ratio(planner: &Planner<'_>, hit_ratio: f64) -> Wanted {
    let largest = planner.load.engine.points().last().map_or(0.0, |point| point.memory_bytes as f64);
    let dram = planner.load.engine.memory_for(1.0 - hit_ratio);
    let dram = dram.map(|bytes| planner.plan((bytes as f64).max(MIN_DRAM), 0.0).with_flags());
    let all = planner.plan(largest, planner.demand.footprint_bytes * 2.0);
    let reachable = all.hit_ratio.max(planner.plan(largest, 0.0).hit_ratio);
    let longer_capture =
        open_questions::about_hit_ratio(planner.load, hit_ratio, dram.map(|plan| plan.dram_bytes), reachable);
    if let Some(open) = longer_capture {
        let dram = dram.filter(|_| open == OpenQuestion::LessMayDo);
        let (hybrid, flash_pays, beyond_limit) = (None, false, None);
        return Wanted { hit_ratio, reachable, longer_capture, dram, hybrid, flash_pays, beyond_limit };
    }
    let alone = dram.map_or(largest, |plan| plan.dram_bytes);
    let hybrids = (0..STEPS).filter_map(|step| {
        let share = SMALLEST_SHARE.powf(1.0 - step as f64 / STEPS as f64);
        smallest_flash(planner, (alone * share).max(MIN_DRAM_WITH_FLASH), hit_ratio)
    });
    let hybrids = hybrids.filter(|plan| fits_drive(planner, plan));
    let (possible, beyond): (Vec<_>, Vec<_>) = hybrids.partition(|plan| is_possible(plan, dram.as_ref()));
    let cheapest = |plans: Vec<Plan>| plans.into_iter().min_by(|one, other| one.price.total_cmp(&other.price));
    let (hybrid, beyond) = (cheapest(possible), cheapest(beyond));
    let pays = |plan: &Plan| dram.is_none_or(|dram| plan.price < dram.price * (1.0 - WORTHWHILE));
    let flash_pays = hybrid.as_ref().is_some_and(pays);
    Wanted {
        hit_ratio,
        reachable,
        longer_capture,
        dram,
        hybrid: hybrid.map(Plan::with_flags),
        flash_pays,
        beyond_limit: beyond.filter(|plan| !flash_pays && pays(plan)),
    }
}

/// With this DRAM, or more if flash needs it, the plan with the least flash that reaches the hit ratio and that a cache
/// can have.
fn smallest_flash(planner: &Planner<'_>, dram_bytes: f64, hit_ratio: f64) -> Option<Plan> {
    let (mut too_little, mut enough) = (0.0, (planner.demand.footprint_bytes * 2.0).max(MIN_FLASH));
    if planner.plan(dram_bytes, enough).hit_ratio < hit_ratio {
        return None;
    }
    for _ in 0..HALVINGS {
        let middle = (too_little + enough) / 2.0;
        match planner.plan(dram_bytes, middle).hit_ratio < hit_ratio {
            true => too_little = middle,
            false => enough = middle,
        }
    }
    let flash_bytes = enough.max(MIN_FLASH);
    Some(planner.plan(dram_beside_flash(dram_bytes, flash_bytes)?, flash_bytes))
}

pub(super) fn for_budget(planner: &Planner<'_>, money: f64) -> Budget {
    let of = |dram_share: f64| {
        let dram = dram_bytes(money * dram_share, planner.hardware.dram_price);
        let flash = money * (1.0 - dram_share) / planner.hardware.flash_price * GIB;
        planner.plan(dram, flash)
    };
    let dram = Some(of(1.0)).filter(|plan| plan.dram_bytes >= MIN_DRAM);
    if dram.is_some_and(|plan| open_questions::is_open(plan.hit_ratio, plan.max_hit_ratio)) {
        let (dram, hybrid, beyond_limit) = (dram.map(Plan::with_flags_below), None, None);
        return Budget { money, dram, hybrid, flash_pays: false, beyond_limit, longer_capture: true };
    }
    let can_be_built = |plan: &Plan| {
        let needed = dram_beside_flash(plan.dram_bytes, plan.flash_bytes);
        plan.flash_bytes >= MIN_FLASH && needed.is_some_and(|bytes| bytes <= plan.dram_bytes.ceil())
    };
    let hybrids = (1..STEPS).map(|step| of(step as f64 / STEPS as f64)).filter(can_be_built);
    let hybrids = hybrids.filter(|plan| fits_drive(planner, plan));
    let (possible, beyond): (Vec<_>, Vec<_>) = hybrids.partition(|plan| is_possible(plan, dram.as_ref()));
    let best = |plans: Vec<Plan>| plans.into_iter().max_by(|one, other| one.hit_ratio.total_cmp(&other.hit_ratio));
    let (hybrid, beyond) = (best(possible), best(beyond));
    let misses = 1.0 - dram.map_or(0.0, |plan| plan.hit_ratio);
    let pays = |plan: &Plan| 1.0 - plan.hit_ratio < misses * (1.0 - WORTHWHILE);
    let flash_pays = hybrid.as_ref().is_some_and(pays);
    let (dram, hybrid) = (dram.map(Plan::with_flags_below), hybrid.map(Plan::with_flags_below));
    let beyond_limit = beyond.filter(|plan| !flash_pays && pays(plan));
    Budget { money, dram, hybrid, flash_pays, beyond_limit, longer_capture: false }
}
