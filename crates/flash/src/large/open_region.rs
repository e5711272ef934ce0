//! Open and sealed regions, their buffers, and the lists of free regions and buffers.

use super::address::UNIT;
use super::format::{
    ALIGNED_VALUE_BYTES, FOOTER_ENTRY_BYTES, OBJECT_HEADER_BYTES, ObjectHeader, front_bytes, object_bytes,
    value_bytes_in,
};
use super::stats::RegionTally;
use crate::FlashHash;
use crate::device::{BLOCK, Buffer};
use std::collections::VecDeque;
use std::ops::Range;

/// Minimum part of a value: one part in this many of a region. If less space is left, the region is sealed.
pub(super) const SHARE_OF_PART: usize = 64;
/// A gap before an object that saves reading a block is left if it is at most this share of the object,
pub const SHARE_OF_GAP: usize = 16;
/// or if the object fills its blocks almost exactly, and such gaps take at most one part in this many of the region.
/// Otherwise all block-sized objects after one of another length would span one more block.
const SHARE_OF_GAPS: usize = 64;

/// The free regions and buffers, and the sealed regions that wait for the device.
pub struct FreeLists {
    /// Free regions, last one first: so the front of the area stays empty longest and can be given away.
    pub free: VecDeque<u32>,
    pub free_slots: Vec<u16>,
    /// Free buffers that are reserved for multi-region objects.
    pub free_long_slots: Vec<u16>,
    pub next_sequence: u64,
    /// Sealed regions for which the device's queue had no space.
    pub waiting: VecDeque<SealedRegion>,
}

impl FreeLists {
    pub fn new(regions: Range<u32>, buffers: u16, long_buffers: u16) -> Self {
        Self {
            free: regions.rev().collect(),
            free_slots: (0..buffers).collect(),
            free_long_slots: (buffers..buffers + long_buffers).collect(),
            next_sequence: 1,
            waiting: VecDeque::new(),
        }
    }

    /// Adds a region to the free ones.
    pub fn set_free(&mut self, region: u32) {
        let address = self.free.partition_point(|&free| free > region);
        self.free.insert(address, region);
    }
}

/// A buffer in use.
pub struct StagedRegion {
    pub region: u32,
    pub sequence: u64,
    pub buffer: Buffer,
}

/// A region that objects are added to.
pub struct OpenRegion {
    pub region: u32,
    pub sequence: u64,
    pub slot: u16,
    /// Bytes from the start of the region to the end of the last object.
    pub used: usize,
    /// Bytes of gaps that align the following objects to blocks.
    pub gaps: usize,
    pub objects: usize,
    pub opened: u32,
    pub latest_expiry: u32,
    pub lowest_order: u64,
    pub tally: RegionTally,
}

/// A complete region that is to be written.
#[derive(Clone, Copy)]
pub struct SealedRegion {
    pub region: u32,
    pub slot: u16,
    pub bytes: usize,
    pub tally: RegionTally,
}

/// An object, or a part of one, to append.
pub struct ObjectDraft<'a> {
    pub hash: FlashHash,
    /// The header; `sequence` and `position` are not set yet, nor the bytes of a value that may be cut.
    pub header: ObjectHeader,
    pub key: &'a [u8],
    pub value: &'a [&'a [u8]],
    /// Offset in the value at which this part begins.
    pub from: usize,
    /// The value may be cut at the end of the region.
    pub may_cut: bool,
    /// The object is a copy from a reclaimed region.
    pub is_copy: bool,
}

/// The position of an appended object.
#[derive(Clone, Copy, Debug)]
pub struct Appended {
    pub region: u32,
    pub sequence: u64,
    pub position: u32,
    pub bytes: usize,
    pub value_bytes: usize,
}

/// Which resource is missing for an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    Buffers,
    Regions,
}

impl OpenRegion {
    /// The offset for an object of `bytes`: at the next unit, or at the next block if that saves the read of a block
    /// and the gap is small.
    pub fn address(&self, bytes: usize, region_bytes: usize) -> usize {
        let at = self.used.next_multiple_of(UNIT);
        let gap = at.next_multiple_of(BLOCK) - at;
        let saves = (at % BLOCK + bytes).div_ceil(BLOCK) > bytes.div_ceil(BLOCK);
        let is_little = |gap: usize| gap <= bytes / SHARE_OF_GAP;
        let fills_blocks = is_little(bytes.next_multiple_of(BLOCK) - bytes);
        let pays = is_little(gap) || fills_blocks && self.gaps + gap <= region_bytes / SHARE_OF_GAPS;
        if saves && pays { at + gap } else { at }
    }

    /// Offset of the footer, if it gets one more entry.
    pub fn end(&self, region_bytes: usize) -> usize {
        region_bytes - (self.objects + 1) * FOOTER_ENTRY_BYTES
    }

    /// The offset for a draft, and the bytes of its value that fit; `None` if there is no space.
    pub fn space(&self, draft: &ObjectDraft<'_>, region_bytes: usize) -> Option<(usize, usize)> {
        let rest = draft.header.value_bytes as usize;
        let whole = object_bytes(draft.key.len(), rest);
        let end = self.end(region_bytes);
        let at = if rest >= ALIGNED_VALUE_BYTES {
            let front = front_bytes(draft.key.len(), rest);
            (self.used.next_multiple_of(UNIT) + front).next_multiple_of(BLOCK) - front
        } else {
            self.address(whole, region_bytes)
        };
        if at + whole <= end {
            return Some((at, rest));
        }
        let at = self.used.next_multiple_of(UNIT);
        let space = end.checked_sub(at).filter(|&space| space >= OBJECT_HEADER_BYTES + draft.key.len())?;
        let space = value_bytes_in(draft.key.len(), space);
        let is_enough = space >= rest || draft.may_cut && space >= region_bytes / SHARE_OF_PART;
        is_enough.then_some((at, rest.min(space)))
    }
}
