//! The closing sentence of a comparison of the curves of several policies. It says what computed points carry: between
//! two of them a curve may have a cliff, and differences within their intervals are none.

use ebbtide_control::{Curve, Point};

/// Differences of memory under this share are no finding.
const MIN_DIFFERENCE: f64 = 0.02;
/// Miss ratios that differ by less are about the same.
const SAME: f64 = 0.01;

/// The comparison of the policies near a miss ratio that they all reach; for one policy, where more memory earns
/// little. `None` for curves that say nothing.
pub(crate) fn sentence(curves: &[(&str, &Curve)]) -> Option<String> {
    let curves: Vec<_> = curves.iter().filter(|(_, curve)| curve.points().len() > 1).collect();
    match curves.as_slice() {
        [] => None,
        [(policy, curve)] => alone(policy, curve.points()),
        several => comparison(several),
    }
}

fn alone(policy: &str, points: &[Point]) -> Option<String> {
    let (first, last) = (points.first()?, points.last()?);
    let shown = |point: &Point| percent(point.miss_ratio);
    if points.iter().all(|point| shown(point) == shown(first)) {
        let (from, to) = (size(first.memory_bytes), size(last.memory_bytes));
        return Some(format!("{policy} misses {} with each of the sizes from {from} to {to}", shown(first)));
    }
    if last.high >= first.low {
        return None;
    }
    // Nine tenths of the gain of the largest memory.
    let wanted = last.miss_ratio + (first.miss_ratio - last.miss_ratio) / 10.0;
    let point = points.iter().find(|point| point.miss_ratio <= wanted)?;
    let (misses, memory, to) = (shown(point), size(point.memory_bytes), size(last.memory_bytes));
    if point.memory_bytes == last.memory_bytes || last.miss_ratio > point.miss_ratio {
        return None;
    }
    Some(match misses == shown(last) {
        true => format!("{policy} misses {misses} with {memory}; more memory, to {to}, hardly lowers that"),
        false => {
            format!("{policy} misses {misses} with {memory}; more memory, to {to}, brings that to {}", shown(last))
        }
    })
}

fn comparison(curves: &[&(&str, &Curve)]) -> Option<String> {
    let last = |(_, curve): &&&(&str, &Curve)| curve.points().last().map(|point| point.miss_ratio);
    let first = |(_, curve): &&&(&str, &Curve)| curve.points().first().map(|point| point.miss_ratio);
    let low = curves.iter().filter_map(|one| last(&one)).fold(0.0, f64::max);
    let high = curves.iter().filter_map(|one| first(&one)).fold(1.0, f64::min);
    if high <= low {
        return None;
    }
    let wanted = (low + high) / 2.0;
    let reaching = curves.iter().filter_map(|(policy, curve)| {
        curve.points().iter().find(|point| point.miss_ratio <= wanted).map(|point| (*policy, *point))
    });
    let reaching: Vec<(&str, Point)> = reaching.collect();
    let (best, point) = *reaching.iter().min_by(|(_, one), (_, other)| {
        one.memory_bytes.cmp(&other.memory_bytes).then(one.miss_ratio.total_cmp(&other.miss_ratio))
    })?;
    // The largest memory with which a policy certainly misses no less than that.
    let behind = curves.iter().filter(|(policy, _)| *policy != best).filter_map(|(policy, curve)| {
        let short = curve.points().iter().rfind(|other| other.low >= point.high);
        short.map(|short| (*policy, short.memory_bytes))
    });
    let worst = behind.max_by_key(|(_, bytes)| *bytes);
    let saved = |bytes: u64| 1.0 - point.memory_bytes as f64 / bytes.max(1) as f64;
    if let Some((worst, bytes)) = worst.filter(|(_, bytes)| saved(*bytes) >= MIN_DIFFERENCE) {
        return Some(format!(
            "{best} misses {} with {}, {} less memory than the {} with which {worst} misses no less",
            percent(point.miss_ratio),
            size(point.memory_bytes),
            percent(saved(bytes)),
            size(bytes)
        ));
    }
    let there = |(_, curve): &&(&str, &Curve)| {
        curve.points().iter().find(|other| other.memory_bytes == point.memory_bytes).map(|other| other.miss_ratio)
    };
    let is_same = |misses: Option<f64>| misses.is_some_and(|misses| (misses - point.miss_ratio).abs() < SAME);
    let all_same = curves.iter().all(|one| is_same(there(one)));
    all_same.then(|| format!("all policies miss about {} with {}", percent(point.miss_ratio), size(point.memory_bytes)))
}

