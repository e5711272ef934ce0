//! Starting and stopping: binds the listeners, starts the threads, joins them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use ebbtide::message;
use mio::Poll;

use crate::acceptor::Acceptor;
use crate::admin;
use crate::health_log::HealthLog;
use crate::inbox::Inbox;
use crate::pools::{PoolChanges, Reload};
use crate::shared::Shared;
use crate::stop::{StopHandle, StopOnPanic};
use crate::udp::{self, Udp};
use crate::worker::Worker;
use crate::{Error, PoolRule};

/// A server whose addresses are bound, and that serves once it runs.
pub struct Server {
    pub(crate) acceptor: Acceptor,
    pub(crate) polls: Vec<Poll>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) udp: Option<Udp>,
    pub(crate) admin: Option<admin::AdminListener>,
}

impl Server {
    /// Listens: from now on clients can connect, and are served once the server runs.
    ///
    /// # Errors
    /// The error of the system for an address that another process listens on.
    pub fn listen(&mut self) -> Result<(), Error> {
        let Acceptor { poll, listeners, shared, .. } = &mut self.acceptor;
        let options = &shared.options;
        // Printed first: a client that could connect finds these lines printed.
        if options.verbosity > 1 {
            for listener in &*listeners {
                message!("<{} server listening ({})", listener.file_number(), options.binding_protocol());
            }
            for socket in self.udp.iter().flat_map(Udp::sockets) {
                message!("<{} server listening (udp)", socket.file_number());
            }
        }
        for (index, listener) in listeners.iter_mut().enumerate() {
            listener.listen(options.backlog)?;
            listener.register(poll.registry(), mio::Token(index)).map_err(Error::Poll)?;
        }
        Ok(())
    }

    /// The TCP addresses, in the order of the listeners, with the ports that were really taken.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The addresses of UDP, with the ports that were really taken.
    pub fn udp_addrs(&self) -> Vec<SocketAddr> {
        self.udp.as_ref().map(Udp::addresses).unwrap_or_default()
    }

    /// The address of the admin HTTP, if there is one, with the port that was really taken.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(admin::AdminListener::address)
    }

    /// Handle that stops the server; take it before `run`.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle { shared: Arc::clone(&self.acceptor.shared) }
    }

    /// Handle that makes the server read its files again; take it before `run`.
    pub fn reload_handle(&self) -> ReloadHandle {
        let udp = self.udp.iter().map(Udp::inbox);
        let inboxes = self.acceptor.inboxes.iter().map(Arc::clone).chain(udp).collect();
        ReloadHandle { shared: Arc::clone(&self.acceptor.shared), inboxes }
    }

    /// Serves on this thread and its workers, until the server is stopped by a handle or by a client that may.
    pub fn run(self) -> Result<(), Error> {
        let stop = self.stop_handle();
        let shared = Arc::clone(&self.acceptor.shared);
        // The admin HTTP answers until the workers have ended, so that a probe sees that the server stops.
        let admin = self.admin.map(|bound| bound.start(Arc::clone(&shared))).transpose()?;
        let _health_log = HealthLog::start(Arc::clone(&shared))?;
        let udp = self.udp.map(|udp| udp.start(admin.is_some(), StopOnPanic(stop.clone()))).transpose()?;
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
                    join_all(workers.into_iter().chain(udp.map(udp::UdpThread::stop)));
                    return Err(Error::Thread(error));
                }
            }
        }
        self.acceptor.run();
        join_all(workers.into_iter().chain(udp.map(udp::UdpThread::stop)));
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

/// Passes a worker's panic on.
fn join_all(workers: impl Iterator<Item = JoinHandle<()>>) {
    let results: Vec<_> = workers.map(JoinHandle::join).collect();
    for result in results {
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Makes a running server read its files again.
#[derive(Clone)]
pub struct ReloadHandle {
    shared: Arc<Shared>,
    /// Of the threads that execute commands.
    inboxes: Arc<[Arc<Inbox>]>,
}

impl ReloadHandle {
    /// Reads the certificates and the users again, for new connections. A file with an error keeps its old content.
    pub fn reload(&self) -> Result<(), Error> {
        let certificates = self.shared.certificates.as_ref().map_or(Ok(()), |certificates| certificates.refresh());
        let users = self.shared.options.auth.as_ref().map_or(Ok(()), |auth| auth.users().reload());
        match (certificates, users) {
            (Err(certificates), Err(users)) => Err(Error::Several(vec![certificates, users])),
            (certificates, users) => certificates.and(users),
        }
    }

    /// Changes the pools of the cache to those of these rules, among them one of the pool `default`. One reload at a
    /// time.
    ///
    /// # Errors
    /// `Pool`, `Cache`: pools that do not fit change nothing.
    pub fn reload_pools(&self, rules: &[PoolRule]) -> Result<PoolChanges, Error> {
        Reload { shared: &self.shared, inboxes: &self.inboxes }.run(rules)
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
