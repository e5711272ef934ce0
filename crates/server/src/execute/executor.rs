//! The executor of the commands of one worker, and the next action of a connection after a command.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use ebbtide::memcached::{Cache, Patience};

use super::body::Body;
use crate::connection_wait::ConnectionWait;
use crate::counters::CommandCounters;
use crate::dump_thread::DumpProgress;
use crate::inbox::{ConnectionKey, Inbox};
use crate::observe::{Probe, Samples};
use crate::options::ServerOptions;
use crate::output::Output;
use crate::pools::Router;
use crate::shared::Shared;
use crate::watch::Watch;

/// Executes commands for one worker.
pub struct Executor {
    /// The pool `default`, and operations on all pools.
    pub(super) cache: Cache,
    pub(super) router: Router,
    /// Patience of the current command, for the handle of its pool.
    pub(super) current_patience: Cell<Patience>,
    pub(super) shared: Arc<Shared>,
    pub(super) worker: usize,
    pub(super) probe: Probe,
    pub(super) inbox: Arc<Inbox>,
    pub(super) has_flash: bool,
    /// Whether long answers (dumps, watching) are allowed.
    pub(super) has_streams: bool,
    /// The current connection, and its wait.
    pub(super) connection_key: Cell<ConnectionKey>,
    pub(super) wait: RefCell<ConnectionWait>,
}

/// Next action of a connection after a command.
pub enum Next {
    Continue,
    /// The command was not executed: the connection waits for flash or memory.
    Parked,
    /// Receive this value before the next command.
    Receive(Body),
    /// Answer with the slices of this dump before the next command.
    Dump(DumpProgress),
    /// Send the events of this watcher, and read no more commands.
    Watch(Watch),
    /// Close the connection once its output is sent.
    Close,
}

impl Executor {
    pub fn new(shared: Arc<Shared>, inbox: Arc<Inbox>, worker: usize, samples: bool) -> Self {
        Self {
            cache: shared.cache.without_waiting(),
            router: Router::new(&shared.pools, worker),
            current_patience: Cell::new(Patience::Whole),
            has_flash: shared.cache.has_flash(),
            has_streams: true,
            probe: Probe::new(samples, shared.options.prefix_delimiter, worker),
            shared,
            worker,
            inbox,
            connection_key: Cell::new(ConnectionKey { index: 0, id: 0 }),
            wait: RefCell::default(),
        }
    }

    /// An executor with short answers only: dumps and watching are refused.
    pub fn without_streams(self) -> Self {
        Self { has_streams: false, ..self }
    }

    /// Makes this the current connection and takes its wait; `swap_wait` gives the wait back.
    pub fn serve(&self, connection_key: ConnectionKey, fetched: &mut ConnectionWait) {
        self.connection_key.set(connection_key);
        self.swap_wait(fetched);
        self.set_patience(self.patience());
    }

    /// Takes the pools over that a reload has published. To be called once a round.
    #[inline]
    pub fn refresh_pools(&mut self) {
        self.router.refresh(&self.shared.pools);
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

    /// Checks user and password of a client of the text protocol.
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

    /// Whether memory has the key now. Counts no use.
    pub(super) fn is_in_memory(&self, key: &[u8]) -> bool {
        match self.compact(key) {
            Some(pool) => pool.contains(key),
            None => self.router.pool(self.router.find(key)).peek(key).is_hit(),
        }
    }
}

/// The destination of an answer: the output, or nothing with `noreply`.
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
