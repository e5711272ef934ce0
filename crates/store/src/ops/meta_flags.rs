//! Lookups that may change the metadata of an entry: its expiry, whether it is stale, and whether a client has won the
//! right to store it again (the meta commands of memcached).
//!
//! The caller decides on the entry as it is at the change: the copy with the new flags replaces exactly the item that
//! was looked up, or the lookup is repeated. So exactly one of the clients that find an entry stale wins.

use super::delete::Successor;
use super::read::{Item, LookupUse};
use super::write::check_key;
use crate::condition::{Condition, Outcome, SeenItem, SeenWord};
use crate::epoch::Participant;
use crate::error::Error;
use crate::flags::Flags;
use crate::item::{Extension, Kind};
use crate::stats::Counter;
use crate::store::{Head, Store};
use crate::time::Moment;
use crate::ttl::Ttl;

/// How an entry is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaFlagsLookup {
    /// If the entry is absent, one is created, with an empty value, and the caller has won it.
    pub create: Option<Creation>,
    /// Whether the lookup counts as a use of the entry.
    pub counts: bool,
}

/// The TTL of an entry that a lookup creates, and its CAS token if a client gives one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Creation {
    pub ttl: Ttl,
    pub token: Option<u64>,
    /// The entry is created only if the key has not changed since `Store::begin_load` gave this ticket.
    pub ticket: Option<u64>,
}

impl From<Ttl> for Creation {
    fn from(ttl: Ttl) -> Self {
        Self { ttl, token: None, ticket: None }
    }
}

/// Change of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaFlagsChange {
    /// Another TTL; one that has expired already removes the entry.
    pub ttl: Option<Ttl>,
    pub flags: MetaFlags,
}

/// Change of an entry's flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetaFlags {
    /// As it was.
    #[default]
    Unchanged,
    /// A client has won the right to store the entry again.
    Won,
    /// The entry is stale, and no client has won it yet. Its CAS token is this one, or one of the store.
    Stale { token: Option<u64> },
}

/// The result of a lookup.
pub enum MetaFlagsOutcome<'s> {
    Absent,
    /// The entry was absent and was created, with this CAS token.
    Created {
        token: u64,
    },
    /// The entry before the change, and its CAS token after it.
    Found {
        item: Item<'s>,
        token: u64,
    },
}

impl Store {
    /// Looks an entry up, calls `decide` with it, and makes the change that `decide` answers, as one operation. `None`
    /// changes nothing. `decide` is called again if the entry has changed meanwhile.
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
        let access = if lookup.counts { LookupUse::Counted } else { LookupUse::Silent };
        loop {
            let found = self.look_up_exact(participant, (key, hash), moment, access);
            if lookup.counts && self.access_samples.takes(hash) {
                self.sample_lookup(participant, hash, found.as_ref());
            }
            let Some(hit) = found else {
                let Some(creation) = lookup.create else { return Ok(MetaFlagsOutcome::Absent) };
                match self.create_won(participant, (key, hash), creation, moment)? {
                    Some(token) => return Ok(MetaFlagsOutcome::Created { token }),
                    None if creation.ticket.is_some_and(|ticket| !self.is_load_valid(hash, ticket)) => {
                        return Ok(MetaFlagsOutcome::Absent);
                    }
                    None => continue,
                }
            };
            let change = decide(&hit).unwrap_or_default();
            if let Some(token) = self.change_meta_flags(participant, (key, hash), &hit, change, moment)? {
                return Ok(MetaFlagsOutcome::Found { item: hit, token });
            }
        }
    }

    /// Makes a change, if the entry is unchanged since the lookup. Returns its token then.
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
        let kept = Some(self.lifetime_until(expiry, moment));
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
        let is_same_lifetime = life.is_some_and(|life| life.expiry_seconds == expiry);
        if is_same_lifetime && extension == old && !matches!(change.flags, MetaFlags::Stale { .. }) {
            return Ok(Some(hit.token()));
        }
        // The caller may have decided by the token.
        let word = SeenWord::Uncounted { sequence: hit.sequence() };
        let outcome = match life {
            None => self.remove(participant, target, Condition::Unchanged(SeenItem { at: item.at, word }), moment),
            Some(life) => {
                let keeps_token = !matches!(change.flags, MetaFlags::Stale { .. });
                let successor = Successor { of: &item, word, life, flags: hit.flags(), extension, keeps_token };
                self.publish_successor(participant, target, &successor, moment)?
            }
        };
        Ok(match outcome {
            Outcome::Done { token } => Some(token),
            Outcome::Absent | Outcome::Present | Outcome::Flushed => None,
        })
    }

    /// Creates an absent entry with an empty value that the caller has won. `None` if it exists by now.
    fn create_won(
        &self,
        participant: &Participant,
        target: (&[u8], u64),
        Creation { ttl, token, ticket }: Creation,
        moment: Moment,
    ) -> Result<Option<u64>, Error> {
        let Some(life) = self.lifetime(ttl, moment) else {
            let is_void = ticket.is_some_and(|ticket| !self.is_load_valid(target.1, ticket));
            return Ok((!is_void).then(|| token.unwrap_or_else(|| self.token(0))));
        };
        let extension = Extension { won: true, token, ..Extension::default() };
        let (flags, exact, kind) = (Flags::default(), life.exact, Kind::Plain);
        let head = Head { key: target.0, flags, extension, exact, kind, value_length: 0 };
        let condition = ticket.map_or(Condition::Absent, Condition::Load);
        match self.write_plain(participant, &head, target, b"", (life, condition), moment)? {
            Outcome::Done { token } => {
                self.counters.add(participant.number(), Counter::Stored, 1);
                Ok(Some(token))
            }
            Outcome::Absent | Outcome::Present | Outcome::Flushed => Ok(None),
        }
    }
}
