//! A worker: an event loop on one thread with its connections.
//!
//! Events are edge-triggered. Each round collects the events, queues their connections, and drives each queued
//! connection once. A connection with more to do is queued for the next round, which then does not wait.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ebbtide::flash::ThreadRing;
use ebbtide::flash::busy_poll::run_delay;
use ebbtide::memcached::Cache;
use ebbtide::message;
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use slab::Slab;

use crate::busy_poll::{AwaitedEvent, BusyPollState};
use crate::connection::{Buffers, Connection, Driven};
use crate::execute::{Executor, HEALTH_INTERVAL};
use crate::inbox::{ConnectionKey, Inbox};
use crate::shared::Shared;
use crate::sync::lock;
use crate::watch::{CloseReason, WatchKind};

/// The token of the waker. Connections have their slab index.
pub const WAKER: Token = Token(usize::MAX);
/// The token of the worker's ring for reads of flash.
const RING: Token = Token(usize::MAX - 1);
const EVENTS: usize = 1024;
/// Interval of the scan for idle connections; shorter for a short timeout.
const IDLE_SCAN: Duration = Duration::from_secs(1);
/// Interval of retries of connections that wait for memory, and their number at once: each retry may scan the store.
const RETRY: Duration = Duration::from_millis(1);
const RETRIES_AT_ONCE: usize = 16;

pub struct Worker {
    poll: Poll,
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    executor: Executor,
    ring: Option<ThreadRing>,
    waits: BusyPollState,
    connections: Slab<Connection>,
    /// Connections to drive.
    queue: Vec<usize>,
    /// Connections that wait for memory, ordered by the time of their last retry, oldest first.
    waiting: VecDeque<ConnectionKey>,
    next_retry: Instant,
    buffers: Buffers,
    /// Connections that are watchers.
    watching: Vec<usize>,
    next_idle_scan: Instant,
    /// Start of this round, in milliseconds since the start of the server.
    round_ms: u64,
}

impl Worker {
    /// Must be called on the thread that runs the worker. `poll` has the inbox's waker registered as [`WAKER`].
    /// `samples`: whether commands are sampled.
    pub fn new(poll: Poll, shared: Arc<Shared>, inbox: Arc<Inbox>, index: usize, samples: bool) -> Self {
        inbox.claim_for_this_thread();
        Self {
            ring: open_ring(&poll, &shared.cache),
            poll,
            waits: BusyPollState::new(shared.options.busy_poll.with_processors_for(shared.options.threads)),
            executor: Executor::new(Arc::clone(&shared), Arc::clone(&inbox), index, samples),
            shared,
            inbox,
            connections: Slab::new(),
            queue: Vec::new(),
            waiting: VecDeque::new(),
            next_retry: Instant::now(),
            buffers: Buffers::new(),
            watching: Vec::new(),
            next_idle_scan: Instant::now(),
            round_ms: 0,
        }
    }

