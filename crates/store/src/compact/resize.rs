//! The memory of a compact table, and its change.
//!
//! ```text
//! resize --> target --maintain--> frames taken --> walk of all sets --> grace period --> frames given back
//!                                 (larger)                              (smaller)
//! ```
//! A budget of so many bytes has a whole number of sets: no byte beside them but the fixed state of the table. A walk
//! moves each entry to its set of the new size (`shape`). It locks one set, and under it the sets to which the entries
//! move, one after the other; other threads hold one set at a time, so nobody waits in a circle.
//!
//! Thread safety: the lock `resizing` is held by a slice of the walk, a flush, and a change of the target. The entries
//! of a set and the cursor change under the lock of the set. A frame is given back after the grace period of the shape
//! that named it.

use super::CompactSizes;
use super::edit::{Edit, Entry};
use super::layout::{ENTRY_BYTES_MAX, Layout, WAYS_MAX};
use super::shape::{View, set_of};
use super::stats::{CompactStats, Event};
use super::table::CompactTable;
use crate::engine_memory::EngineMemory;
use crate::epoch::{Domain, Participant, Ticket};
use crate::error::Error;
use crate::evict::{Blocker, Progress};
use crate::frames::{FRAME_BYTES, FrameId, Frames, Owner};
use crate::mapping::{Pages, Table};
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, lock};
use std::sync::Arc;

/// Sets that a call of `maintain` walks: well under a millisecond.
const SLICE_SETS: u32 = if cfg!(loom) { 1 } else { 512 };
/// Fewer sets are not a table.
const SETS_MIN: u32 = if cfg!(loom) { 1 } else { 64 };

/// The frames of a table.
pub struct Memory {
    frames: Arc<Frames>,
    owner: Owner,
    domain: Arc<Domain>,
    /// Entry `i` is the frame of the sets from `i * sets_per_frame` on.
    list: Table<AtomicU32>,
    memory_bytes: AtomicU64,
    pub(super) resizing: Mutex<Resizing>,
}

/// The state of a resize.
pub struct Resizing {
    /// Sets that the table shall have.
    target: u32,
    /// Sets whose memory the table holds.
    held: u32,
    /// Sets from `target` on left the shape before this was taken.
    leaving: Option<Ticket>,
}

impl Memory {
    /// Bytes of a table beside its sets: its state, and a page of the list of frames.
    const FIXED_BYTES: u64 = size_of::<CompactTable>() as u64 + 4096;

