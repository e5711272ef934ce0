//! Whether it pays to reinsert hit objects: a copy costs as much as a new object, and takes the same space from others.
//!
//! ```text
//! first hit of an object, in a region of which copies have the share s:       copies displace new objects:
//!     of a copy        copies += 1 - s                                            debt += bytes of a copy
//!     of what was new  new += s                    copies >= new? they pay        debt -= bytes of refused new objects
//! ```
//! Only a first hit counts: an object that was not kept is inserted again after its next miss, so one hit is all that a
//! write can save. Copies are compared with new objects in the same region, as hit regions live longer than others. The
//! hits of each are weighted by the share of the other (Mantel and Haenszel 1959, for strata of unequal size). The sums
//! decay over three turns of the log. While copies do not pay, a few are made to measure whether they would.

use crate::FlashHash;
use crate::hash::mix;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Number of turns of the log over which hits decay. Over one turn, chance decides too often.
const DECAY_TURNS: f64 = 3.0;

/// Maximum length of a copied object, as a multiple of the mean length of new ones. Otherwise copies of short objects,
/// which pay, would hide that copies of long ones do not.
const MAX_MEAN_MULTIPLE: f64 = 2.0;

/// A share of bytes, in 65,535ths.
pub type CopiedShare = u16;

#[derive(Default)]
pub struct ReinsertionValue {
    /// First hits of copies, times 65,535. `new`: first hits of new objects.
    copies: AtomicU64,
    new: AtomicU64,
    /// Inserts of new objects, times 65,535. `inserted_bytes`: their bytes.
    inserted: AtomicU64,
    inserted_bytes: AtomicU64,
    /// Bytes of copies for which no new object has been refused yet. Negative if the last refused object was longer
    /// than the debt.
    debt: AtomicI64,
}

impl ReinsertionValue {
    /// Counts the first hit of an object in a region with this share of copies. A region without copies, or with an
    /// unknown share, is not counted.
    pub fn first_hit(&self, is_copy: bool, copied: CopiedShare) {
        if copied == 0 {
            return;
        }
        if is_copy {
            self.copies.fetch_add((CopiedShare::MAX - copied).into(), Relaxed);
        } else {
            self.new.fetch_add(copied.into(), Relaxed);
        }
    }

    /// Counts an insert of a new object of `bytes`.
    pub fn inserted(&self, bytes: usize) {
        self.inserted_bytes.fetch_add(bytes as u64, Relaxed);
        self.inserted.fetch_add(CopiedShare::MAX.into(), Relaxed);
    }

    /// The longest object to copy. A copy saves only one hit, whatever its length.
    pub fn max_object_bytes(&self) -> usize {
        let (inserted, bytes) = (self.inserted.load(Relaxed), self.inserted_bytes.load(Relaxed));
        if inserted == 0 {
            usize::MAX
        } else {
            (MAX_MEAN_MULTIPLE * bytes as f64 * f64::from(CopiedShare::MAX) / inserted as f64) as usize
        }
    }

    /// Whether copies earn as many hits per byte as new objects, or there were none of either. `share` of the log is
    /// being reclaimed. The debt is cut to `max_debt`: debt that new objects have not repaid so far should not burden
    /// later ones.
    pub fn copies_pay(&self, share: f64, max_debt: usize) -> bool {
        for sum in [&self.copies, &self.new, &self.inserted, &self.inserted_bytes] {
            // No other thread subtracts from it.
            sum.fetch_sub((sum.load(Relaxed) as f64 * (1.0 - (-share / DECAY_TURNS).exp())) as u64, Relaxed);
        }
        let do_pay = self.copies.load(Relaxed) >= self.new.load(Relaxed);
        self.debt.fetch_min(if do_pay { max_debt as i64 } else { 0 }, Relaxed);
        do_pay
    }

    /// Clears the debt after the copies were flushed.
    pub fn clear_debt(&self) {
        self.debt.fetch_min(0, Relaxed);
    }

    /// Adds a copy of `bytes` to the debt.
    pub fn add_debt(&self, bytes: usize) {
        self.debt.fetch_add(bytes as i64, Relaxed);
    }

