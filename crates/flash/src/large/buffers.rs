//! Open regions and regions that are being written: appends, and the writes of regions to the device.
//!
//! ```text
//! buffer   | header | objects ->        space        <- footer, last entry first |        while the region is open
//!          | header | objects | footer | rest of the block                               as it is written
//! ```

use super::LargeLog;
use super::address::UNIT;
use super::format::{
    FOOTER_ENTRY_BYTES, FooterEntry, ObjectHeader, REGION_HEADER_BYTES, RegionHeader, block_checksums, checksum,
    object_checksum,
};
use super::open_region::{
    AppendError, Appended, FreeLists, ObjectDraft, OpenRegion, SHARE_OF_GAP, SealedRegion, StagedRegion,
};
use super::regions::{RegionState, RegionSummary, later};
use super::stats::RegionTally;
use crate::device::{BLOCK, Buffer, Direction, TransferOutcome, TransferRequest};
use crate::object::has_expired;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Copies leave one in this many of the buffers to inserts.
const SHARE_LEFT: usize = 3;
/// Bytes that are copied under one lock, while readers of the buffer wait.
const COPY_BYTES: usize = 256 << 10;

/// Buffers reserved for one multi-region object. Unused ones are freed on drop.
pub struct ReservedSlots<'a> {
    pub log: &'a LargeLog,
    pub slots: Vec<u16>,
}

impl Drop for ReservedSlots<'_> {
    fn drop(&mut self) {
        self.log.free_lists().free_long_slots.append(&mut self.slots);
    }
}

impl LargeLog {
    /// Appends a draft to the open region of a group. Opens a region if needed, in a reserved buffer or in any free
    /// one. Does not publish the object.
    pub(super) fn add(
        self: &Arc<Self>,
        expiry_group: usize,
        draft: &ObjectDraft<'_>,
        reserved: &mut Vec<u16>,
        now: u32,
    ) -> Result<Appended, AppendError> {
        let mut address = self.expiry_groups[expiry_group].lock().unwrap();
        if address.as_ref().is_some_and(|open| open.space(draft, self.geometry.region_bytes).is_none()) {
            // If no other region is free for a copy, the open one stays for new objects.
            let next = if draft.is_copy { Some(self.open(draft, reserved, now)?) } else { None };
            let full = std::mem::replace(&mut *address, next).expect("it was looked at");
            self.seal(full, now);
        }
        if address.is_none() {
            *address = Some(self.open(draft, reserved, now)?);
        }
        let open = address.as_mut().expect("it is open");
        let (at, value_bytes) = open.space(draft, self.geometry.region_bytes).expect("an empty region has space");
        Ok(self.copy_in(open, draft, at, value_bytes))
    }

    /// Number of free buffers that copies leave to inserts.
    pub(super) fn buffers_reserved_for_inserts(&self) -> usize {
        (self.options.buffers / SHARE_LEFT).min(self.options.buffers - self.options.expiry_groups - 1)
    }

    /// Opens a region for a draft.
    fn open(&self, draft: &ObjectDraft<'_>, reserved: &mut Vec<u16>, now: u32) -> Result<OpenRegion, AppendError> {
        let (left, order) = if draft.is_copy {
            (self.buffers_reserved_for_inserts(), self.next_order())
        } else {
            (0, draft.header.order)
        };
        // A copy leaves one region: new objects may find no other before the next maintenance.
        let regions_left = usize::from(draft.is_copy && !self.may_reclaim_for_inserts());
        let (region, slot, sequence) = {
            let mut free_lists = self.free_lists();
            if reserved.is_empty() && free_lists.free_slots.len() <= left {
                return Err(AppendError::Buffers);
            }
            if free_lists.free.len() <= regions_left {
                return Err(AppendError::Regions);
            }
            let region = free_lists.free.pop_front().expect("it was looked at");
            let slot = reserved.pop().or_else(|| free_lists.free_slots.pop()).expect("it was looked at");
            let sequence = free_lists.next_sequence;
            free_lists.next_sequence += 1;
            // Before the region has its buffer: a scan must not skip a region that is open but not yet marked as open.
            self.regions[region as usize].begin(sequence, slot, self.tick.load(Relaxed), order);
            (region, slot, sequence)
        };
        let buffer = Buffer::zeroed(self.geometry.region_bytes);
        *self.slots[usize::from(slot)].write().unwrap() = Some(StagedRegion { region, sequence, buffer });
        Ok(OpenRegion {
            region,
            sequence,
            slot,
            used: REGION_HEADER_BYTES,
            gaps: 0,
            objects: 0,
            opened: now,
            // A time long ago: the region has no live object.
            latest_expiry: 1,
            lowest_order: u64::MAX,
            tally: RegionTally::default(),
        })
    }

