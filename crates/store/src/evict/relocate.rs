//! The steps of a job for one item: copy it to another segment, or unlink it.

use super::policy::Aging;
use super::removal::{Cause, RemovalNotice};
use super::return_rates::Evicted;
use crate::epoch::Participant;
use crate::item::{ItemAt, Kind};
use crate::kill_point::{KillPoint, kill_point};
use crate::publish::NewItem;
use crate::segment::Location;
use crate::stats::Counter;
use crate::store::Store;
use crate::sync::Ordering;
use crate::time::Moment;

/// The state in which an item leaves the index for want of memory, or for being dead.
pub(super) struct Departure {
    pub was_live: bool,
    /// The lower tier has a copy of it now.
    pub is_demoted: bool,
}

impl Store {
    /// Copies an item to `to`, which the caller owns, and points its slot there. False if the item is not in the index
    /// any more, or was flushed before the segment of `to` was opened, where it would be present again.
    pub(super) fn relocate_item(&self, item: &ItemAt, hash: u64, to: Location, expiry_byte: u8, aging: Aging) -> bool {
        let generation = |at: Location| self.segments.header(at.segment()).generation.load(Ordering::Relaxed);
        if generation(item.at) != generation(to) {
            return false;
        }
        let arena = &self.segments.arena;
        let header = item.header.with_expiry(expiry_byte);
        let copy = |bytes: usize| {
            // SAFETY: the source is draining and keeps its bytes; the destination is unpublished and owned by the
            // caller.
            unsafe {
                arena.copy(item.at, to, bytes);
                arena.write(to, &header.encode());
            }
        };
        let duplicate = ItemAt { at: to, header };
        let mut copied = 0;
        match item.header.kind() {
            Kind::Plain | Kind::Chained => copy(item.header.size() as usize),
            Kind::Numeric => {}
            // Published bytes of a log never change: only bytes appended meanwhile are copied under the lock.
            // SAFETY: as in `copy`.
            Kind::Structured => unsafe {
                copy(item.header.value_offset() as usize);
                copied = item.copy_content(arena, duplicate, 0);
            },
        }
        kill_point(KillPoint::RelocationCopy);
        let mut pair = self.index.lock_pair(hash);
        let Some(place) = pair.find(|slot| slot.location() == item.at) else {
            return false;
        };
        // Words that change do so under the bucket lock only, and their position in the copy depends on the address.
        match item.header.kind() {
            Kind::Plain | Kind::Chained => {}
            Kind::Numeric => self.copy_number(item, to, expiry_byte),
            // SAFETY: as in `copy`; the bucket is locked.
            Kind::Structured => _ = unsafe { item.copy_content(arena, duplicate, copied) },
        }
        let unlinked = self.footprint(place.slot);
        let frequency = aging.applied_to(pair.reread(&place).frequency());
        pair.replace(&place, place.slot.moved(to, frequency));
        kill_point(KillPoint::RelocationSlot);
        drop(pair);
        self.segments.header(item.at.segment()).remove_live(unlinked.size, unlinked.body_bytes);
        let new = NewItem {
            at: to,
            size: unlinked.size,
            body_bytes: unlinked.body_bytes,
            token: None,
            is_copy: true,
            keeps_token: true,
        };
        self.segments.header(to.segment()).add_live(new.size, new.body_bytes);
        true
    }

    fn copy_number(&self, item: &ItemAt, to: Location, expiry_byte: u8) {
        let arena = &self.segments.arena;
        let header = item.header.with_expiry(expiry_byte);
        let head = header.value_offset();
        // SAFETY: as in `relocate_item`; the bucket lock keeps the number still.
        unsafe {
            arena.copy(item.at, to, head as usize);
            arena.write(to, &header.encode());
            let (number, width) = item.number(arena);
            self.write_number(to.plus(head), number, width);
        }
    }

    /// Counts an item that maintenance has unlinked, and notifies the listeners.
    pub(super) fn note_unlinked(
        &self,
        participant: &Participant,
        item: &ItemAt,
        departure: Departure,
        notice: Option<RemovalNotice>,
        moment: Moment,
    ) {
        let thread = participant.number();
        let (cause, counter) = match departure {
            Departure { was_live: true, is_demoted: true } => (Cause::Memory, Counter::Demoted),
            Departure { was_live: true, .. } => (Cause::Memory, Counter::Evicted),
            _ if self.was_flushed(item) => (Cause::Flushed, Counter::Flushed),
            _ => (Cause::Expired, Counter::Expired),
        };
        self.counters.unlink(thread);
        self.counters.add(thread, counter, 1);
        if let Some(notice) = notice {
            self.notify_removed(notice, cause, moment);
        }
    }

    /// Unlinks an item of a draining segment, if it is still in the index, and answers whether it was alive.
    pub(super) fn unlink(&self, participant: &Participant, item: &ItemAt, hash: u64, moment: Moment) -> Option<bool> {
        let mut pair = self.index.lock_pair(hash);
        let place = pair.find(|slot| slot.location() == item.at)?;
        let is_live = self.is_live(item, moment);
        let unlinked = self.footprint(place.slot);
        let control = pair.control(Some(&place));
        let is_demoted = self.demote(participant, place.slot, control, moment);
        let notice = self.prepare_removal_notice(participant, place.slot, control, is_demoted);
        pair.remove(&place);
        kill_point(KillPoint::Removal);
        drop(pair);
        self.account_unlinked(&unlinked);
        self.retire_body(&unlinked);
        self.note_unlinked(participant, item, Departure { was_live: is_live, is_demoted }, notice, moment);
        self.settle_lower_tier(moment);
        if is_live {
            let header = self.segments.header(item.at.segment());
            let evicted = match header.rounds.load(Ordering::Relaxed) {
                0 => Evicted::Young { uses: place.slot.frequency() },
                _ => Evicted::Old { age_ms: moment.ms.saturating_sub(header.stamp_ms()) },
            };
            self.policy_state.history().note_evicted(hash, evicted, moment.ms);
        }
        Some(is_live)
    }
}
