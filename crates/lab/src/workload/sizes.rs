use std::fmt;
use std::str::FromStr;

use super::random::unit;
use super::{mix, normal};

/// How large the keys or values are. The size of a key's value follows from the key's number, so it is the same each
/// time that key is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SizeDistribution {
    /// `100`: all alike.
    Fixed(u32),
    /// `50-200`: uniform, both ends included.
    Range { low: u32, high: u32 },
    /// `lognormal:MEDIAN:SIGMA[:MAX]`: exp of a normal distribution with standard deviation SIGMA; larger ones are cut
    /// to MAX (default 1 MiB).
    LogNormal { median: f64, sigma: f64, max: u32 },
}

const DEFAULT_MAX: u32 = 1 << 20;

impl SizeDistribution {
    /// Bytes for the key with this number.
    pub fn size_of(&self, seed: u64, number: u64) -> u32 {
        match *self {
            SizeDistribution::Fixed(size) => size,
            SizeDistribution::Range { low, high } => {
                let span = u64::from(high - low) + 1;
                let bits = mix(seed ^ mix(number));
                low + ((u128::from(bits) * u128::from(span)) >> 64) as u32
            }
            SizeDistribution::LogNormal { median, sigma, max } => {
                let bits = mix(seed ^ mix(number));
                let size = median * (sigma * normal(unit(bits), unit(mix(bits)))).exp();
                (size as u32).clamp(1, max)
            }
        }
    }

    /// The largest possible size.
    pub fn largest(&self) -> u32 {
        match *self {
            SizeDistribution::Fixed(size) => size,
            SizeDistribution::Range { high, .. } => high,
            SizeDistribution::LogNormal { max, .. } => max,
        }
    }
}

impl FromStr for SizeDistribution {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is none of SIZE, LOW-HIGH and lognormal:MEDIAN:SIGMA[:MAX]");
        if let Some(parameters) = text.strip_prefix("lognormal:") {
            let mut parts = parameters.split(':');
            let mut float = || parts.next()?.parse::<f64>().ok();
            let (median, sigma) = float().zip(float()).ok_or_else(wrong)?;
            let max = match parts.next() {
                Some(max) => max.parse().map_err(|_| wrong())?,
                None => DEFAULT_MAX,
            };
            if !(median >= 1.0 && sigma >= 0.0 && sigma.is_finite() && max >= 1) {
                return Err("MEDIAN and MAX are at least 1, SIGMA at least 0".into());
            }
            return match parts.next() {
                Some(_) => Err(wrong()),
                None => Ok(Self::LogNormal { median, sigma, max }),
            };
        }
        match text.split_once('-') {
            Some((low, high)) => {
                let low = low.parse().map_err(|_| wrong())?;
                let high = high.parse().map_err(|_| wrong())?;
                if low > high {
                    return Err(format!("{low} is more than {high}"));
                }
                Ok(Self::Range { low, high })
            }
            None => text.parse().map(Self::Fixed).map_err(|_| wrong()),
        }
    }
}

impl fmt::Display for SizeDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Range { low, high } => write!(f, "{low}-{high}"),
            Self::LogNormal { median, sigma, max } => write!(f, "lognormal:{median}:{sigma}:{max}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Vec<u32> {
        let distribution: SizeDistribution = text.parse().unwrap();
        let mut sizes: Vec<u32> = (0..10_001).map(|n| distribution.size_of(1, n)).collect();
        sizes.sort_unstable();
        sizes
    }

    #[test]
    fn a_range_reaches_both_ends() {
        let sizes = sizes("50-59");
        assert_eq!((sizes[0], sizes[10_000]), (50, 59));
        assert!((54..=55).contains(&sizes[5_000]));
    }

    #[test]
    fn lognormal_has_its_median_and_spread() {
        let sizes = sizes("lognormal:200:0.5");
        assert!((190..210).contains(&sizes[5_000]), "{}", sizes[5_000]);
        // One standard deviation up is the quantile 0.8413.
        let expected = 200.0 * 0.5f64.exp();
        assert!((f64::from(sizes[8_413]) / expected - 1.0).abs() < 0.05);
        assert!(self::sizes("lognormal:200:3:1000").into_iter().all(|s| s <= 1000));
    }

    #[test]
    fn a_size_stays_with_its_key() {
        let distribution: SizeDistribution = "1-1000".parse().unwrap();
        assert_eq!(distribution.size_of(1, 5), distribution.size_of(1, 5));
        assert_ne!(distribution.size_of(1, 5), distribution.size_of(2, 5));
    }

    #[test]
    fn what_it_shows_it_reads() {
        for text in ["100", "50-200", "lognormal:200:0.5:4096"] {
            let distribution: SizeDistribution = text.parse().unwrap();
            assert_eq!(distribution.to_string(), text);
        }
        for text in ["", "x", "9-1", "-5", "lognormal:1", "lognormal:0:1", "lognormal:9:1:9:9"] {
            assert!(text.parse::<SizeDistribution>().is_err(), "{text}");
        }
    }
}
