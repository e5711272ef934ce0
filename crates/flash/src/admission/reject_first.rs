//! Refuses an object the first times that it is offered.
//!
//! The times are counted in Bloom filters: the n-th time adds the key's n-th name to the youngest filter. When that is
//! full the oldest is emptied and becomes the youngest, so a key is remembered for at least three quarters of the keys
//! and names that it is made for.

use crate::FlashHash;
use crate::bloom::Bloom;
use crate::hash::mix;

const FILTERS: usize = 4;

pub(super) struct RejectFirst {
    times: u8,
    filters: [Bloom; FILTERS],
    youngest: usize,
    /// In the youngest.
    added: usize,
    space: usize,
}

impl RejectFirst {
    pub fn new(times: u8, keys: usize) -> Self {
        let space = space(times, keys);
        Self { times, filters: std::array::from_fn(|_| Bloom::new(space)), youngest: 0, added: 0, space }
    }

    /// Whether it was offered as many times before.
    pub fn offer(&mut self, key: FlashHash) -> bool {
        let names = (1..=u64::from(self.times)).map(|time| mix(key.0.wrapping_add(time)));
        let Some(name) = names.into_iter().find(|&name| !self.filters.iter().any(|filter| filter.has(name))) else {
            return true;
        };
        self.filters[self.youngest].add(name);
        self.added += 1;
        if self.added == self.space {
            self.youngest = (self.youngest + 1) % FILTERS;
            self.filters[self.youngest].clear();
            self.added = 0;
        }
        false
    }

    /// Bytes of a filter set for `times` and `keys`.
    pub fn memory_bytes_for(times: u8, keys: usize) -> usize {
        FILTERS * Bloom::memory_bytes_for(space(times, keys))
    }
}

/// Keys of one filter.
fn space(times: u8, keys: usize) -> usize {
    keys.saturating_mul(usize::from(times)).div_ceil(FILTERS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(i: u64) -> FlashHash {
        FlashHash(mix(i + 1))
    }

    #[test]
    fn the_first_times_are_refused() {
        for times in 1..=3 {
            let mut policy = RejectFirst::new(times, 1000);
            let refused = (0..10).take_while(|_| !policy.offer(key(7))).count();
            assert_eq!(refused, usize::from(times));
        }
    }

    #[test]
    fn reject_first_forgets_old_keys() {
        let mut policy = RejectFirst::new(1, 4000);
        assert!(!policy.offer(key(0)));
        (1..2900).for_each(|i| _ = policy.offer(key(i)));
        assert!(policy.offer(key(0)));
        (2900..7000).for_each(|i| _ = policy.offer(key(i)));
        assert!(!policy.offer(key(0)));
    }
}
