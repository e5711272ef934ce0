//! The division of the memory of an engine among its pools.
//!
//! A pool has a target, and approaches it by the steps of `pool_budgets.rs`. Shares are accepted if they fit beside the
//! maximum memory of flash; memory that flash does not use is divided, too. Each pool pays for the index of its objects
//! on flash, down to its minimum.

use crate::compact_pools::{CompactEntry, CompactPools};
use crate::error::Error;
use crate::flash::tier::FlashTier;
use crate::flash_shares;
use crate::pool_budgets::{PoolEntry, grow_budgets, held_bytes, lower_budgets, shrink};
use crate::pool_options::{DEFAULT_POOL, PoolOptions};
use crate::pool_plan::{floor_bytes, refuse};
use crate::pool_refusals::BudgetRefusals;
use crate::pool_state::PoolState;
use crate::pool_stats::add_counters;
use crate::pool_wishes::{ChargedBudgets, PoolWishes};
use ebbtide_control::{Share, SharesError};
use ebbtide_store::{Options, Stats};
use std::collections::HashMap;
use std::sync::Arc;

/// The memory is divided again when the charge of a pool has moved by this part of it: a smaller part moves more memory
/// back and forth than it corrects.
const CHARGE_SHARE: u64 = 512;

/// Result of a step of the budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// All budgets are at their targets, and no pool is on its way in or out.
    Settled,
    /// Another step helps, now or when stores have freed memory.
    Moving,
    /// Nothing moves before an index contracts, or handles of removed pools are dropped.
    Stalled,
}

/// The pools of an engine with their parts of the memory.
pub(crate) struct PoolTable {
    /// The pool `default` first.
    pub entries: Vec<PoolEntry>,
    /// Pools whose handles still exist.
    pub removed: Vec<Arc<PoolState>>,
    pub compact: CompactPools,
    /// Counters of dropped pools.
    pub dropped: Stats,
    /// The memory of all pools and of flash.
    pub memory_bytes: u64,
    pub flash: Option<Arc<FlashTier>>,
    pub wishes: PoolWishes,
    pub refusals: BudgetRefusals,
    /// The pool that is being added, and the memory with which it begins.
    pub joining: Option<(Share, u64)>,
    /// The pool at which the next turns of a sweep begin.
    pub sweep_from: usize,
    /// Bytes of flash's index for the objects of each pool, at the last division.
    pub charges: Vec<u64>,
    /// Bytes that each pool paid of its charge, by name.
    pub paid_bytes: HashMap<String, u64>,
    /// Seeds that pools have got.
    pub seeds: u64,
    /// Options of a new store, but for its own.
    pub template: Options,
}

impl PoolTable {
    /// Whether the pool `default` is the only one.
    pub fn is_single(&self) -> bool {
        self.entries.len() == 1 && self.compact.is_empty()
    }

    /// A seed that no pool has got. Pools of a memory file have seeds of an earlier start.
    pub fn take_seed(&mut self) -> u64 {
        // Ends: each round tries another number, and there are fewer pools than numbers.
        loop {
            let seed = self.template.seed.wrapping_add(self.seeds);
            self.seeds += 1;
            let is_used = self.pools().any(|pool| pool.store.options().seed == seed)
                || self.compact.pools().any(|pool| pool.table.seed() == seed);
            if !is_used {
                return seed;
            }
        }
    }

    /// Whether the pool `default`, the only one, has reached its target.
    pub fn single_has_target(&self) -> bool {
        self.entries[0].pool.store.memory_bytes() == self.entries[0].target_bytes
    }

    /// Sets the target of the pool `default`, the only one, within the memory. True if it has no more.
    pub fn bring_single_within(&mut self) -> bool {
        self.entries[0].target_bytes = self.entries[0].target_bytes.min(self.available_bytes());
        self.single_has_target()
    }

