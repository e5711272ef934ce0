//! delete, touch, get-and-touch: an entry goes, or lives on for another time.

use super::read::Item;
use super::write::{Changed, check_key};
use crate::epoch::Participant;
use crate::error::Error;
use crate::item::{ItemAt, Kind, NUMERIC_BYTES};
use crate::segment::Location;
use crate::store::{Condition, Head, NewItem, Outcome, Store};
use crate::time::Moment;
use crate::ttl::{Ttl, TtlBucket};

impl Store {
    /// Removes a key. False if nothing alive was there.
    pub fn delete(&self, participant: &Participant, key: &[u8], hash: u64, now_ms: u64) -> bool {
        let moment = self.moment(now_ms);
        matches!(self.publish(participant, (key, hash), Condition::Always, None, moment), Outcome::Done { .. })
    }

    /// Removes a key if its value still has this token.
    pub fn delete_if(&self, participant: &Participant, key: &[u8], hash: u64, token: u64, now_ms: u64) -> Changed<()> {
        let moment = self.moment(now_ms);
        match self.publish(participant, (key, hash), Condition::Token(token), None, moment) {
            Outcome::Done { .. } => Changed::Done(()),
            Outcome::Present => Changed::Exists,
            Outcome::Absent | Outcome::Flushed => Changed::Absent,
        }
    }

    /// Gives an entry a new life: copies it into a segment of that life. False if it is absent.
    pub fn touch(
        &self,
        participant: &Participant,
        key: &[u8],
        hash: u64,
        ttl: Ttl,
        now_ms: u64,
    ) -> Result<bool, Error> {
        check_key(key)?;
        let moment = self.moment(now_ms);
        let Some(life) = self.life(ttl, moment) else {
            let outcome = self.publish(participant, (key, hash), Condition::Present, None, moment);
            return Ok(outcome != Outcome::Absent);
        };
        loop {
            let pin = participant.pin();
            let Some(found) = self.index.find(hash, |slot| self.is_key(slot, key)) else {
                return Ok(false);
            };
            let item = self.item(found.slot);
            if !self.is_live(&item, moment) {
                return Ok(false);
            }
            if self.lives_until(&item, life) {
                return Ok(true);
            }
            let condition = Condition::Unchanged { at: item.at, token: found.control.sequence() };
            let outcome = self.copy_with_life(participant, (key, hash), &item, life, condition, moment)?;
            drop(pin);
            match outcome {
                Outcome::Done { .. } => return Ok(true),
                Outcome::Absent => return Ok(false),
                Outcome::Present | Outcome::Flushed => {}
            }
        }
    }

    /// Looks a key up and gives its entry a new life, as one operation. The answer to a life that is over already is the
    /// value, which is gone.
    pub fn get_and_touch(
        &self,
        participant: &Participant,
        key: &[u8],
        hash: u64,
        ttl: Ttl,
        now_ms: u64,
    ) -> Result<Option<Item<'_>>, Error> {
        check_key(key)?;
        let moment = self.moment(now_ms);
        let life = self.life(ttl, moment);
        loop {
            let Some(hit) = self.get(participant, key, hash, now_ms) else {
                return Ok(None);
            };
            let (item, condition) = (hit.item_at(), hit.unchanged());
            match life {
                None => match self.publish(participant, (key, hash), condition, None, moment) {
                    Outcome::Done { .. } => return Ok(Some(hit)),
                    Outcome::Absent => return Ok(None),
                    Outcome::Present | Outcome::Flushed => {}
                },
                Some(life) if self.lives_until(&item, life) => return Ok(Some(hit)),
                // The next look finds the copy, with the token that it has got.
                Some(life) => {
                    self.copy_with_life(participant, (key, hash), &item, life, condition, moment)?;
                }
            }
        }
    }

    /// Whether an item's expiry is already what that of a life would be written as.
    fn lives_until(&self, item: &ItemAt, (bucket, expiry_seconds): (TtlBucket, Option<u64>)) -> bool {
        let present = self.segments.header(item.at.segment()).expiry_seconds(item.header.expiry);
        let shift = self.chains.scale.shift(bucket);
        present == expiry_seconds.map(|seconds| seconds >> shift << shift)
    }

    /// Publishes a copy of an item, its bodies included, with another life.
    fn copy_with_life(
        &self,
        participant: &Participant,
        target: (&[u8], u64),
        item: &ItemAt,
        life: (TtlBucket, Option<u64>),
        condition: Condition,
        moment: Moment,
    ) -> Result<Outcome, Error> {
        let arena = &self.segments.arena;
        // SAFETY: the caller holds a pin under which it found the item.
        let flags = unsafe { item.flags(arena) };
        let head = Head { key: target.0, flags, kind: item.header.kind, value_length: item.header.value_length };
        let size = head.size() as u32;
        let reserved = self.reserve(participant, size, life, moment)?;
        let value_at = self.write_head(&reserved, &head);
        let at = Location::new(reserved.segment, reserved.offset);
        let mut body_bytes = 0;
        // SAFETY: the reservation owns the new range; the old one is pinned.
        unsafe {
            match item.header.kind {
                Kind::Plain => arena.copy(item.value_at(), value_at, item.header.value_length as usize),
                Kind::Numeric => {
                    let (number, width) = item.number(arena);
                    self.write_number(value_at, number, width);
                    debug_assert_eq!(head.value_length, NUMERIC_BYTES);
                }
                Kind::Chained => {
                    arena.copy(item.value_at(), value_at, item.header.value_length as usize);
                    body_bytes = self.body_bytes(item.chained(arena).total - item.tail().1);
                }
            }
        }
        let new = NewItem { at, size, body_bytes, inherits_body: item.header.kind == Kind::Chained };
        let outcome = self.publish(participant, target, condition, Some(new), moment);
        if let Outcome::Done { .. } = outcome {
            reserved.commit(&self.segments);
        }
        Ok(outcome)
    }
}
