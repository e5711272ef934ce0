//! incr and decr: the first one turns a decimal value into a numeric item, later ones change its word in place.
//!
//! As memcached does, a value never gets shorter: a smaller number is printed with spaces after it. A number that outgrows
//! its width gets a new item. Values longer than any number (digits followed by other text) stay plain.

use super::write::{Changed, check_key};
use crate::epoch::Participant;
use crate::error::Error;
use crate::item::{
    ItemAt, Kind, NUMBER_TEXT_BYTES, NUMERIC_BYTES, number_digits, number_word, parse_number, print_number,
};
use crate::segment::Location;
use crate::store::{Condition, Head, NewItem, Outcome, Store};
use crate::sync::Ordering;
use crate::time::Moment;

/// What is done to a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds, modulo 2^64.
    Add(u64),
    /// Subtracts, not below zero.
    Subtract(u64),
}

/// A number after its change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    pub value: u64,
    /// The CAS token that the entry has now.
    pub token: u64,
}

impl Change {
    fn apply(self, number: u64) -> u64 {
        match self {
            Self::Add(delta) => number.wrapping_add(delta),
            Self::Subtract(delta) => number.saturating_sub(delta),
        }
    }
}

impl Store {
    /// Changes the number in an entry, if a token is given only while the entry still has it.
    pub fn change_number(
        &self,
        participant: &Participant,
        (key, hash): (&[u8], u64),
        change: Change,
        expected: Option<u64>,
        now_ms: u64,
    ) -> Result<Changed<Number>, Error> {
        check_key(key)?;
        let moment = self.moment(now_ms);
        loop {
            if let Some(changed) = self.change_in_place((key, hash), change, expected, moment) {
                return Ok(changed);
            }
            let pin = participant.pin();
            let Some(found) = self.index.find(hash, |slot| self.is_key(slot, key)) else {
                return Ok(Changed::Absent);
            };
            let item = self.item(found.slot);
            if !self.is_live(&item, moment) {
                return Ok(Changed::Absent);
            }
            if expected.is_some_and(|token| token != self.token(found.control.sequence())) {
                return Ok(Changed::Exists);
            }
            let condition = Condition::Unchanged { at: item.at, token: found.control.sequence() };
            let (number, width) = self.number_of(&item)?;
            let number = change.apply(number);
            let width = width.max(number_digits(number).into());
            let outcome = self.replace_number(participant, (key, hash), &item, number, width, condition, moment)?;
            drop(pin);
            match outcome {
                Outcome::Done { token } => return Ok(Changed::Done(Number { value: number, token })),
                Outcome::Absent => return Ok(Changed::Absent),
                Outcome::Present | Outcome::Flushed => {}
            }
        }
    }

    /// Changes a numeric item whose width has room. `None`: nothing was changed.
    fn change_in_place(
        &self,
        (key, hash): (&[u8], u64),
        change: Change,
        expected: Option<u64>,
        moment: Moment,
    ) -> Option<Changed<Number>> {
        let mut pair = self.index.lock_pair(hash);
        let place = pair.find(|slot| self.is_key(slot, key))?;
        let item = self.item(place.slot);
        if item.header.kind != Kind::Numeric || !self.is_live(&item, moment) {
            return None;
        }
        if expected.is_some_and(|token| token != self.token(pair.token(&place))) {
            return Some(Changed::Exists);
        }
        // SAFETY: the item's bucket is locked.
        let (number, width) = unsafe { item.number(&self.segments.arena) };
        let number = change.apply(number);
        if number_digits(number) > width {
            return None;
        }
        // SAFETY: as above.
        unsafe { item.set_number(&self.segments.arena, number) };
        pair.mark_changed(&place);
        Some(Changed::Done(Number { value: number, token: self.token(pair.next_sequence()) }))
    }

    /// The number in an item that the caller has pinned, and the bytes that its value takes as text.
    fn number_of(&self, item: &ItemAt) -> Result<(u64, usize), Error> {
        let arena = &self.segments.arena;
        match item.header.kind {
            // SAFETY: pinned.
            Kind::Numeric => Ok(unsafe { item.number(arena) }).map(|(number, width)| (number, width.into())),
            Kind::Plain => {
                let length = item.header.value_length as usize;
                // SAFETY: pinned.
                let value = unsafe { arena.slice(item.value_at(), length) };
                parse_number(value).map(|number| (number, length)).ok_or(Error::NotNumeric)
            }
            Kind::Chained => Err(Error::NotNumeric),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what a publication needs, and the number")]
    fn replace_number(
        &self,
        participant: &Participant,
        target: (&[u8], u64),
        item: &ItemAt,
        number: u64,
        width: usize,
        condition: Condition,
        moment: Moment,
    ) -> Result<Outcome, Error> {
        let arena = &self.segments.arena;
        let is_numeric = width <= NUMBER_TEXT_BYTES;
        let (kind, value_length) =
            if is_numeric { (Kind::Numeric, NUMERIC_BYTES) } else { (Kind::Plain, width as u32) };
        // SAFETY: the caller has pinned the item.
        let head = Head { key: target.0, flags: unsafe { item.flags(arena) }, kind, value_length };
        let size = head.size() as u32;
        let expiry = self.segments.header(item.at.segment()).expiry_seconds(item.header.expiry);
        let reserved = self.reserve(participant, size, (self.bucket_until(expiry, moment), expiry), moment)?;
        let value_at = self.write_head(&reserved, &head);
        if is_numeric {
            self.write_number(value_at, number, width as u8);
        } else {
            let mut digits = [0; NUMBER_TEXT_BYTES];
            let length = print_number(number, 0, &mut digits);
            let mut text = digits[..length].to_vec();
            text.resize(width, b' ');
            // SAFETY: the reservation owns the range.
            unsafe { arena.write(value_at, &text) };
        }
        let at = Location::new(reserved.segment, reserved.offset);
        let new = NewItem { at, size, body_bytes: 0, inherits_body: false };
        let outcome = self.publish(participant, target, condition, Some(new), moment);
        if let Outcome::Done { .. } = outcome {
            reserved.commit(&self.segments);
        }
        Ok(outcome)
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
