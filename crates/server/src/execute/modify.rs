//! delete, touch, incr and decr.

use ebbtide::memcached::{Changed, Error};
use ebbtide_protocol::reply;

use super::{Executor, Next, OptionalReply};
use crate::output::Output;
use crate::watch::DeleteCommand;

impl Executor {
    pub(super) fn delete(&self, key: &[u8], output: &mut Output) -> Next {
        let Some(deleted) = self.delete_noted(key, None, DeleteCommand::Delete) else {
            return Next::Parked;
        };
        self.count_deleted(deleted);
        let line = if deleted == Changed::Done(()) { reply::DELETED } else { reply::NOT_FOUND };
        output.bytes().extend_from_slice(line);
        Next::Continue
    }

    /// A delete without an answer: flash is not read, and the delete counts as a hit when memory has the key.
    pub(super) fn delete_unanswered(&self, key: &[u8]) {
        let delete = || Some(if self.pool(key).delete(key) { Changed::Done(()) } else { Changed::Absent });
        let deleted = self.note_delete(key, DeleteCommand::Delete, delete);
        self.count_deleted(deleted.unwrap_or(Changed::Absent));
    }

    fn count_deleted(&self, deleted: Changed<()>) {
        let is_done = deleted == Changed::Done(());
        let counter = if is_done { &self.counters().delete_hits } else { &self.counters().delete_misses };
        counter.add(1);
    }

    pub(super) fn touch(&self, key: &[u8], exptime: i32, reply: OptionalReply<'_>) {
        let Some(touched) = self.park_if_waiting(self.pool(key).touch(key, self.ttl(exptime))) else { return };
        self.note_keyed(key, touched.as_ref().is_ok_and(|touched| *touched));
        match touched {
            Ok(true) => {
                self.counters().touch_hits.add(1);
                reply.line(reply::TOUCHED);
            }
            Ok(false) => {
                self.counters().touch_misses.add(1);
                reply.line(reply::NOT_FOUND);
            }
            Err(_) => reply.line(reply::OUT_OF_MEMORY),
        }
    }

    pub(super) fn arithmetic(&self, key: &[u8], delta: u64, increment: bool, reply: OptionalReply<'_>) {
        let counters = self.counters();
        let (result, hits, misses) = match increment {
            true => (self.pool(key).increment(key, delta), &counters.incr_hits, &counters.incr_misses),
            false => (self.pool(key).decrement(key, delta), &counters.decr_hits, &counters.decr_misses),
        };
        let Some(result) = self.park_if_waiting(result) else { return };
        self.note_keyed(key, matches!(result, Ok(Some(_)) | Err(Error::NotNumeric)));
        match result {
            Ok(Some(value)) => {
                hits.add(1);
                reply.number(value);
            }
            Ok(None) => {
                misses.add(1);
                reply.line(reply::NOT_FOUND);
            }
            Err(Error::NotNumeric) => reply.line(reply::NON_NUMERIC),
            Err(_) => reply.line(reply::OUT_OF_MEMORY),
        }
    }
}
