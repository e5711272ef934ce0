//! The pools of an engine, and the division of memory among them.
//!
//! Each pool is a store in the memory of the engine. This is the only place that knows how much of it each one has;
//! `pool_budgets.rs` moves it. A new pool begins when the others have freed its smallest budget. A removed pool whose
//! handles still exist keeps its smallest budget, until the last handle is dropped.

use crate::error::Error;
use crate::flash::tier::FlashTier;
use crate::pool_budgets::{PoolEntry, grow_budgets, held_bytes, lower_budgets, shrink};
use crate::pool_options::{DEFAULT_POOL, PoolOptions};
use crate::pool_state::PoolState;
use crate::pool_wishes::{PoolBudget, PoolWishes};
use ebbtide_control::{Share, SharesError, check_name, divide};
use ebbtide_store::{EngineMemory, Options, Stats, Store};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Pools at a time. The address space of all their indexes fits a process.
pub(crate) const MAX_POOLS: u32 = 1024;

/// A store works with this much memory and twice its largest value.
const MIN_POOL_BYTES: u64 = 256 << 10;

/// A store has at least this many segments.
const MIN_SEGMENTS: u64 = 32;

/// The pools of an engine.
pub(crate) struct Pools {
    table: Mutex<PoolTable>,
    /// One pool at a time is added.
    adding: Mutex<()>,
    /// False while budgets have not reached their targets, or removed pools exist: see `settle`.
    is_settled: AtomicBool,
    /// The memory of flash at the last division.
    flash_bytes: AtomicU64,
    flash: Option<Arc<FlashTier>>,
}

struct PoolTable {
    /// The pool `default` first.
    entries: Vec<PoolEntry>,
    /// Pools whose handles still exist.
    removed: Vec<Arc<PoolState>>,
    /// Counters of dropped pools.
    dropped: Stats,
    /// The memory of all pools and of flash.
    memory_bytes: u64,
    flash: Option<Arc<FlashTier>>,
    wishes: PoolWishes,
    /// The pool that is being added.
    joining: Option<Share>,
    /// The pool at which the next turns of a sweep begin.
    sweep_from: usize,
    /// Options of a new store, but for its own.
    template: Options,
}

/// A pool that is about to be added.
pub(crate) struct JoiningPool {
    pub share: Share,
    options: Options,
}

/// The smallest budget with which a store works.
fn floor_bytes(options: &Options) -> u64 {
    MIN_POOL_BYTES.max(options.value_bytes_max.saturating_mul(2))
}

fn refuse(name: &str, error: &SharesError) -> Error {
    match error {
        SharesError::Duplicate { name } => Error::PoolExists { name: name.clone() },
        other => {
            Error::Configuration { option: "pool", value: name.escape_debug().to_string(), reason: other.to_string() }
        }
    }
}

/// The options of a pool's store, without its memory.
fn store_options(template: &Options, options: &PoolOptions) -> Options {
    Options {
        policy: options.policy.unwrap_or(template.policy),
        value_bytes_max: options.max_value.unwrap_or(template.value_bytes_max),
        ..template.clone()
    }
}

/// A pool of a cache that is about to be built.
#[derive(Clone)]
pub(crate) struct PlannedPool {
    pub share: Share,
    /// With its part of the memory.
    pub options: Options,
}

impl PlannedPool {
    pub fn name(&self) -> &str {
        &self.share.name
    }

    /// The options of its store while others still hold its part of the memory: its smallest budget, and segments for
    /// the memory that it is about to have, as far as they fit into that.
    pub fn first_options(&self) -> Options {
        let memory_bytes = self.share.floor_bytes.min(self.options.memory_bytes);
        let max_segment_bytes = 1 << (memory_bytes / MIN_SEGMENTS).ilog2();
        let segment_bytes = Some(self.options.effective_segment_bytes().min(max_segment_bytes));
        Options { memory_bytes, segment_bytes, ..self.options.clone() }
    }
}

