//! The frequency of keys that are not in the cache: a count-min sketch (Cormode and Muthukrishnan 2005) with
//! conservative increments and aging by halving, as in TinyLFU (Einziger, Friedman, Manes 2017, section 3).
//!
//! ```text
//! byte of row r for a hash h = counters[(bits of h for row r) mod width * rows + r],  saturating at 15
//! ```
//! So a wider sketch begins with the columns of the narrower one. Races lose increments, which an estimate tolerates.

use super::resizable::ResizableTable;
use crate::error::Error;
use crate::sync::{AtomicU8, AtomicU64, Ordering};

const ROWS: usize = 4;
const LIMIT: u8 = 15;
/// Increments per counter after which all are halved.
const SAMPLE: u64 = 10;

/// A sketch of how often hashes were added.
pub struct FrequencySketch {
    counters: ResizableTable<AtomicU8>,
    additions: AtomicU64,
}

impl FrequencySketch {
    /// A sketch of `bytes` bytes, rounded to a power of two of counters per row, which may get up to `max_bytes`.
    pub fn new(bytes: u64, max_bytes: u64) -> Result<Self, Error> {
        let counters = ResizableTable::new(Self::counters(bytes), Self::counters(max_bytes))?;
        Ok(Self { counters, additions: AtomicU64::new(0) })
    }

    /// Makes it a sketch of `bytes` bytes.
    pub fn resize(&self, bytes: u64) {
        self.counters.set_length(Self::counters(bytes).min(self.counters.max_length()));
    }

    fn counters(bytes: u64) -> usize {
        (bytes as usize / ROWS).max(64).next_power_of_two() * ROWS
    }

    /// Bytes that `new` takes for the same argument.
    pub fn bytes(bytes: u64) -> u64 {
        Self::counters(bytes) as u64
    }

    fn width(&self) -> usize {
        self.counters.length() / ROWS
    }

    /// The counter at a place of the words: one row is behind the other there.
    fn at(&self, place: usize) -> &AtomicU8 {
        let width = self.width();
        self.counters.at(place % width * ROWS + place / width)
    }

    /// The additions since the last halving, then all counters, eight a word, row by row.
    pub fn words(&self) -> Vec<u64> {
        let word = |number: usize| {
            let bytes = std::array::from_fn(|at| self.at(number * 8 + at).load(Ordering::Relaxed));
            u64::from_le_bytes(bytes)
        };
        let additions = self.additions.load(Ordering::Relaxed);
        std::iter::once(additions).chain((0..self.counters.length() / 8).map(word)).collect()
    }

    /// Bytes of the sketch that has these words.
    pub fn bytes_of(words: &[u64]) -> Option<u64> {
        let bytes = words.len().checked_sub(1)? as u64 * 8;
        (Self::bytes(bytes) == bytes).then_some(bytes)
    }

    /// Takes over the words of a sketch of the same size.
    pub fn restore(&self, words: &[u64]) {
        let Some((&additions, counters)) = words.split_first() else { return };
        if counters.len() * 8 == self.counters.length() {
            self.additions.store(additions, Ordering::Relaxed);
            let bytes = counters.iter().flat_map(|word| word.to_le_bytes());
            bytes.enumerate().for_each(|(place, byte)| self.at(place).store(byte.min(LIMIT), Ordering::Relaxed));
        }
    }

    fn row(&self, hash: u64, row: usize) -> &AtomicU8 {
        let mixed = hash.wrapping_add(row as u64).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        self.counters.at(((mixed >> 32) as usize & (self.width() - 1)) * ROWS + row)
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
        if additions >= SAMPLE * self.width() as u64 {
            self.additions.store(additions / 2, Ordering::Relaxed);
            for counter in self.counters.iter() {
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
        let sketch = FrequencySketch::new(4096, 4096).unwrap();
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
