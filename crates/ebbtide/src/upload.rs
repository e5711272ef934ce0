//! Values that arrive in pieces.

use crate::cache::{Cache, Owner, Shared};
use crate::error::Error;
use crate::flash::read::WhenBusy;
use crate::retry::{Patience, Waiting};
use ebbtide_store::{Mode, Store, Stored, Ttl, Written};
use std::sync::Arc;

/// A value under way, straight into segments that nobody sees before [`Upload::finish`]. Dropping it undoes it.
pub struct Upload {
    shared: Arc<Shared>,
    _owner: Arc<Owner>,
    /// Whether it waits for flash, and what it does where it would wait for memory.
    waiting: Waiting,
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
    Short { value: Vec<u8>, length: usize },
    Long {
        upload: ebbtide_store::Upload<Arc<Store>>,
        /// Bytes that have come and found no memory yet.
        kept: Vec<u8>,
    },
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
                WhenBusy::Queue => shared.in_upload_order(begin),
                WhenBusy::Refuse => begin(),
            }
            .map(|upload| Pieces::Long { upload, kept: Vec::new() })
        };
        match value {
            Ok(value) => {
                let shared = Arc::clone(shared);
                let _owner = Arc::clone(&self._owner);
                Ok(Upload {
                    shared,
                    _owner,
                    waiting: self.waiting(),
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

    /// As [`Cache::set_patience`], for this upload.
    pub fn set_patience(&mut self, patience: Patience) {
        if self.waiting != Waiting::Sleeps {
            self.waiting = Waiting::Answers(patience);
        }
    }

    /// Appends the next bytes.
    ///
    /// # Errors
    /// As `Insert::apply`. After `WouldWait` the upload has all of the bytes, and [`Upload::resume`] is to be called before
    /// more come. After another one it is dead, and if it was a set no old value stays behind.
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
            Pieces::Long { upload, kept } => {
                if !kept.is_empty() {
                    kept.extend_from_slice(bytes);
                    return self.resume();
                }
                let mut rest = bytes;
                let write = |_| upload.write(&mut rest);
                let written = self.shared.write_with_eviction(self.waiting, &self.shared.participant(), write);
                if matches!(written, Err(Error::WouldWait { .. })) {
                    kept.extend_from_slice(rest);
                }
                written
            }
        };
        self.forget_on_error(written)
    }

    /// Goes on with the bytes that have found no memory.
    ///
    /// # Errors
    /// As `write`.
    pub fn resume(&mut self) -> Result<(), Error> {
        let Pieces::Long { upload, kept } = &mut self.value else { return Ok(()) };
        let mut rest = &kept[..];
        let write = |_| upload.write(&mut rest);
        let written = self.shared.write_with_eviction(self.waiting, &self.shared.participant(), write);
        let taken = kept.len() - rest.len();
        kept.drain(..taken);
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
        self.try_finish()
    }

    /// As `finish_with_token`; after `WouldWait` it is to be called again.
    ///
    /// # Errors
    /// As `write`.
    pub fn try_finish(&mut self) -> Result<Written, Error> {
        self.resume()?;
        if self.mode != Mode::Set {
            self.shared.promote_if_on_flash(self.waiting == Waiting::Sleeps, &self.key)?;
        }
        let participant = self.shared.participant();
        let (ttl, mode, token) = (self.ttl, self.mode, self.token);
        let finished = match &mut self.value {
            Pieces::Short { value, length } => {
                assert_eq!(value.len(), *length, "the announced bytes have come");
                let (hash, flags) = (self.hash, self.flags);
                let write = ebbtide_store::Write { key: &self.key, hash, value, flags, ttl, mode, token };
                self.shared.write_in_upload_order(self.waiting, &participant, &write)
            }
            Pieces::Long { upload, .. } => {
                let finish = |now_ms| upload.finish(&participant, ttl, mode, token, now_ms);
                self.shared.write_with_eviction(self.waiting, &participant, finish)
            }
        };
        self.forget_on_error(finished)
    }

    fn forget_on_error<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        if self.mode == Mode::Set && outcome.as_ref().is_err_and(Error::is_final) {
            let shared = &self.shared;
            shared.store.delete(&shared.participant(), &self.key, self.hash, shared.time.now_ms());
        }
        outcome
    }
}
