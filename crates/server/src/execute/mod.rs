//! Commands against the cache. Each file is a family of them; this one holds what they share.

mod admin;
mod body;
mod expiry;
mod get;
mod keyed;
mod stats;
mod store;
mod tls;

use std::sync::Arc;

use ebbtide::Cache;
use ebbtide_protocol::{Rejection, Request};

use crate::counters::Counters;
use crate::output::Output;
use crate::shared::Shared;

pub use body::Body;
pub use get::{GetRun, Unanswered, end_get, position_in};

/// Executes commands for one worker.
pub struct Executor {
    cache: Cache,
    shared: Arc<Shared>,
    worker: usize,
}

/// What a connection does after a command.
pub enum Next {
    Continue,
    /// Take this value off the stream before the next command.
    Receive(Body),
    /// Close once what is pending is sent.
    Close,
}

impl Executor {
    pub fn new(shared: Arc<Shared>, worker: usize) -> Self {
        Self { cache: shared.cache.clone(), shared, worker }
    }

    pub fn counters(&self) -> &Counters {
        &self.shared.counters[self.worker]
    }

    /// Executes anything but a get. `connection` is the number that `stats conns` gives the one who asks.
    pub fn execute(&self, request: Request<'_>, connection: usize, output: &mut Output) -> Next {
        match request {
            Request::Get(_) => unreachable!("gets are executed in runs"),
            Request::Store(store) => return self.store(&store, output),
            Request::Delete { key, noreply } => self.delete(key, reply_to(output, noreply)),
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
            Request::Stats { topic } => self.stats(topic, connection, output.bytes()),
            Request::Shutdown { mode_known } => return self.shutdown(mode_known, output),
            Request::RefreshCerts => self.refresh_certificates(output),
            Request::Quit => return Next::Close,
        }
        Next::Continue
    }

    pub fn reject(&self, rejection: Rejection, noreply: bool, output: &mut Output) {
        reply_to(output, noreply).line(rejection.line());
    }
}

/// Where the answer of one command goes: nowhere with `noreply`.
pub struct Reply<'a>(Option<&'a mut Output>);

pub fn reply_to(output: &mut Output, noreply: bool) -> Reply<'_> {
    Reply((!noreply).then_some(output))
}

impl Reply<'_> {
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
