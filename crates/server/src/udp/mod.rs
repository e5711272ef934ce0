//! The text protocol in datagrams (`-U`): one thread with all its sockets, beside the workers.
//!
//! ```text
//! socket -> frame -> session, one for each request -> answer -> frames -> socket
//!                        |  ^
//!                        v  | a request that waits for flash or memory is kept, up to PARKED_MAX of them
//!                       parked
//! ```
//! A request that waits for flash continues when the read has completed. A request that waits for memory is retried
//! every millisecond, until its limits (`execute/memory_wait.rs`) end the wait. A delete proceeds without the read of a
//! device that does not respond.
//!
//! No state of a client is kept between two datagrams. A request is whole in one datagram; incomplete commands,
//! malformed datagrams and requests that cannot be parked are dropped without an answer: clients of UDP retry. While a
//! socket does not accept an answer, nothing more is read from it, so answers take bounded memory.
//!
//! A forged sender's address sends answers to a third party, and they are larger than the request. So UDP is off by
//! default, an answer is bounded, and dumps and watching are refused.

mod frame;
mod socket;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;

use crate::Error;
use crate::connection_info::{ConnectionInfo, ConnectionState};
use crate::connection_wait::ConnectionWait;
use crate::execute::{Executor, HEALTH_INTERVAL};
use crate::inbox::{ConnectionKey, Inbox};
use crate::output::Output;
use crate::session::{Session, StopReason};
use crate::shared::Shared;
use crate::stop::StopOnPanic;
use crate::sync::lock;

use frame::{ANSWER_BYTES_MAX, DatagramWriter};
pub use socket::UdpSocket;

/// The token of the waker. Sockets have their index.
const WAKER: Token = Token(usize::MAX);
/// No datagram is longer.
const RECEIVE_BYTES: usize = 64 << 10;
/// Datagrams of one socket before the others have their turn.
const DATAGRAMS_PER_TURN: usize = 64;
/// Requests that wait for flash or memory at a time; each may hold an answer of [`ANSWER_BYTES_MAX`].
const PARKED_MAX: usize = 32;
/// How often requests that wait for memory are tried again.
const RETRY: Duration = Duration::from_millis(1);
const TOO_LARGE: &[u8] = b"SERVER_ERROR response too large for UDP\r\n";

/// The sockets, before they are served.
pub struct Udp {
    sockets: Vec<UdpSocket>,
    poll: Poll,
    inbox: Arc<Inbox>,
    shared: Arc<Shared>,
}

/// The thread.
pub struct UdpThread {
    thread: JoinHandle<()>,
    inbox: Arc<Inbox>,
}

impl UdpThread {
    /// Wakes the thread, which ends if the server is stopping.
    pub fn stop(self) -> JoinHandle<()> {
        self.inbox.waker.wake().expect("an event counter takes one more event");
        self.thread
    }
}

impl Udp {
    pub fn new(mut sockets: Vec<UdpSocket>, shared: Arc<Shared>) -> Result<Self, Error> {
        let poll = Poll::new().map_err(Error::Poll)?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(Error::Poll)?;
        for (index, socket) in sockets.iter_mut().enumerate() {
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut socket.socket, Token(index), interest).map_err(Error::Poll)?;
        }
        Ok(Self { sockets, poll, inbox: Arc::new(Inbox::new(waker)), shared })
    }

    pub fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.inbox)
    }

    pub fn sockets(&self) -> &[UdpSocket] {
        &self.sockets
    }

    /// The addresses, with the ports that were really taken.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(|socket| socket.address).collect()
    }

    /// `samples`: whether commands are sampled.
    pub fn start(self, samples: bool, guard: StopOnPanic) -> Result<UdpThread, Error> {
        let inbox = Arc::clone(&self.inbox);
        let spawned = thread::Builder::new().name("udp".to_owned()).spawn(move || {
            let _guard = guard;
            Service::new(self, samples).run();
        });
        Ok(UdpThread { thread: spawned.map_err(Error::Thread)?, inbox })
    }
}

/// A request that is being answered.
struct UdpRequest {
    socket: usize,
    from: SocketAddr,
    request: u16,
    session: Session,
    wait: ConnectionWait,
    /// The part of the request that was not executed.
    input: Vec<u8>,
    answer: Vec<u8>,
}

struct Service {
    sockets: Vec<UdpSocket>,
    /// Information on each socket for `stats conns`, with its number there.
    shown: Vec<(usize, Arc<ConnectionInfo>)>,
    poll: Poll,
    inbox: Arc<Inbox>,
    shared: Arc<Shared>,
    executor: Executor,
    parked: Slab<UdpRequest>,
    /// When those of them that wait for memory are tried again.
    next_retry: Instant,
    output: Output,
}

impl Service {
    /// To be made on the thread that runs it.
    fn new(udp: Udp, samples: bool) -> Self {
        let Udp { sockets, poll, inbox, shared } = udp;
        inbox.claim_for_this_thread();
        let shown = sockets.iter().map(|socket| show(socket, &shared)).collect();
        let worker = shared.options.threads;
        let executor = Executor::new(Arc::clone(&shared), Arc::clone(&inbox), worker, samples).without_streams();
        let (parked, output) = (Slab::new(), Output::default());
        Self { sockets, shown, poll, inbox, shared, executor, parked, next_retry: Instant::now(), output }
    }

