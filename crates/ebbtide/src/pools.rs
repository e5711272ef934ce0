//! The pools of an engine, and the division of memory among them.
//!
//! Each pool is a store in the memory of the engine. `pool_table.rs` knows how much of it each one has, and
//! `pool_budgets.rs` moves it. A new pool begins when the others have freed its first budget. A removed pool whose
//! handles still exist keeps its smallest budget, until the last handle is dropped.

use crate::compact_pools::{CompactEntry, CompactPools};
use crate::compact_state::{CompactPlan, CompactState};
use crate::error::Error;
use crate::flash::memory_split::ItemMemory;
use crate::flash::tier::FlashTier;
use crate::memory_file::QuietPools;
use crate::pool_budgets::PoolEntry;
use crate::pool_options::PoolOptions;
pub(crate) use crate::pool_plan::{MAX_POOLS, Plan, PlannedPool, plan};
use crate::pool_plan::{plan_reaching, refuse, share_of, store_options};
use crate::pool_refusals::{BudgetRefusal, BudgetRefusals};
use crate::pool_state::PoolState;
use crate::pool_stats::{add_counters, add_gauges};
use crate::pool_table::{PoolTable, Step};
use crate::pool_wishes::{PoolBudget, PoolWishes};
use ebbtide_control::{Share, check_name};
use ebbtide_store::{EngineMemory, Options, Stats, Store};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The pools of an engine.
pub(crate) struct Pools {
    table: Mutex<PoolTable>,
    /// One pool at a time is added.
    adding: Mutex<()>,
    /// False while budgets approach their targets: see `settle`.
    is_settled: AtomicBool,
    /// Whether `is_settled` stands for a division that cannot proceed now.
    is_stalled: AtomicBool,
    /// Microseconds since the charges of pools were looked at.
    charges_micros: AtomicU64,
}

/// Interval between checks of the pools' charges for the index of flash, which follow the writes to flash. A division
/// that is stalled is retried at the same interval.
const CHARGES_MICROS: u64 = 1_000_000;

/// A pool that is about to be added.
pub(crate) struct JoiningPool {
    pub share: Share,
    flash_share: Option<u8>,
    kind: JoiningKind,
}

enum JoiningKind {
    Store { first: Options, smallest: Options },
    Compact(CompactPlan),
}

impl JoiningPool {
    /// The memory with which it begins.
    pub fn first_bytes(&self) -> u64 {
        self.kind.memory_bytes()
    }
}

impl JoiningKind {
    /// The first budget of the pool.
    fn memory_bytes(&self) -> u64 {
        match self {
            Self::Store { first, .. } => first.memory_bytes,
            Self::Compact(plan) => plan.memory_bytes,
        }
    }
}

/// A pool by its handle: another pool may have its name by now.
#[derive(Clone, Copy)]
pub(crate) enum PoolRef<'p> {
    Store(&'p PoolState),
    Compact(&'p CompactState),
}

impl<'p> PoolRef<'p> {
    /// The name, which is the pool's own while the table is locked: pools are removed under its lock.
    fn present_name(self, _table: &PoolTable) -> Result<&'p str, Error> {
        match self {
            Self::Store(pool) => pool.check_present().map(|()| &*pool.name),
            Self::Compact(pool) => pool.check_present().map(|()| &*pool.name),
        }
    }
}

impl Pools {
    /// With the memory of all pools and of flash in the template.
    pub fn new(
        template: Options,
        pools: Vec<(Share, Option<u8>, Arc<PoolState>)>,
        compact: Vec<(Share, Arc<CompactState>)>,
        flash: Option<Arc<FlashTier>>,
    ) -> Self {
        let entry = |(share, flash_share, pool): (Share, Option<u8>, Arc<PoolState>)| {
            let target_bytes = pool.store.memory_bytes();
            PoolEntry { share, pool, target_bytes, flash_share }
        };
        let entries = pools.into_iter().map(entry).collect();
        let compact_entry = |(share, pool): (Share, Arc<CompactState>)| {
            let target_bytes = pool.table.memory_bytes();
            CompactEntry { share, pool, target_bytes }
        };
        let compact = CompactPools { entries: compact.into_iter().map(compact_entry).collect(), removed: Vec::new() };
        let mut table = PoolTable {
            entries,
            removed: Vec::new(),
            compact,
            dropped: Stats::default(),
            memory_bytes: template.memory_bytes,
            flash,
            wishes: PoolWishes::default(),
            refusals: BudgetRefusals::default(),
            joining: None,
            sweep_from: 0,
            charges: Vec::new(),
            paid_bytes: HashMap::new(),
            seeds: 0,
            template,
        };
        table.seeds = (table.entries.len() + table.compact.entries.len()) as u64;
        table.divide_flash();
        // The shares fit, and were divided so. Stores of a memory file have other budgets; one by itself has a larger
        // one if its index does not fit its own yet.
        let is_settled = match table.is_single() {
            true => table.bring_single_within(),
            false => table.divide_beyond_reach().is_err(),
        };
        Self {
            table: Mutex::new(table),
            adding: Mutex::default(),
            is_settled: AtomicBool::new(is_settled),
            is_stalled: AtomicBool::new(false),
            charges_micros: AtomicU64::new(0),
        }
    }

