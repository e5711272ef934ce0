//! Several parts as one capacity: stripes alternate between all parts, then between the larger ones.
//!
//! ```text
//! part 0    | 0 | 2 | 4 | 5 |
//! part 1    | 1 | 3 |            the rest of a stripe stays unused
//! zones      \ both / \ 0 /
//! ```
//! A stripe is as large as a region, so an aligned region is one write on one drive, and concurrent transfers of
//! several regions use different drives. The part of a single-part device is one stripe, up to its last block.

use super::BLOCK;
use super::label::DATA_START;

/// Bytes of a stripe on a device of several parts.
pub const STRIPE: u64 = 16 << 20;

pub(super) struct Stripes {
    stripe_bytes: u64,
    zones: Vec<Zone>,
    capacity: u64,
}

/// Rows of stripes over the same parts.
struct Zone {
    /// Number of the first stripe, counted over all zones.
    first_stripe: u64,
    /// The first row on each of the parts.
    first_row: u64,
    parts: Vec<usize>,
}

/// The location of bytes of the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StripeLocation {
    pub part: usize,
    pub offset: u64,
    /// Number of contiguous bytes from there.
    pub run: u64,
}

impl Stripes {
    /// From the sizes of the parts, each larger than [`DATA_START`] and [`STRIPE`] together.
    pub fn new(part_bytes: &[u64]) -> Self {
        let stripe_bytes = match part_bytes {
            [only] => (only - DATA_START) / BLOCK as u64 * BLOCK as u64,
            _ => STRIPE,
        };
        let rows: Vec<u64> = part_bytes.iter().map(|bytes| (bytes - DATA_START) / stripe_bytes).collect();
        let mut heights = rows.clone();
        heights.sort();
        heights.dedup();
        let (mut zones, mut first_stripe, mut first_row) = (Vec::new(), 0, 0);
        for height in heights {
            let parts: Vec<usize> = (0..rows.len()).filter(|&part| rows[part] >= height).collect();
            let stripes = (height - first_row) * parts.len() as u64;
            zones.push(Zone { first_stripe, first_row, parts });
            (first_stripe, first_row) = (first_stripe + stripes, height);
        }
        Self { stripe_bytes, zones, capacity: first_stripe * stripe_bytes }
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    pub fn stripe_bytes(&self) -> u64 {
        self.stripe_bytes
    }

    /// # Panics
    ///
    /// Panics when the offset is not below the capacity.
    pub fn place(&self, offset: u64) -> StripeLocation {
        assert!(offset < self.capacity, "offset {offset} of {} bytes", self.capacity);
        let (stripe, within) = (offset / self.stripe_bytes, offset % self.stripe_bytes);
        let zone = &self.zones[self.zones.partition_point(|zone| zone.first_stripe <= stripe) - 1];
        let (inside, width) = (stripe - zone.first_stripe, zone.parts.len() as u64);
        let row = zone.first_row + inside / width;
        StripeLocation {
            part: zone.parts[(inside % width) as usize],
            offset: DATA_START + row * self.stripe_bytes + within,
            run: self.stripe_bytes - within,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn part(stripes: u64) -> u64 {
        DATA_START + stripes * STRIPE + 12_345
    }

    #[test]
    fn one_part_is_used_to_its_last_block() {
        let stripes = Stripes::new(&[DATA_START + 5 * BLOCK as u64 + 1]);
        assert_eq!(stripes.capacity(), 5 * BLOCK as u64);
        let run = 3 * BLOCK as u64;
        assert_eq!(
            stripes.place(2 * BLOCK as u64),
            StripeLocation { part: 0, offset: DATA_START + 2 * BLOCK as u64, run }
        );
    }

    #[test]
    fn stripes_rotate_over_parts_that_have_space() {
        let stripes = Stripes::new(&[part(4), part(2), part(3)]);
        assert_eq!(stripes.capacity(), 9 * STRIPE);
        let parts: Vec<usize> = (0..9).map(|stripe| stripes.place(stripe * STRIPE).part).collect();
        assert_eq!(parts, [0, 1, 2, 0, 1, 2, 0, 2, 0]);
        let last = stripes.place(9 * STRIPE - 1);
        assert_eq!(last, StripeLocation { part: 0, offset: DATA_START + 4 * STRIPE - 1, run: 1 });
    }

    #[test]
    fn no_two_offsets_share_a_place() {
        for sizes in [&[1, 1][..], &[1, 7], &[3, 3, 3, 1], &[5, 2, 9, 2]] {
            let bytes: Vec<u64> = sizes.iter().map(|&stripes| part(stripes)).collect();
            let stripes = Stripes::new(&bytes);
            assert_eq!(stripes.capacity(), sizes.iter().sum::<u64>() * STRIPE);
            let mut places = HashSet::new();
            for offset in (0..stripes.capacity()).step_by(STRIPE as usize / 2) {
                let place = stripes.place(offset);
                assert!(place.offset + place.run <= bytes[place.part]);
                assert!(places.insert((place.part, place.offset)));
            }
        }
    }

    #[test]
    #[should_panic(expected = "offset 4096 of 4096 bytes")]
    fn nothing_lies_beyond_the_capacity() {
        Stripes::new(&[DATA_START + BLOCK as u64]).place(BLOCK as u64);
    }
}
