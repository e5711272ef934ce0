//! set, add, replace and cas: a new value for a key.

use crate::condition::{Condition, Outcome, SeenItem, SeenWord};
use crate::epoch::Participant;
use crate::error::Error;
use crate::flags::Flags;
use crate::item::{Extension, KEY_LIMIT, Kind};
use crate::lower_copy::LowerCopy;
use crate::publish::NewItem;
use crate::segment::Location;
use crate::stats::Counter;
use crate::store::{Head, Store};
use crate::time::Moment;
use crate::ttl::{Lifetime, Ttl};

/// The storage commands of memcached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Store unconditionally.
    Set,
    /// Store only if the key is absent.
    Add,
    /// Store only if the key is present.
    Replace,
    /// Append to the present value; flags and expiry stay.
    Append,
    /// Prepend to the present value; flags and expiry stay.
    Prepend,
    /// Store only if the present value still has this token.
    Cas(u64),
    /// As `Cas`; but if the token is lower than that of the present value, store as stale, with the expiry of the
    /// present value.
    CasOrStale(u64),
    /// As `Append`, but only if the present value still has this token.
    AppendIf(u64),
    /// As `Prepend`, but only if the present value still has this token.
    PrependIf(u64),
    /// Promote the copy `copy` of the lower tier, if the key is absent and the copy is current. The TTL of the write is
    /// ignored: the item expires at this second of the store's time, or never.
    Promote { copy: LowerCopy, until: Option<u64> },
    /// Store only if the key is absent and has not changed since `Store::begin_load` gave this ticket.
    Load(u64),
    /// Store only if the key has not changed since `Store::begin_reload` gave this ticket.
    Reload(u64),
    /// As `Add`, for a key that a lower tier does not have: store only if the key is absent, and has not changed since
    /// `Store::begin_load` gave this ticket. `Exists` otherwise.
    AddSince(u64),
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    Stored,
    /// The condition of add, replace, append or prepend was not met.
    NotStored,
    /// The value, or its bucket, has changed since the token was issued: read it again.
    Exists,
    /// The key is absent, so no token is valid.
    NotFound,
}

/// The result of a write, and the token of the stored value.
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

/// The result of a change that may depend on a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed<T> {
    Done(T),
    /// There is no such entry.
    Absent,
    /// The entry, or its bucket, has changed since the token was issued: read it again.
    Exists,
}

/// A write.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    pub key: &'a [u8],
    /// The store's hash of the key.
    pub hash: u64,
    pub value: &'a [u8],
    /// Flags of a client, or an annotation.
    pub flags: Flags,
    pub ttl: Ttl,
    pub mode: Mode,
    /// The CAS token of the new value; by default one of the store.
    pub token: Option<u64>,
}

impl Mode {
    /// Whether the write adds to the present value.
    pub fn extends(self) -> bool {
        matches!(self, Self::Append | Self::Prepend | Self::AppendIf(_) | Self::PrependIf(_))
    }

    pub(super) fn appends(self) -> bool {
        matches!(self, Self::Append | Self::AppendIf(_))
    }

    /// Whether the condition depends on the present value, which is read again if it has changed.
    pub(super) fn reads_first(self) -> bool {
        matches!(self, Self::CasOrStale(_))
    }

    /// The extension of a new value, with the token that a client gave.
    fn extension(self, token: Option<u64>) -> Extension {
        Extension { copied: matches!(self, Self::Promote { .. }), token, ..Extension::default() }
    }

    fn answer(self, outcome: Outcome) -> Written {
        let stored = match (self, outcome) {
            (_, Outcome::Done { token }) => return Written { stored: Stored::Stored, token },
            (Self::Cas(_) | Self::CasOrStale(_), Outcome::Absent) => Stored::NotFound,
            (Self::Cas(_) | Self::CasOrStale(_) | Self::AddSince(_), Outcome::Present) => Stored::Exists,
            _ => Stored::NotStored,
        };
        stored.into()
    }
}

/// The condition, lifetime and extension of a new value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub condition: Condition,
    /// `None`: expired already.
    pub life: Option<Lifetime>,
    pub extension: Extension,
}

