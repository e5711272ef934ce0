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
    /// As `Append`, but only if the present value still has this token.
    AppendIf(u64),
    /// As `Prepend`, but only if the present value still has this token.
    PrependIf(u64),
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

/// What came of a write, and the token of what it stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub stored: Stored,
    /// 0 if nothing was stored.
    pub token: u64,
}

impl From<Stored> for Written {
    fn from(stored: Stored) -> Self {
        Self { stored, token: 0 }
    }
}

/// What came of a change to an entry that may be bound to a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed<T> {
    Done(T),
    /// There is no such entry.
    Absent,
    /// The entry has changed since the token was handed out, or its bucket has: read it again.
    Exists,
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
            Self::Cas(token) | Self::AppendIf(token) | Self::PrependIf(token) => Condition::Token(token),
        }
    }

    /// Whether the value is put to the present one.
    pub fn extends(self) -> bool {
        matches!(self, Self::Append | Self::Prepend | Self::AppendIf(_) | Self::PrependIf(_))
    }

    pub(crate) fn puts_behind(self) -> bool {
        matches!(self, Self::Append | Self::AppendIf(_))
    }

    pub(crate) fn answer(self, outcome: Outcome) -> Written {
        let stored = match (self, outcome) {
            (_, Outcome::Done { token }) => return Written { stored: Stored::Stored, token },
            (Self::Cas(_), Outcome::Absent) => Stored::NotFound,
            (Self::Cas(_), Outcome::Present) => Stored::Exists,
            _ => Stored::NotStored,
        };
        stored.into()
    }
}

impl Store {
    /// Carries out a write.
    ///
    /// # Errors
    /// `NeedSegment`: run `evict` and try again. `TooLarge`, `KeyLength`: it can never be stored. In no case is anything
    /// changed: where no old value may stay behind, the caller deletes it.
    pub fn write(&self, participant: &Participant, write: &Write<'_>, now_ms: u64) -> Result<Written, Error> {
        check_key(write.key)?;
        if write.mode.extends() {
            return self.extend(participant, write, now_ms);
        }
        let moment = self.moment(now_ms);
        let condition = write.mode.condition();
        let target = (write.key, write.hash);
        let Some(life) = self.life(write.ttl, moment) else {
            let outcome = self.publish(participant, target, condition, None, moment);
            return Ok(self.over_at_once(participant, write.mode, outcome));
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
            if let Outcome::Done { .. } = outcome {
                reserved.commit(&self.segments);
            }
            return Ok(self.written(participant, write.mode, outcome));
        }
    }

    /// The answer to a write whose life is over already, from the outcome of the removal of the key.
    pub(super) fn over_at_once(&self, participant: &Participant, mode: Mode, outcome: Outcome) -> Written {
        match (mode, outcome) {
            // There was nothing to remove, which is as well. No entry ever has the token of a bucket's beginning.
            (Mode::Set | Mode::Add, Outcome::Absent) => {
                let token = self.token(0);
                self.written(participant, mode, Outcome::Done { token })
            }
            _ => self.written(participant, mode, outcome),
        }
    }

    /// Whether the condition is hopeless now, so that nothing needs to be written to find out.
    fn refuses(&self, participant: &Participant, target: (&[u8], u64), condition: Condition, moment: Moment) -> bool {
        let _pin = participant.pin();
        let found = self.index.find(target.1, |slot| self.is_key(slot, target.0));
        let live = found.is_some_and(|found| self.is_live(&self.item(found.slot), moment));
        live == (condition == Condition::Absent)
    }

    pub(super) fn written(&self, participant: &Participant, mode: Mode, outcome: Outcome) -> Written {
        let written = mode.answer(outcome);
        if written.stored == Stored::Stored {
            self.counters.add(participant.number(), Counter::Stored, 1);
        }
        written
    }
}

/// Refuses keys that no item can have.
pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    if key.is_empty() || key.len() > KEY_LIMIT {
        return Err(Error::KeyLength { length: key.len() });
    }
    Ok(())
}
