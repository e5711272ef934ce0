//! Queries a filesystem for the space of a file that is reserved but was never written.
//!
//! ```text
//! fiemap, as linux/fiemap.h has it
//! | start 8 | length 8 | flags 4 | mapped 4 | count 4 | - 4 | extents, 56 each ... |
//! an extent
//! | logical 8 | physical 8 | length 8 | - 16 | flags 4 | - 12 |
//! ```
//! Holes have no extent: space that is not reserved is not reported. A query covers a range and returns a limited
//! number of extents, so its cost does not depend on the file's length. `SEEK_HOLE` and `SEEK_DATA` walk up to the next
//! hole or data, possibly through the whole file.

#![allow(unsafe_code)]

use rustix::ioctl::{Opcode, Updater, opcode};
use std::fs::File;
use std::mem::size_of;
use std::ops::Range;

/// `FS_IOC_FIEMAP`; its number counts the bytes before the extents.
const FIEMAP: Opcode = opcode::read_write::<FiemapHeader>(b'f', 11);
/// `FIEMAP_EXTENT_UNWRITTEN`.
const UNWRITTEN: u32 = 0x800;
/// Maximum number of extents in an answer.
const EXTENTS: usize = 128;

/// The first extents in a queried range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwrittenRanges {
    /// Ranges that are reserved but were never written, in order.
    pub bytes: Vec<Range<u64>>,
    /// End of the range that the answer covers.
    pub end: u64,
}

#[repr(C)]
struct FiemapHeader {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    unused: [u64; 2],
    flags: u32,
    unused_too: [u32; 3],
}

#[repr(C)]
struct FiemapRequest {
    head: FiemapHeader,
    extents: [FiemapExtent; EXTENTS],
}

const _: () = assert!(size_of::<FiemapHeader>() == 32 && size_of::<FiemapExtent>() == 56);
const _: () = assert!(size_of::<FiemapRequest>() == 32 + EXTENTS * 56);

/// The unwritten ranges in some bytes of a file. `None` if the filesystem does not support the query.
pub(super) fn reserved(file: &File, bytes: Range<u64>) -> Option<UnwrittenRanges> {
    let head = FiemapHeader {
        start: bytes.start,
        length: bytes.end - bytes.start,
        flags: 0,
        mapped: 0,
        count: EXTENTS as u32,
        unused: 0,
    };
    let nothing = FiemapExtent { logical: 0, physical: 0, length: 0, unused: [0; 2], flags: 0, unused_too: [0; 3] };
    let mut map = FiemapRequest { head, extents: [nothing; EXTENTS] };
    // SAFETY: this ioctl takes a pointer to such a map, with space for as many extents as it says.
    let question = unsafe { Updater::<FIEMAP, FiemapRequest>::new(&mut map) };
    // SAFETY: the kernel writes into that map, and changes nothing else.
    unsafe { rustix::ioctl::ioctl(file, question) }.ok()?;
    let extents = map.extents.get(..map.head.mapped as usize)?;
    Some(of_extents(extents.iter().map(|extent| (extent.logical, extent.length, extent.flags)), bytes))
}

/// The unwritten ranges from the starts, lengths and flags of extents.
fn of_extents(extents: impl ExactSizeIterator<Item = (u64, u64, u32)>, asked: Range<u64>) -> UnwrittenRanges {
    let is_full = extents.len() == EXTENTS;
    let mut reserved = UnwrittenRanges { bytes: Vec::new(), end: asked.start };
    for (start, length, flags) in extents {
        reserved.end = start.saturating_add(length).clamp(reserved.end, asked.end);
        let start = start.clamp(asked.start, reserved.end);
        if flags & UNWRITTEN != 0 && start < reserved.end {
            reserved.bytes.push(start..reserved.end);
        }
    }
    if !is_full {
        reserved.end = asked.end;
    }
    reserved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_stays_within_extents_and_query() {
        let few = [(0, 150, UNWRITTEN), (150, 50, 0), (200, 100, UNWRITTEN | 1)].into_iter();
        let found = of_extents(few, 100..250);
        assert_eq!(found, UnwrittenRanges { bytes: vec![100..150, 200..250], end: 250 });
        assert_eq!(of_extents([].into_iter(), 100..250), UnwrittenRanges { bytes: vec![], end: 250 });
        let written = (0..EXTENTS as u64).map(|i| (i * 10, 10, 0)).collect::<Vec<_>>();
        let found = of_extents(written.into_iter(), 0..1 << 40);
        assert_eq!(found, UnwrittenRanges { bytes: vec![], end: 10 * EXTENTS as u64 });
    }

    #[test]
    fn the_unwritten_flag_counts_beside_any_others() {
        // As linux/fiemap.h has them: last, unknown, delayed, merged, shared.
        let others = [0, 0x1, 0x2, 0x4, 0x1000, 0x2000, 0x3007];
        for flags in others {
            let found = of_extents([(0, 10, flags | 0x800), (10, 10, flags)].into_iter(), 0..20);
            assert_eq!((found.bytes.len(), found.bytes[0].clone()), (1, 0..10), "{flags:x}");
        }
    }
}
