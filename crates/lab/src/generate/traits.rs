//! Constant properties of a key: sizes and TTL, from a hash of the key; and the operations on keys.

use crate::trace::Op;
use crate::workload::{Random, WeightedChoice, mix, normal, unit};

/// Salts of the hashes from which the traits of one key are drawn.
const KEY_SIZE: u64 = 0x4B45_5953;
const VALUE_SIZE: u64 = 0x5641_4C55;
const TTL: u64 = 0x0054_544C;

/// Sizes, TTLs and operations of a workload.
#[derive(Clone, Debug)]
pub(super) struct Traits {
    pub(super) key_sizes: WeightedChoice<u32>,
    pub(super) values: Values,
    /// In seconds; 0 is no expiry.
    pub(super) ttls: WeightedChoice<u32>,
    pub(super) ops: WeightedChoice<Op>,
}

/// How large values are.
#[derive(Clone, Debug)]
pub(super) enum Values {
    OneOf(WeightedChoice<u32>),
    /// With a mean over the keys in bytes, and `growth`, the power of a key's weight that its value grows by.
    LogNormal {
        mean: f64,
        sigma: f64,
        growth: f64,
    },
    /// The inverse of a distribution, straight between points (share of the keys, bytes), times `scale`.
    Quantiles {
        points: &'static [(f64, f64)],
        scale: f64,
    },
}

impl Traits {
    pub(super) fn key_size(&self, seed: u64, key: u64) -> u32 {
        self.key_sizes.pick(unit(hash(seed, KEY_SIZE, key)))
    }

    pub(super) fn ttl_seconds(&self, seed: u64, key: u64) -> u32 {
        self.ttls.pick(unit(hash(seed, TTL, key)))
    }

    /// A set asks for its key as a get does, so the operation is drawn for the request and not for the key.
    pub(super) fn op(&self, random: &mut Random) -> Op {
        self.ops.pick(random.next_unit())
    }

    /// The value sizes of all keys from `first_key` on, which have these weights.
    pub(super) fn value_sizes(&self, seed: u64, first_key: u32, weights: &[f64]) -> Vec<u32> {
        let bits = |index: usize| hash(seed, VALUE_SIZE, u64::from(first_key) + index as u64);
        let indices = 0..weights.len();
        match &self.values {
            Values::OneOf(sizes) => indices.map(|index| sizes.pick(unit(bits(index)))).collect(),
            Values::Quantiles { points, scale } => {
                indices.map(|index| whole(quantile(points, unit(bits(index))) * scale)).collect()
            }
            Values::LogNormal { mean, sigma, growth } => {
                let relative = |index: usize| {
                    let first = bits(index);
                    (sigma * normal(unit(first), unit(mix(first)))).exp() * weights[index].powf(*growth)
                };
                let total: f64 = indices.clone().map(relative).sum();
                let scale = mean * weights.len() as f64 / total;
                indices.map(|index| whole(relative(index) * scale)).collect()
            }
        }
    }
}

fn hash(seed: u64, trait_: u64, key: u64) -> u64 {
    mix(mix(seed ^ trait_) ^ mix(key))
}

fn whole(bytes: f64) -> u32 {
    (bytes.round() as u32).max(1)
}

fn quantile(points: &[(f64, f64)], share: f64) -> f64 {
    let after = points.partition_point(|point| point.0 <= share).clamp(1, points.len() - 1);
    let ((left, low), (right, high)) = (points[after - 1], points[after]);
    low + (high - low) * ((share - left) / (right - left)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traits(values: Values) -> Traits {
        Traits {
            key_sizes: WeightedChoice::new([(20, 1.0), (40, 1.0)]).unwrap(),
            values,
            ttls: WeightedChoice::new([(60, 0.9), (0, 0.1)]).unwrap(),
            ops: WeightedChoice::new([(Op::Get, 0.7), (Op::Set, 0.2), (Op::Delete, 0.1)]).unwrap(),
        }
    }

    fn mean(sizes: &[u32]) -> f64 {
        sizes.iter().copied().map(f64::from).sum::<f64>() / sizes.len() as f64
    }

    #[test]
    fn traits_are_constant_per_key_with_given_shares() {
        let traits = traits(Values::OneOf(WeightedChoice::new([(10, 1.0), (30, 3.0)]).unwrap()));
        assert_eq!(traits.key_size(1, 7), traits.key_size(1, 7));
        let long = (0..10_000).filter(|&key| traits.key_size(1, key) == 40).count();
        let mortal = (0..10_000).filter(|&key| traits.ttl_seconds(1, key) == 60).count();
        let both = (0..10_000).filter(|&key| traits.key_size(1, key) == 40 && traits.ttl_seconds(1, key) == 60).count();
        assert!((4_800..5_200).contains(&long) && (8_800..9_200).contains(&mortal), "{long} {mortal}");
        assert!((4_300..4_700).contains(&both), "the traits of a key depend on each other: {both}");
        let sizes = traits.value_sizes(1, 0, &[1.0; 10_000]);
        assert!((24.5..25.5).contains(&mean(&sizes)));
        assert_eq!(traits.value_sizes(1, 5000, &[1.0; 5000]), sizes[5000..]);
        assert_ne!(traits.value_sizes(2, 0, &[1.0; 10_000]), sizes);
    }

    #[test]
    fn lognormal_values_keep_their_mean_and_follow_weights() {
        let weights: Vec<f64> = (0..20_000).map(|n| if n % 2 == 0 { 1.0 } else { 100.0 }).collect();
        let of_growth = |growth| {
            let sizes = traits(Values::LogNormal { mean: 200.0, sigma: 0.5, growth }).value_sizes(1, 0, &weights);
            assert!((mean(&sizes) - 200.0).abs() < 1.0);
            let of_parity = |parity| mean(&sizes.iter().copied().skip(parity).step_by(2).collect::<Vec<_>>());
            of_parity(1) / of_parity(0)
        };
        assert!((of_growth(0.0) - 1.0).abs() < 0.05);
        assert!((of_growth(0.5) / 10.0 - 1.0).abs() < 0.05);
    }

    #[test]
    fn quantiles_are_straight_between_their_points() {
        let points = &[(0.0, 10.0), (0.5, 20.0), (0.5, 40.0), (1.0, 100.0)];
        assert_eq!(quantile(points, 0.25), 15.0);
        assert_eq!(quantile(points, 0.5), 40.0);
        assert_eq!(quantile(points, 0.75), 70.0);
        let sizes = traits(Values::Quantiles { points, scale: 2.0 }).value_sizes(1, 0, &[1.0; 20_000]);
        assert!((mean(&sizes) - 85.0).abs() < 1.5, "{}", mean(&sizes));
    }
}
