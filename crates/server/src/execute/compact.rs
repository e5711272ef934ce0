//! Commands on keys of compact pools.
//!
//! A compact pool has get, gets, gat, gats, set, add, replace, delete and touch. It keeps no client flags, no CAS
//! tokens and no meta flags: a command that needs them is refused as a client error. A value of no bytes is a negative
//! result.

use ebbtide::memcached::{Changed, CompactMode, CompactPool, Error, Lookup, Mode, Stored, Ttl};
use ebbtide_protocol::{MAX_KEY, Request, StoreRequest, reply};

use super::body::{Body, BodyState, StoreAnswer, StoreTarget};
use super::get::write_item;
use super::modes::store_mode;
use super::{Executor, Next, reply_to};
use crate::output::Output;
use crate::watch::{DeleteCommand, FetchVerb};

/// A write to a compact pool.
pub struct CompactPut<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub flags: u32,
    pub ttl: Ttl,
    pub mode: Mode,
}

/// Why a compact pool refuses a command, in words for the client.
pub struct Refusal(String);

impl Refusal {
    pub fn of(pool: &CompactPool, error: &Error) -> Self {
        Self(format!("compact pool {}: {error}", pool.name().escape_debug()))
    }

    pub fn command(pool: &CompactPool, what: &str) -> Self {
        let name = pool.name().escape_debug();
        Self(format!("compact pool {name}: {what}; it has get, gat, set, add, replace, delete and touch"))
    }

    /// The line that a client gets.
    pub fn line(&self) -> Vec<u8> {
        format!("CLIENT_ERROR {}\r\n", self.0).into_bytes()
    }
}

/// The mode of a write to a compact pool, if it can be one.
fn compact_mode(mode: Mode) -> Option<CompactMode> {
    match mode {
        Mode::Set => Some(CompactMode::Set),
        Mode::Add => Some(CompactMode::Add),
        Mode::Replace => Some(CompactMode::Replace),
        _ => None,
    }
}

impl Executor {
    /// Executes a command on a key of a compact pool. `None`: it is another command.
    pub(super) fn compact_request(&self, request: &Request<'_>, output: &mut Output) -> Option<Next> {
        match request {
            Request::Store(store) => Some(self.store_compact(self.compact(store.key)?, store, output)),
            Request::Meta { command, meta } => {
                let mut buffer = [0; MAX_KEY];
                let key = meta.key(&mut buffer);
                self.meta_compact(self.compact(key)?, *command, (meta, key), output);
                Some(Next::Continue)
            }
            Request::MetaSet(set) => {
                let mut buffer = [0; MAX_KEY];
                let key = set.meta.key(&mut buffer);
                Some(self.meta_set_compact(self.compact(key)?, set, key, output))
            }
            Request::Delete { key, noreply } => {
                let line = self.delete_compact(self.compact(key)?, key);
                reply_to(output, *noreply).line(&line);
                Some(Next::Continue)
            }
            Request::Arithmetic { key, noreply, .. } => {
                let refusal = Refusal::command(self.compact(key)?, "it has no numbers");
                reply_to(output, *noreply).line(&refusal.line());
                Some(Next::Continue)
            }
            Request::Touch { key, exptime, noreply } => {
                let line = self.touch_compact(self.compact(key)?, key, *exptime);
                reply_to(output, *noreply).line(&line);
                Some(Next::Continue)
            }
            _ => None,
        }
    }

    /// Writes to a compact pool, and counts it. A refused set removes the entry: the client must not go on reading the
    /// old value.
    pub(super) fn write_compact(&self, pool: &CompactPool, put: &CompactPut<'_>) -> Result<Stored, Refusal> {
        let CompactPut { key, value, flags, ttl, mode } = *put;
        let refused = match compact_mode(mode) {
            None => Refusal::command(pool, "it has no tokens, and no values that grow"),
            Some(_) if flags != 0 => Refusal::command(pool, "it keeps no client flags, send 0"),
            Some(compact_mode) => {
                let written = pool.write(key, Some(value).filter(|value| !value.is_empty()), ttl, compact_mode);
                self.note_store(key, mode, || ttl, value.len(), written.as_ref().copied());
                match written {
                    Ok(stored) => {
                        self.count_stored(key, false, Ok(stored));
                        return Ok(stored);
                    }
                    Err(error) => Refusal::of(pool, &error),
                }
            }
        };
        self.counters().set_commands.add(1);
        if mode == Mode::Set {
            // A key of another length has no entry.
            let _ = pool.delete(key);
        }
        Err(refused)
    }

    fn store_compact(&self, pool: &CompactPool, store: &StoreRequest<'_>, output: &mut Output) -> Next {
        let put = |value| CompactPut {
            key: store.key,
            value,
            flags: store.flags,
            ttl: self.ttl(store.exptime),
            mode: store_mode(store.mode),
        };
        match store.value {
            Some(value) => {
                let line = stored_line(self.write_compact(pool, &put(value)));
                reply_to(output, store.noreply).line(&line);
                Next::Continue
            }
            None => self.receive_compact(pool, StoreTarget::classic(store), output),
        }
    }

