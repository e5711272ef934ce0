//! delete, touch, get-and-touch: an entry is removed, or gets another expiry.
//!
//! Published bytes never change. So an item that gets another expiry or another extension is copied, and the copy
//! replaces it if it is unchanged (`Successor`).

use super::read::Item;
use super::write::{Changed, check_key};
use crate::condition::{Condition, Outcome, SeenItem, SeenWord};
use crate::epoch::Participant;
use crate::error::Error;
use crate::flags::Flags;
use crate::item::{Extension, ItemAt, Kind, NUMERIC_BYTES};
use crate::lower_copy::LowerCopy;
use crate::publish::NewItem;
use crate::segment::Location;
use crate::store::{Head, Store};
use crate::time::Moment;
use crate::ttl::{Lifetime, Ttl};

/// The copy of an item that replaces it and takes over its bodies.
pub(super) struct Successor<'i> {
    pub of: &'i ItemAt,
    /// Condition on its word. The copy takes over the present number or structured value.
    pub word: SeenWord,
    pub life: Lifetime,
    pub flags: Flags,
    pub extension: Extension,
    /// Whether a kept token of the item stands for the copy, too: not if it is marked as stale.
    pub keeps_token: bool,
}

impl Store {
    /// Removes a key. False if nothing alive was there.
    pub fn delete(&self, participant: &Participant, key: &[u8], hash: u64, now_ms: u64) -> bool {
        let moment = self.moment(now_ms);
        self.remove(participant, (key, hash), Condition::Always, moment).is_done()
    }

    /// Removes a key if the store has it. False, with nothing changed, if only the lower tier may have it.
    pub fn delete_present(&self, participant: &Participant, key: &[u8], hash: u64, now_ms: u64) -> bool {
        let moment = self.moment(now_ms);
        self.remove(participant, (key, hash), Condition::Present, moment).is_done()
    }

    /// Removes a key that was searched in the lower tier, where `copy` is the copy found. `Exists`, with nothing
    /// changed, if that is not the value of the key now: search again.
    pub fn delete_found(
        &self,
        participant: &Participant,
        (key, hash): (&[u8], u64),
        copy: Option<LowerCopy>,
        now_ms: u64,
    ) -> Changed<()> {
        let moment = self.moment(now_ms);
        match self.remove(participant, (key, hash), Condition::Found(copy), moment) {
            Outcome::Done { .. } => Changed::Done(()),
            Outcome::Present => Changed::Exists,
            Outcome::Absent | Outcome::Flushed => Changed::Absent,
        }
    }

    /// Removes a key if its value still has this token.
    pub fn delete_if(&self, participant: &Participant, key: &[u8], hash: u64, token: u64, now_ms: u64) -> Changed<()> {
        let moment = self.moment(now_ms);
        match self.remove(participant, (key, hash), Condition::Token(token), moment) {
            Outcome::Done { .. } => Changed::Done(()),
            Outcome::Present => Changed::Exists,
            Outcome::Absent | Outcome::Flushed => Changed::Absent,
        }
    }

