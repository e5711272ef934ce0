//! A Twitter cluster by number, out of the table of statistics that was published with the traces.
//!
//! The table's exponents of Zipf's law are not used: they were fitted to the head of the popularity curve, and as the
//! exponent of a sampler would give a single key most of the requests. The clusters that the presets stand for have
//! the popularity and the lives of the preset. For the others the spread of the weights is chosen so that the mean
//! frequency and the share of keys that are asked for only once are those of the table; the lives of their keys, of
//! which the table says nothing, are those of `c`. Their values are lognormal around the mean of the table.
//!
//! The table covers two days, and leaves out shares below one or two percent: its entries are taken as the whole. An
//! add in the table is the fill after a miss, which a replay makes itself; it counts as a set only in clusters without
//! gets. Every other write counts as a set, and gets and incr as a get.

use std::path::Path;

use super::args::refused;
use super::preset::{C, Component, LIVEPIPELINE, N, U1, U2, WEEK_SECONDS};
use super::shot_noise::ShotNoise;
use super::traits::{Traits, Values};
use crate::Error;
use crate::trace::Op;
use crate::workload::WeightedChoice;

/// The columns that are used, by their names in the first line.
const COLUMNS: [&str; 7] =
    ["cluster", "key_size", "value_size", "mean_freq", "one_hit_wonder_pct", "ttl_mix", "op_mix"];

const TWO_DAYS_SECONDS: u64 = 2 * 86_400;

/// Spread of the value sizes of a cluster of which only the mean is known.
const VALUE_SIGMA: f64 = 0.8;

/// Popularity over a time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Statistics {
    mean_frequency: f64,
    one_hit_share: f64,
    span_seconds: u64,
}

/// Clusters whose popularity in the table disagrees with the authors' later count over all requests (OSDI 2020).
const CORRECTED: [(u32, Statistics); 4] = [
    (1, Statistics { mean_frequency: 11_791.0, one_hit_share: 0.0002, span_seconds: 46_812 }),
    (3, Statistics { mean_frequency: 99.3, one_hit_share: 0.1305, span_seconds: 232_631 }),
    (4, Statistics { mean_frequency: 19.4, one_hit_share: 0.3295, span_seconds: 65_523 }),
    (54, Statistics { mean_frequency: 163.6, one_hit_share: 0.0047, span_seconds: 172_800 }),
];

/// The cache, and the seconds that it is watched for.
pub(super) fn read(table: &Path, cluster: u32) -> Result<(Component, u64), Error> {
    let name = table.display().to_string();
    let text = std::fs::read_to_string(table).map_err(|source| Error::Read { trace: name.clone(), source })?;
    let malformed = |line: usize, reason| Error::Malformed { trace: name.clone(), line: line as u64 + 1, reason };
    let mut lines = text.lines().enumerate();
    let header: Vec<&str> = lines.next().map_or("", |(_, line)| line).split(',').collect();
    let mut positions = [0; COLUMNS.len()];
    for (position, column) in positions.iter_mut().zip(COLUMNS) {
        let found = header.iter().position(|&name| name == column);
        *position = found.ok_or_else(|| malformed(0, format!("no column `{column}`")))?;
    }
    for (number, line) in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let row = positions.map(|position| cells.get(position).copied().unwrap_or_default());
        if row[0].parse() == Ok(cluster) {
            return match row[3] {
                "N/A" => Err(refused("--cluster", cluster, format!("{name} has no statistics of it"))),
                _ => component(cluster, &row).map_err(|reason| malformed(number, reason)),
            };
        }
    }
    Err(refused("--cluster", cluster, format!("{name} has no such cluster")))
}

