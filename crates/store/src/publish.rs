//! Publication: the one function that changes the item of a key.
//!
//! ```text
//! lock both buckets -> check the condition -> find a slot -> invalidate the copy in the lower tier -> store the slot
//!     -> account the old and the new item -> unlock
//! ```

use crate::access_samples::SampledAccess;
use crate::condition::{Condition, Outcome, SeenWord};
use crate::epoch::Participant;
use crate::error::Error;
use crate::evict::{Cause, RemovalNotice};
use crate::held_stripe::HeldStripe;
use crate::index::{LockedPair, Placement, Slot, SlotPlace, Tag, Vacancy};
use crate::item::{ItemAt, Kind};
use crate::kill_point::{KillPoint, kill_point};
use crate::segment::{Location, SegmentId, State};
use crate::stats::Counter;
use crate::store::Store;
use crate::sync::Ordering;
use crate::time::Moment;

/// An item that is written but not published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewItem {
    pub at: Location,
    pub size: u32,
    pub body_bytes: u64,
    /// The CAS token that its extension holds.
    pub token: Option<u64>,
    /// Whether it is a copy of the item that it replaces: it takes over the bodies, or the words that change in place.
    pub is_copy: bool,
    /// Whether an issued token of the item that it replaces stands for it, too: the value is the same, and not marked
    /// as stale.
    pub keeps_token: bool,
}

/// An item that has left the index, with the counts to account and the segments to retire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unlinked {
    pub segment: SegmentId,
    pub size: u32,
    pub body_bytes: u64,
    /// The first body segment of its value.
    pub body: Option<SegmentId>,
}

/// Treatment of a key for which the index has no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhenFull {
    /// It is not published.
    GiveUp,
    /// It takes the slot of its least used neighbour.
    Replace,
}

/// Whether an insert takes part in the growth of the index, once its stripe is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    NotDue,
    Due,
}

impl Growth {
    fn after(placed: Placement, turns_are_taken: bool) -> Self {
        if placed != Placement::Free || turns_are_taken { Self::Due } else { Self::NotDue }
    }
}

impl Store {
    /// Makes `new` the item of the key if the condition holds, and ends the reservation. A key that finds no slot makes
    /// the index grow. If the index has no memory for that and items may be evicted, `new` replaces its least used
    /// neighbour.
    ///
    /// # Errors
    /// `NeedSegment`: the index needs memory, and nothing may be evicted here. `IndexFull`: memory would not help it.
    /// Nothing was changed.
    #[inline(always)]
    pub(crate) fn publish(
        &self,
        participant: &Participant,
        target: (&[u8], u64),
        condition: Condition,
        new: NewItem,
        stripe: impl HeldStripe,
        moment: Moment,
    ) -> Result<Outcome, Error> {
        let first = self.try_publish(participant, target, condition, Some(&new), WhenFull::GiveUp, moment);
        let Some((outcome, growth)) = first else {
            return self.publish_in_turn(participant, target, condition, &new, stripe, moment);
        };
        stripe.release(&self.segments, outcome.is_done());
        if growth == Growth::Due {
            self.grow_if_crowded();
        }
        Ok(outcome)
    }