    /// Gives the pool `default`, the only one, this memory beside flash. False while its index stands in the way:
    /// `step` evicts until it has contracted.
    pub fn resize_single(&mut self, memory_bytes: u64) -> Result<bool, Error> {
        let store = Arc::clone(&self.entries[0].pool.store);
        let smallest_bytes = memory_bytes.saturating_sub(self.reserved_bytes());
        let items_bytes = memory_bytes.saturating_sub(self.flash_bytes());
        let resized = store.check_resize(smallest_bytes).and_then(|()| store.resize(items_bytes));
        if let Err(error) = &resized {
            let reachable_bytes = store.reachable_bytes();
            if smallest_bytes < floor_bytes(store.options()) || items_bytes > store.memory_bytes() {
                return Err(Error::from_store(error.clone()));
            }
            if smallest_bytes < reachable_bytes {
                let reason =
                    format!("with the segments of its start this cache needs at least {reachable_bytes} bytes");
                return Err(Error::Configuration { option: "memory", value: smallest_bytes.to_string(), reason });
            }
        }
        self.memory_bytes = memory_bytes;
        self.entries[0].target_bytes = items_bytes;
        Ok(resized.is_ok())
    }

    /// The share of a pool; a pool that has none was removed.
    pub fn share_mut(&mut self, name: &str) -> Result<&mut Share, Error> {
        let stores = self.entries.iter_mut().map(|entry| &mut entry.share);
        let mut shares = stores.chain(self.compact.entries.iter_mut().map(|entry| &mut entry.share));
        shares.find(|share| share.name == name).ok_or_else(|| Error::PoolRemoved { name: name.to_owned() })
    }

    /// Changes the bounds of a pool. Returns those that it had.
    pub fn set_bounds(&mut self, name: &str, bounds: (u64, u64)) -> Result<(u64, u64), Error> {
        let share = self.share_mut(name)?;
        let before = (share.min_bytes, share.max_bytes);
        (share.min_bytes, share.max_bytes) = bounds;
        let divided = self.divide();
        if divided.is_err() {
            let share = self.share_mut(name)?;
            (share.min_bytes, share.max_bytes) = before;
        }
        divided.map(|()| before)
    }

    /// Removes a pool that has a store. Its memory is free when its handles are dropped.
    pub fn remove_store(&mut self, at: usize) {
        let PoolEntry { share, pool, .. } = self.entries.remove(at);
        self.wishes.forget(&share.name);
        pool.remove();
        self.refusals.forget(&share.name);
        shrink_to(&pool, share.floor_bytes);
        self.removed.push(pool);
    }

    /// As `remove_store`, for a compact pool.
    pub fn remove_compact(&mut self, at: usize) {
        let CompactEntry { share, pool, .. } = self.compact.entries.remove(at);
        self.wishes.forget(&share.name);
        self.refusals.forget(&share.name);
        pool.remove();
        self.compact.removed.push(pool);
    }

    pub fn pools(&self) -> impl Iterator<Item = &Arc<PoolState>> {
        self.entries.iter().map(|entry| &entry.pool).chain(&self.removed)
    }

    pub fn flash_bytes(&self) -> u64 {
        self.flash.as_ref().map_or(0, |flash| flash.limit_bytes())
    }

    /// Bytes that flash may take at any time, so that pools must fit beside them.
    pub fn reserved_bytes(&self) -> u64 {
        self.flash.as_ref().map_or(0, |flash| flash.reserved_bytes())
    }

    /// The memory of all pools beside `flash_bytes` for flash, without that of removed ones.
    pub fn bytes_beside(&self, flash_bytes: u64) -> u64 {
        let removed: u64 = self.removed.iter().map(|pool| pool.store.memory_bytes()).sum();
        self.memory_bytes.saturating_sub(flash_bytes + removed + self.compact.removed_bytes())
    }

    /// The memory of all pools, without that of removed ones.
    pub fn available_bytes(&self) -> u64 {
        self.bytes_beside(self.flash_bytes())
    }

    /// The shares of all pools, those of compact ones behind the others, with the one that is being added.
    pub fn shares(&self) -> impl Iterator<Item = Share> {
        let stores = self.entries.iter().map(PoolEntry::reachable_share);
        stores.chain(self.compact.shares()).chain(self.joining_share())
    }

    fn joining_share(&self) -> Option<Share> {
        self.joining.as_ref().map(|(share, _)| share.clone())
    }

    pub fn divide(&mut self) -> Result<(), Error> {
        let shares = self.shares().collect();
        self.divide_by(shares)
    }

    /// As `divide`, where the memory may be less than stores can shrink to: they shrink as far as they can.
    pub fn divide_beyond_reach(&mut self) -> Result<(), Error> {
        self.divide().or_else(|_| {
            let stores = self.entries.iter().map(|entry| entry.share.clone());
            let shares = stores.chain(self.compact.shares()).chain(self.joining_share()).collect();
            self.divide_by(shares)
        })
    }

