//! A look at an entry that may change what stands beside its value: its life, that it is stale, that somebody has won the
//! right to store it anew.
//!
//! What the caller decides on is the entry at the instant of the change: the copy with the new marks takes the place of the
//! item that was looked at, or the look is repeated. So of all who find an entry stale, one is told that it has won.

use super::delete::Successor;
use super::read::{Access, Item};
use super::write::check_key;
use crate::condition::{Condition, Outcome, SeenItem, SeenNumber};
use crate::epoch::Participant;
use crate::error::Error;
use crate::item::{Extension, Kind};
use crate::stats::Counter;
use crate::store::{Head, Store};
use crate::time::Moment;
use crate::ttl::Ttl;

/// How a look is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaFlagsLookup {
    /// An absent entry is made, with an empty value, this life, and the caller as its winner.
    pub create: Option<Ttl>,
    /// Whether the look counts as a use of the entry.
    pub counts: bool,
}

/// What becomes of an entry that was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaFlagsChange {
    /// Another life; one that is over already removes the entry.
    pub ttl: Option<Ttl>,
    pub flags: MetaFlags,
}

/// What an entry is marked as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetaFlags {
    /// As it was.
    #[default]
    Unchanged,
    /// Somebody has won the right to store it anew.
    Won,
    /// Out of date, and nobody has won yet. The value gets this CAS token, or one of the store's own.
    Stale { token: Option<u64> },
}

/// What came of a lookup.
pub enum MetaFlagsOutcome<'s> {
    Absent,
    /// It was absent and is there now, with this CAS token.
    Created {
        token: u64,
    },
    /// The entry as it was before, and the CAS token that it has now.
    Found {
        item: Item<'s>,
        token: u64,
    },
}

impl Store {
    /// Looks an entry up, asks `decide` what shall become of it, and does that, as one operation. `None` leaves it alone.
    /// `decide` is asked again when the entry has changed meanwhile.
    ///
    /// # Errors
    /// `NeedSegment`: run `evict` and try again. `KeyLength`.
    pub fn update_meta_flags<'s>(
        &'s self,
        participant: &Participant,
        (key, hash): (&[u8], u64),
        lookup: MetaFlagsLookup,
        now_ms: u64,
        mut decide: impl FnMut(&Item<'s>) -> Option<MetaFlagsChange>,
    ) -> Result<MetaFlagsOutcome<'s>, Error> {
        check_key(key)?;
        let moment = self.moment(now_ms);
        let access = if lookup.counts { Access::Counted } else { Access::Silent };
        loop {
            let Some(hit) = self.look_up_exact(participant, (key, hash), moment, access) else {
                let Some(ttl) = lookup.create else { return Ok(MetaFlagsOutcome::Absent) };
                match self.create_won(participant, (key, hash), ttl, moment)? {
                    Some(token) => return Ok(MetaFlagsOutcome::Created { token }),
                    None => continue,
                }
            };
            let change = decide(&hit).unwrap_or_default();
            if let Some(token) = self.change_meta_flags(participant, (key, hash), &hit, change, moment)? {
                return Ok(MetaFlagsOutcome::Found { item: hit, token });
            }
        }
    }

    /// Carries a change out, if the entry is still the one that was looked at. Answers its token.
    fn change_meta_flags(
        &self,
        participant: &Participant,
        target: (&[u8], u64),
        hit: &Item<'_>,
        change: MetaFlagsChange,
        moment: Moment,
    ) -> Result<Option<u64>, Error> {
        let item = hit.item_at();
        let expiry = hit.expiry_seconds();
        let kept = Some((self.bucket_until(expiry, moment), expiry));
        let life = match change.ttl.map(|ttl| self.lifetime(ttl, moment)) {
            None => kept,
            Some(Some(life)) if self.expires_at(&item, life) => kept,
            Some(new) => new,
        };
        let old = hit.extension();
        let extension = match change.flags {
            MetaFlags::Unchanged => old,
            MetaFlags::Won => Extension { won: true, ..old },
            MetaFlags::Stale { token } => Extension { stale: true, won: false, copied: false, token },
        };
        let is_same_lifetime = life.is_some_and(|(_, until)| until == expiry);
        if is_same_lifetime && extension == old && !matches!(change.flags, MetaFlags::Stale { .. }) {
            return Ok(Some(hit.token()));
        }
        // The caller may have decided by the token.
        let number = SeenNumber::Uncounted { sequence: hit.sequence() };
        let outcome = match life {
            None => self.remove(participant, target, Condition::Unchanged(SeenItem { at: item.at, number }), moment),
            Some(life) => {
                let successor = Successor { of: &item, number, life, extension };
                self.publish_successor(participant, target, &successor, moment)?
            }
        };
        Ok(match outcome {
            Outcome::Done { token } => Some(token),
            Outcome::Absent | Outcome::Present | Outcome::Flushed => None,
        })
    }

    /// Makes an absent entry without a value, whose caller has won it. `None` if it is there by now.
    fn create_won(
        &self,
        participant: &Participant,
        target: (&[u8], u64),
        ttl: Ttl,
        moment: Moment,
    ) -> Result<Option<u64>, Error> {
        let Some(life) = self.lifetime(ttl, moment) else { return Ok(Some(self.token(0))) };
        let extension = Extension { won: true, ..Extension::default() };
        let head = Head { key: target.0, flags: 0, extension, kind: Kind::Plain, value_length: 0 };
        match self.write_plain(participant, &head, target, b"", (life, Condition::Absent), moment)? {
            Outcome::Done { token } => {
                self.counters.add(participant.number(), Counter::Stored, 1);
                Ok(Some(token))
            }
            Outcome::Absent | Outcome::Present | Outcome::Flushed => Ok(None),
        }
    }
}
