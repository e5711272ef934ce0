//! The pools of a cache that is about to be built, and of a pool that is about to be added: their options and bytes.

use crate::compact_state::CompactPlan;
use crate::error::Error;
use crate::flash_shares;
use crate::pool_options::{DEFAULT_POOL, PoolOptions};
use ebbtide_control::{Share, SharesError, divide};
use ebbtide_store::{CompactTable, Options, Store};

/// Pools at a time. The address space of all their indexes fits a process.
pub(crate) const MAX_POOLS: u32 = 1024;

/// A store works with this much memory and twice its largest value.
const MIN_POOL_BYTES: u64 = 256 << 10;

/// A store has at least this many segments.
const MIN_SEGMENTS: u64 = 32;

/// The smallest budget with which a store works.
pub(crate) fn floor_bytes(options: &Options) -> u64 {
    min_pool_bytes(options.value_bytes_max)
}

/// The smallest memory of a pool, `default` included, of which a value has at most `max_value_bytes`.
pub const fn min_pool_bytes(max_value_bytes: u64) -> u64 {
    let of_values = max_value_bytes.saturating_mul(2);
    if of_values > MIN_POOL_BYTES { of_values } else { MIN_POOL_BYTES }
}

pub(crate) fn refuse(name: &str, error: &SharesError) -> Error {
    match error {
        SharesError::Duplicate { name } => Error::PoolExists { name: name.clone() },
        other => {
            let name = match other {
                SharesError::Name { name, .. }
                | SharesError::MinAboveMax { name, .. }
                | SharesError::FloorAboveMax { name, .. } => name,
                _ => name,
            };
            Error::Configuration { option: "pool", value: name.escape_debug().to_string(), reason: other.to_string() }
        }
    }
}

/// A share as the division counts it: its floor and its maximum are at least the smallest budget that the store can
/// reach. That budget depends on the segment size, which is that of the start of the store.
pub(crate) fn reaching(share: Share, reachable_bytes: u64) -> Share {
    let floor_bytes = share.floor_bytes.max(reachable_bytes);
    // Bounds that contradict each other are refused as they are.
    let is_refused = share.min_bytes > share.max_bytes || share.floor_bytes > share.max_bytes;
    let max_bytes = if is_refused { share.max_bytes } else { share.max_bytes.max(floor_bytes) };
    Share { floor_bytes, max_bytes, ..share }
}

/// The share of a pool among those with this template.
pub(crate) fn share_of(template: &Options, options: &PoolOptions) -> Result<Share, Error> {
    let Some(sizes) = options.compact else { return Ok(options.share(floor_bytes(&store_options(template, options)))) };
    if options.name == DEFAULT_POOL {
        let reason = "the pool default has keys of all lengths; give the compact pool another name".to_owned();
        return Err(Error::Configuration { option: "pool", value: options.name.clone(), reason });
    }
    if options.flash_share.is_some() {
        let reason =
            "a compact pool has no share of flash, as nothing of it goes there: leave the share out".to_owned();
        return Err(Error::Configuration { option: "pool", value: options.name.escape_debug().to_string(), reason });
    }
    let min_bytes = CompactTable::min_bytes(sizes).map_err(|error| Error::Configuration {
        option: "pool",
        value: options.name.escape_debug().to_string(),
        reason: error.to_string(),
    })?;
    Ok(options.share(min_bytes.max(MIN_POOL_BYTES)))
}

/// The options of a pool's store, without its memory.
pub(crate) fn store_options(template: &Options, options: &PoolOptions) -> Options {
    Options {
        policy: options.policy.unwrap_or(template.policy),
        objective: options.objective.unwrap_or(template.objective),
        value_bytes_max: options.max_value.unwrap_or(template.value_bytes_max),
        ..template.clone()
    }
}

/// A pool of a cache that is about to be built.
#[derive(Clone)]
pub(crate) struct PlannedPool {
    pub share: Share,
    pub flash_share: Option<u8>,
    /// With its part of the memory.
    pub options: Options,
}

impl PlannedPool {
    pub fn name(&self) -> &str {
        &self.share.name
    }

    /// The options of its store while others still hold its part of the memory: laid out for that part, with the
    /// smallest memory with which such a store begins, about a 32nd.
    pub fn first_options(&self) -> Options {
        let options = Options { layout_bytes: Some(self.options.layout_bytes()), ..self.options.clone() };
        let memory_bytes = self.share.floor_bytes.max(Store::start_bytes(&options));
        self.beginning(options, memory_bytes)
    }

