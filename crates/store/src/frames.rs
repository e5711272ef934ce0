//! Frames: the memory that the stores of one engine share.
//!
//! One range of address space is reserved and lent out in frames, each a little longer than a huge page. A store cuts
//! its frames into a power of two of segments. The number of a segment is its place in the whole range, in units of the
//! segments of its store, so that an address needs no table:
//!
//! ```text
//! frames                       0           1           2           3
//!                        +-----------+-----------+-----------+-----------+
//! store A, 1 MiB         |  1  |  2  |           |  5  |  6  |           |     segments by number
//! store B, 512 KiB       |           | 5  6  7  8|           |           |     frame 3 is free
//!                        +-----------+-----------+-----------+-----------+
//! ```
//! A frame is free or lent to one store. A store takes frames one by one, in any order, and gives a frame back when all
//! its segments are absent. The pages of a frame go back to the system before anyone else can take the frame.
//!
//! The bytes are anonymous memory, or those of a file (see `frame_file`).
//!
//! Thread safety: the mutex orders the last access of one owner before the first access of the next. It is a leaf:
//! nothing is locked while it is held.

use crate::error::Error;
#[cfg(not(loom))]
use crate::frame_file::FrameFile;
#[cfg(not(loom))]
use crate::mapping::{Mapping, Pages};
#[cfg(not(loom))]
use crate::segment::{SEGMENT_SIZE_MAX, bytes_for};
use crate::sync::{Mutex, lock};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
#[cfg(not(loom))]
use std::collections::HashSet;
#[cfg(not(loom))]
use std::fs::File;
use std::sync::Arc;

/// Bytes of a frame: two of the largest segments.
#[cfg(not(loom))]
pub const FRAME_BYTES: usize = 2 * bytes_for(SEGMENT_SIZE_MAX) as usize;
#[cfg(not(loom))]
const _: () = assert!(FRAME_BYTES == 2080 << 10, "a frame is whole pages, and drawn in the memory file");
/// Two of the segments of a model.
#[cfg(loom)]
pub const FRAME_BYTES: usize = 128;

/// The number of a frame: its place in the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

/// The number of a store among those that share frames, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u32);

/// Address space in frames.
pub struct Frames {
    bytes: Bytes,
    count: u32,
    loans: Mutex<Loans>,
    /// The file that they lie in, if they are not anonymous memory. It is unlocked after they are unmapped: fields are
    /// dropped in this order.
    #[cfg(not(loom))]
    file: Option<FrameFile>,
}

/// Owners of frames.
#[derive(Default)]
struct Loans {
    /// The owner of each frame that was ever lent; 0 if the frame is free.
    owners: Vec<u32>,
    /// The free ones among those, the lowest on top. Frames after them were never touched.
    free: BinaryHeap<Reverse<u32>>,
    enrolled: u32,
}

impl Frames {
    /// Reserves address space for `bytes`, rounded up to whole frames. No page is touched.
    pub fn reserve(bytes: usize) -> Result<Arc<Self>, Error> {
        let count = bytes.div_ceil(FRAME_BYTES);
        let bytes = Bytes::reserve(count * FRAME_BYTES)?;
        #[cfg(not(loom))]
        bytes.advise(0, count * FRAME_BYTES, Pages::Huge);
        let count = u32::try_from(count).expect("frames are numbered by 32 bits");
        Ok(Arc::new(Self {
            bytes,
            count,
            loans: Mutex::default(),
            #[cfg(not(loom))]
            file: None,
        }))
    }

    /// Reserves address space that is the content of a file from an offset on.
    #[cfg(not(loom))]
    pub fn reserve_in_file(bytes: usize, file: File, offset: u64) -> Result<Arc<Self>, Error> {
        let count = bytes.div_ceil(FRAME_BYTES);
        let bytes = Bytes::reserve_in_file(count * FRAME_BYTES, &file, offset)?;
        bytes.advise(0, count * FRAME_BYTES, Pages::Huge);
        let count = u32::try_from(count).expect("frames are numbered by 32 bits");
        let file = Some(FrameFile::new(file, offset));
        Ok(Arc::new(Self { bytes, count, loans: Mutex::default(), file }))
    }

    /// The file that they lie in.
    #[cfg(not(loom))]
    pub fn file(&self) -> Option<&FrameFile> {
        self.file.as_ref()
    }

    /// Whether the bytes of segments need memory of a file before they are touched.
    pub fn is_in_file(&self) -> bool {
        #[cfg(not(loom))]
        return self.file.is_some();
        #[cfg(loom)]
        false
    }

    /// Gives bytes of a lent frame memory. False if the file system has none. Anonymous memory comes by touching it.
    pub fn allocate(&self, from: usize, bytes: usize) -> bool {
        #[cfg(not(loom))]
        return self.file.as_ref().is_none_or(|file| file.allocate(from, bytes).is_ok());
        #[cfg(loom)]
        {
            let _ = (from, bytes);
            true
        }
    }

    /// Takes the memory of bytes of a lent frame from the system before they are touched. A file gives it by
    /// `allocate`.
    #[cfg(not(loom))]
    pub fn populate(&self, from: usize, bytes: usize) {
        self.bytes.populate(from, from + bytes);
    }

