//! Which pools or prefixes deserve what: the memory divided where it earns hits.

use ebbtide_control::check_name;
use ebbtide_control::division::{Tenant, divide};
use serde::Serialize;

use super::flags::SizeFlags;
use super::units::size;
use crate::mrc::{GroupLoad, TraceLoad};
use crate::trace::{NO_LABEL, PoolsBy};

/// A division moves this part of the memory at a time.
const STEPS: u64 = 1024;
/// Pools that gain less than this part of all gets are not worth their flags.
const WORTHWHILE: f64 = 0.005;
const MIB: u64 = 1 << 20;
/// The pool of all keys without a pool of their own.
const DEFAULT_POOL: &str = "default";
/// The largest weight of a pool, and the part by which rounding may change one.
const WEIGHT_MAX: u64 = 1_000_000;
const WEIGHT_ERROR: f64 = 0.02;
/// Pools with options of their own that a line of flags lists.
const LISTED: usize = 8;

/// One memory divided among groups of keys.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PoolAdvice {
    pub by: &'static str,
    pub memory_bytes: u64,
    /// Of one cache without pools.
    pub shared_hit_ratio: f64,
    /// Of pools with the memory that they deserve.
    pub divided_hit_ratio: f64,
    /// Of pools with memory in proportion to the bytes of their objects.
    pub proportional_hit_ratio: f64,
    pub pays: bool,
    pub pools: Vec<PoolShare>,
    /// Flags of a server with these pools, and its memory, which holds two of the largest values in each pool.
    pub flags: Option<String>,
    pub server_memory_bytes: Option<u64>,
}

/// The memory that one group deserves.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PoolShare {
    pub name: String,
    pub share_of_gets: f64,
    pub objects: u64,
    pub footprint_bytes: u64,
    pub memory_bytes: u64,
    pub price: f64,
    pub hit_ratio: f64,
    /// Hits among a million gets of all groups that one more MiB for this one earns.
    pub hits_per_million_of_next_mib: f64,
}

/// Divides `memory_bytes`, or returns the reason why this is not possible.
pub(super) fn advise(
    load: &TraceLoad,
    groups: &[GroupLoad],
    (by, delimiter): (PoolsBy, u8),
    memory_bytes: u64,
    dram_price: f64,
) -> Result<PoolAdvice, String> {
    let by_name = match by {
        PoolsBy::Prefix => "prefix",
        PoolsBy::Pool => "pool",
    };
    let sample = u64::from(load.sample);
    let tenant = |group: &GroupLoad| Tenant {
        curve: group.curve.clone(),
        gets: group.gets as f64,
        value: 1.0,
        min_bytes: 0,
        max_bytes: u64::MAX,
    };
    let tenants: Vec<Tenant> = groups.iter().map(tenant).collect();
    let total = memory_bytes / sample;
    if tenants.len() < 2 {
        return Err(format!("--by {by_name}: all gets are of one {by_name}: there is nothing to divide"));
    }
    let too_small =
        || format!("--by {by_name}: {} are too few to divide: give more with --memory", size(memory_bytes as f64));
    if total < STEPS {
        return Err(too_small());
    }
    let bytes = divide(&tenants, total, total / STEPS).map_err(|error| format!("--by {by_name}: {error}"))?.bytes;
    let gets: f64 = tenants.iter().map(|tenant| tenant.gets).sum();
    let hits = |at: usize, bytes: u64| 1.0 - tenants[at].curve.miss_ratio_at(bytes).unwrap_or(1.0);
    let together =
        |bytes: &[u64]| (0..tenants.len()).map(|at| tenants[at].gets / gets * hits(at, bytes[at])).sum::<f64>();
    let footprint: u64 = groups.iter().map(|group| group.footprint_bytes).sum::<u64>().max(1);
    let part = |group: &GroupLoad| (total as f64 * group.footprint_bytes as f64 / footprint as f64) as u64;
    let proportional: Vec<u64> = groups.iter().map(part).collect();
    let shared_hit_ratio = 1.0 - load.engine.miss_ratio_at(memory_bytes).ok_or_else(too_small)?;
    let divided_hit_ratio = together(&bytes);
    let pools = groups.iter().enumerate().map(|(at, group)| PoolShare {
        name: group.name.clone(),
        share_of_gets: group.gets as f64 / gets,
        objects: group.objects as u64 * sample,
        footprint_bytes: group.footprint_bytes * sample,
        memory_bytes: bytes[at] * sample,
        price: (bytes[at] * sample) as f64 * dram_price / (1_u64 << 30) as f64,
        hit_ratio: hits(at, bytes[at]),
        hits_per_million_of_next_mib: (1e6 * group.gets as f64 / gets * group.curve.marginal_hits_per_mib(bytes[at])
            / sample as f64)
            .max(0.0),
    });
    let pools: Vec<PoolShare> = pools.collect();
    let pays = divided_hit_ratio - shared_hit_ratio > WORTHWHILE;
    let command = (pays && by == PoolsBy::Prefix).then(|| flags(&pools, memory_bytes, delimiter)).unzip();
    Ok(PoolAdvice {
        by: by_name,
        memory_bytes,
        shared_hit_ratio,
        divided_hit_ratio,
        proportional_hit_ratio: together(&proportional),
        pays,
        flags: command.0,
        server_memory_bytes: command.1,
        pools,
    })
}

