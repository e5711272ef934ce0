//! How the capacity is divided.
//!
//! ```text
//! 0            4 KiB             boundary                    end
//! | superblock | small objects   | large objects ...         |
//! ```
//! The boundary is a multiple of a region, on a device of several paths also of a stripe: so no region lies on two paths.

use super::TierOptions;
use crate::device::BLOCK;
use crate::{Error, large, small};
use std::ops::Range;
use std::time::Duration;

const REGION_BYTES_LEAST: usize = 64 << 10;
const REGION_BYTES_MOST: usize = 16 << 20;
/// Regions get smaller until there are so many: with fewer, too much goes at once.
const REGIONS_WANTED: u64 = 64;
const SHARE_LEAST: f64 = 0.01;
const SHARE_MOST: f64 = 0.99;

/// The areas of both stores, and what they are opened with.
#[derive(Debug)]
pub(super) struct Layout {
    pub small: Range<u64>,
    pub large: Range<u64>,
    pub small_options: small::Options,
    pub large_options: large::Options,
}

impl Layout {
    /// Divides a capacity of whole blocks, whose boundary is to be a multiple of `unit`, a power of two. What was written in another life
    /// than this one is not there.
    pub fn new(capacity: u64, unit: u64, life: u64, options: &TierOptions) -> Result<Self, Error> {
        check(options)?;
        let share = options.small_share;
        let large_bytes = (capacity as f64 * (1.0 - share)) as u64;
        let mut region_bytes = options.region_bytes;
        while region_bytes > REGION_BYTES_LEAST && large_bytes / (region_bytes as u64) < REGIONS_WANTED {
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
            ..large::Options::default()
        };
        let least = boundary + 2 * (large_options.buffers * region_bytes) as u64;
        if capacity < least {
            return Err(Error::Options(format!(
                "flash of {capacity} bytes, with a share of {share} for small objects, has no room for large ones: raise its size to {least} bytes, or lower the share"
            )));
        }
        let small_options = small::Options {
            log_percent: options.log_percent,
            move_threshold: options.move_threshold,
            salt: life,
            ..small::Options::default()
        };
        Ok(Self { small: BLOCK as u64..boundary, large: boundary..capacity, small_options, large_options })
    }
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
            let layout = Layout::new(capacity, unit, 1, &options).unwrap();
            assert_eq!((layout.large_options.region_bytes, layout.large.start), (region, boundary));
            assert_eq!((layout.small, layout.large.end), (4096..boundary, capacity));
        }
        let small_regions = TierOptions { region_bytes: 1 << 20, ..TierOptions::default() };
        assert_eq!(Layout::new(1 << 40, 1, 1, &small_regions).unwrap().large_options.region_bytes, 1 << 20);
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
            let refusal = Layout::new(capacity, BLOCK as u64, 1, &options).unwrap_err().to_string();
            assert!(refusal.contains(part), "{refusal}");
        }
    }
}
