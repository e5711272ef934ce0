//! incr and decr: the first one turns a decimal value into a numeric item, later ones change its word in place.
//!
//! As in memcached, a value never gets shorter: a smaller number is printed with trailing spaces. A number that
//! outgrows its width gets a new item. Values longer than any number (digits followed by other text) stay plain.

use super::write::{Changed, check_key};
use crate::condition::{Condition, Outcome, SeenItem, SeenWord};
use crate::epoch::Participant;
use crate::error::Error;
use crate::flags::Flags;
use crate::index::Found;
use crate::item::{
    Extension, ItemAt, Kind, NUMBER_TEXT_BYTES, NUMERIC_BYTES, number_digits, number_word, parse_number, print_number,
};
use crate::publish::NewItem;
use crate::segment::Location;
use crate::stats::Counter;
use crate::store::{Head, Store};
use crate::sync::Ordering;
use crate::time::Moment;
use crate::ttl::{Lifetime, Ttl};

/// The change of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds, modulo 2^64.
    Add(u64),
    /// Subtracts, not below zero.
    Subtract(u64),
}

impl Change {
    fn apply(self, number: u64) -> u64 {
        match self {
            Self::Add(delta) => number.wrapping_add(delta),
            Self::Subtract(delta) => number.saturating_sub(delta),
        }
    }
}

/// The change of a number and its conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    pub change: Change,
    /// Only if the value still has this CAS token.
    pub expected: Option<u64>,
    /// The CAS token of the changed value; by default one of the store.
    pub token: Option<u64>,
    /// Another TTL; one that has expired already removes the entry after the change.
    pub ttl: Option<Ttl>,
    /// The number and TTL with which an absent entry is created.
    pub initial: Option<(u64, Ttl)>,
    /// It is created only if the key has not changed since `Store::begin_load` gave this ticket.
    pub ticket: Option<u64>,
}

impl Count {
    /// The change without conditions.
    pub fn plain(change: Change) -> Self {
        Self { change, expected: None, token: None, ttl: None, initial: None, ticket: None }
    }
}

/// A number after its change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    pub value: u64,
    /// The CAS token of the entry after the change.
    pub token: u64,
    /// The expiry of the entry before the change, in seconds of the store's time; `None` for never.
    pub expiry_seconds: Option<u64>,
    /// Whether the entry was created with its initial number.
    pub is_new: bool,
}

/// A number that replaces an item.
struct NewNumber {
    value: u64,
    /// Bytes of its text.
    width: usize,
    life: Lifetime,
    extension: Extension,
}

impl Store {
    /// Changes the number in an entry.
    ///
    /// # Errors
    /// `NotNumeric`; `NeedSegment`: run `evict` and try again; `KeyLength`.
    pub fn change_number(
        &self,
        participant: &Participant,
        (key, hash): (&[u8], u64),
        count: &Count,
        now_ms: u64,
    ) -> Result<Changed<Number>, Error> {
        check_key(key)?;
        let moment = self.moment(now_ms);
        loop {
            let fits_in_place = count.ttl.is_none() && count.token.is_none();
            if fits_in_place && let Some(changed) = self.change_in_place((key, hash), count, moment) {
                return Ok(changed);
            }
            let pin = participant.pin();
            let found = self.index.find_exact(hash, |slot| self.is_key(slot, key));
            let live = found.filter(|found| self.is_live(&self.item(found.slot), moment));
            let Some(found) = live else {
                drop(pin);
                match self.create_number(participant, (key, hash), count, moment)? {
                    Some(changed) => return Ok(changed),
                    None => continue,
                }
            };
            if let Some(changed) = self.replace_number(participant, (key, hash), &found, count, moment)? {
                return Ok(changed);
            }
        }
    }

    /// Changes a numeric item in place, if the number fits its width and its token is not stored in the item. `None`,
    /// with nothing changed, otherwise.
    fn change_in_place(&self, (key, hash): (&[u8], u64), count: &Count, moment: Moment) -> Option<Changed<Number>> {
        let mut pair = self.index.lock_pair(hash);
        let place = pair.find(|slot| self.is_key(slot, key))?;
        let item = self.item(place.slot);
        if item.header.kind() != Kind::Numeric || !self.is_live(&item, moment) {
            return None;
        }
        // SAFETY: the item's bucket is locked.
        let ((number, width), extension) =
            unsafe { (item.number(&self.segments.arena), item.extension(&self.segments.arena)) };
        if count.expected.is_some_and(|token| !self.token_fits(&item, hash, pair.sequence(&place), token)) {
            return Some(Changed::Exists);
        }
        let value = count.change.apply(number);
        if number_digits(value) > width || extension.token.is_some() {
            return None;
        }
        self.load_tickets.void(hash);
        // SAFETY: as above.
        unsafe { item.set_number(&self.segments.arena, value) };
        pair.mark_changed(&place);
        self.forget_issued_token(hash);
        let token = self.token(pair.next_sequence());
        let expiry_seconds = self.expiry_seconds(&item);
        Some(Changed::Done(Number { value, token, expiry_seconds, is_new: false }))
    }

