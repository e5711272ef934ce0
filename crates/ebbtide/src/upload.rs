//! Values that arrive in pieces.

use crate::access::Access;
use crate::error::Error;
use crate::pool_state::PoolState;
use crate::retry::Patience;
use ebbtide_store::{Flags, Mode, Store, Stored, Ttl, Written};
use std::sync::Arc;

/// A value that arrives in pieces, written into segments that no reader sees before [`Upload::finish`]. Dropping it
/// frees them.
pub struct Upload {
    access: Access,
    key: Box<[u8]>,
    hash: u64,
    ttl: Ttl,
    mode: Mode,
    flags: Flags,
    token: Option<u64>,
    value: Pieces,
}

enum Pieces {
    /// It fits a segment: collected here.
    Short { value: Vec<u8>, length: usize },
    Long {
        upload: ebbtide_store::Upload<Arc<Store>>,
        /// Bytes that have arrived and found no memory yet.
        unwritten: Vec<u8>,
    },
}

impl Access {
    /// Starts a value of `length` bytes. With `waits_for_others` a long value waits for the memory of other uploads:
    /// only for callers that have the whole value.
    pub fn upload(
        &self,
        waits_for_others: bool,
        key: &[u8],
        length: u64,
        flags: Flags,
        ttl: Ttl,
        mode: Mode,
    ) -> Result<Upload, Error> {
        let pool = &self.pool;
        let hash = pool.store.hash(key);
        pool.expect_on_flash(key, length);
        let is_short = length <= pool.store.contiguous_value_bytes(key.len()) as u64 || mode.extends();
        let value = if is_short && length <= pool.store.options().value_bytes_max {
            Ok(Pieces::Short { value: Vec::new(), length: length as usize })
        } else {
            let start = || pool.store.upload(key, hash, flags, length);
            let upload = if waits_for_others { pool.in_upload_order(start) } else { start() };
            upload.map(|upload| Pieces::Long { upload, unwritten: Vec::new() })
        };
        match value {
            Ok(value) => {
                Ok(Upload { access: self.clone(), key: key.into(), hash, ttl, mode, flags, token: None, value })
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

    /// Whether it will be published in this pool.
    pub(crate) fn is_of(&self, pool: &PoolState) -> bool {
        std::ptr::eq(&*self.access.pool, pool)
    }

    /// The CAS token that the value gets; by default the cache makes one.
    pub fn token(mut self, token: Option<u64>) -> Self {
        self.token = token;
        self
    }

    /// As `Pool::set_patience`, for this upload.
    pub fn set_patience(&mut self, patience: Patience) {
        self.access.patience.set(patience);
    }

    /// Appends the next bytes.
    ///
    /// # Errors
    /// As `Insert::apply`. After `WouldWait` the upload has all of the bytes, and [`Upload::resume`] is to be called
    /// before more come. After another one it is dead, and if it was a set no old value stays behind.
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
            Pieces::Long { upload, unwritten } => {
                if !unwritten.is_empty() {
                    unwritten.extend_from_slice(bytes);
                    return self.resume();
                }
                let mut rest = bytes;
                let write = |_| upload.write(&mut rest);
                let written =
                    self.access.pool.write_with_eviction(self.access.waiting(), &self.access.pool.participant(), write);
                if matches!(written, Err(Error::WouldWait { .. })) {
                    unwritten.extend_from_slice(rest);
                }
                written
            }
        };
        self.forget_on_error(written)
    }

    /// Continues with the bytes that found no memory.
    ///
    /// # Errors
    /// As `write`.
    pub fn resume(&mut self) -> Result<(), Error> {
        let Pieces::Long { upload, unwritten } = &mut self.value else { return Ok(()) };
        let mut rest = &unwritten[..];
        let write = |_| upload.write(&mut rest);
        let written =
            self.access.pool.write_with_eviction(self.access.waiting(), &self.access.pool.participant(), write);
        let taken = unwritten.len() - rest.len();
        unwritten.drain(..taken);
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
        let pool = &*self.access.pool;
        let (participant, waiting) = (pool.participant(), self.access.waiting());
        let (ttl, token) = (self.ttl, self.token);
        let mut try_once = |now_ms, mode| match &mut self.value {
            Pieces::Short { value, length } => {
                assert_eq!(value.len(), *length, "the announced bytes have come");
                let (hash, flags) = (self.hash, self.flags);
                let write = ebbtide_store::Write { key: &self.key, hash, value, flags, ttl, mode, token };
                pool.write_in_upload_order(waiting, &participant, &write, now_ms)
            }
            Pieces::Long { upload, .. } => upload.finish(&participant, ttl, mode, token, now_ms),
        };
        let finished = match self.mode {
            Mode::Set => pool.write_with_eviction(waiting, &participant, |now_ms| try_once(now_ms, Mode::Set)),
            mode => self.access.change_by_write(&self.key, mode, try_once),
        };
        self.forget_on_error(finished)
    }

    fn forget_on_error<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        if self.mode == Mode::Set && outcome.as_ref().is_err_and(Error::is_final) {
            self.access.delete_unread(&self.key);
        }
        outcome
    }
}
