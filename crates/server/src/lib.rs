//! A memcached-compatible server in front of an Ebbtide cache.
//!
//! ```no_run
//! use ebbtide::memcached::{ByteSize, Cache};
//! use ebbtide_server::{Server, ServerOptions};
//!
//! let cache = Cache::builder().memory(ByteSize::gib(1)).build()?;
//! let server = Server::bind(ServerOptions::default(), cache)?;
//! println!("listening on {:?}", server.local_addrs());
//! server.run()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `bound_server` | files read and addresses bound, before a process gives up its rights |
//! | `server`, `stop` | starting and joining; stopping |
//! | `listen`, `acceptor` | sockets, the connection limit, distribution of connections to workers |
//! | `worker`, `busy_poll` | the event loop of one thread, and when it polls instead of sleeping |
//! | `udp` | the text protocol in datagrams |
//! | `tls` | certificates, and streams under TLS |
//! | `connection` | reading, writing and backpressure of one connection |
//! | `connection_info`, `connection_wait` | a connection as other threads see it; reads and memory that it waits for |
//! | `inbox` | how other threads talk to a worker |
//! | `session` | the protocol state of a connection, a file per dialect: commands in, answers out |
//! | `auth` | users and passwords |
//! | `execute` | the commands, by family |
//! | `pools` | which keys belong to which pool; gets by pool |
//! | `dump_thread` | slices of dumps that read flash |
//! | `output` | answers that are not sent yet, large values among them |
//! | `counters`, `statistics` | counters of commands; tables of all numbers in `stats`, `/metrics` and `/api` |
//! | `stats_prefix`, `extstore_counts` | counts by key prefix; gets from flash as memcached counts them |
//! | `watch` | events for watchers |
//! | `shared` | state that all threads share |
//! | `observe`, `health_log` | samples, events, history; the health of flash on stderr |
//! | `admin` | metrics, JSON and dashboard over HTTP |
//! | `fleet` | several servers on one page |
//! | `sync`, `unix_time` | locks without poison; the system's clock |
#![forbid(unsafe_code)]

mod acceptor;
mod admin;
mod auth;
mod bound_server;
mod busy_poll;
mod connection;
mod connection_info;
mod connection_wait;
mod counters;
mod dump_thread;
mod error;
mod evictions;
mod execute;
mod extstore_counts;
mod fleet;
mod health_log;
mod inbox;
mod listen;
mod observe;
mod options;
mod output;
mod pools;
mod reread;
mod server;
mod session;
mod shared;
mod statistics;
mod stats_prefix;
mod stop;
mod sync;
mod tls;
mod udp;
mod unix_time;
mod watch;
mod worker;

pub use auth::{Auth, UserFile, UserFormat};
pub use bound_server::BoundServer;
pub use ebbtide;
pub use error::Error;
pub use fleet::{FleetOptions, run as run_fleet};
pub use observe::{Endurance, FlashRating};
pub use options::{Admin, BusyPoll, Listen, Protocol, ServerOptions};
pub use output::UNSENT_BYTES_MAX;
pub use pools::{PoolChanges, PoolRule};
pub use reread::check_rereadable;
pub use server::{ReloadHandle, Running, Server};
pub use stop::StopHandle;
pub use tls::{ClientCertificates, KeyFormat, TlsOptions, TlsVersion};

/// Answer of `version`: clients parse three plain numbers, and infer memcached's features from them.
pub const VERSION: &str = "1.6.45";