    fn divide_by(&mut self, shares: Vec<Share>) -> Result<(), Error> {
        let budgets = self.charged_division_of(&shares).map_err(|error| refuse(DEFAULT_POOL, &error))?;
        self.charges = self.charges(self.entries.len());
        let names = self.entries.iter().map(|entry| entry.share.name.clone());
        self.paid_bytes = names.zip(budgets.paid_bytes).filter(|(_, bytes)| *bytes > 0).collect();
        self.set_targets(&budgets.bytes);
        Ok(())
    }

    /// Bytes for each of these shares. Refuses shares that do not fit beside the maximum memory of flash.
    pub fn division_of(&self, shares: &[Share]) -> Result<Vec<u64>, SharesError> {
        self.charged_division_of(shares).map(|budgets| budgets.bytes)
    }

    fn charged_division_of(&self, shares: &[Share]) -> Result<ChargedBudgets, SharesError> {
        self.wishes.divide(self.bytes_beside(self.reserved_bytes()), shares)?;
        self.wishes.divide_charged(self.available_bytes(), (shares, &self.charges(shares.len())))
    }

    /// Divides by the budgets that the controller wants, by name. Refused ones have no effect on later divisions.
    pub fn want(&mut self, budgets: impl IntoIterator<Item = (String, u64)>) -> Result<(), Error> {
        let Self { wishes, paid_bytes, .. } = self;
        let before = wishes.want(budgets, |name| paid_bytes.get(name).copied().unwrap_or(0));
        self.divide().inspect_err(|_| self.wishes.restore(before))
    }

    /// Bytes of flash's index for the objects of each pool, in the order of the shares. Compact pools and the one that
    /// is being added have nothing on flash.
    fn charges(&self, count: usize) -> Vec<u64> {
        let mut charges = match &self.flash {
            Some(flash) if !self.is_single() => {
                let pools = self.entries.iter().filter_map(|entry| entry.pool.flash.as_ref());
                flash.tier.pool_index_bytes(pools.map(|flash| &*flash.on_flash))
            }
            _ => Vec::new(),
        };
        charges.resize(count, 0);
        charges
    }

    /// Whether the charge of a pool has moved by more than a small part of the memory since the last division.
    pub fn has_charge_moved(&self) -> bool {
        let charges = self.charges(self.charges.len());
        let moved = charges.iter().zip(&self.charges).map(|(now, before)| now.abs_diff(*before)).max();
        moved.unwrap_or(0) > self.memory_bytes / CHARGE_SHARE
    }

    /// Has the budgets follow the memory of flash. Those above their new target fall at once.
    pub fn follow_flash(&mut self) -> Result<(), Error> {
        if self.is_single() && self.removed.is_empty() && self.joining.is_none() {
            let items_bytes = self.memory_bytes.saturating_sub(self.flash_bytes());
            self.entries[0].pool.store.resize(items_bytes).map_err(Error::from_store)?;
            self.entries[0].target_bytes = items_bytes;
            return Ok(());
        }
        self.divide_beyond_reach()?;
        self.step(0);
        Ok(())
    }

    /// Whether pools hold no more than flash leaves.
    pub fn is_within_memory(&self) -> bool {
        let held = held_bytes(self.pools()) + self.compact.held_bytes();
        held.saturating_add(self.flash_bytes()) <= self.memory_bytes
    }

    /// Whether the shares of flash can be had together with that of these options, for a pool of this name, which may
    /// be a new one.
    pub fn check_flash_shares_with(&self, name: &str, options: &PoolOptions) -> Result<(), Error> {
        let others = self.entries.iter().filter(|entry| entry.share.name != name);
        let others = others.map(|entry| (entry.share.name.as_str(), entry.flash_share));
        // Nothing of a compact pool goes to flash.
        let own = options.compact.is_none().then_some((name, options.flash_share));
        flash_shares::check(&others.chain(own).collect::<Vec<_>>())
    }

