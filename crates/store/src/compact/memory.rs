//! The frames and the budget of a compact table.
//!
//! A budget pays for a whole number of sets and the fixed state of the table, and for nothing else. All frames but the
//! last are used as a whole.

use super::layout::Layout;
use crate::engine_memory::EngineMemory;
use crate::epoch::{Domain, Ticket};
use crate::error::Error;
use crate::frames::{FRAME_BYTES, FrameId, Frames, Owner};
use crate::mapping::{Pages, Table};
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use std::sync::Arc;

/// The frames of a table.
pub struct Memory {
    frames: Arc<Frames>,
    owner: Owner,
    pub(super) domain: Arc<Domain>,
    /// Entry `i` is the frame of the sets from `i * sets_per_frame` on.
    list: Table<AtomicU32>,
    pub(super) memory_bytes: AtomicU64,
    pub(super) resizing: Mutex<Resizing>,
}

/// The state of a resize.
pub struct Resizing {
    /// Sets that the table shall have.
    pub(super) target: u32,
    /// Sets whose memory the table holds.
    pub(super) held: u32,
    /// Sets from `target` on left the shape before this was taken.
    pub(super) leaving: Option<Ticket>,
}

impl Memory {
    /// Bytes of a table beside its sets: its state, and a page of the list of frames.
    pub(super) const FIXED_BYTES: u64 = 2 * 4096;

    pub(super) fn new(memory: &EngineMemory, memory_bytes: u64) -> Result<Self, Error> {
        let frames = Arc::clone(&memory.frames);
        Ok(Self {
            owner: frames.enrol(),
            domain: Arc::clone(&memory.domain),
            list: Table::new(frames.count() as usize, Pages::Small)?,
            frames,
            memory_bytes: AtomicU64::new(memory_bytes),
            resizing: Mutex::new(Resizing { target: 0, held: 0, leaving: None }),
        })
    }

    #[inline(always)]
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    #[inline(always)]
    pub fn frame(&self, place: u32) -> FrameId {
        FrameId(self.list.at(place as usize).load(Ordering::Relaxed))
    }

    /// Takes frames until the table has memory for `wanted` sets, or no frame is left. Returns the number of sets that
    /// have memory.
    pub(super) fn extend(&self, layout: &Layout, held: u32, wanted: u32) -> u32 {
        let mut places = held.div_ceil(layout.sets_per_frame);
        let needed = wanted.div_ceil(layout.sets_per_frame);
        while places < needed {
            let Some(frame) = self.frames.take(self.owner, u32::MAX) else { break };
            self.list.at(places as usize).store(frame.0, Ordering::Relaxed);
            places += 1;
        }
        let (places, wanted) = self.allocate(layout, held, (places, wanted));
        #[cfg(not(loom))]
        self.advise(layout, held / layout.sets_per_frame..places, wanted);
        wanted.min(places.saturating_mul(layout.sets_per_frame))
    }

    /// Chooses the pages of frames of a table with `sets` sets.
    #[cfg(not(loom))]
    fn advise(&self, layout: &Layout, places: std::ops::Range<u32>, sets: u32) {
        for place in places {
            // A frame that is used in part has small pages: a huge one would be resident as a whole.
            let is_whole = (place + 1) * layout.sets_per_frame <= sets;
            self.frames.advise(self.frame(place), if is_whole { Pages::Huge } else { Pages::Small });
        }
    }

    /// Takes these frames for `sets` sets, with their contents. False if another pool has one of them.
    #[cfg(not(loom))]
    pub(super) fn adopt(&self, layout: &Layout, frames: &[u32], sets: u32) -> bool {
        if !self.frames.adopt(self.owner, frames) {
            return false;
        }
        (0..).zip(frames).for_each(|(place, frame)| self.list.at(place).store(*frame, Ordering::Relaxed));
        self.advise(layout, 0..frames.len() as u32, sets);
        true
    }

    /// Where the bytes of a frame are among those of all frames.
    #[cfg(not(loom))]
    pub(super) fn offset(&self, place: u32) -> usize {
        self.frame(place).0 as usize * FRAME_BYTES
    }

