use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ebbtide::memcached::ControllerMode;
use nix::unistd::{AccessFlags, access};
use socket2::SockAddr;

use crate::auth::Auth;
use crate::observe::HistoryFile;
use crate::pools::PoolSet;
use crate::tls::Certificates;
use crate::{Error, FlashRating, PoolRule, TlsOptions};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Port 0 takes a free one, which [`Server::local_addrs`](crate::Server::local_addrs) returns. An IPv6 address
    /// accepts no IPv4 connections.
    Tcp(SocketAddr),
    /// As `Tcp`, with TLS as configured by [`ServerOptions::tls`].
    Tls(SocketAddr),
    /// The text protocol in datagrams (`-U`), without passwords and in the clear.
    Udp(SocketAddr),
    /// A socket file, made with these permissions (`-s`, `-a`) and removed when the server stops. A socket file that is
    /// there already is replaced.
    Unix { path: PathBuf, mode: u32 },
}

impl Listen {
    /// Whether the file of a Unix socket could be made, as far as that shows without making it.
    fn check_file(&self) -> Result<(), Error> {
        let Self::Unix { path, .. } = self else { return Ok(()) };
        let failed = |source| Error::Listen { address: self.to_string(), source };
        if std::fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.file_type().is_socket()) {
            return Err(Error::NotASocket { path: self.to_string() });
        }
        SockAddr::unix(path).map_err(failed)?;
        let folder = path.parent().unwrap_or(path).join(".");
        access(&folder, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|refusal| failed(refusal.into()))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) | Self::Tls(address) | Self::Udp(address) => write!(f, "{address}"),
            Self::Unix { path, .. } => write!(f, "{}", path.display()),
        }
    }
}

/// Where the admin interface listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Port 0 takes a free one, which [`Server::admin_addr`](crate::Server::admin_addr) returns.
    pub address: SocketAddr,
    /// Whether the server fails to start without it: true if the address was set explicitly.
    pub required: bool,
}

/// How a server behaves; with the flag in parentheses.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// (`-l`, `-p`, `-s`) Default: port 11211 on the loopback interface, because there is no authentication by default.
    pub listeners: Vec<Listen>,
    /// (`-l`) Lengths of runs of `listeners` of which one suffices, such as the addresses of one host: the others may
    /// be taken, with a warning. Default: none, so all are needed, as are those behind the last run.
    pub alternatives: Vec<usize>,
    /// (`-u`) User and group of the files of Unix sockets, if root opens them for another user. Default: those of the
    /// process.
    pub socket_owner: Option<(u32, u32)>,
    /// (`-t`) Worker threads. Default: one per core, as a worker never blocks.
    pub threads: usize,
    /// (`-c`) Maximum number of open connections; others get an error and are closed. Default: 1024, as memcached.
    pub max_connections: usize,
    /// (`-R`) Number of requests of one connection after which its worker serves the other connections before it reads
    /// from that one again; all requests of one read are always answered. Default: 20, as memcached.
    pub requests_per_event: usize,
    /// (`--busy-poll`) Default: auto. Never more workers than processors ask instead of sleeping.
    pub busy_poll: BusyPoll,
    /// (`-b`) Connections that wait to be accepted. Default: 1024, as memcached.
    pub backlog: u32,
    /// (`-o idle_timeout`) Time without traffic after which a connection is closed. Default: none, because clients pool
    /// connections.
    pub idle_timeout: Option<Duration>,
    /// How long a graceful stop waits for clients to read the answers that are pending. Default: 2 s: short enough for
    /// any supervisor's patience.
    pub stop_timeout: Duration,
    /// (`-v`) 1 logs failures to accept, 2 also connections, on stderr. Default: 0.
    pub verbosity: u32,
    /// (`--admin`) The admin HTTP. Default: none, and then commands are not sampled either.
    pub admin: Option<Admin>,
    /// (`--history-file`) Where the dashboard's history of a week outlasts a restart. Default: in memory only, 1 MB.
    pub history_file: Option<PathBuf>,
    /// (`--controller`) Whether memory moves between pools to where it earns hits; only with the admin HTTP. Default:
    /// it moves.
    pub controller: ControllerMode,
    /// (`-A`) Whether clients may stop the server. Default: no.
    pub allow_shutdown: bool,
    /// (`-F`) Whether clients may empty the cache with `flush_all`. Default: yes, as memcached.
    pub allow_flush: bool,
    /// (`-X`) Whether clients may list the keys. Default: yes, as memcached.
    pub allow_dump: bool,
    /// (`--test-clock`) Whether clients may move the cache's time on with `debugtime`. Default: no; it is for tests.
    pub test_clock: bool,
    /// (`-W`) Whether clients may watch the events of others. Default: yes, as memcached.
    pub allow_watch: bool,
    /// (`-D`) Byte that ends a key's prefix in `stats detail`. Default: a colon, as memcached.
    pub prefix_delimiter: u8,
    /// (`-D`) Whether `stats detail` is on from the start. Default: no; it takes a lock for every key.
    pub count_prefixes: bool,
    /// (`-Z`) What [`Listen::Tls`] listeners need. Default: none.
    pub tls: Option<TlsOptions>,
    /// (`-B`) Protocols that clients may use; [`Auth`] takes precedence. Default: auto, as memcached.
    pub protocol: Protocol,
    /// (`-Y`, `-S`) How clients authenticate. Default: no authentication.
    pub auth: Option<Auth>,
    /// Rated endurance of the drive below flash; used only by the admin HTTP of a cache with flash.
    pub flash_rating: FlashRating,
    /// (`--pool`) Which keys belong to which pool of the cache. Default: all to the pool `default`.
    pub pools: Vec<PoolRule>,
    /// (`--flash`) Paths of flash, for the log.
    pub flash_paths: Vec<PathBuf>,
}

