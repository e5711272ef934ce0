//! How other threads talk to a worker.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, ThreadId};

use crate::connection_info::ConnectionInfo;
use crate::listen::Stream;
use crate::sync::lock;

/// An accepted connection, for its worker.
pub struct NewConnection {
    pub stream: Stream,
    pub id: usize,
    pub info: Arc<ConnectionInfo>,
}

/// A connection of a worker: its slab index, and its id, because the index may be reused before it is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionKey {
    pub index: usize,
    pub id: usize,
}

/// Messages to a worker from the acceptor and from threads that read flash for it.
pub struct Inbox {
    pub new_connections: Mutex<VecDeque<NewConnection>>,
    /// Connections whose pending reads have all completed.
    pub reads_done: Mutex<Vec<ConnectionKey>>,
    pub waker: mio::Waker,
    /// The worker's thread.
    owner: OnceLock<ThreadId>,
}

impl Inbox {
    pub fn new(waker: mio::Waker) -> Self {
        Self { new_connections: Mutex::default(), reads_done: Mutex::default(), waker, owner: OnceLock::new() }
    }

    /// Makes the calling thread the owner. It checks `reads_done` before it sleeps, so only other threads wake it.
    pub fn claim_for_this_thread(&self) {
        self.owner.set(thread::current().id()).expect("one worker takes what arrives");
    }

    /// Reports that all pending reads of a connection have completed.
    pub fn notify_reads_done(&self, connection_key: ConnectionKey) {
        let mut reads_done = lock(&self.reads_done);
        reads_done.push(connection_key);
        // Only the first entry wakes the worker: it takes all entries at once.
        if reads_done.len() == 1 && self.owner.get() != Some(&thread::current().id()) {
            self.waker.wake().expect("an event counter takes one more event");
        }
    }
}
