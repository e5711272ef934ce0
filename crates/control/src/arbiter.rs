//! Arbiter: the order in which four parties decide about one memory.
//!
//! ```text
//! 1. the monitor sets the total -> 2. flash takes its index -> 3. the division of the rest -> 4. the index of a pool
//!    (pressure)                                                   (a hand, else the controller)  (inside its budget)
//! ```
//! Each step decides within the memory that earlier steps leave, and none changes an earlier decision:
//!
//! 1. The total holds for all steps.
//! 2. The index of flash follows the objects on flash. Each pool pays for its objects ([`charge`]); the rest of the
//!    memory of flash is subtracted before anything is divided.
//! 3. A pool that was sized by hand has that budget. The rest goes by weights: those of the configuration, or the
//!    budgets that the controller wants. Because these are weights, a smaller total shrinks all pools in proportion,
//!    and the controller's division survives it. Where a hand and the total contradict each other, the total wins:
//!    hand-sized pools shrink like all others, down to their minimum.
//! 4. An index grows inside the budget of its pool. A budget never falls under the present size of the pool's index.
//!
//! [`arbitrate`] is a pure function of the present wishes, without a memory of earlier ones: equal wishes give equal
//! budgets, so the four cannot oscillate through it.

use crate::shares::{Share, SharesError, divide};

/// The demands of all parties on one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Bounds and weight of the configuration.
    pub share: Share,
    /// The budget that a caller has set by hand.
    pub by_hand_bytes: Option<u64>,
    /// The budget that the controller wants.
    pub controller_bytes: Option<u64>,
    /// Bytes of the pool's index and of the segments that must fit beside it.
    pub index_bytes: u64,
}

impl Claim {
    /// A claim of the configuration alone.
    pub fn of(share: Share) -> Self {
        Self { share, by_hand_bytes: None, controller_bytes: None, index_bytes: 0 }
    }
}

/// Budgets of the pools within a total, in their order. Their sum and that of flash is at most the total.
///
/// # Errors
/// The minimums of the pools, if their sum exceeds the memory available.
pub fn arbitrate(total_bytes: u64, flash_bytes: u64, claims: &[Claim]) -> Result<Vec<u64>, SharesError> {
    let available_bytes = total_bytes.saturating_sub(flash_bytes);
    let shares = |hands_hold: bool| -> Vec<Share> {
        let wanted = wanted_bytes(available_bytes, claims, hands_hold);
        claims.iter().zip(wanted).map(|(claim, wanted)| claim.share(hands_hold, wanted)).collect()
    };
    match divide(available_bytes, &shares(true)) {
        Err(SharesError::TooLittle { .. }) => divide(available_bytes, &shares(false)),
        divided => divided,
    }
}

/// Takes the charge of each pool, its part of the flash index, from its budget, down to the minimum of the pool. The
/// other pools pay the rest in proportion to their memory above their minimums. Returns the payment of each pool.
///
/// # Panics
/// If the three slices differ in length.
pub fn charge(budgets: &mut [u64], charges: &[u64], min_bytes: &[u64]) -> Vec<u64> {
    assert!(budgets.len() == charges.len() && budgets.len() == min_bytes.len(), "one of each for a pool");
    let before = budgets.to_vec();
    let mut unpaid = 0_u64;
    for ((budget, &charge), &min) in budgets.iter_mut().zip(charges).zip(min_bytes) {
        let paid = charge.min(budget.saturating_sub(min));
        *budget -= paid;
        unpaid += charge - paid;
    }
    let spares: Vec<u64> = budgets.iter().zip(min_bytes).map(|(budget, min)| budget.saturating_sub(*min)).collect();
    let all: u64 = spares.iter().sum();
    let unpaid = unpaid.min(all);
    let part = |spare: u64| (u128::from(unpaid) * u128::from(spare) / u128::from(all.max(1))) as u64;
    // Rounding leaves a byte for each pool at most.
    let mut rest = unpaid - spares.iter().map(|spare| part(*spare)).sum::<u64>();
    for (budget, &spare) in budgets.iter_mut().zip(&spares) {
        let paid = part(spare);
        let more = rest.min(spare - paid);
        *budget -= paid + more;
        rest -= more;
    }
    before.iter().zip(budgets).map(|(before, after)| before - *after).collect()
}

