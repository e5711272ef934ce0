//! Values that arrive in pieces.

use crate::cache::{Cache, Owner, Shared};
use crate::error::Error;
use crate::fetch::WhenBusy;
use ebbtide_store::{Mode, Store, Stored, Ttl, Written};
use std::sync::Arc;

/// A value under way, straight into segments that nobody sees before [`Upload::finish`]. Dropping it undoes it.
pub struct Upload {
    shared: Arc<Shared>,
    _owner: Arc<Owner>,
    /// Whether it waits for flash.
    waits: bool,
    key: Box<[u8]>,
    hash: u64,
    ttl: Ttl,
    mode: Mode,
    flags: u32,
    token: Option<u64>,
    value: Pieces,
}

enum Pieces {
    /// It fits a segment: collected here.
    Short {
        value: Vec<u8>,
        length: usize,
    },
    Long(ebbtide_store::Upload<Arc<Store>>),
}

impl Cache {
    /// Starts a value of exactly `length` bytes that arrives in pieces.
    ///
    /// # Errors
    /// As `Insert::apply`; `OutOfMemory` also while others that are under way hold half of the memory.
    pub fn upload(&self, key: &[u8], length: u64, flags: u32, ttl: Ttl, mode: Mode) -> Result<Upload, Error> {
        self.upload_when(WhenBusy::Refuse, key, length, flags, ttl, mode)
    }

    /// The same; who has the whole value may queue behind others, which end or go on then.
    pub(crate) fn upload_when(
        &self,
        when_busy: WhenBusy,
        key: &[u8],
        length: u64,
        flags: u32,
        ttl: Ttl,
        mode: Mode,
    ) -> Result<Upload, Error> {
        let shared = &self.shared;
        let hash = shared.store.hash(key);
        let short = length <= shared.store.contiguous_value_bytes(key.len()) as u64 || mode.extends();
        let value = if short && length <= shared.store.options().value_bytes_max {
            Ok(Pieces::Short { value: Vec::new(), length: length as usize })
        } else {
            let begin = || shared.store.upload(key, hash, flags, length);
            match when_busy {
                WhenBusy::Queue => shared.in_turn(begin),
                WhenBusy::Refuse => begin(),
            }
            .map(Pieces::Long)
        };
        match value {
            Ok(value) => {
                let shared = Arc::clone(shared);
                let _owner = Arc::clone(&self._owner);
                Ok(Upload {
                    shared,
                    _owner,
                    waits: self.waits,
                    key: key.into(),
                    hash,
                    ttl,
                    mode,
                    flags,
                    token: None,
                    value,
                })
            }
            Err(error) => {
                if mode == Mode::Set {
                    self.delete_unread(key);
                }
                Err(Error::from_store(error))
            }
        }
    }
}

impl Upload {
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The CAS token that the value gets; by default the cache makes one.
    pub fn token(mut self, token: Option<u64>) -> Self {
        self.token = token;
        self
    }

    /// Appends the next bytes.
    ///
    /// # Errors
    /// As `Insert::apply`; after one the upload is dead, and if it was a set no old value stays behind.
    ///
    /// # Panics
    /// If more bytes come than were announced.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = match &mut self.value {
            Pieces::Short { value, length } => {
                assert!(value.len() + bytes.len() <= *length, "more bytes than were announced");
                value.extend_from_slice(bytes);
                Ok(())
            }
            Pieces::Long(upload) => {
                let mut rest = bytes;
                self.shared.with_room(&self.shared.participant(), |_| upload.write(&mut rest))
            }
        };
        self.forget_on_error(written)
    }

    /// Publishes the value; all announced bytes must have been written. Its life begins now.
    ///
    /// # Errors
    /// As `write`.
    pub fn finish(self) -> Result<Stored, Error> {
        self.finish_with_token().map(|written| written.stored)
    }

    /// As `finish`, and answers the CAS token of the value.
    ///
    /// # Errors
    /// As `write`.
    pub fn finish_with_token(mut self) -> Result<Written, Error> {
        if self.mode != Mode::Set {
            self.shared.bring_up_if_below(self.waits, &self.key)?;
        }
        let participant = self.shared.participant();
        let (ttl, mode, token) = (self.ttl, self.mode, self.token);
        let finished = match &mut self.value {
            Pieces::Short { value, length } => {
                assert_eq!(value.len(), *length, "the announced bytes have come");
                let (hash, flags) = (self.hash, self.flags);
                let write = ebbtide_store::Write { key: &self.key, hash, value, flags, ttl, mode, token };
                self.shared.write_in_turn(self.waits, &participant, &write)
            }
            Pieces::Long(upload) => {
                self.shared.with_room(&participant, |now_ms| upload.finish(&participant, ttl, mode, token, now_ms))
            }
        };
        self.forget_on_error(finished)
    }

    fn forget_on_error<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        if outcome.is_err() && self.mode == Mode::Set {
            let shared = &self.shared;
            shared.store.delete(&shared.participant(), &self.key, self.hash, shared.time.now_ms());
        }
        outcome
    }
}