    /// A number for a store that will take frames.
    pub fn enrol(&self) -> Owner {
        let mut loans = lock(&self.loans);
        loans.enrolled += 1;
        Owner(loans.enrolled)
    }

    /// All frames, lent or not.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The bytes of the frames. In loom builds each byte is a cell, which reports accesses that are not ordered.
    #[inline(always)]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Lends the lowest free frame whose number is less than `end`.
    pub fn take(&self, owner: Owner, end: u32) -> Option<FrameId> {
        let frame = self.take_unadvised(owner, end)?;
        #[cfg(not(loom))]
        self.advise(frame, Pages::Huge);
        Some(frame)
    }

    fn take_unadvised(&self, owner: Owner, end: u32) -> Option<FrameId> {
        let mut loans = lock(&self.loans);
        let Loans { owners, free, .. } = &mut *loans;
        let end = end.min(self.count);
        match free.peek() {
            // Every frame after those that were ever lent has a higher number.
            Some(Reverse(lowest)) => {
                let lowest = *lowest;
                if lowest >= end {
                    return None;
                }
                free.pop();
                owners[lowest as usize] = owner.0;
                Some(FrameId(lowest))
            }
            None => {
                let next = u32::try_from(owners.len()).expect("frames are numbered by 32 bits");
                (next < end).then(|| {
                    owners.push(owner.0);
                    FrameId(next)
                })
            }
        }
    }

    /// Lends these frames, with any content. False if one of them is lent already, or does not exist.
    #[cfg(not(loom))]
    pub fn adopt(&self, owner: Owner, frames: &[u32]) -> bool {
        let mut loans = lock(&self.loans);
        let Loans { owners, free, .. } = &mut *loans;
        let is_free = |frame: &u32| *frame < self.count && owners.get(*frame as usize).is_none_or(|owner| *owner == 0);
        let distinct: HashSet<_> = frames.iter().collect();
        if distinct.len() != frames.len() || !frames.iter().all(is_free) {
            return false;
        }
        let end = frames.iter().max().map_or(0, |last| *last as usize + 1);
        owners.resize(owners.len().max(end), 0);
        frames.iter().for_each(|frame| owners[*frame as usize] = owner.0);
        free.clear();
        free.extend((0..).zip(&*owners).filter(|(_, owner)| **owner == 0).map(|(frame, _)| Reverse(frame)));
        true
    }

    /// The number of the first frame after all that are lent.
    #[cfg(not(loom))]
    pub fn lent_end(&self) -> u32 {
        let loans = lock(&self.loans);
        loans.owners.iter().rposition(|owner| *owner != 0).map_or(0, |last| last as u32 + 1)
    }

    /// Returns the memory of all frames that no store has to the file system.
    #[cfg(not(loom))]
    pub fn release_unlent(&self) {
        let Some(file) = &self.file else { return };
        let loans = lock(&self.loans);
        let unlent = (0..).zip(&loans.owners).filter(|(_, owner)| **owner == 0);
        unlent.for_each(|(frame, _): (usize, _)| file.punch(frame * FRAME_BYTES, FRAME_BYTES));
    }

    /// Returns a frame of the owner: the system gets its pages, and the frame is free.
    ///
    /// # Safety
    /// No thread may hold a reference into the frame, read it or write it.
    pub unsafe fn give_back(&self, owner: Owner, frame: FrameId) {
        // A huge page over the border to a frame that is lent would make a part of this one resident again.
        #[cfg(not(loom))]
        self.advise(frame, Pages::Small);
        // SAFETY: the caller's. Until the frame is free below no other store can take it.
        unsafe { self.release(frame, 0, FRAME_BYTES) };
        let mut loans = lock(&self.loans);
        let lent = &mut loans.owners[frame.0 as usize];
        assert_eq!(*lent, owner.0, "{frame:?} belongs to another store");
        *lent = 0;
        loans.free.push(Reverse(frame.0));
    }

    /// Returns the pages of a part of a frame to the system. They read as zero afterwards.
    ///
    /// # Safety
    /// The frame is lent to the caller's store, and no thread may hold a reference into the part, read it or write it.
    #[cfg(not(loom))]
    pub unsafe fn release(&self, frame: FrameId, from: usize, to: usize) {
        let start = frame.0 as usize * FRAME_BYTES;
        match &self.file {
            Some(file) => file.punch(start + from, to - from),
            // SAFETY: the caller's.
            None => unsafe { self.bytes.release(start + from, start + to) },
        }
    }

    /// # Safety
    /// As the real one.
    #[cfg(loom)]
    pub unsafe fn release(&self, _frame: FrameId, _from: usize, _to: usize) {}

    /// Says with which pages the system shall back a frame from here on.
    #[cfg(not(loom))]
    pub fn advise(&self, frame: FrameId, pages: Pages) {
        let start = frame.0 as usize * FRAME_BYTES;
        self.bytes.advise(start, start + FRAME_BYTES, pages);
    }

