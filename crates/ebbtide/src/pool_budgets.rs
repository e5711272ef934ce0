//! How the budgets of pools approach their targets.
//!
//! ```text
//! shares --divide--> targets: pools above their target fall, at a bounded rate ---memory is free---> others grow
//! ```
//! A pool that falls evicts in the background, so its memory is free some time later. Another pool grows by the free
//! bytes, no more: the memory of all pools together stays within the one number. The rate bounds how much of the
//! maintenance thread and of the memory bandwidth a move takes from readers and writers. Where all pools together
//! exceed the memory, they fall at once.

use crate::pool_plan::reaching;
use crate::pool_refusals::BudgetRefusals;
use crate::pool_state::PoolState;
use ebbtide_control::Share;
use ebbtide_store::{Error as StoreError, Store};
use std::sync::Arc;
use std::time::Duration;

/// Bytes that move between pools in a second: a core that copies survivors moves several times as much.
const MOVE_BYTES_PER_SECOND: u64 = 256 << 20;

/// A step of less memory than this is not tried: the smallest store has 64 segments of it.
const MIN_STEP_BYTES: u64 = 4 << 10;

/// A pool and its part of the memory.
pub(crate) struct PoolEntry {
    pub share: Share,
    pub pool: Arc<PoolState>,
    pub target_bytes: u64,
    /// Percent of flash, if it is set.
    pub flash_share: Option<u8>,
}

/// Bytes of a name of 64 bytes, once for the pool and once for its share.
const NAME_BYTES: u64 = 2 * 80;

impl PoolEntry {
    /// Bytes of a pool on the heap beside its store: its state, its place in the table of pools, and names.
    pub const HEAP_BYTES: u64 = (size_of::<PoolState>() + size_of::<Self>()) as u64 + NAME_BYTES;

    /// The share as the division counts it.
    pub fn reachable_share(&self) -> Share {
        reaching(self.share.clone(), self.pool.store.reachable_bytes())
    }
}

/// Bytes that may move after this time.
pub(crate) fn allowance(elapsed: Duration) -> u64 {
    let bytes = elapsed.as_nanos() * u128::from(MOVE_BYTES_PER_SECOND) / Duration::from_secs(1).as_nanos();
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Memory that is not free for others.
pub(crate) fn held_bytes<'a>(pools: impl Iterator<Item = &'a Arc<PoolState>>) -> u64 {
    pools.map(|pool| pool.store.held_bytes()).sum()
}

/// Lowers budgets above their target, by `bytes` together.
pub(crate) fn lower_budgets(entries: &[PoolEntry], mut bytes: u64, refusals: &mut BudgetRefusals) {
    for PoolEntry { pool, target_bytes, .. } in entries {
        let above = pool.store.memory_bytes().saturating_sub(*target_bytes);
        let step = above.min(bytes);
        if step > 0 {
            let shrunk = shrink(&pool.store, step);
            bytes -= shrunk.bytes;
            shrunk.tell(pool, *target_bytes, refusals);
            pool.wake();
        } else if above == 0 {
            // A smaller target of an earlier division is wanted no more.
            pool.store.evict_towards(*target_bytes);
        }
    }
}

/// Grows budgets below their target, by `bytes` together.
pub(crate) fn grow_budgets(entries: &[PoolEntry], mut bytes: u64, refusals: &mut BudgetRefusals) {
    for PoolEntry { pool, target_bytes, .. } in entries {
        let has_bytes = pool.store.memory_bytes();
        let step = target_bytes.saturating_sub(has_bytes).min(bytes);
        if step > 0 {
            match pool.store.resize(has_bytes + step) {
                Ok(()) => bytes -= step,
                Err(error) => refusals.note(&pool.name, (has_bytes, *target_bytes), &error),
            }
        }
    }
}

/// Result of `shrink`.
pub(crate) struct Shrunk {
    /// By how much the budget is lower now.
    pub bytes: u64,
    /// Why that is less than it was to be.
    refusal: Option<StoreError>,
}

impl Shrunk {
    /// Notes the refusal of a step of this pool, if it is one.
    pub fn tell(&self, pool: &PoolState, target_bytes: u64, refusals: &mut BudgetRefusals) {
        if let Some(error) = &self.refusal {
            refusals.note(&pool.name, (pool.store.memory_bytes(), target_bytes), error);
        }
    }
}

/// Lowers the budget of a store by this much, or by less if its index takes too much: then it evicts towards the rest,
/// for a later step.
pub(crate) fn shrink(store: &Store, bytes: u64) -> Shrunk {
    let has_bytes = store.memory_bytes();
    let mut refusal = None;
    let done = lower_by(bytes, has_bytes, |bytes| match store.resize(bytes) {
        Ok(()) => true,
        Err(error) => {
            refusal.get_or_insert(error);
            false
        }
    });
    if done < bytes {
        store.evict_towards(has_bytes.saturating_sub(bytes));
    }
    Shrunk { bytes: done, refusal }
}

/// Lowers a memory by this much, or by as much as `resize` accepts. Returns by how much.
pub(crate) fn lower_by(bytes: u64, has_bytes: u64, mut resize: impl FnMut(u64) -> bool) -> u64 {
    let mut done = 0;
    for halvings in 0..u64::BITS {
        let step = (bytes >> halvings).min(bytes - done);
        if step == 0 || halvings > 0 && step < MIN_STEP_BYTES {
            break;
        }
        if resize(has_bytes.saturating_sub(done + step)) {
            done += step;
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allowance_grows_with_the_time() {
        assert_eq!(allowance(Duration::ZERO), 0);
        assert_eq!(allowance(Duration::from_secs(4)), 1 << 30);
        assert_eq!(allowance(Duration::from_millis(500)), 128 << 20);
        assert_eq!(allowance(Duration::MAX), u64::MAX);
    }
}
