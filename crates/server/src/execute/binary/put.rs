//! set, add, replace, append and prepend.

use ebbtide::memcached::{Error, Mode, Stored, Written};
use ebbtide_protocol::StoreMode;
use ebbtide_protocol::binary::reply::{self, Status};
use ebbtide_protocol::binary::{PacketHead, Put};

use super::next::PacketNext;
use super::put_body::PutBody;
use crate::execute::Executor;
use crate::execute::flash_reads::{KeyPresence, NO_MEMORY_FOR_PRESENT};
use crate::execute::modes::put_mode;
use crate::execute::value_reader::{NewItem, ValueReader};
use crate::observe::CommandKind;
use crate::output::Output;

impl Executor {
    pub(super) fn put(&self, head: PacketHead, put: &Put<'_>, output: &mut Output) -> PacketNext {
        let length = u64::from(put.length);
        if length > self.pool(put.key).max_value().as_bytes() {
            if put.mode == StoreMode::Set {
                // A client that could not write the new value must not go on reading the old one.
                self.pool(put.key).delete(put.key);
            }
            self.counters().store_too_large.add(1);
            reply::error(output.bytes(), head, Status::TooLarge);
            return match put.value {
                Some(_) => PacketNext::Continue,
                None => PacketNext::Skip(put.length),
            };
        }
        let entry = self.entry(put);
        match put.value {
            Some(value) => {
                let Some(written) = self.park_if_waiting(entry.store(self.pool(entry.key), value)) else {
                    return PacketNext::Parked;
                };
                self.answer_put(head, put, written, output);
                PacketNext::Continue
            }
            None => {
                let value_reader = ValueReader::begin(self.pool(entry.key), &entry, length);
                let Put { mode, flags, exptime, cas, length, .. } = *put;
                let put = Put { key: &[], value: None, mode, flags, exptime, cas, length };
                PacketNext::Receive(PutBody { value_reader, key: entry.key.into(), put, head })
            }
        }
    }

    /// Whether a complete body has to wait until flash was read.
    pub fn put_waits_for_flash(&self, body: &mut PutBody) -> bool {
        if put_mode(&body.put) == Mode::Set {
            return false;
        }
        let presence = self.presence(&body.key);
        if presence == KeyPresence::NoMemory {
            body.value_reader.fail(NO_MEMORY_FOR_PRESENT);
        }
        presence == KeyPresence::NeedsFlash
    }

    /// Whether a body has bytes that memory has to be waited for: the connection is parked then.
    pub fn put_waits_for_memory(&self, body: &mut PutBody) -> bool {
        body.value_reader.waits_for_memory()
            && self.park_if_waiting(body.value_reader.resume(self.patience())).is_none()
    }

    /// Stores a complete body and answers. False if memory has to be waited for: then it is to be given again.
    pub fn finish_put(&self, body: &mut PutBody, output: &mut Output) -> bool {
        let put = Put { key: &body.key, ..body.put };
        if let Some(pool) = self.compact(&body.key) {
            let value = body.value_reader.whole();
            match value.len() == put.length as usize {
                true => self.put_compact(pool, body.head, &put, value, output),
                // An upload: the key belongs to a compact pool only since a reload.
                false => reply::error(output.bytes(), body.head, Status::InvalidArguments),
            }
            return true;
        }
        let written = body.value_reader.finish(self.pool(&body.key), &self.entry(&put), self.patience());
        let Some(written) = self.park_if_waiting(written) else { return false };
        self.answer_put(body.head, &put, written, output);
        self.probe.note(self.samples(), CommandKind::Set, Some(&body.key));
        true
    }

    fn answer_put(&self, head: PacketHead, put: &Put<'_>, written: Result<Written, Error>, output: &mut Output) {
        let counters = self.counters();
        counters.set_commands.add(1);
        let is_cas = matches!(put_mode(put), Mode::Cas(_));
        let stored = written.as_ref().map(|written| written.stored);
        self.note_store(put.key, put_mode(put), || self.ttl(put.exptime), put.length as usize, stored);
        match &written {
            Ok(Written { stored: Stored::Stored, token }) => {
                counters.cas_hits.add(u64::from(is_cas));
                let token = if head.quiet { *token } else { self.pool(put.key).keep_cas(put.key, *token) };
                return self.done(head, token, output);
            }
            Ok(Written { stored: Stored::Exists, .. }) => counters.cas_badval.add(u64::from(is_cas)),
            Ok(Written { stored: Stored::NotFound, .. }) => counters.cas_misses.add(1),
            Ok(_) => counters.not_stored.add(1),
            Err(Error::Structured) => counters.not_stored.add(1),
            Err(Error::ValueTooLarge { .. }) => counters.store_too_large.add(1),
            Err(_) => self.count_refused(put.key),
        }
        reply::error(output.bytes(), head, status_of(put.mode, &written));
    }

    fn entry<'a>(&self, put: &Put<'a>) -> NewItem<'a> {
        NewItem { key: put.key, flags: put.flags, ttl: self.ttl(put.exptime), mode: put_mode(put) }
    }
}

/// Status of a command whose value was not stored.
fn status_of(mode: StoreMode, written: &Result<Written, Error>) -> Status {
    match written.as_ref().map(|written| written.stored) {
        Ok(Stored::Exists) => Status::Exists,
        Ok(Stored::NotFound) => Status::NotFound,
        Ok(Stored::Stored | Stored::NotStored) => match mode {
            StoreMode::Add => Status::Exists,
            StoreMode::Replace => Status::NotFound,
            StoreMode::Set | StoreMode::Append | StoreMode::Prepend | StoreMode::Cas(_) => Status::NotStored,
        },
        // The value itself is not too large, so the joined value is.
        Err(Error::ValueTooLarge { .. }) if matches!(mode, StoreMode::Append | StoreMode::Prepend) => Status::NotStored,
        Err(Error::ValueTooLarge { .. }) => Status::TooLarge,
        Err(Error::Structured) => Status::NotStored,
        Err(_) => Status::OutOfMemory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_memcacheds_numbers() {
        let too_large = Err(Error::ValueTooLarge { length: 2, limit: 1 });
        assert_eq!(status_of(StoreMode::Set, &too_large), Status::TooLarge);
        assert_eq!(status_of(StoreMode::Append, &too_large), Status::NotStored);
        assert_eq!(status_of(StoreMode::Prepend, &too_large), Status::NotStored);
        assert_eq!(status_of(StoreMode::Add, &Ok(Stored::NotStored.into())), Status::Exists);
        assert_eq!(status_of(StoreMode::Replace, &Ok(Stored::NotStored.into())), Status::NotFound);
        assert_eq!(status_of(StoreMode::Append, &Err(Error::Structured)), Status::NotStored);
        assert_eq!(status_of(StoreMode::Set, &Err(Error::OutOfMemory { reason: "" })), Status::OutOfMemory);
    }
}