fn size(bytes: u64) -> String {
    crate::format::bytes(Some(bytes))
}

/// One place after the decimal point.
fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, f64)]) -> Curve {
        Curve::new(points.iter().map(|&(mib, misses)| Point::exact(mib << 20, misses, misses)).collect())
    }

    /// The curve of points that are known to 0.05.
    fn uncertain(points: &[(u64, f64)]) -> Curve {
        let interval = |point: &Point| Point { low: point.miss_ratio - 0.05, high: point.miss_ratio + 0.05, ..*point };
        Curve::new(curve(points).points().iter().map(interval).collect())
    }

    #[test]
    fn the_best_policy_is_named_with_saved_memory() {
        let (good, bad) = (curve(&[(10, 0.6), (30, 0.2)]), curve(&[(10, 0.6), (50, 0.2)]));
        let found = sentence(&[("lru", &bad), ("s3fifo", &good)]).unwrap();
        assert_eq!(
            found,
            "s3fifo misses 20.0 % with 30 MiB, 40.0 % less memory than the 50 MiB with which lru misses no less"
        );
        assert_eq!(sentence(&[("a", &good), ("b", &good)]).unwrap(), "all policies miss about 20.0 % with 30 MiB");
    }

    #[test]
    fn a_size_within_a_cliff_is_not_named() {
        let cliff = curve(&[(1, 1.0), (2, 1.0), (10, 0.1), (20, 0.05)]);
        assert_eq!(
            sentence(&[("a", &cliff)]).unwrap(),
            "a misses 10.0 % with 10 MiB; more memory, to 20 MiB, brings that to 5.0 %"
        );
        assert_eq!(sentence(&[("a", &curve(&[(1, 1.0), (2, 1.0), (10, 0.0)]))]), None);
    }

    #[test]
    fn differences_within_the_interval_are_none() {
        let (one, other) = (uncertain(&[(1, 0.5), (4, 0.2)]), uncertain(&[(1, 0.52), (4, 0.24)]));
        assert_eq!(sentence(&[("a", &one), ("b", &other)]), None);
        assert_eq!(sentence(&[("a", &uncertain(&[(1, 0.25), (2, 0.22), (4, 0.2)]))]), None);
    }

    #[test]
    fn equal_digits_are_no_improvement() {
        let nearly = curve(&[(1, 0.9), (19, 0.0234), (20, 0.0231)]);
        assert_eq!(
            sentence(&[("a", &nearly)]).unwrap(),
            "a misses 2.3 % with 19 MiB; more memory, to 20 MiB, hardly lowers that"
        );
        let flat = sentence(&[("a", &curve(&[(10, 0.5), (30, 0.5)]))]).unwrap();
        assert_eq!(flat, "a misses 50.0 % with each of the sizes from 10 MiB to 30 MiB");
    }

    #[test]
    fn curves_that_do_not_meet_have_no_sentence() {
        let (high, low) = (curve(&[(10, 0.9), (30, 0.8)]), curve(&[(10, 0.3), (30, 0.2)]));
        assert_eq!(sentence(&[("a", &high), ("b", &low)]), None);
        assert_eq!(sentence(&[("a", &curve(&[(10, 0.5)]))]), None);
    }
}
