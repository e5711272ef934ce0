//! How the capacity and the memory are divided.
//!
//! ```text
//! 0            4 KiB             boundary                    end
//! | superblock | small objects   | large objects ...         |
//! ```
//! The boundary is a multiple of a region, on a device of several paths also of a stripe: so no region lies on two paths.
//!
//! The memory goes to what is fixed (tables, buffers, admission), and the rest to both indexes, in proportion to what they need
//! for objects of common sizes. Where objects are smaller than that, an index comes to its bound, and its store drops objects before
//! flash is full.

use super::TierOptions;
use crate::device::BLOCK;
use crate::large::LargeLog;
use crate::{Error, large, small};
use std::ops::Range;
use std::time::Duration;

const MEBIBYTE: u64 = 1 << 20;
const REGION_BYTES_LEAST: usize = 64 << 10;
const REGION_BYTES_MOST: usize = 16 << 20;
/// Regions get smaller until there are so many: with fewer, too much goes at once.
const REGIONS_WANTED: u64 = 64;
const SHARE_LEAST: f64 = 0.01;
const SHARE_MOST: f64 = 0.99;
/// Regions and segments get smaller until their buffers take such a part of the memory at most.
const REGION_BUFFERS: u64 = 4;
const SEGMENT_BUFFERS: u64 = 16;
/// Bytes of an index entry for each byte of flash: 12 for a large object of 16 KiB,
const LARGE_INDEX: f64 = 12.0 / 16_384.0;
/// and 1.4 for a small one of 300 bytes.
const SMALL_INDEX: f64 = 1.4 / 300.0;

/// The areas of both stores, and what they are opened with.
#[derive(Debug)]
pub(super) struct Layout {
    pub small: Range<u64>,
    pub large: Range<u64>,
    pub small_options: small::Options,
    pub large_options: large::Options,
}

/// Bytes of RAM.
struct Memory {
    fixed: f64,
    /// Of the fixed ones, those of the small objects' index.
    small_fixed: usize,
    small: f64,
    large: f64,
}

impl Memory {
    fn least(&self) -> f64 {
        self.fixed + self.small + self.large
    }
}

impl Layout {
    /// Divides a capacity of whole blocks, whose boundary is to be a multiple of `unit`, a power of two. What was written in
    /// another life than this one is not there. Admission takes so much of the memory.
    pub fn new(capacity: u64, unit: u64, life: u64, admission: usize, options: &TierOptions) -> Result<Self, Error> {
        check(options)?;
        let mut layout = Self::divide(capacity, unit, life, options)?;
        let memory = layout.memory(admission)?;
        let spare = options.memory_bytes as f64 - memory.least();
        if spare < 0.0 {
            let fits = |capacity: u64, memory_bytes: u64| {
                let layout = Self::divide(capacity, unit, life, &TierOptions { memory_bytes, ..options.clone() });
                let memory = layout.and_then(|layout| layout.memory(admission));
                memory.is_ok_and(|memory| memory.least() <= memory_bytes as f64)
            };
            return Err(too_little(capacity, options.memory_bytes, memory.least() as u64, fits));
        }
        let share = spare / (memory.small + memory.large);
        layout.large_options.index_bytes = (memory.large * (1.0 + share)) as usize;
        layout.small_options.index_bytes = memory.small_fixed.saturating_add((memory.small * (1.0 + share)) as usize);
        Ok(layout)
    }

