//! Which pools or prefixes deserve what: the memory divided where it earns hits.

use ebbtide_control::division::{Tenant, divide};
use serde::Serialize;

use super::units::size;
use crate::mrc::{GroupLoad, TraceLoad};
use crate::trace::{NO_LABEL, PoolsBy};

/// A division moves this part of the memory at a time.
const STEPS: u64 = 1024;
/// Pools that gain less than this part of all gets are not worth their flags.
const WORTHWHILE: f64 = 0.005;
const MIB: u64 = 1 << 20;
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
    /// Flags of a server with these pools.
    pub flags: Option<String>,
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

/// Divides `memory_bytes`, or says why there is nothing to divide.
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
    Ok(PoolAdvice {
        by: by_name,
        memory_bytes,
        shared_hit_ratio,
        divided_hit_ratio,
        proportional_hit_ratio: together(&proportional),
        pays,
        flags: (pays && by == PoolsBy::Prefix).then(|| flags(&pools, memory_bytes, delimiter)),
        pools,
    })
}

/// Flags of a server whose pools have this memory: the weight of a pool is its memory in MiB.
fn flags(pools: &[PoolShare], memory_bytes: u64, delimiter: u8) -> String {
    let is_plain = |pool: &&PoolShare| {
        pool.name != NO_LABEL && !pool.name.contains([' ', ',', '\\', ':']) && !pool.name.ends_with(" others")
    };
    let listed: Vec<&PoolShare> = pools.iter().filter(is_plain).take(LISTED).collect();
    let mib = |bytes: u64| (bytes / MIB).max(1);
    let flag = |pool: &&PoolShare| {
        let (name, weight) = (&pool.name, mib(pool.memory_bytes));
        format!(" --pool {name}:prefix={name}{},weight={weight}", char::from(delimiter))
    };
    let rest = memory_bytes.saturating_sub(listed.iter().map(|pool| pool.memory_bytes).sum());
    let flags: String = listed.iter().map(flag).collect();
    format!("ebbtide -m {}{flags} --pool default:weight={}", mib(memory_bytes), mib(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_name_the_pools_and_leave_the_rest_to_default() {
        let pool = |name: &str, mib: u64| PoolShare {
            name: name.to_owned(),
            share_of_gets: 0.5,
            objects: 1,
            footprint_bytes: 1,
            memory_bytes: mib * MIB,
            price: 0.0,
            hit_ratio: 0.5,
            hits_per_million_of_next_mib: 0.0,
        };
        let pools = [pool("users", 40), pool("feed", 20), pool(NO_LABEL, 4)];
        assert_eq!(
            flags(&pools, 64 * MIB, b':'),
            "ebbtide -m 64 --pool users:prefix=users:,weight=40 --pool feed:prefix=feed:,weight=20 --pool default:weight=4"
        );
    }
}