    fn new(memory: &EngineMemory, memory_bytes: u64) -> Result<Self, Error> {
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

    /// Takes frames until the table has memory for so many sets, or there is no frame. Answers for how many.
    fn extend(&self, layout: &Layout, held: u32, wanted: u32) -> u32 {
        let mut places = held.div_ceil(layout.sets_per_frame);
        let needed = wanted.div_ceil(layout.sets_per_frame);
        while places < needed {
            let Some(frame) = self.frames.take(self.owner, u32::MAX) else { break };
            self.list.at(places as usize).store(frame.0, Ordering::Relaxed);
            places += 1;
        }
        #[cfg(not(loom))]
        for place in held / layout.sets_per_frame..places {
            // A frame that is used in part has small pages: a huge one would be resident as a whole.
            let is_whole = (place + 1) * layout.sets_per_frame <= wanted;
            self.frames.advise(self.frame(place), if is_whole { Pages::Huge } else { Pages::Small });
        }
        wanted.min(places.saturating_mul(layout.sets_per_frame))
    }

    /// Gives back the memory of the sets from `kept` on.
    ///
    /// # Safety
    /// No thread may have a reference to one of these sets.
    unsafe fn give_back(&self, layout: &Layout, held: u32, kept: u32) {
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
    /// Bytes of a table with so many sets.
    fn bytes_of(&self, sets: u32) -> u64 {
        let (frames, rest) = (sets / self.sets_per_frame, sets % self.sets_per_frame);
        u64::from(frames) * FRAME_BYTES as u64 + u64::from(rest) * self.bytes_per_set() + Memory::FIXED_BYTES
    }

    /// Sets that fit a budget.
    fn sets_within(&self, memory_bytes: u64) -> u32 {
        let bytes = memory_bytes.saturating_sub(Memory::FIXED_BYTES);
        let in_frames = bytes / FRAME_BYTES as u64 * u64::from(self.sets_per_frame);
        let in_last = (bytes % FRAME_BYTES as u64 / self.bytes_per_set()).min(self.sets_per_frame.into());
        u32::try_from(in_frames + in_last).unwrap_or(u32::MAX)
    }
}

impl CompactTable {
    /// A table with this budget, in the memory of an engine.
    ///
    /// # Errors
    /// `Options` if the entries or the budget cannot work; `Mapping`.
    pub fn build(sizes: CompactSizes, memory_bytes: u64, seed: u64, memory: &EngineMemory) -> Result<Self, Error> {
        let layout = Layout::new(sizes)?;
        let sets = checked_sets(&layout, memory_bytes)?;
        let memory = Memory::new(memory, memory_bytes)?;
        let held = memory.extend(&layout, 0, sets);
        if held < sets {
            let reason = "the engine has no frame for it".to_owned();
            return Err(Error::Options { option: "memory", value: memory_bytes.to_string(), reason });
        }
        *lock(&memory.resizing) = Resizing { target: sets, held, leaving: None };
        Ok(Self::with_memory(layout, seed, memory, sets))
    }

    /// The smallest budget of a table with such entries.
    ///
    /// # Errors
    /// `Options` if the entries cannot work.
    pub fn min_bytes(sizes: CompactSizes) -> Result<u64, Error> {
        Layout::new(sizes).map(|layout| layout.bytes_of(SETS_MIN))
    }

    pub fn memory_bytes(&self) -> u64 {
        self.memory.memory_bytes.load(Ordering::Relaxed)
    }

    /// The memory that is not free for others: the budget, or more while a smaller one is being reached.
    pub fn held_bytes(&self) -> u64 {
        let held = lock(&self.memory.resizing).held;
        self.layout.bytes_of(held).max(self.memory_bytes())
    }

    /// Whether the table has the size of its budget.
    pub fn resize_done(&self) -> bool {
        let resizing = lock(&self.memory.resizing);
        let view = self.shape.view();
        !view.is_resizing() && view.to == resizing.target && resizing.leaving.is_none()
    }

    /// Changes the budget. `maintain` moves the entries.
    ///
    /// # Errors
    /// `Options` if the budget is too small.
    pub fn resize(&self, memory_bytes: u64) -> Result<(), Error> {
        let sets = checked_sets(&self.layout, memory_bytes)?;
        let mut resizing = lock(&self.memory.resizing);
        resizing.target = sets;
        self.memory.memory_bytes.store(memory_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Does a slice of what is due: a delayed flush, a resize. The caller must not be pinned.
    pub fn maintain(&self, participant: &Participant, now_ms: u64) -> Progress {
        self.flush_if_due(participant, now_ms);
        let mut resizing = lock(&self.memory.resizing);
        if let Some(ticket) = resizing.leaving {
            if ticket >= self.memory.domain.safe_below(ticket) {
                return Progress::Waiting(Blocker::Reader);
            }
            let kept = self.shape.view().to;
            // SAFETY: no shape names these sets since the ticket was taken, and every older pin is released.
            unsafe { self.memory.give_back(&self.layout, resizing.held, kept) };
            (resizing.held, resizing.leaving) = (kept, None);
        }
        let view = self.shape.view();
        if !view.is_resizing() {
            return self.begin_resize(&mut resizing, view);
        }
        for _ in 0..SLICE_SETS {
            let view = self.shape.view();
            let Some(set) = view.next_to_walk() else {
                self.shape.finish();
                resizing.leaving = (view.to < view.from).then(|| self.memory.domain.retire());
                break;
            };
            self.walk(set, view, participant.number(), now_ms);
        }
        Progress::Working
    }

    fn begin_resize(&self, resizing: &mut Resizing, view: View) -> Progress {
        if resizing.target > view.to {
            resizing.held = self.memory.extend(&self.layout, resizing.held, resizing.target);
            // Without a frame for all of them the table has those that fit.
            resizing.target = resizing.target.min(resizing.held);
        }
        if resizing.target == view.to {
            return Progress::Ready;
        }
        self.shape.begin(resizing.target);
        Progress::Working
    }

    /// Moves the entries of a set to their sets of the new size.
    fn walk(&self, index: u32, view: View, thread: usize, now_ms: u64) {
        let mut source = Edit::lock(self.set(index));
        let mut targets = [0; WAYS_MAX];
        let used = source.used();
        for (position, target) in targets[..used].iter_mut().enumerate() {
            let key = &source.entry(position)[..self.layout.key_bytes];
            *target = set_of(self.hash.hash(key), view.to);
        }
        for first in 0..used {
            let target = targets[first];
            if target == index || targets[..first].contains(&target) {
                continue;
            }
            let mut edit = Edit::lock(self.set(target));
            let positions = (first..used).filter(|position| targets[*position] == target);
            for (rank, position) in positions.enumerate() {
                self.settle(&mut edit, rank, &source, position, (now_ms, thread));
            }
        }
        for position in (0..used).rev().filter(|position| targets[*position] != index) {
            source.remove(position);
        }
        // Also a set without entries changes: who found nothing in it must look again.
        source.void_tickets();
        self.shape.pass(index, view.grows());
    }

    /// Puts an entry of another set between those that are there: the entries used last of both stay in front.
    fn settle(&self, edit: &mut Edit<'_>, rank: usize, source: &Edit<'_>, position: usize, by: (u64, usize)) {
        let (now_ms, thread) = by;
        let bytes = source.entry(position);
        let place = (2 * rank).min(edit.used());
        if place == self.layout.ways {
            self.counters.add(thread, Event::Left, 1);
            self.counters.add(thread, Event::LeftNegative, source.is_negative(position).into());
            self.counters.add(thread, Event::Evicted, 1);
            return;
        }
        if edit.is_full() {
            self.make_space(edit, now_ms, thread);
        }
        let mut copy = [0; ENTRY_BYTES_MAX];
        let copy = &mut copy[..bytes.len()];
        copy.copy_from_slice(bytes);
        edit.insert(place.min(edit.used()), Entry { bytes: copy, is_negative: source.is_negative(position) });
    }

    pub fn stats(&self) -> CompactStats {
        let sum = |event| self.counters.sum(event);
        // The sums are not read at one time.
        let difference = |entered: u64, left: u64| {
            if entered.wrapping_sub(left) >> 63 != 0 { 0 } else { entered.wrapping_sub(left) }
        };
        let items = difference(sum(Event::Entered), sum(Event::Left));
        let sets = u64::from(self.shape.view().to);
        let live_bytes = items * self.layout.entry_bytes as u64;
        let beside = Memory::FIXED_BYTES + sets * super::layout::CONTROL_BYTES as u64;
        let memory_limit_bytes = self.memory_bytes();
        CompactStats {
            items,
            negatives: difference(sum(Event::EnteredNegative), sum(Event::LeftNegative)),
            memory_limit_bytes,
            memory_used_bytes: (live_bytes + beside).min(memory_limit_bytes),
            live_bytes,
            capacity: sets * self.layout.ways as u64,
            stored_values: sum(Event::StoredValue),
            stored_negatives: sum(Event::StoredNegative),
            evictions: sum(Event::Evicted),
            expired: sum(Event::Expired),
            flushed: sum(Event::Flushed),
            promotions: sum(Event::Promoted),
        }
    }
}

fn checked_sets(layout: &Layout, memory_bytes: u64) -> Result<u32, Error> {
    let sets = layout.sets_within(memory_bytes);
    if sets < SETS_MIN {
        let reason = format!("a compact table needs at least {} bytes", layout.bytes_of(SETS_MIN));
        return Err(Error::Options { option: "memory", value: memory_bytes.to_string(), reason });
    }
    Ok(sets)
}
