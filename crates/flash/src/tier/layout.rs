//! How the capacity and the memory are divided.
//!
//! ```text
//! 0            4 KiB             boundary                    end
//! | superblock | small objects   | large objects ...         | checkpoint | table of pools |
//! ```
//! The boundary is a multiple of a region, and regions are counted from 0: so no region spans two paths, because
//! stripes are as long as the longest region.
//!
//! Unless a share for small objects is given, the capacity is not divided at first: all objects are large ones, written
//! from the end. Once enough objects have arrived to estimate the share of small bytes, the boundary is set in front of
//! everything that was written. If few objects are small, the capacity stays undivided and the estimate is repeated
//! later. Large objects are never moved for the boundary, so a log that is full of them is not divided. If the write of
//! a boundary fails, the capacity is undivided again.
//!
//! The memory first pays for the fixed parts (tables, buffers, admission). The rest is divided between both indexes, in
//! proportion to their need for objects of common sizes. An index releases memory that it does not use
//! ([`super::Tier::release_memory`]). Near its bound it requests more ([`super::Tier::wanted_memory`]); if it gets
//! none, its store drops objects before flash is full.

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
/// Largest size that an error message suggests.
const MAX_SIZE: u64 = 1 << 50;
const MIN_REGION_BYTES: usize = 16 << 10;
/// Where memory is short, the number of expiry groups is reduced before regions get smaller than this.
const REGION_BYTES_USUAL: usize = 256 << 10;
const MIN_GROUPS: usize = 1;
/// Buffers beside those of the groups.
const BUFFERS_BESIDE: usize = 2;
const MAX_REGION_BYTES: usize = 16 << 20;
/// Regions get smaller until there are at least this number of them: with fewer, one reclaim would evict too much.
const REGIONS_WANTED: u64 = 64;
/// As `REGIONS_WANTED`, where the boundary is set later. The minimum of large objects is then at most a sixteenth of
/// the capacity.
const REGIONS_WANTED_UNDIVIDED: u64 = 192;
const MIN_SHARE: f64 = 0.01;
const MAX_SHARE: f64 = 0.99;
/// Share of small objects for which the memory must be enough, if the options name none.
const SHARE_EXPECTED: f64 = 0.5;
/// Region buffers take at most one of these parts of the memory (a half, a quarter, an eighth): the first one that
/// leaves enough for the indexes. Regions get smaller until their buffers fit. Longer regions write fewer bytes beside
/// objects.
const REGION_BUFFERS: [u64; 3] = [2, 4, 8];
/// Region buffers also take at most this share of the memory of flash, or [`MIN_REGION_BUFFERS`] if that is more. Where
/// flash has an eighth of all memory, this is a hundredth of all. Memory that buffers do not take holds items.
const REGION_BUFFERS_SHARE: f64 = 0.08;
const MIN_REGION_BUFFERS: u64 = 8 << 20;
/// Segment buffers take at most one part in this many of the memory.
const SEGMENT_BUFFERS: u64 = 8;
/// An object of up to this length finds enough buffers, if memory and capacity allow them: this includes every value of
/// the default limit.
const OBJECT_BYTES: usize = 1 << 20;
const MAX_BUFFERS: u64 = 64;
/// After a split the indexes have spare memory: a quarter of their use, and one part in `SPLIT_SPARE_SHARE` of their
/// memory.
const SPLIT_SPARE_SHARE: usize = 16;
/// The boundary is moved back in steps of one part in `BOUNDARY_STEP` until the memory is enough.
const BOUNDARY_STEP: u64 = 64;
/// Minimum number of regions for each buffer.
const REGIONS_PER_BUFFER: u64 = 4;
/// The checkpoint takes one part in `CHECKPOINT_SHARE` of the device, and at least `MIN_CHECKPOINT` bytes: more than
/// the indexes need with objects of 300 B and of 2 KiB. If an index does not fit, the next start reads its store
/// instead.
const CHECKPOINT_SHARE: u64 = 128;
const MIN_CHECKPOINT: u64 = 64 << 10;
/// Minimum size of an area of small objects that is filled with zeros ahead, unless there is a write budget. A smaller
/// area has few extents.
const ZEROS_FROM: u64 = 1 << 30;
/// Bytes of the index for each byte of large objects: an entry of 12 bytes for an object of 16 KiB.
const LARGE_INDEX: f64 = 12.0 / 16_384.0;
/// Bytes of the index for each byte of small objects: 1.4 bytes for an object of 300 bytes.
const SMALL_INDEX: f64 = 1.4 / 300.0;

/// The areas of both stores, and the options with which they are opened.
#[derive(Clone, Debug)]
pub(super) struct TierLayout {
    /// End of the area of large objects.
    pub capacity: u64,
    /// From the end of the large objects to the end of the device: the checkpoint of both stores and the table of
    /// pools; empty without a warm restart.
    pub tail: Range<u64>,
    /// Start of the area of large objects.
    pub boundary: u64,
    /// None while the capacity is not divided.
    pub small_options: Option<small::Options>,
    pub large_options: large::Options,
}

/// Bytes of RAM that a layout needs.
struct MemoryNeed {
    fixed: f64,
    /// The part of `fixed` that belongs to the small objects' index.
    small_fixed: usize,
    small: f64,
    large: f64,
}

impl MemoryNeed {
    fn min(&self) -> f64 {
        self.fixed + self.small + self.large
    }

    /// Bytes needed with half of the memory for the indexes.
    fn half(&self) -> f64 {
        self.fixed + (self.small + self.large) / 2.0
    }

