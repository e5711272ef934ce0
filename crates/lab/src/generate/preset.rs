//! The presets: parameters of the five workloads of the Segcache paper (its Table 3).
//!
//! Each stands for a Twitter production cluster of 2020. Its parameters were fitted to published statistics and
//! miss-ratio curves of that cluster over seven days, by object and with TTLs ignored; `livepipeline`, which is only
//! a part of `mix`, was not fitted. Sources: the statistics that Twitter published with its traces (CC BY 4.0), the
//! miss ratios published with the S3-FIFO paper (SOSP 2023), and for the value sizes of `c` the size distribution
//! that libCacheSim plots for the first ten million requests of cluster 52.
//!
//! In the source an add is the fill after a miss, which is up to the replay; a cas counts as a set, and an incr
//! as a get.

use super::shot_noise::{KeyLifetime, ShotNoise};
use super::traits::{Traits, Values};
use crate::trace::Op;
use crate::workload::WeightedChoice;

/// Presets of `ebbtide generate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Preset {
    /// Content of tweets: cluster 52; also named tweets
    #[value(alias = "tweets")]
    C,
    /// User metadata: cluster 17; also named users
    #[value(alias = "users")]
    U1,
    /// User metadata, a cache with a short TTL: cluster 18; also named users-short-ttl
    #[value(alias = "users-short-ttl")]
    U2,
    /// Negative results: cluster 44; also named negative-results
    #[value(alias = "negative-results")]
    N,
    /// Short-lived counters and state: cluster 23, not fitted
    Livepipeline,
    /// n, u2, c and livepipeline side by side
    Mix,
    /// Popularity by Zipf's law, fixed but for --churn
    Zipf,
    /// All keys alike
    Uniform,
    /// All keys in turn
    Scan,
}

/// One of the caches that a workload is mixed of.
pub(super) struct Component {
    pub(super) model: ShotNoise,
    pub(super) traits: Traits,
    /// Of the requests of the workload.
    pub(super) share: f64,
}

/// The time that the fitted caches were watched.
pub(super) const WEEK_SECONDS: u64 = 7 * 86_400;

impl Preset {
    /// The caches of a fitted preset; empty for a plain one.
    pub(super) fn components(self) -> Vec<Component> {
        let alone = |model, traits| vec![Component { model, traits, share: 1.0 }];
        match self {
            Preset::C => alone(C, c_traits()),
            Preset::U1 => alone(U1, u1_traits()),
            Preset::U2 => alone(U2, u2_traits()),
            Preset::N => alone(N, n_traits()),
            Preset::Livepipeline => alone(LIVEPIPELINE, livepipeline_traits()),
            Preset::Mix => vec![
                Component { model: N, traits: n_traits(), share: 0.137 },
                Component { model: U2, traits: u2_traits(), share: 0.384 },
                Component { model: C, traits: c_traits(), share: 0.353 },
                Component { model: LIVEPIPELINE, traits: livepipeline_traits(), share: 0.126 },
            ],
            Preset::Zipf | Preset::Uniform | Preset::Scan => Vec::new(),
        }
    }
}

pub(super) const C: ShotNoise = ShotNoise {
    mean_frequency: 53.5,
    sigma: 1.51,
    tail: 1.261,
    weight_cap: 19_520.0,
    stationary: 0.2526,
    tilt: -0.5,
    life: KeyLifetime { median_seconds: 306.2, sigma: 0.5886 },
    second_life: KeyLifetime { median_seconds: 9687.0, sigma: 0.2 },
    second_share: 0.119,
    repeat: 0.2929,
    repeat_seconds: 17.38,
};

pub(super) const U1: ShotNoise = ShotNoise {
    mean_frequency: 1306.0,
    sigma: 2.4,
    tail: 0.9,
    weight_cap: 27_060.0,
    stationary: 0.1479,
    tilt: -0.4966,
    life: KeyLifetime { median_seconds: 341.7, sigma: 0.3 },
    second_life: KeyLifetime { median_seconds: 30_720.0, sigma: 1.148 },
    second_share: 0.1858,
    repeat: 0.4358,
    repeat_seconds: 1.829,
};

pub(super) const U2: ShotNoise = ShotNoise {
    mean_frequency: 1117.0,
    sigma: 2.067,
    tail: 3.5,
    weight_cap: 165_500.0,
    stationary: 0.2846,
    tilt: -0.2348,
    life: KeyLifetime { median_seconds: 79.0, sigma: 1.511 },
    second_life: KeyLifetime { median_seconds: 17_900.0, sigma: 0.184 },
    second_share: 0.01875,
    repeat: 0.1717,
    repeat_seconds: 8.46,
};

