//! The closing sentence of a comparison of the curves of several policies.

use ebbtide_control::Curve;

/// Differences of memory under this share are no finding.
const MIN_DIFFERENCE: f64 = 0.02;

/// The comparison of the policies at a miss ratio that they all reach; for one policy, where more memory earns little.
/// `None` for curves that say nothing.
pub(crate) fn sentence(curves: &[(&str, &Curve)]) -> Option<String> {
    let curves: Vec<_> = curves.iter().filter(|(_, curve)| curve.points().len() > 1).collect();
    match curves.as_slice() {
        [] => None,
        [(policy, curve)] => alone(policy, curve),
        several => comparison(several),
    }
}

fn alone(policy: &str, curve: &Curve) -> Option<String> {
    let (first, last) = (curve.points().first()?, curve.points().last()?);
    // Nine tenths of the gain of the largest memory.
    let wanted = last.miss_ratio + (first.miss_ratio - last.miss_ratio) / 10.0;
    let memory = size(curve.memory_for(wanted)?);
    let misses = percent(wanted);
    if percent(first.miss_ratio) == percent(last.miss_ratio) {
        return Some(format!("{policy} misses {misses} with any memory from {} on", size(first.memory_bytes)));
    }
    Some(format!(
        "{policy} misses {misses} with {memory}; more memory, to {}, brings that to {}",
        size(last.memory_bytes),
        percent(last.miss_ratio)
    ))
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
    let needs = curves.iter().filter_map(|(policy, curve)| Some((*policy, curve.memory_for(wanted)?)));
    let needs: Vec<(&str, u64)> = needs.collect();
    let (best, min_bytes) = *needs.iter().min_by_key(|need| need.1)?;
    let (worst, max_bytes) = *needs.iter().max_by_key(|need| need.1)?;
    let saved = 1.0 - min_bytes as f64 / max_bytes.max(1) as f64;
    if saved < MIN_DIFFERENCE {
        return Some(format!("all policies need about {} for {} misses", size(min_bytes), percent(wanted)));
    }
    Some(format!(
        "{best} needs {} less memory than {worst} for {} misses: {} instead of {}",
        percent(saved),
        percent(wanted),
        size(min_bytes),
        size(max_bytes)
    ))
}

fn size(bytes: u64) -> String {
    crate::format::bytes(Some(bytes))
}

/// Three digits at most.
fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent >= 10.0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

#[cfg(test)]
mod tests {
    use ebbtide_control::Point;

    use super::*;

    fn curve(points: &[(u64, f64)]) -> Curve {
        Curve::new(points.iter().map(|&(mib, misses)| Point::exact(mib << 20, misses, misses)).collect())
    }

    #[test]
    fn the_best_policy_is_named_with_saved_memory() {
        let (good, bad) = (curve(&[(10, 0.6), (30, 0.2)]), curve(&[(10, 0.6), (50, 0.2)]));
        let found = sentence(&[("lru", &bad), ("s3fifo", &good)]).unwrap();
        assert!(found.starts_with("s3fifo needs 33 % less memory than lru for 40 % misses"), "{found}");
        assert!(sentence(&[("a", &good), ("b", &good)]).unwrap().starts_with("all policies need about"));
        assert!(sentence(&[("a", &good)]).unwrap().starts_with("a misses 24 % with"));
        let flat = sentence(&[("a", &curve(&[(10, 0.5), (30, 0.5)]))]).unwrap();
        assert_eq!(flat, "a misses 50 % with any memory from 10 MiB on");
    }

    #[test]
    fn curves_that_do_not_meet_have_no_sentence() {
        let (high, low) = (curve(&[(10, 0.9), (30, 0.8)]), curve(&[(10, 0.3), (30, 0.2)]));
        assert_eq!(sentence(&[("a", &high), ("b", &low)]), None);
        assert_eq!(sentence(&[("a", &curve(&[(10, 0.5)]))]), None);
    }
}
