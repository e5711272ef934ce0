//! md: removes an item, marks it as stale, or leaves a tombstone: the item with an empty value.

use ebbtide::memcached::{
    Changed, Error, Item, MetaFlags, MetaFlagsChange, MetaFlagsLookup, MetaFlagsOutcome, Mode, Stored, Ttl,
};
use ebbtide_protocol::{Meta, reply};

use super::answer_code;
use crate::execute::{Executor, Next};
use crate::output::Output;
use crate::watch::{DeleteCommand, FetchVerb};

/// Times that a tombstone is written under the token of an item which changes meanwhile, before it gets a token of its
/// own.
const TOKEN_TRIES: u32 = 8;

impl Executor {
    pub(super) fn meta_delete(&self, meta: &Meta<'_>, key: &[u8], output: &mut Output) -> Next {
        let counters = self.counters();
        let done = if meta.has(b'x') {
            let Some(left) = self.park_if_waiting(self.leave_tombstone(meta, key)) else { return Next::Parked };
            let Ok(done) = left else {
                output.bytes().extend_from_slice(reply::OUT_OF_MEMORY);
                return Next::Continue;
            };
            self.note_tombstone(key, done, meta.has(b'I'));
            done
        } else if meta.has(b'I') {
            let Some(marked) = self.park_if_waiting(self.mark_stale(meta, key)) else { return Next::Parked };
            let Ok(done) = marked else {
                output.bytes().extend_from_slice(reply::OUT_OF_MEMORY);
                return Next::Continue;
            };
            self.note_keyed(key, done != Changed::Absent, FetchVerb::Touch);
            done
        } else {
            let Some(done) = self.delete_noted(key, meta.number(b'C'), DeleteCommand::MetaDelete) else {
                return Next::Parked;
            };
            counters.delete_hits.add(u64::from(done == Changed::Done(())));
            done
        };
        let code = match done {
            Changed::Done(()) if meta.has(b'q') => return Next::Continue,
            Changed::Done(()) => b"HD",
            Changed::Absent => b"NF",
            Changed::Exists => b"EX",
        };
        counters.delete_misses.add(u64::from(done != Changed::Done(())));
        answer_code(meta, key, code, output);
        Next::Continue
    }

    /// Empties an item. It gets the client flags of F or 0, the life of T or an endless one, and keeps its token or
    /// gets that of E.
    fn leave_tombstone(&self, meta: &Meta<'_>, key: &[u8]) -> Result<Changed<()>, Error> {
        let (expected, given) = (meta.number(b'C'), meta.number(b'E'));
        let life = self.life(meta, b'T').unwrap_or(Ttl::Never);
        let write = |mode, token| {
            self.pool(key)
                .insert(key, b"")
                .flags(meta.client_flags())
                .ttl(life)
                .mode(mode)
                .token(token)
                .apply_with_token()
        };
        // A write of another client's lies between two tries.
        for _ in 0..TOKEN_TRIES {
            let fits = |item: &Item<'_>| expected.is_none_or(|token| item.has_cas(token));
            let found = self.pool(key).peek(key).item().map(|item| (item.cas(), fits(item)));
            let written = match found {
                Some((_, false)) => return Ok(Changed::Exists),
                Some((old, true)) => write(Mode::Cas(old), Some(given.unwrap_or(old)))?,
                // Evicted since the lookup, or absent: the write decides.
                None => write(expected.map_or(Mode::Replace, Mode::Cas), given.or(expected))?,
            };
            match written.stored {
                Stored::Stored => return self.mark_tombstone(meta, key, written.token),
                Stored::NotFound | Stored::NotStored => return Ok(Changed::Absent),
                Stored::Exists => {}
            }
        }
        if expected.is_some() {
            return Ok(Changed::Exists);
        }
        let written = write(Mode::Replace, given)?;
        match written.stored {
            Stored::Stored => self.mark_tombstone(meta, key, written.token),
            Stored::NotStored | Stored::Exists | Stored::NotFound => Ok(Changed::Absent),
        }
    }

    /// With I, marks a tombstone as stale, unless it has been replaced.
    fn mark_tombstone(&self, meta: &Meta<'_>, key: &[u8], token: u64) -> Result<Changed<()>, Error> {
        if meta.has(b'I') {
            let change = MetaFlagsChange { ttl: None, flags: MetaFlags::Stale { token: meta.number(b'E') } };
            let lookup = MetaFlagsLookup { create: None, counts: false };
            self.without_memory_wait(|| {
                self.pool(key)
                    .update_meta_flags(key, lookup, |item| (item.cas() == token).then_some(change))
                    .map(|_| ())
            })?;
        }
        Ok(Changed::Done(()))
    }

    fn mark_stale(&self, meta: &Meta<'_>, key: &[u8]) -> Result<Changed<()>, Error> {
        let expected = meta.number(b'C');
        let mut matches = true;
        let change =
            MetaFlagsChange { ttl: self.life(meta, b'T'), flags: MetaFlags::Stale { token: meta.number(b'E') } };
        let outcome =
            self.pool(key).update_meta_flags(key, MetaFlagsLookup { create: None, counts: false }, |item| {
                matches = expected.is_none_or(|token| item.has_cas(token));
                matches.then_some(change)
            })?;
        Ok(match outcome {
            MetaFlagsOutcome::Absent | MetaFlagsOutcome::Created { .. } => Changed::Absent,
            MetaFlagsOutcome::Found { .. } if matches => Changed::Done(()),
            MetaFlagsOutcome::Found { .. } => Changed::Exists,
        })
    }
}
