//! Budgets that pools have refused, each told once.
//!
//! A pool approaches its target in steps, and a refused step is tried again, often. So a refusal is told when a pool is
//! refused a step towards a target for the first time, and once more for each other target, and after the pool was at
//! its target.

use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Display, Formatter};

/// Refusals that wait to be taken. Of more the oldest are dropped.
const WAITING_MAX: usize = 32;

/// A pool could not have the memory that the division gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetRefusal {
    pub pool: String,
    /// The memory that the pool keeps.
    pub memory_bytes: u64,
    /// The memory that it is to have.
    pub target_bytes: u64,
    /// The error of its store or table, in words.
    pub reason: String,
}

impl Display for BudgetRefusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let Self { pool, memory_bytes, target_bytes, reason } = self;
        let (memory, target) = (mib(*memory_bytes), mib(*target_bytes));
        write!(f, "the pool {pool} stays at {memory:.2} MiB, {target:.2} MiB are refused for now: {reason}")
    }
}

/// The refusals of the pools of an engine.
#[derive(Debug, Default)]
pub(crate) struct BudgetRefusals {
    /// Targets towards which a step was refused, by the name of the pool.
    told: HashMap<String, u64>,
    waiting: VecDeque<BudgetRefusal>,
    count: u64,
}

impl BudgetRefusals {
    /// A step from `memory_bytes` towards `target_bytes` was refused.
    pub fn note(&mut self, pool: &str, (memory_bytes, target_bytes): (u64, u64), reason: &impl Display) {
        if self.told.insert(pool.to_owned(), target_bytes) == Some(target_bytes) {
            return;
        }
        self.count += 1;
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
        }
        let (pool, reason) = (pool.to_owned(), reason.to_string());
        self.waiting.push_back(BudgetRefusal { pool, memory_bytes, target_bytes, reason });
    }

    /// The pool is at its target, or is gone.
    pub fn forget(&mut self, pool: &str) {
        if !self.told.is_empty() {
            self.told.remove(pool);
        }
    }

    /// Refusals since the start.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The refusals since the last call, the newest last.
    pub fn take(&mut self) -> Vec<BudgetRefusal> {
        self.waiting.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_is_told_once() {
        let mut refusals = BudgetRefusals::default();
        let told = |refusals: &mut BudgetRefusals, pool: &str, target_bytes| {
            refusals.note(pool, (9 << 20, target_bytes), &"no space");
            refusals.take().len()
        };
        assert_eq!([told(&mut refusals, "a", 1), told(&mut refusals, "a", 1)], [1, 0]);
        assert_eq!([told(&mut refusals, "b", 1), told(&mut refusals, "a", 2)], [1, 1]);
        refusals.forget("a");
        assert_eq!([told(&mut refusals, "a", 2), told(&mut refusals, "b", 1)], [1, 0]);
        (0..100).for_each(|target| refusals.note("c", (9 << 20, target), &"no space"));
        let taken = refusals.take();
        assert_eq!((refusals.count(), taken.len(), taken[31].target_bytes), (104, WAITING_MAX, 99));
        assert_eq!(taken[0].to_string(), "the pool c stays at 9.00 MiB, 0.00 MiB are refused for now: no space");
    }
}
