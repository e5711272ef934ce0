//! edit: a structured value is changed in place, or replaced.
//!
//! ```text
//! look up -> the caller decides on the content -> lock both buckets -> the same item, with the same commit word?
//!     -> invalidate the copy in the lower tier -> write -> publish by the commit word -> unlock
//! ```
//! The caller decides without a lock, so that it may take long, panic, or use the cache. If the item has changed or
//! moved meanwhile, it decides again.

use super::read::{Item, LookupUse};
use super::write::check_key;
use crate::condition::{Condition, Outcome};
use crate::epoch::Participant;
use crate::error::Error;
use crate::flags::Flags;
use crate::item::{Extension, ItemAt, Kind, VALUE_PART_BYTES_MAX};
use crate::kill_point::{KillPoint, kill_point};
use crate::publish::NewItem;
use crate::segment::Location;
use crate::stats::Counter;
use crate::store::{Head, Store};
use crate::structured::{StructuredKind, WORDS_HEAD_BYTES};
use crate::time::Moment;
use crate::ttl::{Lifetime, Ttl};

/// The value that an edit finds.
#[derive(Clone, Copy, Debug)]
pub struct Editable<'a> {
    /// Its bytes; of a value longer than a segment, which is not structured, none.
    pub content: &'a [u8],
    /// Bytes that can be appended in place.
    pub spare: usize,
    /// The flags of a client, or an annotation.
    pub flags: Flags,
    /// The second of its expiry; `None` if it never expires.
    pub expiry_seconds: Option<u64>,
}

/// The decision of an edit.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Nothing changes.
    Keep,
    /// These bytes, not more than `spare`, are appended.
    Append(Vec<u8>),
    /// The value becomes this content, which must be structured. Words with the same head and length change in place;
    /// another value becomes a new item, to which `spare` bytes, or as many as fit a segment, can be appended.
    Store { content: Vec<u8>, spare: usize },
}

/// Treatment of an absent key by an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfAbsent {
    /// Nothing.
    Refuse,
    /// The caller decides about a new entry.
    Create(NewEntry),
    /// The caller decides, if the key has not changed since this load ticket was given: for a store above a lower tier,
    /// in which the caller has not found the key since.
    Load { entry: NewEntry, ticket: u64 },
}

/// TTL and flags of an entry that an edit creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEntry {
    pub ttl: Ttl,
    pub flags: Flags,
}

/// An entry without flags.
impl From<Ttl> for NewEntry {
    fn from(ttl: Ttl) -> Self {
        Self { ttl, flags: Flags::default() }
    }
}

/// A new item of an edit.
struct NewContent<'a> {
    content: &'a [u8],
    spare: usize,
    flags: Flags,
    life: Lifetime,
    condition: Condition,
}