    /// Serves until the server stops, then sends pending output.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        let mut queue = Vec::new();
        while !self.shared.is_stopping() {
            let timeout = match self.queue.is_empty() {
                true => self.until_next_look(),
                false => Some(Duration::ZERO),
            };
            self.wait(&mut events, timeout);
            self.executor.refresh_pools();
            std::mem::swap(&mut queue, &mut self.queue);
            for index in queue.drain(..) {
                self.drive(index);
            }
            self.close_idle();
            self.abandon_delete_waits();
        }
        self.drain(&mut events);
    }

    /// Submits the reads that were started in this round, and queues connections whose reads have completed. True when
    /// the queue is not empty.
    fn advance_ring(&mut self) -> bool {
        if let Some(ring) = &self.ring
            && ring.has_completions()
            && ring.turn()
        {
            self.waits.read_ended();
        }
        self.queue_reads_done();
        !self.queue.is_empty()
    }

    /// Waits for events and queues their connections.
    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) {
        let timeout = if self.waiting.is_empty() { timeout } else { Some(timeout.unwrap_or(RETRY).min(RETRY)) };
        let timeout = if self.advance_ring() { Some(Duration::ZERO) } else { timeout };
        if let Err(error) = self.poll(events, timeout) {
            assert!(error.kind() == io::ErrorKind::Interrupted, "waiting for events cannot fail otherwise: {error}");
            return;
        }
        let now = Instant::now();
        self.executor.probe().begin_round(now);
        self.round_ms = self.ms_at(now);
        let mut woken = false;
        for event in events.iter() {
            match event.token() {
                WAKER => woken = true,
                RING => {
                    if self.ring.as_ref().expect("it is registered").turn() {
                        self.waits.read_ended();
                    }
                }
                Token(index) => self.mark(index, event),
            }
        }
        self.queue_reads_done();
        self.queue_retries(now);
        if woken {
            self.take_new_connections();
            self.queue_watchers();
        }
    }

    /// Waits for events. There may be none when reads of flash have completed.
    fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        if timeout != Some(Duration::ZERO) && self.busy_poll(events)? {
            return Ok(());
        }
        self.poll.poll(events, timeout)
    }

    /// Polls instead of sleeping, when that is likely to pay. True when something arrived.
    fn busy_poll(&mut self, events: &mut Events) -> io::Result<bool> {
        let is_reading = self.ring.as_ref().is_some_and(ThreadRing::is_reading);
        let awaited = if is_reading { AwaitedEvent::Flash } else { AwaitedEvent::Request };
        let started = Instant::now();
        if !self.waits.asks(awaited, started, run_delay) {
            return Ok(false);
        }
        let (came, now) = loop {
            self.poll.poll(events, Some(Duration::ZERO))?;
            let now = Instant::now();
            if events.iter().any(|event| event.token() != RING) {
                break (true, now);
            }
            if let Some(ring) = &self.ring
                && ring.is_due()
                && ring.turn()
            {
                self.waits.read_ended();
                break (true, now);
            }
            if now - started > awaited.max_poll() {
                break (false, now);
            }
            // A thread that waits for this processor gets it at once.
            thread::yield_now();
        };
        self.waits.record_poll(awaited, came);
        self.executor.counters().busy_poll_ns.add((now - started).as_nanos() as u64);
        Ok(came)
    }

    /// Queues a connection for an event.
    fn mark(&mut self, index: usize, event: &Event) {
        // The event may be of a connection that this round has closed.
        let Some(connection) = self.connections.get_mut(index) else { return };
        if event.is_readable() || event.is_error() {
            connection.set_readable(event.is_read_closed() || event.is_error() || event.is_priority());
        }
        if !connection.queued {
            connection.queued = true;
            self.queue.push(index);
        }
    }

    /// Queues the connections whose reads of flash have completed.
    fn queue_reads_done(&mut self) {
        if !self.executor.has_flash() {
            return;
        }
        for connection_key in std::mem::take(&mut *lock(&self.inbox.reads_done)) {
            if let Some(connection) = self.connections.get_mut(connection_key.index)
                && connection.id == connection_key.id
                && !connection.queued
            {
                connection.queued = true;
                self.queue.push(connection_key.index);
            }
        }
    }

    /// Queues some of the connections that wait for memory, for a retry.
    fn queue_retries(&mut self, now: Instant) {
        if self.waiting.is_empty() || now < self.next_retry {
            return;
        }
        self.next_retry = now + RETRY;
        for connection_key in self.waiting.drain(..self.waiting.len().min(RETRIES_AT_ONCE)) {
            if let Some(connection) = self.connections.get_mut(connection_key.index)
                && connection.id == connection_key.id
            {
                connection.retry();
                if !connection.queued {
                    connection.queued = true;
                    self.queue.push(connection_key.index);
                }
            }
        }
    }

    /// Registers a connection that waits for memory for one retry.
    fn note_waiting(&mut self, index: usize) {
        let Some(connection) = self.connections.get(index).filter(|connection| connection.waits_for_memory()) else {
            return;
        };
        let connection_key = ConnectionKey { index, id: connection.id };
        if !self.waiting.contains(&connection_key) {
            self.waiting.push_back(connection_key);
        }
    }

    /// Queues watchers: events may have been written for them.
    fn queue_watchers(&mut self) {
        for &index in &self.watching {
            let connection = &mut self.connections[index];
            if !connection.queued {
                connection.queued = true;
                self.queue.push(index);
            }
        }
    }

    /// Milliseconds since the server started.
    fn ms_at(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.shared.started).as_millis() as u64
    }

    fn take_new_connections(&mut self) {
        loop {
            // The lock is released before the connection is set up.
            let Some(mut arrival) = lock(&self.inbox.new_connections).pop_front() else {
                return;
            };
            let entry = self.connections.vacant_entry();
            let registered = self.poll.registry().register(
                arrival.stream.source(),
                Token(entry.key()),
                Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY,
            );
            match registered {
                // Bytes that have already arrived cause an event, too.
                Ok(()) => {
                    let index = entry.key();
                    entry.insert(Connection::new(arrival, index));
                }
                Err(error) => {
                    if self.shared.logs(1) {
                        message!("failed to serve {}: {error}", arrival.info.peer);
                    }
                    self.forget(arrival.id);
                }
            }
        }
    }

    fn drive(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        connection.queued = false;
        let limit = self.shared.options.requests_per_event;
        let driven = connection.drive(&self.executor, &mut self.buffers, limit);
        if std::mem::take(&mut connection.active) {
            connection.info.active_ms.store(self.round_ms, Ordering::Relaxed);
        }
        match driven {
            Ok(Driven::Wait) => {
                self.note_waiting(index);
                self.register_watch(index);
            }
            Ok(Driven::Yield) => {
                connection.queued = true;
                self.queue.push(index);
            }
            Ok(Driven::Close) if !connection.refused => self.close(index, CloseReason::Normal),
            // The peer has closed the connection.
            Ok(Driven::Close) | Err(_) => self.close(index, CloseReason::Error),
        }
    }

    /// Registers a watcher with the worker, so that events wake it.
    fn register_watch(&mut self, index: usize) {
        let Some(watch) = self.connections[index].watch() else {
            return;
        };
        if self.watching.contains(&index) {
            return;
        }
        watch.attach(&self.inbox);
        self.watching.push(index);
        // Events before the registration have not woken the worker.
        self.connections[index].queued = true;
        self.queue.push(index);
    }

    fn close(&mut self, index: usize, reason: CloseReason) {
        let mut connection = self.connections.remove(index);
        self.watching.retain(|&watching| watching != index);
        if self.shared.watching.wants(WatchKind::Connection) {
            self.shared.watching.close(&connection.info, connection.id, reason);
        }
        connection.stream.close();
        // Fails only for a socket that was never registered.
        let _ = self.poll.registry().deregister(connection.stream.source());
        if self.shared.logs(2) {
            message!("<{} connection closed", connection.info.peer);
        }
        self.forget(connection.id);
    }

    fn forget(&self, id: usize) {
        lock(&self.shared.connections).remove(id);
    }

    fn idle_scan_interval(&self, timeout: Duration) -> Duration {
        IDLE_SCAN.min(timeout / 4)
    }

    fn until_next_look(&self) -> Option<Duration> {
        let idle =
            self.shared.options.idle_timeout.map(|_| self.next_idle_scan.saturating_duration_since(Instant::now()));
        let health = (self.executor.has_flash() && !self.connections.is_empty()).then_some(HEALTH_INTERVAL);
        [idle, health].into_iter().flatten().min()
    }

    /// Ends the waits of deletes for a device that is not healthy.
    fn abandon_delete_waits(&mut self) {
        if !self.executor.abandons_delete_waits() {
            return;
        }
        for (index, connection) in &mut self.connections {
            if connection.abandon_delete_wait() && !connection.queued {
                connection.queued = true;
                self.queue.push(index);
            }
        }
    }

    fn close_idle(&mut self) {
        let Some(timeout) = self.shared.options.idle_timeout else {
            return;
        };
        let now = Instant::now();
        if now < self.next_idle_scan {
            return;
        }
        self.next_idle_scan = now + self.idle_scan_interval(timeout);
        let now_ms = self.ms_at(now);
        let limit_ms = timeout.as_millis() as u64;
        let idle: Vec<usize> = self
            .connections
            .iter()
            // A watcher need not send anything, and a parked connection waits for the server.
            .filter(|(_, connection)| connection.watch().is_none() && !connection.is_parked())
            .filter(|(_, connection)| {
                let active_ms = connection.info.active_ms.load(Ordering::Relaxed);
                now_ms.saturating_sub(active_ms) > limit_ms
            })
            .map(|(index, _)| index)
            .collect();
        for index in idle {
            self.executor.counters().idle_kicks.add(1);
            self.close(index, CloseReason::IdleTimeout);
        }
    }

    /// Closes the connections. Those with pending output are closed when it is sent, or at the deadline.
    fn drain(&mut self, events: &mut Events) {
        let deadline = Instant::now() + self.shared.options.stop_timeout;
        let all: Vec<usize> = self.connections.iter().map(|(index, _)| index).collect();
        for index in all {
            self.drain_one(index);
        }
        while !self.connections.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.wait(events, Some(left));
            for index in std::mem::take(&mut self.queue) {
                self.drain_one(index);
            }
        }
    }

    fn drain_one(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        connection.queued = false;
        match connection.drain(&self.executor, &mut self.buffers) {
            Ok(false) => self.note_waiting(index),
            Ok(true) | Err(_) => self.close(index, CloseReason::Shutdown),
        }
    }
}

/// A ring for the worker's reads of flash. Without one, I/O threads transfer them.
fn open_ring(poll: &Poll, cache: &Cache) -> Option<ThreadRing> {
    let ring = cache.thread_ring()?;
    let registered = poll.registry().register(&mut SourceFd(&ring.as_raw_fd()), RING, Interest::READABLE);
    registered.is_ok().then_some(ring)
}
