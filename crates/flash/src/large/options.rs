//! Options of the log, and the layout that follows from them.

use super::address::{UNIT, UNITS_LIMIT};
use super::format::{FOOTER_ENTRY_BYTES, REGION_BYTES_LIMIT, REGION_HEADER_BYTES, object_bytes, value_bytes_in};
use crate::Error;
use crate::checkpoint_header::MAX_CHECKPOINT_WAIT;
use crate::device::BLOCK;
use std::ops::Range;
use std::time::Duration;

/// Maximum number of expiry groups.
pub const MAX_EXPIRY_GROUPS: usize = 8;
/// Keys and values share a region with headers; a smaller region holds almost no objects.
const MIN_REGION_BYTES: usize = 4 * BLOCK;
/// Positions in a region have 24 bits in a token.
const MAX_REGION_BYTES: usize = REGION_BYTES_LIMIT;
const BUFFERS_LIMIT: usize = 128;
/// The number of a buffer has 16 bits.
const LONG_BUFFERS_LIMIT: usize = (1 << 16) - BUFFERS_LIMIT;
/// Objects with fewer seconds to live are in the first group: five minutes.
const FIRST_GROUP_SECONDS: u32 = 300;

/// Options of the log.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Identity of this life of the device: objects written under another identity are never found. A cold start draws
    /// a new one.
    pub identity: u64,
    /// The first region of the area that belongs to the log; it does not touch those before. 0: the whole area.
    pub first_region: u32,
    /// Bytes of a region, the unit of writes and reclaims; whole blocks. 16 MiB: large enough that a drive erases flash
    /// without moving live data, small enough that buffers stay affordable.
    pub region_bytes: usize,
    /// Number of groups of objects with similar time to live, 1 to 8, each with an open region. 8: a region then
    /// expires as a whole more often, and a group without objects costs nothing.
    pub expiry_groups: usize,
    /// Regions that may be in RAM, open or being written, each with a buffer of `region_bytes`; more than
    /// `expiry_groups`. 10: two can be written while all groups are open.
    pub buffers: usize,
    /// Additional buffers for multi-region objects only. An insert that never waits takes them if it finds too few
    /// others, since all parts of an object must be in RAM at once. 0.
    pub long_buffers: usize,
    /// Seconds after which an open region is written even if it is not full. 600: objects that are only in RAM are lost
    /// in a crash, and a short region wastes space.
    pub seal_seconds: u32,
    /// Maximum wait of an insert for a buffer when all are being written. 100 ms: long enough for a stall of the drive,
    /// short enough for the eviction that also waits. With zero an insert never waits for the device: it does not
    /// reclaim regions either, and maintenance keeps more of them free.
    pub max_buffer_wait: Duration,
    /// Maximum wait of a checkpoint for the device, for each kind of pending work. 10 s: a drive that stalls for longer
    /// would delay the stop, and the next start recovers by a scan.
    pub max_checkpoint_wait: Duration,
    /// Which region is reclaimed when space is needed. `Lru`: it saves hits and writes, and a region is erased as a
    /// whole.
    pub reclaim: Reclaim,
    /// Which objects of that region are written again. `Auto`: those whose copies have been shown to pay.
    pub reinsertion: Reinsertion,
    /// Maximum bytes of RAM for the index. From fifteen sixteenths of it on maintenance reclaims regions; at the bound
    /// inserts are dropped. No bound: the index takes 10 to 12 bytes per object.
    pub index_bytes: usize,
    /// Whether [`super::LargeLog::recover`] must find the written objects, also without a checkpoint. On. Otherwise a
    /// region is reclaimed without a death mark, which saves a write of one block.
    pub recovers: bool,
    /// Whether reclaimed regions are discarded on the device. Off: a region is written again soon, and many drives
    /// discard slowly.
    pub discard: bool,
}

/// The order in which regions are reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// The oldest first.
    Fifo,
    /// The one first whose last hit is longest ago.
    Lru,
}

/// Which objects of a reclaimed region are written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reinsertion {
    Never,
    /// Objects that were hit since they were written, while copies earn as many hits per byte as new objects. An equal
    /// number of bytes of new objects is refused ([`super::LargeLog::prefers_copies`]).
    Auto,
    /// All objects with at least this number of hits since they were written, up to half of the reclaimed bytes.
    #[cfg(test)]
    Forced(u8),
}

