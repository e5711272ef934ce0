//! Pools of a server: which groups can have one, the minimum of each, and the flags that give them their memory.
//!
//! A pool holds two of the largest values of its server (`-I`), `default` included. Where that is more than the pools
//! deserve, a smaller `-I` lowers the minimum, as far as the longest value of the trace allows.

use std::iter;

use ebbtide::memcached::min_pool_bytes;
use ebbtide_control::check_name;
use serde::Serialize;

use crate::trace::NO_LABEL;

const MIB: u64 = 1 << 20;
/// The pool of all keys without a pool of their own.
pub(super) const DEFAULT_POOL: &str = "default";
/// The largest weight of a pool, and the part by which rounding may change one.
const WEIGHT_MAX: u64 = 1_000_000;
const WEIGHT_ERROR: f64 = 0.01;
/// Largest value of a server by default, and the largest that `-I` takes.
pub(super) const DEFAULT_MAX_VALUE: u64 = MIB;
const MAX_VALUE_LIMIT: u64 = 1 << 30;
/// Smaller ones do not lower the minimum of a pool.
const SMALLEST_MAX_VALUE: u64 = min_pool_bytes(0) / 2;

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

/// Whether keys of this label have a prefix for `--pool`. The label of a key that is not text has none.
pub(super) fn is_prefix(label: &str) -> bool {
    label != NO_LABEL && !label.contains('\\')
}

/// Whether this label names a pool other than `default`.
pub(super) fn is_pool(label: &str) -> bool {
    label != NO_LABEL && label != DEFAULT_POOL
}

/// Values of `-I` that hold the longest value, the default first and then halves of it.
pub(super) fn max_values(longest_bytes: u64) -> Vec<u64> {
    if longest_bytes > DEFAULT_MAX_VALUE {
        return vec![longest_bytes.next_power_of_two().min(MAX_VALUE_LIMIT)];
    }
    let halves = iter::successors(Some(DEFAULT_MAX_VALUE), |bytes| Some(bytes / 2));
    halves.take_while(|&bytes| bytes >= SMALLEST_MAX_VALUE.max(longest_bytes)).collect()
}

/// Number of groups that have a pool beside `default` in this memory, so that minimums are half of it at most.
pub(super) fn max_pools(memory_bytes: u64, longest_bytes: u64) -> usize {
    let smallest = max_values(longest_bytes).last().map_or(u64::MAX, |&bytes| min_pool_bytes(bytes));
    (memory_bytes / smallest.saturating_mul(2)).saturating_sub(1).max(1) as usize
}

/// A size as `-I` takes it.
pub(super) fn max_value_flag(bytes: u64) -> String {
    match bytes.is_multiple_of(MIB) {
        true => format!("-I {}m", bytes / MIB),
        false => format!("-I {}k", bytes >> 10),
    }
}

/// The command of a server whose pools have this memory; `memory_bytes` is whole MiB. Groups beside `own` share the
/// rest in the pool `default`. Every argument is one word of a shell.
pub(super) fn flags(own: &[&PoolShare], memory_bytes: u64, max_value_bytes: u64, delimiter: u8) -> String {
    let rest = memory_bytes.saturating_sub(own.iter().map(|pool| pool.memory_bytes).sum());
    let bytes: Vec<u64> = own.iter().map(|pool| pool.memory_bytes).chain([rest]).collect();
    let weights = weights(&bytes);
    let of_pools = own.iter().zip(names(own).into_iter().zip(&weights)).map(|(pool, (name, weight))| {
        let prefix = format!("{}{}", pool.name, char::from(delimiter));
        format!("{}:prefix={},weight={weight}", escaped(&name, &[':', ',']), escaped(&prefix, &[',']))
    });
    let of_default = weights.last().map(|weight| format!("{DEFAULT_POOL}:weight={weight}"));
    let flags: String = of_pools.chain(of_default).map(|pool| format!(" --pool {}", shell_word(&pool))).collect();
    let max_value = match max_value_bytes {
        DEFAULT_MAX_VALUE => String::new(),
        bytes => format!(" {}", max_value_flag(bytes)),
    };
    format!("ebbtide -m {}{max_value}{flags}", memory_bytes / MIB)
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

    fn flags_of(pools: &[PoolShare], memory_bytes: u64, delimiter: u8) -> String {
        flags(&pools.iter().collect::<Vec<_>>(), memory_bytes, DEFAULT_MAX_VALUE, delimiter)
    }

    #[test]
    fn flags_name_pools_and_give_default_the_rest() {
        let pools = [pool("users", 40 << 10), pool("feed", 20 << 10)];
        assert_eq!(
            flags_of(&pools, 64 * MIB, b':'),
            "ebbtide -m 64 --pool users:prefix=users:,weight=40 --pool feed:prefix=feed:,weight=20 --pool default:weight=4"
        );
    }

    #[test]
    fn every_argument_is_one_word_of_a_shell() {
        let hostile = ["$(id)", "`w`", "x;y|z", "it's", "a b", "a,b"];
        let pools: Vec<PoolShare> = hostile.iter().map(|name| pool(name, 1024)).collect();
        assert_eq!(
            flags_of(&pools, 8 * MIB, b':'),
            "ebbtide -m 8 --pool '$(id):prefix=$(id):,weight=1' --pool '`w`:prefix=`w`:,weight=1' \
             --pool 'x;y|z:prefix=x;y|z:,weight=1' --pool 'it'\\''s:prefix=it'\\''s:,weight=1' \
             --pool 'pool1:prefix=a b:,weight=1' --pool 'a\\,b:prefix=a\\,b:,weight=1' --pool default:weight=2"
        );
    }

    #[test]
    fn an_unusable_prefix_gets_a_numbered_name() {
        let long = "x".repeat(65);
        let pools = [pool("default", 1024), pool("pool1", 1024), pool(&long, 1024)];
        assert_eq!(
            flags_of(&pools, 4 * MIB, b'/'),
            format!(
                "ebbtide -m 4 --pool pool2:prefix=default/,weight=1 --pool pool1:prefix=pool1/,weight=1 \
                 --pool pool3:prefix={long}/,weight=1 --pool default:weight=1"
            )
        );
    }

    #[test]
    fn labels_that_are_no_prefix_have_no_pool() {
        assert_eq!(["users", NO_LABEL, "\\xff", DEFAULT_POOL].map(is_prefix), [true, false, false, true]);
        assert_eq!(["users", NO_LABEL, DEFAULT_POOL].map(is_pool), [true, false, false]);
    }

    #[test]
    fn the_longest_value_bounds_a_smaller_limit() {
        let kib = |longest: u64| max_values(longest).iter().map(|bytes| bytes >> 10).collect::<Vec<_>>();
        assert_eq!(kib(0), [1024, 512, 256, 128]);
        assert_eq!(kib(200 << 10), [1024, 512, 256]);
        assert_eq!((kib(1 << 20), kib((1 << 20) + 1)), (vec![1024], vec![2048]));
        assert_eq!(kib(u64::from(u32::MAX)), [1 << 20]);
        assert_eq!([MIB, 2 * MIB, 8 * MIB].map(|memory| max_pools(memory, 0)), [1, 3, 15]);
        assert_eq!([128 << 10, 2 * MIB].map(max_value_flag), ["-I 128k", "-I 2m"]);
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
