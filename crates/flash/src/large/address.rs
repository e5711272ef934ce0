//! The address of an object, in 48 bits.
//!
//! ```text
//! bit 0            39           46     48
//!     | unit        | size class | hits |
//! ```
//! A unit is 64 bytes of the log. The size class says how many blocks a read must cover: exactly up to 16, above that
//! rounded up to one of eight steps per octave, at most an eighth more than needed.

use crate::device::BLOCK;
use std::fmt;

/// Objects begin at multiples of it.
pub const UNIT: usize = 64;
/// Limit of the units of a log: 32 TiB.
pub const UNITS_LIMIT: u64 = 1 << UNIT_BITS;
/// Maximum of the count of hits.
pub const HITS_LIMIT: u8 = 3;

const UNIT_BITS: u32 = 39;
const CLASS_BITS: u32 = 7;
const HITS_SHIFT: u32 = UNIT_BITS + CLASS_BITS;
/// Up to this number of blocks, each count has its own class.
const EXACT: usize = 16;

const _: () = assert!(HITS_SHIFT + 2 == 48 && HITS_LIMIT == 3);
const _: () = assert!(BLOCK.is_multiple_of(UNIT));

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Address(u64);

impl Address {
    /// The address of an object of `bytes` at a unit of the log.
    pub fn new(unit: u64, bytes: usize) -> Self {
        assert!(unit < UNITS_LIMIT, "unit {unit} does not fit an address");
        let blocks = (unit as usize * UNIT % BLOCK + bytes).div_ceil(BLOCK);
        Self(unit | u64::from(class_of(blocks)) << UNIT_BITS)
    }

    pub fn unit(self) -> u64 {
        self.0 & (UNITS_LIMIT - 1)
    }

    /// Number of blocks, from the object's first one, that are sure to hold it.
    pub fn blocks(self) -> usize {
        blocks_of((self.0 >> UNIT_BITS) as u8 & ((1 << CLASS_BITS) - 1))
    }

    pub fn hits(self) -> u8 {
        (self.0 >> HITS_SHIFT) as u8
    }

    /// The address after one more hit.
    pub fn hit(self) -> Self {
        if self.hits() == HITS_LIMIT { self } else { Self(self.0 + (1 << HITS_SHIFT)) }
    }

    /// The address without its hits.
    pub fn without_hits(self) -> Self {
        Self(self.0 & ((1 << HITS_SHIFT) - 1))
    }

    pub fn to_words(self) -> [u16; 3] {
        [self.0 as u16, (self.0 >> 16) as u16, (self.0 >> 32) as u16]
    }

    pub fn from_words(words: [u16; 3]) -> Self {
        Self(u64::from(words[0]) | u64::from(words[1]) << 16 | u64::from(words[2]) << 32)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place(unit {}, {} blocks, {} hits)", self.unit(), self.blocks(), self.hits())
    }
}

fn class_of(blocks: usize) -> u8 {
    if blocks <= EXACT {
        return (blocks - 1) as u8;
    }
    let octave = (blocks - 1).ilog2();
    let step = (blocks - 1 - (1 << octave)) >> (octave - 3);
    let class = EXACT + (octave as usize - 4) * 8 + step;
    assert!(class < 1 << CLASS_BITS, "{blocks} blocks are too many for one object");
    class as u8
}

fn blocks_of(class: u8) -> usize {
    let class = usize::from(class);
    if class < EXACT {
        return class + 1;
    }
    let (octave, step) = ((class - EXACT) / 8 + 4, (class - EXACT) % 8);
    (1 << octave) + ((step + 1) << (octave - 3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::large::options::{Geometry, Options};

    #[test]
    fn classes_hold_what_they_name() {
        for blocks in 1..=1 << 18 {
            let contents = blocks_of(class_of(blocks));
            assert!(contents >= blocks && contents <= blocks + blocks / 8, "{blocks} blocks, class of {contents}");
            assert!(blocks > EXACT || contents == blocks);
        }
    }

    #[test]
    fn what_is_packed_comes_out() {
        for (unit, bytes, blocks) in
            [(0, 1, 1), (63, 64, 1), (63, 65, 2), (64, 4096, 1), (UNITS_LIMIT - 1, 1 << 24, 4608)]
        {
            let address = Address::new(unit, bytes);
            assert_eq!((address.unit(), address.blocks(), address.hits()), (unit, blocks, 0));
            let hit = address.hit().hit();
            assert_eq!((hit.unit(), hit.blocks(), hit.hits()), (unit, blocks, 2));
            assert_eq!(hit.hit().hit().hits(), HITS_LIMIT);
            assert_eq!(hit.without_hits(), address);
            assert_eq!(Address::from_words(hit.to_words()), hit);
        }
    }

    #[test]
    fn many_terabytes_have_addresses_to_their_last_object() {
        let mut random = ebbtide_testkit::Random::new(1);
        for (terabytes, region_bytes) in [1, 4, 16, 32].into_iter().flat_map(|size| [(size, 16 << 20), (size, 1 << 20)])
        {
            let options = Options { region_bytes, ..Options::default() };
            let geometry = Geometry::new(&(0..terabytes << 40_u64), &options).unwrap();
            let units = geometry.units_per_region();
            let last = u64::from(geometry.regions) * units - 1;
            let draws = (0..1000).map(|_| random.between(0, last));
            for unit in draws.chain([0, last]) {
                let address = Address::from_words(Address::new(unit, BLOCK).hit().to_words());
                assert_eq!((address.unit(), address.hits()), (unit, 1));
                let region = u32::try_from(unit / units).unwrap();
                assert_eq!(geometry.offset(region) + unit % units * UNIT as u64, unit * UNIT as u64);
            }
            assert_eq!((last + 1) * UNIT as u64, terabytes << 40);
        }
        let beyond = Geometry::new(&(0..33 << 40_u64), &Options::default()).map(drop).unwrap_err().to_string();
        assert!(beyond.contains("at most 32 TiB"), "{beyond}");
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn an_address_out_of_reach_is_refused() {
        Address::new(UNITS_LIMIT, 1);
    }
}
