//! Accepts connections and distributes them to the workers in turn.
//!
//! A connection over the limit is answered with an error and closed. When the process has no file descriptor left,
//! accepting is suspended for a moment, and new connections wait in the backlog.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ebbtide::message;
use ebbtide_protocol::reply;
use mio::{Events, Poll, Token};

use crate::connection_info::{ConnectionInfo, ConnectionState};
use crate::inbox::{Inbox, NewConnection};
use crate::listen::{Listener, Stream};
use crate::shared::Shared;
use crate::sync::lock;
use crate::watch::WatchKind;

/// The token of the waker. Listeners have their index.
pub const WAKER: Token = Token(usize::MAX);
/// Time of a suspension of accepting when no file descriptor is left.
const SUSPENSION: Duration = Duration::from_millis(10);

pub struct Acceptor {
    pub poll: Poll,
    pub listeners: Vec<Listener>,
    pub shared: Arc<Shared>,
    pub inboxes: Vec<Arc<Inbox>>,
    /// The worker that gets the next connection.
    pub next: usize,
}

impl Acceptor {
    /// Accepts until the server stops; then closes the listeners and wakes the workers.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(64);
        // Listeners whose backlog may hold connections.
        let mut waiting: Vec<usize> = Vec::new();
        let mut suspended: Option<Instant> = None;
        while !self.shared.is_stopping() {
            let timeout = match waiting.is_empty() {
                true => None,
                false => Some(SUSPENSION),
            };
            if let Err(error) = self.poll.poll(&mut events, timeout) {
                assert!(
                    error.kind() == io::ErrorKind::Interrupted,
                    "waiting for events cannot fail otherwise: {error}"
                );
                continue;
            }
            let ready = events.iter().map(|event| event.token());
            waiting.extend(ready.filter(|&token| token != WAKER).map(|token| token.0));
            waiting.sort_unstable();
            waiting.dedup();
            waiting.retain(|&listener| !self.accept_all(listener));
            if let Some(since) = suspended.take() {
                let passed = since.elapsed().as_micros() as u64;
                self.shared.listen_disabled_us.fetch_add(passed, Ordering::Relaxed);
            }
            let accepting = waiting.is_empty();
            suspended = (!accepting).then(Instant::now);
            self.shared.accepting.store(accepting, Ordering::Relaxed);
        }
        drop(self.listeners);
        for inbox in &self.inboxes {
            inbox.waker.wake().expect("an event counter takes one more event");
        }
    }

    /// Accepts all connections of a listener's backlog. False when accepting must be suspended.
    fn accept_all(&mut self, listener: usize) -> bool {
        loop {
            match self.listeners[listener].accept() {
                Ok((stream, peer)) => self.admit(stream, peer, listener),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return true,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        if self.shared.logs(1) {
                            message!("failed to accept a connection: {error}");
                        }
                        self.shared.listen_disabled.fetch_add(1, Ordering::Relaxed);
                        return false;
                    }
                },
            }
        }
    }

    fn admit(&mut self, mut stream: Stream, peer: String, listener: usize) {
        let shared = &self.shared;
        let mut connections = lock(&shared.connections);
        if connections.len() >= shared.options.max_connections {
            drop(connections);
            shared.rejected.fetch_add(1, Ordering::Relaxed);
            // The send buffer of a new socket holds a line; an error means that the peer has closed it.
            let _ = stream.write(reply::TOO_MANY_CONNECTIONS);
            return;
        }
        if shared.logs(2) {
            message!("<{peer} new connection");
        }
        let stream = match self.protect(stream, listener) {
            Ok(stream) => stream,
            Err(error) => {
                if shared.logs(1) {
                    message!("failed to begin TLS with {peer}: {error}");
                }
                return;
            }
        };
        let info = Arc::new(ConnectionInfo {
            peer,
            listener: Some(listener),
            active_ms: AtomicU64::new(shared.uptime().as_millis() as u64),
            state: AtomicU8::new(ConnectionState::Command as u8),
        });
        let id = connections.insert(Arc::clone(&info));
        drop(connections);
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        if shared.watching.wants(WatchKind::Connection) {
            shared.watching.open(&info, id);
        }
        let inbox = &self.inboxes[self.next];
        self.next = (self.next + 1) % self.inboxes.len();
        lock(&inbox.new_connections).push_back(NewConnection { stream, id, info });
        inbox.waker.wake().expect("an event counter takes one more event");
    }

    /// Starts TLS on connections of TLS listeners.
    fn protect(&self, stream: Stream, listener: usize) -> Result<Stream, rustls::Error> {
        match (stream, &self.listeners[listener], &self.shared.certificates) {
            (Stream::Tcp(socket), Listener::Tls(..), Some(certificates)) => {
                certificates.protect(socket).map(|stream| Stream::Tls(Box::new(stream)))
            }
            (stream, ..) => Ok(stream),
        }
    }
}