    fn table(&self) -> MutexGuard<'_, PoolTable> {
        self.table.lock().expect("nothing panics under this lock")
    }

    pub fn find(&self, name: &str) -> Result<Arc<PoolState>, Error> {
        let table = self.table();
        match table.entries.iter().find(|entry| entry.share.name == name) {
            Some(entry) => Ok(Arc::clone(&entry.pool)),
            None if table.compact.find(name).is_some() => {
                let (kind, method) = ("a compact pool", "compact_pool");
                Err(Error::PoolKind { name: name.escape_debug().to_string(), kind, method })
            }
            None => Err(Error::UnknownPool { name: name.escape_debug().to_string() }),
        }
    }

    pub fn find_compact(&self, name: &str) -> Result<Arc<CompactState>, Error> {
        let table = self.table();
        match table.compact.find(name) {
            Some(pool) => Ok(Arc::clone(pool)),
            None if table.entries.iter().any(|entry| entry.share.name == name) => {
                let (kind, method) = ("no compact pool", "pool");
                Err(Error::PoolKind { name: name.escape_debug().to_string(), kind, method })
            }
            None => Err(Error::UnknownPool { name: name.escape_debug().to_string() }),
        }
    }

    /// The names of all pools, the compact ones last.
    pub fn names(&self) -> Vec<String> {
        let table = self.table();
        let stores = table.entries.iter().map(|entry| entry.share.name.clone());
        stores.chain(table.compact.shares().map(|share| share.name)).collect()
    }

    /// All compact pools, removed ones included, while a budget has not reached its target.
    pub fn changing_compact(&self) -> Vec<Arc<CompactState>> {
        match self.is_settled.load(Ordering::Acquire) {
            true => Vec::new(),
            false => self.compact(),
        }
    }

    /// All compact pools, removed ones included.
    pub fn compact(&self) -> Vec<Arc<CompactState>> {
        self.table().compact.pools().map(Arc::clone).collect()
    }

    /// All pools but removed ones.
    pub fn quiet(&self) -> QuietPools {
        let table = self.table();
        QuietPools {
            stores: table.entries.iter().map(|entry| Arc::clone(&entry.pool)).collect(),
            compact: table.compact.entries.iter().map(|entry| Arc::clone(&entry.pool)).collect(),
        }
    }

    /// All pools that have a store, but removed ones, the pool `default` first.
    pub fn present(&self) -> Vec<Arc<PoolState>> {
        self.table().entries.iter().map(|entry| Arc::clone(&entry.pool)).collect()
    }

    /// All pools that have a store, removed ones included, but the pool `default`.
    pub fn others(&self) -> Vec<Arc<PoolState>> {
        let table = self.table();
        table.entries[1..].iter().map(|entry| &entry.pool).chain(&table.removed).map(Arc::clone).collect()
    }

    /// A few of these in a rotation, for the turns of a sweep: as many as `due` says of their number.
    pub fn next_in_sweep(&self, due: impl FnOnce(usize) -> usize) -> Vec<Arc<PoolState>> {
        let mut table = self.table();
        let count = table.entries.len() - 1 + table.removed.len();
        let (from, due) = (table.sweep_from, due(count));
        table.sweep_from = (from + due) % count.max(1);
        let pool = |at: usize| match table.entries.get(1 + at % count) {
            Some(entry) => Arc::clone(&entry.pool),
            None => Arc::clone(&table.removed[at % count - (table.entries.len() - 1)]),
        };
        (from..from + due).map(pool).collect()
    }

    /// One pool at a time is added.
    pub fn lock_adding(&self) -> MutexGuard<'_, ()> {
        self.adding.lock().expect("nothing panics under this lock")
    }

    /// Begins to add a pool: the others shrink for it.
    pub fn announce(&self, options: &PoolOptions) -> Result<JoiningPool, Error> {
        let mut table = self.table();
        let share = share_of(&table.template, options)?;
        check_name(&share.name).map_err(|error| refuse(&share.name, &error))?;
        if table.entries.len() + table.compact.entries.len() >= MAX_POOLS as usize {
            let reason = format!("the cache has {MAX_POOLS} pools, as many as it can: remove one");
            return Err(Error::Configuration { option: "pool", value: share.name, reason });
        }
        table.check_flash_shares_with(&share.name, options)?;
        let flash_share = options.flash_share;
        let shares: Vec<Share> = table.shares().chain([share.clone()]).collect();
        let bytes = table.division_of(&shares).map_err(|error| refuse(&share.name, &error))?;
        let seed = table.take_seed();
        let memory_bytes = bytes[bytes.len() - 1];
        let kind = match options.compact {
            Some(sizes) => JoiningKind::Compact(CompactPlan { sizes, memory_bytes: share.floor_bytes, seed }),
            None => {
                let options = Options { memory_bytes, seed, ..store_options(&table.template, options) };
                let planned = PlannedPool { share: share.clone(), flash_share, options };
                JoiningKind::Store { first: planned.first_options(), smallest: planned.smallest_options() }
            }
        };
        table.entries[0].pool.store.share_memory();
        table.joining = Some((share.clone(), kind.memory_bytes()));
        table.set_targets(&bytes);
        self.is_settled.store(false, Ordering::Release);
        Ok(JoiningPool { share, flash_share, kind })
    }

    /// Has the pool begin with its smallest budget, since the others cannot free more now.
    pub fn begin_smaller(&self, joining: &mut JoiningPool) {
        if let JoiningKind::Store { first, smallest } = &mut joining.kind {
            first.clone_from(smallest);
            self.table().joining = Some((joining.share.clone(), joining.kind.memory_bytes()));
        }
    }

    /// Adds the pool that `open` makes of its store, if there is memory for it. `None` while there is none.
    pub fn try_add(
        &self,
        joining: &JoiningPool,
        memory: &EngineMemory,
        open: impl FnOnce(String, Store) -> Arc<PoolState>,
    ) -> Result<Option<()>, Error> {
        let mut table = self.table();
        let (share, target_bytes) = (joining.share.clone(), joining.kind.memory_bytes());
        if table.free_bytes() < target_bytes {
            return Ok(None);
        }
        match &joining.kind {
            JoiningKind::Store { first, .. } => {
                let store = Store::build(first.clone(), memory).map_err(Error::from_store)?;
                let pool = open(share.name.clone(), store);
                let flash_share = joining.flash_share;
                table.entries.push(PoolEntry { share, pool, target_bytes, flash_share });
            }
            JoiningKind::Compact(plan) => {
                let pool = CompactState::build(&share.name, (*plan, None), memory, &table.entries[0].pool)?;
                table.compact.entries.push(CompactEntry { share, pool, target_bytes });
            }
        }
        table.joining = None;
        let divided = table.divide();
        // The others pay at once for what flash needs for the pool.
        table.step(0);
        if divided.is_err() {
            // It is the last one of its kind.
            let table = &mut *table;
            match &joining.kind {
                JoiningKind::Store { .. } => table.remove_store(table.entries.len() - 1),
                JoiningKind::Compact(_) => table.remove_compact(table.compact.entries.len() - 1),
            }
        }
        divided.map(Some)
    }

    /// The pool is not added after all.
    pub fn cancel(&self) {
        let mut table = self.table();
        table.joining = None;
        self.divide_without_removed(&mut table);
    }

    /// Removes a pool. Its handles refuse writes and miss from then on; the other pools get its memory.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let mut table = self.table();
        if let Some(at) = table.compact.entries.iter().position(|entry| entry.share.name == name) {
            table.remove_compact(at);
            self.divide_without_removed(&mut table);
            return Ok(());
        }
        let Some(at) = table.entries.iter().position(|entry| entry.share.name == name) else {
            return Err(Error::UnknownPool { name: name.escape_debug().to_string() });
        };
        if at == 0 {
            let reason = "the pool default is the cache itself and stays".to_owned();
            return Err(Error::Configuration { option: "pool", value: name.to_owned(), reason });
        }
        table.remove_store(at);
        self.divide_without_removed(&mut table);
        Ok(())
    }

    /// Divides the memory of a removed pool among the others. If its index still has too much of it for their shares,
    /// their budgets stay, and `settle` divides again when that memory is free.
    fn divide_without_removed(&self, table: &mut PoolTable) {
        if table.divide().is_err() {
            table.divide_flash();
        }
        self.is_settled.store(false, Ordering::Release);
    }

    /// Whether the memory can be divided among these pools, in place of those that there are. Pools that stay keep
    /// their stores, with the smallest budgets that these reach.
    pub fn check(&self, pools: &[PoolOptions]) -> Result<(), Error> {
        let table = self.table();
        let memory_bytes = table.bytes_beside(table.reserved_bytes());
        let reachable_bytes = |name: &str| {
            let entry = table.entries.iter().find(|entry| entry.share.name == name);
            entry.map_or(0, |entry| entry.pool.store.reachable_bytes())
        };
        let options = Options { memory_bytes, ..table.template.clone() };
        plan_reaching(&options, pools, reachable_bytes).map(drop)
    }

    /// The smallest memory that can be divided among the pools beside the maximum memory of flash.
    pub fn min_memory_bytes(&self) -> u64 {
        let table = self.table();
        let needed = table.shares().map(|share| share.min_bytes.max(share.floor_bytes));
        needed.fold(table.reserved_bytes(), u64::saturating_add)
    }

    /// Gives a pool the bounds and the weight of these options; it is not sized by hand any more.
    pub fn configure(&self, pool: PoolRef<'_>, options: &PoolOptions) -> Result<(), Error> {
        let mut table = self.table();
        let name = pool.present_name(&table)?;
        table.check_flash_shares_with(name, options)?;
        let share = table.share_mut(name)?;
        let before = share.clone();
        *share = Share { name: before.name.clone(), ..options.share(before.floor_bytes) };
        let divided = table.divide();
        match divided {
            Ok(()) => {
                table.wishes.release(name);
                table.set_flash_share(name, options.flash_share);
            }
            Err(_) => *table.share_mut(name)? = before,
        }
        self.is_settled.store(false, Ordering::Release);
        divided
    }

    /// All pools but compact ones with their budgets, and the memory of them together.
    pub fn readings(&self) -> (u64, Vec<PoolBudget>) {
        let table = self.table();
        let reading = |entry: &PoolEntry| PoolBudget {
            share: entry.share.clone(),
            reachable: entry.reachable_share(),
            is_fixed: table.wishes.is_fixed(&entry.share.name),
            memory_bytes: entry.target_bytes,
            used_bytes: entry.pool.store.counter_snapshot().memory_used_bytes,
        };
        let available_bytes = table.available_bytes().saturating_sub(table.compact.target_bytes());
        (available_bytes, table.entries.iter().map(reading).collect())
    }

    /// Budgets that the controller wants, by name. Bounds and budgets set by hand hold.
    pub fn want(&self, budgets: impl IntoIterator<Item = (String, u64)>) -> Result<(), Error> {
        let wanted = self.table().want(budgets);
        self.is_settled.store(false, Ordering::Release);
        wanted
    }

    /// Changes the bounds of a pool by hand: a controller leaves the pool as it is until it is released.
    pub fn fix(&self, pool: PoolRef<'_>, min_bytes: u64, max_bytes: u64) -> Result<(), Error> {
        let mut table = self.table();
        let name = pool.present_name(&table)?;
        let before = table.set_bounds(name, (min_bytes, max_bytes))?;
        table.wishes.fix(name, before);
        self.is_settled.store(false, Ordering::Release);
        Ok(())
    }

    /// Gives a pool that was sized by hand the bounds of its options again.
    pub fn release(&self, pool: PoolRef<'_>) -> Result<(), Error> {
        let mut table = self.table();
        let name = pool.present_name(&table)?;
        let share = table.share_mut(name)?;
        let present = (share.min_bytes, share.max_bytes);
        let bounds = table.wishes.configured_bounds(name).unwrap_or(present);
        table.set_bounds(name, bounds)?;
        table.wishes.release(name);
        self.is_settled.store(false, Ordering::Release);
        Ok(())
    }

    /// The memory of all pools and of flash.
    pub fn memory_bytes(&self) -> u64 {
        self.table().memory_bytes
    }

    /// Changes the memory of all pools and of flash.
    pub fn resize(&self, memory_bytes: u64) -> Result<(), Error> {
        let mut table = self.table();
        if table.is_single() && table.removed.is_empty() && table.joining.is_none() {
            let has_budget = table.resize_single(memory_bytes)?;
            if !has_budget {
                self.is_settled.store(false, Ordering::Release);
            }
            return Ok(());
        }
        let max_bytes = table.template.effective_memory_bytes_max();
        if memory_bytes > max_bytes {
            let reason = format!("address space was reserved for {max_bytes} bytes at the start");
            return Err(Error::Configuration { option: "memory", value: memory_bytes.to_string(), reason });
        }
        let before = std::mem::replace(&mut table.memory_bytes, memory_bytes);
        let divided = table.divide();
        if divided.is_err() {
            table.memory_bytes = before;
        }
        self.is_settled.store(false, Ordering::Release);
        divided
    }

    /// Moves budgets towards their targets, by these bytes at most where nothing forces more, and drops removed pools
    /// without handles. Called by the maintenance, often: it costs a load when there is nothing to do. A step that
    /// moves nothing, and that nothing in progress will help, is the last one until `retry`: the index of a pool needs
    /// more than its target, or handles hold a removed pool.
    pub fn settle(&self, max_bytes: impl FnOnce() -> u64) {
        // Acquire pairs with the Release of threads that have changed the division.
        if self.is_settled.load(Ordering::Acquire) {
            return;
        }
        let mut table = self.table();
        if table.is_single() && table.removed.is_empty() && table.joining.is_none() && table.single_has_target() {
            self.is_settled.store(true, Ordering::Relaxed);
            return;
        }
        if table.free_removed() {
            // With more memory shares fit that did before.
            let _ = table.divide();
        }
        let step = table.step(max_bytes());
        self.is_stalled.store(step == Step::Stalled, Ordering::Relaxed);
        self.is_settled.store(step != Step::Moving, Ordering::Relaxed);
    }

    /// Makes `settle` retry a division that could not proceed.
    pub fn retry(&self) {
        if self.is_stalled.load(Ordering::Relaxed) {
            let _table = self.table();
            self.is_stalled.store(false, Ordering::Relaxed);
            self.is_settled.store(false, Ordering::Release);
        }
    }

    /// [`Pools::follow_charges`] and [`Pools::retry`] once in a while: this much time has passed since the last call.
    pub fn follow_charges_after(&self, elapsed: Duration) {
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        // One thread calls it.
        let since = self.charges_micros.load(Ordering::Relaxed).saturating_add(micros);
        let is_due = since >= CHARGES_MICROS;
        self.charges_micros.store(if is_due { 0 } else { since }, Ordering::Relaxed);
        if is_due {
            self.retry();
            self.follow_charges();
        }
    }

    /// Divides the memory again if the charges of pools for the index of flash have moved.
    pub fn follow_charges(&self) {
        let mut table = self.table();
        if !table.is_single() && table.has_charge_moved() {
            // Shares that fitted before fit again: charges stop at minimums.
            let _ = table.divide();
            self.is_settled.store(false, Ordering::Release);
        }
    }

    /// Budgets that pools have refused since the start.
    pub fn refusals(&self) -> u64 {
        self.table().refusals.count()
    }

    /// The newest refused budgets since the last call.
    pub fn take_refusals(&self) -> Vec<BudgetRefusal> {
        self.table().refusals.take()
    }

    /// The sums of all pools; of flash the limit of its memory and the bytes in use.
    pub fn stats_beside_flash(&self) -> (Stats, Option<(u64, u64)>) {
        let table = self.table();
        let pools: Vec<Stats> = table.pools().map(|pool| pool.store.stats()).collect();
        let index_bytes: u64 = pools.iter().map(|stats| stats.index_bytes).sum();
        let mut sum = table.dropped.clone();
        for stats in &pools {
            add_gauges(&mut sum, stats);
            add_counters(&mut sum, stats);
            sum.index_load += stats.index_load * stats.index_bytes as f64 / index_bytes.max(1) as f64;
        }
        for stats in table.compact.pools().map(|pool| pool.stats()) {
            add_gauges(&mut sum, &stats);
            add_counters(&mut sum, &stats);
        }
        // While memory moves between pools their budgets together are less than the memory that they may use.
        let memory_limit_bytes = sum.memory_limit_bytes.max(table.memory_bytes.saturating_sub(table.flash_bytes()));
        let flash = table.flash.as_ref().map(|flash| flash.memory());
        (Stats { segment_bytes: pools[0].segment_bytes, memory_limit_bytes, ..sum }, flash)
    }
}