    /// The first bytes of a frame.
    ///
    /// # Safety
    /// They have memory, and no thread writes them while the result lives.
    #[cfg(not(loom))]
    pub(super) unsafe fn bytes(&self, place: u32, length: usize) -> &[u8] {
        debug_assert!(length <= FRAME_BYTES);
        // SAFETY: the frame is the table's, whose mapping lives as long as `frames`; the rest is the caller's.
        unsafe { std::slice::from_raw_parts(self.frames.bytes().base().add(self.offset(place)), length) }
    }

    /// The first bytes of a frame, to write them.
    ///
    /// # Safety
    /// They have memory, and no other thread accesses them while the result lives.
    #[cfg(not(loom))]
    pub(super) unsafe fn bytes_mut(&mut self, place: u32, length: usize) -> &mut [u8] {
        debug_assert!(length <= FRAME_BYTES);
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts_mut(self.frames.bytes().base().add(self.offset(place)), length) }
    }

    /// Gives memory to the sets from `held` on, up to the given places and number of sets. Frames of a file for which
    /// the file system has no memory are given back. Returns the places and sets that have memory.
    fn allocate(&self, layout: &Layout, held: u32, (places, wanted): (u32, u32)) -> (u32, u32) {
        for place in held / layout.sets_per_frame..places {
            let first = place * layout.sets_per_frame;
            let bytes = layout.bytes_in_frame(place, wanted);
            if self.frames.allocate(self.frame(place).0 as usize * FRAME_BYTES, bytes) {
                continue;
            }
            let kept = held.div_ceil(layout.sets_per_frame).max(place);
            for place in kept..places {
                // SAFETY: no shape has named the sets of this frame.
                unsafe { self.frames.give_back(self.owner, self.frame(place)) };
            }
            return (kept, held.max(first));
        }
        (places, wanted)
    }

    /// Returns the memory of the sets from `kept` on.
    ///
    /// # Safety
    /// No thread may have a reference to one of these sets.
    pub(super) unsafe fn give_back(&self, layout: &Layout, held: u32, kept: u32) {
        let places = kept.div_ceil(layout.sets_per_frame)..held.div_ceil(layout.sets_per_frame);
        for place in places {
            // SAFETY: the caller's.
            unsafe { self.frames.give_back(self.owner, self.frame(place)) };
        }
        let in_last = kept % layout.sets_per_frame;
        if in_last > 0 {
            // SAFETY: the caller's. The control words stay: they say that the sets are empty.
            unsafe {
                self.frames.release(self.frame(kept / layout.sets_per_frame), layout.set_at(in_last), FRAME_BYTES)
            };
        }
    }

    /// Asserts that the table has the frames of its sets.
    pub fn verify(&self) {
        let lent = self.frames.lent_to(self.owner).len();
        let listed = (0..lent as u32).map(|place| self.frame(place).0).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(listed.len(), lent, "a frame is in the list once");
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for frame in self.frames.lent_to(self.owner) {
            // SAFETY: the table is dropped, and a thread that is in an operation holds a reference to it.
            unsafe { self.frames.give_back(self.owner, frame) };
        }
    }
}

impl Layout {
    /// Bytes of the frame at this place that a table with `sets` sets uses: its control words, and its sets.
    pub(super) fn bytes_in_frame(&self, place: u32, sets: u32) -> usize {
        let used = (sets - place * self.sets_per_frame).min(self.sets_per_frame);
        if used < self.sets_per_frame { self.set_at(used) } else { FRAME_BYTES }
    }

    /// Bytes of a table with `sets` sets.
    pub(super) fn bytes_of(&self, sets: u32) -> u64 {
        let (frames, rest) = (sets / self.sets_per_frame, sets % self.sets_per_frame);
        u64::from(frames) * FRAME_BYTES as u64 + u64::from(rest) * self.bytes_per_set() + Memory::FIXED_BYTES
    }

    /// Sets that fit a budget.
    pub(super) fn sets_within(&self, memory_bytes: u64) -> u32 {
        let bytes = memory_bytes.saturating_sub(Memory::FIXED_BYTES);
        let in_frames = bytes / FRAME_BYTES as u64 * u64::from(self.sets_per_frame);
        let in_last = (bytes % FRAME_BYTES as u64 / self.bytes_per_set()).min(self.sets_per_frame.into());
        u32::try_from(in_frames + in_last).unwrap_or(u32::MAX)
    }
}