    /// The frames of an owner, for `verify`. Asserts that each frame is free or lent, and that no free one is listed
    /// twice.
    pub fn lent_to(&self, owner: Owner) -> Vec<FrameId> {
        let loans = lock(&self.loans);
        let mut free: Vec<_> = loans.free.iter().map(|Reverse(frame)| *frame).collect();
        free.sort_unstable();
        let unowned: Vec<_> = (0..).zip(&loans.owners).filter(|(_, owner)| **owner == 0).map(|(at, _)| at).collect();
        assert_eq!(free, unowned, "the free frames are those without an owner");
        (0..).zip(&loans.owners).filter(|(_, lent)| **lent == owner.0).map(|(at, _)| FrameId(at)).collect()
    }

    /// Frames that are lent to any store.
    pub fn lent_count(&self) -> u32 {
        let loans = lock(&self.loans);
        (loans.owners.len() - loans.free.len()) as u32
    }
}

#[cfg(not(loom))]
pub type Bytes = Mapping;
#[cfg(loom)]
pub use modelled::Bytes;

#[cfg(loom)]
mod modelled {
    use crate::error::Error;
    use crate::sync::AtomicU64;
    use loom::cell::UnsafeCell;

    /// Each byte in a cell of its own; the words of numeric items beside them.
    pub struct Bytes {
        pub cells: Vec<UnsafeCell<u8>>,
        pub words: Vec<AtomicU64>,
    }

    // SAFETY: loom checks every access to a cell.
    unsafe impl Send for Bytes {}
    // SAFETY: as above.
    unsafe impl Sync for Bytes {}

    impl Bytes {
        pub fn reserve(bytes: usize) -> Result<Self, Error> {
            Ok(Self {
                cells: (0..bytes).map(|_| UnsafeCell::new(0)).collect(),
                words: (0..bytes / 8).map(|_| AtomicU64::new(0)).collect(),
            })
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_one_owner_at_a_time() {
        let frames = Frames::reserve(3 * FRAME_BYTES - 5).unwrap();
        let (one, other) = (frames.enrol(), frames.enrol());
        let taken: Vec<_> = std::iter::from_fn(|| frames.take(one, u32::MAX)).collect();
        assert_eq!(taken, [FrameId(0), FrameId(1), FrameId(2)]);
        assert_eq!(frames.take(other, u32::MAX), None);
        for frame in [1, 0] {
            // SAFETY: no thread accesses the frame.
            unsafe { frames.give_back(one, FrameId(frame)) };
        }
        assert_eq!(frames.take(other, 0), None, "no frame has a lower number");
        assert_eq!(frames.take(other, 1), Some(FrameId(0)));
        assert_eq!(frames.take(other, 1), None);
        assert_eq!((frames.lent_to(one), frames.lent_to(other)), (vec![FrameId(2)], vec![FrameId(0)]));
        assert_eq!(frames.lent_count(), 2);
    }

    #[test]
    #[should_panic(expected = "belongs to another store")]
    fn returning_another_stores_frame_panics() {
        let frames = Frames::reserve(FRAME_BYTES).unwrap();
        let (one, other) = (frames.enrol(), frames.enrol());
        let frame = frames.take(one, u32::MAX).unwrap();
        // SAFETY: no thread accesses the frame.
        unsafe { frames.give_back(other, frame) };
    }

    /// The flags of the mapping that holds an address.
    fn mapping_flags(address: usize) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut is_it = false;
        for line in maps.lines() {
            if let Some((start, end)) = line.split_once(' ').and_then(|(range, _)| range.split_once('-')) {
                let parse = |text| usize::from_str_radix(text, 16).ok();
                let (Some(start), Some(end)) = (parse(start), parse(end)) else { continue };
                is_it = (start..end).contains(&address);
            }
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_it) {
                return Some(flags.to_owned());
            }
        }
        None
    }

    #[test]
    fn frames_ask_for_huge_pages_unless_told_otherwise() {
        let frames = Frames::reserve(4 * FRAME_BYTES).unwrap();
        let frame = frames.take(frames.enrol(), u32::MAX).unwrap();
        let flags_of = |frame: usize| mapping_flags(frames.bytes().base() as usize + frame * FRAME_BYTES);
        let has = |frame, flag: &str| flags_of(frame).is_some_and(|flags| flags.split(' ').any(|name| name == flag));
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() || flags_of(0).is_none() {
            return;
        }
        assert!(has(0, "hg") && has(3, "hg"));
        frames.advise(frame, Pages::Small);
        assert!(has(0, "nh") && has(1, "hg"));
        frames.advise(frame, Pages::Huge);
        assert!(has(0, "hg"));
    }

    #[test]
    fn a_returned_frame_reads_as_zero() {
        let frames = Frames::reserve(2 * FRAME_BYTES).unwrap();
        let owner = frames.enrol();
        let frame = frames.take(owner, u32::MAX).unwrap();
        let first = frames.bytes().base();
        // SAFETY: the frame is this test's alone.
        unsafe {
            *first = 7;
            frames.give_back(owner, frame);
            assert_eq!(*first, 0);
        }
    }
}
