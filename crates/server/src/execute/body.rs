//! A value that arrives in pieces, as the data block of a storage command that was not all in one read.
//!
//! Up to the engine's contiguous limit it is gathered in a buffer of the connection, which takes no more memory than
//! has arrived; a larger one is written piece by piece into segments that are published at its end. A value that
//! cannot be stored is taken off the stream and dropped. Dropping a body undoes what it began.

use ebbtide::{Error, Mode, Upload};
use ebbtide_protocol::{Meta, MetaSet, StoreMode, StoreRequest, reply};

use super::modes::{creates, store_mode};

pub struct Body {
    pub(super) state: BodyState,
    /// Bytes of the value that have not come yet.
    pub(super) value_left: u64,
    /// How many of the two bytes after the value have come, and whether they were the line end so far.
    pub(super) end_seen: usize,
    pub(super) end_matches: bool,
    /// An upload has bytes that wait for memory.
    pub(super) waits_for_memory: bool,
}

pub(super) enum BodyState {
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
    pub(super) key: Box<[u8]>,
    pub(super) flags: u32,
    pub(super) exptime: i32,
    pub(super) length: u32,
    pub(super) mode: Mode,
    pub(super) token: Option<u64>,
    /// The exptime with which an absent key is created, where it would not be.
    pub(super) create: Option<i32>,
    pub(super) answer: StoreAnswer,
}

pub(super) enum StoreAnswer {
    Line { mode: StoreMode, noreply: bool },
    Meta(MetaAnswer),
}

/// What of a line is still needed when the value has come.
pub struct MetaAnswer {
    pub(super) flags: Box<[u8]>,
    pub(super) is_base64: bool,
    pub(super) quiet: bool,
}

impl MetaAnswer {
    pub fn of(meta: &Meta<'_>) -> Self {
        Self { flags: meta.flag_bytes().into(), is_base64: meta.has(b'b'), quiet: meta.has(b'q') }
    }

    /// Whether the length of the value is asked for.
    pub fn asks_length(&self) -> bool {
        Meta::flags_in(&self.flags).any(|flag| flag[0] == b's')
    }
}

impl StoreTarget {
    pub fn classic(store: &StoreRequest<'_>) -> Self {
        Self {
            key: store.key.into(),
            flags: store.flags,
            exptime: store.exptime,
            length: store.length,
            mode: store_mode(store.mode),
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
    pub(super) fn asks_length(&self) -> bool {
        matches!(&self.answer, StoreAnswer::Meta(meta_answer) if meta_answer.asks_length())
    }

    /// Whether errors are not answered.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.answer, StoreAnswer::Line { noreply: true, .. })
    }
}

impl Body {
    pub(super) fn new(state: BodyState, length: u64) -> Self {
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
