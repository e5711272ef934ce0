//! A worker: an event loop on one thread with the connections that were given to it.
//!
//! Events are edge-triggered. Each round takes the events that are there, marks their connections, and drives every
//! marked connection once; one that has more to do is marked again for the next round, which then does not wait.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ebbtide::Cache;
use ebbtide::flash::ThreadRing;
use ebbtide::flash::busy_poll::run_delay;
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use slab::Slab;

use crate::busy_poll::{AwaitedEvent, BusyPollState};
use crate::connection::{Buffers, Connection, Driven};
use crate::execute::{Executor, HEALTH_INTERVAL};
use crate::shared::{ConnectionKey, Inbox, Shared, lock};
use crate::watch::{CloseReason, WatchKind};

/// The token of the waker. Connections have their slab index.
pub const WAKER: Token = Token(usize::MAX);
/// The token of the worker's ring for reads of flash.
const RING: Token = Token(usize::MAX - 1);
const EVENTS: usize = 1024;
/// How often idle connections are looked for, unless the timeout is shorter than a few of these.
const IDLE_SCAN: Duration = Duration::from_secs(1);
/// How often connections that wait for memory are tried again, and how many of them: each try may look through the
/// store.
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
    /// Connections that wait for memory, the one that has waited longest since its last try in front.
    waiting: VecDeque<ConnectionKey>,
    next_retry: Instant,
    buffers: Buffers,
    /// Connections that watch.
    watching: Vec<usize>,
    next_idle_scan: Instant,
    /// When this round began, in milliseconds since the server started.
    round_ms: u64,
}

impl Worker {
    /// To be made on the thread that runs it. `poll` has the inbox's waker registered as [`WAKER`]. `samples`: whether
    /// commands are sampled.
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

    /// Serves until the server stops, then sends what is pending.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        let mut queue = Vec::new();
        while !self.shared.is_stopping() {
            let timeout = match self.queue.is_empty() {
                true => self.until_next_look(),
                false => Some(Duration::ZERO),
            };
            self.wait(&mut events, timeout);
            std::mem::swap(&mut queue, &mut self.queue);
            for index in queue.drain(..) {
                self.drive(index);
            }
            self.close_idle();
            self.abandon_delete_waits();
        }
        self.drain(&mut events);
    }

    /// Submits what was started in this round, and queues the connections that go on. Whether there are any in the
    /// queue.
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

    /// Waits for events and queues the connections they are about.
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

    /// Waits for events. There may be none where reads of flash have landed.
    fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        if timeout != Some(Duration::ZERO) && self.busy_poll(events)? {
            return Ok(());
        }
        self.poll.poll(events, timeout)
    }

    /// Asks for news before sleeping, if that is worth it. Whether there were any.
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
            // A thread that waits for the processor gets it at once.
            thread::yield_now();
        };
        self.waits.record_poll(awaited, came);
        self.executor.counters().busy_poll_ns.add((now - started).as_nanos() as u64);
        Ok(came)
    }

    /// Queues a connection for an event.
    fn mark(&mut self, index: usize, event: &Event) {
        // A connection closed in this round may still have events in it.
        let Some(connection) = self.connections.get_mut(index) else { return };
        if event.is_readable() || event.is_error() {
            connection.set_readable(event.is_read_closed() || event.is_error() || event.is_priority());
        }
        if !connection.queued {
            connection.queued = true;
            self.queue.push(index);
        }
    }

    /// Connections that have waited for flash go on.
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

    /// Some of the connections that wait for memory try again.
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

    /// Sees to it that a connection that waits for memory tries again, once.
    fn note_waiting(&mut self, index: usize) {
        let Some(connection) = self.connections.get(index).filter(|connection| connection.waits_for_memory()) else {
            return;
        };
        let connection_key = ConnectionKey { index, id: connection.id };
        if !self.waiting.contains(&connection_key) {
            self.waiting.push_back(connection_key);
        }
    }

    /// Somebody may have written for them.
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
            // The lock is not held while the connection is set up.
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
                // What has arrived already brings an event, too.
                Ok(()) => {
                    let index = entry.key();
                    entry.insert(Connection::new(arrival, index));
                }
                Err(error) => {
                    if self.shared.logs(1) {
                        eprintln!("failed to serve {}: {error}", arrival.info.peer);
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
            // The peer is gone: there is nobody to tell.
            Ok(Driven::Close) | Err(_) => self.close(index, CloseReason::Error),
        }
    }

    /// Sees to it that a connection that watches is told.
    fn register_watch(&mut self, index: usize) {
        let Some(watch) = self.connections[index].watch() else {
            return;
        };
        if self.watching.contains(&index) {
            return;
        }
        watch.attach(&self.inbox);
        self.watching.push(index);
        // What was written before that was not announced.
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
        // Closing the socket would do this as well; it fails only if it was never registered.
        let _ = self.poll.registry().deregister(connection.stream.source());
        if self.shared.logs(2) {
            eprintln!("<{} connection closed", connection.info.peer);
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

    /// Deletes that wait for a device which does nothing go on without it.
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
            // Who watches has nothing to say, for as long as it likes; who is parked waits for us.
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

    /// Closes the connections, those with pending output when it is sent or the time for it is over.
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

/// A ring for the reads of flash that a worker begins, if it can have one: otherwise others move them.
fn open_ring(poll: &Poll, cache: &Cache) -> Option<ThreadRing> {
    let ring = cache.thread_ring()?;
    let registered = poll.registry().register(&mut SourceFd(&ring.as_raw_fd()), RING, Interest::READABLE);
    registered.is_ok().then_some(ring)
}
