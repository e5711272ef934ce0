//! Whether another write is worth it for what was hit: a copy costs as much as a new object, and takes as much room
//! from others.
//!
//! ```text
//! first hit of an object, in a region of which copies have the share s:       copies displace new objects:
//!     of a copy        copies += 1 - s                                            owed += bytes of a copy
//!     of what was new  new += s                    copies >= new? they pay        owed -= bytes of refused new objects
//! ```
//! Only a first hit counts: what was not kept comes back with its next miss, so one hit is all that a write can save.
//! Copies are compared with what was new in the same region, as regions that were hit live longer than others: hits of
//! both as if each had been given all the bytes of the other (Mantel and Haenszel 1959, for strata of unequal size).
//! The sums fade over three turns of the log. While copies do not pay, a few are made to see whether they would.

use crate::FlashHash;
use crate::hash::mix;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Hits fade over so many turns of the log. Over one, chance decides too often.
const DECAY_TURNS: f64 = 3.0;

/// No object is copied that is longer than so many new ones are on average: copies of short ones, which pay, would pay
/// for it.
const MAX_MEAN_MULTIPLE: f64 = 2.0;

/// A share of bytes, in 65,535ths.
pub type CopiedShare = u16;

#[derive(Default)]
pub struct ReinsertionValue {
    /// Hits, times 65,535.
    copies: AtomicU64,
    new: AtomicU64,
    /// New objects, times 65,535, and their bytes.
    inserted: AtomicU64,
    inserted_bytes: AtomicU64,
    /// Bytes of copies in whose place no new object was refused yet; below zero, of the last one more were refused.
    debt: AtomicI64,
}

impl ReinsertionValue {
    /// An object was hit for the first time since it was written, in a region of which this share are copies. Without
    /// any, or where they are not known, it says nothing.
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

    /// A new object of so many bytes was taken.
    pub fn inserted(&self, bytes: usize) {
        self.inserted_bytes.fetch_add(bytes as u64, Relaxed);
        self.inserted.fetch_add(CopiedShare::MAX.into(), Relaxed);
    }

    /// The longest object of which a copy is worth it. One hit is all that it saves, whatever its length.
    pub fn max_object_bytes(&self) -> usize {
        let (inserted, bytes) = (self.inserted.load(Relaxed), self.inserted_bytes.load(Relaxed));
        if inserted == 0 {
            usize::MAX
        } else {
            (MAX_MEAN_MULTIPLE * bytes as f64 * f64::from(CopiedShare::MAX) / inserted as f64) as usize
        }
    }

    /// Whether copies bring as many hits per byte as what is new, or none was there to be hit. This share of the log
    /// goes. Of what is owed so many bytes stay at most: what new objects did not repay until now, later ones would for
    /// nothing.
    pub fn copies_pay(&self, share: f64, max_debt: usize) -> bool {
        for sum in [&self.copies, &self.new, &self.inserted, &self.inserted_bytes] {
            // Nobody else takes away from it.
            sum.fetch_sub((sum.load(Relaxed) as f64 * (1.0 - (-share / DECAY_TURNS).exp())) as u64, Relaxed);
        }
        let do_pay = self.copies.load(Relaxed) >= self.new.load(Relaxed);
        self.debt.fetch_min(if do_pay { max_debt as i64 } else { 0 }, Relaxed);
        do_pay
    }

    /// What was copied is gone, or of no use.
    pub fn clear_debt(&self) {
        self.debt.fetch_min(0, Relaxed);
    }

    /// A copy of so many bytes was made.
    pub fn add_debt(&self, bytes: usize) {
        self.debt.fetch_add(bytes as i64, Relaxed);
    }

    /// Whether a new object of so many bytes is not to be taken, in the place of copies: every second one, by chance,
    /// while any are owed.
    pub fn refuses_insert(&self, hash: FlashHash, bytes: usize) -> bool {
        let debt = self.debt.load(Relaxed);
        // What is owed changes with each that is refused: so it is not always the same key.
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
    fn copies_pay_while_they_have_as_many_hits_per_byte() {
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
    fn what_is_longer_than_others_by_far_is_not_worth_it() {
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
    fn as_many_bytes_are_refused_as_are_owed() {
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
    fn what_is_owed_from_before_is_bounded() {
        let reinsertion_value = ReinsertionValue::default();
        reinsertion_value.add_debt(100_000);
        assert!(reinsertion_value.copies_pay(0.0, 7000));
        assert_eq!((0..1000).filter(|&i| reinsertion_value.refuses_insert(FlashHash(i), 700)).count(), 10);
        reinsertion_value.add_debt(100_000);
        reinsertion_value.clear_debt();
        assert!(!(0..100).any(|i| reinsertion_value.refuses_insert(FlashHash(i), 10)));
    }
}
