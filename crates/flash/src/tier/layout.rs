//! How the capacity and the memory are divided.
//!
//! ```text
//! 0            4 KiB             boundary                    end
//! | superblock | small objects   | large objects ...         | checkpoint | table of pools |
//! ```
//! The boundary is a multiple of a region, and regions are counted from 0: so none lies on two paths, whose stripes are
//! as long as the longest region.
//!
//! Unless a share for small objects is given, the capacity is not divided at first: all objects are large ones, written
//! from the end. When enough of them came to tell how many bytes are small, the boundary is drawn, below all that was
//! written. Where hardly any are small, it stays where it is, and is looked at again later; but large objects are never
//! moved for it, so in a log that is full of them none is drawn. What has become wrong is taken back: then it is as at
//! first.
//!
//! The memory goes to what is fixed (tables, buffers, admission), and the rest to both indexes, in proportion to what
//! they need for objects of common sizes. What an index does not use is released ([`super::Tier::release_memory`]);
//! near its bound it asks for more ([`super::Tier::wanted_memory`]); if nothing comes, its store drops objects before
//! flash is full.

use super::TierOptions;
use super::device_size::DeviceSize;
use super::pool_table;
use super::superblock::Partition;
use crate::device::BLOCK;
use crate::large::LargeLog;
use crate::{Error, large, small};
use std::ops::Range;
use std::time::Duration;

const MEBIBYTE: u64 = 1 << 20;
/// Nobody is told of a larger size that would do.
const MAX_SIZE: u64 = 1 << 50;
const MIN_REGION_BYTES: usize = 16 << 10;
/// Before they get smaller than this for want of memory, there are fewer groups of expiry.
const REGION_BYTES_USUAL: usize = 256 << 10;
const MIN_GROUPS: usize = 1;
/// Buffers beside those of the groups.
const BUFFERS_BESIDE: usize = 2;
const MAX_REGION_BYTES: usize = 16 << 20;
/// Regions get smaller until there are so many: with fewer, too much goes at once.
const REGIONS_WANTED: u64 = 64;
/// The same where the boundary is drawn later: what large objects have at least is then a sixteenth at most.
const REGIONS_WANTED_UNDIVIDED: u64 = 192;
const MIN_SHARE: f64 = 0.01;
const MAX_SHARE: f64 = 0.99;
/// What the memory must be enough for if the share is not known.
const SHARE_EXPECTED: f64 = 0.5;
/// Regions get smaller until their buffers take such a part of the memory at most: the first one that leaves enough.
/// The longer they are, the less is written beside objects.
const REGION_BUFFERS: [u64; 3] = [2, 4, 8];
/// They take this part of it at most, a hundredth of all memory where flash has an eighth, unless that is less than
/// [`MIN_REGION_BUFFERS`]: what buffers do not have holds items.
const REGION_BUFFERS_SHARE: f64 = 0.08;
const MIN_REGION_BUFFERS: u64 = 8 << 20;
/// The same for segments.
const SEGMENT_BUFFERS: u64 = 8;
/// An object so long finds buffers, if there is memory and capacity for them: values of the default limit do.
const OBJECT_BYTES: usize = 1 << 20;
const MAX_BUFFERS: u64 = 64;
/// After a split the indexes have this part of their memory ahead of their use, beside a quarter of it.
const SPLIT_SPARE_SHARE: usize = 16;
/// By such a part the boundary goes back until the memory is enough.
const BOUNDARY_STEP: u64 = 64;
/// Of the regions, so many for each buffer.
const REGIONS_PER_BUFFER: u64 = 4;
/// The checkpoint has such a part of the device, and so many bytes at least: more than the indexes need with objects of
/// 300 B and of 2 KiB. What does not fit is found by reading its store.
const CHECKPOINT_SHARE: u64 = 128;
const MIN_CHECKPOINT: u64 = 64 << 10;
/// An area of small objects so large gets zeros ahead, unless there is a budget of writes: below it the extents of its
/// pages are few.
const ZEROS_FROM: u64 = 1 << 30;
/// Bytes of an index entry for each byte of flash: 12 for a large object of 16 KiB,
const LARGE_INDEX: f64 = 12.0 / 16_384.0;
/// and 1.4 for a small one of 300 bytes.
const SMALL_INDEX: f64 = 1.4 / 300.0;