/// Wanted budgets as weights of `divide`; all `None` if no pool has a budget by hand or from the controller.
fn wanted_bytes(available_bytes: u64, claims: &[Claim], hands_hold: bool) -> Vec<Option<u32>> {
    let wanted = |claim: &Claim| match claim.by_hand_bytes {
        Some(bytes) => Some(bytes).filter(|_| !hands_hold),
        None => claim.controller_bytes,
    };
    let largest = claims.iter().filter_map(wanted).max();
    let Some(largest) = largest else { return vec![None; claims.len()] };
    let shift = (u64::BITS - largest.max(available_bytes).leading_zeros()).saturating_sub(u32::BITS);
    let weights: u64 = claims.iter().map(|claim| u64::from(claim.share.weight)).sum();
    let by_weight = |claim: &Claim| available_bytes as f64 * f64::from(claim.share.weight) / weights.max(1) as f64;
    let in_weight = |bytes: u64| u32::try_from(bytes >> shift).unwrap_or(u32::MAX).max(1);
    claims.iter().map(|claim| Some(in_weight(wanted(claim).unwrap_or(by_weight(claim) as u64)))).collect()
}

impl Claim {
    fn share(&self, hands_hold: bool, wanted: Option<u32>) -> Share {
        let Self { share, by_hand_bytes, index_bytes, .. } = self;
        // A budget is not cut under the index: it follows when the index has contracted.
        let (floor_bytes, max_bytes) = (share.floor_bytes.max(*index_bytes), share.max_bytes.max(*index_bytes));
        let weight = wanted.unwrap_or(share.weight);
        match by_hand_bytes.filter(|_| hands_hold) {
            Some(bytes) => {
                let bytes = bytes.max(floor_bytes);
                Share { min_bytes: bytes, max_bytes: bytes, floor_bytes, weight, ..share.clone() }
            }
            None => Share { max_bytes, floor_bytes, weight, ..share.clone() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str, weight: u32) -> Claim {
        Claim::of(Share { weight, floor_bytes: 2, ..Share::named(name) })
    }

    #[test]
    fn each_party_decides_within_what_others_leave() {
        let mut claims = [claim("a", 1), claim("b", 3), claim("c", 4)];
        assert_eq!(arbitrate(100, 20, &claims), Ok(vec![10, 30, 40]), "by weight, after flash");
        claims[0].controller_bytes = Some(40);
        claims[1].controller_bytes = Some(40);
        claims[2].controller_bytes = Some(80);
        assert_eq!(arbitrate(180, 20, &claims), Ok(vec![40, 40, 80]), "as the controller wants");
        assert_eq!(arbitrate(100, 20, &claims), Ok(vec![20, 20, 40]), "in proportion within a smaller total");
        claims[1].by_hand_bytes = Some(32);
        assert_eq!(arbitrate(100, 20, &claims), Ok(vec![16, 32, 32]), "a hand is before the controller");
        claims[2].index_bytes = 36;
        assert_eq!(arbitrate(100, 20, &claims), Ok(vec![12, 32, 36]), "no budget under its index");
        claims[1].by_hand_bytes = Some(90);
        assert_eq!(arbitrate(100, 20, &claims).unwrap().iter().sum::<u64>(), 80, "the total is before a hand");
        let refusal = arbitrate(50, 20, &claims).unwrap_err().to_string();
        assert!(refusal.contains("at least 40 bytes and there are 30"), "{refusal}");
    }

    #[test]
    fn each_pool_pays_for_its_index_of_flash() {
        let charged = |mut budgets: Vec<u64>, charges: &[u64], min: &[u64]| {
            let before = budgets.clone();
            let paid = charge(&mut budgets, charges, min);
            assert!(before.iter().zip(&paid).zip(&budgets).all(|((before, paid), after)| before - paid == *after));
            budgets
        };
        assert_eq!(charged(vec![50, 50], &[20, 0], &[0, 0]), [30, 50], "for nobody else's objects");
        assert_eq!(charged(vec![50, 50], &[20, 0], &[40, 0]), [40, 40], "not under its minimum");
        assert_eq!(charged(vec![50, 60, 30], &[20, 0, 0], &[50, 30, 20]), [50, 45, 25], "others in proportion");
        assert_eq!(charged(vec![50, 51, 51], &[11, 0, 0], &[50, 0, 0]), [50, 45, 46], "to the byte");
        assert_eq!(charged(vec![50, 50], &[200, 9], &[10, 20]), [10, 20], "a charge that nobody can pay");
    }

    #[test]
    fn new_pools_get_their_weight_beside_controller_budgets() {
        let mut claims = [claim("a", 1), claim("b", 1), claim("new", 1)];
        (claims[0].controller_bytes, claims[1].controller_bytes) = (Some(80), Some(40));
        assert_eq!(arbitrate(120, 0, &claims), Ok(vec![60, 30, 30]));
    }
}