    fn divide(capacity: u64, unit: u64, life: u64, options: &TierOptions) -> Result<Self, Error> {
        let share = options.small_share;
        let large_bytes = (capacity as f64 * (1.0 - share)) as u64;
        let defaults = (large::Options::default(), small::Options::default());
        let mut region_bytes = options.region_bytes;
        let buffers_most = options.memory_bytes / REGION_BUFFERS;
        while region_bytes > REGION_BYTES_LEAST
            && (large_bytes / (region_bytes as u64) < REGIONS_WANTED
                || (defaults.0.buffers * region_bytes) as u64 > buffers_most)
        {
            region_bytes /= 2;
        }
        let unit = unit.max(region_bytes as u64);
        let boundary = ((capacity as f64 * share) as u64).next_multiple_of(unit).max(unit);
        let large_options = large::Options {
            identity: life,
            region_bytes,
            seal_seconds: options.seal_seconds,
            patience: Duration::ZERO,
            reclaim: options.reclaim,
            reinsertion: options.reinsertion,
            discard: options.discard,
            ..defaults.0
        };
        let least = boundary + 2 * (large_options.buffers * region_bytes) as u64;
        if capacity < least {
            return Err(Error::Options(format!(
                "flash of {capacity} bytes, with a share of {share} for small objects, has no room for large ones: raise its size to {least} bytes, or lower the share"
            )));
        }
        let mut small_options = small::Options {
            log_percent: options.log_percent,
            move_threshold: options.move_threshold,
            salt: life,
            ..defaults.1
        };
        let small = BLOCK as u64..boundary;
        while small_options.segment_bytes > BLOCK
            && small_options.fixed_bytes(&small)?.1 as u64 > options.memory_bytes / SEGMENT_BUFFERS
        {
            small_options.segment_bytes /= 2;
        }
        Ok(Self { small, large: boundary..capacity, small_options, large_options })
    }

    /// What is needed at least.
    fn memory(&self, admission: usize) -> Result<Memory, Error> {
        let (small_fixed, small_buffers) = self.small_options.fixed_bytes(&self.small)?;
        let large_fixed = LargeLog::fixed_bytes(&self.large, &self.large_options);
        let bytes = |area: &Range<u64>| (area.end - area.start) as f64;
        Ok(Memory {
            fixed: (small_fixed + small_buffers + large_fixed + admission) as f64,
            small_fixed,
            small: bytes(&self.small) * SMALL_INDEX,
            large: bytes(&self.large) * LARGE_INDEX,
        })
    }
}

/// Names what would do: more memory, or the largest capacity for which the memory is enough.
fn too_little(capacity: u64, given: u64, least: u64, fits: impl Fn(u64, u64) -> bool) -> Error {
    // With more memory, buffers are larger, but take a part of it at most.
    let needed = bisect(2 * least, given, |memory| fits(capacity, memory)).div_ceil(MEBIBYTE);
    let other = match bisect(0, capacity, |capacity| fits(capacity, given)) / MEBIBYTE {
        0 => String::new(),
        mebibytes => format!(", or lower the size of flash to {mebibytes} MiB"),
    };
    Error::Options(format!(
        "flash of {capacity} bytes has {given} bytes of memory for its indexes and buffers: raise that to {needed} MiB{other}"
    ))
}

/// A number that does, to the mebibyte, between one that does and one that does not.
fn bisect(mut good: u64, mut bad: u64, does: impl Fn(u64) -> bool) -> u64 {
    while good.abs_diff(bad) > MEBIBYTE {
        let middle = good.midpoint(bad);
        *(if does(middle) { &mut good } else { &mut bad }) = middle;
    }
    good
}