    /// Copies a draft to its position, which no thread reads yet. A reader elsewhere in the buffer waits for one piece
    /// at most.
    fn copy_in(&self, open: &mut OpenRegion, draft: &ObjectDraft<'_>, at: usize, value_bytes: usize) -> Appended {
        let position = (at / UNIT) as u32;
        let header =
            ObjectHeader { sequence: open.sequence, position, value_bytes: value_bytes as u32, ..draft.header };
        let bytes = header.object_bytes();
        let front = [&header.encode()[..], draft.key].concat();
        self.change(open.slot, at, &front);
        let value = at + header.value().start..at + bytes;
        let mut target = value.start;
        let (mut skip, mut left) = (draft.from, value_bytes);
        for part in draft.value {
            let begin = skip.min(part.len());
            skip -= begin;
            let wanted = &part[begin..][..left.min(part.len() - begin)];
            left -= wanted.len();
            for piece in wanted.chunks(COPY_BYTES) {
                self.change(open.slot, target, piece);
                target += piece.len();
            }
        }
        debug_assert_eq!((target, left), (at + bytes, 0));
        let table = self.staged(open.slot, |buffer| block_checksums(self.options.identity, &buffer[value]));
        self.change(open.slot, at + front.len(), &table);
        let sum = self.staged(open.slot, |buffer| object_checksum(self.options.identity, &buffer[at..at + bytes]));
        self.change(open.slot, at, &sum);
        let entry = FooterEntry {
            hash: draft.hash,
            order: header.order,
            position,
            bytes: bytes as u32,
            expiry: header.expiry,
            part: header.part,
            pool: header.pool,
        };
        self.change(open.slot, open.end(self.geometry.region_bytes), &entry.encode());
        self.occupy(open.region, header.pool, bytes as u32);
        let gap = at - open.used.next_multiple_of(UNIT);
        open.gaps += if gap > bytes / SHARE_OF_GAP { gap } else { 0 };
        open.used = at + bytes;
        open.objects += 1;
        open.latest_expiry = later(open.latest_expiry, header.expiry);
        open.lowest_order = open.lowest_order.min(header.order);
        if draft.is_copy {
            open.tally.reinsertion += bytes as u64;
        } else {
            open.tally.insert += bytes as u64;
            open.tally.payload += (value_bytes + if header.part == 0 { draft.key.len() } else { 0 }) as u64;
        }
        self.regions[open.region as usize].set_copied(open.tally.copied());
        Appended { region: open.region, sequence: open.sequence, position, bytes, value_bytes }
    }

    /// Seals a region and submits its write, or drops it if it has no live object.
    pub(super) fn seal(self: &Arc<Self>, open: OpenRegion, now: u32) {
        if has_expired(open.latest_expiry, now) {
            self.abandon(open);
            return;
        }
        let region_bytes = self.geometry.region_bytes;
        let footer_bytes = open.objects * FOOTER_ENTRY_BYTES;
        let footer_offset = open.used;
        {
            let mut staged = self.slots[usize::from(open.slot)].write().unwrap();
            let buffer = &mut staged.as_mut().expect("an open region has a buffer").buffer;
            let reversed = buffer[region_bytes - footer_bytes..].to_vec();
            // Old footer entries after the written bytes must not be written as padding in another life.
            buffer[region_bytes - footer_bytes..].fill(0);
            let entries = reversed.rchunks_exact(FOOTER_ENTRY_BYTES);
            for (to, from) in buffer[footer_offset..].chunks_exact_mut(FOOTER_ENTRY_BYTES).zip(entries) {
                to.copy_from_slice(from);
            }
            let header = RegionHeader {
                sequence: open.sequence,
                region: open.region,
                objects: open.objects as u32,
                footer_offset: footer_offset as u32,
                latest_expiry: open.latest_expiry,
                lowest_order: open.lowest_order,
                footer_checksum: checksum(self.options.identity, &buffer[footer_offset..][..footer_bytes]),
            };
            buffer[..REGION_HEADER_BYTES].copy_from_slice(&header.encode(self.options.identity));
        }
        let tally = RegionTally { footer: (REGION_HEADER_BYTES + footer_bytes) as u64, ..open.tally };
        let bytes = (footer_offset + footer_bytes).next_multiple_of(BLOCK);
        let region = &self.regions[open.region as usize];
        let summary = RegionSummary {
            sequence: open.sequence,
            lowest_order: open.lowest_order,
            latest_expiry: open.latest_expiry,
        };
        {
            let mut free_lists = self.free_lists();
            region.complete(summary);
            region.set_state(RegionState::Writing);
            free_lists.waiting.push_back(SealedRegion { region: open.region, slot: open.slot, bytes, tally });
        }
        self.submit_waiting();
    }

