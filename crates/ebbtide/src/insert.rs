//! Writes of one value.

use crate::access::Access;
use crate::error::Error;
use ebbtide_store::{Flags, Mode, Stored, Ttl, Write, Written};

/// A write that is being described.
#[must_use = "a write does nothing before apply"]
pub struct Insert<'a> {
    access: &'a Access,
    key: &'a [u8],
    value: &'a [u8],
    flags: Flags,
    ttl: Ttl,
    mode: Mode,
    token: Option<u64>,
}

impl<'a> Insert<'a> {
    pub(crate) fn new(access: &'a Access, key: &'a [u8], value: &'a [u8]) -> Self {
        Self { access, key, value, flags: Flags::default(), ttl: Ttl::Never, mode: Mode::Set, token: None }
    }

    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = ttl;
        self
    }

    /// Client flags.
    pub fn flags(mut self, flags: u32) -> Self {
        self.flags = flags.into();
        self
    }

    /// A word of the library in place of client flags; 0 is none.
    pub(crate) fn annotation(mut self, word: u32) -> Self {
        self.flags = if word == 0 { Flags::default() } else { Flags::annotation(word) };
        self
    }

    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The CAS token that the value gets, and keeps until it changes; by default the cache makes one.
    pub fn token(mut self, token: Option<u64>) -> Self {
        self.token = token;
        self
    }

    /// The key, and bytes of the value.
    pub(crate) fn target(&self) -> (&[u8], usize) {
        (self.key, self.value.len())
    }

    /// Carries the write out.
    ///
    /// # Errors
    /// `KeyLength`, `ValueTooLarge`, `OutOfMemory`, `WouldWait`. After a set that failed no old value stays behind,
    /// except after `WouldWait`; other modes leave it as it was.
    pub fn apply(self) -> Result<Stored, Error> {
        self.apply_with_token().map(|written| written.stored)
    }

    /// Carries the write out and answers the CAS token of what it stored.
    ///
    /// # Errors
    /// As `apply`.
    pub fn apply_with_token(self) -> Result<Written, Error> {
        let Self { access, key, value, flags, ttl, mode, token } = self;
        let pool = &*access.pool;
        if value.len() > pool.store.contiguous_value_bytes(key.len()) && !mode.extends() {
            let length = value.len() as u64;
            let mut upload = access.upload(access.waits, key, length, flags, ttl, mode)?.token(token);
            upload.write(value)?;
            return upload.finish_with_token();
        }
        let (participant, waiting) = (pool.participant(), access.waiting());
        let write = Write { key, hash: pool.store.hash(key), value, flags, ttl, mode, token };
        let try_once =
            |now_ms, mode| pool.write_in_upload_order(waiting, &participant, &Write { mode, ..write }, now_ms);
        if mode != Mode::Set {
            return access.change_by_write(key, mode, try_once);
        }
        let written = pool.write_with_eviction(waiting, &participant, |now_ms| try_once(now_ms, mode));
        if written.as_ref().is_err_and(Error::is_final) {
            access.delete_unread(key);
        }
        written
    }
}
