//! Zipf's law with a flat head, fitted to the requests of objects.
//!
//! The law is `rate(r) = C (r + q)^-alpha` for the object of rank r (Mandelbrot's form; q is 0 for Zipf's law itself).
//! The ranks of a trace are found from noisy counts, so a line through counts by rank is biased where counts are small.
//! The fit uses N(x) instead, the number of objects with at least x requests. With Poisson counts
//!
//! ```text
//! P(count >= x) = P(G <= rate)  with G gamma-distributed of shape x, so, with s = 1 / alpha,
//! E N(x) = E (C / G)^s - q      = C^s Gamma(x - s) / Gamma(x) - q
//! ```
//! which is exact for each x over s. For one s it is linear in C^s and q; the best s is searched for. Objects of the
//! tail, whose number is finite, are left out: only the tenth with the most requests counts.

/// The law that fits best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ZipfFit {
    pub(super) alpha: f64,
    /// q: about the number of objects that are as popular as the first.
    pub(super) flat_head: f64,
    /// C: requests that the law gives the object of rank 1 - q.
    pub(super) scale: f64,
    /// Share of the variance of ln N that the law explains.
    pub(super) r_squared: f64,
    /// Number of objects in the fit, the most popular ones.
    pub(super) ranks: usize,
}

/// Minimum number of points of a fit, and the maximum.
const MIN_POINTS: usize = 6;
const POINTS: usize = 120;
/// Minimum count of requests: smaller ones are poor estimates of an object's rate.
const MIN_COUNT: u64 = 6;
/// Range and steps of the search for s = 1 / alpha.
const S_RANGE: (f64, f64) = (0.2, 5.0);
const SEARCH_STEPS: usize = 60;
/// Real popularities are off by a few percent from any law, however many objects there are.
const MODEL_ERROR: f64 = 0.02;

/// N objects have at least x requests.
#[derive(Clone, Copy, Debug)]
struct RankPoint {
    x: f64,
    n: f64,
}

impl RankPoint {
    fn weight(&self) -> f64 {
        1.0 / (self.n + (MODEL_ERROR * self.n).powi(2))
    }
}

impl ZipfFit {
    /// Fits the requests of each object, in descending order. `None` if too few objects have enough requests.
    pub(super) fn of(descending: &[u64]) -> Option<Self> {
        let points = points(descending);
        let mut fit = best(&points)?;
        // Where the first objects differ by less than the noise of their counts, N is no law's: fit again without them.
        for _ in 0..2 {
            let clear: Vec<RankPoint> = points
                .iter()
                .copied()
                .filter(|point| point.n > 3.0 * (point.n + fit.flat_head.max(0.0)) / fit.alpha / point.x.sqrt())
                .collect();
            fit = best(&clear).unwrap_or(fit);
        }
        Some(fit)
    }

    /// Requests that the law gives the object of this rank, from 1.
    pub(super) fn requests(&self, rank: f64) -> f64 {
        self.scale * (rank + self.flat_head).powf(-self.alpha)
    }
}

/// N at counts whose N are about evenly spaced on a logarithmic axis.
fn points(descending: &[u64]) -> Vec<RankPoint> {
    let with_enough = descending.partition_point(|&count| count >= MIN_COUNT);
    let max_rank = with_enough.min((descending.len() / 10).max(20));
    let mut points: Vec<RankPoint> = Vec::new();
    for step in 0..POINTS {
        let rank = (max_rank as f64).powf(step as f64 / (POINTS - 1) as f64).round() as usize;
        let Some(&x) = rank.checked_sub(1).and_then(|index| descending.get(index)) else { continue };
        let n = descending.partition_point(|&count| count >= x) as f64;
        if x >= MIN_COUNT && points.last().is_none_or(|last| n > last.n) {
            points.push(RankPoint { x: x as f64, n });
        }
    }
    points
}

