//! Which pools or prefixes deserve what: the memory divided where it earns hits.

use ebbtide::memcached::min_pool_bytes;
use ebbtide_control::division::{Tenant, divide};
use serde::Serialize;

use super::pool_flags::{DEFAULT_MAX_VALUE, DEFAULT_POOL, PoolShare, flags, max_value_flag, max_values};
use super::units::size;
use crate::mrc::{GroupLoad, TraceLoad};
use crate::trace::PoolsBy;

/// A division moves this part of the memory at a time.
const STEPS: u64 = 1024;
/// Pools that gain less than this part of all gets are not worth their flags.
const WORTHWHILE: f64 = 0.005;
/// Minimums of pools may cost this part of the memory before a smaller `-I` lowers them.
const MINIMUMS_COST: f64 = 0.01;
const MIB: u64 = 1 << 20;

/// One memory divided among groups of keys.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PoolAdvice {
    pub by: &'static str,
    /// Whole MiB, as a server takes them.
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
    /// `-I` of that server, and the memory that each of its pools has at least.
    pub max_value_bytes: u64,
    pub min_pool_bytes: u64,
    /// Memory of the pool of all other keys, if the trace has none of them.
    pub unused_default_bytes: u64,
    /// Pools that deserve less than the minimum, with the memory that they deserve.
    pub at_minimum: Vec<(String, u64)>,
    /// Limitations of the result, in sentences.
    #[serde(skip)]
    pub caveats: Vec<String>,
}

/// Memory of each group of the trace as it is, and the limits of pools.
struct Shares {
    bytes: Vec<u64>,
    /// Without minimums.
    unbounded: Vec<u64>,
    max_value_bytes: u64,
    unused_default_bytes: u64,
}

/// Memory of a server in whole MiB, at least `memory_bytes`.
pub(super) fn whole_mib(memory_bytes: u64) -> u64 {
    memory_bytes.div_ceil(MIB).saturating_mul(MIB)
}

/// Divides `asked_bytes`, in whole MiB, or returns the reason why this is not possible.
pub(super) fn advise(
    load: &TraceLoad,
    groups: &[GroupLoad],
    (by, delimiter): (PoolsBy, u8),
    asked_bytes: u64,
    dram_price: f64,
) -> Result<PoolAdvice, String> {
    let by_name = match by {
        PoolsBy::Prefix => "prefix",
        PoolsBy::Pool => "pool",
    };
    if groups.len() < 2 {
        return Err(format!("--by {by_name}: all gets are of one {by_name}: there is nothing to divide"));
    }
    let memory_bytes = whole_mib(asked_bytes);
    let sample = u64::from(load.sample);
    let tenants: Vec<Tenant> = groups.iter().map(|group| tenant(group, 0)).collect();
    let shares = shares(load, groups, memory_bytes).map_err(|reason| format!("--by {by_name}: {reason}"))?;
    let bytes = &shares.bytes;
    let gets: f64 = tenants.iter().map(|tenant| tenant.gets).sum();
    let hits = |at: usize, bytes: u64| 1.0 - tenants[at].curve.miss_ratio_at(bytes).unwrap_or(1.0);
    let together =
        |bytes: &[u64]| (0..tenants.len()).map(|at| tenants[at].gets / gets * hits(at, bytes[at])).sum::<f64>();
    let footprint: u64 = groups.iter().map(|group| group.footprint_bytes).sum::<u64>().max(1);
    let total = memory_bytes / sample;
    let part = |group: &GroupLoad| (total as f64 * group.footprint_bytes as f64 / footprint as f64) as u64;
    let proportional: Vec<u64> = groups.iter().map(part).collect();
    let shared = load.engine.miss_ratio_at(memory_bytes);
    let shared_hit_ratio = 1.0 - shared.ok_or_else(|| format!("no cache has {}", size(memory_bytes as f64)))?;
    let divided_hit_ratio = together(bytes);
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
    let own: Vec<&PoolShare> =
        pools.iter().zip(groups).filter(|(_, group)| !group.is_rest).map(|(pool, _)| pool).collect();
    let has_flags = pays && by == PoolsBy::Prefix;
    let min_pool_bytes = min_pool_bytes(shares.max_value_bytes);
    let at_minimum = groups.iter().zip(&shares.unbounded).map(|(group, bytes)| (group.name.clone(), bytes * sample));
    let mut advice = PoolAdvice {
        by: by_name,
        memory_bytes,
        shared_hit_ratio,
        divided_hit_ratio,
        proportional_hit_ratio: together(&proportional),
        pays,
        flags: has_flags.then(|| flags(&own, memory_bytes, shares.max_value_bytes, delimiter)),
        max_value_bytes: shares.max_value_bytes,
        min_pool_bytes,
        unused_default_bytes: shares.unused_default_bytes,
        at_minimum: at_minimum.filter(|(_, bytes)| *bytes < min_pool_bytes).collect(),
        pools,
        caveats: Vec::new(),
    };
    advice.caveats = advice.limitations(load, asked_bytes, together(&shares.unbounded));
    Ok(advice)
}

