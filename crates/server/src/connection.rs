//! One connection on its worker: it reads, has the session answer, and writes.
//!
//! ```text
//! drive:  send pending output -> (read -> process -> send)* until the socket is empty or accepts no more, or until
//!         other connections have their turn
//! ```
//! The read buffer and the output buffer belong to the worker and serve one connection at a time. A connection owns
//! memory only for unfinished work: the bytes of an incomplete command, a value that is being received, and output that
//! its client does not take. Nothing is read or executed for it while it has such output or waits for flash or memory.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::connection_info::{ConnectionInfo, ConnectionState};
use crate::connection_wait::ConnectionWait;
use crate::execute::Executor;
use crate::inbox::{ConnectionKey, NewConnection};
use crate::listen::Stream;
use crate::output::Output;
use crate::session::{Session, StopReason};
use crate::watch::Watch;

/// Bytes per read.
pub const READ_BYTES: usize = 32 << 10;

/// The buffers of a worker.
pub struct Buffers {
    input: Box<[u8]>,
    output: Output,
}

impl Buffers {
    pub fn new() -> Self {
        Self { input: vec![0; READ_BYTES].into(), output: Output::default() }
    }
}

pub struct Connection {
    pub stream: Stream,
    pub id: usize,
    pub info: Arc<ConnectionInfo>,
    session: Session,
    connection_key: ConnectionKey,
    /// Its pending and completed reads of flash, and its wait for memory.
    wait: ConnectionWait,
    /// Bytes that have arrived and are not consumed.
    pending: Vec<u8>,
    /// True when `pending` may hold complete commands.
    unprocessed: bool,
    output: Option<Box<Output>>,
    /// False from a read that would block until the next event.
    readable: bool,
    /// Set when no event may follow a short read: the peer has closed its side, or sent urgent data, at which a read
    /// stops.
    keep_reading: bool,
    closing: bool,
    /// The connection is closed because its bytes violate the protocol.
    pub refused: bool,
    /// Set when it has ended a command, sent a part of a value, or received a part of an answer; for the idle timeout.
    pub active: bool,
    /// The connection is in the worker's list of connections to drive.
    pub queued: bool,
}

/// Next action on a connection after `drive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driven {
    /// Nothing to do until the next event.
    Wait,
    /// Drive it again after the other queued connections.
    Yield,
    Close,
}

impl Connection {
    /// `index`: its slab index in the worker.
    pub fn new(arrival: NewConnection, index: usize) -> Self {
        Self {
            connection_key: ConnectionKey { index, id: arrival.id },
            wait: ConnectionWait::default(),
            stream: arrival.stream,
            id: arrival.id,
            info: arrival.info,
            session: Session::new(arrival.id),
            pending: Vec::new(),
            unprocessed: false,
            output: None,
            readable: true,
            keep_reading: false,
            closing: false,
            refused: false,
            active: false,
            queued: false,
        }
    }

    /// The events that it watches, if it is a watcher.
    pub fn watch(&self) -> Option<&Watch> {
        self.session.watch()
    }

    /// True while it waits for flash or memory.
    pub fn is_parked(&self) -> bool {
        self.wait.is_parked()
    }

    /// True while it waits for memory: the worker calls [`Connection::retry`] and drives it again.
    pub fn waits_for_memory(&self) -> bool {
        self.wait.waits_for_memory()
    }

    /// Ends the wait for memory: the command is executed again.
    pub fn retry(&mut self) {
        self.wait.retry();
    }

    /// Ends the wait of a delete for flash. True if a delete waited.
    pub fn abandon_delete_wait(&mut self) -> bool {
        self.wait.abandon_delete_wait()
    }

    /// `keep_reading`: a short read does not mean that the socket is empty.
    pub fn set_readable(&mut self, keep_reading: bool) {
        self.readable = true;
        self.keep_reading |= keep_reading;
    }

    /// Sends pending output and executes the bytes that were read, without reading more. True when all is sent.
    pub fn drain(&mut self, executor: &Executor, buffers: &mut Buffers) -> io::Result<bool> {
        while self.send_pending(executor)? {
            if !self.wait.take_completed() {
                return Ok(false);
            }
            if !std::mem::take(&mut self.unprocessed) || self.closing {
                return Ok(true);
            }
            executor.serve(self.connection_key, &mut self.wait);
            let progress = self.session.process(executor, &self.pending, &mut buffers.output);
            executor.swap_wait(&mut self.wait);
            self.pending.drain(..progress.consumed);
            self.closing = matches!(progress.stop, StopReason::Close | StopReason::NotTheProtocol);
            // A dump may be long: it is aborted.
            self.unprocessed = matches!(progress.stop, StopReason::OutputFull | StopReason::Parked);
            self.send(executor, &mut buffers.output)?;
        }
        self.wait.release_completed();
        Ok(false)
    }