/// When an idle worker polls instead of sleeping: for microseconds, and only while polls often find an event. Polling
/// saves the wake-up, which takes longer, and keeps the processor busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyPoll {
    /// While it reads from flash: where a read takes about as long as a wake.
    Auto,
    /// Whenever it waits.
    Always,
    Never,
}

/// Protocols that clients may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Text or binary, distinguished by the first byte of a connection.
    Auto,
    Ascii,
    Binary,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listeners: vec![Listen::Tcp((Ipv4Addr::LOCALHOST, 11211).into())],
            alternatives: Vec::new(),
            socket_owner: None,
            threads: std::thread::available_parallelism().map_or(4, usize::from),
            max_connections: 1024,
            requests_per_event: 20,
            busy_poll: BusyPoll::Auto,
            backlog: 1024,
            idle_timeout: None,
            stop_timeout: Duration::from_secs(2),
            verbosity: 0,
            admin: None,
            history_file: None,
            controller: ControllerMode::Auto,
            allow_shutdown: false,
            allow_flush: true,
            allow_dump: true,
            test_clock: false,
            allow_watch: true,
            prefix_delimiter: b':',
            count_prefixes: false,
            tls: None,
            protocol: Protocol::Auto,
            auth: None,
            pools: Vec::new(),
            flash_rating: FlashRating::default(),
            flash_paths: Vec::new(),
        }
    }
}

/// The risk of datagrams to this address.
pub(crate) fn udp_risk(address: SocketAddr) -> Option<String> {
    (!address.ip().is_loopback()).then(|| {
        format!("UDP on {address} answers to whatever sender a datagram names: keep others away with a firewall")
    })
}

/// The risk of an admin HTTP at this address.
pub(crate) fn admin_risk(address: SocketAddr) -> Option<String> {
    (!address.ip().is_loopback()).then(|| {
        format!("admin HTTP on {address} can be read by everyone who reaches that address: there is no authentication")
    })
}

impl ServerOptions {
    /// Whether a server could start with these options, as far as that can be said without taking an address: they fit
    /// together, and the files that they name can be used.
    pub fn check(&self) -> Result<(), Error> {
        self.validate()?;
        self.listeners.iter().try_for_each(Listen::check_file)?;
        self.tls.as_ref().map(Certificates::load).transpose()?;
        let Some(path) = self.history_in_use() else { return Ok(()) };
        HistoryFile::check(path).map_err(|source| Error::History { path: path.to_owned(), source })
    }

