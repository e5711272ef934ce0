//! ms: all storage commands in one.

use ebbtide::memcached::{Error, Mode, Stored, Ttl, Written};
use ebbtide_protocol::{MAX_KEY, Meta, MetaSet, reply};

use super::reflect;
use crate::execute::body::{Body, MetaAnswer, StoreTarget};
use crate::execute::modes::{creates, meta_mode};
use crate::execute::{Executor, Next};
use crate::output::Output;

/// Attempts of an append on a key that other clients remove and create concurrently.
const CREATE_TRIES: u32 = 8;

/// Properties of a write that an answer returns.
pub struct SetOutcome {
    pub mode: Mode,
    pub written: Result<Written, Error>,
    /// Bytes of the whole value if it was stored, else of the one that was sent.
    pub length: usize,
}

impl Executor {
    pub(in crate::execute) fn meta_set(&self, set: &MetaSet<'_>, output: &mut Output) -> Next {
        let meta = &set.meta;
        let mut buffer = [0; MAX_KEY];
        let key = meta.key(&mut buffer);
        let length = u64::from(set.length);
        if length > self.pool(key).max_value().as_bytes() {
            // A client that could not write the new value must not go on reading the old one.
            self.pool(key).delete(key);
            self.counters().store_too_large.add(1);
            let error = Error::ValueTooLarge { length, limit: self.pool(key).max_value().as_bytes() };
            self.note_store(key, meta_mode(meta), || Ttl::Never, 0, Err(&error));
            output.bytes().extend_from_slice(reply::TOO_LARGE);
            return match set.value {
                Some(_) => Next::Continue,
                None => Next::Receive(Body::discard(length)),
            };
        }
        let mode = meta_mode(meta);
        if let Some(value) = set.value.filter(|value| value.len() <= self.pool(key).contiguous_limit()) {
            let before = self.length_before(mode, meta.has(b's'), key);
            let (written, life) =
                self.apply_or_create(mode, meta.exptime(b'T').unwrap_or(0), creates(meta), |mode, life| {
                    let insert = self.pool(key).insert(key, value).flags(meta.client_flags()).ttl(life);
                    insert.mode(mode).token(meta.number(b'E')).apply_with_token()
                });
            let Some(written) = self.park_if_waiting(written) else { return Next::Parked };
            self.note_store(key, mode, || life, value.len(), written.as_ref().map(|written| written.stored));
            let length = self.length_after(key, before, &written, value.len());
            let outcome = SetOutcome { mode, written, length };
            self.answer_set(meta.flag_bytes(), meta.has(b'b'), meta.has(b'q'), key, outcome, output);
            return Next::Continue;
        }
        let target = StoreTarget::meta(key, set, mode);
        match set.value {
            Some(value) => {
                let body = self.receive(target, output);
                self.finish_whole(body, value, output)
            }
            None => Next::Receive(self.receive(target, output)),
        }
    }

    /// Applies a write with the life of `exptime`. If it finds nothing to extend and `create` is given, that is the
    /// life of a new item. Answers the life as well.
    pub(in crate::execute) fn apply_or_create(
        &self,
        mode: Mode,
        exptime: i32,
        create: Option<i32>,
        apply: impl Fn(Mode, Ttl) -> Result<Written, Error>,
    ) -> (Result<Written, Error>, Ttl) {
        let life = self.ttl(exptime);
        let is_absent = |written: &Result<Written, Error>| {
            written.as_ref().is_ok_and(|written| written.stored == Stored::NotStored)
        };
        for _ in 0..CREATE_TRIES {
            let written = apply(mode, life);
            let Some(create) = create.filter(|_| is_absent(&written)).map(|create| self.ttl(create)) else {
                return (written, life);
            };
            let created = apply(Mode::Add, create);
            if !is_absent(&created) {
                return (created, create);
            }
        }
        (Ok(Stored::NotStored.into()), life)
    }

    /// The length of the value that a write will extend, if the client requests it.
    pub(in crate::execute) fn length_before(&self, mode: Mode, is_asked: bool, key: &[u8]) -> Option<usize> {
        (is_asked && mode.extends()).then(|| self.pool(key).peek(key).item().map_or(0, |item| item.len()))
    }

    /// The length of the value after a write, or of the sent value if it was not stored. After a concurrent write the
    /// length is the most likely result of this write.
    pub(in crate::execute) fn length_after(
        &self,
        key: &[u8],
        before: Option<usize>,
        written: &Result<Written, Error>,
        sent: usize,
    ) -> usize {
        let (Some(before), Ok(Written { stored: Stored::Stored, token })) = (before, written) else { return sent };
        let lookup = self.pool(key).peek(key);
        lookup.item().filter(|item| item.cas() == *token).map_or(before + sent, |item| item.len())
    }

    /// Answers an ms whose value came in pieces.
    pub(in crate::execute) fn answer_meta_set(
        &self,
        meta_answer: &MetaAnswer,
        key: &[u8],
        outcome: SetOutcome,
        output: &mut Output,
    ) {
        self.answer_set(&meta_answer.flags, meta_answer.is_base64, meta_answer.quiet, key, outcome, output);
    }

    fn answer_set(
        &self,
        flags: &[u8],
        is_base64: bool,
        quiet: bool,
        key: &[u8],
        SetOutcome { mode, written, length }: SetOutcome,
        output: &mut Output,
    ) {
        self.count_stored(key, matches!(mode, Mode::Cas(_) | Mode::CasOrStale(_)), written.as_ref().map(|w| w.stored));
        let out = output.bytes();
        let Written { stored, token } = match written {
            Ok(written) => written,
            Err(Error::ValueTooLarge { .. }) if mode.extends() => Stored::NotStored.into(),
            Err(Error::ValueTooLarge { .. }) => return out.extend_from_slice(reply::TOO_LARGE),
            Err(Error::Structured) => return out.extend_from_slice(reply::STRUCTURED),
            Err(_) => return out.extend_from_slice(reply::OUT_OF_MEMORY_STORING),
        };
        out.extend_from_slice(match stored {
            Stored::Stored if quiet => return,
            Stored::Stored => b"HD",
            Stored::NotStored => b"NS",
            Stored::Exists => b"EX",
            Stored::NotFound => b"NF",
        });
        for flag in Meta::flags_in(flags) {
            let number = match flag[0] {
                b'c' => self.pool(key).keep_cas(key, token),
                b's' => length as u64,
                _ => {
                    reflect(flag, key, is_base64, out);
                    continue;
                }
            };
            reply::meta_flag(out, flag[0]);
            reply::number(out, number);
        }
        out.extend_from_slice(reply::LINE_END);
    }
}