fn check(options: &TierOptions) -> Result<(), Error> {
    let refuse = |text: String| Err(Error::Options(text));
    let (share, region) = (options.small_share, options.region_bytes);
    if !(SHARE_LEAST..=SHARE_MOST).contains(&share) {
        return refuse(format!("a share of {share} for small objects: must be {SHARE_LEAST} to {SHARE_MOST}"));
    }
    if !region.is_power_of_two() || !(REGION_BYTES_LEAST..=REGION_BYTES_MOST).contains(&region) {
        return refuse(format!(
            "regions of {region} bytes: must be a power of two, {REGION_BYTES_LEAST} to {REGION_BYTES_MOST}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::STRIPE;
    use crate::large::{Reclaim, Reinsertion};

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_boundary_is_aligned_and_regions_follow_the_capacity() {
        for (capacity, unit, share, region, boundary) in [
            (1 << 40, BLOCK as u64, 0.5, 16 << 20, 1 << 39),
            (1 << 40, STRIPE, 0.01, 16 << 20, 656 * STRIPE),
            (96 * MIB, STRIPE, 0.1, 1 << 20, STRIPE),
            (31 * MIB, BLOCK as u64, 0.5, 128 << 10, 31 * MIB / 2),
            (4 * MIB, BLOCK as u64, 0.5, 64 << 10, 2 * MIB),
        ] {
            let options = TierOptions { small_share: share, ..TierOptions::default() };
            let layout = Layout::new(capacity, unit, 1, 0, &options).unwrap();
            assert_eq!((layout.large_options.region_bytes, layout.large.start), (region, boundary));
            assert_eq!((layout.small, layout.large.end), (4096..boundary, capacity));
        }
        let small_regions = TierOptions { region_bytes: 1 << 20, ..TierOptions::default() };
        assert_eq!(Layout::new(1 << 40, 1, 1, 0, &small_regions).unwrap().large_options.region_bytes, 1 << 20);
    }

    #[test]
    fn both_stores_are_told_what_was_chosen() {
        let chosen = TierOptions {
            reclaim: Reclaim::Lru,
            reinsertion: Reinsertion::Hits(2),
            discard: true,
            seal_seconds: 7,
            log_percent: 20,
            move_threshold: 3,
            ..TierOptions::default()
        };
        let Layout { large_options: large, small_options: small, .. } =
            Layout::new(64 * MIB, BLOCK as u64, 9, 0, &chosen).unwrap();
        assert_eq!((large.reclaim, large.reinsertion), (Reclaim::Lru, Reinsertion::Hits(2)));
        assert_eq!((large.discard, large.seal_seconds, large.patience), (true, 7, Duration::ZERO));
        assert_eq!((small.log_percent, small.move_threshold), (20, 3));
        assert_eq!((large.identity, small.salt), (9, 9));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_limit() {
        let base = TierOptions::default();
        for (options, capacity, part) in [
            (TierOptions { small_share: 0.0, ..base.clone() }, 64 * MIB, "0.01 to 0.99"),
            (TierOptions { small_share: f64::NAN, ..base.clone() }, 64 * MIB, "0.01 to 0.99"),
            (TierOptions { region_bytes: 3 << 20, ..base.clone() }, 64 * MIB, "a power of two"),
            (TierOptions { region_bytes: 32 << 20, ..base.clone() }, 64 * MIB, "65536 to 16777216"),
            (TierOptions { small_share: 0.99, ..base.clone() }, 64 * MIB, "lower the share"),
            (base, MIB, "raise its size to 1835008 bytes"),
        ] {
            let refusal = Layout::new(capacity, BLOCK as u64, 1, 0, &options).unwrap_err().to_string();
            assert!(refusal.contains(part), "{refusal}");
        }
    }

    #[test]
    fn the_memory_is_divided_and_too_little_of_it_is_refused_with_what_would_do() {
        let with = |memory_bytes| TierOptions { memory_bytes, ..TierOptions::default() };
        let layout = |capacity, memory| Layout::new(capacity, BLOCK as u64, 1, 1000, &with(memory));
        let (capacity, memory) = (64 << 30, 512 * MIB);
        let options = layout(capacity, memory).unwrap();
        let (large, small) = (&options.large_options, &options.small_options);
        let fixed = LargeLog::fixed_bytes(&options.large, large) + small.fixed_bytes(&options.small).unwrap().1 + 1000;
        let total = (fixed + large.index_bytes + small.index_bytes) as u64;
        assert!(total <= memory && total > memory - 10, "{total} of {memory}");
        assert_eq!(large.region_bytes, 8 << 20, "ten buffers take a quarter at most");

        let refusal = layout(capacity, 100 * MIB).unwrap_err().to_string();
        let number = |before: &str| -> u64 {
            let rest = refusal.split(before).nth(1).unwrap_or_else(|| panic!("{refusal}"));
            rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
        };
        let (needed, fits) = (number("raise that to ") * MIB, number("size of flash to ") * MIB);
        assert!(layout(capacity, needed).is_ok() && needed < 300 * MIB, "{refusal}");
        assert!(layout(fits, 100 * MIB).is_ok() && fits > capacity / 8, "{refusal}");
        let refusal = layout(capacity, 1000).unwrap_err().to_string();
        assert!(refusal.ends_with(" MiB") && !refusal.contains("lower"), "{refusal}");
    }
}