/// Where both stores lie, and what they are opened with.
#[derive(Clone, Debug)]
pub(super) struct TierLayout {
    /// Where large objects end.
    pub capacity: u64,
    /// Behind the large objects, to the end: the checkpoint of both stores and the table of pools; empty without a warm
    /// restart.
    pub tail: Range<u64>,
    /// Where large objects begin.
    pub boundary: u64,
    /// None while the capacity is not divided.
    pub small_options: Option<small::Options>,
    pub large_options: large::Options,
}

/// Bytes of RAM.
struct MemoryNeed {
    fixed: f64,
    /// Of the fixed ones, those of the small objects' index.
    small_fixed: usize,
    small: f64,
    large: f64,
}

impl MemoryNeed {
    fn min(&self) -> f64 {
        self.fixed + self.small + self.large
    }

    /// With half of what the indexes should have.
    fn half(&self) -> f64 {
        self.fixed + (self.small + self.large) / 2.0
    }

    /// Whether the options give enough, or half of it now and the rest later.
    fn is_enough_later(&self, options: &TierOptions) -> bool {
        let (now, later) = (options.memory_bytes as f64, options.memory_growth_bytes as f64);
        self.half() <= now && self.min() <= now + later
    }

    /// Whether they give enough for what is fixed, and half of the rest, if not now.
    fn has_half_later(&self, options: &TierOptions) -> bool {
        let (now, later) = (options.memory_bytes as f64, options.memory_growth_bytes as f64);
        self.fixed <= now && self.half() <= now + later
    }
}

impl TierLayout {
    /// For a device of whole blocks, divided if the options say how.
    pub fn new(size: impl Into<DeviceSize>, options: &TierOptions) -> Result<Self, Error> {
        check(options)?;
        let size = size.into();
        let fits = |given: u64, memory_bytes: u64| {
            let options = TierOptions { memory_bytes, ..options.clone() };
            matches!(Self::within(size.capacity_of(given), &options), Ok(Some(_)))
        };
        match Self::within(size.capacity, options) {
            Ok(Some(layout)) => Ok(layout),
            Ok(None) => {
                let smallest =
                    Self::split_with_buffers(size.capacity, REGION_BUFFERS[REGION_BUFFERS.len() - 1], options)?;
                let min = smallest.memory(options)?.min() as u64;
                Err(memory_error(&size, options, min, fits))
            }
            Err(error) => Err(size_error(&size, &error, |given| fits(given, options.memory_bytes))),
        }
    }

    /// None if the memory is not enough.
    fn within(capacity: u64, options: &TierOptions) -> Result<Option<Self>, Error> {
        for part in REGION_BUFFERS {
            let mut split_at_share = Self::split_with_buffers(capacity, part, options)?;
            if split_at_share.split_memory(options)? {
                if options.small_share.is_none() {
                    split_at_share = Self::unsplit(capacity, part, options);
                    assert!(split_at_share.split_memory(options)?, "small objects need more memory than large ones");
                }
                return Ok(Some(split_at_share));
            }
        }
        Ok(None)
    }

    /// As it was divided before, with other memory maybe, and with a boundary that was drawn by what came. None if the
    /// options say something else, or the memory is not enough.
    pub fn as_before(before: &Partition, options: &TierOptions) -> Option<Self> {
        let region_bytes = before.region_bytes as usize;
        if !region_bytes.is_power_of_two() || region_bytes > options.region_bytes {
            return None;
        }
        let split_with_buffers = |part| Self::split_as_before(before, part, options).ok()?;
        let fits =
            |layout: &Self| layout.memory(options).is_ok_and(|memory| memory.min() <= options.memory_bytes as f64);
        let has_half = |layout: &Self| layout.memory(options).is_ok_and(|memory| memory.has_half_later(options));
        let layouts = || REGION_BUFFERS.into_iter().filter_map(split_with_buffers);
        // With less memory than a new one would need the indexes have less.
        let mut layout = layouts().find(fits).or_else(|| layouts().find(has_half))?;
        layout.split_memory(options).ok()?;
        Some(layout)
    }