fn tenant(group: &GroupLoad, min_bytes: u64) -> Tenant {
    Tenant { curve: group.curve.clone(), gets: group.gets as f64, value: 1.0, min_bytes, max_bytes: u64::MAX }
}

/// Divides the memory of a server among its pools, of which each has the minimum, `default` included. The server's
/// largest value is the default where its minimums cost little, otherwise the largest that does not, or the smallest.
fn shares(load: &TraceLoad, groups: &[GroupLoad], memory_bytes: u64) -> Result<Shares, String> {
    let sample = u64::from(load.sample);
    let total = memory_bytes / sample;
    let divided = |min_bytes: u64, total: u64| {
        let tenants: Vec<Tenant> = groups.iter().map(|group| tenant(group, min_bytes)).collect();
        divide(&tenants, total, (total / STEPS).max(1))
            .map(|division| division.bytes)
            .map_err(|error| error.to_string())
    };
    let unbounded = divided(0, total)?;
    let is_default_unused = !groups.iter().any(|group| group.is_rest);
    let cost = |min_bytes: u64| {
        let missing: u64 = unbounded.iter().map(|bytes| min_bytes.saturating_sub(bytes * sample)).sum();
        missing + if is_default_unused { min_bytes } else { 0 }
    };
    let max_values = max_values(load.longest_value_bytes());
    let is_cheap = |bytes: &&u64| cost(min_pool_bytes(**bytes)) as f64 <= memory_bytes as f64 * MINIMUMS_COST;
    let max_value_bytes = *max_values.iter().find(is_cheap).or(max_values.last()).expect("one holds each value");
    let min_bytes = min_pool_bytes(max_value_bytes);
    let pools = groups.len() as u64 + u64::from(is_default_unused);
    if min_bytes.saturating_mul(pools) > memory_bytes {
        return Err(format!(
            "{pools} pools of a server, {DEFAULT_POOL} included, need {} each with {}, {} together, and {} are divided: \
             give more with --memory",
            size(min_bytes as f64),
            max_value_flag(max_value_bytes),
            size(min_bytes.saturating_mul(pools) as f64),
            size(memory_bytes as f64)
        ));
    }
    let unused_default_bytes = if is_default_unused { min_bytes } else { 0 };
    let bytes = divided(min_bytes.div_ceil(sample), total - unused_default_bytes.div_ceil(sample))?;
    Ok(Shares { bytes, unbounded, max_value_bytes, unused_default_bytes })
}

impl PoolAdvice {
    fn limitations(&self, load: &TraceLoad, asked_bytes: u64, unbounded_hit_ratio: f64) -> Vec<String> {
        let mut caveats = Vec::new();
        let min = size(self.min_pool_bytes as f64);
        let flag = max_value_flag(self.max_value_bytes);
        if self.memory_bytes != asked_bytes {
            let (memory, asked) = (size(self.memory_bytes as f64), size(asked_bytes as f64));
            caveats.push(format!("a server has whole MiB: {memory} are divided, not {asked}"));
        }
        if self.unused_default_bytes > 0 {
            caveats.push(format!("the pool {DEFAULT_POOL}, for all other keys, has the minimum of a pool, {min}"));
        }
        if !self.at_minimum.is_empty() {
            let named = |(name, bytes): &(String, u64)| format!("{name} {}", size(*bytes as f64));
            let named: Vec<String> = self.at_minimum.iter().map(named).collect();
            caveats.push(format!(
                "without the minimum of a pool, {min} with {flag}, {} would be enough, and pools would hit {:.1} %",
                named.join(", "),
                unbounded_hit_ratio * 100.0
            ));
        }
        if self.flags.is_some() && self.max_value_bytes < DEFAULT_MAX_VALUE {
            caveats.push(format!(
                "{flag} lowers the minimum of a pool from {} to {min}; the server refuses longer values, and the \
                 longest of the trace has {}",
                size(min_pool_bytes(DEFAULT_MAX_VALUE) as f64),
                size(load.longest_value_bytes() as f64)
            ));
        }
        let objects: u64 = self.pools.iter().map(|pool| pool.objects).sum();
        if objects > load.objects as u64 {
            let (more, by) = (objects - load.objects as u64, self.by);
            caveats.push(format!("{more} objects more than keys: a key that several {by}s use is an object of each"));
        }
        caveats
    }
}
