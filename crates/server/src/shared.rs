//! What all threads of a server share. Nothing here is written per command.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use ebbtide::Cache;
use slab::Slab;

use crate::ServerOptions;
use crate::counters::{CommandCounters, CommandTotals};
use crate::execute::{DumpThread, FlashGets};
use crate::listen::Stream;
use crate::observe::{Samples, Sizing};
use crate::stats_prefix::PrefixStats;
use crate::tls::Certificates;
use crate::watch::Watching;

pub struct Shared {
    pub cache: Cache,
    pub options: ServerOptions,
    pub counters: Vec<CommandCounters>,
    pub watching: Arc<Watching>,
    pub dump_thread: DumpThread,
    pub prefix_stats: PrefixStats,
    /// There if any listener speaks TLS.
    pub certificates: Option<Certificates>,
    /// By worker, as the counters.
    pub samples: Vec<Samples>,
    /// Profiles the accesses where there is an admin interface.
    pub sizing: Sizing,
    pub started: Instant,
    pub verbosity: AtomicU32,
    pub stopping: AtomicBool,
    /// Wakes the acceptor, which stops the workers.
    pub acceptor: mio::Waker,
    /// Names of the listeners.
    pub listeners: Vec<String>,
    pub accepted: AtomicU64,
    pub rejected: AtomicU64,
    /// Times that accepting was suspended because there were no files left.
    pub listen_disabled: AtomicU64,
    /// How long that lasted in all, in microseconds.
    pub listen_disabled_us: AtomicU64,
    pub accepting: AtomicBool,
    pub baseline: Mutex<StatsBaseline>,
    pub connections: Mutex<Slab<Arc<ConnectionInfo>>>,
}

/// What `stats reset` remembers.
#[derive(Default)]
pub struct StatsBaseline {
    pub totals: CommandTotals,
    pub cache: ebbtide::Stats,
    /// Of flash.
    pub gets: FlashGets,
    pub accepted: u64,
    pub rejected: u64,
    pub listen_disabled: u64,
    pub listen_disabled_us: u64,
}

impl Shared {
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.acceptor.wake().expect("an event counter takes one more event");
    }

    /// Pairs with the release in `stop`, though nothing but the flag itself hangs on it.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn totals(&self) -> CommandTotals {
        CommandTotals::sum(self.counters.iter())
    }

    pub fn reset_stats(&self) {
        *lock(&self.baseline) = StatsBaseline {
            totals: self.totals(),
            cache: self.cache.stats(),
            gets: self.cache.flash_stats().map(|flash| FlashGets::of(&flash)).unwrap_or_default(),
            accepted: self.accepted.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
            listen_disabled: self.listen_disabled.load(Ordering::Relaxed),
            listen_disabled_us: self.listen_disabled_us.load(Ordering::Relaxed),
        };
    }

    pub fn logs(&self, level: u32) -> bool {
        self.verbosity.load(Ordering::Relaxed) >= level
    }
}

/// A panic of another thread stops the server; what it left behind these locks is counts and lists, whole at any time.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What others may know of a connection.
pub struct ConnectionInfo {
    pub peer: String,
    /// Which of `Shared::listeners` it came through; `None` for a socket of UDP.
    pub listener: Option<usize>,
    /// When it last ended a command, sent a part of a value, or took a part of an answer, in milliseconds since the
    /// server started.
    pub active_ms: AtomicU64,
    pub state: AtomicU8,
}

/// What a connection waits for, as memcached names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConnectionState {
    Command,
    Value,
    Drain,
    Flash,
    Memory,
}

impl ConnectionInfo {
    pub fn state_name(&self) -> &'static str {
        match self.state.load(Ordering::Relaxed) {
            state if state == ConnectionState::Value as u8 => "conn_nread",
            state if state == ConnectionState::Drain as u8 => "conn_mwrite",
            state if state == ConnectionState::Flash as u8 => "conn_io_queue",
            state if state == ConnectionState::Memory as u8 => "conn_io_pending",
            _ => "conn_read",
        }
    }
}

/// A connection on its way from the acceptor to its worker.
pub struct NewConnection {
    pub stream: Stream,
    pub id: usize,
    pub info: Arc<ConnectionInfo>,
}

/// Where a worker has a connection, and the connection's number: another may be there by the time that it is looked
/// for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionKey {
    pub index: usize,
    pub id: usize,
}

/// How others talk to a worker: the acceptor, and threads that have read flash for it.
pub struct Inbox {
    pub new_connections: Mutex<VecDeque<NewConnection>>,
    /// Connections for which all reads of flash have completed.
    pub reads_done: Mutex<Vec<ConnectionKey>>,
    pub waker: mio::Waker,
    /// The worker's thread.
    owner: OnceLock<ThreadId>,
}

impl Inbox {
    pub fn new(waker: mio::Waker) -> Self {
        Self { new_connections: Mutex::default(), reads_done: Mutex::default(), waker, owner: OnceLock::new() }
    }

    /// The calling thread looks at `reads_done` by itself before it sleeps: it is woken only for what others have read.
    pub fn claim_for_this_thread(&self) {
        self.owner.set(thread::current().id()).expect("one worker takes what arrives");
    }

    /// All reads for a connection have completed.
    pub fn notify_reads_done(&self, connection_key: ConnectionKey) {
        let mut reads_done = lock(&self.reads_done);
        reads_done.push(connection_key);
        // The thread that added the first one has woken the worker, which takes all, or is the worker.
        if reads_done.len() == 1 && self.owner.get() != Some(&thread::current().id()) {
            self.waker.wake().expect("an event counter takes one more event");
        }
    }
}
