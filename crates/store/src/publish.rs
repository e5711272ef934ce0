//! Publication: the one way in which the item of a key changes.
//!
//! ```text
//! lock both buckets -> condition -> slot for a new key -> invalidate the copy in the lower tier -> store the slot -> account -> unlock
//! ```

use crate::condition::{Condition, Outcome};
use crate::epoch::Participant;
use crate::error::Error;
use crate::evict::Cause;
use crate::index::{LockedPair, Placement, Slot, Tag};
use crate::item::Kind;
use crate::segment::{Location, SegmentId, State};
use crate::stats::Counter;
use crate::store::Store;
use crate::sync::Ordering;
use crate::time::Moment;

/// An item that is written and about to be published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewItem {
    pub at: Location,
    pub size: u32,
    pub body_bytes: u64,
    /// The CAS token that its extension holds.
    pub token: Option<u64>,
    /// Whether it is a copy of the item that it replaces: it takes over its bodies, or its number as that is by then.
    pub is_copy: bool,
}

/// An item that has left the index, with what it leaves behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unlinked {
    pub segment: SegmentId,
    pub size: u32,
    pub body_bytes: u64,
    /// The first of the body segments that go with it.
    pub body: Option<SegmentId>,
}

/// What happens to a key for which the index has no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhenFull {
    /// It is not published.
    GiveUp,
    /// It takes the slot of its least used neighbour.
    Replace,
}

impl Store {
    /// Makes `new` the item of the key if the condition holds. A key that finds no slot makes the index grow; only where
    /// that has no memory and items may be evicted, its least used neighbour goes.
    ///
    /// # Errors
    /// `NeedSegment`: the index needs memory, and nothing may be evicted here. Nothing was changed.
    pub(crate) fn publish(
        &self,
        participant: &Participant,
        target: (&[u8], u64),
        condition: Condition,
        new: NewItem,
        moment: Moment,
    ) -> Result<Outcome, Error> {
        let mut full = WhenFull::GiveUp;
        loop {
            if let Some(outcome) = self.try_publish(participant, target, condition, Some((new, full)), moment) {
                return Ok(outcome);
            }
            // Ends: each round the index has one bucket more, until there is no memory for it.
            if !self.grow_index() {
                if !self.options.evicts {
                    return Err(Error::NeedSegment);
                }
                full = WhenFull::Replace;
            }
        }
    }

    /// Removes the key if the condition holds.
    pub(crate) fn remove(
        &self,
        participant: &Participant,
        target: (&[u8], u64),
        condition: Condition,
        moment: Moment,
    ) -> Outcome {
        let outcome = self.try_publish(participant, target, condition, None, moment);
        outcome.expect("a removal needs no slot")
    }

    /// Publishes or removes, once. `None` if the key finds no slot and no neighbour shall go: nothing was changed.
    fn try_publish(
        &self,
        participant: &Participant,
        (key, hash): (&[u8], u64),
        condition: Condition,
        new: Option<(NewItem, WhenFull)>,
        moment: Moment,
    ) -> Option<Outcome> {
        let mut pair = self.index.lock_pair(hash);
        // One look for all that follows. An item of an older generation would take the place of what was written after the
        // flush; if the flush comes after this look, what is written after it waits for the locks.
        let generation = self.generation.load(Ordering::Acquire);
        let is_current =
            |new: NewItem| self.segments.header(new.at.segment()).generation.load(Ordering::Relaxed) == generation;
        if !new.is_none_or(|(new, _)| is_current(new)) {
            return Some(Outcome::Flushed);
        }
        let place = pair.find(|slot| self.is_key(slot, key));
        let live = place.filter(|place| self.is_live_in(generation, &self.item(place.slot), moment));
        if let Some(outcome) = self.check_condition(&pair, (key, hash), condition, (place, live)) {
            return Some(outcome);
        }
        let vacancy = match (&place, new) {
            (None, Some((_, full))) => match pair.find_vacancy(self) {
                None if full == WhenFull::GiveUp => return None,
                vacancy => vacancy,
            },
            _ => None,
        };
        let new = new.map(|(new, _)| new);
        let had_copy = self.invalidate_copy((key, hash), condition, place.is_some());
        let mut old = place.map(|place| self.footprint(place.slot));
        let placed = match (&place, new) {
            (Some(place), Some(new)) => {
                if new.is_copy {
                    self.transfer_number(place.slot, new.at);
                    old = old.map(|old| Unlinked { body: None, ..old });
                }
                let frequency = pair.reread(place).frequency();
                pair.replace(place, place.slot.moved(new.at, frequency));
                Placement::Free
            }
            (Some(place), None) => {
                pair.remove(place);
                Placement::Free
            }
            (None, Some(new)) => {
                let first = self.maintenance.history.first_frequency(hash);
                // What comes up from below has to be used in memory to stay there: it was used before in any case.
                let frequency = if matches!(condition, Condition::Copy(_)) { 0 } else { first };
                let slot = Slot::new(Tag::of(hash), frequency, new.at);
                match vacancy {
                    Some(vacancy) => pair.fill(vacancy, slot),
                    None => pair.replace_coldest(slot),
                }
            }
            (None, None) => Placement::Free,
        };
        let token = new.and_then(|new| new.token).unwrap_or_else(|| self.token(pair.next_sequence()));
        self.account_publication(participant, pair, placed, old, new, moment);
        Some(if live.is_none() && new.is_none() && !had_copy { Outcome::Absent } else { Outcome::Done { token } })
    }