/// The best of all s, by golden-section search; the cost has one minimum.
fn best(points: &[RankPoint]) -> Option<ZipfFit> {
    if points.len() < MIN_POINTS {
        return None;
    }
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = S_RANGE;
    for _ in 0..SEARCH_STEPS {
        let (left, right) = (high - golden * (high - low), low + golden * (high - low));
        if cost(points, left) < cost(points, right) { high = right } else { low = left }
    }
    let s = (low + high) / 2.0;
    let (slope, head) = linear(points, s);
    let logs = points.iter().map(|point| point.n.ln());
    let mean = logs.clone().sum::<f64>() / points.len() as f64;
    let total: f64 = logs.map(|log| (log - mean).powi(2)).sum();
    let rest: f64 =
        points.iter().map(|point| ((slope * ratio(point.x, s) - head).max(0.1).ln() - point.n.ln()).powi(2)).sum();
    (slope > 0.0 && total > 0.0).then(|| ZipfFit {
        alpha: 1.0 / s,
        flat_head: head,
        scale: slope.powf(1.0 / s),
        r_squared: 1.0 - rest / total,
        ranks: points.last().map_or(0, |point| point.n as usize),
    })
}

fn cost(points: &[RankPoint], s: f64) -> f64 {
    let (slope, head) = linear(points, s);
    points.iter().map(|point| point.weight() * (slope * ratio(point.x, s) - head - point.n).powi(2)).sum()
}

/// The weighted least squares of N = slope * ratio - head. A head under -1/2, which would be steeper than Zipf's law at
/// its first object, is none.
fn linear(points: &[RankPoint], s: f64) -> (f64, f64) {
    let (mut w, mut wg, mut wn, mut wgg, mut wgn) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for point in points {
        let (weight, g) = (point.weight(), ratio(point.x, s));
        w += weight;
        wg += weight * g;
        wn += weight * point.n;
        wgg += weight * g * g;
        wgn += weight * g * point.n;
    }
    let slope = (w * wgn - wg * wn) / (w * wgg - wg * wg);
    let head = (slope * wg - wn) / w;
    if head.is_finite() && head > -0.5 { (slope, head) } else { (wgn / wgg, 0.0) }
}

/// Gamma(x - s) / Gamma(x).
fn ratio(x: f64, s: f64) -> f64 {
    (ln_gamma(x - s) - ln_gamma(x)).exp()
}

/// Stirling's series, after a shift to where it is exact to twelve digits.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 12.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let tail = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * x * x)) / (x * x)) / x;
    shift + (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Random;

    fn counts(objects: u32, requests: f64, alpha: f64, head: f64) -> Vec<u64> {
        let mut random = Random::new(7, 0);
        let weight = |rank: u32| (f64::from(rank) + head).powf(-alpha);
        let total: f64 = (1..=objects).map(weight).sum();
        let mut counts: Vec<u64> =
            (1..=objects).map(|rank| random.next_poisson(requests * weight(rank) / total)).collect();
        counts.retain(|&count| count > 0);
        counts.sort_unstable_by(|one, other| other.cmp(one));
        counts
    }

    #[test]
    fn the_gamma_function_is_that_of_the_tables() {
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-10);
        assert!((ln_gamma(11.0) - 3_628_800f64.ln()).abs() < 1e-10);
    }

    #[test]
    fn exponents_come_back_within_three_percent() {
        for alpha in [0.55, 0.7, 0.85, 1.0, 1.2] {
            let fit = ZipfFit::of(&counts(200_000, 2e6, alpha, 0.0)).unwrap();
            assert!((fit.alpha / alpha - 1.0).abs() < 0.03, "{alpha}: {fit:?}");
            assert!(fit.flat_head.abs() < 3.0 && fit.r_squared > 0.98, "{alpha}: {fit:?}");
        }
    }

    #[test]
    fn a_flat_head_comes_back() {
        for head in [100.0, 1000.0] {
            let fit = ZipfFit::of(&counts(200_000, 4e6, 0.9, head)).unwrap();
            assert!((fit.alpha / 0.9 - 1.0).abs() < 0.05, "{fit:?}");
            assert!((fit.flat_head / head - 1.0).abs() < 0.1, "{fit:?}");
        }
    }

    #[test]
    fn few_or_equal_counts_have_no_fit() {
        assert_eq!(ZipfFit::of(&[]), None);
        assert_eq!(ZipfFit::of(&[1; 1000]), None);
        assert_eq!(ZipfFit::of(&[50; 1000]), None);
        assert_eq!(ZipfFit::of(&[900, 30, 7]), None);
    }
}
