//! set, add, replace and cas: a new value takes the key.

use crate::epoch::Participant;
use crate::error::Error;
use crate::item::{KEY_LIMIT, Kind};
use crate::segment::Location;
use crate::stats::Counter;
use crate::store::{Condition, Head, NewItem, Outcome, Store};
use crate::time::Moment;
use crate::ttl::Ttl;

/// What a write asks for: memcached's storage commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Store, whatever is there.
    Set,
    /// Store only if the key is absent.
    Add,
    /// Store only if the key is present.
    Replace,
    /// Put the value after the present one; flags and expiry stay.
    Append,
    /// Put the value before the present one; flags and expiry stay.
    Prepend,
    /// Store only if the present value still has this token.
    Cas(u64),
}

/// What came of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    Stored,
    /// The condition of add, replace, append or prepend was not met.
    NotStored,
    /// The value has changed since the token was handed out, or its bucket has: read it again.
    Exists,
    /// There is no value for the token to be about.
    NotFound,
}

/// A write.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    pub key: &'a [u8],
    /// The store's hash of the key.
    pub hash: u64,
    pub value: &'a [u8],
    /// Client flags.
    pub flags: u32,
    pub ttl: Ttl,
    pub mode: Mode,
}

impl Mode {
    pub(crate) fn condition(self) -> Condition {
        match self {
            Self::Set => Condition::Always,
            Self::Add => Condition::Absent,
            Self::Replace | Self::Append | Self::Prepend => Condition::Present,
            Self::Cas(token) => Condition::Token(token),
        }
    }

    pub(crate) fn answer(self, outcome: Outcome) -> Stored {
        match (self, outcome) {
            (Self::Set, _) | (_, Outcome::Done) => Stored::Stored,
            (Self::Cas(_), Outcome::Absent) => Stored::NotFound,
            (Self::Cas(_), Outcome::Present) => Stored::Exists,
            _ => Stored::NotStored,
        }
    }
}

impl Store {
    /// Carries out a write.
    ///
    /// # Errors
    /// `NeedSegment`: run `evict` and try again. `TooLarge`, `KeyLength`: it can never be stored. In no case is anything
    /// changed: where no old value may stay behind, the caller deletes it.
    pub fn write(&self, participant: &Participant, write: &Write<'_>, now_ms: u64) -> Result<Stored, Error> {
        check_key(write.key)?;
        if let Mode::Append | Mode::Prepend = write.mode {
            return self.extend(participant, write, now_ms);
        }
        let moment = self.moment(now_ms);
        let condition = write.mode.condition();
        let target = (write.key, write.hash);
        let Some(life) = self.life(write.ttl, moment) else {
            let outcome = self.publish(participant, target, condition, None, moment);
            let outcome =
                if condition == Condition::Absent && outcome == Outcome::Absent { Outcome::Done } else { outcome };
            return Ok(self.stored(participant, write.mode, outcome));
        };
        let length = write.value.len() as u64;
        if length > self.options.value_bytes_max {
            return Err(Error::TooLarge { bytes: length, limit: self.options.value_bytes_max });
        }
        let head = Head { key: write.key, flags: write.flags, kind: Kind::Plain, value_length: length as u32 };
        if head.size() > u64::from(self.segments.segment_bytes()) {
            return self.write_chained(participant, write, now_ms);
        }
        if condition != Condition::Always && self.refuses(participant, target, condition, moment) {
            let outcome = if condition == Condition::Absent { Outcome::Present } else { Outcome::Absent };
            return Ok(write.mode.answer(outcome));
        }
        loop {
            let reserved = self.reserve(participant, head.size() as u32, life, moment)?;
            let value_at = self.write_head(&reserved, &head);
            // SAFETY: the reservation owns the range.
            unsafe { self.segments.arena.write(value_at, write.value) };
            let at = Location::new(reserved.segment, reserved.offset);
            let size = head.size() as u32;
            let new = NewItem { at, size, body_bytes: 0, inherits_body: false };
            let outcome = self.publish(participant, target, condition, Some(new), moment);
            if outcome == Outcome::Flushed {
                continue;
            }
            if outcome == Outcome::Done {
                reserved.commit(&self.segments);
            }
            return Ok(self.stored(participant, write.mode, outcome));
        }
    }

    /// Whether the condition is hopeless now, so that nothing needs to be written to find out.
    fn refuses(&self, participant: &Participant, target: (&[u8], u64), condition: Condition, moment: Moment) -> bool {
        let _pin = participant.pin();
        let found = self.index.find(target.1, |slot| self.is_key(slot, target.0));
        let live = found.is_some_and(|found| self.is_live(&self.item(found.slot), moment));
        live == (condition == Condition::Absent)
    }

    fn stored(&self, participant: &Participant, mode: Mode, outcome: Outcome) -> Stored {
        let stored = mode.answer(outcome);
        if stored == Stored::Stored {
            self.counters.add(participant.number(), Counter::Stored, 1);
        }
        stored
    }
}

/// Refuses keys that no item can have.
pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    if key.is_empty() || key.len() > KEY_LIMIT {
        return Err(Error::KeyLength { length: key.len() });
    }
    Ok(())
}