    fn split_as_before(before: &Partition, part: u64, options: &TierOptions) -> Result<Option<Self>, Error> {
        let region_bytes = before.region_bytes as usize;
        let unsplit = Self::with_regions(before.capacity, region_bytes, part, options);
        let mut layout = match (before.segment_bytes as usize, options.small_share) {
            (0, None) => unsplit,
            (0, Some(_)) => return Ok(None),
            (segment_bytes, None) => unsplit.at(before.boundary, segment_bytes, options)?,
            (segment_bytes, Some(share)) => unsplit.at(unsplit.boundary_of(share), segment_bytes, options)?,
        };
        // With more memory there would be more groups, and maybe too few regions for them.
        let regions = (layout.capacity.saturating_sub(layout.boundary) / region_bytes as u64) as usize;
        let beside_groups = layout.large_options.min_regions() - layout.large_options.expiry_groups;
        let expiry_groups = layout.large_options.expiry_groups.min(regions.saturating_sub(beside_groups));
        layout.large_options.expiry_groups = expiry_groups;
        let is_same = expiry_groups > 0 && Partition::of(before.identity, &layout) == *before;
        Ok(is_same.then_some(layout))
    }

    /// Divided as the options say or as is to be expected, with such a part of the memory for buffers.
    fn split_with_buffers(capacity: u64, part: u64, options: &TierOptions) -> Result<Self, Error> {
        Self::unsplit(capacity, part, options).split_at_share(options.small_share.unwrap_or(SHARE_EXPECTED), options)
    }

    /// The area of small objects, if the capacity is divided.
    pub fn small_area(&self) -> Range<u64> {
        BLOCK as u64..self.boundary
    }

    /// The checkpoint of both stores, and the table of pools behind it; `None` without a warm restart.
    pub fn checkpoint_and_table(&self) -> Option<(Range<u64>, Range<u64>)> {
        let between = self.tail.end.checked_sub(pool_table::BYTES).filter(|between| *between > self.tail.start)?;
        Some((self.tail.start..between, between..self.tail.end))
    }

    pub fn large_area(&self) -> Range<u64> {
        0..self.capacity
    }

    /// Divided with a boundary that is this one at most, at the one nearest to it for which the memory is enough, or
    /// will be. None if there is none.
    pub fn split_at_most(&self, boundary: u64, options: &TierOptions) -> Option<Self> {
        let region_bytes = self.large_options.region_bytes as u64;
        let mut boundary = boundary / region_bytes * region_bytes;
        while boundary > region_bytes {
            let layout = self.split_at(boundary, options);
            if layout.is_some() {
                return layout;
            }
            boundary -= (boundary / BOUNDARY_STEP).next_multiple_of(region_bytes);
        }
        None
    }

    /// Divided at this boundary; none if the memory is not enough, nor will be.
    pub fn split_at(&self, boundary: u64, options: &TierOptions) -> Option<Self> {
        let mut layout = self.at(boundary, self.segment_bytes(boundary, options).ok()?, options).ok()?;
        let is_enough = layout.split_memory(options).ok()? || layout.memory(options).ok()?.is_enough_later(options);
        is_enough.then_some(layout)
    }

    /// Gives the index of large objects so many bytes at least, at the cost of the other.
    pub fn leave_to_large(&mut self, bytes: usize) {
        let missing = bytes.saturating_sub(self.large_options.index_bytes);
        if let Some(small) = &mut self.small_options {
            let taken = missing.min(small.index_bytes / 4);
            small.index_bytes -= taken;
            self.large_options.index_bytes += taken;
        }
    }

