//! The compact pools of an engine, and their part of its memory.
//!
//! A compact pool has a share of the memory like other pools. Its table changes its size in one walk over all entries,
//! so it does so in few, large steps: it shrinks to its target at once, and grows when all missing memory is free, or
//! an eighth of its present memory.

use crate::compact_state::CompactState;
use crate::pool_refusals::BudgetRefusals;
use ebbtide_control::Share;
use ebbtide_store::Stats;
use std::sync::Arc;

/// A growth by less than this part of the table waits until all that the pool lacks is free.
const STEP_SHARE: u64 = 8;

/// A compact pool and its part of the memory.
pub(crate) struct CompactEntry {
    pub share: Share,
    pub pool: Arc<CompactState>,
    pub target_bytes: u64,
}

#[derive(Default)]
pub(crate) struct CompactPools {
    pub entries: Vec<CompactEntry>,
    /// Pools whose handles still exist.
    pub removed: Vec<Arc<CompactState>>,
}

impl CompactPools {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.removed.is_empty()
    }

    pub fn find(&self, name: &str) -> Option<&Arc<CompactState>> {
        self.entries.iter().find(|entry| entry.share.name == name).map(|entry| &entry.pool)
    }

    pub fn pools(&self) -> impl Iterator<Item = &Arc<CompactState>> {
        self.entries.iter().map(|entry| &entry.pool).chain(&self.removed)
    }

    pub fn shares(&self) -> impl Iterator<Item = Share> {
        self.entries.iter().map(|entry| entry.share.clone())
    }

    pub fn budget_bytes(&self) -> u64 {
        self.pools().map(|pool| pool.table.memory_bytes()).sum()
    }

    pub fn held_bytes(&self) -> u64 {
        self.pools().map(|pool| pool.table.held_bytes()).sum()
    }

    pub fn target_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.target_bytes).sum()
    }

    pub fn removed_bytes(&self) -> u64 {
        self.removed.iter().map(|pool| pool.table.memory_bytes()).sum()
    }

    /// Lowers budgets above their target.
    pub fn lower(&self, refusals: &mut BudgetRefusals) {
        for CompactEntry { pool, target_bytes, .. } in &self.entries {
            let has_bytes = pool.table.memory_bytes();
            if has_bytes > *target_bytes
                && let Err(error) = pool.table.resize(*target_bytes)
            {
                refusals.note(&pool.name, (has_bytes, *target_bytes), &error);
            }
        }
    }

    /// Grows budgets below their target, by `bytes` together. Returns by how much.
    pub fn grow(&self, bytes: u64, refusals: &mut BudgetRefusals) -> u64 {
        let mut left = bytes;
        for CompactEntry { pool, target_bytes, .. } in &self.entries {
            let has_bytes = pool.table.memory_bytes();
            let lacks = target_bytes.saturating_sub(has_bytes);
            let step = lacks.min(left);
            let is_worth_a_walk = step == lacks || step >= has_bytes / STEP_SHARE;
            if step > 0 && is_worth_a_walk && pool.table.resize_done() {
                match pool.table.resize(has_bytes + step) {
                    Ok(()) => left -= step,
                    Err(error) => refusals.note(&pool.name, (has_bytes, *target_bytes), &error),
                }
            }
        }
        bytes - left
    }

    /// Whether all pools have their target, and none is on its way out.
    pub fn is_settled(&self) -> bool {
        let has_target = |entry: &CompactEntry| {
            entry.pool.table.memory_bytes() == entry.target_bytes && entry.pool.table.resize_done()
        };
        self.entries.iter().all(has_target) && self.removed.is_empty()
    }

    /// Drops removed pools without handles. Returns their statistics.
    pub fn free_removed(&mut self) -> Vec<Stats> {
        let mut dropped = Vec::new();
        self.removed.retain(|pool| {
            let is_held = Arc::strong_count(pool) > 1;
            if !is_held {
                dropped.push(pool.stats());
            }
            is_held
        });
        dropped
    }
}