    /// Whether to refuse a new object of `bytes` to repay copies: every second one, at random, while there is debt.
    pub fn refuses_insert(&self, hash: FlashHash, bytes: usize) -> bool {
        let debt = self.debt.load(Relaxed);
        // The debt changes with each refusal, so the refused keys vary.
        let is_refused = debt > 0 && mix(hash.0 ^ debt as u64) & 1 == 0;
        if is_refused {
            self.debt.fetch_sub(bytes as i64, Relaxed);
        }
        is_refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THIRD: CopiedShare = CopiedShare::MAX / 3;

    fn hit(reinsertion_value: &ReinsertionValue, copies: u32, new: u32) {
        (0..copies).for_each(|_| reinsertion_value.first_hit(true, THIRD));
        (0..new).for_each(|_| reinsertion_value.first_hit(false, THIRD));
    }

    #[test]
    fn copies_pay_at_equal_hits_per_byte() {
        let reinsertion_value = ReinsertionValue::default();
        reinsertion_value.first_hit(false, 0);
        assert!(reinsertion_value.copies_pay(0.0, 0), "none was there");
        hit(&reinsertion_value, 100, 199);
        assert!(reinsertion_value.copies_pay(0.0, 0));
        hit(&reinsertion_value, 0, 2);
        assert!(!reinsertion_value.copies_pay(0.0, 0));
        hit(&reinsertion_value, 1, 0);
        assert!(reinsertion_value.copies_pay(0.0, 0));
    }

    #[test]
    fn hits_of_long_ago_count_little() {
        let reinsertion_value = ReinsertionValue::default();
        hit(&reinsertion_value, 1000, 1000);
        hit(&reinsertion_value, 0, 500);
        assert!(reinsertion_value.copies_pay(0.0, 0), "copies had a third of the bytes");
        (0..30).for_each(|_| _ = reinsertion_value.copies_pay(0.1, 0));
        hit(&reinsertion_value, 0, 500);
        assert!(!reinsertion_value.copies_pay(0.0, 0));
    }

    #[test]
    fn objects_far_above_average_length_are_not_copied() {
        let reinsertion_value = ReinsertionValue::default();
        assert_eq!(reinsertion_value.max_object_bytes(), usize::MAX, "nothing is known of others");
        (0..100).for_each(|i| reinsertion_value.inserted([4000, 16_000][i % 2]));
        assert_eq!(reinsertion_value.max_object_bytes(), 20_000);
        (0..100).for_each(|_| _ = reinsertion_value.copies_pay(0.1, 0));
        (0..100).for_each(|_| reinsertion_value.inserted(100_000));
        assert!(
            (190_000..200_000).contains(&reinsertion_value.max_object_bytes()),
            "{}: what came long ago counts little",
            reinsertion_value.max_object_bytes()
        );
    }

    #[test]
    fn as_many_bytes_are_refused_as_the_debt() {
        let reinsertion_value = ReinsertionValue::default();
        assert!(!(0..100).any(|i| reinsertion_value.refuses_insert(FlashHash(i), 10)));
        reinsertion_value.add_debt(100_000);
        let refused: Vec<_> = (0..1000).filter(|&i| reinsertion_value.refuses_insert(FlashHash(i), 700)).collect();
        assert_eq!(refused.len(), 100_000_usize.div_ceil(700));
        assert!(refused[20] > 25, "others are as likely: {refused:?}");
        reinsertion_value.add_debt(100_000);
        hit(&reinsertion_value, 0, 1);
        assert!(
            !reinsertion_value.copies_pay(0.0, 0)
                && !(0..100).any(|i| reinsertion_value.refuses_insert(FlashHash(i), 10)),
            "copies that did not pay"
        );
    }

    #[test]
    fn the_debt_of_earlier_copies_is_bounded() {
        let reinsertion_value = ReinsertionValue::default();
        reinsertion_value.add_debt(100_000);
        assert!(reinsertion_value.copies_pay(0.0, 7000));
        assert_eq!((0..1000).filter(|&i| reinsertion_value.refuses_insert(FlashHash(i), 700)).count(), 10);
        reinsertion_value.add_debt(100_000);
        reinsertion_value.clear_debt();
        assert!(!(0..100).any(|i| reinsertion_value.refuses_insert(FlashHash(i), 10)));
    }
}