/// The pools of a new cache, the pool `default` first, with the bytes of each.
pub(crate) fn plan(template: &Options, pools: &[PoolOptions]) -> Result<Vec<PlannedPool>, Error> {
    let default = PoolOptions::named(DEFAULT_POOL);
    let has_default = pools.iter().any(|options| options.name == DEFAULT_POOL);
    let mut all: Vec<&PoolOptions> = (!has_default).then_some(&default).into_iter().chain(pools).collect();
    all.sort_by_key(|options| options.name != DEFAULT_POOL);
    let options: Vec<Options> = all.iter().map(|options| store_options(template, options)).collect();
    let shares: Vec<Share> = all.iter().zip(&options).map(|(pool, options)| pool.share(floor_bytes(options))).collect();
    let planned = |(share, options)| PlannedPool { share, options };
    if pools.is_empty() {
        return Ok(shares.into_iter().zip(options).map(planned).collect());
    }
    if shares.len() > MAX_POOLS as usize {
        let reason = format!("{} pools, and a cache has at most {MAX_POOLS}: give fewer", shares.len());
        return Err(Error::Configuration { option: "pool", value: pools[0].name.clone(), reason });
    }
    let bytes = divide(template.memory_bytes, &shares).map_err(|error| refuse(&pools[0].name, &error))?;
    // Strangers who find out the seed of one pool do not know those of the others' keys.
    let options = (0..).zip(options).zip(bytes).map(|((number, options), memory_bytes)| Options {
        memory_bytes,
        seed: template.seed.wrapping_add(number),
        ..options
    });
    Ok(shares.into_iter().zip(options).map(planned).collect())
}

impl Pools {
    /// With the memory of all pools and of flash in the template.
    pub fn new(template: Options, pools: Vec<(Share, Arc<PoolState>)>, flash: Option<Arc<FlashTier>>) -> Self {
        let entry = |(share, pool): (Share, Arc<PoolState>)| {
            let target_bytes = pool.store.memory_bytes();
            PoolEntry { share, pool, target_bytes }
        };
        let entries = pools.into_iter().map(entry).collect();
        let flash_bytes = flash.as_ref().map_or(0, |flash| flash.memory_split.bytes());
        let mut table = PoolTable {
            entries,
            removed: Vec::new(),
            dropped: Stats::default(),
            memory_bytes: template.memory_bytes,
            flash: flash.clone(),
            wishes: PoolWishes::default(),
            joining: None,
            sweep_from: 0,
            template,
        };
        // The shares fit, and were divided so. Stores of a memory file have other budgets.
        let is_settled = table.entries.len() == 1 || table.divide().is_err();
        Self {
            table: Mutex::new(table),
            adding: Mutex::default(),
            is_settled: AtomicBool::new(is_settled),
            flash_bytes: AtomicU64::new(flash_bytes),
            flash,
        }
    }

