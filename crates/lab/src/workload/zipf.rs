//! Zipf-distributed ranks in constant time and without a table: rejection-inversion after W. Hörmann and G. Derflinger,
//! "Rejection-inversion to generate variates from monotone discrete distributions", ACM TOMACS 6 (1996).
//!
//! The hat over the weights h(k) = k^-s is the continuous h(x) on [k - 1/2, k + 1/2]. Its integral H has a closed form,
//! so a uniform number between H(3/2) - h(1) and H(n + 1/2) is inverted to x and rounded to k. Because h is convex
//! the area of each bar is at least h(k), so a number in the surplus is rejected; for k - x below a fixed shift it
//! cannot be in the surplus, which spares the test for most numbers. On average fewer than 1.1 numbers are drawn.

use super::Random;

/// Ranks 1 to n with probabilities proportional to (rank + head)^-exponent; a head of 0 is Zipf's law.
#[derive(Clone, Debug)]
pub struct Zipf {
    head: f64,
    ranks: f64,
    exponent: f64,
    lowest: f64,
    highest: f64,
    shift: f64,
}

impl Zipf {
    /// `ranks` is at least 1; `exponent` is finite and not negative (0 is the uniform distribution).
    pub fn new(ranks: u64, exponent: f64) -> Self {
        Self::with_head(ranks, exponent, 0)
    }

    /// As `new`, with a flat head: about the first `head` ranks are equally popular.
    pub fn with_head(ranks: u64, exponent: f64, head: u64) -> Self {
        assert!(ranks >= 1 && exponent.is_finite() && exponent >= 0.0);
        let (ranks, head) = (ranks as f64, head as f64);
        let mut zipf = Self { head, ranks, exponent, lowest: 0.0, highest: 0.0, shift: 0.0 };
        zipf.lowest = zipf.integral(head + 1.5) - zipf.weight(head + 1.0);
        zipf.highest = zipf.integral(head + ranks + 0.5);
        zipf.shift = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// A rank from 1 to n.
    pub fn sample(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.highest + random.next_unit() * (self.lowest - self.highest);
            let x = self.inverse(area);
            let k = (x + 0.5).floor().clamp(self.head + 1.0, self.head + self.ranks);
            if k - x <= self.shift || area >= self.integral(k + 0.5) - self.weight(k) {
                return (k - self.head) as u64;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of `weight`: (x^(1-s) - 1) / (1 - s), which goes over into ln x at s = 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        ratio(f64::exp_m1, (1.0 - self.exponent) * log) * log
    }

    fn inverse(&self, area: f64) -> f64 {
        // Rounding can push the argument of the logarithm below its domain.
        let t = ((1.0 - self.exponent) * area).max(-1.0);
        (ratio(f64::ln_1p, t) * area).exp()
    }
}

/// f(x)/x for a function with f(0) = 0 and f'(0) = 1, also near 0.
fn ratio(f: impl Fn(f64) -> f64, x: f64) -> f64 {
    if x.abs() > 1e-12 { f(x) / x } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's statistic over `n` ranks against the exact probabilities.
    fn chi_square(n: u64, exponent: f64, head: u64, draws: u32) -> f64 {
        let zipf = Zipf::with_head(n, exponent, head);
        let mut random = Random::new(42, 0);
        let mut counts = vec![0u32; n as usize];
        for _ in 0..draws {
            counts[zipf.sample(&mut random) as usize - 1] += 1;
        }
        let weights: Vec<f64> = (1..=n).map(|k| ((k + head) as f64).powf(-exponent)).collect();
        let total: f64 = weights.iter().sum();
        counts
            .iter()
            .zip(&weights)
            .map(|(&count, weight)| {
                let expected = weight / total * f64::from(draws);
                (f64::from(count) - expected).powi(2) / expected
            })
            .sum()
    }

    #[test]
    fn ranks_have_their_exact_probabilities() {
        // 99 degrees of freedom: the statistic exceeds 149 with probability 0.001.
        for exponent in [0.0, 0.5, 0.99, 1.0, 1.2, 2.0] {
            for head in [0, 1, 30] {
                let statistic = chi_square(100, exponent, head, 500_000);
                assert!(statistic < 149.0, "exponent {exponent}, head {head}: {statistic}");
            }
        }
    }

    #[test]
    fn extreme_parameters_stay_in_range() {
        let mut random = Random::new(3, 0);
        for (n, exponent) in [(1, 1.0), (2, 0.0), (u64::from(u32::MAX), 0.9), (10, 50.0)] {
            let zipf = Zipf::new(n, exponent);
            for _ in 0..10_000 {
                assert!((1..=n).contains(&zipf.sample(&mut random)));
            }
        }
    }
}
