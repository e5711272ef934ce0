//! Starting and stopping: binds the listeners, starts the threads, joins them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use ebbtide::{Cache, Cause, Removal};
use mio::{Poll, Waker};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use slab::Slab;

use crate::acceptor::{self, Acceptor};
use crate::admin;
use crate::counters::Counters;
use crate::execute::Dumps;
use crate::health_log::HealthLog;
use crate::listen::Listener;
use crate::observe::Samples;
use crate::prefixes::Prefixes;
use crate::shared::{Inbox, Shared};
use crate::tls::Certificates;
use crate::watch::{Kind, Watching};
use crate::worker::{self, Worker};
use crate::{Error, ServerOptions};

/// Files that a server has open besides its connections, generously.
const OTHER_FILES: u64 = 64;

/// A server whose addresses are bound, and that serves once it runs.
pub struct Server {
    acceptor: Acceptor,
    polls: Vec<Poll>,
    addresses: Vec<SocketAddr>,
    admin: Option<admin::Bound>,
}

impl Server {
    /// Binds the listeners, so that a bad or taken address is known before anything runs.
    pub fn bind(options: ServerOptions, cache: Cache) -> Result<Self, Error> {
        options.validate()?;
        let certificates = options.tls.as_ref().map(Certificates::load).transpose()?;
        allow_files(options.max_connections as u64 + OTHER_FILES)?;
        let poll = Poll::new().map_err(Error::Poll)?;
        let waker = Waker::new(poll.registry(), acceptor::WAKER).map_err(Error::Poll)?;
        let mut listeners = Vec::new();
        for (index, listen) in options.listeners.iter().enumerate() {
            let mut listener = Listener::open(listen, options.backlog)?;
            listener.register(poll.registry(), mio::Token(index)).map_err(Error::Poll)?;
            listeners.push(listener);
        }
        // After the listeners, whose ports are not to be taken by it.
        let admin = options.admin.as_ref().map(admin::Bound::open).transpose()?.flatten();
        let mut polls = Vec::new();
        let mut inboxes = Vec::new();
        for _ in 0..options.threads {
            let poll = Poll::new().map_err(Error::Poll)?;
            let waker = Waker::new(poll.registry(), worker::WAKER).map_err(Error::Poll)?;
            inboxes.push(Arc::new(Inbox::new(waker)));
            polls.push(poll);
        }
        let watching = watch_evictions(&cache)?;
        let shared = Arc::new(Shared {
            watching,
            dumps: Dumps::default(),
            prefixes: Prefixes::new(options.prefix_delimiter, options.count_prefixes),
            cache,
            counters: (0..options.threads).map(|_| Counters::default()).collect(),
            certificates,
            samples: (0..options.threads).map(|_| Samples::default()).collect(),
            started: Instant::now(),
            verbosity: AtomicU32::new(options.verbosity),
            stopping: AtomicBool::new(false),
            acceptor: waker,
            listeners: listeners.iter().map(Listener::name).collect(),
            accepted: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            listen_disabled: AtomicU64::new(0),
            listen_disabled_us: AtomicU64::new(0),
            accepting: AtomicBool::new(true),
            baseline: Mutex::default(),
            connections: Mutex::new(Slab::new()),
            options,
        });
        Ok(Self {
            addresses: listeners.iter().filter_map(Listener::tcp_address).collect(),
            acceptor: Acceptor { poll, listeners, shared, inboxes, next: 0 },
            polls,
            admin,
        })
    }