    fn table(&self) -> MutexGuard<'_, PoolTable> {
        self.table.lock().expect("nothing panics under this lock")
    }

    pub fn find(&self, name: &str) -> Result<Arc<PoolState>, Error> {
        let table = self.table();
        let entry = table.entries.iter().find(|entry| entry.share.name == name);
        entry
            .map(|entry| Arc::clone(&entry.pool))
            .ok_or_else(|| Error::UnknownPool { name: name.escape_debug().to_string() })
    }

    pub fn names(&self) -> Vec<String> {
        self.table().entries.iter().map(|entry| entry.share.name.clone()).collect()
    }

    /// All pools but removed ones, the pool `default` first.
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
        let store = store_options(&table.template, options);
        let share = options.share(floor_bytes(&store));
        check_name(&share.name).map_err(|error| refuse(&share.name, &error))?;
        if table.entries.len() >= MAX_POOLS as usize {
            let reason = format!("the cache has {MAX_POOLS} pools, as many as it can: remove one");
            return Err(Error::Configuration { option: "pool", value: share.name, reason });
        }
        let shares: Vec<Share> = table.shares().chain([share.clone()]).collect();
        let divided = table.wishes.divide(table.available_bytes(), &shares);
        let bytes = divided.map_err(|error| refuse(&share.name, &error))?;
        let seed = store.seed.wrapping_add(shares.len() as u64);
        let options = Options { memory_bytes: bytes[bytes.len() - 1], seed, ..store };
        let options = PlannedPool { share: share.clone(), options }.first_options();
        table.entries[0].pool.store.share_memory();
        table.joining = Some(share.clone());
        table.set_targets(&bytes);
        self.is_settled.store(false, Ordering::Release);
        Ok(JoiningPool { share, options })
    }

    /// Adds the pool that `open` makes of its store, if there is memory for it. `None` while there is none.
    pub fn try_add(
        &self,
        joining: &JoiningPool,
        memory: &EngineMemory,
        open: impl FnOnce(String, Store) -> Arc<PoolState>,
    ) -> Result<Option<()>, Error> {
        let mut table = self.table();
        if table.free_bytes() < joining.options.memory_bytes {
            return Ok(None);
        }
        let store = Store::build(joining.options.clone(), memory).map_err(Error::from_store)?;
        let pool = open(joining.share.name.clone(), store);
        table.joining = None;
        table.entries.push(PoolEntry {
            share: joining.share.clone(),
            pool,
            target_bytes: joining.options.memory_bytes,
        });
        table.divide()?;
        Ok(Some(()))
    }

    /// The pool is not added after all.
    pub fn cancel(&self) {
        let mut table = self.table();
        table.joining = None;
        // The shares fit without it, too.
        let _ = table.divide();
        self.is_settled.store(false, Ordering::Release);
    }

    /// Removes a pool. Its handles refuse writes and miss from then on; the other pools get its memory.
    pub fn remove(&self, name: &str) -> Result<Arc<PoolState>, Error> {
        let mut table = self.table();
        let Some(at) = table.entries.iter().position(|entry| entry.share.name == name) else {
            return Err(Error::UnknownPool { name: name.escape_debug().to_string() });
        };
        if at == 0 {
            let reason = "the pool default is the cache itself and stays".to_owned();
            return Err(Error::Configuration { option: "pool", value: name.to_owned(), reason });
        }
        let PoolEntry { share, pool, .. } = table.entries.remove(at);
        table.wishes.forget(name);
        pool.remove();
        shrink_to(&pool.store, share.floor_bytes);
        table.removed.push(Arc::clone(&pool));
        let divided = table.divide();
        self.is_settled.store(false, Ordering::Release);
        divided.map(|()| pool)
    }

    /// Whether the memory can be divided among these pools, in place of those that there are.
    pub fn check(&self, pools: &[PoolOptions]) -> Result<(), Error> {
        let table = self.table();
        plan(&Options { memory_bytes: table.available_bytes(), ..table.template.clone() }, pools).map(drop)
    }

    /// Gives a pool the bounds and the weight of these options; it is not sized by hand any more.
    pub fn configure(&self, pool: &PoolState, options: &PoolOptions) -> Result<(), Error> {
        let mut table = self.table();
        let at = table.position(pool)?;
        let before = table.entries[at].share.clone();
        table.entries[at].share = Share { name: before.name.clone(), ..options.share(before.floor_bytes) };
        let divided = table.divide();
        match divided {
            Ok(()) => table.wishes.release(&pool.name),
            Err(_) => table.entries[at].share = before,
        }
        self.is_settled.store(false, Ordering::Release);
        divided
    }

    /// All pools with their budgets, and the memory of them together.
    pub fn readings(&self) -> (u64, Vec<PoolBudget>) {
        let table = self.table();
        let reading = |entry: &PoolEntry| PoolBudget {
            share: entry.share.clone(),
            is_fixed: table.wishes.is_fixed(&entry.share.name),
            memory_bytes: entry.target_bytes,
            used_bytes: entry.pool.store.counter_snapshot().memory_used_bytes,
        };
        (table.available_bytes(), table.entries.iter().map(reading).collect())
    }

    /// Budgets that the controller wants, by name. Bounds and budgets set by hand hold.
    pub fn want(&self, budgets: impl IntoIterator<Item = (String, u64)>) -> Result<(), Error> {
        let mut table = self.table();
        table.wishes.want(budgets);
        let divided = table.divide();
        self.is_settled.store(false, Ordering::Release);
        divided
    }

    /// Changes the bounds of a pool by hand: a controller leaves the pool as it is until it is released.
    pub fn fix(&self, pool: &PoolState, min_bytes: u64, max_bytes: u64) -> Result<(), Error> {
        let mut table = self.table();
        let before = table.set_bounds(pool, (min_bytes, max_bytes))?;
        table.wishes.fix(&pool.name, before);
        self.is_settled.store(false, Ordering::Release);
        Ok(())
    }

    /// Gives a pool that was sized by hand the bounds of its options again.
    pub fn release(&self, pool: &PoolState) -> Result<(), Error> {
        let mut table = self.table();
        let at = table.position(pool)?;
        let share = &table.entries[at].share;
        let bounds = table.wishes.configured_bounds(&pool.name).unwrap_or((share.min_bytes, share.max_bytes));
        table.set_bounds(pool, bounds)?;
        table.wishes.release(&pool.name);
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
        if table.entries.len() == 1 && table.removed.is_empty() {
            let items_bytes = memory_bytes.saturating_sub(table.flash_bytes());
            table.entries[0].pool.store.resize(items_bytes).map_err(Error::from_store)?;
            table.memory_bytes = memory_bytes;
            table.entries[0].target_bytes = items_bytes;
            return Ok(());
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
    /// without handles. Called by the maintenance, often: it costs two loads when there is nothing to do.
    pub fn settle(&self, max_bytes: impl FnOnce() -> u64) {
        // Acquire pairs with the Release of those who have changed the division.
        let flash_bytes = self.flash_bytes.load(Ordering::Relaxed);
        if self.is_settled.load(Ordering::Acquire) && flash_bytes == self.flash_memory_bytes() {
            return;
        }
        let mut table = self.table();
        if table.entries.len() == 1 && table.removed.is_empty() && table.joining.is_none() {
            self.flash_bytes.store(table.flash_bytes(), Ordering::Relaxed);
            self.is_settled.store(true, Ordering::Relaxed);
            return;
        }
        let has_freed = table.free_removed();
        if has_freed || flash_bytes != table.flash_bytes() {
            self.flash_bytes.store(table.flash_bytes(), Ordering::Relaxed);
            // If the shares do not fit beside a larger flash index, pools keep their targets.
            let _ = table.divide();
        }
        let is_settled = table.step(max_bytes());
        self.is_settled.store(is_settled, Ordering::Relaxed);
    }

    fn flash_memory_bytes(&self) -> u64 {
        self.flash.as_ref().map_or(0, |flash| flash.memory_split.bytes())
    }

    /// The sums of all pools.
    pub fn stats(&self) -> Stats {
        let table = self.table();
        let pools: Vec<Stats> = table.pools().map(|pool| pool.store.stats()).collect();
        let index_bytes: u64 = pools.iter().map(|stats| stats.index_bytes).sum();
        let mut sum = table.dropped.clone();
        for stats in &pools {
            add_gauges(&mut sum, stats);
            add_counters(&mut sum, stats);
            sum.index_load += stats.index_load * stats.index_bytes as f64 / index_bytes.max(1) as f64;
        }
        Stats { segment_bytes: pools[0].segment_bytes, ..sum }
    }
}

impl PoolTable {
    fn position(&self, pool: &PoolState) -> Result<usize, Error> {
        let at = self.entries.iter().position(|entry| std::ptr::eq(&*entry.pool, pool));
        at.ok_or_else(|| Error::PoolRemoved { name: pool.name.to_string() })
    }

    /// Changes the bounds of a pool. Answers those that it had.
    fn set_bounds(&mut self, pool: &PoolState, bounds: (u64, u64)) -> Result<(u64, u64), Error> {
        let at = self.position(pool)?;
        let share = &mut self.entries[at].share;
        let before = (share.min_bytes, share.max_bytes);
        (share.min_bytes, share.max_bytes) = bounds;
        let divided = self.divide();
        if divided.is_err() {
            let share = &mut self.entries[at].share;
            (share.min_bytes, share.max_bytes) = before;
        }
        divided.map(|()| before)
    }

    fn pools(&self) -> impl Iterator<Item = &Arc<PoolState>> {
        self.entries.iter().map(|entry| &entry.pool).chain(&self.removed)
    }

    fn flash_bytes(&self) -> u64 {
        self.flash.as_ref().map_or(0, |flash| flash.memory_split.bytes())
    }

    /// The memory of all pools, without that of removed ones.
    fn available_bytes(&self) -> u64 {
        let removed: u64 = self.removed.iter().map(|pool| pool.store.memory_bytes()).sum();
        self.memory_bytes.saturating_sub(self.flash_bytes() + removed)
    }

    /// The shares of all pools, with the one that is being added.
    fn shares(&self) -> impl Iterator<Item = Share> {
        self.entries.iter().map(|entry| entry.share.clone()).chain(self.joining.clone())
    }

    fn divide(&mut self) -> Result<(), Error> {
        let shares: Vec<Share> = self.shares().collect();
        let divided = self.wishes.divide(self.available_bytes(), &shares);
        let bytes = divided.map_err(|error| refuse(DEFAULT_POOL, &error))?;
        self.set_targets(&bytes);
        Ok(())
    }

    fn set_targets(&mut self, bytes: &[u64]) {
        self.entries.iter_mut().zip(bytes).for_each(|(entry, bytes)| entry.target_bytes = *bytes);
    }

    /// Memory that no pool holds.
    fn free_bytes(&self) -> u64 {
        (self.memory_bytes - self.flash_bytes().min(self.memory_bytes)).saturating_sub(held_bytes(self.pools()))
    }

    /// A step of all budgets towards their targets. True if all are there, and no pool is on its way in or out.
    fn step(&mut self, max_bytes: u64) -> bool {
        let budgets: u64 = self.pools().map(|pool| pool.store.memory_bytes()).sum();
        let excess = (budgets + self.flash_bytes()).saturating_sub(self.memory_bytes);
        lower_budgets(&self.entries, excess.saturating_add(max_bytes));
        let kept_bytes = self.joining.as_ref().map_or(0, |share| share.floor_bytes);
        grow_budgets(&self.entries, self.free_bytes().saturating_sub(kept_bytes));
        let has_target = |entry: &PoolEntry| entry.pool.store.memory_bytes() == entry.target_bytes;
        self.entries.iter().all(has_target) && self.removed.is_empty() && self.joining.is_none()
    }

    /// Drops removed pools without handles, and shrinks the others to their smallest budget, as far as their index lets
    /// them by now. True if that makes memory available.
    fn free_removed(&mut self) -> bool {
        let Self { removed, dropped, .. } = self;
        let mut has_freed = false;
        removed.retain(|pool| {
            let is_held = Arc::strong_count(pool) > 1;
            if !is_held {
                add_counters(dropped, &pool.store.stats());
            }
            has_freed |= !is_held || shrink_to(&pool.store, floor_bytes(pool.store.options())) > 0;
            is_held
        });
        has_freed
    }
}

fn shrink_to(store: &Store, bytes: u64) -> u64 {
    shrink(store, store.memory_bytes().saturating_sub(bytes))
}

fn add_gauges(sum: &mut Stats, stats: &Stats) {
    sum.items += stats.items;
    sum.memory_limit_bytes += stats.memory_limit_bytes;
    sum.memory_used_bytes += stats.memory_used_bytes;
    sum.live_bytes += stats.live_bytes;
    sum.index_bytes += stats.index_bytes;
    sum.segments_total += stats.segments_total;
    sum.segments_free += stats.segments_free;
    sum.segments_open += stats.segments_open;
    sum.segments_retired += stats.segments_retired;
    sum.pinned_bytes += stats.pinned_bytes;
    sum.upload_bytes += stats.upload_bytes;
}

fn add_counters(sum: &mut Stats, stats: &Stats) {
    sum.stored_total += stats.stored_total;
    sum.evictions += stats.evictions;
    sum.index_replaced += stats.index_replaced;
    sum.expired += stats.expired;
    sum.flushed += stats.flushed;
    sum.expired_found += stats.expired_found;
    sum.flushed_found += stats.flushed_found;
    sum.survived += stats.survived;
    sum.segments_expired += stats.segments_expired;
    sum.segments_evicted += stats.segments_evicted;
    sum.segments_compacted += stats.segments_compacted;
}