    /// Accounts what a publication changed, and unlocks. What has left the index is accounted before: once its bucket is
    /// free, its segment may be emptied, retired and taken for something else.
    fn account_publication(
        &self,
        participant: &Participant,
        pair: LockedPair<'_>,
        placed: Placement,
        old: Option<Unlinked>,
        new: Option<NewItem>,
        moment: Moment,
    ) {
        let replaced_slot = match placed {
            Placement::Replaced(slot) => Some(slot),
            Placement::Free | Placement::Displaced => None,
        };
        let replaced = replaced_slot.map(|slot| self.footprint(slot));
        if let Some(slot) = replaced_slot {
            self.demote(participant, slot, pair.control(None), moment);
        }
        let notice = replaced_slot.and_then(|slot| self.prepare_removal_notice(participant, slot, pair.control(None)));
        for unlinked in old.iter().chain(&replaced) {
            self.account_unlinked(unlinked);
        }
        drop(pair);
        let thread = participant.number();
        if let Some(new) = new {
            // Its segment is open and stays so: the caller holds the stripe.
            self.segments.header(new.at.segment()).add_live(new.size, new.body_bytes);
        }
        match (old, new) {
            (None, Some(_)) => self.counters.link(thread),
            (Some(_), None) => self.counters.unlink(thread),
            _ => {}
        }
        for unlinked in old.iter().chain(&replaced) {
            self.retire_body(unlinked);
        }
        if replaced.is_some() {
            self.counters.unlink(thread);
            self.counters.add(thread, Counter::IndexReplaced, 1);
        }
        if let Some(notice) = notice {
            self.notify_removed(notice, Cause::IndexFull, moment);
        }
        if placed != Placement::Free {
            self.split_if_crowded();
        }
    }

    /// What an item leaves behind when it goes; to be read before its slot is unlocked.
    pub(crate) fn footprint(&self, slot: Slot) -> Unlinked {
        let item = self.item(slot);
        let mut unlinked = Unlinked { segment: slot.segment(), size: item.header.size(), body_bytes: 0, body: None };
        if item.header.kind == Kind::Chained {
            // SAFETY: as in `item`.
            let chained = unsafe { item.chained(&self.segments.arena) };
            unlinked.body_bytes = self.body_bytes(chained.total - item.tail().1);
            unlinked.body = Some(chained.first_body);
        }
        unlinked
    }

    /// Bytes of the body segments that hold `bytes` of a value.
    pub(crate) fn body_bytes(&self, bytes: u32) -> u64 {
        u64::from(bytes).next_multiple_of(self.segments.segment_bytes().into())
    }

    /// Accounts an item that has left the index. To be called before its bucket is unlocked, or by the owner of its
    /// segment.
    pub(crate) fn account_unlinked(&self, unlinked: &Unlinked) {
        let header = self.segments.header(unlinked.segment);
        if header.remove_live(unlinked.size, unlinked.body_bytes) && header.state() == State::Sealed {
            self.segments.note_dead(unlinked.segment);
        }
    }

    /// Lets go of the bodies of an item that has left the index.
    pub(crate) fn retire_body(&self, unlinked: &Unlinked) {
        if let Some(first) = unlinked.body {
            self.segments.retire(first);
        }
    }
}
