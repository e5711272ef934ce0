//! What executes the commands of one worker, and what its connections do next.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use ebbtide::Cache;

use super::body::Body;
use crate::connection_wait::ConnectionWait;
use crate::counters::CommandCounters;
use crate::dump_thread::DumpProgress;
use crate::inbox::{ConnectionKey, Inbox};
use crate::observe::{Probe, Samples};
use crate::options::ServerOptions;
use crate::output::Output;
use crate::shared::Shared;
use crate::watch::Watch;

/// Executes commands for one worker.
pub struct Executor {
    pub(super) cache: Cache,
    pub(super) shared: Arc<Shared>,
    pub(super) worker: usize,
    pub(super) probe: Probe,
    pub(super) inbox: Arc<Inbox>,
    pub(super) has_flash: bool,
    /// Whether answers may go on for long: dumps, watching.
    pub(super) has_streams: bool,
    /// The connection that is served, and what it has fetched from flash.
    pub(super) connection_key: Cell<ConnectionKey>,
    pub(super) wait: RefCell<ConnectionWait>,
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