    /// Creates an absent entry with its initial number. `None` if it exists by now.
    fn create_number(
        &self,
        participant: &Participant,
        target: (&[u8], u64),
        count: &Count,
        moment: Moment,
    ) -> Result<Option<Changed<Number>>, Error> {
        let Some((value, ttl)) = count.initial else { return Ok(Some(Changed::Absent)) };
        let extension = Extension { token: count.token, ..Extension::default() };
        let Some(life) = self.lifetime(ttl, moment) else {
            if count.ticket.is_some_and(|ticket| !self.is_load_valid(target.1, ticket)) {
                return Ok(Some(Changed::Absent));
            }
            let number = Number { value, token: self.token(0), expiry_seconds: None, is_new: true };
            return Ok(Some(Changed::Done(number)));
        };
        let mut digits = [0; NUMBER_TEXT_BYTES];
        let length = print_number(value, 0, &mut digits);
        let (flags, exact, value_length) = (Flags::default(), life.exact, length as u32);
        let head = Head { key: target.0, flags, extension, exact, kind: Kind::Plain, value_length };
        let terms = (life, count.ticket.map_or(Condition::Absent, Condition::Load));
        match self.write_plain(participant, &head, target, &digits[..length], terms, moment)? {
            Outcome::Done { token } => {
                self.counters.add(participant.number(), Counter::Stored, 1);
                Ok(Some(Changed::Done(Number { value, token, expiry_seconds: life.expiry_seconds, is_new: true })))
            }
            _ if count.ticket.is_some_and(|ticket| !self.is_load_valid(target.1, ticket)) => Ok(Some(Changed::Absent)),
            Outcome::Absent | Outcome::Present | Outcome::Flushed => Ok(None),
        }
    }

    /// The number in an item that the caller has pinned, and the bytes of its text.
    fn number_of(&self, item: &ItemAt) -> Result<(u64, usize), Error> {
        let arena = &self.segments.arena;
        match item.header.kind() {
            // SAFETY: pinned.
            Kind::Numeric => Ok(unsafe { item.number(arena) }).map(|(number, width)| (number, width.into())),
            Kind::Plain => {
                let length = item.header.value_length() as usize;
                // SAFETY: pinned.
                let value = unsafe { arena.slice(item.value_at(), length) };
                parse_number(value).map(|number| (number, length)).ok_or(Error::NotNumeric)
            }
            Kind::Chained | Kind::Structured => Err(Error::NotNumeric),
        }
    }

    /// Replaces an item that was found by the changed number. `None` if it has changed meanwhile. The caller is pinned.
    pub(super) fn replace_number(
        &self,
        participant: &Participant,
        target: (&[u8], u64),
        found: &Found,
        count: &Count,
        moment: Moment,
    ) -> Result<Option<Changed<Number>>, Error> {
        let item = self.item(found.slot);
        let sequence = found.control.sequence();
        if count.expected.is_some_and(|token| !self.token_fits(&item, target.1, sequence, token)) {
            return Ok(Some(Changed::Exists));
        }
        let (number, old_width) = self.number_of(&item)?;
        let value = count.change.apply(number);
        let width = old_width.max(number_digits(value).into());
        // SAFETY: the caller is pinned.
        let old = unsafe { item.extension(&self.segments.arena) };
        // In memcached a number that outgrows its width is another value: the flags of the old one do not apply.
        let extension = match width > old_width {
            true => Extension { token: count.token, ..Extension::default() },
            false => Extension { token: count.token, copied: false, ..old },
        };
        let expiry_seconds = self.expiry_seconds(&item);
        let kept = || Some(self.lifetime_until(expiry_seconds, moment));
        let word = match count.expected {
            Some(_) => SeenWord::Uncounted { sequence },
            None => SeenWord::Equal(number),
        };
        let condition = Condition::Unchanged(SeenItem { at: item.at, word });
        let outcome = match count.ttl.map_or_else(kept, |ttl| self.lifetime(ttl, moment)) {
            Some(life) => {
                let new = NewNumber { value, width, life, extension };
                self.publish_number(participant, target, &item, &new, condition, moment)?
            }
            None => self.remove(participant, target, condition, moment),
        };
        Ok(match outcome {
            Outcome::Done { token } => Some(Changed::Done(Number { value, token, expiry_seconds, is_new: false })),
            Outcome::Absent | Outcome::Present | Outcome::Flushed => None,
        })
    }

    fn publish_number(
        &self,
        participant: &Participant,
        target: (&[u8], u64),
        item: &ItemAt,
        new: &NewNumber,
        condition: Condition,
        moment: Moment,
    ) -> Result<Outcome, Error> {
        let arena = &self.segments.arena;
        let &NewNumber { value, width, life, extension } = new;
        let is_numeric = width <= NUMBER_TEXT_BYTES;
        let (kind, value_length) =
            if is_numeric { (Kind::Numeric, NUMERIC_BYTES) } else { (Kind::Plain, width as u32) };
        // SAFETY: the caller has pinned the item.
        let flags = unsafe { item.flags(arena) };
        let head = Head { key: target.0, flags, extension, exact: life.exact, kind, value_length };
        let size = head.size() as u32;
        let Some(reserved) = self.reserve(participant, size, life, moment) else { return Err(Error::NeedSegment) };
        let value_at = self.write_head(&reserved, &head);
        if is_numeric {
            self.write_number(value_at, value, width as u8);
        } else {
            let mut digits = [0; NUMBER_TEXT_BYTES];
            let length = print_number(value, 0, &mut digits);
            let mut text = digits[..length].to_vec();
            text.resize(width, b' ');
            // SAFETY: the reservation owns the range.
            unsafe { arena.write(value_at, &text) };
        }
        let at = Location::new(reserved.segment, reserved.offset);
        let new = NewItem { at, size, body_bytes: 0, token: extension.token, is_copy: false, keeps_token: false };
        self.publish(participant, target, condition, new, reserved, moment)
    }

    /// Fills the value part of a numeric item that is not published yet.
    pub(crate) fn write_number(&self, value_at: Location, number: u64, width: u8) {
        let arena = &self.segments.arena;
        let mut part = [0; NUMERIC_BYTES as usize];
        part[0] = width;
        // SAFETY: the caller owns the unpublished range; the word lies in it, and Relaxed is enough before publication.
        unsafe {
            arena.write(value_at, &part);
            arena.word(number_word(value_at)).store(number, Ordering::Relaxed);
        }
    }
}
