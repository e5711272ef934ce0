//! append and prepend: the old value and new bytes become a new value; flags and expiry stay.

use super::write::{Mode, Stored, Write, Written};
use crate::condition::{Condition, Outcome, SeenItem, SeenWord};
use crate::epoch::Participant;
use crate::error::Error;
use crate::item::{Extension, Kind};
use crate::ops::read::{Item, LookupUse};
use crate::publish::NewItem;
use crate::segment::Location;
use crate::store::{Head, Store};
use crate::time::Moment;

impl Store {
    pub(super) fn extend(&self, participant: &Participant, write: &Write<'_>, now_ms: u64) -> Result<Written, Error> {
        let moment = self.moment(now_ms);
        loop {
            let target = (write.key, write.hash);
            let Some(item) = self.look_up_exact(participant, target, moment, LookupUse::Counted) else {
                return Ok(Stored::NotStored.into());
            };
            if let Mode::AppendIf(token) | Mode::PrependIf(token) = write.mode
                && !self.token_fits(&item.item_at(), write.hash, item.sequence(), token)
            {
                return Ok(Stored::Exists.into());
            }
            if item.is_structured() {
                return Err(Error::Structured);
            }
            let length = (item.len() + write.value.len()) as u64;
            if length > self.options.value_bytes_max {
                return Err(Error::TooLarge { bytes: length, limit: self.options.value_bytes_max });
            }
            let kind = Kind::Plain;
            let value_length = u32::try_from(length).expect("values have at most 2^30 bytes");
            // The flags and the token of the old value do not apply to the new one.
            let extension = Extension { token: write.token, ..Extension::default() };
            let head = Head { key: write.key, flags: item.flags(), extension, exact: None, kind, value_length };
            let outcome = if head.fits(self.segments.segment_bytes()) {
                self.extend_plain(participant, write, item, &head, moment)?
            } else {
                self.extend_chained(participant, write, item, now_ms)?
            };
            match outcome {
                Outcome::Done { .. } => return Ok(self.written(participant, write.mode, outcome)),
                Outcome::Absent => return Ok(Stored::NotStored.into()),
                Outcome::Present | Outcome::Flushed => {}
            }
        }
    }

    fn extend_plain(
        &self,
        participant: &Participant,
        write: &Write<'_>,
        item: Item<'_>,
        head: &Head<'_>,
        moment: Moment,
    ) -> Result<Outcome, Error> {
        let life = self.lifetime_until(item.expiry_seconds(), moment);
        let head = Head { exact: life.exact, ..*head };
        let size = head.size() as u32;
        let Some(reserved) = self.reserve(participant, size, life, moment) else { return Err(Error::NeedSegment) };
        let mut value_at = self.write_head(&reserved, &head);
        let mut put = |bytes: &[u8]| {
            // SAFETY: the reservation owns the range; the old value lies elsewhere.
            unsafe { self.segments.arena.write(value_at, bytes) };
            value_at = value_at.plus(bytes.len() as u32);
        };
        if !write.mode.appends() {
            put(write.value);
        }
        item.each_slice(&mut put);
        if write.mode.appends() {
            put(write.value);
        }
        let at = Location::new(reserved.segment, reserved.offset);
        let new = NewItem { at, size, body_bytes: 0, token: head.extension.token, is_copy: false, keeps_token: false };
        let condition = item.unchanged_for(write.mode);
        self.publish(participant, (write.key, write.hash), condition, new, reserved, moment)
    }
}

impl Item<'_> {
    /// The condition that the item is unchanged, and its word equal, if it changes in place.
    pub(super) fn unchanged(&self) -> Condition {
        Condition::Unchanged(SeenItem { at: self.at(), word: self.seen_word() })
    }

    /// The condition that the item is unchanged, for a write of this mode, which may depend on a token.
    pub(super) fn unchanged_for(&self, mode: Mode) -> Condition {
        match mode {
            Mode::AppendIf(_) | Mode::PrependIf(_) => {
                let word = SeenWord::Uncounted { sequence: self.sequence() };
                Condition::Unchanged(SeenItem { at: self.at(), word })
            }
            _ => self.unchanged(),
        }
    }
}
