//! One curve of three parts: models of the engine around the present memory, LRU below them and above.
//!
//! ```text
//! misses  1 |\ LRU below: its hits, and the hits that the policy earns beyond LRU at the first model, fewer below
//!           | \____
//!           |      \__first_______last    models: lines between their ratios, which may increase where the policy's do
//!           |                         \__ LRU above: its way to the misses that no memory saves, from the last model
//!         0 +---------------------------- memory
//! ```
//! Neither part of LRU increases with memory, and neither contradicts a model: less memory than that of the models is
//! promised no fewer misses than one of them has, and more memory no more misses.

use ebbtide_control::{Curve, Point};

/// A curve of LRU with the levels of models, which ascend by memory: theirs between the smallest and the largest, else
/// joined to the nearest one. `lru` has points at the memories of both, and its last point at a memory that saves all
/// misses that memory can save. Intervals are those of `lru`; models of all keys have none.
pub fn corrected(lru: &Curve, models: &[(u64, f64)], are_exact: bool) -> Curve {
    let (Some(first), Some(last)) = (models.first(), models.last()) else { return lru.clone() };
    let modelled = |memory_bytes: u64| {
        let after = models.partition_point(|(memory, _)| *memory < memory_bytes);
        let (next, before) = (models[after.min(models.len() - 1)], models[after.max(1) - 1]);
        let part = (memory_bytes.saturating_sub(before.0)) as f64 / next.0.saturating_sub(before.0).max(1) as f64;
        before.1 + part.min(1.0) * (next.1 - before.1)
    };
    let of_lru = |memory_bytes: u64| lru.miss_ratio_at(memory_bytes).unwrap_or(1.0);
    let floor = lru.points().last().map_or(0.0, |point| point.miss_ratio);
    let max = models.iter().map(|(_, miss_ratio)| *miss_ratio).fold(0.0, f64::max);
    let min = models.iter().map(|(_, miss_ratio)| *miss_ratio).fold(1.0, f64::min);
    let at = |memory_bytes: u64| match memory_bytes {
        small if small < first.0 => {
            at_less_memory(of_lru(small), of_lru(first.0), first.1, small as f64 / first.0 as f64).max(max)
        }
        large if large > last.0 => {
            at_more_memory(of_lru(large), of_lru(last.0), last.1, floor, last.0 as f64 / large as f64).min(min)
        }
        within => modelled(within),
    };
    let point = |point: &Point| {
        let moved = moved(point, at(point.memory_bytes));
        match are_exact && (first.0..=last.0).contains(&point.memory_bytes) {
            true => Point { low: moved.miss_ratio, high: moved.miss_ratio, ..moved },
            false => moved,
        }
    };
    Curve::new(lru.points().iter().map(point).collect())
}

/// A curve at the level that was measured at `memory_bytes`, where it has a point. More memory is promised the hits of
/// the curve and no others: misses that the curve does not know of, as those of a flood, may be saved by none.
pub(crate) fn at_level(curve: &Curve, memory_bytes: u64, measured: f64) -> Curve {
    let level = curve.miss_ratio_at(memory_bytes).unwrap_or(measured);
    let at = |point: &Point| match point.memory_bytes {
        small if small < memory_bytes => {
            // A smaller size with fewer misses keeps its hits: a curve may increase with memory.
            let increase = (level - point.miss_ratio).max(0.0);
            at_less_memory(point.miss_ratio + increase, level, measured, small as f64 / memory_bytes as f64) - increase
        }
        _ => point.miss_ratio + measured - level,
    };
    Curve::new(curve.points().iter().map(|point| moved(point, at(point))).collect())
}

/// The miss ratio at less memory than that of a model, `share` of it. `lru` and `lru_there`: those of LRU here and
/// there. The hits that the policy has beyond LRU are fewer here, with the root of LRU's hits, and at least in
/// proportion to the memory: a loop has no hits under LRU, and a policy that withstands it holds a part of it.
fn at_less_memory(lru: f64, lru_there: f64, model: f64, share: f64) -> f64 {
    let (hits, hits_there, model_hits) = (1.0 - lru, 1.0 - lru_there, 1.0 - model);
    let part = if hits_there > 0.0 { hits / hits_there } else { 0.0 };
    let beyond = model_hits - hits_there;
    1.0 - if beyond > 0.0 { hits + beyond * part.sqrt().max(share) } else { model_hits * part }
}