impl PoolAdvice {
    /// A note if the server needs more memory than is divided.
    pub fn caveat(&self) -> Option<String> {
        let bytes = self.server_memory_bytes.filter(|bytes| *bytes >= self.memory_bytes + MIB)?;
        Some(format!(
            "the command with pools has {}: a pool of a server has twice its largest value (-I) at least",
            size(bytes as f64)
        ))
    }
}

/// The command of a server whose pools have this memory, or the least of a server, and the memory. Every argument is
/// one word of a shell.
fn flags(pools: &[PoolShare], memory_bytes: u64, delimiter: u8) -> (String, u64) {
    // The label of a key that is not text is no prefix.
    let has_prefix =
        |pool: &&PoolShare| pool.name != NO_LABEL && !pool.name.contains('\\') && !pool.name.ends_with(" others");
    let listed: Vec<&PoolShare> = pools.iter().filter(has_prefix).take(LISTED).collect();
    let rest = memory_bytes.saturating_sub(listed.iter().map(|pool| pool.memory_bytes).sum());
    let bytes: Vec<u64> = listed.iter().map(|pool| pool.memory_bytes).chain([rest]).collect();
    let weights = weights(&bytes);
    let names = names(&listed);
    let of_pools = listed.iter().zip(names.iter().zip(&weights)).map(|(pool, (name, weight))| {
        let prefix = format!("{}{}", pool.name, char::from(delimiter));
        format!("{}:prefix={},weight={weight}", escaped(name, &[':', ',']), escaped(&prefix, &[',']))
    });
    let of_default = weights.last().map(|weight| format!("{DEFAULT_POOL}:weight={weight}"));
    let flags: String = of_pools.chain(of_default).map(|pool| format!(" --pool {}", shell_word(&pool))).collect();
    let memory_mib = SizeFlags::of_pools(memory_bytes, names.len() + 1);
    (format!("ebbtide -m {memory_mib}{flags}"), memory_mib * MIB)
}

/// A name for each pool: its prefix, or a number where that is no name.
fn names(pools: &[&PoolShare]) -> Vec<String> {
    let is_name = |name: &str| name != DEFAULT_POOL && check_name(name).is_ok();
    let is_taken = |name: &String| pools.iter().any(|pool| pool.name == *name);
    let mut numbered = (1..).map(|number| format!("pool{number}")).filter(|name| !is_taken(name));
    let name = |pool: &&PoolShare| match is_name(&pool.name) {
        true => pool.name.clone(),
        false => numbered.next().expect("numbers do not end"),
    };
    pools.iter().map(name).collect()
}

