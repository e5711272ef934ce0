//! set, add, replace, append, prepend and cas.

use ebbtide::memcached::{Error, Stored, Ttl};
use ebbtide_protocol::{StoreMode, StoreRequest, reply};

use super::body::{Body, StoreTarget};
use super::modes::store_mode;
use super::{Executor, Next, reply_to};
use crate::output::Output;

impl Executor {
    pub(super) fn store(&self, store: &StoreRequest<'_>, output: &mut Output) -> Next {
        let length = u64::from(store.length);
        if length > self.pool(store.key).max_value().as_bytes() {
            if store.mode == StoreMode::Set {
                // After a failed set the old value must not be read.
                self.pool(store.key).delete(store.key);
            }
            self.counters().store_too_large.add(1);
            let error = Error::ValueTooLarge { length, limit: self.pool(store.key).max_value().as_bytes() };
            self.note_store(store.key, store_mode(store.mode), || Ttl::Never, 0, Err(&error));
            reply_to(output, store.noreply).line(reply::TOO_LARGE);
            return match store.value {
                Some(_) => Next::Continue,
                None => Next::Receive(Body::discard(length)),
            };
        }
        match store.value {
            Some(value) if value.len() <= self.pool(store.key).contiguous_limit() => {
                let stored = self
                    .pool(store.key)
                    .insert(store.key, value)
                    .flags(store.flags)
                    .ttl(self.ttl(store.exptime))
                    .mode(store_mode(store.mode))
                    .apply();
                let Some(stored) = self.park_if_waiting(stored) else { return Next::Parked };
                let life = || self.ttl(store.exptime);
                self.note_store(store.key, store_mode(store.mode), life, value.len(), stored.as_ref().copied());
                reply_to(output, store.noreply).line(self.stored_line(store.key, store.mode, stored));
                Next::Continue
            }
            Some(value) => {
                let body = self.receive(StoreTarget::classic(store), output);
                self.finish_whole(body, value, output)
            }
            None => Next::Receive(self.receive(StoreTarget::classic(store), output)),
        }
    }

    /// The answer to a storage command, which is counted.
    pub(super) fn stored_line(&self, key: &[u8], mode: StoreMode, stored: Result<Stored, Error>) -> &'static [u8] {
        self.count_stored(key, matches!(mode, StoreMode::Cas(_)), stored.as_ref().copied());
        line_of(mode, &stored)
    }

    /// Counts a write by its result.
    pub(super) fn count_stored(&self, key: &[u8], is_cas: bool, stored: Result<Stored, &Error>) {
        let counters = self.counters();
        counters.set_commands.add(1);
        match stored {
            Ok(Stored::Stored) => counters.cas_hits.add(u64::from(is_cas)),
            Ok(Stored::Exists) if is_cas => counters.cas_badval.add(1),
            Ok(Stored::NotStored | Stored::Exists) => counters.not_stored.add(1),
            Ok(Stored::NotFound) => counters.cas_misses.add(1),
            Err(Error::Structured) => counters.not_stored.add(1),
            Err(Error::ValueTooLarge { .. }) => counters.store_too_large.add(1),
            Err(_) => self.count_refused(key),
        }
    }
}

fn line_of(mode: StoreMode, stored: &Result<Stored, Error>) -> &'static [u8] {
    match stored {
        Ok(Stored::Stored) => reply::STORED,
        Ok(Stored::NotStored) => reply::NOT_STORED,
        Ok(Stored::Exists) => reply::EXISTS,
        Ok(Stored::NotFound) => reply::NOT_FOUND,
        // The value alone is within the limit: joined with the old value it is not.
        Err(Error::ValueTooLarge { .. }) if matches!(mode, StoreMode::Append | StoreMode::Prepend) => reply::NOT_STORED,
        Err(Error::ValueTooLarge { .. }) => reply::TOO_LARGE,
        Err(Error::Structured) => reply::STRUCTURED,
        Err(_) => reply::OUT_OF_MEMORY_STORING,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_memcacheds_lines() {
        let too_large = Err(Error::ValueTooLarge { length: 2, limit: 1 });
        assert_eq!(line_of(StoreMode::Set, &too_large), reply::TOO_LARGE);
        assert_eq!(line_of(StoreMode::Append, &too_large), reply::NOT_STORED);
        assert_eq!(line_of(StoreMode::Prepend, &too_large), reply::NOT_STORED);
        assert_eq!(line_of(StoreMode::Append, &Err(Error::Structured)), reply::STRUCTURED);
        let full = Err(Error::OutOfMemory { reason: "" });
        assert_eq!(line_of(StoreMode::Append, &full), reply::OUT_OF_MEMORY_STORING);
    }
}