impl Store {
    /// Calls `decide` with the value of a key, `None` if it is absent, and makes the change that it answers, as one
    /// operation. `decide` is called again if the value has changed or moved meanwhile. A present entry keeps its
    /// expiry. False, with nothing changed, if the key is absent and may not be created.
    ///
    /// # Errors
    /// `NeedSegment`: run `evict` and try again. `TooLarge`, `KeyLength`. Nothing was changed.
    pub fn edit(
        &self,
        participant: &Participant,
        (key, hash): (&[u8], u64),
        if_absent: IfAbsent,
        now_ms: u64,
        mut decide: impl FnMut(Option<Editable<'_>>) -> Edit,
    ) -> Result<bool, Error> {
        check_key(key)?;
        let moment = self.moment(now_ms);
        let is_sampled = self.access_samples.takes(hash);
        // Ends: each further round another operation on the key has ended, or maintenance has moved the item.
        loop {
            let hit = self.look_up_exact(participant, (key, hash), moment, LookupUse::Counted);
            if is_sampled {
                self.sample_lookup(participant, hash, hit.as_ref());
            }
            let Some(hit) = hit else {
                let (NewEntry { ttl, flags }, condition) = match if_absent {
                    IfAbsent::Refuse => return Ok(false),
                    IfAbsent::Create(entry) => (entry, Condition::Absent),
                    IfAbsent::Load { ticket, .. } if !self.is_load_valid(hash, ticket) => return Ok(false),
                    IfAbsent::Load { entry, ticket } => (entry, Condition::Load(ticket)),
                };
                let Edit::Store { content, spare } = decide(None) else { return Ok(true) };
                let Some(life) = self.lifetime(ttl, moment) else { return Ok(true) };
                let new = NewContent { content: &content, spare, flags, life, condition };
                if self.publish_content(participant, (key, hash), &new, moment)?.is_done() {
                    return Ok(true);
                }
                continue;
            };
            let content = hit.contiguous().unwrap_or_default();
            let found =
                Editable { content, spare: hit.spare(), flags: hit.flags(), expiry_seconds: hit.expiry_seconds() };
            let (content, spare) = match decide(Some(found)) {
                Edit::Keep => return Ok(true),
                Edit::Append(bytes) => {
                    let append = |item: ItemAt| {
                        // SAFETY: the item's bucket is locked, and its commit word is that of the hit.
                        unsafe { item.append_to_log(&self.segments.arena, &bytes) }
                    };
                    assert!(bytes.len() <= hit.spare(), "an append of more than the spare bytes");
                    match self.edit_in_place((key, hash), &hit, moment, append) {
                        true => return Ok(true),
                        false => continue,
                    }
                }
                Edit::Store { content, spare } => (content, spare),
            };
            if hit.has_words_like(&content) {
                let write = |item: ItemAt| {
                    // SAFETY: as above; the item has as many words.
                    unsafe { item.write_words(&self.segments.arena, &content[WORDS_HEAD_BYTES..]) }
                };
                if self.edit_in_place((key, hash), &hit, moment, write) {
                    return Ok(true);
                }
                continue;
            }
            let life = self.lifetime_until(hit.expiry_seconds(), moment);
            let (flags, condition) = (hit.flags(), hit.unchanged());
            let new = NewContent { content: &content, spare, flags, life, condition };
            if self.publish_content(participant, (key, hash), &new, moment)?.is_done() {
                return Ok(true);
            }
        }
    }

    /// Writes to a structured item that a hit has found. False, with nothing changed, if it has changed or moved, or is
    /// dead by now.
    fn edit_in_place(
        &self,
        (key, hash): (&[u8], u64),
        hit: &Item<'_>,
        moment: Moment,
        write: impl FnOnce(ItemAt),
    ) -> bool {
        let mut pair = self.index.lock_pair(hash);
        let item = hit.item_at();
        let Some(place) = pair.find(|slot| slot.location() == item.at) else { return false };
        if !self.has_word(&pair, &place, hit.seen_word()) || !self.is_live(&item, moment) {
            return false;
        }
        self.load_tickets.void(hash);
        self.invalidate_copy((key, hash), Condition::Always, true, false);
        kill_point(KillPoint::EditInvalidation);
        write(item);
        kill_point(KillPoint::EditPublication);
        pair.mark_changed(&place);
        true
    }

    /// Writes a structured item and publishes it, once.
    fn publish_content(
        &self,
        participant: &Participant,
        target: (&[u8], u64),
        new: &NewContent<'_>,
        moment: Moment,
    ) -> Result<Outcome, Error> {
        let &NewContent { content, spare, flags, life, condition } = new;
        let kind = StructuredKind::of(content).expect("an edit stores a structured value");
        let piece_bytes = self.segments.segment_bytes().min(VALUE_PART_BYTES_MAX);
        let (extension, exact) = (Extension::default(), life.exact);
        let mut head = Head { key: target.0, flags, extension, exact, kind: Kind::Structured, value_length: 0 };
        let overhead = head.size_max() + u64::from(kind.value_length(content.len(), 0)) - content.len() as u64;
        let limit = self.options.value_bytes_max.min(u64::from(piece_bytes).saturating_sub(overhead));
        if content.len() as u64 > limit {
            return Err(Error::TooLarge { bytes: content.len() as u64, limit });
        }
        let spare = (spare as u64).min(limit - content.len() as u64) as u32;
        head.value_length = kind.value_length(content.len(), spare);
        let size = head.size() as u32;
        let Some(reserved) = self.reserve(participant, size, life, moment) else { return Err(Error::NeedSegment) };
        self.write_head(&reserved, &head);
        let at = Location::new(reserved.segment, reserved.offset);
        // SAFETY: the reservation owns the range, and the head is written.
        unsafe { ItemAt::read(&self.segments.arena, at).write_content(&self.segments.arena, kind, content) };
        let new = NewItem { at, size, body_bytes: 0, token: None, is_copy: false, keeps_token: false };
        let outcome = self.publish(participant, target, condition, new, reserved, moment)?;
        if outcome.is_done() {
            self.counters.add(participant.number(), Counter::Stored, 1);
        }
        Ok(outcome)
    }
}

impl Item<'_> {
    /// Whether the value is structured, in memory or by its bytes.
    pub(super) fn is_structured(&self) -> bool {
        self.item_at().header.kind() == Kind::Structured
            || self.contiguous().is_some_and(|content| StructuredKind::of(content).is_some())
    }

    /// Bytes that can be appended in place.
    fn spare(&self) -> usize {
        // An edit gives a value with a token of a client another one.
        match self.log_capacity() {
            Some(capacity) if self.extension() == Extension::default() => capacity as usize - self.len(),
            _ => 0,
        }
    }

    /// Whether words of this content can replace those of the item in place.
    fn has_words_like(&self, content: &[u8]) -> bool {
        self.words().is_some_and(|words| {
            words.len() == content.len()
                && words[..WORDS_HEAD_BYTES] == content[..WORDS_HEAD_BYTES]
                && self.extension() == Extension::default()
        })
    }
}
