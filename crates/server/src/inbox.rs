//! How other threads talk to a worker.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, ThreadId};

use crate::connection_info::ConnectionInfo;
use crate::listen::Stream;
use crate::sync::lock;

/// A connection on its way from the acceptor to its worker.
pub struct NewConnection {
    pub stream: Stream,
    pub id: usize,
    pub info: Arc<ConnectionInfo>,
}

/// Where a worker has a connection, and the connection's number: another may be there by the time that it is looked
/// for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionKey {
    pub index: usize,
    pub id: usize,
}

/// How others talk to a worker: the acceptor, and threads that have read flash for it.
pub struct Inbox {
    pub new_connections: Mutex<VecDeque<NewConnection>>,
    /// Connections for which all reads of flash have completed.
    pub reads_done: Mutex<Vec<ConnectionKey>>,
    pub waker: mio::Waker,
    /// The worker's thread.
    owner: OnceLock<ThreadId>,
}

impl Inbox {
    pub fn new(waker: mio::Waker) -> Self {
        Self { new_connections: Mutex::default(), reads_done: Mutex::default(), waker, owner: OnceLock::new() }
    }

    /// The calling thread looks at `reads_done` by itself before it sleeps: it is woken only for what others have read.
    pub fn claim_for_this_thread(&self) {
        self.owner.set(thread::current().id()).expect("one worker takes what arrives");
    }

    /// All reads for a connection have completed.
    pub fn notify_reads_done(&self, connection_key: ConnectionKey) {
        let mut reads_done = lock(&self.reads_done);
        reads_done.push(connection_key);
        // The thread that added the first one has woken the worker, which takes all, or is the worker.
        if reads_done.len() == 1 && self.owner.get() != Some(&thread::current().id()) {
            self.waker.wake().expect("an event counter takes one more event");
        }
    }
}
