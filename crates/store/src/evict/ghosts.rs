//! Recently evicted keys: the ghosts of S3-FIFO (Yang and others, SOSP'23, section 4.1) and 2Q.
//!
//! ```text
//! set of a hash    63      56          8 7       0
//!                 +----------+--------+----------+
//!                 |  oldest  |  ....  |  newest  |      eight fingerprints of a byte, 0 = none
//!                 +----------+--------+----------+
//! ```
//! A new ghost replaces the oldest of its set, so a set remembers its last eight evictions. The number of sets in use
//! follows the number of items: a key is remembered for about as many evictions as the cache has items. One of 32 other
//! keys is mistaken for a ghost. Races lose ghosts, which is harmless.

use super::resizable::ResizableTable;
use crate::error::Error;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

const SET_GHOSTS: usize = 8;
const FINGERPRINT_BITS: u32 = u8::BITS;

/// A table of keys that were evicted.
pub struct Ghosts {
    sets: ResizableTable<AtomicU64>,
    in_use: AtomicUsize,
}

impl Ghosts {
    /// A table of at most `bytes` bytes, which may get up to `max_bytes`.
    pub fn new(bytes: u64, max_bytes: u64) -> Result<Self, Error> {
        let sets = ResizableTable::new(Self::sets(bytes), Self::sets(max_bytes))?;
        Ok(Self { in_use: AtomicUsize::new(sets.length()), sets })
    }

    /// Makes it a table of at most `bytes` bytes.
    pub fn resize(&self, bytes: u64) {
        let sets = Self::sets(bytes).min(self.sets.max_length());
        self.in_use.fetch_min(sets, Ordering::Relaxed);
        self.sets.set_length(sets);
    }

    fn sets(bytes: u64) -> usize {
        1 << (bytes as usize / size_of::<u64>()).max(1).ilog2()
    }

    /// Bytes that `new` takes for the same argument.
    pub fn bytes(bytes: u64) -> u64 {
        (Self::sets(bytes) * size_of::<u64>()) as u64
    }

    /// How many sets are in use, then all sets.
    pub fn words(&self) -> Vec<u64> {
        let in_use = self.in_use.load(Ordering::Relaxed) as u64;
        std::iter::once(in_use).chain(self.sets.iter().map(|set| set.load(Ordering::Relaxed))).collect()
    }

    /// Bytes of the table that has these words.
    pub fn bytes_of(words: &[u64]) -> Option<u64> {
        let sets = words.len().checked_sub(1).filter(|sets| sets.is_power_of_two())?;
        Some((sets * size_of::<u64>()) as u64)
    }

    /// Takes over the words of a table of the same size.
    pub fn restore(&self, words: &[u64]) {
        let Some((&in_use, sets)) = words.split_first() else { return };
        let is_ours = sets.len() == self.sets.length() && in_use.is_power_of_two() && in_use <= sets.len() as u64;
        if is_ours {
            self.in_use.store(in_use as usize, Ordering::Relaxed);
            self.sets.iter().zip(sets).for_each(|(set, word)| set.store(*word, Ordering::Relaxed));
        }
    }

    /// Sets the number of evictions to remember to about the number of objects.
    pub fn fit(&self, objects: u64) {
        let wanted = (objects as usize / SET_GHOSTS).max(1).next_power_of_two().min(self.sets.length());
        if wanted != self.in_use.load(Ordering::Relaxed) {
            self.in_use.store(wanted, Ordering::Relaxed);
        }
    }

    fn set(&self, hash: u64) -> &AtomicU64 {
        let number = (hash >> FINGERPRINT_BITS) as usize & (self.in_use.load(Ordering::Relaxed) - 1);
        self.sets.at(number)
    }

    fn fingerprint(hash: u64) -> u64 {
        (hash & 0xFF).max(1)
    }

    /// Remembers a key that was evicted.
    pub fn add(&self, hash: u64) {
        let set = self.set(hash);
        set.store(set.load(Ordering::Relaxed) << FINGERPRINT_BITS | Self::fingerprint(hash), Ordering::Relaxed);
    }

    /// Whether the key was evicted recently. Removes the ghost.
    pub fn take(&self, hash: u64) -> bool {
        let (set, fingerprint) = (self.set(hash), Self::fingerprint(hash));
        let word = set.load(Ordering::Relaxed);
        let place = (0..SET_GHOSTS as u32).map(|n| n * FINGERPRINT_BITS).find(|at| word >> at & 0xFF == fingerprint);
        if let Some(at) = place {
            set.store(word & !(0xFF << at), Ordering::Relaxed);
        }
        place.is_some()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    }

    #[test]
    fn a_ghost_is_taken_once() {
        let ghosts = Ghosts::new(1000, 1000).unwrap();
        assert_eq!(Ghosts::bytes(1000), 512);
        ghosts.add(hash(1));
        assert!(!ghosts.take(hash(2)));
        assert!(ghosts.take(hash(1)));
        assert!(!ghosts.take(hash(1)));
    }

    #[test]
    fn ghosts_cover_as_many_evictions_as_objects() {
        let ghosts = Ghosts::new(1 << 20, 1 << 20).unwrap();
        ghosts.fit(10_000);
        (0..100_000).for_each(|number| ghosts.add(hash(number)));
        let known = |range: std::ops::Range<u64>| {
            let count = range.end - range.start;
            range.filter(|number| ghosts.take(hash(*number))).count() as f64 / count as f64
        };
        let old = known(0..50_000);
        let new = known(98_000..100_000);
        assert!(old < 0.05, "{old} of the old ones, by chance");
        assert!(new > 0.95, "{new} of the newest");
    }
}
