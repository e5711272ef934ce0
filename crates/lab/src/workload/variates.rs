//! Random numbers that are not uniform.

use super::Random;

/// Above this mean a Poisson number is drawn as a rounded normal one.
const LARGE_MEAN: f64 = 30.0;

impl Random {
    /// Exponential with mean 1.
    pub fn next_exponential(&mut self) -> f64 {
        -(1.0 - self.next_unit()).ln()
    }

    /// Normal with mean 0 and standard deviation 1 (Box and Muller).
    pub fn next_normal(&mut self) -> f64 {
        normal(self.next_unit(), self.next_unit())
    }

    /// Poisson: by multiplication (Knuth) for small means, and by the normal approximation above 30.
    pub fn next_poisson(&mut self, mean: f64) -> u64 {
        if mean >= LARGE_MEAN {
            return (mean + mean.sqrt() * self.next_normal() + 0.5) as u64;
        }
        let limit = (-mean).exp();
        let mut count = 0;
        let mut product = self.next_unit();
        while product > limit {
            count += 1;
            product *= self.next_unit();
        }
        count
    }
}

/// A normal number out of two uniform ones in [0, 1).
pub(crate) fn normal(first: f64, second: f64) -> f64 {
    (-2.0 * (1.0 - first).ln()).sqrt() * (std::f64::consts::TAU * second).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 100_000;

    fn moments(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let draws: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(DRAWS);
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(DRAWS);
        (mean, variance)
    }

    #[test]
    fn the_variates_have_their_means_and_variances() {
        let mut random = Random::new(11, 0);
        let (mean, variance) = moments(|| random.next_normal());
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
        let (mean, variance) = moments(|| random.next_exponential());
        assert!((mean - 1.0).abs() < 0.02 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        for expected in [0.05, 3.0, 29.0, 31.0, 4000.0] {
            let (mean, variance) = moments(|| random.next_poisson(expected) as f64);
            assert!((mean / expected - 1.0).abs() < 0.05, "{expected}: {mean}");
            assert!((variance / expected - 1.0).abs() < 0.08, "{expected}: {variance}");
        }
    }
}