    /// Removes a key if `accepts` is true of its item, as one operation. `Exists`, with nothing changed, if it is not
    /// accepted. `accepts` is called again if the item has changed or moved meanwhile.
    ///
    /// # Errors
    /// `KeyLength`.
    pub fn delete_accepted(
        &self,
        participant: &Participant,
        (key, hash): (&[u8], u64),
        now_ms: u64,
        accepts: impl Fn(&Item<'_>) -> bool,
    ) -> Result<Changed<()>, Error> {
        check_key(key)?;
        let moment = self.moment(now_ms);
        // Ends: each further round another operation on the key has ended, or maintenance has moved the item.
        loop {
            let Some(item) = self.peek(participant, key, hash, now_ms) else { return Ok(Changed::Absent) };
            if !accepts(&item) {
                return Ok(Changed::Exists);
            }
            match self.remove(participant, (key, hash), item.unchanged(), moment) {
                Outcome::Done { .. } => return Ok(Changed::Done(())),
                Outcome::Absent => return Ok(Changed::Absent),
                Outcome::Present | Outcome::Flushed => {}
            }
        }
    }

    /// Gives an entry another expiry: copies it into a segment of its new TTL bucket. False if it is absent.
    pub fn touch(
        &self,
        participant: &Participant,
        key: &[u8],
        hash: u64,
        ttl: Ttl,
        now_ms: u64,
    ) -> Result<bool, Error> {
        self.touch_if(participant, (key, hash), ttl, now_ms, Some)
    }

    /// As `touch`, with other flags, which `flags_for` answers for those of the entry. False, with nothing changed, if
    /// it answers none.
    pub fn touch_if(
        &self,
        participant: &Participant,
        (key, hash): (&[u8], u64),
        ttl: Ttl,
        now_ms: u64,
        mut flags_for: impl FnMut(Flags) -> Option<Flags>,
    ) -> Result<bool, Error> {
        check_key(key)?;
        let moment = self.moment(now_ms);
        let life = self.lifetime(ttl, moment);
        loop {
            let pin = participant.pin();
            let Some(found) = self.index.find(hash, |slot| self.is_key(slot, key)) else {
                return Ok(false);
            };
            let item = self.item(found.slot);
            if !self.is_live(&item, moment) {
                return Ok(false);
            }
            // SAFETY: the pin protects the item.
            let present = unsafe { item.flags(&self.segments.arena) };
            let Some(flags) = flags_for(present) else { return Ok(false) };
            let outcome = match life {
                None => {
                    let unchanged = Condition::Unchanged(SeenItem { at: item.at, word: SeenWord::Any });
                    self.remove(participant, (key, hash), unchanged, moment)
                }
                Some(life) if flags == present && self.expires_at(&item, life) => return Ok(true),
                Some(life) => {
                    // SAFETY: the pin protects the item.
                    let extension = unsafe { item.extension(&self.segments.arena) };
                    let word = SeenWord::Any;
                    let successor = Successor { of: &item, word, life, flags, extension, keeps_token: true };
                    self.publish_successor(participant, (key, hash), &successor, moment)?
                }
            };
            drop(pin);
            match outcome {
                Outcome::Done { .. } => return Ok(true),
                Outcome::Absent => return Ok(false),
                Outcome::Present | Outcome::Flushed => {}
            }
        }
    }

    /// Looks a key up and gives its entry another expiry, as one operation. With a TTL that has expired already the
    /// answer is the value, and the entry is removed.
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
        let life = self.lifetime(ttl, moment);
        loop {
            let Some(hit) = self.get(participant, key, hash, now_ms) else {
                return Ok(None);
            };
            let item = hit.item_at();
            match life {
                None => match self.remove(participant, (key, hash), hit.unchanged(), moment) {
                    Outcome::Done { .. } => return Ok(Some(hit)),
                    Outcome::Absent => return Ok(None),
                    Outcome::Present | Outcome::Flushed => {}
                },
                Some(life) if self.expires_at(&item, life) => return Ok(Some(hit)),
                // The next lookup finds the copy, with its token.
                Some(life) => {
                    let (word, flags, extension) = (SeenWord::Any, hit.flags(), hit.extension());
                    let successor = Successor { of: &item, word, life, flags, extension, keeps_token: true };
                    self.publish_successor(participant, (key, hash), &successor, moment)?;
                }
            }
        }
    }

    /// Whether an item has the expiry of this lifetime already: the second, or that in the unit of its bucket or in a
    /// finer one.
    pub(super) fn expires_at(&self, item: &ItemAt, life: Lifetime) -> bool {
        let shift = self.chains.scale.shift(life.bucket);
        match (self.expiry_seconds(item), life.expiry_seconds) {
            (Some(present), Some(seconds)) if life.exact.is_none() => {
                (seconds >> shift << shift..=seconds).contains(&present)
            }
            (present, wanted) => present == wanted,
        }
    }

    /// Publishes a successor, if its item is unchanged. The caller has been pinned since it found the item.
    pub(super) fn publish_successor(
        &self,
        participant: &Participant,
        target: (&[u8], u64),
        successor: &Successor<'_>,
        moment: Moment,
    ) -> Result<Outcome, Error> {
        let arena = &self.segments.arena;
        let &Successor { of: item, word, life, flags, extension, keeps_token } = successor;
        let extension = Extension { copied: false, ..extension };
        let (kind, value_length) = (item.header.kind(), item.header.value_length());
        let head = Head { key: target.0, flags, extension, exact: life.exact, kind, value_length };
        let size = head.size() as u32;
        let Some(reserved) = self.reserve(participant, size, life, moment) else { return Err(Error::NeedSegment) };
        let value_at = self.write_head(&reserved, &head);
        let at = Location::new(reserved.segment, reserved.offset);
        let mut body_bytes = 0;
        // SAFETY: the reservation owns the new range; the old one is pinned.
        unsafe {
            match item.header.kind() {
                Kind::Plain => arena.copy(item.value_at(), value_at, item.header.value_length() as usize),
                Kind::Numeric => {
                    let (number, width) = item.number(arena);
                    self.write_number(value_at, number, width);
                    debug_assert_eq!(head.value_length, NUMERIC_BYTES);
                }
                Kind::Structured => {
                    item.copy_content(arena, ItemAt::read(arena, at), 0);
                }
                Kind::Chained => {
                    arena.copy(item.value_at(), value_at, item.header.value_length() as usize);
                    body_bytes = self.body_bytes(item.chained(arena).total - item.tail().1);
                }
            }
        }
        let new = NewItem { at, size, body_bytes, token: extension.token, is_copy: true, keeps_token };
        let condition = Condition::Unchanged(SeenItem { at: item.at, word });
        self.publish(participant, target, condition, new, reserved, moment)
    }
}