    /// As `first_options`, where others cannot free that memory: the smallest budget, and a layout for it.
    pub fn smallest_options(&self) -> Options {
        self.beginning(self.options.clone(), self.share.floor_bytes)
    }

    /// Options with this memory, or all of the part if that is less, and segments that fit into it.
    fn beginning(&self, options: Options, memory_bytes: u64) -> Options {
        let memory_bytes = memory_bytes.min(self.options.memory_bytes);
        let max_segment_size = 1 << (memory_bytes / MIN_SEGMENTS).ilog2();
        let segment_size = Some(options.effective_segment_size().min(max_segment_size));
        Options { memory_bytes, segment_size, ..options }
    }
}

/// Compact pools with their shares.
pub(crate) type CompactPlans = Vec<(Share, CompactPlan)>;

/// The pools of a new cache, each with its bytes.
#[derive(Clone)]
pub(crate) struct Plan {
    /// The pool `default` first.
    pub stores: Vec<PlannedPool>,
    pub compact: CompactPlans,
}

impl Plan {
    /// The memory of all pools.
    pub fn memory_bytes(&self) -> u64 {
        let stores: u64 = self.stores.iter().map(|pool| pool.options.memory_bytes).sum();
        stores + self.compact.iter().map(|(_, plan)| plan.memory_bytes).sum::<u64>()
    }

    /// Whether the pool `default` is the only one.
    pub fn is_single(&self) -> bool {
        self.stores.len() == 1 && self.compact.is_empty()
    }

    /// With a memory file a store may have more than its part at first: compact pools begin with their smallest budget.
    pub fn beside_memory_file(mut self, has_memory_file: bool) -> Self {
        if has_memory_file {
            self.compact.iter_mut().for_each(|(share, plan)| plan.memory_bytes = share.floor_bytes);
        }
        self
    }
}

/// The pools of a new cache, with the bytes of each.
pub(crate) fn plan(template: &Options, pools: &[PoolOptions]) -> Result<Plan, Error> {
    plan_reaching(template, pools, |_| 0)
}

/// As `plan`, where pools of these names have stores that reach no smaller budget than the answer.
pub(crate) fn plan_reaching(
    template: &Options,
    pools: &[PoolOptions],
    reachable_bytes: impl Fn(&str) -> u64,
) -> Result<Plan, Error> {
    let default = PoolOptions::named(DEFAULT_POOL);
    let has_default = pools.iter().any(|options| options.name == DEFAULT_POOL);
    let mut all: Vec<&PoolOptions> = (!has_default).then_some(&default).into_iter().chain(pools).collect();
    all.sort_by_key(|options| (options.name != DEFAULT_POOL, options.compact.is_some()));
    let share = |pool: &&PoolOptions| Ok(reaching(share_of(template, pool)?, reachable_bytes(&pool.name)));
    let shares = all.iter().map(share).collect::<Result<Vec<Share>, Error>>()?;
    if pools.is_empty() {
        let options = store_options(template, &default);
        let planned = |share| PlannedPool { share, flash_share: None, options: options.clone() };
        return Ok(Plan { stores: shares.into_iter().map(planned).collect(), compact: Vec::new() });
    }
    let on_flash = all.iter().filter(|pool| pool.compact.is_none());
    flash_shares::check(&on_flash.map(|pool| (&*pool.name, pool.flash_share)).collect::<Vec<_>>())?;
    if shares.len() > MAX_POOLS as usize {
        let reason = format!("{} pools, and a cache has at most {MAX_POOLS}: give fewer", shares.len());
        return Err(Error::Configuration { option: "pool", value: pools[0].name.clone(), reason });
    }
    let bytes = divide(template.memory_bytes, &shares).map_err(|error| refuse(&pools[0].name, &error))?;
    let mut plan = Plan { stores: Vec::new(), compact: Vec::new() };
    for (number, ((pool, share), memory_bytes)) in (0..).zip(all.into_iter().zip(shares).zip(bytes)) {
        // A stranger who learns the seed of one pool does not know those of the others.
        let seed = template.seed.wrapping_add(number);
        match pool.compact {
            Some(sizes) => plan.compact.push((share, CompactPlan { sizes, memory_bytes, seed })),
            None => {
                let options = Options { memory_bytes, seed, ..store_options(template, pool) };
                plan.stores.push(PlannedPool { share, flash_share: pool.flash_share, options });
            }
        }
    }
    Ok(plan)
}
