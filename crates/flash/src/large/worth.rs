//! Whether another write is worth it for what was hit: a copy costs as much as a new object, and takes as much room from others.
//!
//! ```text
//! first hit of an object, in a region of which copies have the share s:       what copies were made takes the place of new objects:
//!     of a copy        copies += 1 - s                                            owed += bytes of a copy
//!     of what was new  new += s                    copies >= new? they pay        owed -= bytes of a new object that is not taken
//! ```
//! Only a first hit counts: what was not kept comes back with its next miss, so one hit is all that a write can save. Copies are compared with what was new in
//! the same region, as regions that were hit live longer than others: hits of both as if each had been given all the bytes of the other (Mantel and
//! Haenszel 1959, for strata of unequal size). The sums fade over three turns of the log. While copies do not pay, a few are made to see whether they would.

use crate::KeyHash;
use crate::admission::bloom::mix;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Hits fade over so many turns of the log. Over one, chance decides too often.
const TURNS: f64 = 3.0;

/// No object is copied that is longer than so many new ones are on average: copies of short ones, which pay, would pay for it.
const TIMES_MEAN: f64 = 2.0;

/// A share of bytes, in 65,535ths.
pub type Share = u16;

#[derive(Default)]
pub struct Worth {
    /// Hits, times 65,535.
    copies: AtomicU64,
    new: AtomicU64,
    /// New objects, times 65,535, and their bytes.
    came: AtomicU64,
    came_bytes: AtomicU64,
    /// Bytes of copies in whose place no new object was refused yet; below zero, of the last one more were refused.
    owed: AtomicI64,
}

impl Worth {
    /// An object was hit for the first time since it was written, in a region of which this share are copies. Without any, or where they are not
    /// known, it says nothing.
    pub fn first_hit(&self, is_copy: bool, copied: Share) {
        if copied == 0 {
            return;
        }
        if is_copy {
            self.copies.fetch_add((Share::MAX - copied).into(), Relaxed);
        } else {
            self.new.fetch_add(copied.into(), Relaxed);
        }
    }

    /// A new object of so many bytes was taken.
    pub fn came(&self, bytes: usize) {
        self.came_bytes.fetch_add(bytes as u64, Relaxed);
        self.came.fetch_add(Share::MAX.into(), Relaxed);
    }

    /// The longest object of which a copy is worth it. One hit is all that it saves, whatever its length.
    pub fn longest(&self) -> usize {
        let (came, bytes) = (self.came.load(Relaxed), self.came_bytes.load(Relaxed));
        if came == 0 { usize::MAX } else { (TIMES_MEAN * bytes as f64 * f64::from(Share::MAX) / came as f64) as usize }
    }

    /// Whether copies bring as many hits per byte as what is new, or none was there to be hit. This share of the log goes. Of what is owed
    /// so many bytes stay at most: what new objects did not repay until now, later ones would for nothing.
    pub fn judge(&self, share: f64, most_owed: usize) -> bool {
        for sum in [&self.copies, &self.new, &self.came, &self.came_bytes] {
            // Nobody else takes away from it.
            sum.fetch_sub((sum.load(Relaxed) as f64 * (1.0 - (-share / TURNS).exp())) as u64, Relaxed);
        }
        let do_pay = self.copies.load(Relaxed) >= self.new.load(Relaxed);
        self.owed.fetch_min(if do_pay { most_owed as i64 } else { 0 }, Relaxed);
        do_pay
    }

    /// What was copied is gone, or of no use.
    pub fn forgive(&self) {
        self.owed.fetch_min(0, Relaxed);
    }

    /// A copy of so many bytes was made.
    pub fn owe(&self, bytes: usize) {
        self.owed.fetch_add(bytes as i64, Relaxed);
    }

    /// Whether a new object of so many bytes is not to be taken, in the place of copies: every second one, by chance, while any are owed.
    pub fn refuses(&self, hash: KeyHash, bytes: usize) -> bool {
        let owed = self.owed.load(Relaxed);
        // What is owed changes with each that is refused: so it is not always the same key.
        let is_refused = owed > 0 && mix(hash.0 ^ owed as u64) & 1 == 0;
        if is_refused {
            self.owed.fetch_sub(bytes as i64, Relaxed);
        }
        is_refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THIRD: Share = Share::MAX / 3;

    fn hit(worth: &Worth, copies: u32, new: u32) {
        (0..copies).for_each(|_| worth.first_hit(true, THIRD));
        (0..new).for_each(|_| worth.first_hit(false, THIRD));
    }

    #[test]
    fn copies_pay_while_they_have_as_many_hits_per_byte() {
        let worth = Worth::default();
        worth.first_hit(false, 0);
        assert!(worth.judge(0.0, 0), "none was there");
        hit(&worth, 100, 199);
        assert!(worth.judge(0.0, 0));
        hit(&worth, 0, 2);
        assert!(!worth.judge(0.0, 0));
        hit(&worth, 1, 0);
        assert!(worth.judge(0.0, 0));
    }

    #[test]
    fn hits_of_long_ago_count_little() {
        let worth = Worth::default();
        hit(&worth, 1000, 1000);
        hit(&worth, 0, 500);
        assert!(worth.judge(0.0, 0), "copies had a third of the bytes");
        (0..30).for_each(|_| _ = worth.judge(0.1, 0));
        hit(&worth, 0, 500);
        assert!(!worth.judge(0.0, 0));
    }

    #[test]
    fn what_is_longer_than_others_by_far_is_not_worth_it() {
        let worth = Worth::default();
        assert_eq!(worth.longest(), usize::MAX, "nothing is known of others");
        (0..100).for_each(|i| worth.came([4000, 16_000][i % 2]));
        assert_eq!(worth.longest(), 20_000);
        (0..100).for_each(|_| _ = worth.judge(0.1, 0));
        (0..100).for_each(|_| worth.came(100_000));
        assert!((190_000..200_000).contains(&worth.longest()), "{}: what came long ago counts little", worth.longest());
    }

    #[test]
    fn as_many_bytes_are_refused_as_are_owed() {
        let worth = Worth::default();
        assert!(!(0..100).any(|i| worth.refuses(KeyHash(i), 10)));
        worth.owe(100_000);
        let refused: Vec<_> = (0..1000).filter(|&i| worth.refuses(KeyHash(i), 700)).collect();
        assert_eq!(refused.len(), 100_000_usize.div_ceil(700));
        assert!(refused[20] > 25, "others are as likely: {refused:?}");
        worth.owe(100_000);
        hit(&worth, 0, 1);
        assert!(!worth.judge(0.0, 0) && !(0..100).any(|i| worth.refuses(KeyHash(i), 10)), "copies that did not pay");
    }

    #[test]
    fn what_is_owed_from_before_is_bounded() {
        let worth = Worth::default();
        worth.owe(100_000);
        assert!(worth.judge(0.0, 7000));
        assert_eq!((0..1000).filter(|&i| worth.refuses(KeyHash(i), 700)).count(), 10);
        worth.owe(100_000);
        worth.forgive();
        assert!(!(0..100).any(|i| worth.refuses(KeyHash(i), 10)));
    }
}