    /// Bytes of both indexes together.
    pub fn index_bytes(&self) -> usize {
        let small = self.small_options.as_ref().map_or(0, |small| small.index_bytes);
        self.large_options.index_bytes.saturating_add(small)
    }

    /// Bytes of the small objects' index before the first object.
    fn small_fixed_bytes(&self) -> usize {
        let fixed = self.small_options.as_ref().and_then(|small| small.fixed_bytes(&self.small_area()).ok());
        fixed.map_or(0, |(fixed, _)| fixed)
    }

    /// Bytes with which both indexes work, where the one of large objects uses so many: more comes as they grow.
    pub fn min_split_index_bytes(&self, large_used: usize) -> usize {
        let used = large_used.saturating_add(self.small_fixed_bytes());
        used.saturating_add(used / 4).saturating_add(self.index_bytes() / SPLIT_SPARE_SHARE).min(self.index_bytes())
    }

    /// Takes so many bytes from the indexes together. What is left beyond their use is divided equally.
    pub fn release_indexes(&mut self, bytes: usize, large_used: usize) {
        let (all, fixed) = (self.index_bytes().saturating_sub(bytes), self.small_fixed_bytes());
        if let Some(small) = &mut self.small_options {
            let spare = all.saturating_sub(large_used.saturating_add(fixed));
            small.index_bytes = small.index_bytes.min(fixed.saturating_add(spare / 2));
            self.large_options.index_bytes = all.saturating_sub(small.index_bytes);
        }
    }

    /// Where large objects end, and what they have at first.
    fn capacities(device_bytes: u64, options: &TierOptions) -> (u64, u64) {
        let checkpoint_bytes = (device_bytes / CHECKPOINT_SHARE).max(MIN_CHECKPOINT).next_multiple_of(BLOCK as u64);
        let tail_bytes = checkpoint_bytes + pool_table::BYTES;
        let capacity = device_bytes.saturating_sub(if options.warm_restart { tail_bytes } else { 0 });
        let large_share = 1.0 - options.small_share.unwrap_or(0.0);
        (capacity, (capacity as f64 * large_share) as u64)
    }

    fn unsplit(device_bytes: u64, part: u64, options: &TierOptions) -> Self {
        let (_, large_bytes) = Self::capacities(device_bytes, options);
        let wanted = if options.small_share.is_some() { REGIONS_WANTED } else { REGIONS_WANTED_UNDIVIDED };
        let defaults = large::Options::default();
        let max_buffers = max_buffers(options.memory_bytes, part);
        let mut region_bytes = options.region_bytes;
        while region_bytes > MIN_REGION_BYTES
            && (large_bytes / (region_bytes as u64) < wanted
                || region_bytes > REGION_BYTES_USUAL && (defaults.buffers * region_bytes) as u64 > max_buffers
                || ((MIN_GROUPS + BUFFERS_BESIDE) * region_bytes) as u64 > max_buffers)
        {
            region_bytes /= 2;
        }
        Self::with_regions(device_bytes, region_bytes, part, options)
    }

    /// Undivided, with regions of so many bytes.
    fn with_regions(device_bytes: u64, region_bytes: usize, part: u64, options: &TierOptions) -> Self {
        let (capacity, large_bytes) = Self::capacities(device_bytes, options);
        let max_buffers = max_buffers(options.memory_bytes, part);
        let defaults = large::Options::default();
        let affordable = (max_buffers / region_bytes as u64).saturating_sub(BUFFERS_BESIDE as u64);
        let expiry_groups = affordable.clamp(MIN_GROUPS as u64, defaults.expiry_groups as u64) as usize;
        // Each group may have one, and the last part of an object begins another.
        let wanted = (OBJECT_BYTES.div_ceil(region_bytes) + expiry_groups + 1) as u64;
        let regions = large_bytes / region_bytes as u64;
        let max = (max_buffers / region_bytes as u64).min(regions / REGIONS_PER_BUFFER).min(MAX_BUFFERS);
        let mut large_options = large::Options {
            first_region: 1,
            region_bytes,
            expiry_groups,
            buffers: (expiry_groups + BUFFERS_BESIDE).max(wanted.min(max) as usize),
            seal_seconds: options.seal_seconds,
            max_buffer_wait: Duration::ZERO,
            reclaim: options.reclaim,
            reinsertion: options.reinsertion,
            recovers: options.warm_restart,
            discard: options.discard,
            ..defaults
        };
        // No value may take more than a quarter of the log.
        large_options.long_buffers = large_options.long_buffers_for(options.max_value_bytes.min(large_bytes / 4));
        let (tail, boundary) = (capacity..device_bytes, region_bytes as u64);
        Self { capacity, tail, boundary, small_options: None, large_options }
    }

