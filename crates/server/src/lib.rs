//! A memcached-compatible server in front of an Ebbtide cache.
//!
//! ```no_run
//! use ebbtide::{ByteSize, Cache};
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
//! | `server` | starting, stopping, joining |
//! | `listen`, `acceptor` | sockets, the connection limit, dealing connections out to workers |
//! | `worker`, `busy_poll` | the event loop of one thread, and when it asks instead of sleeping |
//! | `udp` | the text protocol in datagrams |
//! | `tls` | certificates, and streams that they protect |
//! | `connection` | reading, writing and backpressure of one connection |
//! | `session` | its protocol state, a file per dialect: commands in, answers out |
//! | `auth` | who may speak to the server |
//! | `execute` | the commands, by family |
//! | `output` | answers on their way out, large values among them |
//! | `stats_prefix` | statistics by key prefix |
//! | `watch` | what watchers are told |
//! | `counters`, `shared` | what is counted, and what threads share |
//! | `observe` | samples, events, history |
//! | `admin` | HTTP for those who look on |
#![forbid(unsafe_code)]

mod acceptor;
mod admin;
mod auth;
mod bound_server;
mod busy_poll;
mod connection;
mod counters;
mod error;
mod execute;
mod health_log;
mod listen;
mod observe;
mod options;
mod output;
mod server;
mod session;
mod shared;
mod stats_prefix;
mod tls;
mod udp;
mod watch;
mod worker;

pub use admin::Admin;
pub use auth::{Auth, UserFile, UserFormat};
pub use bound_server::BoundServer;
pub use ebbtide;
pub use error::Error;
pub use observe::{Endurance, FlashRating};
pub use options::{BusyPoll, Listen, Protocol, ServerOptions};
pub use server::{ReloadHandle, Running, Server, StopHandle};
pub use tls::{ClientCertificates, KeyFormat, TlsOptions, TlsVersion};

/// What `version` answers: clients parse three plain numbers, and tell memcached's abilities from them.
pub const VERSION: &str = "1.6.45";