pub(super) const N: ShotNoise = ShotNoise {
    mean_frequency: 94.6,
    sigma: 2.224,
    tail: 3.78,
    weight_cap: 4730.0,
    stationary: 0.2282,
    tilt: -0.3916,
    life: KeyLifetime { median_seconds: 165.7, sigma: 2.703 },
    second_life: KeyLifetime { median_seconds: 66_830.0, sigma: 1.046 },
    second_share: 0.02256,
    repeat: 0.2453,
    repeat_seconds: 228.5,
};

/// Lives of a second or so: the second life and the repeats are off.
pub(super) const LIVEPIPELINE: ShotNoise = ShotNoise {
    mean_frequency: 2.62,
    sigma: 0.5,
    tail: 4.0,
    weight_cap: f64::INFINITY,
    stationary: 0.0,
    tilt: 0.0,
    life: KeyLifetime { median_seconds: 1.0, sigma: 0.5 },
    second_life: KeyLifetime { median_seconds: 1.0, sigma: 0.5 },
    second_share: 0.0,
    repeat: 0.0,
    repeat_seconds: 0.0,
};

fn c_traits() -> Traits {
    Traits {
        key_sizes: shares(&[(20, 1.0)]),
        // The first ten million requests have smaller values than the cluster as a whole, whose mean is 273 bytes.
        values: Values::Quantiles { points: C_VALUES, scale: 1.35 },
        ttls: shares(&[(86_400, 0.65), (1_209_600, 0.27), (43_200, 0.08)]),
        ops: operations(0.021, 0.006),
    }
}

fn u1_traits() -> Traits {
    Traits {
        key_sizes: shares(&[(19, 1.0)]),
        values: Values::LogNormal { mean: 212.0, sigma: 0.8, growth: 0.23 },
        ttls: shares(&[(432_000, 1.0)]),
        ops: operations(0.003, 0.0),
    }
}

fn u2_traits() -> Traits {
    Traits {
        key_sizes: shares(&[(18, 1.0)]),
        values: Values::LogNormal { mean: 37.0, sigma: 0.5, growth: 0.09 },
        ttls: shares(&[(43_200, 1.0)]),
        ops: operations(0.012, 0.0),
    }
}

fn n_traits() -> Traits {
    Traits {
        key_sizes: shares(&[(25, 0.75), (15, 0.0625), (16, 0.0625), (24, 0.0625), (14, 0.0625)]),
        values: Values::OneOf(shares(&[(22, 0.45), (27, 0.22), (18, 0.33)])),
        ttls: shares(&[(2_592_000, 1.0)]),
        ops: operations(0.003, 0.0),
    }
}

fn livepipeline_traits() -> Traits {
    Traits {
        key_sizes: shares(&[(35, 1.0)]),
        values: Values::LogNormal { mean: 224.0, sigma: 0.8, growth: 0.0 },
        ttls: shares(&[(120, 0.93), (2700, 0.05), (5, 0.02)]),
        ops: operations(0.308, 0.020),
    }
}

fn shares(weighted: &[(u32, f64)]) -> WeightedChoice<u32> {
    WeightedChoice::new(weighted.iter().copied()).expect("the weights are constants")
}

fn operations(sets: f64, deletes: f64) -> WeightedChoice<Op> {
    let weighted = [(Op::Get, 1.0 - sets - deletes), (Op::Set, sets), (Op::Delete, deletes)];
    WeightedChoice::new(weighted).expect("the weights are constants")
}

/// Value sizes of cluster 52 over its keys, as (share of the keys, bytes), rounded; two points at one size stand for
/// the many keys of that size.
const C_VALUES: &[(f64, f64)] = &[
    (0.0, 12.0),
    (0.002, 15.0),
    (0.002, 16.0),
    (0.106, 16.0),
    (0.106, 17.0),
    (0.164, 17.0),
    (0.165, 26.0),
    (0.189, 26.0),
    (0.189, 27.0),
    (0.242, 27.0),
    (0.248, 52.0),
    (0.248, 53.0),
    (0.273, 53.0),
    (0.273, 54.0),
    (0.612, 54.0),
    (0.620, 80.0),
    (0.626, 149.0),
    (0.635, 182.0),
    (0.655, 220.0),
    (0.683, 230.0),
    (0.708, 257.0),
    (0.737, 285.0),
    (0.778, 325.0),
    (0.820, 375.0),
    (0.862, 450.0),
    (0.900, 537.0),
    (0.931, 626.0),
    (0.961, 770.0),
    (0.983, 991.0),
    (0.992, 1198.0),
    (0.997, 1484.0),
    (0.9985, 1684.0),
    (0.9998, 2546.0),
    (1.0, 4985.0),
];
