//! Commands against the cache: a file for each family, and this one, which dispatches to them.

mod admin;
pub mod binary;
mod body;
mod compact;
mod dump;
mod executor;
mod expiry;
mod extstore;
mod flash_reads;
mod get;
mod memory_wait;
mod meta;
mod modes;
mod modify;
mod payload;
mod pools;
mod receive;
mod settings;
mod stats;
mod stats_memory;
mod stats_pools;
mod store;
mod tls;
mod value_reader;
mod watch_events;

use ebbtide_protocol::{Rejection, Request, reply};

use crate::observe::CommandKind;
use crate::output::Output;

use executor::{OptionalReply, reply_to};
use flash_reads::{KeyPresence, NO_MEMORY_FOR_PRESENT};

pub use body::Body;
pub use dump::SliceEnd;
pub use executor::{Executor, Next};
pub use flash_reads::HEALTH_INTERVAL;
pub use get::{GetRun, Rest, Unanswered, end_get, line_of, position_in};

impl Executor {
    /// Executes a command other than a get, and records it if it is sampled. `connection` is the number of the client's
    /// connection in `stats conns`.
    pub fn execute(&self, request: &Request<'_>, connection: usize, output: &mut Output) -> Next {
        if !self.probe.is_sampling() {
            return self.carry_out(request, connection, output);
        }
        let (command, key) = CommandKind::of(request);
        let next = self.carry_out(request, connection, output);
        // A command whose value is still arriving is recorded when the value is stored.
        if !matches!(next, Next::Receive(_) | Next::Parked) {
            self.probe.note(self.samples(), command, key);
        }
        next
    }

    fn carry_out(&self, request: &Request<'_>, connection: usize, output: &mut Output) -> Next {
        if self.router.has_compact()
            && let Some(next) = self.compact_request(request, output)
        {
            return next;
        }
        match self.request_presence(request) {
            KeyPresence::Known => {}
            KeyPresence::NeedsFlash => return Next::Parked,
            KeyPresence::NoMemory => {
                self.refuse_for_memory(request, output);
                return Next::Continue;
            }
        }
        match *request {
            Request::Get(_) => unreachable!("gets are executed in runs"),
            Request::Store(ref store) => return self.store(store, output),
            Request::Meta { command, ref meta } => return self.meta(command, meta, output),
            Request::MetaSet(ref set) => return self.meta_set(set, output),
            Request::MetaNoOp => output.bytes().extend_from_slice(reply::META_NO_OP),
            Request::Delete { key, noreply: true } => self.delete_unanswered(key),
            Request::Delete { key, noreply: false } => return self.delete(key, output),
            Request::Arithmetic { key, delta, increment, noreply } => {
                self.arithmetic(key, delta, increment, reply_to(output, noreply))
            }
            Request::Touch { key, exptime, noreply } => self.touch(key, exptime, reply_to(output, noreply)),
            Request::FlushAll { exptime, noreply } => {
                self.flush_all(exptime, reply_to(output, noreply));
            }
            Request::Verbosity { level, noreply } => {
                self.verbosity(level, reply_to(output, noreply));
            }
            Request::MemoryLimit { megabytes, noreply } => {
                self.memory_limit(megabytes, reply_to(output, noreply));
            }
            Request::Version => ebbtide_protocol::reply::version(output.bytes(), crate::VERSION),
            Request::Stats { topic, argument } => self.stats(topic, argument, connection, output.bytes()),
            Request::CacheDump(dump) => self.cache_dump(dump, output.bytes()),
            Request::Shutdown { mode_known, noreply } => {
                return self.shutdown(mode_known, reply_to(output, noreply));
            }
            Request::SkipTime { seconds } => self.skip_time(seconds, output),
            Request::RefreshCerts => self.refresh_certificates(output),
            Request::Dump(_) | Request::Watch { .. } if !self.has_streams => {
                output.bytes().extend_from_slice(b"CLIENT_ERROR not available over UDP\r\n");
            }
            Request::Dump(dump) => return self.dump(dump, output),
            Request::Watch { watched, noreply } => return self.watch(watched, reply_to(output, noreply)),
            Request::ExternalStorage { setting, noreply } => {
                self.external_storage(setting, reply_to(output, noreply));
            }
            Request::Unchanged { noreply } => reply_to(output, noreply).line(reply::OK),
            Request::Quit => return Next::Close,
        }
        if self.is_waiting() { Next::Parked } else { Next::Continue }
    }

    /// Answers a command whose current value is on flash and cannot be promoted for lack of memory.
    fn refuse_for_memory(&self, request: &Request<'_>, output: &mut Output) {
        match request {
            Request::Store(store) => {
                let line = self.stored_line(store.key, store.mode, Err(NO_MEMORY_FOR_PRESENT));
                reply_to(output, store.noreply).line(line);
            }
            Request::MetaSet(set) => {
                self.count_stored(set.meta.key_word(), false, Err(&NO_MEMORY_FOR_PRESENT));
                output.bytes().extend_from_slice(reply::OUT_OF_MEMORY_STORING);
            }
            Request::Touch { noreply, .. } | Request::Arithmetic { noreply, .. } => {
                reply_to(output, *noreply).line(reply::OUT_OF_MEMORY);
            }
            _ => output.bytes().extend_from_slice(reply::OUT_OF_MEMORY),
        }
    }
    pub fn reject(&self, rejection: Rejection, noreply: bool, output: &mut Output) {
        reply_to(output, noreply).line(rejection.line());
    }
}