fn component(cluster: u32, row: &[&str; COLUMNS.len()]) -> Result<(Component, u64), String> {
    let number = |column: usize| -> Result<f64, String> {
        let value = row[column].parse().ok().filter(|value: &f64| *value >= 0.0 && value.is_finite());
        value.ok_or_else(|| format!("{} `{}` is not a number", COLUMNS[column], row[column]))
    };
    let (key_size, value_size) = (number(1)?.max(1.0), number(2)?.max(1.0));
    let counted =
        Statistics { mean_frequency: number(3)?, one_hit_share: number(4)? / 100.0, span_seconds: TWO_DAYS_SECONDS };
    if counted.mean_frequency < 1.0 {
        return Err(format!("mean_freq `{}` is below 1", row[3]));
    }
    let traits = Traits {
        key_sizes: WeightedChoice::new([(key_size as u32, 1.0)]).expect("one weight is one"),
        values: Values::LogNormal { mean: value_size, sigma: VALUE_SIGMA, growth: 0.0 },
        ttls: ttls(row[5])?,
        ops: operations(row[6])?,
    };
    let (model, span_seconds) = match fitted(cluster) {
        Some(model) => (model, WEEK_SECONDS),
        None => {
            let corrected = CORRECTED.iter().find(|(number, _)| *number == cluster);
            let statistics = corrected.map_or(counted, |(_, statistics)| *statistics);
            (unfitted(&statistics), statistics.span_seconds)
        }
    };
    Ok((Component { model, traits, share: 1.0 }, span_seconds))
}

fn fitted(cluster: u32) -> Option<ShotNoise> {
    match cluster {
        17 => Some(U1),
        18 => Some(U2),
        23 => Some(LIVEPIPELINE),
        44 => Some(N),
        52 => Some(C),
        _ => None,
    }
}

fn unfitted(statistics: &Statistics) -> ShotNoise {
    let Statistics { mean_frequency, one_hit_share, .. } = *statistics;
    let (mut low, mut high) = (0.0, 6.0);
    for _ in 0..40 {
        let sigma = (low + high) / 2.0;
        if one_hits(sigma, mean_frequency) < one_hit_share { low = sigma } else { high = sigma }
    }
    // Without a power law and a cap: the mean and the one-hit share say nothing of the tail.
    ShotNoise { mean_frequency, sigma: low, tail: f64::INFINITY, weight_cap: f64::INFINITY, ..C }
}

/// The share of keys that are asked for once, of lognormal weights with this spread and mean frequency.
fn one_hits(sigma: f64, mean_frequency: f64) -> f64 {
    const STEPS: i32 = 200;
    let grid = || (-STEPS..=STEPS).map(|step| f64::from(step) * 6.0 / f64::from(STEPS));
    let density = |z: f64| (-z * z / 2.0).exp();
    let total: f64 = grid().map(density).sum();
    let average = |scale: f64, of: fn(f64) -> f64| -> f64 {
        grid().map(|z| density(z) * of(scale * (sigma * z).exp())).sum::<f64>() / total
    };
    let (mut low, mut high) = (-60.0f64, 40.0f64);
    for _ in 0..50 {
        let log_scale = (low + high) / 2.0;
        let frequency = average(log_scale.exp(), |weight| weight + (-weight).exp());
        if frequency < mean_frequency { low = log_scale } else { high = log_scale }
    }
    average(low.exp(), |weight| (1.0 + weight) * (-weight).exp())
}

/// `86400:0.65;1209600:0.27`
fn ttls(mix: &str) -> Result<WeightedChoice<u32>, String> {
    let parts: Option<Vec<(u32, f64)>> = parts(mix).map(|part| Some((part?.0.parse().ok()?, part?.1))).collect();
    parts.and_then(WeightedChoice::new).ok_or_else(|| format!("ttl_mix `{mix}` is not SECONDS:SHARE;..."))
}