impl Reinsertion {
    /// Whether reinsertion ignores the value of copies and the length of objects.
    pub(crate) fn is_forced(self) -> bool {
        match self {
            Self::Never | Self::Auto => false,
            #[cfg(test)]
            Self::Forced(_) => true,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            identity: 0,
            first_region: 0,
            region_bytes: 16 << 20,
            expiry_groups: MAX_EXPIRY_GROUPS,
            buffers: MAX_EXPIRY_GROUPS + 2,
            long_buffers: 0,
            seal_seconds: 600,
            max_buffer_wait: Duration::from_millis(100),
            max_checkpoint_wait: MAX_CHECKPOINT_WAIT,
            reclaim: Reclaim::Lru,
            reinsertion: Reinsertion::Auto,
            index_bytes: usize::MAX,
            recovers: true,
            discard: false,
        }
    }
}

impl Options {
    /// Minimum number of regions of a log: one for each group, and four that are sealed or being written.
    pub(crate) fn min_regions(&self) -> usize {
        self.expiry_groups + 4
    }

    /// Number of additional buffers with which two values of `value_bytes` find enough, since evictions that make space
    /// for one value may demote two. 0 if the shared buffers are enough for one.
    pub(crate) fn long_buffers_for(&self, value_bytes: u64) -> usize {
        let object_bytes = object_bytes(u8::MAX.into(), value_bytes as usize);
        // Each group may hold one for its open region.
        let regions = regions_of(object_bytes, self.region_bytes);
        let has_enough = regions + self.expiry_groups <= self.buffers + 1;
        if has_enough { 0 } else { (2 * regions + self.expiry_groups).min(LONG_BUFFERS_LIMIT) }
    }
}

/// Positions of the regions.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Offset of the first region on the device.
    start: u64,
    pub region_bytes: usize,
    pub regions: u32,
}

impl Geometry {
    /// All regions that fit an area of the device.
    ///
    /// # Errors
    ///
    /// [`Error::Options`] when the options contradict each other or the area is too small for them.
    pub fn new(area: &Range<u64>, options: &Options) -> Result<Self, Error> {
        let Options { region_bytes, expiry_groups, buffers, .. } = *options;
        let refuse = |input: String, limit: String| Err(Error::Options(format!("{input}: must be {limit}")));
        if !(1..=MAX_EXPIRY_GROUPS).contains(&expiry_groups) {
            return refuse(format!("{expiry_groups} groups of expiry"), format!("1 to {MAX_EXPIRY_GROUPS}"));
        }
        if buffers <= expiry_groups || buffers > BUFFERS_LIMIT {
            let limit = format!("more than the {expiry_groups} groups of expiry, at most {BUFFERS_LIMIT}");
            return refuse(format!("{buffers} buffers of regions"), limit);
        }
        let fits = (MIN_REGION_BYTES..=MAX_REGION_BYTES).contains(&region_bytes);
        if !fits || !region_bytes.is_multiple_of(BLOCK) {
            let limit = format!("{MIN_REGION_BYTES} to {MAX_REGION_BYTES}, a multiple of {BLOCK}");
            return refuse(format!("regions of {region_bytes} bytes"), limit);
        }
        let start = area.start.next_multiple_of(BLOCK as u64);
        let regions = area.end.saturating_sub(start) / region_bytes as u64;
        let min = options.min_regions() as u64;
        if regions.saturating_sub(options.first_region.into()) < min {
            let limit = format!("at least {min} regions; a larger area, smaller regions, or fewer buffers");
            return refuse(format!("an area of {regions} regions of {region_bytes} bytes"), limit);
        }
        if regions * (region_bytes / UNIT) as u64 > UNITS_LIMIT {
            let limit = format!("at most {} TiB", (UNITS_LIMIT * UNIT as u64) >> 40);
            return refuse(format!("an area of {} bytes", area.end - area.start), limit);
        }
        Ok(Self { start, region_bytes, regions: regions as u32 })
    }

    /// Offset of a region on the device.
    pub fn offset(&self, region: u32) -> u64 {
        self.start + u64::from(region) * self.region_bytes as u64
    }

    pub fn units_per_region(&self) -> u64 {
        (self.region_bytes / UNIT) as u64
    }

