//! The split word: how many buckets are in use, and so in which two of them a key may live.
//!
//! ```text
//! Split word   level:8 | position:56        buckets in use = 2^level + position
//! ```

/// The two buckets in which a key may live; they can be the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidates {
    pub first: usize,
    pub second: usize,
}

/// The progress of growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split(u64);

const POSITION_BITS: u32 = 56;
/// Spreads the first address into the second. Any odd constant with well mixed bits does (here 2^64 / golden ratio).
const SECOND_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

impl Split {
    pub fn new(level: u32, position: usize) -> Self {
        Self(u64::from(level) << POSITION_BITS | position as u64)
    }

    pub fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub fn word(self) -> u64 {
        self.0
    }

    /// Whether an index can have come as far as this word says.
    pub fn is_possible(self) -> bool {
        self.level() < POSITION_BITS && self.position() < 1 << self.level()
    }

    #[inline(always)]
    pub fn level(self) -> u32 {
        (self.0 >> POSITION_BITS) as u32
    }

    #[inline(always)]
    pub(super) fn position(self) -> usize {
        (self.0 & ((1 << POSITION_BITS) - 1)) as usize
    }

    /// Buckets in use.
    pub fn buckets(self) -> usize {
        (1 << self.level()) + self.position()
    }

    #[inline(always)]
    fn address(self, bits: u64) -> usize {
        let low = (bits & ((1 << self.level()) - 1)) as usize;
        let high = (bits & ((2 << self.level()) - 1)) as usize;
        if low < self.position() { high } else { low }
    }

    /// The buckets in which a key with this hash may live.
    #[inline(always)]
    pub fn candidates(self, hash: u64) -> Candidates {
        let second = (hash ^ hash >> 32).wrapping_mul(SECOND_MULTIPLIER) >> 20;
        Candidates { first: self.address(hash), second: self.address(second) }
    }

    /// Whether a key with this hash has the same candidates by a later split word. Splits and contractions in between
    /// have left it where it was, or have locked one of these buckets again (see `contract`).
    #[inline(always)]
    pub fn agrees_on(self, later: Self, hash: u64) -> bool {
        self == later || self.candidates(hash) == later.candidates(hash)
    }

    /// The word before this one; `None` if there is none.
    pub(super) fn previous(self) -> Option<Self> {
        match (self.level(), self.position()) {
            (0, 0) => None,
            (level, 0) => Some(Self::new(level - 1, (1 << (level - 1)) - 1)),
            (level, position) => Some(Self::new(level, position - 1)),
        }
    }

    pub(super) fn next(self) -> Self {
        let position = self.position() + 1;
        if position == 1 << self.level() { Self::new(self.level() + 1, 0) } else { Self::new(self.level(), position) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_hash_moves_only_to_the_new_bucket() {
        let mut split = Split::new(2, 0);
        for _ in 0..60 {
            let next = split.next();
            assert_eq!((next.buckets(), next.previous()), (split.buckets() + 1, Some(split)));
            for hash in (0..2000u64).map(|i| i.wrapping_mul(0xD6E8_FEB8_6659_FD93)) {
                let (before, after) = (split.candidates(hash), next.candidates(hash));
                for (old, new) in [(before.first, after.first), (before.second, after.second)] {
                    assert!(new < next.buckets());
                    assert!(new == old || (old == split.position() && new == split.buckets()));
                }
            }
            split = next;
        }
    }
}
