//! The admin interface: HTTP on a thread of its own, which reads what the workers count and never makes them wait.
//!
//! | module | holds |
//! |---|---|
//! | `mod` | binding, and the thread |
//! | `serve` | connections: limits and timeouts |
//! | `routes` | which path answers what |
//! | `guard` | whom |
//! | `overview`, `keys` | the JSON |
//! | `browse`, `key_search` | keys that hold a text, and one value; the scan in slices |
//! | `query` | the parameters of a path |
//! | `metrics` | the same for Prometheus |
//! | `flash` | both, of flash |
//! | `dashboard` | the page for people |
//!
//! There is no authentication, so it listens on the loopback interface by default.

mod browse;
mod dashboard;
mod flash;
mod guard;
mod key_search;
mod keys;
mod metrics;
mod metrics_page;
mod overview;
mod query;
mod routes;
mod serve;
mod state;

pub use dashboard::nonce;
pub use guard::guard;
pub use serve::accept_all;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::{fmt, io};

use ebbtide::message;
use tokio::sync::oneshot;

use crate::observe::HistoryFile;
use crate::options::admin_risk;
use crate::shared::Shared;
use crate::{Admin, Error};

/// A bound address.
pub struct AdminListener {
    listener: TcpListener,
    address: SocketAddr,
    history: Option<HistoryFile>,
}

impl AdminListener {
    /// Binds, or warns and goes without where that is allowed.
    pub fn open(admin: &Admin, history: Option<&Path>) -> Result<Option<Self>, Error> {
        let opened = history
            .map(|path| HistoryFile::open(path).map_err(|source| Error::History { path: path.to_owned(), source }));
        let history = opened.transpose()?;
        let bound = TcpListener::bind(admin.address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        });
        let bound = match bound {
            Ok((listener, address)) => Self { listener, address, history },
            Err(error) if !admin.required && error.kind() == io::ErrorKind::AddrInUse => {
                warn(format_args!(
                    "no admin HTTP, because {} is in use; --admin <address:port> puts it elsewhere, --admin off does without",
                    admin.address
                ));
                return Ok(None);
            }
            Err(source) => return Err(Error::Admin { address: admin.address, source }),
        };
        if let Some(risk) = admin_risk(bound.address) {
            warn(format_args!("{risk}"));
        }
        Ok(Some(bound))
    }

    /// The address, with the port that was really taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the thread.
    pub fn start(self, shared: Arc<Shared>) -> Result<AdminThread, Error> {
        let (stop, stopped) = oneshot::channel();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(Error::Thread)?;
        let spawned = thread::Builder::new().name("admin".to_string()).spawn(move || {
            let served = runtime.block_on(serve::serve(self.listener, shared, self.history, stopped));
            if let Err(error) = served {
                warn(format_args!("admin HTTP has ended: {error}"));
            }
        });
        Ok(AdminThread { stop: Some(stop), thread: Some(spawned.map_err(Error::Thread)?) })
    }
}

fn warn(message: fmt::Arguments<'_>) {
    message!("ebbtide: warning: {message}");
}

/// The thread; it ends when this is dropped.
pub struct AdminThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for AdminThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If it has panicked it has said so, and the server did without.
            let _ = thread.join();
        }
    }
}