/// The miss ratio at more memory than that of a model, which is `share` of it. `floor`: misses that no memory saves.
/// Of the others the same part remains as under LRU. Where LRU misses less than the model, the difference gets less
/// with memory.
fn at_more_memory(lru: f64, lru_there: f64, model: f64, floor: f64, share: f64) -> f64 {
    if model > lru_there {
        return lru + (model - lru_there) * share;
    }
    let floor_of_model = floor.min(model);
    let part = if lru_there > floor { (lru - floor) / (lru_there - floor) } else { 0.0 };
    floor_of_model + part * (model - floor_of_model)
}

/// The point at another miss ratio, with its interval.
fn moved(point: &Point, miss_ratio: f64) -> Point {
    let shift = miss_ratio - point.miss_ratio;
    let [miss_ratio, low, high] =
        [point.miss_ratio, point.low, point.high].map(|ratio| (ratio + shift).clamp(0.0, 1.0));
    Point { miss_ratio, low, high, ..*point }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn curve(points: &[(u64, f64)]) -> Curve {
        let point = |&(mib, miss_ratio): &(u64, f64)| Point {
            low: miss_ratio - 0.01,
            high: miss_ratio + 0.01,
            ..Point::exact(mib * MIB, miss_ratio, miss_ratio)
        };
        Curve::new(points.iter().map(point).collect())
    }

    fn ratios(curve: &Curve) -> Vec<f64> {
        curve.points().iter().map(|point| (point.miss_ratio * 1e4).round() / 1e4).collect()
    }

    #[test]
    fn a_curve_gets_the_level_of_its_models() {
        let lru = curve(&[(1, 0.91), (2, 0.84), (3, 0.7), (4, 0.6), (8, 0.3), (16, 0.2)]);
        let joined = corrected(&lru, &[(2 * MIB, 0.54), (4 * MIB, 0.4)], false);
        // 0.09 + 0.3 * sqrt(9 / 16) hits at 1 MiB; a quarter of the misses that memory can save remains at 8 MiB.
        assert_eq!(ratios(&joined), [0.685, 0.54, 0.47, 0.4, 0.25, 0.2]);
        assert!((joined.points()[1].high - 0.55).abs() < 1e-9);
        let exact = corrected(&lru, &[(2 * MIB, 0.54), (4 * MIB, 0.4)], true);
        assert!(exact.points()[1].high == 0.54 && exact.points()[4].high > 0.25, "{exact:?}");
        assert_eq!(corrected(&lru, &[], false), lru);
    }

    #[test]
    fn part_of_a_loop_earns_proportional_hits() {
        let lru = curve(&[(1, 1.0), (2, 1.0), (4, 1.0), (8, 0.1), (16, 0.1)]);
        let joined = corrected(&lru, &[(2 * MIB, 0.6), (4 * MIB, 0.4)], false);
        assert_eq!(ratios(&joined), [0.8, 0.6, 0.4, 0.1, 0.1]);
        assert_eq!(ratios(&at_level(&lru, 4 * MIB, 0.6)), [0.9, 0.8, 0.6, 0.0, 0.0]);
    }

    #[test]
    fn a_worse_policy_approaches_lru_with_memory() {
        let lru = curve(&[(1, 0.8), (2, 0.6), (4, 0.3), (8, 0.2), (16, 0.1)]);
        let joined = corrected(&lru, &[(2 * MIB, 0.7), (4 * MIB, 0.5)], false);
        assert_eq!(ratios(&joined), [0.85, 0.7, 0.5, 0.3, 0.15]);
    }

    #[test]
    fn memory_below_the_models_adds_no_hits() {
        let lru = curve(&[(1, 0.9), (2, 0.89), (3, 0.88), (4, 0.87), (8, 0.86)]);
        // A policy may have more misses with more memory.
        let joined = corrected(&lru, &[(2 * MIB, 0.62), (3 * MIB, 0.69), (4 * MIB, 0.65)], false);
        assert_eq!(ratios(&joined), [0.69, 0.62, 0.69, 0.65, 0.62]);
    }

    #[test]
    fn misses_beyond_the_curve_are_not_saved() {
        let known = curve(&[(2, 0.6), (4, 0.2), (8, 0.1)]);
        assert_eq!(ratios(&at_level(&known, 4 * MIB, 0.6)), [0.8, 0.6, 0.5]);
        let increasing = curve(&[(2, 0.1), (4, 0.2), (8, 0.1)]);
        assert_eq!(ratios(&at_level(&increasing, 4 * MIB, 0.4)), [0.3, 0.4, 0.3]);
    }
}
