//! A Bloom filter of key hashes whose bits for a key lie in one cache line.
//!
//! ```text
//! hash -> block of 512 bits -> 6 of its bits
//! ```
//! With [`BITS_PER_KEY`] bits for each of as many keys as it is made for, about one foreign key in a hundred is a false
//! positive. All threads may add and look up at once. Bits are Relaxed: a key that is added meanwhile may be missed.

use crate::hash::mix;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const BITS_PER_KEY: usize = 12;
const PROBES: u32 = 6;
const WORDS: usize = 8;

#[repr(align(64))]
struct Block([AtomicU64; WORDS]);

const _: () = assert!(size_of::<Block>() == 64);

pub(crate) struct Bloom(Box<[Block]>);

impl Bloom {
    pub fn new(keys: usize) -> Self {
        Self((0..blocks(keys)).map(|_| Block(Default::default())).collect())
    }

    /// Adds a key. True if the filter did not have it.
    pub fn add(&self, hash: u64) -> bool {
        let mut is_new = false;
        for (word, bit) in self.bits(hash) {
            // The bit is mostly set already: then the cache line stays shared.
            if word.load(Relaxed) & bit == 0 {
                is_new |= word.fetch_or(bit, Relaxed) & bit == 0;
            }
        }
        is_new
    }

    pub fn has(&self, hash: u64) -> bool {
        self.bits(hash).all(|(word, bit)| word.load(Relaxed) & bit != 0)
    }

    pub fn clear(&self) {
        self.0.iter().flat_map(|block| &block.0).for_each(|word| word.store(0, Relaxed));
    }

    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    pub fn memory_bytes_for(keys: usize) -> usize {
        blocks(keys) * size_of::<Block>()
    }

    fn bits(&self, hash: u64) -> impl Iterator<Item = (&AtomicU64, u64)> {
        // The high bits choose the block; the probes come from another mix, or keys of a block would share their bits.
        let block = &self.0[((u128::from(hash) * self.0.len() as u128) >> 64) as usize];
        let probes = mix(hash);
        (0..PROBES).map(move |probe| {
            let at = probes >> (probe * 9) & 511;
            (&block.0[(at / 64) as usize], 1 << (at % 64))
        })
    }
}

fn blocks(keys: usize) -> usize {
    keys.saturating_mul(BITS_PER_KEY).div_ceil(WORDS * 64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_there_and_little_else() {
        let bloom = Bloom::new(100_000);
        let key = |i: u64| mix(i + 1);
        for i in 0..100_000 {
            bloom.add(key(i));
        }
        assert!((0..100_000).all(|i| bloom.has(key(i)) && !bloom.add(key(i))));
        let foreign = (100_000..200_000).filter(|&i| bloom.has(key(i))).count();
        assert!((100..2_000).contains(&foreign), "{foreign} of 100000");
        assert_eq!(bloom.memory_bytes(), Bloom::memory_bytes_for(100_000));
        assert_eq!(Bloom::memory_bytes_for(100_000), (100_000_usize * 12).div_ceil(512) * 64);
        bloom.clear();
        assert!(!(0..100_000).any(|i| bloom.has(key(i))));
    }
}
