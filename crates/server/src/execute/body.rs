//! A value that arrives in pieces, as the data block of a storage command that was not all in one read.
//!
//! Up to the engine's contiguous limit it is gathered in a buffer of the connection, which takes no more memory than
//! has arrived; a larger one is written piece by piece into segments that are published at its end. A value that
//! cannot be stored is taken off the stream and dropped. Dropping a body undoes what it began.

use ebbtide::Upload;
use ebbtide_protocol::{Store, StoreMode, reply};

use super::expiry::{ttl, unix_now};
use super::store::mode;
use super::{Executor, reply_to};
use crate::observe::Command;
use crate::output::Output;

pub struct Body {
    sink: Sink,
    /// Bytes of the value that have not come yet.
    value_left: u64,
    /// How many of the two bytes after the value have come, and whether they were the line end so far.
    end_seen: usize,
    end_matches: bool,
}

enum Sink {
    Gather {
        target: Target,
        value: Vec<u8>,
    },
    Upload {
        target: Target,
        upload: Box<Upload>,
    },
    /// An upload that the cache has broken off for want of memory.
    Broken {
        noreply: bool,
    },
    Discard,
}

struct Target {
    mode: StoreMode,
    key: Box<[u8]>,
    flags: u32,
    exptime: i32,
    length: u32,
    noreply: bool,
}

impl Body {
    fn new(sink: Sink, length: u64) -> Self {
        Self { sink, value_left: length, end_seen: 0, end_matches: true }
    }

    /// A body that is only taken off the stream; its answer is out already.
    pub fn discard(length: u64) -> Self {
        Self::new(Sink::Discard, length)
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
        match &mut self.sink {
            Sink::Gather { value, .. } => value.extend_from_slice(piece),
            Sink::Upload { target, upload } => {
                if upload.write(piece).is_err() {
                    self.sink = Sink::Broken { noreply: target.noreply };
                }
            }
            Sink::Broken { .. } | Sink::Discard => {}
        }
    }
}

impl Executor {
    /// Begins to receive the value of `store`, which is not larger than the cache takes.
    pub(super) fn receive(&self, store: &Store<'_>, output: &mut Output) -> Body {
        let length = u64::from(store.length);
        let target = Target {
            mode: store.mode,
            key: store.key.into(),
            flags: store.flags,
            exptime: store.exptime,
            length: store.length,
            noreply: store.noreply,
        };
        if length <= self.cache.contiguous_limit() as u64 {
            let value = Vec::with_capacity(length as usize);
            return Body::new(Sink::Gather { target, value }, length);
        }
        let upload = self.cache.upload(store.key, length, store.flags, ttl(store.exptime, unix_now), mode(store.mode));
        match upload {
            Ok(upload) => {
                let upload = Box::new(upload);
                Body::new(Sink::Upload { target, upload }, length)
            }
            Err(error) => {
                let line = self.stored_line(store.mode, Err(error));
                reply_to(output, store.noreply).line(line);
                Body::discard(length)
            }
        }
    }

    /// Stores a complete body and answers.
    pub fn finish(&self, body: Body, output: &mut Output) {
        let matches = body.end_matches;
        let (target, stored) = match body.sink {
            Sink::Discard => return,
            Sink::Broken { noreply } => {
                self.counters().store_no_memory.add(1);
                return reply_to(output, noreply).line(reply::OUT_OF_MEMORY_READING);
            }
            Sink::Gather { target, .. } | Sink::Upload { target, .. } if !matches => {
                return reply_to(output, target.noreply).line(reply::BAD_DATA_CHUNK);
            }
            Sink::Gather { target, value } => {
                let stored = self
                    .cache
                    .insert(&target.key, &value)
                    .flags(target.flags)
                    .ttl(ttl(target.exptime, unix_now))
                    .mode(mode(target.mode))
                    .apply();
                (target, stored)
            }
            Sink::Upload { target, upload } => {
                let stored = upload.finish();
                (target, stored)
            }
        };
        let life = || ttl(target.exptime, unix_now);
        self.note_store(&target.key, target.mode, life, target.length as usize, stored.as_ref().copied());
        reply_to(output, target.noreply).line(self.stored_line(target.mode, stored));
        self.probe.note(self.samples(), Command::Set, Some(&target.key));
    }
}
