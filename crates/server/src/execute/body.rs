//! A value that arrives in pieces, as the data block of a storage command that was not all in one read.
//!
//! Up to the engine's contiguous limit it is gathered in a buffer of the connection, which takes no more memory than
//! has arrived; a larger one is written piece by piece into segments that are published at its end. A value that
//! cannot be stored is taken off the stream and dropped. Dropping a body undoes what it began.

use ebbtide::{Error, Mode, Patience, Upload, Written};
use ebbtide_protocol::{MetaSet, StoreMode, StoreRequest, reply};

use super::flash_reads::{KeyPresence, NO_MEMORY_FOR_PRESENT};
use super::meta::{MetaAnswer, SetOutcome, creates};
use super::store::mode;
use super::{Executor, Next, reply_to};
use crate::observe::CommandKind;
use crate::output::Output;

pub struct Body {
    state: BodyState,
    /// Bytes of the value that have not come yet.
    value_left: u64,
    /// How many of the two bytes after the value have come, and whether they were the line end so far.
    end_seen: usize,
    end_matches: bool,
    /// An upload has bytes that wait for memory.
    waits_for_memory: bool,
}

enum BodyState {
    Buffer {
        target: StoreTarget,
        value: Vec<u8>,
    },
    Upload {
        target: StoreTarget,
        upload: Box<Upload>,
    },
    /// An upload that the cache has broken off for want of memory.
    Failed {
        noreply: bool,
    },
    /// What it depends on is on flash, and memory has no room for that.
    Refused(StoreTarget),
    Discard,
}

/// What is to be done with a value when it has come, and how it is answered.
pub struct StoreTarget {
    key: Box<[u8]>,
    flags: u32,
    exptime: i32,
    length: u32,
    mode: Mode,
    token: Option<u64>,
    /// The exptime with which an absent key is created, where it would not be.
    create: Option<i32>,
    answer: StoreAnswer,
}

enum StoreAnswer {
    Line { mode: StoreMode, noreply: bool },
    Meta(MetaAnswer),
}

impl StoreTarget {
    pub fn classic(store: &StoreRequest<'_>) -> Self {
        Self {
            key: store.key.into(),
            flags: store.flags,
            exptime: store.exptime,
            length: store.length,
            mode: mode(store.mode),
            token: None,
            create: None,
            answer: StoreAnswer::Line { mode: store.mode, noreply: store.noreply },
        }
    }

    /// Of an ms with this key, once decoded.
    pub fn meta(key: &[u8], set: &MetaSet<'_>, mode: Mode) -> Self {
        let meta = &set.meta;
        Self {
            key: key.into(),
            flags: meta.client_flags(),
            exptime: meta.exptime(b'T').unwrap_or(0),
            length: set.length,
            mode,
            token: meta.number(b'E'),
            create: creates(meta),
            answer: StoreAnswer::Meta(MetaAnswer::of(meta)),
        }
    }

    /// Whether the answer tells the length of the value.
    fn asks_length(&self) -> bool {
        matches!(&self.answer, StoreAnswer::Meta(meta_answer) if meta_answer.asks_length())
    }

    /// Whether errors are not answered.
    fn is_silent(&self) -> bool {
        matches!(self.answer, StoreAnswer::Line { noreply: true, .. })
    }
}

impl Body {
    fn new(state: BodyState, length: u64) -> Self {
        Self { state, value_left: length, end_seen: 0, end_matches: true, waits_for_memory: false }
    }

    /// A body that is only taken off the stream; its answer is out already.
    pub fn discard(length: u64) -> Self {
        Self::new(BodyState::Discard, length)
    }

    /// Takes what belongs to the body off the front of `input`: how many bytes that was, and whether it is complete.
    pub fn feed(&mut self, input: &[u8]) -> (usize, bool) {
        let count = input.len().min(usize::try_from(self.value_left).unwrap_or(usize::MAX));
        let (piece, rest) = input.split_at(count);
        self.value_left -= count as u64;
        if !piece.is_empty() {
            self.write(piece);
        }
        if self.value_left > 0 {
            return (count, false);
        }
        let missing = reply::LINE_END.len() - self.end_seen;
        let end = &rest[..rest.len().min(missing)];
        self.end_matches &= reply::LINE_END[self.end_seen..].starts_with(end);
        self.end_seen += end.len();
        (count + end.len(), self.end_seen == reply::LINE_END.len())
    }

