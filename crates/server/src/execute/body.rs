//! A value that arrives in pieces: the data block of a storage command that was not received in one read.
//!
//! A value up to the engine's contiguous limit is collected in a buffer of the connection, which grows with the bytes
//! received. A larger value is written piece by piece into segments that are published at its end. A value that cannot
//! be stored is skipped. Dropping a body undoes its upload.

use ebbtide::memcached::{Error, Mode, Upload};
use ebbtide_protocol::{Meta, MetaSet, StoreMode, StoreRequest, reply};

use super::modes::{creates, store_mode};

pub struct Body {
    pub(super) state: BodyState,
    /// Bytes of the value that have not arrived.
    pub(super) value_left: u64,
    /// Number of bytes received after the value, 0 to 2, and whether they match the line end.
    pub(super) end_seen: usize,
    pub(super) end_matches: bool,
    /// True while bytes of an upload wait for memory.
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
    /// An upload that the cache has aborted for lack of memory.
    Failed {
        key: Box<[u8]>,
        noreply: bool,
    },
    /// The current value is on flash and cannot be promoted for lack of memory.
    Refused(StoreTarget),
    Discard,
}

impl BodyState {
    pub(super) fn failed(target: &StoreTarget) -> Self {
        Self::Failed { key: target.key.clone(), noreply: target.is_silent() }
    }
}

/// How a received value is stored and answered.
pub struct StoreTarget {
    pub(super) key: Box<[u8]>,
    pub(super) flags: u32,
    pub(super) exptime: i32,
    pub(super) length: u32,
    pub(super) mode: Mode,
    pub(super) token: Option<u64>,
    /// The exptime with which an append or prepend creates an absent key.
    pub(super) create: Option<i32>,
    pub(super) answer: StoreAnswer,
}

pub(super) enum StoreAnswer {
    Line { mode: StoreMode, noreply: bool },
    Meta(MetaAnswer),
}

/// The part of an ms line that its answer needs.
pub struct MetaAnswer {
    pub(super) flags: Box<[u8]>,
    pub(super) is_base64: bool,
    pub(super) quiet: bool,
}

impl MetaAnswer {
    pub fn of(meta: &Meta<'_>) -> Self {
        Self { flags: meta.flag_bytes().into(), is_base64: meta.has(b'b'), quiet: meta.has(b'q') }
    }

    /// True when the answer contains the length of the value.
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

    /// The target of an ms with this decoded key.
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

    /// True when the answer contains the length of the value.
    pub(super) fn asks_length(&self) -> bool {
        matches!(&self.answer, StoreAnswer::Meta(meta_answer) if meta_answer.asks_length())
    }

    /// True when errors are not answered.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.answer, StoreAnswer::Line { noreply: true, .. })
    }
}

impl Body {
    pub(super) fn new(state: BodyState, length: u64) -> Self {
        Self { state, value_left: length, end_seen: 0, end_matches: true, waits_for_memory: false }
    }

    /// A body that is skipped; its command is answered already.
    pub fn discard(length: u64) -> Self {
        Self::new(BodyState::Discard, length)
    }

    /// Consumes the bytes of `input` that belong to the body. Returns their number, and whether the body is complete.
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
                Err(_) => self.state = BodyState::failed(target),
            },
            BodyState::Failed { .. } | BodyState::Refused(_) | BodyState::Discard => {}
        }
    }
}
