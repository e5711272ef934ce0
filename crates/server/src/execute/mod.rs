//! Commands against the cache. Each file is a family of them; this one holds what they share.

mod admin;
pub mod binary;
mod body;
mod dump;
mod expiry;
mod extstore;
mod flash_reads;
mod get;
mod memory_wait;
mod meta;
mod modify;
mod stats;
mod store;
mod tls;
mod value_reader;
mod watch_events;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use ebbtide::Cache;
use ebbtide_protocol::{Rejection, Request, reply};

use crate::ServerOptions;
use crate::counters::CommandCounters;
use crate::observe::{CommandKind, Probe, Samples};
use crate::output::Output;
use crate::shared::{ConnectionKey, Inbox, Shared};
use crate::watch::Watch;

use flash_reads::{KeyPresence, NO_MEMORY_FOR_PRESENT};

pub use body::Body;
pub use dump::{DumpProgress, DumpThread, SliceEnd};
pub use expiry::unix_now;
pub use extstore::{FlashGets, health};
pub use flash_reads::{ConnectionWait, HEALTH_INTERVAL};
pub use get::{GetRun, Rest, Unanswered, end_get, line_of, position_in};

/// Executes commands for one worker.
pub struct Executor {
    cache: Cache,
    shared: Arc<Shared>,
    worker: usize,
    probe: Probe,
    inbox: Arc<Inbox>,
    has_flash: bool,
    /// Whether answers may go on for long: dumps, watching.
    has_streams: bool,
    /// The connection that is served, and what it has fetched from flash.
    connection_key: Cell<ConnectionKey>,
    wait: RefCell<ConnectionWait>,
}

/// What a connection does after a command.
pub enum Next {
    Continue,
    /// Nothing was done: flash has to be read first, or the connection waits for memory.
    Parked,
    /// Take this value off the stream before the next command.
    Receive(Body),
    /// Answer with the slices of this before the next command.
    Dump(DumpProgress),
    /// Send what this is told from now on, and take no more commands.
    Watch(Watch),
    /// Close once pending output is sent.
    Close,
}

impl Executor {
    pub fn new(shared: Arc<Shared>, inbox: Arc<Inbox>, worker: usize, samples: bool) -> Self {
        Self {
            cache: shared.cache.without_waiting(),
            has_flash: shared.cache.has_flash(),
            has_streams: true,
            shared,
            worker,
            probe: Probe::new(samples, worker),
            inbox,
            connection_key: Cell::new(ConnectionKey { index: 0, id: 0 }),
            wait: RefCell::default(),
        }
    }

    /// One whose answers are short: dumps and watching are refused.
    pub fn without_streams(self) -> Self {
        Self { has_streams: false, ..self }
    }

    /// What is executed from now on is for this connection, which lends what it has fetched; `swap_wait` gives that
    /// back.
    pub fn serve(&self, connection_key: ConnectionKey, fetched: &mut ConnectionWait) {
        self.connection_key.set(connection_key);
        self.swap_wait(fetched);
        self.cache.set_patience(self.patience());
    }

    pub fn has_flash(&self) -> bool {
        self.has_flash
    }

    pub fn counters(&self) -> &CommandCounters {
        &self.shared.counters[self.worker]
    }

    pub fn options(&self) -> &ServerOptions {
        &self.shared.options
    }

    /// Whether a client of the text protocol is who it says.
    pub fn authenticate(&self, user: &[u8], password: &[u8]) -> bool {
        let known = self.options().auth.as_ref().is_some_and(|auth| auth.users().knows(user, password));
        self.counters().auth_commands.add(1);
        self.counters().auth_errors.add(u64::from(!known));
        known
    }

    pub fn probe(&self) -> &Probe {
        &self.probe
    }

    pub fn samples(&self) -> &Samples {
        &self.shared.samples[self.worker]
    }

    /// Executes anything but a get, and notes it if it is sampled. `connection` is the number that `stats conns` gives
    /// the one who asks.
    pub fn execute(&self, request: Request<'_>, connection: usize, output: &mut Output) -> Next {
        if !self.probe.is_sampling() {
            return self.carry_out(request, connection, output);
        }
        let (command, key) = CommandKind::of(&request);
        let next = self.carry_out(request, connection, output);
        // A value that is still to come is noted when it is stored.
        if !matches!(next, Next::Receive(_) | Next::Parked) {
            self.probe.note(self.samples(), command, key);
        }
        next
    }

    fn carry_out(&self, request: Request<'_>, connection: usize, output: &mut Output) -> Next {
        match self.request_presence(&request) {
            KeyPresence::Known => {}
            KeyPresence::NeedsFlash => return Next::Parked,
            KeyPresence::NoMemory => {
                self.refuse_for_memory(&request, output);
                return Next::Continue;
            }
        }
        match request {
            Request::Get(_) => unreachable!("gets are executed in runs"),
            Request::Store(store) => return self.store(&store, output),
            Request::Meta { command, meta } => return self.meta(command, &meta, output),
            Request::MetaSet(set) => return self.meta_set(&set, output),
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

    /// Answers a command whose present value is on flash, and memory has no room for it.
    fn refuse_for_memory(&self, request: &Request<'_>, output: &mut Output) {
        match request {
            Request::Store(store) => {
                let line = self.stored_line(store.mode, Err(NO_MEMORY_FOR_PRESENT));
                reply_to(output, store.noreply).line(line);
            }
            Request::MetaSet(_) => {
                self.count_stored(false, Err(&NO_MEMORY_FOR_PRESENT));
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

/// Where the answer of one command goes: nowhere with `noreply`.
pub struct OptionalReply<'a>(Option<&'a mut Output>);

pub fn reply_to(output: &mut Output, noreply: bool) -> OptionalReply<'_> {
    OptionalReply((!noreply).then_some(output))
}

impl OptionalReply<'_> {
    pub fn line(self, line: &[u8]) {
        if let Some(output) = self.0 {
            output.bytes().extend_from_slice(line);
        }
    }

    pub fn number(self, value: u64) {
        if let Some(output) = self.0 {
            ebbtide_protocol::reply::number_line(output.bytes(), value);
        }
    }
}