    /// Drops an open region with its objects, which were never written.
    pub(super) fn abandon(&self, open: OpenRegion) {
        self.counters.regions_unwritten.one();
        self.regions[open.region as usize].complete(RegionSummary {
            sequence: open.sequence,
            lowest_order: u64::MAX,
            latest_expiry: open.latest_expiry,
        });
        self.release(open.region, open.slot, RegionState::Emptied);
    }

    /// Submits complete regions to the device, as far as its queue has space.
    pub(super) fn submit_waiting(self: &Arc<Self>) {
        loop {
            let Some(complete) = self.free_lists().waiting.pop_front() else { return };
            let SealedRegion { region, slot, bytes, .. } = complete;
            let buffer = {
                let staged = self.slots[usize::from(slot)].read().unwrap();
                staged.as_ref().expect("a region that waits has a buffer").buffer.share(bytes)
            };
            let log = Arc::clone(self);
            let done = Box::new(move |outcome| log.written(complete, outcome));
            let offset = self.geometry.offset(region);
            if self.device.submit(TransferRequest { direction: Direction::Write, offset, buffer, done }).is_err() {
                self.free_lists().waiting.push_front(complete);
                return;
            }
        }
    }

    fn written(&self, complete: SealedRegion, outcome: TransferOutcome) {
        drop(outcome.buffer);
        let state = match outcome.result {
            Ok(()) => {
                complete.tally.count(&self.counters, complete.bytes as u64);
                RegionState::Sealed
            }
            Err(_) => {
                self.counters.write_errors.one();
                RegionState::Failed
            }
        };
        self.release(complete.region, complete.slot, state);
    }

    /// Frees the buffer of a region. The state changes first: a thread that finds the slot empty finds the new state.
    fn release(&self, region: u32, slot: u16, state: RegionState) {
        {
            let _books = self.free_lists();
            self.regions[region as usize].set_state(state);
        }
        *self.slots[usize::from(slot)].write().unwrap() = None;
        {
            let mut free_lists = self.free_lists();
            let is_long = usize::from(slot) >= self.options.buffers;
            if is_long { &mut free_lists.free_long_slots } else { &mut free_lists.free_slots }.push(slot);
        }
        self.freed.notify_all();
    }

    /// Waits until more than `left` buffers are free, for at most `max`. False after a timeout.
    pub(super) fn wait_for_buffer(self: &Arc<Self>, left: usize, max: Duration) -> bool {
        self.submit_waiting();
        let is_full = |free_lists: &mut FreeLists| free_lists.free_slots.len() <= left;
        let (_books, timeout) = self.freed.wait_timeout_while(self.free_lists(), max, is_full).unwrap();
        !timeout.timed_out()
    }

    fn change(&self, slot: u16, at: usize, bytes: &[u8]) {
        let mut staged = self.slots[usize::from(slot)].write().unwrap();
        let buffer = &mut staged.as_mut().expect("an open region has a buffer").buffer;
        buffer[at..][..bytes.len()].copy_from_slice(bytes);
    }

    fn staged<T>(&self, slot: u16, read: impl FnOnce(&[u8]) -> T) -> T {
        read(&self.slots[usize::from(slot)].read().unwrap().as_ref().expect("an open region has a buffer").buffer)
    }

    /// Seals regions that have been open for long, and drops those without live objects.
    pub(super) fn seal_old(self: &Arc<Self>, now: u32) {
        for expiry_group in &self.expiry_groups {
            let mut address = expiry_group.lock().unwrap();
            let is_due = |open: &OpenRegion| {
                let age = now.saturating_sub(open.opened);
                age >= self.options.seal_seconds || has_expired(open.latest_expiry, now)
            };
            if address.as_ref().is_some_and(is_due) {
                let open = address.take().expect("it was looked at");
                self.seal(open, now);
            }
        }
    }
}