    fn write(&mut self, piece: &[u8]) {
        match &mut self.state {
            BodyState::Buffer { value, .. } => value.extend_from_slice(piece),
            BodyState::Upload { target, upload } => match upload.write(piece) {
                Ok(()) => {}
                Err(Error::WouldWait { .. }) => self.waits_for_memory = true,
                Err(_) => self.state = BodyState::Failed { noreply: target.is_silent() },
            },
            BodyState::Failed { .. } | BodyState::Refused(_) | BodyState::Discard => {}
        }
    }
}

impl Executor {
    /// Begins to receive a value, which is not larger than the cache takes.
    pub(super) fn receive(&self, mut target: StoreTarget, output: &mut Output) -> Body {
        let length = u64::from(target.length);
        if length <= self.cache.contiguous_limit() as u64 {
            let value = Vec::with_capacity(length as usize);
            return Body::new(BodyState::Buffer { target, value }, length);
        }
        // A long value is sent where it belongs when it begins: what is absent then is created.
        if let Some(exptime) = target.create
            && !self.cache.contains(&target.key)
            && self.probe_flash(&target.key).is_none()
        {
            (target.mode, target.exptime) = (Mode::Add, exptime);
        }
        match self.cache.upload(&target.key, length, target.flags, self.ttl(target.exptime), target.mode) {
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

    /// Answers a write, and tells this length if it is asked for.
    fn answer_stored(
        &self,
        target: &StoreTarget,
        (written, length): (Result<Written, Error>, usize),
        output: &mut Output,
    ) {
        match &target.answer {
            StoreAnswer::Line { mode, noreply } => {
                let line = self.stored_line(*mode, written.map(|written| written.stored));
                reply_to(output, *noreply).line(line);
            }
            StoreAnswer::Meta(meta_answer) => {
                let outcome = SetOutcome { mode: target.mode, written, length };
                self.answer_meta_set(meta_answer, &target.key, outcome, output);
            }
        }
    }

    /// Whether a complete body has to wait until flash was read.
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

    /// Whether a body has bytes that memory has to be waited for: the connection is parked then.
    pub fn body_waits_for_memory(&self, body: &mut Body) -> bool {
        let (true, BodyState::Upload { target, upload }) = (body.waits_for_memory, &mut body.state) else {
            return false;
        };
        upload.set_patience(self.patience());
        let resumed = self.park_if_waiting(upload.resume());
        upload.set_patience(Patience::Whole);
        body.waits_for_memory = resumed.is_none();
        if let Some(Err(_)) = resumed {
            body.state = BodyState::Failed { noreply: target.is_silent() };
        }
        body.waits_for_memory
    }

    /// Takes and stores a value that has come as a whole with its command.
    pub(super) fn finish_whole(&self, mut body: Body, value: &[u8], output: &mut Output) -> Next {
        let (_, finished) = body.feed(value);
        debug_assert!(!finished, "the line end is missing");
        body.feed(reply::LINE_END);
        let is_done = !self.body_waits_for_memory(&mut body) && self.finish(&mut body, output);
        if is_done { Next::Continue } else { Next::Receive(body) }
    }

    /// Stores a complete body and answers. False if memory has to be waited for: then it is to be given again.
    pub fn finish(&self, body: &mut Body, output: &mut Output) -> bool {
        let matches = body.end_matches;
        let before = |target: &StoreTarget| self.length_before(target.mode, target.asks_length(), &target.key);
        let (target, before, written, life) = match &mut body.state {
            BodyState::Discard => return true,
            BodyState::Failed { noreply } => {
                self.counters().store_no_memory.add(1);
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
                    let insert = self.cache.insert(&target.key, value).flags(target.flags).ttl(life);
                    insert.mode(mode).token(target.token).apply_with_token()
                });
                (target, before, written, life)
            }
            BodyState::Upload { target, upload } => {
                let (before, life) = (before(target), self.ttl(target.exptime));
                upload.set_patience(self.patience());
                (&*target, before, upload.try_finish(), life)
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