    /// `publish` of a key that has found no slot: in a turn at splitting.
    #[cold]
    fn publish_in_turn(
        &self,
        participant: &Participant,
        target: (&[u8], u64),
        condition: Condition,
        new: &NewItem,
        stripe: impl HeldStripe,
        moment: Moment,
    ) -> Result<Outcome, Error> {
        let (turn, has_waited) = self.index.turns.take();
        let mut full = WhenFull::GiveUp;
        // The threads that it has waited for have split.
        let mut is_first = has_waited;
        loop {
            // Ends: each round the index has one bucket more, until there is no memory for it.
            if !is_first && !self.grow_in_turn(&turn) {
                if !self.options.evicts {
                    return Err(self.index_refusal());
                }
                full = WhenFull::Replace;
            }
            is_first = false;
            if let Some((outcome, _)) = self.try_publish(participant, target, condition, Some(new), full, moment) {
                stripe.release(&self.segments, outcome.is_done());
                self.end_turn(turn);
                return Ok(outcome);
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
        let done = self.try_publish(participant, target, condition, None, WhenFull::GiveUp, moment);
        done.expect("a removal needs no slot").0
    }

    /// Publishes or removes, once. `None`, with nothing changed, if the key finds no slot and may not replace a
    /// neighbour.
    fn try_publish(
        &self,
        participant: &Participant,
        (key, hash): (&[u8], u64),
        condition: Condition,
        new: Option<&NewItem>,
        full: WhenFull,
        moment: Moment,
    ) -> Option<(Outcome, Growth)> {
        let mut pair = self.index.lock_pair(hash);
        // Read once. An item of an older generation must not replace one that was written after the flush. If the flush
        // comes after this read, writes after the flush wait for the bucket locks.
        let generation = self.generation.load(Ordering::Acquire);
        let is_current =
            |new: &NewItem| self.segments.header(new.at.segment()).generation.load(Ordering::Relaxed) == generation;
        if !new.is_none_or(is_current) {
            return Some((Outcome::Flushed, Growth::NotDue));
        }
        let found = pair.find_with(|slot| {
            self.segments.prefetch_header(slot.segment());
            self.item_of(slot, key)
        });
        let (place, present) = (found.as_ref().map(|(place, _)| place), found.as_ref().map(|(_, present)| *present));
        let is_live = present.is_some_and(|present| self.is_live_in(generation, &present, moment));
        if !matches!(condition, Condition::Always)
            && let Some(outcome) = self.check_condition(&pair, hash, condition, (place.copied(), is_live))
        {
            return Some((outcome, Growth::NotDue));
        }
        let vacancy = match (place, new) {
            (None, Some(_)) => match pair.find_vacancy(self) {
                None if full == WhenFull::GiveUp => return None,
                vacancy => vacancy,
            },
            _ => None,
        };
        // A promoted copy is the value that the key had.
        match condition {
            Condition::Copy(_) => self.load_tickets.void_of_absent(hash),
            _ => self.load_tickets.void(hash),
        }
        let keeps_token = new.is_some_and(|new| new.keeps_token);
        let had_copy = self.invalidate_copy((key, hash), condition, place.is_some(), keeps_token);
        let takes_over = new.is_some_and(|new| new.is_copy);
        let leaver = place.filter(|_| !takes_over);
        let notice = leaver.and_then(|old| self.prepare_change_notice(participant, old.slot, pair.control(Some(old))));
        let mut old = present.map(|present| self.footprint_of(present));
        old.iter_mut().filter(|_| takes_over).for_each(|old| old.body = None);
        let placed = self.place(&mut pair, hash, condition, (place, vacancy), new, moment);
        kill_point(if new.is_some() { KillPoint::Publication } else { KillPoint::Removal });
        if self.access_samples.takes(hash) {
            self.sample_publication(participant, hash, new);
        }
        let token = new.and_then(|new| new.token).unwrap_or_else(|| self.token(pair.next_sequence()));
        let growth = self.account_publication(participant, pair, placed, old, new, moment);
        if let (Some(notice), Some(present)) = (notice, present) {
            let cause = self.cause_of_change(&present, is_live, new.is_some());
            self.notify_removed(notice, cause, moment);
        }
        let is_absent = !is_live && new.is_none() && !had_copy;
        Some((if is_absent { Outcome::Absent } else { Outcome::Done { token } }, growth))
    }

    /// Stores the slot of the new item in the place of the old one, or in the vacancy or a neighbour's place; without a
    /// new item empties the place. A copy takes over changes in place since its lookup.
    #[inline(always)]
    fn place(
        &self,
        pair: &mut LockedPair<'_>,
        hash: u64,
        condition: Condition,
        (place, vacancy): (Option<&SlotPlace>, Option<Vacancy>),
        new: Option<&NewItem>,
        moment: Moment,
    ) -> Placement {
        match (place, new) {
            (Some(place), Some(new)) => {
                if new.is_copy {
                    self.transfer_changes(place.slot, new.at);
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
                let first = self.policy_state.history().first_frequency(hash, moment.ms);
                // A promoted item must be used again to stay in memory: its use before the demotion does not count.
                let frequency = if matches!(condition, Condition::Copy(_)) { 0 } else { first };
                let slot = Slot::new(Tag::of(hash), frequency, new.at);
                match vacancy {
                    Some(vacancy) => pair.fill(vacancy, slot),
                    None => pair.replace_coldest(slot),
                }
            }
            (None, None) => Placement::Free,
        }
    }

    /// Notes a write or a removal of a sampled key. The caller holds the stripe of the new item's segment, or its
    /// locks.
    #[cold]
    fn sample_publication(&self, participant: &Participant, hash: u64, new: Option<&NewItem>) {
        let access = new.map_or(SampledAccess::Removal, |new| {
            let (_, expiry_seconds) = self.sampled_size(&self.item(Slot::new(Tag::of(hash), 0, new.at)));
            SampledAccess::Write { bytes: u64::from(new.size) + new.body_bytes, expiry_seconds }
        });
        self.access_samples.note(participant.number(), hash, access);
    }

    /// Bytes of an item and its bodies, and when it expires. Protection as in `item`.
    pub(crate) fn sampled_size(&self, item: &ItemAt) -> (u64, Option<u64>) {
        let bodies = match item.header.kind() {
            // SAFETY: as in `item`.
            Kind::Chained => self.body_bytes(unsafe { item.chained(&self.segments.arena) }.total - item.tail().1),
            _ => 0,
        };
        let expiry_seconds = self.expiry_seconds(item);
        (u64::from(item.header.size()) + bodies, expiry_seconds)
    }

    /// Accounts a publication and unlocks. Items that left the index are accounted before the unlock: after it, their
    /// segment may be emptied, retired and reused.
    #[inline(always)]
    fn account_publication(
        &self,
        participant: &Participant,
        pair: LockedPair<'_>,
        placed: Placement,
        old: Option<Unlinked>,
        new: Option<&NewItem>,
        moment: Moment,
    ) -> Growth {
        let replaced = match placed {
            Placement::Replaced(slot) => Some(self.prepare_replacement(participant, &pair, slot, moment)),
            Placement::Free | Placement::Displaced => None,
        };
        old.iter().for_each(|old| self.account_unlinked(old));
        drop(pair);
        let thread = participant.number();
        if let Some(new) = new {
            // The segment stays open: the caller holds its stripe.
            self.segments.header(new.at.segment()).add_live(new.size, new.body_bytes);
        }
        let growth = match (&old, new) {
            (None, Some(_)) => {
                self.counters.link(thread);
                Growth::after(placed, self.index.turns.are_taken())
            }
            (Some(_), None) => {
                self.counters.unlink(thread);
                Growth::NotDue
            }
            _ => Growth::NotDue,
        };
        old.iter().for_each(|old| self.retire_body(old));
        if let Some((replaced, counter, notice)) = replaced {
            self.finish_replacement(participant, &replaced, counter, notice, moment);
        }
        growth
    }

    /// Accounts an item that a new one has replaced because the index is full. Its bucket is locked.
    #[cold]
    fn prepare_replacement(
        &self,
        participant: &Participant,
        pair: &LockedPair<'_>,
        slot: Slot,
        moment: Moment,
    ) -> (Unlinked, Counter, Option<RemovalNotice>) {
        let replaced = self.footprint(slot);
        let is_demoted = self.demote(participant, slot, pair.control(None), moment);
        let notice = self.prepare_removal_notice(participant, slot, pair.control(None), is_demoted);
        self.account_unlinked(&replaced);
        (replaced, if is_demoted { Counter::Demoted } else { Counter::IndexReplaced }, notice)
    }

    /// The rest of `prepare_replacement`, when no bucket is locked.
    #[cold]
    fn finish_replacement(
        &self,
        participant: &Participant,
        replaced: &Unlinked,
        counter: Counter,
        notice: Option<RemovalNotice>,
        moment: Moment,
    ) {
        self.retire_body(replaced);
        self.counters.unlink(participant.number());
        self.counters.add(participant.number(), counter, 1);
        if let Some(notice) = notice {
            self.notify_removed(notice, Cause::IndexFull, moment);
        }
    }

    /// The segment, bytes and bodies of an item; to be read before its slot is unlocked.
    #[inline]
    pub(crate) fn footprint(&self, slot: Slot) -> Unlinked {
        self.footprint_of(self.item(slot))
    }

    #[inline(always)]
    fn footprint_of(&self, item: ItemAt) -> Unlinked {
        let (body_bytes, body) = if item.header.kind() == Kind::Chained { self.bodies_of(item) } else { (0, None) };
        Unlinked { segment: item.at.segment(), size: item.header.size(), body_bytes, body }
    }

    /// The bytes of the bodies of a chained item, and the first of them. Protection as in `item`.
    #[cold]
    fn bodies_of(&self, item: ItemAt) -> (u64, Option<SegmentId>) {
        // SAFETY: as in `item`.
        let chained = unsafe { item.chained(&self.segments.arena) };
        (self.body_bytes(chained.total - item.tail().1), Some(chained.first_body))
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

    /// Retires the bodies of an item that has left the index.
    pub(crate) fn retire_body(&self, unlinked: &Unlinked) {
        if let Some(first) = unlinked.body {
            self.segments.retire(first);
        }
    }

    /// The outcome of a change whose condition does not hold; `None` if it holds. `place` is the slot of the key, and
    /// `is_live` tells whether its item is alive. Apart from the path of a set, which has none.
    #[inline(never)]
    fn check_condition(
        &self,
        pair: &LockedPair<'_>,
        hash: u64,
        condition: Condition,
        (place, is_live): (Option<SlotPlace>, bool),
    ) -> Option<Outcome> {
        let is_current = |copy| self.lower_tier.get().is_some_and(|tier| tier.is_current(copy));
        match (condition, place.as_ref().filter(|_| is_live)) {
            (Condition::Always, _) | (Condition::Absent, None) | (Condition::Present, Some(_)) => None,
            (Condition::Found(_), Some(_)) | (Condition::Found(None), None) => None,
            (Condition::Reload(ticket), _) | (Condition::Load(ticket), None) => {
                (!self.is_load_valid(hash, ticket)).then_some(Outcome::Present)
            }
            // A dead item in memory means that the key is absent, even if the lower tier has a copy.
            (Condition::Found(Some(copy)), None) => (place.is_none() && !is_current(copy)).then_some(Outcome::Present),
            (Condition::Absent | Condition::Copy(_) | Condition::Load(_), Some(_)) => Some(Outcome::Present),
            (Condition::Copy(copy), None) => (place.is_some() || !is_current(copy)).then_some(Outcome::Present),
            (Condition::Present | Condition::Token(_) | Condition::Unchanged { .. }, None) => Some(Outcome::Absent),
            (Condition::Token(token), Some(place)) => {
                let fits = self.token_fits(&self.item(place.slot), hash, pair.sequence(place), token);
                (!fits).then_some(Outcome::Present)
            }
            (Condition::Unchanged(seen), Some(place)) => {
                let is_same = place.slot.location() == seen.at && self.has_word(pair, place, seen.word);
                (!is_same).then_some(Outcome::Present)
            }
        }
    }

    /// Whether the word of an item that changes in place is as it was read; true for other items.
    pub(crate) fn has_word(&self, pair: &LockedPair<'_>, place: &SlotPlace, seen: SeenWord) -> bool {
        let item = self.item(place.slot);
        if !item.header.changes_in_place() {
            return true;
        }
        match seen {
            SeenWord::Any => true,
            // SAFETY: the item's bucket is locked.
            SeenWord::Equal(word) => word == unsafe { item.changing_word(&self.segments.arena) },
            SeenWord::Uncounted { sequence } => pair.sequence(place) == sequence,
        }
    }

    /// Brings the copy of an item that changes in place up to date. The caller holds the bucket of the original, so no
    /// edit can intervene.
    fn transfer_changes(&self, original: Slot, copy: Location) {
        let (original, arena) = (self.item(original), &self.segments.arena);
        // SAFETY: the original's bucket is locked, and the copy, of the same kind, is written and not published.
        unsafe {
            match original.header.kind() {
                Kind::Numeric => ItemAt::read(arena, copy).set_number(arena, original.number(arena).0),
                Kind::Structured => {
                    let copy = ItemAt::read(arena, copy);
                    let copied = if original.has_words(arena) { 0 } else { copy.log_length(arena) };
                    original.copy_content(arena, copy, copied);
                }
                Kind::Plain | Kind::Chained => {}
            }
        }
    }
}
