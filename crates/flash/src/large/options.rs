//! What can be chosen about the log, and what follows from it.

use super::address::{UNIT, UNITS_LIMIT};
use super::format::{FOOTER_ENTRY_BYTES, REGION_HEADER_BYTES, object_bytes, value_bytes_in};
use crate::Error;
use crate::checkpoint_header::MAX_CHECKPOINT_WAIT;
use crate::device::BLOCK;
use std::ops::Range;
use std::time::Duration;

/// The most groups of expiry.
pub const MAX_EXPIRY_GROUPS: usize = 8;
/// Keys and values share a region with headers; below this nothing useful fits.
const MIN_REGION_BYTES: usize = 4 * BLOCK;
/// Positions in a region have 24 bits in a token.
const MAX_REGION_BYTES: usize = 1 << 30;
const BUFFERS_LIMIT: usize = 128;
/// Buffers have numbers of 16 bits.
const LONG_BUFFERS_LIMIT: usize = (1 << 16) - BUFFERS_LIMIT;
/// Below this, objects that live longest in the first group: five minutes.
const FIRST_GROUP_SECONDS: u32 = 300;

/// How the log works.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Which life of the device this is: what was written under another identity is not there. A cold start
    /// takes a new one, at random.
    pub identity: u64,
    /// Regions of the area before this one are not the log's: what lies there is not touched. 0: the area is its own.
    pub first_region: u32,
    /// Bytes of a region, what is written and reclaimed at once; whole blocks. 16 MiB: large enough that flash is
    /// erased without moving what lives, small enough that buffers stay affordable.
    pub region_bytes: usize,
    /// Objects are kept apart by how long they still live, in 1 to 8 groups, each with an open region. 8: a region then
    /// expires as a whole more often, and a group without objects costs nothing.
    pub expiry_groups: usize,
    /// Regions that may be in RAM, open or being written, each with a buffer of `region_bytes`; more than
    /// `expiry_groups`. 10: two can be written while all groups are open.
    pub buffers: usize,
    /// As many more that only objects of several regions get, where an insert waits for nothing and finds too few
    /// others: an object is all in RAM before any of it is on the device. 0.
    pub long_buffers: usize,
    /// An open region older than this is written as it is. 600: what is only in RAM is lost with a crash, and a short
    /// region wastes space.
    pub seal_seconds: u32,
    /// How long an insert waits for a buffer when all are being written. 100 ms: long enough for a stall of the drive,
    /// short enough that eviction, which waits too, finds another way. With zero an insert never waits for the device:
    /// it does not reclaim regions either, and upkeep keeps more of them free.
    pub max_buffer_wait: Duration,
    /// How long a checkpoint waits for the device, for each kind of work under way. 10 s: a drive that stalls for
    /// longer would hold up a stop, and the next start recovers by a scan.
    pub max_checkpoint_wait: Duration,
    /// Which region is reclaimed when space is needed. `Lru`: it saves hits and writes, and a region is erased as a
    /// whole.
    pub reclaim: Reclaim,
    /// What of that region is kept. What has proved to be worth another write.
    pub reinsertion: Reinsertion,
    /// Bytes of RAM for the index at most. From fifteen sixteenths of it on the upkeep reclaims regions, at the bound
    /// inserts are dropped. No bound: 10 to 12 bytes an object are what the index takes.
    pub index_bytes: usize,
    /// Whether [`super::LargeLog::recover`] is to find what is written, without a checkpoint too. On. If not, a region
    /// goes without being marked dead, which costs a block each.
    pub recovers: bool,
    /// Whether the device is told of regions that were reclaimed. Off: a region is written again soon, and many drives
    /// are slow at it.
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
    /// Those that were hit since they were written, for as long as copies of such are hit as often for each byte as
    /// what is new; and as many bytes of new objects are not to be taken ([`super::LargeLog::prefers_copies`]).
    Auto,
    /// All that were hit at least this often since they were written, and are at most half of what is reclaimed.
    #[cfg(test)]
    Forced(u8),
}

impl Reinsertion {
    /// Whether neither the value of copies nor the length of an object limits what is written again.
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
    /// Regions that a log has at least: one for each group, and some that rest or are written.
    pub(crate) fn min_regions(&self) -> usize {
        self.expiry_groups + 4
    }

    /// How many buffers only objects of several regions must have, for two values of so many bytes to find enough,
    /// since evictions that make room for one may need two: none, if the others do for one.
    pub(crate) fn long_buffers_for(&self, value_bytes: u64) -> usize {
        let object_bytes = object_bytes(u8::MAX.into(), value_bytes as usize);
        // Each group may have one that is open.
        let regions = regions_of(object_bytes, self.region_bytes);
        let has_enough = regions + self.expiry_groups <= self.buffers + 1;
        if has_enough { 0 } else { (2 * regions + self.expiry_groups).min(LONG_BUFFERS_LIMIT) }
    }
}

/// Where the regions lie.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Offset of the first region on the device.
    start: u64,
    pub region_bytes: usize,
    pub regions: u32,
}

impl Geometry {
    /// As many regions as fit an area of the device.
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

    /// Where a region begins on the device.
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

    /// Regions that an object of so many bytes has a part in, at most.
    pub fn regions_of(&self, object_bytes: usize) -> usize {
        regions_of(object_bytes, self.region_bytes)
    }

    /// The longest value that a log of so many regions takes: a quarter of it, so that it is not reclaimed before it is
    /// complete.
    pub fn value_bytes_limit(&self, regions: usize) -> u64 {
        let parts = (regions / 4).max(1) as u64;
        let part = value_bytes_in(u8::MAX.into(), self.object_bytes_limit()) as u64;
        (parts * part).min(u64::from(u32::MAX))
    }
}

fn object_bytes_limit(region_bytes: usize) -> usize {
    region_bytes - REGION_HEADER_BYTES - FOOTER_ENTRY_BYTES
}

/// Each part has a header, a hash for a key, and the checksums of its blocks.
/// The longest piece of a value that a part other than the first holds.
fn part_bytes_limit(region_bytes: usize) -> usize {
    value_bytes_in(size_of::<u64>(), object_bytes_limit(region_bytes))
}

fn regions_of(object_bytes: usize, region_bytes: usize) -> usize {
    // The first part may only fill up a region that is open.
    let fits_one = object_bytes <= object_bytes_limit(region_bytes);
    if fits_one { 1 } else { object_bytes.div_ceil(part_bytes_limit(region_bytes)) + 1 }
}

/// The group of objects with so many seconds to live; `None` for ever. The last one is for those that do not expire, if
/// there are two or more. Of the others each holds lives four times as long as the one before.
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
    fn what_does_not_fit_is_refused_with_the_limit() {
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
