//! What was wanted of the pools beside their options: budgets of the controller, and pools sized by hand.

use ebbtide_control::arbiter::{Claim, arbitrate};
use ebbtide_control::{Share, SharesError};
use std::collections::HashMap;

/// A pool as its controller sees it.
#[derive(Clone, Debug)]
pub(crate) struct PoolBudget {
    pub share: Share,
    pub is_fixed: bool,
    /// What the pool has, or is about to have.
    pub memory_bytes: u64,
    pub used_bytes: u64,
}

/// By the names of the pools.
#[derive(Debug, Default)]
pub(crate) struct PoolWishes {
    controller_bytes: HashMap<String, u64>,
    /// Minimum and maximum that the options of pools sized by hand say.
    fixed: HashMap<String, (u64, u64)>,
}

impl PoolWishes {
    /// Bytes of each pool, in the order of the shares.
    pub fn divide(&self, available_bytes: u64, shares: &[Share]) -> Result<Vec<u64>, SharesError> {
        let claim = |share: &Share| {
            let controller_bytes = self.controller_bytes.get(&share.name).copied();
            Claim { controller_bytes, ..Claim::of(share.clone()) }
        };
        let claims: Vec<Claim> = shares.iter().map(claim).collect();
        arbitrate(available_bytes, 0, &claims)
    }

    pub fn want(&mut self, budgets: impl IntoIterator<Item = (String, u64)>) {
        self.controller_bytes.extend(budgets);
    }

    /// The pool was sized by hand; before that it had these bounds.
    pub fn fix(&mut self, name: &str, bounds: (u64, u64)) {
        self.fixed.entry(name.to_owned()).or_insert(bounds);
    }

    pub fn release(&mut self, name: &str) {
        self.fixed.remove(name);
    }

    /// The bounds by the options of a pool that was sized by hand.
    pub fn configured_bounds(&self, name: &str) -> Option<(u64, u64)> {
        self.fixed.get(name).copied()
    }

    pub fn is_fixed(&self, name: &str) -> bool {
        self.fixed.contains_key(name)
    }

    /// The pool is gone.
    pub fn forget(&mut self, name: &str) {
        self.controller_bytes.remove(name);
        self.fixed.remove(name);
    }
}
