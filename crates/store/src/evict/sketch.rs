//! The frequency of keys that are not in the cache: a count-min sketch (Cormode and Muthukrishnan 2005) with
//! conservative increments and aging by halving, as in TinyLFU (Einziger, Friedman, Manes 2017, section 3).
//!
//! ```text
//! byte of row r for a hash h = counters[r * width + (bits of h for row r) mod width],  saturating at 15
//! ```
//! Races lose increments, which an estimate tolerates.

use crate::mapping::zeroed_slice;
use crate::sync::{AtomicU8, AtomicU64, Ordering};

const ROWS: usize = 4;
const LIMIT: u8 = 15;
/// Increments per counter after which all are halved.
const SAMPLE: u64 = 10;

/// A sketch of how often hashes were added.
pub struct FrequencySketch {
    counters: Box<[AtomicU8]>,
    width: usize,
    additions: AtomicU64,
}

impl FrequencySketch {
    /// A sketch of `bytes` bytes, rounded to a power of two of counters per row.
    pub fn new(bytes: u64) -> Self {
        let width = (bytes as usize / ROWS).max(64).next_power_of_two();
        Self { counters: zeroed_slice(width * ROWS), width, additions: AtomicU64::new(0) }
    }

    /// Bytes that `new` takes for the same argument.
    pub fn bytes(bytes: u64) -> u64 {
        ((bytes as usize / ROWS).max(64).next_power_of_two() * ROWS) as u64
    }

    /// The additions since the last halving, then all counters, eight a word.
    pub fn words(&self) -> Vec<u64> {
        let word = |eight: &[AtomicU8]| {
            let bytes = std::array::from_fn(|at| eight[at].load(Ordering::Relaxed));
            u64::from_le_bytes(bytes)
        };
        let additions = self.additions.load(Ordering::Relaxed);
        std::iter::once(additions).chain(self.counters.chunks_exact(8).map(word)).collect()
    }

    /// Goes on with the words of a sketch of the same size.
    pub fn restore(&self, words: &[u64]) {
        let Some((&additions, counters)) = words.split_first() else { return };
        if counters.len() * 8 == self.counters.len() {
            self.additions.store(additions, Ordering::Relaxed);
            for (eight, word) in self.counters.chunks_exact(8).zip(counters) {
                let bytes = word.to_le_bytes();
                eight.iter().zip(bytes).for_each(|(counter, byte)| counter.store(byte.min(LIMIT), Ordering::Relaxed));
            }
        }
    }

    fn row(&self, hash: u64, row: usize) -> &AtomicU8 {
        let mixed = hash.wrapping_add(row as u64).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        &self.counters[row * self.width + (mixed >> 32) as usize % self.width]
    }

    /// How often the hash was added recently, at most 15; at least that often, except for aging and races.
    pub fn estimate(&self, hash: u64) -> u8 {
        (0..ROWS).map(|row| self.row(hash, row).load(Ordering::Relaxed)).min().unwrap_or(0)
    }

    pub fn add(&self, hash: u64) {
        let estimate = self.estimate(hash);
        if estimate == LIMIT {
            return;
        }
        for row in 0..ROWS {
            let counter = self.row(hash, row);
            if counter.load(Ordering::Relaxed) == estimate {
                counter.store(estimate + 1, Ordering::Relaxed);
            }
        }
        let additions = self.additions.fetch_add(1, Ordering::Relaxed) + 1;
        if additions >= SAMPLE * self.width as u64 {
            self.additions.store(additions / 2, Ordering::Relaxed);
            for counter in &self.counters {
                counter.store(counter.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number >> 7
    }

    #[test]
    fn it_counts_and_forgets() {
        let sketch = FrequencySketch::new(4096);
        for _ in 0..5 {
            sketch.add(hash(1));
        }
        assert_eq!(sketch.estimate(hash(1)), 5);
        assert_eq!(sketch.estimate(hash(2)), 0);
        for number in 0..SAMPLE * 1024 {
            sketch.add(hash(number + 10));
        }
        assert!(sketch.estimate(hash(1)) <= LIMIT);
        assert!(sketch.additions.load(Ordering::Relaxed) < SAMPLE * 1024, "it has aged");
    }
}