    fn split_at_share(&self, share: f64, options: &TierOptions) -> Result<Self, Error> {
        let region_bytes = self.large_options.region_bytes as u64;
        let (device_bytes, tail_bytes) = (self.tail.end, self.tail.end - self.tail.start);
        let boundary = self.boundary_of(share);
        let min = boundary + self.large_options.min_regions() as u64 * region_bytes + tail_bytes;
        if device_bytes < min {
            return Err(Error::Options(format!(
                "a share of {} % for small objects leaves no room for large ones: lower the share",
                (share * 1000.0).round() / 10.0
            )));
        }
        self.at(boundary, self.segment_bytes(boundary, options)?, options)
    }

    fn boundary_of(&self, share: f64) -> u64 {
        let region_bytes = self.large_options.region_bytes as u64;
        ((self.tail.end as f64 * share) as u64).next_multiple_of(region_bytes).max(region_bytes)
    }

    /// What the memory is enough for.
    fn segment_bytes(&self, boundary: u64, options: &TierOptions) -> Result<usize, Error> {
        let mut small_options = small::Options { log_percent: options.log_percent, ..small::Options::default() };
        while small_options.segment_bytes > BLOCK
            && small_options.fixed_bytes(&(BLOCK as u64..boundary))?.1 as u64 > options.memory_bytes / SEGMENT_BUFFERS
        {
            small_options.segment_bytes /= 2;
        }
        Ok(small_options.segment_bytes)
    }

    fn at(&self, boundary: u64, segment_bytes: usize, options: &TierOptions) -> Result<Self, Error> {
        let small_options = small::Options {
            log_percent: options.log_percent,
            rewrite_threshold: options.rewrite_threshold,
            segment_bytes,
            zeros_ahead: boundary >= ZEROS_FROM && options.admission.budget.is_none(),
            ..small::Options::default()
        };
        small_options.fixed_bytes(&(BLOCK as u64..boundary))?;
        let first_region = (boundary / self.large_options.region_bytes as u64) as u32;
        let large_options = large::Options { first_region, ..self.large_options };
        Ok(Self { boundary, small_options: Some(small_options), large_options, ..self.clone() })
    }

    /// What is needed at least.
    fn memory(&self, options: &TierOptions) -> Result<MemoryNeed, Error> {
        let large_fixed = LargeLog::fixed_bytes(&self.large_area(), &self.large_options);
        let (small_fixed, small_buffers) = match &self.small_options {
            Some(options) => options.fixed_bytes(&self.small_area())?,
            None => (0, 0),
        };
        let small_bytes = if self.small_options.is_some() { self.boundary as f64 } else { 0.0 };
        Ok(MemoryNeed {
            fixed: (small_fixed + small_buffers + large_fixed + options.admission.memory_bytes()) as f64,
            small_fixed,
            small: small_bytes * SMALL_INDEX,
            large: (self.capacity - self.boundary) as f64 * LARGE_INDEX,
        })
    }

    /// Bytes of RAM without an object.
    pub fn fixed_bytes(&self, options: &TierOptions) -> Result<u64, Error> {
        self.memory(options).map(|memory| memory.fixed as u64)
    }