    /// Bytes that a server with this many worker threads has on the heap for each pool, for
    /// [`CacheBuilder::bytes_beside_pools`](ebbtide::memcached::CacheBuilder::bytes_beside_pools).
    pub fn bytes_of_pool(threads: usize) -> u64 {
        // The UDP thread counts like a worker.
        PoolSet::bytes_of_pool(threads + 1)
    }

    /// The file of the history, if the server writes one: without the admin HTTP there is no history.
    pub fn history_in_use(&self) -> Option<&Path> {
        self.history_file.as_deref().filter(|_| self.admin.is_some())
    }

    /// Whether another server writes that file: a start is refused as long as it does.
    pub fn is_history_held(&self) -> bool {
        self.history_in_use().is_some_and(HistoryFile::is_held)
    }

    /// Warnings: risks of addresses that other hosts reach.
    pub fn risks(&self) -> Vec<String> {
        let of_udp = self.listeners.iter().filter_map(|listen| match listen {
            Listen::Udp(address) => udp_risk(*address),
            Listen::Tcp(_) | Listen::Tls(_) | Listen::Unix { .. } => None,
        });
        of_udp.chain(self.admin.as_ref().and_then(|admin| admin_risk(admin.address))).collect()
    }

    /// The protocol that is spoken, as `stats settings` names it.
    pub(crate) fn binding_protocol(&self) -> &'static str {
        match (&self.auth, self.protocol) {
            (Some(Auth::Ascii(_)), _) | (None, Protocol::Ascii) => "ascii",
            (Some(Auth::Sasl(_)), _) | (None, Protocol::Binary) => "binary",
            (None, Protocol::Auto) => "auto-negotiate",
        }
    }

    /// The listeners in groups of which one suffices.
    pub(crate) fn listener_groups(&self) -> impl Iterator<Item = &[Listen]> {
        let mut rest = &self.listeners[..];
        let runs = self.alternatives.iter().map(|&length| length.max(1)).chain(std::iter::repeat(1));
        runs.map_while(move |length| {
            let (group, behind) = rest.split_at(length.min(rest.len()));
            rest = behind;
            (!group.is_empty()).then_some(group)
        })
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        let at_least_one = |option, value: usize| match value {
            0 => Err(Error::Option { option, value: value.to_string(), reason: "must be at least 1" }),
            _ => Ok(()),
        };
        PoolRule::check_all(&self.pools)?;
        at_least_one("listeners (-l)", self.listeners.len())?;
        at_least_one("threads (-t)", self.threads)?;
        at_least_one("max_connections (-c)", self.max_connections)?;
        at_least_one("requests_per_event (-R)", self.requests_per_event)?;
        if self.tls.is_none()
            && let Some(listen) = self.listeners.iter().find(|listen| matches!(listen, Listen::Tls(_)))
        {
            let value = listen.to_string();
            return Err(Error::Option {
                option: "listeners (-l)",
                value,
                reason: "asks for TLS, and tls (-Z) is not set",
            });
        }
        if (self.tls.is_some() || self.auth.is_some())
            && let Some(listen) = self.listeners.iter().find(|listen| matches!(listen, Listen::Udp(_)))
        {
            return Err(Error::Option {
                option: "listeners (-U)",
                value: listen.to_string(),
                reason: "UDP has neither passwords (-Y, -S) nor TLS (-Z), which are asked for",
            });
        }
        if let Some(tls) = &self.tls {
            at_least_one("tls.write_buffer_bytes (-o ssl_wbuf_size)", tls.write_buffer_bytes)?;
        }
        match self.idle_timeout {
            Some(Duration::ZERO) => Err(Error::Option {
                option: "idle_timeout (-o idle_timeout)",
                value: "0".to_string(),
                reason: "would close every connection at once",
            }),
            _ => Ok(()),
        }
    }
}
