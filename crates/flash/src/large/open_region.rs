//! Open and sealed regions, their buffers, and the lists of what is free.

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

/// A part is at least a 64th of a region; before less than that, the region is written.
pub(super) const SHARE_OF_PART: usize = 64;
/// A gap before an object that saves reading a block is left if it is at most this share of the object,
pub const SHARE_OF_GAP: usize = 16;
/// or else if the object ends so near to the end of a block that one like it comes to lie well behind it, and such gaps
/// take at most this share of the region: objects that fill their blocks would otherwise, behind one that does not, all
/// lie across one more.
const SHARE_OF_GAPS: usize = 64;

/// What is free, and what has yet to be handed to the device.
pub struct FreeLists {
    /// From the last one on: the beginning of the area can be given away for as long as it is empty.
    pub free: VecDeque<u32>,
    pub free_slots: Vec<u16>,
    /// The same of those that only objects of several regions get.
    pub free_long_slots: Vec<u16>,
    pub next_sequence: u64,
    /// Complete regions that the device had no room for.
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

    /// A region can begin another life.
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
    /// Bytes from the begin, up to the last object's end.
    pub used: usize,
    /// Bytes that were left so that what comes behind them fills its blocks.
    pub gaps: usize,
    pub objects: usize,
    pub opened: u32,
    pub latest_expiry: u32,
    pub lowest_order: u64,
    pub tally: RegionTally,
}

/// A region that is to be written.
#[derive(Clone, Copy)]
pub struct SealedRegion {
    pub region: u32,
    pub slot: u16,
    pub bytes: usize,
    pub tally: RegionTally,
}

/// An object, or a part of one, that is to be added.
pub struct ObjectDraft<'a> {
    pub hash: FlashHash,
    /// All but the sequence and the position, and the bytes of the value if it may be cut.
    pub header: ObjectHeader,
    pub key: &'a [u8],
    pub value: &'a [&'a [u8]],
    /// Where in the value it begins.
    pub from: usize,
    /// It may be cut where the region ends.
    pub may_cut: bool,
    /// It was in the log before.
    pub is_copy: bool,
}

/// Where something was added.
#[derive(Clone, Copy, Debug)]
pub struct Appended {
    pub region: u32,
    pub sequence: u64,
    pub position: u32,
    pub bytes: usize,
    pub value_bytes: usize,
}

/// Why nothing can be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    Buffers,
    Regions,
}

impl OpenRegion {
    /// Where an object of so many bytes goes: to the next unit, or to the next block if that saves reading one and
    /// costs little.
    pub fn address(&self, bytes: usize, region_bytes: usize) -> usize {
        let at = self.used.next_multiple_of(UNIT);
        let gap = at.next_multiple_of(BLOCK) - at;
        let saves = (at % BLOCK + bytes).div_ceil(BLOCK) > bytes.div_ceil(BLOCK);
        let is_little = |gap: usize| gap <= bytes / SHARE_OF_GAP;
        let fills_blocks = is_little(bytes.next_multiple_of(BLOCK) - bytes);
        let pays = is_little(gap) || fills_blocks && self.gaps + gap <= region_bytes / SHARE_OF_GAPS;
        if saves && pays { at + gap } else { at }
    }

    /// Bytes up to the footer, if it has one entry more.
    pub fn end(&self, region_bytes: usize) -> usize {
        region_bytes - (self.objects + 1) * FOOTER_ENTRY_BYTES
    }

    /// Where a draft goes, and how much of its value; `None` if there is no room.
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