    /// Gives each index its bound. False if the memory is not enough.
    fn split_memory(&mut self, options: &TierOptions) -> Result<bool, Error> {
        let memory = self.memory(options)?;
        let spare = options.memory_bytes as f64 - memory.min();
        let share = spare / (memory.small + memory.large);
        self.large_options.index_bytes =
            LargeLog::min_index_bytes().saturating_add((memory.large * (1.0 + share)) as usize);
        if let Some(small) = &mut self.small_options {
            small.index_bytes = memory.small_fixed.saturating_add((memory.small * (1.0 + share)) as usize);
        }
        Ok(spare >= 0.0)
    }
}

/// Bytes that the buffers of large objects take at most, if they may have such a part of the memory.
fn max_buffers(memory_bytes: u64, part: u64) -> u64 {
    let share = (memory_bytes as f64 * REGION_BUFFERS_SHARE) as u64;
    (memory_bytes / part).min(share.max(MIN_REGION_BUFFERS))
}

impl Partition {
    /// The partition that a layout makes of a device.
    pub fn of(identity: u64, layout: &TierLayout) -> Self {
        Self {
            identity,
            capacity: layout.tail.end,
            boundary: layout.boundary,
            end: layout.capacity,
            region_bytes: layout.large_options.region_bytes as u32,
            segment_bytes: layout.small_options.as_ref().map_or(0, |small| small.segment_bytes as u32),
            log_percent: layout.small_options.as_ref().map_or(0, |small| small.log_percent.into()),
        }
    }
}

/// Adds the size that would do, if there is one.
fn size_error(size: &DeviceSize, error: &Error, fits: impl Fn(u64) -> bool) -> Error {
    let given = size.given;
    let mut sizes =
        std::iter::successors(Some(given.max(1)), |size| size.checked_mul(2).filter(|&size| size <= MAX_SIZE));
    let enough = sizes.find(|&size| fits(size)).map(|size| bisect(size, given, &fits));
    let advice = enough.map(|enough| enough.next_multiple_of(MEBIBYTE)).filter(|&enough| fits(enough)).or(enough);
    Error::Options(match advice {
        Some(bytes) => format!("flash of {given} bytes: {error}, or increase its size to {bytes} bytes{}", size.how()),
        None => format!("flash of {given} bytes: {error}"),
    })
}

/// Names what would do: more memory, or the largest capacity for which the memory is enough.
fn memory_error(size: &DeviceSize, options: &TierOptions, min: u64, fits: impl Fn(u64, u64) -> bool) -> Error {
    let given = options.memory_bytes;
    // With more memory, buffers are larger, but take a part of it at most.
    let needed = bisect(2 * min, given, |memory| fits(size.given, memory)).div_ceil(MEBIBYTE);
    let other = match bisect(0, size.given, |size| fits(size, given)) / MEBIBYTE {
        0 => String::new(),
        mebibytes => format!(", or lower the size of flash to {mebibytes} MiB{}", size.how()),
    };
    let admission = match options.admission.memory_bytes() {
        0 => String::new(),
        bytes => format!(", and for what admission remembers, which has {bytes} bytes"),
    };
    Error::Memory(format!(
        "flash of {} bytes has {given} bytes of memory for its indexes and buffers{admission}: increase that to {needed} MiB{other}",
        size.given
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
    options.admission.check()?;
    let refuse = |text: String| Err(Error::Options(text));
    let (share, region) = (options.small_share, options.region_bytes);
    if let Some(share) = share.filter(|share| !(MIN_SHARE..=MAX_SHARE).contains(share)) {
        return refuse(format!("a share of {share} for small objects: must be {MIN_SHARE} to {MAX_SHARE}"));
    }
    if !region.is_power_of_two() || !(MIN_REGION_BYTES..=MAX_REGION_BYTES).contains(&region) {
        return refuse(format!(
            "regions of {region} bytes: must be a power of two, {MIN_REGION_BYTES} to {MAX_REGION_BYTES}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