/// Weights in the largest unit in which the ratios hold.
fn weights(bytes: &[u64]) -> Vec<u64> {
    let in_unit = |unit: f64| move |bytes: &u64| (*bytes as f64 / unit).round() as u64;
    let holds = |unit: f64| {
        bytes.iter().all(|&bytes| {
            let weight = in_unit(unit)(&bytes);
            weight <= WEIGHT_MAX && (weight as f64 * unit - bytes as f64).abs() <= WEIGHT_ERROR * bytes as f64
        })
    };
    let largest = bytes.iter().copied().max().unwrap_or(1).max(1) as f64;
    let units = [MIB as f64, 1024.0, 1.0];
    let unit = units.into_iter().find(|&unit| holds(unit)).unwrap_or(largest / WEIGHT_MAX as f64);
    bytes.iter().map(in_unit(unit)).map(|weight| weight.max(1)).collect()
}

/// A text in the syntax of `--pool`, with a backslash before characters that would end it.
fn escaped(text: &str, ends: &[char]) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if character == '\\' || ends.contains(&character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// One word of a shell.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, kib: u64) -> PoolShare {
        PoolShare {
            name: name.to_owned(),
            share_of_gets: 0.5,
            objects: 1,
            footprint_bytes: 1,
            memory_bytes: kib << 10,
            price: 0.0,
            hit_ratio: 0.5,
            hits_per_million_of_next_mib: 0.0,
        }
    }

    #[test]
    fn flags_name_pools_and_give_default_the_rest() {
        let pools = [pool("users", 40 << 10), pool("feed", 20 << 10), pool(NO_LABEL, 4 << 10)];
        assert_eq!(
            flags(&pools, 64 * MIB, b':').0,
            "ebbtide -m 64 --pool users:prefix=users:,weight=40 --pool feed:prefix=feed:,weight=20 --pool default:weight=4"
        );
    }

    #[test]
    fn every_argument_is_one_word_of_a_shell() {
        let hostile = ["$(id)", "`w`", "x;y|z", "it's", "a b", "a,b"];
        let pools: Vec<PoolShare> = hostile.iter().map(|name| pool(name, 1024)).collect();
        assert_eq!(
            flags(&pools, 8 * MIB, b':').0,
            "ebbtide -m 14 --pool '$(id):prefix=$(id):,weight=1' --pool '`w`:prefix=`w`:,weight=1' \
             --pool 'x;y|z:prefix=x;y|z:,weight=1' --pool 'it'\\''s:prefix=it'\\''s:,weight=1' \
             --pool 'pool1:prefix=a b:,weight=1' --pool 'a\\,b:prefix=a\\,b:,weight=1' --pool default:weight=2"
        );
    }

    #[test]
    fn an_unusable_prefix_gets_a_numbered_name() {
        let long = "x".repeat(65);
        let pools = [pool("default", 1024), pool("pool1", 1024), pool(&long, 1024)];
        assert_eq!(
            flags(&pools, 4 * MIB, b'/').0,
            format!(
                "ebbtide -m 8 --pool pool2:prefix=default/,weight=1 --pool pool1:prefix=pool1/,weight=1 \
                 --pool pool3:prefix={long}/,weight=1 --pool default:weight=1"
            )
        );
    }

    #[test]
    fn weights_keep_the_ratios_of_the_memory() {
        assert_eq!(weights(&[497 << 10, 103 << 10]), [497, 103]);
        assert_eq!(weights(&[5 * MIB, 3 * MIB, 0]), [5, 3, 1]);
        for bytes in [[497 << 10, 103 << 10], [7 * MIB + 512 * 1024, 900], [100 << 30, 30 << 20], [1, 3]] {
            let found = weights(&bytes);
            let (found, real) = (found[0] as f64 / found[1] as f64, bytes[0] as f64 / bytes[1] as f64);
            assert!((found / real - 1.0).abs() < 0.05, "{bytes:?}");
        }
        assert!(weights(&[1 << 50, 1]).iter().all(|weight| (1..=WEIGHT_MAX).contains(weight)));
    }
}