    /// Serves until the server stops.
    fn run(mut self) {
        let mut events = Events::with_capacity(64);
        let mut buffer = vec![0; RECEIVE_BYTES];
        while !self.shared.is_stopping() {
            self.executor.refresh_pools();
            self.resume_reads_done();
            self.retry_waiting(Instant::now());
            self.abandon_delete_waits();
            // This thread is not woken for its own completed reads.
            let has_work = self.sockets.iter().any(UdpSocket::has_work) || !lock(&self.inbox.reads_done).is_empty();
            let timeout = match has_work {
                true => Some(Duration::ZERO),
                false if self.parked.iter().any(|(_, work)| work.wait.waits_for_memory()) => Some(RETRY),
                false => (!self.parked.is_empty()).then_some(HEALTH_INTERVAL),
            };
            if let Err(error) = self.poll.poll(&mut events, timeout) {
                assert!(
                    error.kind() == io::ErrorKind::Interrupted,
                    "waiting for events cannot fail otherwise: {error}"
                );
                continue;
            }
            self.executor.probe().begin_round(Instant::now());
            for event in events.iter().filter(|event| event.token() != WAKER) {
                self.sockets[event.token().0].readable |= event.is_readable() || event.is_error();
            }
            for socket in 0..self.sockets.len() {
                self.send(socket);
                self.take_turn(socket, &mut buffer);
            }
        }
        for (number, _) in self.shown {
            lock(&self.shared.connections).remove(number);
        }
    }

    fn take_turn(&mut self, socket: usize, buffer: &mut [u8]) {
        for _ in 0..DATAGRAMS_PER_TURN {
            let Some((length, from)) = self.sockets[socket].receive(buffer) else { return };
            self.executor.probe().after_read();
            self.executor.counters().bytes_read.add(length as u64);
            let Some((request, text)) = frame::parse(&buffer[..length]) else { continue };
            let (number, info) = &self.shown[socket];
            info.active_ms.store(self.shared.uptime().as_millis() as u64, Ordering::Relaxed);
            self.execute(UdpRequest {
                socket,
                from,
                request,
                session: Session::new(*number),
                wait: ConnectionWait::default(),
                input: text.to_vec(),
                answer: Vec::new(),
            });
        }
    }

    /// Executes a request until it is answered, or waits for flash or memory.
    fn execute(&mut self, mut work: UdpRequest) {
        let connection_key = ConnectionKey { index: self.parked.vacant_key(), id: self.shown[work.socket].0 };
        loop {
            self.executor.serve(connection_key, &mut work.wait);
            let progress = work.session.process(&self.executor, &work.input, &mut self.output);
            self.executor.swap_wait(&mut work.wait);
            if progress.stop != StopReason::Parked {
                work.wait.end_memory_wait();
            }
            work.input.drain(..progress.consumed);
            self.output.send(&mut work.answer).expect("a Vec takes all that is written to it");
            if work.answer.len() > ANSWER_BYTES_MAX {
                work.answer = TOO_LARGE.to_vec();
                break;
            }
            match progress.stop {
                StopReason::NeedInput | StopReason::Close | StopReason::NotTheProtocol => break,
                // Ends at the latest when the answer is too large: a full output has made it longer.
                StopReason::OutputFull | StopReason::Yield => {}
                StopReason::Parked if self.parked.len() < PARKED_MAX => {
                    self.parked.insert(work);
                    return;
                }
                StopReason::Parked => return,
            }
        }
        self.sockets[work.socket].push(work.from, DatagramWriter::new(work.request, work.answer));
        self.send(work.socket);
    }

    /// Continues requests whose reads of flash have completed.
    fn resume_reads_done(&mut self) {
        let completed = std::mem::take(&mut *lock(&self.inbox.reads_done));
        for connection_key in completed {
            // Another request may have taken its index: that request continues to wait.
            if self.parked.get_mut(connection_key.index).is_some_and(|work| work.wait.take_completed()) {
                let work = self.parked.remove(connection_key.index);
                self.execute(work);
            }
        }
    }

    /// Tries the requests again that wait for memory.
    fn retry_waiting(&mut self, now: Instant) {
        if now < self.next_retry {
            return;
        }
        let is_waiting = |(index, work): (usize, &UdpRequest)| work.wait.waits_for_memory().then_some(index);
        let waiting: Vec<usize> = self.parked.iter().filter_map(is_waiting).collect();
        if waiting.is_empty() {
            return;
        }
        self.next_retry = now + RETRY;
        for index in waiting {
            let mut work = self.parked.remove(index);
            work.wait.retry();
            self.execute(work);
        }
    }

    /// Executes deletes that wait for a device that does not respond; they answer from the state of memory.
    fn abandon_delete_waits(&mut self) {
        if self.parked.is_empty() || !self.executor.abandons_delete_waits() {
            return;
        }
        let parked = self.parked.iter_mut();
        let deletes = parked.filter_map(|(index, parked)| parked.wait.abandon_delete_wait().then_some(index));
        for index in deletes.collect::<Vec<usize>>() {
            let delete = self.parked.remove(index);
            self.execute(delete);
        }
    }

    fn send(&mut self, socket: usize) {
        let sent = self.sockets[socket].send();
        self.executor.counters().bytes_written.add(sent);
    }
}

/// Adds a socket to the connections, as memcached counts it.
fn show(socket: &UdpSocket, shared: &Shared) -> (usize, Arc<ConnectionInfo>) {
    let info = Arc::new(ConnectionInfo {
        peer: socket.name(),
        listener: None,
        active_ms: AtomicU64::new(shared.uptime().as_millis() as u64),
        state: AtomicU8::new(ConnectionState::Command as u8),
    });
    (lock(&shared.connections).insert(Arc::clone(&info)), info)
}