impl Store {
    /// Carries out a write.
    ///
    /// # Errors
    /// `NeedSegment`: run `evict` and try again. `TooLarge`, `KeyLength`: it can never be stored. In no case is
    /// anything changed: a caller that must not leave an old value behind deletes it.
    pub fn write(&self, participant: &Participant, write: &Write<'_>, now_ms: u64) -> Result<Written, Error> {
        check_key(write.key)?;
        if write.mode.extends() {
            return self.extend(participant, write, now_ms);
        }
        let moment = self.moment(now_ms);
        // A value stored as stale gets the expiry of the present one.
        let is_over = || !write.mode.reads_first() && self.lifetime(write.ttl, moment).is_none();
        let length = write.value.len() as u64;
        if length > self.options.value_bytes_max && !is_over() {
            return Err(Error::TooLarge { bytes: length, limit: self.options.value_bytes_max });
        }
        let extension = write.mode.extension(write.token);
        let (flags, value_length) = (write.flags, length as u32);
        let head = Head { key: write.key, flags, extension, exact: None, kind: Kind::Plain, value_length };
        if !head.fits(self.segments.segment_bytes()) && !is_over() {
            return self.write_chained(participant, write, now_ms);
        }
        if write.mode.reads_first() {
            return self.write_after_reading(participant, write, moment);
        }
        let terms = self.terms_without_reading(write.mode, write.ttl, write.token, moment);
        loop {
            let outcome = self.write_once(participant, write, terms, moment)?;
            if outcome != Outcome::Flushed {
                return Ok(self.written(participant, write.mode, outcome));
            }
        }
    }

    /// A write whose terms depend on the present value, which is read again if it has changed.
    #[cold]
    fn write_after_reading(
        &self,
        participant: &Participant,
        write: &Write<'_>,
        moment: Moment,
    ) -> Result<Written, Error> {
        loop {
            let _pin = participant.pin();
            let terms = match self.terms((write.key, write.hash), write.mode, write.ttl, write.token, moment) {
                Ok(terms) => terms,
                Err(refused) => return Ok(refused.into()),
            };
            let outcome = self.write_once(participant, write, terms, moment)?;
            if !matches!(outcome, Outcome::Flushed | Outcome::Present) {
                return Ok(self.written(participant, write.mode, outcome));
            }
        }
    }

    /// A try of a write on these terms.
    #[inline(always)]
    fn write_once(
        &self,
        participant: &Participant,
        write: &Write<'_>,
        terms: Terms,
        moment: Moment,
    ) -> Result<Outcome, Error> {
        let (target, condition) = ((write.key, write.hash), terms.condition);
        let Some(life) = terms.life else { return Ok(self.write_expired(participant, target, terms, moment)) };
        if self.must_fail(participant, target, condition, moment) {
            return Ok(match condition {
                Condition::Absent | Condition::Copy(_) | Condition::Load(_) => Outcome::Present,
                _ => Outcome::Absent,
            });
        }
        let (flags, extension, value_length) = (write.flags, terms.extension, write.value.len() as u32);
        let head = Head { key: write.key, flags, extension, exact: life.exact, kind: Kind::Plain, value_length };
        self.write_plain(participant, &head, target, write.value, (life, condition), moment)
    }

    /// The terms of a write; an error means that it fails. If the mode reads first, the caller is pinned.
    #[inline(always)]
    pub(super) fn terms(
        &self,
        target: (&[u8], u64),
        mode: Mode,
        ttl: Ttl,
        token: Option<u64>,
        moment: Moment,
    ) -> Result<Terms, Stored> {
        if let Mode::CasOrStale(expected) = mode {
            let valid = (self.lifetime(ttl, moment), mode.extension(token));
            return self.terms_of_stale(target, expected, valid, moment);
        }
        Ok(self.terms_without_reading(mode, ttl, token, moment))
    }

    /// The terms of a write that does not read first.
    #[inline(always)]
    fn terms_without_reading(&self, mode: Mode, ttl: Ttl, token: Option<u64>, moment: Moment) -> Terms {
        let extension = mode.extension(token);
        let life = self.lifetime(ttl, moment);
        let condition = match mode {
            Mode::Set => Condition::Always,
            Mode::Add => Condition::Absent,
            Mode::Load(ticket) | Mode::AddSince(ticket) => Condition::Load(ticket),
            Mode::Reload(ticket) => Condition::Reload(ticket),
            Mode::Replace | Mode::Append | Mode::Prepend | Mode::AppendIf(_) | Mode::PrependIf(_) => Condition::Present,
            Mode::Cas(token) => Condition::Token(token),
            Mode::Promote { copy, until } => {
                let is_over = until.is_some_and(|seconds| seconds <= moment.seconds());
                let life = (!is_over).then(|| self.lifetime_until(until, moment));
                return Terms { condition: Condition::Copy(copy), life, extension };
            }
            Mode::CasOrStale(_) => unreachable!("this mode reads first"),
        };
        Terms { condition, life, extension }
    }

