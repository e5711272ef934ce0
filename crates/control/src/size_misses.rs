//! Misses of a live cache by the size of their objects, and their entropy.
//!
//! A get that misses does not tell the size of its object: the next write of the key does. So a miss waits for that
//! write. Misses of keys that nobody writes have no size, and do not count.

use std::collections::HashMap;
use std::fmt;
use std::mem;

use crate::entropy::miss_entropy;

/// Missed keys that wait for a write: when there are this many, those that have waited longer than all of them are
/// forgotten.
const MAX_WAITING: usize = 1024;
/// Octaves of sizes: each size below 2^48 bytes has one of its own.
const CLASSES: usize = 48;
/// Misses of known size that an entropy needs.
const MIN_MISSES: f64 = 100.0;
/// Below this all misses are of objects of nearly one size. In Dynacache's Table 1 (HotCloud'15) applications of up to
/// 0.6 bits lost at most a fifth of their misses by another division, those of 2.4 and more half of them and more.
const FEW_BITS: f64 = 1.0;
/// A memory that holds fewer objects of a class gives it no hits that a division could move; the class counts with
/// this part of the misses (application 9 of that table).
const MIN_HELD_OBJECTS: u64 = 100;
const LARGE_PART: f64 = 0.1;

/// Counts the misses of one pool by size class: octaves of the bytes of objects.
#[derive(Clone, Debug)]
pub struct SizeMisses {
    of_class: [f64; CLASSES],
    misses: f64,
    /// Misses of each key that waits for its size. Those of `older` have waited longer.
    recent: HashMap<u64, u32>,
    older: HashMap<u64, u32>,
}

impl Default for SizeMisses {
    fn default() -> Self {
        Self { of_class: [0.0; CLASSES], misses: 0.0, recent: HashMap::new(), older: HashMap::new() }
    }
}

/// How the misses of a pool spread over size classes.
#[derive(Clone, Debug, PartialEq)]
pub struct MissEntropy {
    /// Entropy in bits (Dynacache, section 3.3): 0 if all misses are in one class.
    pub bits: f64,
    /// The classes that have misses, the smallest objects first.
    pub classes: Vec<SizeClassMisses>,
    /// The first class with a tenth of the misses of which the memory holds fewer than 100 objects: then the entropy
    /// misleads.
    pub hardly_held: Option<SizeClassMisses>,
}

/// The misses of one size class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeClassMisses {
    /// Bytes of its objects in memory: from these up to twice as many.
    pub from_bytes: u64,
    /// Among all misses of known size.
    pub share: f64,
}

impl SizeMisses {
    /// A get of this key missed.
    pub fn missed(&mut self, key: u64) {
        if self.recent.len() == MAX_WAITING {
            self.older = mem::take(&mut self.recent);
        }
        *self.recent.entry(key).or_default() += 1;
    }

    /// An object of this key was written.
    pub fn written(&mut self, key: u64, bytes: u64) {
        let misses = [&mut self.recent, &mut self.older].map(|waiting| waiting.remove(&key).unwrap_or(0));
        let misses = f64::from(misses[0]) + f64::from(misses[1]);
        if misses > 0.0 {
            self.of_class[(bytes.max(1).ilog2() as usize).min(CLASSES - 1)] += misses;
            self.misses += misses;
        }
    }

    /// Reduces the weight of all misses so far: 0.5 halves it.
    pub fn age(&mut self, factor: f64) {
        self.of_class.iter_mut().for_each(|misses| *misses *= factor);
        self.misses *= factor;
    }

    /// The entropy in a pool with this memory; `None` of too few misses.
    pub fn entropy(&self, memory_bytes: u64) -> Option<MissEntropy> {
        if self.misses < MIN_MISSES {
            return None;
        }
        let class =
            |(class, misses): (usize, &f64)| SizeClassMisses { from_bytes: 1 << class, share: *misses / self.misses };
        let classes: Vec<_> = self.of_class.iter().enumerate().map(class).filter(|class| class.share > 0.0).collect();
        let is_hardly_held =
            |class: &&SizeClassMisses| class.share > LARGE_PART && memory_bytes / class.from_bytes < MIN_HELD_OBJECTS;
        let hardly_held = classes.iter().find(is_hardly_held).copied();
        Some(MissEntropy { bits: miss_entropy(self.of_class), classes, hardly_held })
    }
}