/// `get:0.96;add:0.02`
fn operations(mix: &str) -> Result<WeightedChoice<Op>, String> {
    let wrong = || format!("op_mix `{mix}` is not OPERATION:SHARE;...");
    let mut shares = [(Op::Get, 0.0), (Op::Set, 0.0), (Op::Delete, 0.0)];
    let mut fills = 0.0;
    for part in parts(mix) {
        let (name, share) = part.ok_or_else(wrong)?;
        match Op::from_name(name.as_bytes()).ok_or_else(wrong)? {
            Op::Get | Op::Gets | Op::Incr | Op::Decr => shares[0].1 += share,
            Op::Set | Op::Cas | Op::Replace | Op::Append | Op::Prepend => shares[1].1 += share,
            Op::Delete => shares[2].1 += share,
            Op::Add => fills += share,
        }
    }
    if shares[0].1 == 0.0 {
        shares[1].1 += fills;
    }
    WeightedChoice::new(shares).ok_or_else(wrong)
}

fn parts(mix: &str) -> impl Iterator<Item = Option<(&str, f64)>> {
    mix.split(';').map(|part| {
        let (name, share) = part.split_once(':')?;
        Some((name, share.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Random;

    fn row(mean: &'static str, one_hit: &'static str) -> [&'static str; COLUMNS.len()] {
        ["90", "30", "400", mean, one_hit, "60:0.6;0:0.2", "get:0.6;gets:0.1;add:0.1;cas:0.1;incr:0.1"]
    }

    #[test]
    fn the_model_meets_mean_frequency_and_one_hits() {
        for (mean, one_hit) in [("30", "23"), ("1.3", "81"), ("4.7", "7.5"), ("800", "4"), ("60", "20")] {
            let (component, span) = component(90, &row(mean, one_hit)).unwrap();
            assert_eq!(span, TWO_DAYS_SECONDS);
            let mut random = Random::new(1, 0);
            // A sample of keys by the model's spread, at the scale that the search found for the mean.
            let weights = component.model.weights(3_000_000, &mut random);
            let keys = weights.len() as f64;
            let ones = weights.iter().filter(|&&weight| random.next_poisson(weight) <= 1).count() as f64;
            let wanted = one_hit.parse::<f64>().unwrap() / 100.0;
            assert!((ones / keys / wanted - 1.0).abs() < 0.15, "{mean}, {one_hit}: {}", ones / keys);
        }
    }

    #[test]
    fn unreachable_shares_are_approximated_by_the_model() {
        let (component, _) = component(90, &row("2.0", "0.08")).unwrap();
        assert!(component.model.sigma < 0.01, "{}", component.model.sigma);
    }

    #[test]
    fn known_clusters_use_fits_and_bad_rows_corrections() {
        let of = |cluster| component(cluster, &row("30", "23")).unwrap();
        let (c, week) = of(52);
        assert_eq!((c.model.mean_frequency, week), (C.mean_frequency, WEEK_SECONDS));
        let (corrected, span) = of(4);
        assert_eq!((corrected.model.mean_frequency, span), (19.4, 65_523));
    }

    #[test]
    fn operations_are_reads_writes_and_deletes() {
        let of = |mix: &str| {
            let choice = operations(mix).unwrap();
            [0.1, 0.5, 0.95].map(|unit| choice.pick(unit))
        };
        assert_eq!(of("get:0.8;add:0.15;cas:0.1;delete:0.1"), [Op::Get, Op::Get, Op::Delete]);
        assert_eq!(of("add:1.00"), [Op::Set; 3]);
        assert_eq!(of("add:0.5;get:0.5"), [Op::Get; 3]);
        for wrong in ["", "get", "get:x", "fetch:1", "get:-1"] {
            assert!(operations(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rows_that_are_wrong_say_where() {
        for (column, cell, reason) in [
            (1, "x", "key_size `x`"),
            (3, "0.5", "mean_freq `0.5` is below 1"),
            (3, "inf", "mean_freq `inf`"),
            (5, "60", "ttl_mix `60`"),
            (6, "", "op_mix ``"),
        ] {
            let mut row = row("30", "23");
            row[column] = cell;
            let error = component(90, &row).err().unwrap();
            assert!(error.contains(reason), "{error}");
        }
    }
}