    /// Sends, reads and executes until the connection must wait. An error closes the connection, like `Close`.
    pub fn drive(
        &mut self,
        executor: &Executor,
        buffers: &mut Buffers,
        requests_per_event: usize,
    ) -> io::Result<Driven> {
        if !self.send_pending(executor)? {
            self.wait.release_completed();
            return Ok(Driven::Wait);
        }
        if self.closing {
            return Ok(Driven::Close);
        }
        if !self.wait.take_completed() {
            return Ok(Driven::Wait);
        }
        let mut have = self.pending.len();
        buffers.input[..have].copy_from_slice(&self.pending);
        self.pending = Vec::new();
        // A watcher may have events to send, although no byte has arrived.
        self.unprocessed |= self.session.watch().is_some();
        let mut requests = 0;
        loop {
            if !std::mem::take(&mut self.unprocessed) {
                if !self.readable {
                    break self.park(buffers, have, Driven::Wait);
                }
                match self.read(executor, &mut buffers.input[have..])? {
                    None if self.readable => break self.park(buffers, have, Driven::Yield),
                    None => break self.park(buffers, have, Driven::Wait),
                    Some(0) => break Ok(Driven::Close),
                    Some(count) => have += count,
                }
            }
            let input = &buffers.input[..have];
            executor.serve(self.connection_key, &mut self.wait);
            let progress = self.session.process(executor, input, &mut buffers.output);
            executor.swap_wait(&mut self.wait);
            self.active |= progress.requests > 0 || self.session.is_receiving();
            buffers.input.copy_within(progress.consumed..have, 0);
            have -= progress.consumed;
            if progress.stop != StopReason::Parked {
                self.wait.end_memory_wait();
            }
            if progress.stop == StopReason::NeedInput {
                // A client that always sends must not keep completed reads that it no longer needs.
                self.wait.release_completed();
            }
            self.closing = matches!(progress.stop, StopReason::Close | StopReason::NotTheProtocol);
            self.refused = progress.stop == StopReason::NotTheProtocol;
            self.unprocessed = matches!(progress.stop, StopReason::OutputFull | StopReason::Yield | StopReason::Parked);
            if !self.send(executor, &mut buffers.output)? {
                break self.park(buffers, have, Driven::Wait);
            }
            if self.closing {
                break Ok(Driven::Close);
            }
            if self.is_parked() {
                break self.park(buffers, have, Driven::Wait);
            }
            // A read without a complete request, such as a part of a large value, counts as one.
            requests += progress.requests.max(1);
            let turns = progress.stop == StopReason::Yield || requests >= requests_per_event;
            if turns && (self.unprocessed || self.readable) {
                executor.counters().yields.add(1);
                break self.park(buffers, have, Driven::Yield);
            }
        }
    }

    /// Reads once: `None` when nothing can be read now or others have their turn first; 0 at the end of the stream.
    fn read(&mut self, executor: &Executor, space: &mut [u8]) -> io::Result<Option<usize>> {
        let result = self.stream.read(space);
        if self.stream.is_handshaking() && matches!(&result, Ok(0)) | matches!(&result, Err(e) if is_final(e)) {
            executor.counters().tls_handshake_errors.add(1);
        }
        match result {
            Ok(count) => {
                // A short read means that the socket is empty: the next bytes cause an event.
                if count < space.len() && !self.keep_reading && self.stream.empties_in_one_read() {
                    self.readable = false;
                }
                executor.counters().bytes_read.add(count as u64);
                executor.probe().after_read();
                Ok(Some(count))
            }
            Err(error) if is_final(&error) => Err(error),
            Err(error) => {
                self.readable = error.kind() == io::ErrorKind::Interrupted;
                Ok(None)
            }
        }
    }

    /// Sends `output`, and keeps the rest that the socket does not take. True when all is sent.
    fn send(&mut self, executor: &Executor, output: &mut Output) -> io::Result<bool> {
        if output.is_empty() {
            return Ok(true);
        }
        let sent = output.send(&mut self.stream);
        if sent.is_err() {
            *output = Output::default();
        }
        let sent = sent?;
        self.active |= sent > 0;
        executor.counters().bytes_written.add(sent);
        if output.is_empty() {
            return self.stream.is_flushed();
        }
        self.output = Some(Box::new(output.take_rest()));
        Ok(false)
    }

    fn send_pending(&mut self, executor: &Executor) -> io::Result<bool> {
        let Some(output) = &mut self.output else {
            return self.stream.is_flushed();
        };
        let sent = output.send(&mut self.stream)?;
        self.active |= sent > 0;
        executor.counters().bytes_written.add(sent);
        if !output.is_empty() {
            return Ok(false);
        }
        self.output = None;
        self.stream.is_flushed()
    }

    /// Keeps the unconsumed bytes and publishes what the connection waits for.
    fn park(&mut self, buffers: &Buffers, have: usize, driven: Driven) -> io::Result<Driven> {
        if have > 0 {
            self.pending = buffers.input[..have].to_vec();
        }
        if driven == Driven::Wait && !self.is_parked() {
            self.wait.release_completed();
        }
        let state = match () {
            () if self.output.is_some() => ConnectionState::Drain,
            () if self.waits_for_memory() => ConnectionState::Memory,
            () if self.is_parked() => ConnectionState::Flash,
            () if self.session.is_receiving() => ConnectionState::Value,
            () => ConnectionState::Command,
        };
        self.info.state.store(state as u8, Ordering::Relaxed);
        Ok(driven)
    }
}

/// True when a failed read ends the connection.
fn is_final(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