    /// The TCP addresses, in the order of the listeners, with the ports that were really taken.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The address of the admin HTTP, if there is one, with the port that was really taken.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(admin::Bound::address)
    }

    /// What stops the server; to be taken before it runs.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle { shared: Arc::clone(&self.acceptor.shared) }
    }

    /// What has the server read its files again; to be taken before it runs.
    pub fn reload_handle(&self) -> ReloadHandle {
        ReloadHandle { shared: Arc::clone(&self.acceptor.shared) }
    }

    /// Serves on this thread and its workers, until the server is stopped by a handle or by a client that may.
    pub fn run(self) -> Result<(), Error> {
        let stop = self.stop_handle();
        let shared = Arc::clone(&self.acceptor.shared);
        // It answers until the workers have ended, so that a probe hears that the server stops.
        let admin = self.admin.map(|bound| bound.start(Arc::clone(&shared))).transpose()?;
        let _health_log = HealthLog::start(Arc::clone(&shared))?;
        let mut workers = Vec::new();
        for (index, poll) in self.polls.into_iter().enumerate() {
            let (shared, inbox) = (Arc::clone(&shared), Arc::clone(&self.acceptor.inboxes[index]));
            let samples = admin.is_some();
            let guard = StopOnPanic(stop.clone());
            let spawned = thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
                let _guard = guard;
                Worker::new(poll, shared, inbox, index, samples).run();
            });
            match spawned {
                Ok(handle) => workers.push(handle),
                Err(error) => {
                    stop.stop();
                    self.acceptor.run();
                    join_all(workers);
                    return Err(Error::Thread(error));
                }
            }
        }
        self.acceptor.run();
        join_all(workers);
        Ok(())
    }

    /// Serves on threads of its own.
    pub fn start(self) -> Result<Running, Error> {
        let addresses = self.addresses.clone();
        let stop = self.stop_handle();
        let thread = thread::Builder::new().name("acceptor".to_string()).spawn(|| self.run()).map_err(Error::Thread)?;
        Ok(Running { addresses, stop, thread })
    }
}

/// The watchers of a server with this cache.
fn watch_evictions(cache: &Cache) -> Result<Arc<Watching>, Error> {
    let watching = Arc::new(Watching::default());
    let told = Arc::clone(&watching);
    let listener = move |removal: Removal<'_>| {
        if told.wants(Kind::Eviction) && matches!(removal.cause(), Cause::Memory | Cause::IndexFull) {
            told.evict(&removal);
        }
    };
    cache.on_removal(listener).map_err(Error::Cache)?;
    Ok(watching)
}

/// Passes a worker's panic on.
fn join_all(workers: Vec<JoinHandle<()>>) {
    let results: Vec<_> = workers.into_iter().map(JoinHandle::join).collect();
    for result in results {
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    }
}

/// A server with one worker less would leave its connections hanging: better that it ends.
struct StopOnPanic(StopHandle);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

/// Raises the process's limit of open files to `needed`, as far as that is allowed.
fn allow_files(needed: u64) -> Result<(), Error> {
    // Where the limit cannot be read, the first accept that fails tells.
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Ok(());
    };
    if soft >= needed {
        return Ok(());
    }
    match setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard) {
        Ok(()) if hard >= needed => Ok(()),
        _ => Err(Error::FileLimit { needed, allowed: soft.max(hard) }),
    }
}

/// Stops a server: no new connections, no further commands, answers that are pending are sent.
#[derive(Clone)]
pub struct StopHandle {
    shared: Arc<Shared>,
}

impl StopHandle {
    /// Returns at once; the server's `run`, or `join`, returns when it has stopped. Any number of calls does.
    pub fn stop(&self) {
        self.shared.stop();
    }
}

/// Has a server read again what may change while it runs.
#[derive(Clone)]
pub struct ReloadHandle {
    shared: Arc<Shared>,
}

impl ReloadHandle {
    /// Reads the certificates and the users again, for those who come from now on. What is bad stays as it was.
    pub fn reload(&self) -> Result<(), Error> {
        let certificates = self.shared.certificates.as_ref().map_or(Ok(()), |certificates| certificates.refresh());
        let users = self.shared.options.auth.as_ref().map_or(Ok(()), |auth| auth.users().reload());
        match (certificates, users) {
            (Err(certificates), Err(users)) => Err(Error::Several(vec![certificates, users])),
            (certificates, users) => certificates.and(users),
        }
    }
}

/// A server that runs on threads of its own.
pub struct Running {
    addresses: Vec<SocketAddr>,
    stop: StopHandle,
    thread: JoinHandle<Result<(), Error>>,
}

impl Running {
    /// See [`Server::local_addrs`].
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Waits until the server has stopped.
    pub fn join(self) -> Result<(), Error> {
        match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Stops the server and waits for that.
    pub fn stop(self) -> Result<(), Error> {
        self.stop.stop();
        self.join()
    }
}