    pub fn set_flash_share(&mut self, name: &str, share: Option<u8>) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.share.name == name) {
            entry.flash_share = share;
        }
        self.divide_flash();
    }

    /// Divides flash among the pools.
    pub fn divide_flash(&self) {
        let Some(flash) = &self.flash else { return };
        let pools: Vec<_> = self.entries.iter().map(|entry| (entry.flash_share, entry.target_bytes)).collect();
        let bytes = flash_shares::divide(flash.tier.capacity_bytes(), &pools);
        for (entry, bytes) in self.entries.iter().zip(bytes) {
            entry.pool.flash.iter().for_each(|flash| flash.on_flash.set_share_bytes(bytes));
        }
    }

    pub fn set_targets(&mut self, bytes: &[u64]) {
        let targets = self.entries.iter_mut().map(|entry| &mut entry.target_bytes);
        let targets = targets.chain(self.compact.entries.iter_mut().map(|entry| &mut entry.target_bytes));
        targets.zip(bytes).for_each(|(target, bytes)| *target = *bytes);
        self.divide_flash();
    }

    /// Memory that no pool holds.
    pub fn free_bytes(&self) -> u64 {
        (self.memory_bytes - self.flash_bytes().min(self.memory_bytes))
            .saturating_sub(held_bytes(self.pools()) + self.compact.held_bytes())
    }

    /// A step of all budgets towards their targets.
    pub fn step(&mut self, max_bytes: u64) -> Step {
        let before = self.budgets();
        let stores: u64 = self.pools().map(|pool| pool.store.memory_bytes()).sum();
        let budgets = stores + self.compact.budget_bytes();
        let excess = (budgets + self.flash_bytes()).saturating_sub(self.memory_bytes);
        lower_budgets(&self.entries, excess.saturating_add(max_bytes), &mut self.refusals);
        self.compact.lower(&mut self.refusals);
        let kept_bytes = self.joining.as_ref().map_or(0, |(_, first_bytes)| *first_bytes);
        let free_bytes = self.free_bytes().saturating_sub(kept_bytes);
        let left_bytes = free_bytes - self.compact.grow(free_bytes, &mut self.refusals);
        grow_budgets(&self.entries, left_bytes, &mut self.refusals);
        self.forget_ended_refusals();
        let has_target = |entry: &PoolEntry| entry.pool.store.memory_bytes() == entry.target_bytes;
        let stores = self.entries.iter().all(has_target) && self.removed.is_empty();
        let is_in_progress = || {
            let stores_end = self.pools().all(|pool| pool.store.resize_done());
            !stores_end || !self.compact.pools().all(|pool| pool.table.resize_done()) || before != self.budgets()
        };
        match stores && self.compact.is_settled() && self.joining.is_none() {
            true => Step::Settled,
            false if self.joining.is_some() || is_in_progress() => Step::Moving,
            false => Step::Stalled,
        }
    }

    /// Pools at their targets are refused nothing any more.
    fn forget_ended_refusals(&mut self) {
        let Self { entries, compact, refusals, .. } = self;
        let stores =
            entries.iter().map(|entry| (&entry.pool.name, entry.pool.store.memory_bytes(), entry.target_bytes));
        let tables = &compact.entries;
        let tables = tables.iter().map(|entry| (&entry.pool.name, entry.pool.table.memory_bytes(), entry.target_bytes));
        let at_target = stores.chain(tables).filter(|(_, has_bytes, target_bytes)| has_bytes == target_bytes);
        at_target.for_each(|(name, ..)| refusals.forget(name));
    }

    fn budgets(&self) -> Vec<u64> {
        let stores = self.pools().map(|pool| pool.store.memory_bytes());
        stores.chain(self.compact.pools().map(|pool| pool.table.memory_bytes())).collect()
    }

    /// Drops removed pools without handles, and shrinks the others to their smallest budget, as far as their index lets
    /// them by now. True if that makes memory available.
    pub fn free_removed(&mut self) -> bool {
        let freed = self.compact.free_removed();
        let Self { removed, dropped, .. } = self;
        let mut has_freed = !freed.is_empty();
        freed.iter().for_each(|stats| add_counters(dropped, stats));
        removed.retain(|pool| {
            let is_held = Arc::strong_count(pool) > 1;
            if !is_held {
                add_counters(dropped, &pool.store.stats());
            }
            has_freed |= !is_held || shrink_to(pool, floor_bytes(pool.store.options())) > 0;
            is_held
        });
        has_freed
    }
}

/// Shrinks a removed pool, as far as its index lets it. Returns by how much. A step that its index refuses is told
/// nobody: no division gives the pool memory.
fn shrink_to(pool: &PoolState, target_bytes: u64) -> u64 {
    shrink(&pool.store, pool.store.memory_bytes().saturating_sub(target_bytes)).bytes
}
