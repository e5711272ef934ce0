//! flush_all, verbosity, cache_memlimit, debugtime and shutdown.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ebbtide::ByteSize;
use ebbtide_protocol::reply;

use super::{Executor, Next, OptionalReply};
use crate::output::Output;

/// memcached's highest verbosity.
const VERBOSITY_LIMIT: u32 = 2;
/// memcached's smallest memory limit, and the number from which on it takes a limit for a count of bytes.
const MEGABYTES_MIN: u32 = 8;
const MEGABYTES_MAX: u32 = 1_000_000_000;

impl Executor {
    pub(super) fn flush_all(&self, exptime: Option<i32>, reply: OptionalReply<'_>) {
        if !self.shared.options.allow_flush {
            return reply.line(reply::FLUSH_NOT_ALLOWED);
        }
        let Some(exptime) = exptime else { return reply.line(reply::INVALID_EXPTIME) };
        self.counters().flush_commands.add(1);
        self.flush_pools(exptime);
        reply.line(reply::OK);
    }

    pub(super) fn verbosity(&self, level: u32, reply: OptionalReply<'_>) {
        let level = level.min(VERBOSITY_LIMIT);
        self.shared.verbosity.store(level, Ordering::Relaxed);
        reply.line(reply::OK);
    }

    pub(super) fn memory_limit(&self, megabytes: u32, reply: OptionalReply<'_>) {
        let line = match megabytes {
            ..MEGABYTES_MIN => reply::MEMORY_LIMIT_TOO_SMALL,
            MEGABYTES_MIN..=MEGABYTES_MAX => match self.cache.resize(ByteSize::mib(u64::from(megabytes))) {
                Ok(()) => reply::OK,
                Err(_) => reply::MEMORY_LIMIT_OUT_OF_BOUNDS,
            },
            _ => reply::MEMORY_LIMIT_NOT_MEGABYTES,
        };
        reply.line(line);
    }

    /// An unknown command to clients of a server whose time is not for them to move, or cannot be.
    pub(super) fn skip_time(&self, seconds: u32, output: &mut Output) {
        let is_allowed = self.shared.options.test_clock;
        let is_done = is_allowed && self.cache.skip_time(Duration::from_secs(seconds.into())).is_ok();
        output.bytes().extend_from_slice(if is_done { reply::OK } else { reply::ERROR });
    }

    pub(super) fn shutdown(&self, mode_known: bool, reply: OptionalReply<'_>) -> Next {
        if !self.shared.options.allow_shutdown {
            reply.line(reply::SHUTDOWN_NOT_ENABLED);
            return Next::Continue;
        }
        if !mode_known {
            reply.line(reply::INVALID_SHUTDOWN_MODE);
            return Next::Continue;
        }
        self.shared.stop();
        Next::Close
    }
}
