//! The change of the size of a compact table.
//!
//! ```text
//! resize --> target --maintain--> frames taken --> walk of all sets --> grace period --> frames given back
//!                                 (larger)                              (smaller)
//! ```
//! A walk moves each entry to its set of the new size (`shape`). It locks one set, and under it the sets to which the
//! entries move, one after the other; other threads hold one set at a time, so no threads wait in a circle.
//!
//! Thread safety: the lock `resizing` is held by a slice of the walk, a flush, and a change of the target. The entries
//! of a set and the cursor change under the lock of the set. A frame is given back after the grace period of the shape
//! that named it.

use super::layout::{CONTROL_BYTES, ENTRY_BYTES_MAX, Layout, WAYS_MAX};
use super::locked_set::{Entry, LockedSet};
use super::memory::{Memory, Resizing};
use super::shape::{Shape, View, set_of};
use super::stats::{CompactStats, Event};
use super::table::CompactTable;
use super::types::CompactSizes;
use crate::engine_memory::EngineMemory;
use crate::epoch::Participant;
use crate::error::Error;
use crate::evict::{Blocker, Progress};
use crate::sync::{Ordering, lock};

/// Sets that a call of `maintain` walks: well under a millisecond.
const SLICE_SETS: u32 = if cfg!(loom) { 1 } else { 512 };
/// Fewer sets are not a table.
pub(super) const SETS_MIN: u32 = if cfg!(loom) { 1 } else { 64 };

const _: () = assert!(size_of::<CompactTable>() as u64 + 4096 <= Memory::FIXED_BYTES);

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
        Ok(Self::with_memory(layout, seed, memory, Shape::new(sets)))
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

    /// Runs a slice of the due work: a delayed flush, a resize. The caller must not be pinned.
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
        let mut source = LockedSet::lock(self.set(index));
        while let Some(position) = self.expired_in(&source, now_ms) {
            self.remove_at(&mut source, position, thread);
            self.counters.add(thread, Event::Expired, 1);
        }
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
            let mut edit = LockedSet::lock(self.set(target));
            let positions = (first..used).filter(|position| targets[*position] == target);
            for (rank, position) in positions.enumerate() {
                self.settle(&mut edit, rank, &source, position, (now_ms, thread));
            }
        }
        for position in (0..used).rev().filter(|position| targets[*position] != index) {
            source.remove(position);
        }
        // Also a set without entries changes: a thread that found nothing in it must look again.
        source.void_tickets();
        self.shape.pass(index, view.grows());
    }

    /// Puts an entry of another set between those that are there: the entries used last of both stay in front.
    fn settle(&self, edit: &mut LockedSet<'_>, rank: usize, source: &LockedSet<'_>, position: usize, by: (u64, usize)) {
        let (now_ms, thread) = by;
        let bytes = source.entry(position);
        let place = 2 * rank;
        if edit.is_full() {
            if place >= self.layout.ways && self.expired_in(edit, now_ms).is_none() {
                self.counters.add(thread, Event::Left, 1);
                self.counters.add(thread, Event::LeftNegative, source.is_negative(position).into());
                self.counters.add(thread, Event::Evicted, 1);
                return;
            }
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
        let beside = Memory::FIXED_BYTES + sets * CONTROL_BYTES as u64;
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

pub(super) fn checked_sets(layout: &Layout, memory_bytes: u64) -> Result<u32, Error> {
    let sets = layout.sets_within(memory_bytes);
    if sets < SETS_MIN {
        let reason = format!("a compact table needs at least {} bytes", layout.bytes_of(SETS_MIN));
        return Err(Error::Options { option: "memory", value: memory_bytes.to_string(), reason });
    }
    Ok(sets)
}
