//! The state in RAM of the objects in a set's page: a Bloom filter, whose length follows the number of objects, and a
//! hit bit for each object.
//!
//! ```text
//! | hit bits: objects / 8 | filter: objects * quarters / 32 |      both rounded up to bytes
//! ```

use crate::object::FlashHash;

/// The width of filters, in quarters of a bit per object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilterWidth(u16);

impl FilterWidth {
    /// # Panics
    ///
    /// Panics unless `quarters` is 4 to 64: fewer bits are not worth a hash function, more overflow a width.
    pub fn of(quarters: u16) -> Self {
        assert!((4..=64).contains(&quarters));
        Self(quarters)
    }

    /// Bytes of the hit bits and the filter of a page with this number of objects.
    pub fn bytes(self, objects: u8) -> usize {
        hit_bytes(objects) + usize::from((u16::from(objects) * self.0).div_ceil(32))
    }

    /// Number of hash functions, at most four: bits times ln 2, rounded down where the lower number is as good.
    fn functions(self) -> u32 {
        (u32::from(self.0) * 11 / 64).clamp(1, 4)
    }

    pub fn insert(self, filter: &mut [u8], hash: FlashHash) {
        self.places(filter.len(), hash).for_each(|position| filter[position / 8] |= 1 << (position % 8));
    }

    /// Whether an object with this hash may have been inserted; an empty filter says no.
    pub fn contains(self, filter: &[u8], hash: FlashHash) -> bool {
        !filter.is_empty()
            && self.places(filter.len(), hash).all(|position| filter[position / 8] & 1 << (position % 8) != 0)
    }

    /// Bits of a hash that choose neither the set nor a tag, one lane of 16 per function.
    fn places(self, bytes: usize, hash: FlashHash) -> impl Iterator<Item = usize> {
        let mixed = (hash.0 ^ hash.0 >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = mixed ^ mixed >> 32;
        let bits = 8 * bytes as u64;
        (0..self.functions()).map(move |i| (((mixed >> (16 * i) & 0xffff) * bits) >> 16) as usize)
    }
}

pub(crate) fn hit_bytes(objects: u8) -> usize {
    usize::from(objects).div_ceil(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_contain_inserted_and_few_other_hashes() {
        for (objects, quarters, max_at) in
            [(13, 21, 0.095), (40, 21, 0.09), (70, 21, 0.085), (13, 32, 0.04), (70, 8, 0.45)]
        {
            let width = FilterWidth::of(quarters);
            let (mut positive, rounds) = (0, 400u64);
            for round in 0..rounds {
                let hash = |i: u64| FlashHash::of(&(round << 32 | i).to_le_bytes());
                let mut filter = vec![0; width.bytes(objects) - hit_bytes(objects)];
                (0..u64::from(objects)).for_each(|i| width.insert(&mut filter, hash(i)));
                assert!((0..u64::from(objects)).all(|i| width.contains(&filter, hash(i))));
                positive += (1000..1100).filter(|&i| width.contains(&filter, hash(i))).count();
            }
            let share = positive as f64 / (100 * rounds) as f64;
            assert!(share < max_at, "{objects} objects, {quarters} quarters: {share}");
        }
    }

    #[test]
    fn nothing_is_in_an_empty_filter() {
        assert_eq!(FilterWidth::of(21).bytes(0), 0);
        assert!(!FilterWidth::of(21).contains(&[], FlashHash(0)));
    }
}
