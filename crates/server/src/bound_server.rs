//! Steps that need root: reads certificates and keys, and binds addresses. No client can connect before
//! [`Server::listen`], when the cache exists.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ebbtide::memcached::Cache;
use mio::{Poll, Waker};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use slab::Slab;

use crate::acceptor::{self, Acceptor};
use crate::admin;
use crate::counters::CommandCounters;
use crate::dump_thread::DumpThread;
use crate::evictions::EvictionListener;
use crate::inbox::Inbox;
use crate::listen::Listener;
use crate::observe::{Level, Samples, Sizing};
use crate::options;
use crate::pools::{PoolSet, PublishedPools, sweep};
use crate::server::Server;
use crate::shared::Shared;
use crate::stats_prefix::PrefixStats;
use crate::tls::Certificates;
use crate::udp::{Udp, UdpSocket};
use crate::watch::Watching;
use crate::worker;
use crate::{Error, Listen, ServerOptions};

/// Upper bound of open files of a server besides its connections.
const OTHER_FILES: u64 = 64;

/// A server whose files are read and whose addresses are bound.
pub struct BoundServer {
    options: ServerOptions,
    certificates: Option<Certificates>,
    listeners: Vec<Listener>,
    datagrams: Vec<UdpSocket>,
    admin: Option<admin::AdminListener>,
    warnings: Vec<String>,
}

impl BoundServer {
    /// Reads the files and binds the addresses.
    pub fn new(mut options: ServerOptions) -> Result<Self, Error> {
        options.validate()?;
        let certificates = options.tls.as_ref().map(Certificates::load).transpose()?;
        allow_files(options.max_connections as u64 + OTHER_FILES)?;
        let mut bound_server = Self {
            certificates,
            listeners: Vec::new(),
            datagrams: Vec::new(),
            admin: None,
            warnings: Vec::new(),
            options: options.clone(),
        };
        let mut bound = Vec::new();
        for group in options.listener_groups() {
            bound.extend(bound_server.bind_group(group)?);
        }
        options.listeners = bound;
        // After the listeners, so that it takes none of their ports.
        bound_server.admin = options
            .admin
            .as_ref()
            .map(|admin| admin::AdminListener::open(admin, options.history_file.as_deref()))
            .transpose()?
            .flatten();
        bound_server.options = options;
        Ok(bound_server)
    }

    /// Binds the addresses of a group that can be bound; an error if none can.
    fn bind_group(&mut self, group: &[Listen]) -> Result<Vec<Listen>, Error> {
        let mut bound = Vec::new();
        let mut failures = Vec::new();
        for listen in group {
            match self.bind(listen) {
                Ok(()) => bound.push(listen.clone()),
                Err(error) => failures.push(error),
            }
        }
        if bound.is_empty() && !failures.is_empty() {
            return Err(failures.swap_remove(0));
        }
        let others = bound.iter().map(Listen::to_string).collect::<Vec<_>>().join(", ");
        self.warnings.extend(failures.iter().map(|error| format!("{error}; only {others} is served")));
        Ok(bound)
    }

    fn bind(&mut self, listen: &Listen) -> Result<(), Error> {
        match listen {
            Listen::Udp(address) => {
                let socket = UdpSocket::bind(*address)?;
                self.warnings.extend(options::udp_risk(socket.address));
                self.datagrams.push(socket);
            }
            _ => self.listeners.push(Listener::bind(listen, self.options.socket_owner)?),
        }
        Ok(())
    }

    /// The bound addresses, of the requested ones.
    pub fn listeners(&self) -> &[Listen] {
        &self.options.listeners
    }

    /// Warnings: requested addresses that are not served, and risks of served ones.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The server of this cache, which does not listen yet.
    pub fn into_server(self, cache: Cache) -> Result<Server, Error> {
        let options = self.options;
        let poll = Poll::new().map_err(Error::Poll)?;
        let waker = Waker::new(poll.registry(), acceptor::WAKER).map_err(Error::Poll)?;
        let mut polls = Vec::new();
        let mut inboxes = Vec::new();
        for _ in 0..options.threads {
            let poll = Poll::new().map_err(Error::Poll)?;
            let waker = Waker::new(poll.registry(), worker::WAKER).map_err(Error::Poll)?;
            inboxes.push(Arc::new(Inbox::new(waker)));
            polls.push(poll);
        }
        // The UDP thread has counters like a worker.
        let counting = options.threads + usize::from(!self.datagrams.is_empty());
        let pools = PoolSet::new(&cache, &options.pools, counting)?;
        let listeners = self.listeners;
        let watching = Arc::new(Watching::default());
        let evictions = EvictionListener {
            watching: Arc::clone(&watching),
            samples: Arc::default(),
            is_sampling: self.admin.is_some(),
            prefix_delimiter: options.prefix_delimiter,
        };
        pools.entries.iter().try_for_each(|entry| evictions.listen(entry)).map_err(Error::Cache)?;
        let shared = Arc::new(Shared {
            watching,
            evictions,
            pools: PublishedPools::new(pools),
            dump_thread: DumpThread::default(),
            prefix_stats: PrefixStats::new(options.prefix_delimiter, options.count_prefixes),
            cache,
            counters: (0..counting).map(|_| CommandCounters::default()).collect(),
            certificates: self.certificates,
            samples: (0..counting).map(|_| Samples::default()).collect(),
            sizing: Sizing::default(),
            recent: Mutex::default(),
            recent_pools: Mutex::default(),
            headline: Mutex::new((Level::Unknown, "No data yet.".to_owned())),
            admin_address: self.admin.as_ref().map(admin::AdminListener::address),
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
        if shared.cache.is_rerouting() {
            shared.pools.current().flush_compact();
            sweep::start(&shared)?;
        }
        let udp = (!self.datagrams.is_empty()).then(|| Udp::new(self.datagrams, Arc::clone(&shared))).transpose()?;
        Ok(Server {
            addresses: listeners.iter().filter_map(Listener::tcp_address).collect(),
            acceptor: Acceptor { poll, listeners, shared, inboxes, next: 0 },
            polls,
            udp,
            admin: self.admin,
        })
    }
}

impl Server {
    /// Opens the resources of a server and listens, so that a bad or taken address fails before anything runs.
    pub fn bind(options: ServerOptions, cache: Cache) -> Result<Self, Error> {
        let mut server = BoundServer::new(options)?.into_server(cache)?;
        server.listen()?;
        Ok(server)
    }
}

/// Increases the process's limit of open files to `needed`, as far as that is allowed.
fn allow_files(needed: u64) -> Result<(), Error> {
    // Without the limit, the first failing accept reports it.
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
