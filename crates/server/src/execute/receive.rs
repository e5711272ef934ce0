//! Receives values that arrive in pieces, stores them when they are complete, and answers.

use ebbtide::memcached::{Error, Mode, Patience, Ttl, Upload, Written};
use ebbtide_protocol::reply;

use super::body::{Body, BodyState, StoreAnswer, StoreTarget};
use super::flash_reads::{KeyPresence, NO_MEMORY_FOR_PRESENT};
use super::meta::SetOutcome;
use super::value_reader::{NewItem, POOL_CHANGED};
use super::{Executor, Next, reply_to};
use crate::observe::CommandKind;
use crate::output::Output;

impl Executor {
    /// Starts to receive a value within the cache's limit.
    pub(super) fn receive(&self, mut target: StoreTarget, output: &mut Output) -> Body {
        let length = u64::from(target.length);
        if length <= self.pool(&target.key).contiguous_limit() as u64 {
            let value = Vec::with_capacity(length as usize);
            return Body::new(BodyState::Buffer { target, value }, length);
        }
        // The destination of a long value is decided at its start: a key that is absent then is created.
        if let Some(exptime) = target.create
            && !self.pool(&target.key).contains(&target.key)
            && self.probe_flash(&target.key).is_none()
        {
            (target.mode, target.exptime) = (Mode::Add, exptime);
        }
        match self.pool(&target.key).upload(&target.key, length, target.flags, self.ttl(target.exptime), target.mode) {
            Ok(upload) => {
                let upload = Box::new(upload.token(target.token));
                Body::new(BodyState::Upload { target, upload }, length)
            }
            Err(error) => {
                let written = Err(error);
                self.answer_stored(&target, (written, target.length as usize), output);
                Body::discard(length)
            }
        }
    }

    /// The result of an upload that has all bytes.
    fn finish_upload(&self, target: &StoreTarget, upload: &mut Upload, ttl: Ttl) -> Result<Written, Error> {
        let StoreTarget { key, flags, mode, .. } = target;
        let entry = NewItem { key, flags: *flags, ttl, mode: *mode };
        match self.compact(key) {
            None => entry.finish_upload(self.pool(key), upload, self.patience()),
            Some(pool) => {
                if *mode == Mode::Set {
                    // A key of another length has no entry.
                    let _ = pool.delete(key);
                }
                Err(POOL_CHANGED)
            }
        }
    }

    /// Answers a write, with the length of the value if the command asks for it.
    fn answer_stored(
        &self,
        target: &StoreTarget,
        (written, length): (Result<Written, Error>, usize),
        output: &mut Output,
    ) {
        match &target.answer {
            StoreAnswer::Line { mode, noreply } => {
                let line = self.stored_line(&target.key, *mode, written.map(|written| written.stored));
                reply_to(output, *noreply).line(line);
            }
            StoreAnswer::Meta(meta_answer) => {
                let outcome = SetOutcome { mode: target.mode, written, length };
                self.answer_meta_set(meta_answer, &target.key, outcome, output);
            }
        }
    }

    /// True when a complete body must wait for a read of flash.
    pub fn body_waits_for_flash(&self, body: &mut Body) -> bool {
        let presence = match &body.state {
            BodyState::Buffer { target, .. } | BodyState::Upload { target, .. } if target.mode != Mode::Set => {
                self.presence(&target.key)
            }
            _ => KeyPresence::Known,
        };
        if presence == KeyPresence::NoMemory {
            body.state = match std::mem::replace(&mut body.state, BodyState::Discard) {
                BodyState::Buffer { target, .. } | BodyState::Upload { target, .. } => BodyState::Refused(target),
                state => state,
            };
        }
        presence == KeyPresence::NeedsFlash
    }

    /// True when bytes of a body wait for memory: the connection is parked.
    pub fn body_waits_for_memory(&self, body: &mut Body) -> bool {
        let (true, BodyState::Upload { target, upload }) = (body.waits_for_memory, &mut body.state) else {
            return false;
        };
        upload.set_patience(self.patience());
        let resumed = self.park_if_waiting(upload.resume());
        upload.set_patience(Patience::Whole);
        body.waits_for_memory = resumed.is_none();
        if let Some(Err(_)) = resumed {
            body.state = BodyState::failed(target);
        }
        body.waits_for_memory
    }

    /// Stores a value that has arrived as a whole with its command.
    pub(super) fn finish_whole(&self, mut body: Body, value: &[u8], output: &mut Output) -> Next {
        let (_, finished) = body.feed(value);
        debug_assert!(!finished, "the line end is missing");
        body.feed(reply::LINE_END);
        let is_done = !self.body_waits_for_memory(&mut body) && self.finish(&mut body, output);
        if is_done { Next::Continue } else { Next::Receive(body) }
    }

    /// Stores a complete body and answers. False when it waits for memory: the session gives it again.
    pub fn finish(&self, body: &mut Body, output: &mut Output) -> bool {
        let matches = body.end_matches;
        if let BodyState::Buffer { target, value } = &body.state
            && matches
            && let Some(pool) = self.compact(&target.key)
        {
            self.finish_compact(pool, target, value, output);
            return true;
        }
        let before = |target: &StoreTarget| self.length_before(target.mode, target.asks_length(), &target.key);
        let (target, before, written, life) = match &mut body.state {
            BodyState::Discard => return true,
            BodyState::Failed { key, noreply } => {
                self.count_refused(key);
                reply_to(output, *noreply).line(reply::OUT_OF_MEMORY_READING);
                return true;
            }
            BodyState::Buffer { target, .. } | BodyState::Upload { target, .. } | BodyState::Refused(target)
                if !matches =>
            {
                reply_to(output, target.is_silent()).line(reply::BAD_DATA_CHUNK);
                return true;
            }
            BodyState::Refused(target) => {
                let (before, life) = (before(target), self.ttl(target.exptime));
                (&*target, before, Err(NO_MEMORY_FOR_PRESENT), life)
            }
            BodyState::Buffer { target, value } => {
                let (target, before) = (&*target, before(target));
                let (written, life) = self.apply_or_create(target.mode, target.exptime, target.create, |mode, life| {
                    let insert = self.pool(&target.key).insert(&target.key, value).flags(target.flags).ttl(life);
                    insert.mode(mode).token(target.token).apply_with_token()
                });
                (target, before, written, life)
            }
            BodyState::Upload { target, upload } => {
                let (before, life) = (before(target), self.ttl(target.exptime));
                (&*target, before, self.finish_upload(target, upload, life), life)
            }
        };
        let Some(written) = self.park_if_waiting(written) else { return false };
        let stored = written.as_ref().map(|written| written.stored);
        self.note_store(&target.key, target.mode, || life, target.length as usize, stored);
        let length = self.length_after(&target.key, before, &written, target.length as usize);
        self.answer_stored(target, (written, length), output);
        self.probe.note(self.samples(), CommandKind::Set, Some(&target.key));
        true
    }
}