    /// Starts to receive a value, or refuses one whose length no entry has.
    pub(super) fn receive_compact(&self, pool: &CompactPool, target: StoreTarget, output: &mut Output) -> Next {
        let (length, expected) = (target.length as usize, pool.sizes().value_bytes);
        if length == expected || length == 0 {
            let length = u64::from(target.length);
            return Next::Receive(Body::new(BodyState::Buffer { target, value: Vec::new() }, length));
        }
        let refusal = Refusal::of(pool, &Error::CompactLength { part: "value", length, expected });
        if target.mode == Mode::Set {
            let _ = pool.delete(&target.key);
        }
        self.counters().set_commands.add(1);
        reply_to(output, target.is_silent()).line(&refusal.line());
        Next::Receive(Body::discard(length as u64))
    }

    /// Stores a value that has arrived in pieces, and answers.
    pub(super) fn finish_compact(&self, pool: &CompactPool, target: &StoreTarget, value: &[u8], output: &mut Output) {
        let StoreTarget { key, flags, exptime, mode, answer, .. } = target;
        let put = CompactPut { key, value, flags: *flags, ttl: self.ttl(*exptime), mode: *mode };
        let written = self.write_compact(pool, &put);
        match answer {
            StoreAnswer::Line { noreply, .. } => reply_to(output, *noreply).line(&stored_line(written)),
            StoreAnswer::Meta(meta_answer) => self.answer_set_compact(meta_answer, key, written, value.len(), output),
        }
    }

    fn delete_compact(&self, pool: &CompactPool, key: &[u8]) -> Vec<u8> {
        match self.remove_compact(pool, key, DeleteCommand::Delete) {
            Ok(true) => reply::DELETED.to_vec(),
            Ok(false) => reply::NOT_FOUND.to_vec(),
            Err(refusal) => refusal.line(),
        }
    }

    /// Removes a key of a compact pool, and counts it.
    pub(super) fn remove_compact(
        &self,
        pool: &CompactPool,
        key: &[u8],
        command: DeleteCommand,
    ) -> Result<bool, Refusal> {
        let mut removed = Ok(false);
        let delete = || {
            removed = pool.delete(key);
            Some(if removed == Ok(true) { Changed::Done(()) } else { Changed::Absent })
        };
        let is_removed = self.note_delete(key, command, delete) == Some(Changed::Done(()));
        let counter = if is_removed { &self.counters().delete_hits } else { &self.counters().delete_misses };
        counter.add(1);
        removed.map_err(|error| Refusal::of(pool, &error))
    }

    fn touch_compact(&self, pool: &CompactPool, key: &[u8], exptime: i32) -> Vec<u8> {
        let touched = pool.touch(key, self.ttl(exptime));
        self.note_keyed(key, touched == Ok(true), FetchVerb::Touch);
        match touched {
            Ok(true) => {
                self.counters().touch_hits.add(1);
                reply::TOUCHED.to_vec()
            }
            Ok(false) => {
                self.counters().touch_misses.add(1);
                reply::NOT_FOUND.to_vec()
            }
            Err(error) => Refusal::of(pool, &error).line(),
        }
    }

    /// Touches an entry of a compact pool and looks it up.
    ///
    /// # Errors
    /// The words for the client.
    pub(super) fn touch_and_look_up(
        &self,
        pool: &CompactPool,
        key: &[u8],
        ttl: Ttl,
    ) -> Result<Lookup<'static>, Refusal> {
        // The value before the touch: an expired TTL removes the entry.
        let lookup = pool.look_up(key);
        let is_hit = lookup.is_hit();
        if is_hit {
            pool.touch(key, ttl).map_err(|error| Refusal::of(pool, &error))?;
        }
        let counter = if is_hit { &self.counters().touch_hits } else { &self.counters().touch_misses };
        counter.add(1);
        Ok(lookup)
    }

    /// A key of gat or gats. False if an error replaces the answer.
    pub(super) fn get_and_touch_compact(
        &self,
        pool: &CompactPool,
        key: &[u8],
        ttl: Ttl,
        with_cas: bool,
        output: &mut Output,
    ) -> bool {
        match self.touch_and_look_up(pool, key, ttl) {
            Ok(Lookup::Hit(item)) => write_item(key, &item, with_cas, output),
            Ok(Lookup::Miss) => true,
            Err(refusal) => {
                output.bytes().extend_from_slice(&refusal.line());
                false
            }
        }
    }
}

fn stored_line(written: Result<Stored, Refusal>) -> Vec<u8> {
    match written {
        Ok(Stored::Stored) => reply::STORED.to_vec(),
        Ok(_) => reply::NOT_STORED.to_vec(),
        Err(refusal) => refusal.line(),
    }
}
