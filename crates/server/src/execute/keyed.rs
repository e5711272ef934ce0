//! delete, touch, incr and decr.

use ebbtide::Error;
use ebbtide_protocol::reply;

use super::expiry::{ttl, unix_now};
use super::{Executor, Reply};

impl Executor {
    pub(super) fn delete(&self, key: &[u8], reply: Reply<'_>) {
        if self.cache.delete(key) {
            self.counters().delete_hits.add(1);
            reply.line(reply::DELETED);
        } else {
            self.counters().delete_misses.add(1);
            reply.line(reply::NOT_FOUND);
        }
    }

    pub(super) fn touch(&self, key: &[u8], exptime: i32, reply: Reply<'_>) {
        match self.cache.touch(key, ttl(exptime, unix_now)) {
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

    pub(super) fn arithmetic(&self, key: &[u8], delta: u64, increment: bool, reply: Reply<'_>) {
        let counters = self.counters();
        let (result, hits, misses) = match increment {
            true => (self.cache.increment(key, delta), &counters.incr_hits, &counters.incr_misses),
            false => (self.cache.decrement(key, delta), &counters.decr_hits, &counters.decr_misses),
        };
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