    /// Whether the options give half of the index memory now, and all of it with the growth that they allow.
    fn is_enough_later(&self, options: &TierOptions) -> bool {
        let (now, later) = (options.memory_bytes as f64, options.memory_growth_bytes as f64);
        self.half() <= now && self.min() <= now + later
    }

    /// Whether the options give the fixed part now, and half of the index memory with the growth that they allow.
    fn has_half_later(&self, options: &TierOptions) -> bool {
        let (now, later) = (options.memory_bytes as f64, options.memory_growth_bytes as f64);
        self.fixed <= now && self.half() <= now + later
    }
}

impl TierLayout {
    /// The layout of a device of whole blocks; divided if the options name a share.
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

    /// The layout of an earlier run, possibly with another memory size, and with the boundary that was set by the
    /// objects that arrived. `None` if the options contradict it, or the memory is not enough.
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
        // If the memory is less than a new layout would need, the indexes get less.
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
        // More memory would allow more groups, for which there may be too few regions.
        let regions = (layout.capacity.saturating_sub(layout.boundary) / region_bytes as u64) as usize;
        let beside_groups = layout.large_options.min_regions() - layout.large_options.expiry_groups;
        let expiry_groups = layout.large_options.expiry_groups.min(regions.saturating_sub(beside_groups));
        layout.large_options.expiry_groups = expiry_groups;
        let is_same = expiry_groups > 0 && Partition::of(before.identity, &layout) == *before;
        Ok(is_same.then_some(layout))
    }

    /// Divided by the share of the options, or by [`SHARE_EXPECTED`]; region buffers take one part in `part` of the
    /// memory.
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

    /// Divided at the highest boundary up to this one for which the memory is enough, or will be. `None` if there is
    /// none.
    pub fn split_up_to(&self, boundary: u64, options: &TierOptions) -> Option<Self> {
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

    /// Divided at this boundary; `None` if the memory is not enough and will not be.
    pub fn split_at(&self, boundary: u64, options: &TierOptions) -> Option<Self> {
        let mut layout = self.at(boundary, self.segment_bytes(boundary, options).ok()?, options).ok()?;
        let is_enough = layout.split_memory(options).ok()? || layout.memory(options).ok()?.is_enough_later(options);
        is_enough.then_some(layout)
    }

    /// Gives the index of large objects at least `bytes`, taken from the index of small objects, which keeps a spare
    /// and gets more as it grows: objects beyond the bound of the other index would be lost at once.
    pub fn leave_to_large(&mut self, bytes: usize) {
        let missing = bytes.saturating_sub(self.large_options.index_bytes);
        let (fixed, spare) = (self.small_fixed_bytes(), self.index_bytes() / SPLIT_SPARE_SHARE);
        if let Some(small) = &mut self.small_options {
            let taken = missing.min(small.index_bytes.saturating_sub(fixed + fixed / 4 + spare));
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

    /// Minimum bytes of both indexes for a split, if the index of large objects uses `large_used`. They get more as
    /// they grow.
    pub fn min_split_index_bytes(&self, large_used: usize) -> usize {
        let used = large_used.saturating_add(self.small_fixed_bytes());
        used.saturating_add(used / 4).saturating_add(self.index_bytes() / SPLIT_SPARE_SHARE).min(self.index_bytes())
    }

    /// Takes `bytes` from both indexes together. The memory that is left beyond their use is divided equally.
    pub fn release_indexes(&mut self, bytes: usize, large_used: usize) {
        let (all, fixed) = (self.index_bytes().saturating_sub(bytes), self.small_fixed_bytes());
        if let Some(small) = &mut self.small_options {
            let spare = all.saturating_sub(large_used.saturating_add(fixed));
            small.index_bytes = small.index_bytes.min(fixed.saturating_add(spare / 2));
            self.large_options.index_bytes = all.saturating_sub(small.index_bytes);
        }
    }

    /// The end of the area of large objects, and their initial bytes.
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

    /// An undivided layout with regions of `region_bytes`.
    fn with_regions(device_bytes: u64, region_bytes: usize, part: u64, options: &TierOptions) -> Self {
        let (capacity, large_bytes) = Self::capacities(device_bytes, options);
        let max_buffers = max_buffers(options.memory_bytes, part);
        let defaults = large::Options::default();
        let affordable = (max_buffers / region_bytes as u64).saturating_sub(BUFFERS_BESIDE as u64);
        let expiry_groups = affordable.clamp(MIN_GROUPS as u64, defaults.expiry_groups as u64) as usize;
        // Each group may hold a buffer, and the last part of an object starts another one.
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
                "a share of {} % for small objects leaves no space for large ones: lower the share",
                (share * 1000.0).round() / 10.0
            )));
        }
        self.at(boundary, self.segment_bytes(boundary, options)?, options)
    }

    fn boundary_of(&self, share: f64) -> u64 {
        let region_bytes = self.large_options.region_bytes as u64;
        ((self.tail.end as f64 * share) as u64).next_multiple_of(region_bytes).max(region_bytes)
    }

    /// The longest segment whose buffers fit their part of the memory.
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

    /// The memory that this layout needs at least.
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

/// Maximum bytes for the buffers of large objects, if they may take one part in `part` of the memory.
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

/// Adds the smallest sufficient size to the error, if there is one.
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

/// Suggests more memory, or the largest capacity for which the memory is enough.
fn memory_error(size: &DeviceSize, options: &TierOptions, min: u64, fits: impl Fn(u64, u64) -> bool) -> Error {
    let given = options.memory_bytes;
    // More memory makes the buffers larger, but they take only a part of it.
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

/// A number that passes `does`, within a mebibyte of one that fails, between `good` and `bad`.
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
