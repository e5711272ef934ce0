//! Wishes for pools beside their options: budgets of the controller, and pools sized by hand.

use ebbtide_control::arbiter::{Claim, arbitrate, charge};
use ebbtide_control::{Share, SharesError};
use std::collections::HashMap;

/// A pool as its controller sees it.
#[derive(Clone, Debug)]
pub(crate) struct PoolBudget {
    pub share: Share,
    /// The share with the bounds that its store can keep.
    pub reachable: Share,
    pub is_fixed: bool,
    /// Present bytes of the pool, or those that it is about to get.
    pub memory_bytes: u64,
    pub used_bytes: u64,
}

/// A division, in the order of the shares.
pub(crate) struct ChargedBudgets {
    pub bytes: Vec<u64>,
    /// Bytes that each pool pays of the index of flash.
    pub paid_bytes: Vec<u64>,
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

    /// As [`PoolWishes::divide`], where each pool pays its part of the index of flash. `available_bytes` does not
    /// include these parts.
    pub fn divide_charged(
        &self,
        available_bytes: u64,
        (shares, charges): (&[Share], &[u64]),
    ) -> Result<ChargedBudgets, SharesError> {
        let mut bytes = self.divide(available_bytes + charges.iter().sum::<u64>(), shares)?;
        let min_bytes: Vec<u64> = shares.iter().map(|share| share.min_bytes.max(share.floor_bytes)).collect();
        let paid_bytes = charge(&mut bytes, charges, &min_bytes);
        Ok(ChargedBudgets { bytes, paid_bytes })
    }

    /// Sets the budgets that the controller wants, without the payments of pools for the index of flash. With these
    /// they are the budgets of the division. Returns those that it wanted before, for [`PoolWishes::restore`].
    pub fn want(
        &mut self,
        budgets: impl IntoIterator<Item = (String, u64)>,
        paid_bytes: impl Fn(&str) -> u64,
    ) -> HashMap<String, u64> {
        let before = self.controller_bytes.clone();
        let whole = |(name, bytes): (String, u64)| {
            let bytes = bytes + paid_bytes(&name);
            (name, bytes)
        };
        self.controller_bytes.extend(budgets.into_iter().map(whole));
        before
    }

    /// The budgets that the controller wanted last were refused.
    pub fn restore(&mut self, controller_bytes: HashMap<String, u64>) {
        self.controller_bytes = controller_bytes;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_budgets_exclude_the_pools_charge() {
        let shares = [Share::named("a"), Share::named("b")];
        let mut wishes = PoolWishes::default();
        let first = wishes.divide_charged(80, (&shares, &[20, 0])).unwrap();
        assert_eq!((first.bytes, &first.paid_bytes), (vec![30, 50], &vec![20, 0]));
        for budgets in [[30, 50], [35, 45], [10, 70]] {
            let names = ["a", "b"].map(str::to_owned);
            wishes.want(names.into_iter().zip(budgets), |name| if name == "a" { 20 } else { 0 });
            assert_eq!(wishes.divide_charged(80, (&shares, &[20, 0])).unwrap().bytes, budgets);
        }
    }
}
