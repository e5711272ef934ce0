//! Sizes, TTLs and popularity as CacheBench draws them.

use super::config::PoolConfig;
use super::refusal::Refusal;
use crate::workload::{Random, WeightedChoice};

/// Numbers with probabilities, or ranges of numbers. As many probabilities as numbers are those of the numbers, one
/// less those of the ranges between them.
#[derive(Clone, Debug)]
pub(super) enum Numbers {
    Each(WeightedChoice<u32>),
    /// From the first of two, up to the second and without it.
    Between(WeightedChoice<(f64, f64)>),
}

impl Numbers {
    pub(super) fn new(name: &str, numbers: &[f64], probabilities: &[f64]) -> Result<Self, Refusal> {
        if numbers.iter().any(|number| !(0.0..f64::from(u32::MAX)).contains(number)) {
            return Err(Refusal::new(name, format!("{name} has numbers that are not from 0 to 2^32")));
        }
        let wrong = || {
            let weights = format!("{name}Probability");
            let reason = format!("{weights} has no weights, or some that are below 0");
            Refusal::new(weights, reason)
        };
        if numbers.len() == probabilities.len() {
            let each = numbers.iter().map(|&number| number as u32).zip(probabilities.iter().copied());
            return WeightedChoice::new(each).map(Self::Each).ok_or_else(wrong);
        }
        if numbers.len() != probabilities.len() + 1 || !numbers.is_sorted() {
            let (numbers, weights) = (numbers.len(), probabilities.len());
            let remedy = "as many, or one more and in order, make sense";
            let reason = format!("{name} has {numbers} numbers, and {name}Probability {weights}: {remedy}");
            return Err(Refusal::new(name, reason));
        }
        let between = numbers.windows(2).map(|ends| (ends[0], ends[1])).zip(probabilities.iter().copied());
        WeightedChoice::new(between).map(Self::Between).ok_or_else(wrong)
    }

    /// `None` where the configuration has no such numbers.
    pub(super) fn optional(name: &str, numbers: &[f64], probabilities: &[f64]) -> Result<Option<Self>, Refusal> {
        match numbers.is_empty() {
            true => Ok(None),
            false => Self::new(name, numbers, probabilities).map(Some),
        }
    }

    pub(super) fn pick(&self, unit: f64) -> u32 {
        match self {
            Self::Each(numbers) => numbers.pick(unit),
            Self::Between(ranges) => {
                let (_, within) = ranges.locate(unit);
                let (low, high) = ranges.pick(unit);
                (low + within * (high - low)) as u32
            }
        }
    }
}

/// Distribution of requests over the keys of a pool.
#[derive(Clone, Debug)]
pub(super) enum KeyPopularity {
    /// First rank and number of ranks of each bucket; the ranks of a bucket are equally popular.
    Buckets(WeightedChoice<(u64, u64)>),
    /// A normal distribution over the ranks: the mean in the middle, two standard deviations to each end.
    Normal { keys: u64 },
}

impl KeyPopularity {
    /// The buckets, scaled to as many ranks as there are keys.
    pub(super) fn new(config: &PoolConfig, keys: u64) -> Result<Self, Refusal> {
        let (sizes, weights) = (&config.popularity_buckets, &config.popularity_weights);
        if sizes.len() != weights.len() {
            let reason = format!("{} popularityBuckets and {} popularityWeights", sizes.len(), weights.len());
            return Err(Refusal::new("popularityBuckets", reason));
        }
        if sizes.is_empty() {
            return Ok(Self::Normal { keys });
        }
        let total: f64 = sizes.iter().sum();
        if sizes.iter().any(|size| size.is_nan() || *size < 0.0) || !(total > 0.0 && total.is_finite()) {
            return Err(Refusal::new("popularityBuckets", "popularityBuckets are not numbers of keys"));
        }
        let mut end = 0.0;
        let last = keys - 1;
        let scaled = sizes.iter().zip(weights).map(|(size, &weight)| {
            let first = ((end / total * keys as f64) as u64).min(last);
            end += size;
            let next = ((end / total * keys as f64) as u64).min(keys);
            // A bucket that the scale leaves no key of its own shares its neighbour's.
            ((first, next.saturating_sub(first).max(1)), weight)
        });
        let buckets = WeightedChoice::new(scaled)
            .ok_or_else(|| Refusal::new("popularityWeights", "popularityWeights are not weights"))?;
        Ok(Self::Buckets(buckets))
    }

    /// A rank below the number of keys.
    pub(super) fn next(&self, random: &mut Random) -> u64 {
        match self {
            Self::Buckets(buckets) => {
                let (first, ranks) = buckets.pick(random.next_unit());
                first + random.uniform(ranks)
            }
            Self::Normal { keys } => loop {
                // 95 % of the draws are within the range, so a few draws are enough.
                let rank = (random.next_normal() / 4.0 + 0.5) * *keys as f64;
                if (0.0..*keys as f64).contains(&rank) {
                    return rank as u64;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_buckets_popularity_is_normal() {
        let popularity = KeyPopularity::new(&PoolConfig::default(), 1000).unwrap();
        let mut random = Random::new(1, 0);
        let ranks: Vec<u64> = (0..100_000).map(|_| popularity.next(&mut random)).collect();
        assert!(ranks.iter().all(|rank| *rank < 1000));
        let middle = ranks.iter().filter(|rank| (250..750).contains(*rank)).count() as f64 / 1e5;
        // One standard deviation to each side, of two.
        assert!((middle / (0.6827 / 0.9545) - 1.0).abs() < 0.02, "{middle}");
    }
}