impl fmt::Display for MissEntropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "miss entropy {:.1} bits: ", self.bits)?;
        match self.hardly_held {
            _ if self.bits < FEW_BITS => {
                f.write_str("nearly all misses are of objects of one size; a division by size would gain little")
            }
            Some(class) => write!(
                f,
                "it says little, for the memory holds fewer than {MIN_HELD_OBJECTS} objects of {} bytes and more",
                class.from_bytes
            ),
            None => {
                f.write_str("objects of different sizes compete for memory; pools for keys of different sizes may gain")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn load(misses: &mut SizeMisses, keys: std::ops::Range<u64>, bytes: u64) {
        for key in keys {
            misses.missed(key);
            misses.written(key, bytes);
        }
    }

    #[test]
    fn misses_spread_over_four_sizes_have_two_bits() {
        let mut misses = SizeMisses::default();
        load(&mut misses, 0..99, 100);
        assert_eq!(misses.entropy(MIB), None, "too few misses");
        load(&mut misses, 99..200, 100);
        let one = misses.entropy(MIB).unwrap();
        assert_eq!((one.bits, one.classes.len(), one.classes[0].from_bytes), (0.0, 1, 64));
        assert!(one.to_string().ends_with("one size; a division by size would gain little"), "{one}");
        for bytes in [200, 1000, 8000] {
            load(&mut misses, 0..200, bytes);
        }
        let four = misses.entropy(MIB).unwrap();
        assert_eq!((four.bits, four.hardly_held), (2.0, None));
        assert_eq!(four.classes.iter().map(|class| class.share).collect::<Vec<_>>(), [0.25; 4]);
        assert!(four.to_string().starts_with("miss entropy 2.0 bits: objects of different sizes compete"), "{four}");
    }

    #[test]
    fn writes_without_a_miss_do_not_count() {
        let mut misses = SizeMisses::default();
        (0..1000).for_each(|key| misses.written(key, 10));
        (0..1000).for_each(|key| misses.missed(key));
        assert_eq!(misses.entropy(MIB), None);
        // Two misses of a key before its write count both; the next write of it is one by itself.
        for key in 0..200 {
            misses.missed(key);
            (0..2).for_each(|_| misses.written(key, 10));
        }
        assert_eq!(misses.misses, 400.0);
    }

    #[test]
    fn keys_that_nobody_writes_are_forgotten() {
        let mut misses = SizeMisses::default();
        (0..100_000).for_each(|key| misses.missed(key));
        assert!(misses.recent.len() + misses.older.len() <= 2 * MAX_WAITING);
        misses.written(99_999, 10);
        misses.written(0, 10);
        assert_eq!(misses.misses, 1.0);
    }

    #[test]
    fn older_misses_count_less() {
        let mut misses = SizeMisses::default();
        load(&mut misses, 0..400, 10);
        misses.age(0.25);
        load(&mut misses, 0..300, 100);
        let shares: Vec<_> = misses.entropy(MIB).unwrap().classes.iter().map(|class| class.share).collect();
        assert_eq!(shares, [0.25, 0.75]);
    }

    #[test]
    fn classes_that_hardly_fit_are_told() {
        let mut misses = SizeMisses::default();
        load(&mut misses, 0..200, 100);
        load(&mut misses, 0..200, 100_000);
        let entropy = |memory: u64| misses.entropy(memory).unwrap();
        assert_eq!(entropy(100 * MIB).hardly_held, None);
        let little = entropy(MIB);
        assert_eq!(little.hardly_held.map(|class| class.from_bytes), Some(65_536));
        assert!(little.to_string().contains("fewer than 100 objects of 65536 bytes"), "{little}");
    }
}