    /// The terms of `CasOrStale`, of which the life and the extension are for a token that is still valid.
    #[cold]
    fn terms_of_stale(
        &self,
        target: (&[u8], u64),
        expected: u64,
        (life, extension): (Option<Lifetime>, Extension),
        moment: Moment,
    ) -> Result<Terms, Stored> {
        let found = self.index.find_exact(target.1, |slot| self.is_key(slot, target.0));
        let found = found.ok_or(Stored::NotFound)?;
        let item = self.item(found.slot);
        if !self.is_live(&item, moment) {
            return Err(Stored::NotFound);
        }
        let sequence = found.control.sequence();
        let present = self.token_of(&item, sequence);
        let condition = |word| Condition::Unchanged(SeenItem { at: item.at, word });
        let is_present = self.is_issued(target.1, expected);
        if expected > present && !is_present {
            return Err(Stored::Exists);
        }
        if expected < present && !is_present {
            let life = Some(self.lifetime_until(self.expiry_seconds(&item), moment));
            // SAFETY: the caller is pinned.
            let won = unsafe { item.extension(&self.segments.arena) }.won;
            // Tokens only increase: the expected one stays lower.
            let condition = condition(SeenWord::Any);
            return Ok(Terms { condition, life, extension: Extension { stale: true, won, ..extension } });
        }
        Ok(Terms { condition: condition(SeenWord::Uncounted { sequence }), life, extension })
    }

    /// A write that has expired already: the present value is removed.
    #[cold]
    pub(super) fn write_expired(
        &self,
        participant: &Participant,
        target: (&[u8], u64),
        terms: Terms,
        moment: Moment,
    ) -> Outcome {
        match (terms.condition, self.remove(participant, target, terms.condition, moment)) {
            // Nothing had to be removed, which is a success. No entry ever has the token of sequence 0.
            (Condition::Always | Condition::Absent | Condition::Load(_), Outcome::Absent) => {
                Outcome::Done { token: self.token(0) }
            }
            (_, outcome) => outcome,
        }
    }

    /// Publishes a plain item, once.
    #[inline(always)]
    pub(super) fn write_plain(
        &self,
        participant: &Participant,
        head: &Head<'_>,
        target: (&[u8], u64),
        value: &[u8],
        (life, condition): (Lifetime, Condition),
        moment: Moment,
    ) -> Result<Outcome, Error> {
        let size = head.size() as u32;
        // The buckets arrive while the item is written.
        self.index.prefetch(target.1);
        let Some(reserved) = self.reserve(participant, size, life, moment) else { return Err(Error::NeedSegment) };
        let value_at = self.write_head(&reserved, head);
        // SAFETY: the reservation owns the range.
        unsafe { self.segments.arena.write(value_at, value) };
        let at = Location::new(reserved.segment, reserved.offset);
        let new = NewItem { at, size, body_bytes: 0, token: head.extension.token, is_copy: false, keeps_token: false };
        self.publish(participant, target, condition, new, reserved, moment)
    }

    /// Whether the condition fails now, so that the item need not be written first.
    #[inline(always)]
    fn must_fail(&self, participant: &Participant, target: (&[u8], u64), condition: Condition, moment: Moment) -> bool {
        !matches!(condition, Condition::Always | Condition::Reload(_) | Condition::Unchanged { .. })
            && self.fails_by_presence(participant, target, condition, moment)
    }

    /// Whether the key is present now and must be absent, or the other way round. Apart from the path of a set.
    #[inline(never)]
    fn fails_by_presence(
        &self,
        participant: &Participant,
        target: (&[u8], u64),
        condition: Condition,
        moment: Moment,
    ) -> bool {
        let _pin = participant.pin();
        let found = self.index.find(target.1, |slot| self.is_key(slot, target.0));
        let live = found.is_some_and(|found| self.is_live(&self.item(found.slot), moment));
        live == matches!(condition, Condition::Absent | Condition::Copy(_) | Condition::Load(_))
    }

    #[inline]
    pub(super) fn written(&self, participant: &Participant, mode: Mode, outcome: Outcome) -> Written {
        let written = mode.answer(outcome);
        if written.stored == Stored::Stored && !matches!(mode, Mode::Promote { .. }) {
            self.counters.add(participant.number(), Counter::Stored, 1);
        }
        written
    }
}

/// Refuses keys of a length that no item can have.
pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    if key.is_empty() || key.len() > KEY_LIMIT {
        return Err(Error::KeyLength { length: key.len() });
    }
    Ok(())
}