    /// The region of a unit of the log, and the unit's position in it.
    pub fn split(&self, unit: u64) -> (u32, u32) {
        ((unit / self.units_per_region()) as u32, (unit % self.units_per_region()) as u32)
    }

    pub fn unit(&self, region: u32, position: u32) -> u64 {
        u64::from(region) * self.units_per_region() + u64::from(position)
    }

    /// The longest object that fits an empty region, header included.
    pub fn object_bytes_limit(&self) -> usize {
        object_bytes_limit(self.region_bytes)
    }

    /// Maximum number of regions that hold parts of an object of `object_bytes`.
    pub fn regions_of(&self, object_bytes: usize) -> usize {
        regions_of(object_bytes, self.region_bytes)
    }

    /// The longest value for a log of `regions` regions: a quarter of the log, so that no part is reclaimed before the
    /// value is complete.
    pub fn value_bytes_limit(&self, regions: usize) -> u64 {
        let parts = (regions / 4).max(1) as u64;
        let part = value_bytes_in(u8::MAX.into(), self.object_bytes_limit()) as u64;
        (parts * part).min(u64::from(u32::MAX))
    }
}

fn object_bytes_limit(region_bytes: usize) -> usize {
    region_bytes - REGION_HEADER_BYTES - FOOTER_ENTRY_BYTES
}

/// The longest piece of a value in a part other than the first. A part has a header, a hash for a key, and the
/// checksums of its blocks.
fn part_bytes_limit(region_bytes: usize) -> usize {
    value_bytes_in(size_of::<u64>(), object_bytes_limit(region_bytes))
}

fn regions_of(object_bytes: usize, region_bytes: usize) -> usize {
    // The first part may only fill the rest of an open region.
    let fits_one = object_bytes <= object_bytes_limit(region_bytes);
    if fits_one { 1 } else { object_bytes.div_ceil(part_bytes_limit(region_bytes)) + 1 }
}

/// The group of objects with this number of seconds to live; `None` if they do not expire. If there are two or more
/// groups, the last one is for objects that do not expire. Each of the others holds objects that live up to four times
/// as long as those of the group before.
pub fn expiry_group_of(seconds: Option<u32>, expiry_groups: usize) -> usize {
    let Some(seconds) = seconds else { return expiry_groups - 1 };
    let octaves = (seconds / FIRST_GROUP_SECONDS).checked_ilog2().map_or(0, |log| log as usize / 2 + 1);
    octaves.min(expiry_groups.saturating_sub(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_by_remaining_life() {
        let of = |seconds: u32| expiry_group_of(Some(seconds), 8);
        assert_eq!([1, 299, 300, 1199, 1200, 4800, 19_200].map(of), [0, 0, 1, 1, 2, 3, 4]);
        assert_eq!((of(u32::MAX), expiry_group_of(None, 8)), (6, 7));
        assert_eq!((expiry_group_of(Some(u32::MAX), 2), expiry_group_of(None, 2)), (0, 1));
        assert_eq!((expiry_group_of(Some(u32::MAX), 1), expiry_group_of(None, 1)), (0, 0));
    }

    #[test]
    fn options_out_of_range_are_refused_with_limits() {
        let small = Options { region_bytes: 64 << 10, expiry_groups: 2, buffers: 3, ..Options::default() };
        let open_error = |options: Options| Geometry::new(&(0..1 << 20), &options).unwrap_err().to_string();
        assert!(Geometry::new(&(0..1 << 20), &small).is_ok());
        for (options, part) in [
            (Options { expiry_groups: 0, ..small }, "1 to 8"),
            (Options { expiry_groups: 9, buffers: 10, ..small }, "1 to 8"),
            (Options { buffers: 2, ..small }, "more than the 2 groups"),
            (Options { region_bytes: 5000, ..small }, "16384"),
            (Options { region_bytes: 70_000, ..small }, "multiple of 4096"),
            (Options { region_bytes: 256 << 10, ..small }, "at least 6 regions"),
        ] {
            let open_error = open_error(options);
            assert!(open_error.contains(part), "{open_error}");
        }
        let geometry = Geometry::new(&(1..1 << 20), &small).unwrap();
        assert_eq!((geometry.regions, geometry.offset(1)), (15, 4096 + (64 << 10)));
        assert_eq!(geometry.split(geometry.unit(3, 17)), (3, 17));
    }
}