impl ItemMemory for Pools {
    fn all_bytes(&self) -> u64 {
        self.memory_bytes()
    }

    fn follow_flash(&self) -> bool {
        let is_followed = self.table().follow_flash().is_ok();
        self.is_settled.store(false, Ordering::Release);
        is_followed
    }

    fn has_followed(&self) -> bool {
        self.table().is_within_memory()
    }
}

#[cfg(test)]
mod tests {
    use super::PoolRef;
    use crate::byte_size::ByteSize;
    use crate::cache::Cache;
    use crate::clock::Clock;
    use crate::error::Error;
    use crate::flash::pool_flash::PoolFlash;
    use crate::pool_budgets::PoolEntry;
    use crate::pool_controller::{ControllerMode, ControllerOptions, PoolController};
    use crate::pool_options::{DEFAULT_POOL, PoolOptions};
    use crate::pool_state::PoolState;
    use crate::pool_table::Step;
    use ebbtide_control::Share;
    use ebbtide_store::{Progress, Store};
    use std::collections::HashSet;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    #[test]
    fn a_pool_is_removed_though_the_division_fails() {
        let pool = |name| PoolOptions::named(name);
        let builder = Cache::builder().memory(ByteSize::mib(8)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let cache = builder.pool(pool("a")).pool(pool("b").compact(8, 0)).build().unwrap();
        let pools = &cache.engine().pools;
        // As if the index of a removed pool kept memory that others are to have.
        let memory_bytes = std::mem::replace(&mut pools.table().memory_bytes, 1);
        for name in ["a", "b"] {
            assert_eq!(pools.remove(name), Ok(()));
            assert!(!pools.names().iter().any(|present| present == name));
        }
        pools.table().memory_bytes = memory_bytes;
        cache.maintain(Duration::from_secs(1));
        assert_eq!(cache.stats().memory_limit_bytes, memory_bytes);
        assert!(cache.engine().default_pool.store.memory_bytes() == memory_bytes);
        cache.verify();
    }

    #[test]
    fn added_pools_have_seeds_of_their_own() {
        let builder = Cache::builder().memory(ByteSize::mib(8)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let cache = builder.seed(7).pool(PoolOptions::named("a")).build().unwrap();
        let seed = |name| cache.engine().pools.find(name).unwrap().store.options().seed;
        let mut seeds = vec![seed("default"), seed("a")];
        for name in ["b", "c"] {
            cache.add_pool(&PoolOptions::named(name)).unwrap();
            seeds.push(seed(name));
        }
        cache.remove_pool("a").unwrap();
        cache.add_pool(&PoolOptions::named("keys").compact(8, 0)).unwrap();
        seeds.push(cache.engine().pools.find_compact("keys").unwrap().table.seed());
        // Neither the seed of a present pool nor that of the removed one.
        cache.add_pool(&PoolOptions::named("a")).unwrap();
        seeds.push(seed("a"));
        let distinct: HashSet<u64> = seeds.iter().copied().collect();
        assert_eq!(distinct.len(), seeds.len(), "{seeds:?}");
        cache.verify();
    }

    /// A cache with a pool that cannot reach its target, because of `stall`.
    fn stalled(stall: impl FnOnce(&Cache)) -> Cache {
        let builder = Cache::builder().memory(ByteSize::mib(16)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let cache = builder.pool(PoolOptions::named("a")).pool(PoolOptions::named("b").compact(8, 0)).build().unwrap();
        cache.maintain(Duration::from_secs(1));
        stall(&cache);
        let pools = &cache.engine().pools;
        pools.is_settled.store(false, Ordering::Release);
        cache.maintain(Duration::from_secs(3));
        // The first steps may move something.
        pools.is_settled.store(false, Ordering::Release);
        (0..3).for_each(|_| pools.settle(|| 1 << 20));
        pools.settle(|| panic!("a step that cannot move anything"));
        pools.follow_charges_after(Duration::from_millis(900));
        pools.settle(|| panic!("a step within a second"));
        pools.follow_charges_after(Duration::from_millis(100));
        let mut steps = 0;
        (0..10).for_each(|_| {
            pools.settle(|| {
                steps += 1;
                1 << 20
            })
        });
        assert_eq!(steps, 1, "one step a second");
        cache
    }

    #[test]
    fn an_unsettled_division_is_retried_every_second() {
        let mut handles = Vec::new();
        let cache = stalled(|cache| {
            handles.push(cache.pool("a").unwrap());
            cache.remove_pool("a").unwrap();
            cache.maintain(Duration::from_secs(2));
        });
        handles.clear();
        cache.engine().pools.follow_charges_after(Duration::from_secs(1));
        cache.engine().pools.settle(|| u64::MAX);
        assert!(cache.engine().pools.table().removed.is_empty());

        let mut compact = Vec::new();
        drop(stalled(|cache| {
            compact.push(cache.compact_pool("b").unwrap());
            cache.remove_pool("b").unwrap();
            cache.maintain(Duration::from_secs(2));
        }));
        // Less than its index leaves, as with smaller floors: no store gets there.
        drop(stalled(|cache| cache.engine().pools.table().entries[1].target_bytes = 300 << 10));
    }

    #[test]
    fn pools_of_tiny_objects_reach_smaller_bounds() {
        let builder = Cache::builder().memory(ByteSize::mib(32)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let cache = builder.pool(PoolOptions::named("tiny")).build().unwrap();
        let pool = cache.pool("tiny").unwrap();
        (0..600_000_u32).for_each(|number| _ = pool.insert(&number.to_le_bytes(), &[]).apply());
        let full_bytes = pool.stats().index_bytes;
        assert!(full_bytes > 5 << 20, "{full_bytes}");
        let pools = &cache.engine().pools;
        let shrunk_to = |max: ByteSize, seconds: std::ops::Range<u64>| {
            pool.resize(ByteSize::bytes(0), max).unwrap();
            seconds.for_each(|second| cache.maintain(Duration::from_secs(second)));
            assert!(pools.is_settled.load(Ordering::Acquire) && !pools.is_stalled.load(Ordering::Relaxed));
            pool.stats()
        };
        let stats = shrunk_to(ByteSize::mib(2), 1..60);
        assert!(stats.index_bytes < full_bytes / 4 && stats.memory_limit_bytes == 2 << 20, "{stats:?}");
        assert!(stats.items > 20_000, "no more was evicted than that takes: {stats:?}");
        assert_eq!(shrunk_to(ByteSize::mib(2), 60..90).items, stats.items, "it ends");
        // The smallest budget that the store reaches.
        let reachable = pools.find("tiny").unwrap().store.reachable_bytes();
        let stats = shrunk_to(ByteSize::mib(1), 90..150);
        assert!(stats.memory_limit_bytes == reachable && reachable < 2 << 20, "{reachable}: {stats:?}");
        cache.verify();
    }

    #[test]
    fn the_memory_limit_stays_while_pools_change() {
        let builder = Cache::builder().memory(ByteSize::mib(32)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let cache = builder.pool(PoolOptions::named("tiny")).build().unwrap();
        let pool = cache.pool("tiny").unwrap();
        (0..600_000_u32).for_each(|number| _ = pool.insert(&number.to_le_bytes(), &[]).apply());
        (0..40_000_u32).for_each(|number| _ = cache.insert(&number.to_le_bytes(), &[1; 500]).apply());
        let limits = |cache: &Cache| (cache.memory_bytes(), cache.stats().memory_limit_bytes);
        let pools = &cache.engine().pools;
        pools.fix(PoolRef::Store(&pools.find(DEFAULT_POOL).unwrap()), 0, 8 << 20).unwrap();
        // The budget falls at once, and its memory is free after evictions.
        pools.settle(|| u64::MAX);
        let budgets = ["default", "tiny"].map(|name| pools.find(name).unwrap().store.memory_bytes());
        assert!(budgets.iter().sum::<u64>() < 31 << 20, "{budgets:?}");
        for second in 1..20 {
            assert_eq!(limits(&cache), (32 << 20, 32 << 20), "second {second}");
            cache.maintain(Duration::from_secs(second));
        }
        cache.take_refused_budgets();
        cache.remove_pool("tiny").unwrap();
        for second in 20..40 {
            assert_eq!(limits(&cache), (32 << 20, 32 << 20), "second {second}");
            cache.maintain(Duration::from_secs(second));
        }
        let refused = cache.take_refused_budgets();
        assert!(refused.iter().all(|refusal| refusal.pool != "tiny"), "no division gives it memory: {refused:?}");
        drop(pool);
    }

    #[test]
    fn added_pools_pay_for_their_filters_of_flash() {
        let folder = tempfile::tempdir().unwrap();
        let builder = Cache::builder().memory(ByteSize::mib(32)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
        let flash = cache.engine().flash().unwrap();
        let used_bytes = || flash.filter_bytes.load(Ordering::Relaxed) + flash.token_bytes.load(Ordering::Relaxed);
        let (planned_bytes, limit_bytes) = (used_bytes(), flash.limit_bytes());
        let names: Vec<String> = (0..6).map(|number| format!("pool{number}")).collect();
        for name in &names {
            cache.add_pool(&PoolOptions::named(name).min(ByteSize::mib(3))).unwrap();
            assert_eq!(cache.stats().memory_limit_bytes, 32 << 20);
        }
        let beyond_bytes = used_bytes() - planned_bytes;
        assert!(beyond_bytes > 64 << 10 && flash.limit_bytes() >= limit_bytes + beyond_bytes / 2, "{beyond_bytes}");
        names.iter().for_each(|name| cache.remove_pool(name).unwrap());
        cache.maintain(Duration::from_secs(1));
        assert_eq!((flash.limit_bytes(), cache.stats().memory_limit_bytes), (limit_bytes, 32 << 20));
        cache.verify();
    }

    #[test]
    fn caches_of_tiny_objects_reach_smaller_memory() {
        let builder = Cache::builder().memory(ByteSize::mib(32)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let cache = builder.build().unwrap();
        (0..600_000_u32).for_each(|number| _ = cache.insert(&number.to_le_bytes(), &[]).apply());
        let store = &cache.engine().pools.find(DEFAULT_POOL).unwrap().store;
        let full_bytes = cache.stats().index_bytes;
        assert!(store.check_resize(2 << 20).is_err(), "the index of {full_bytes} bytes stands in the way");
        cache.resize(ByteSize::mib(2)).unwrap();
        (1..60).for_each(|second| cache.maintain(Duration::from_secs(second)));
        let stats = cache.stats();
        assert!(stats.index_bytes < full_bytes / 4 && stats.memory_limit_bytes == 2 << 20, "{stats:?}");
        assert!(stats.items > 20_000, "no more was evicted than that takes: {stats:?}");
        let reachable_bytes = store.reachable_bytes();
        let refused = cache.resize(ByteSize::bytes(reachable_bytes - 1)).unwrap_err();
        assert!(refused.to_string().contains(&reachable_bytes.to_string()), "{refused}");
        assert_eq!(cache.stats().memory_limit_bytes, 2 << 20);
        cache.resize(ByteSize::mib(32)).unwrap();
        cache.maintain(Duration::from_secs(60));
        assert_eq!(cache.stats().memory_limit_bytes, 32 << 20);
        cache.verify();
    }

    #[test]
    fn a_pool_begins_smaller_where_others_free_little() {
        let builder = Cache::builder().memory(ByteSize::mib(256)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let cache = builder.build().unwrap();
        let engine = cache.engine();
        let (pools, memory) = (&engine.pools, &engine.parts.memory);
        let mut joining = pools.announce(&PoolOptions::named("new")).unwrap();
        assert_eq!(pools.table().joining.as_ref().unwrap().1, joining.first_bytes());
        assert!(joining.first_bytes() > joining.share.floor_bytes);
        pools.begin_smaller(&mut joining);
        assert_eq!(joining.first_bytes(), joining.share.floor_bytes);
        cache.maintain(Duration::from_secs(1));
        let open = |name, store| PoolState::new(name, store, engine.parts.clone(), None);
        assert_eq!(pools.try_add(&joining, memory, open), Ok(Some(())));
        cache.maintain(Duration::from_secs(1));
        assert_eq!(cache.pool("new").unwrap().stats().memory_limit_bytes, 128 << 20);
        cache.verify();
    }

    #[test]
    fn removed_pools_handles_do_not_change_successors() {
        let builder = Cache::builder().memory(ByteSize::mib(8)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let (store, compact) = (PoolOptions::named("a"), PoolOptions::named("b").compact(8, 0));
        let cache = builder.pool(store.clone()).pool(compact.clone()).build().unwrap();
        let pools = &cache.engine().pools;
        let (a, b) = (pools.find("a").unwrap(), pools.find_compact("b").unwrap());
        for options in [&store, &compact] {
            cache.remove_pool(&options.name).unwrap();
            cache.add_pool(options).unwrap();
        }
        let before: Vec<_> = pools.table().shares().collect();
        // As callers whose check was before the removal.
        for pool in [PoolRef::Store(&a), PoolRef::Compact(&b)] {
            assert!(matches!(pools.fix(pool, 1 << 20, 2 << 20), Err(Error::PoolRemoved { .. })));
            assert!(matches!(pools.configure(pool, &store.clone().weight(5)), Err(Error::PoolRemoved { .. })));
            assert!(matches!(pools.release(pool), Err(Error::PoolRemoved { .. })));
        }
        assert_eq!(pools.table().shares().collect::<Vec<_>>(), before);
        cache.verify();
    }

    #[test]
    fn pool_checks_use_reachable_store_budgets() {
        let builder = Cache::builder().memory(ByteSize::mib(64)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let large = PoolOptions::named("large").weight(7);
        let cache = builder.pool(large.clone()).build().unwrap();
        let pools = &cache.engine().pools;
        let reachable = pools.find("large").unwrap().store.reachable_bytes();
        let default = pools.find("default").unwrap().store.reachable_bytes();
        assert!(reachable > 1 << 20 && default > 256 << 10, "{reachable} {default}");
        assert_eq!(pools.min_memory_bytes(), reachable + default);
        let left = (64 << 20) - reachable - default;
        let new = |min| PoolOptions::named("new").min(ByteSize::bytes(min));
        assert_eq!(pools.check(&[large.clone(), new(left)]), Ok(()));
        let refusal = pools.check(&[large, new(left + 1)]).unwrap_err().to_string();
        for number in [reachable, default, left + 1, 64 << 20, (64 << 20) + 1] {
            assert!(refusal.contains(&number.to_string()), "{number}: {refusal}");
        }
        // Pools that go take their floors with them.
        assert_eq!(pools.check(&[new(left + 1)]), Ok(()));
    }

    #[test]
    fn a_compact_pool_takes_no_share_of_flash() {
        let folder = tempfile::tempdir().unwrap();
        let half = |name: &str| PoolOptions::named(name).flash_share(50);
        let compact = |name: &str| PoolOptions::named(name).compact(10, 0);
        let builder = Cache::builder().memory(ByteSize::mib(64)).clock(Clock::Manual);
        let builder = builder.flash(folder.path().join("flash"), ByteSize::mib(256));
        let cache = builder.pool(half("default")).pool(half("a")).pool(compact("c")).build().unwrap();
        cache.compact_pool("c").unwrap().configure(&compact("c").weight(2)).unwrap();
        cache.add_pool(&compact("d")).unwrap();
        let refusal = cache.add_pool(&compact("e").flash_share(1)).unwrap_err().to_string();
        assert!(refusal.contains("a compact pool has no share of flash"), "{refusal}");
    }

    #[test]
    fn the_last_pool_grows_after_a_refusal() {
        let cache = Cache::builder().memory(ByteSize::mib(8)).clock(Clock::Manual).build().unwrap();
        let (pools, pool) = (&cache.engine().pools, &cache.engine().default_pool);
        let store = &pool.store;
        // As if it could not grow when the last other pool was dropped.
        store.resize(6 << 20).unwrap();
        while store.maintain(&pool.participant(), 1000) == Progress::Working {}
        pools.is_settled.store(false, Ordering::Release);
        pools.settle(|| u64::MAX);
        assert_eq!(store.memory_bytes(), 8 << 20);
        pools.settle(|| u64::MAX);
        assert!(pools.is_settled.load(Ordering::Acquire));
    }
    #[test]
    fn refused_steps_of_budgets_are_told_once() {
        let builder = Cache::builder().memory(ByteSize::mib(32)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let cache = builder.pool(PoolOptions::named("tiny")).build().unwrap();
        let pool = cache.pool("tiny").unwrap();
        (0..600_000_u32).for_each(|number| _ = pool.insert(&number.to_le_bytes(), &[]).apply());
        assert_eq!((cache.refused_budgets(), cache.take_refused_budgets()), (0, Vec::new()));
        pool.resize(ByteSize::bytes(0), ByteSize::mib(2)).unwrap();
        (1..60).for_each(|second| cache.maintain(Duration::from_secs(second)));
        assert_eq!(pool.stats().memory_limit_bytes, 2 << 20);
        let told = cache.take_refused_budgets();
        assert_eq!((cache.refused_budgets(), told.len()), (1, 1), "{told:?}");
        assert!(told[0].pool == "tiny" && told[0].target_bytes == 2 << 20, "{told:?}");
        assert!(told[0].memory_bytes > 2 << 20 && told[0].reason.contains("the index takes"), "{told:?}");

        // A growth that the store refuses: the address space holds no such budget.
        let (pools, store) = (&cache.engine().pools, &pool.0.pool.store);
        let beyond = store.options().memory_bytes_max.unwrap() + (1 << 30);
        let mut table = pools.table();
        table.memory_bytes += beyond;
        table.entries[1].target_bytes = beyond;
        assert_eq!((0..5).map(|_| table.step(0)).last(), Some(Step::Stalled));
        drop(table);
        let told = cache.take_refused_budgets();
        assert_eq!((cache.refused_budgets(), told.len()), (2, 1), "{told:?}");
        assert!(told[0].target_bytes == beyond && told[0].reason.contains("address space"), "{told:?}");
    }
    #[test]
    fn refused_budgets_are_told_and_forgotten() {
        let named = [PoolOptions::named("again"), PoolOptions::named("once"), PoolOptions::named("default").weight(0)];
        let builder = Cache::builder().memory(ByteSize::mib(9)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let cache = named.into_iter().fold(builder, |builder, pool| builder.pool(pool)).build().unwrap();
        let mut controller = PoolController::new(&cache, ControllerMode::Auto, ControllerOptions::default()).unwrap();
        let [again, once] = ["again", "once"].map(|name| cache.pool(name).unwrap());
        let (mut second, mut number) = (0, 0_u64);
        let mut next_decision = || {
            let until = second + 600;
            // A loop in one pool, and new keys in the other.
            while second < until {
                second += 1;
                for _ in 0..200 {
                    number += 1;
                    for (pool, key) in [(&again, number.wrapping_mul(0x9E37_79B9) % 5000), (&once, number)] {
                        if !pool.get(&key.to_le_bytes()).is_hit() {
                            pool.insert(&key.to_le_bytes(), &[7; 1000]).apply().unwrap();
                        }
                    }
                }
                cache.maintain(Duration::from_secs(second));
                if let Some(decision) = controller.update().unwrap() {
                    return (decision.clone(), controller.state().to_owned());
                }
            }
            panic!("no decision: {}", controller.state())
        };
        let pools = &cache.engine().pools;
        let targets = || pools.table().entries.iter().map(|entry| entry.target_bytes).collect::<Vec<_>>();
        let before = targets();
        // As if the pool that is being added needed more than there is.
        let min_bytes = 9 << 20;
        pools.table().joining = Some((Share { min_bytes, ..Share::named("new") }, 0));
        let (refused, state) = next_decision();
        let refusal = refused.refusal.expect("it does not fit");
        assert!(
            !refused.is_applied && !refused.moves.is_empty() && refusal.contains(&min_bytes.to_string()),
            "{refusal}"
        );
        assert!(state.starts_with("nothing moves: again +") && state.ends_with(&refusal), "{state}");
        pools.table().joining = None;
        assert_eq!(pools.table().divide(), Ok(()));
        assert_eq!(targets(), before);
        let (applied, _) = next_decision();
        assert!(applied.is_applied && applied.refusal.is_none() && targets() != before, "{applied:?}");
    }
    #[test]
    fn a_pool_whose_division_fails_is_withdrawn() {
        let folder = tempfile::tempdir().unwrap();
        let builder = Cache::builder().memory(ByteSize::mib(16)).max_value(ByteSize::kib(64)).clock(Clock::Manual);
        let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
        let (engine, pools) = (cache.engine(), &cache.engine().pools);
        let state = || {
            let state = |entry: &PoolEntry| {
                let on_flash = &entry.pool.flash.as_ref().unwrap().on_flash;
                (entry.share.name.clone(), entry.target_bytes, on_flash.share_bytes())
            };
            pools.table().entries.iter().map(state).collect::<Vec<_>>()
        };
        let before = state();
        let mut second = 0;
        for options in [PoolOptions::named("new"), PoolOptions::named("new").compact(8, 0)] {
            let joining = pools.announce(&options).unwrap();
            second += 1;
            cache.maintain(Duration::from_secs(second));
            // As if an index had grown meanwhile, so that the shares do not fit any more.
            pools.table().entries[0].share.min_bytes = 1 << 40;
            let open = |name: String, store: Store| {
                let flash = PoolFlash::open(engine.flash().unwrap(), &name, &store, 16 << 20);
                PoolState::new(name, store, engine.parts.clone(), Some(flash))
            };
            let added = pools.try_add(&joining, &engine.parts.memory, open);
            assert!(matches!(added, Err(Error::Configuration { .. })), "{added:?}");
            pools.cancel();
            assert_eq!(pools.names(), ["default"]);
            assert_eq!(state()[0].2, u64::MAX, "a pool alone has all of flash");
            pools.table().entries[0].share.min_bytes = 0;
            second += 1;
            cache.maintain(Duration::from_secs(second));
            assert!(state() == before && pools.table().is_single(), "{:?}", state());
            assert_eq!(cache.stats().memory_limit_bytes, 16 << 20);
        }
        cache.add_pool(&PoolOptions::named("new")).unwrap();
        assert!(state().iter().all(|(_, _, share_bytes)| *share_bytes < 64 << 20), "{:?}", state());
        cache.verify();
    }
}
