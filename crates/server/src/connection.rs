//! One connection on its worker: reads, has the session answer, writes.
//!
//! ```text
//! drive:  send what is pending -> (read -> process -> send)* until the socket is empty, or takes no more, or it is the
//!         turn of others
//! ```
//! The read buffer and the output buffer are the worker's and serve one connection at a time. A connection owns
//! memory only for what is unfinished: the bytes of an incomplete command, a value that is being received, and output
//! that its client does not take. While there is such output, or something is read from flash for it, or it waits for
//! memory, nothing is read or executed for it.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::execute::{ConnectionWait, Executor};
use crate::listen::Stream;
use crate::output::Output;
use crate::session::{Session, StopReason};
use crate::shared::{ConnectionInfo, ConnectionKey, ConnectionState, NewConnection};
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
    /// What it waits for, and reads of flash that have completed.
    wait: ConnectionWait,
    /// What has arrived and was not consumed.
    pending: Vec<u8>,
    /// `pending` may hold complete commands.
    unprocessed: bool,
    output: Option<Box<Output>>,
    /// The socket may have bytes for us; false from when it has said no until the next event.
    readable: bool,
    /// A short read does not mean that the next event will tell more: the peer has sent its last byte, or urgent data,
    /// before which a read stops.
    keep_reading: bool,
    closing: bool,
    /// It is closed for what it has sent.
    pub refused: bool,
    /// It has ended a command, sent a part of a value, or taken a part of an answer: what an idle one does not.
    pub active: bool,
    /// It is in the worker's list of connections to drive.
    pub queued: bool,
}

/// What is to become of a connection after it was driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driven {
    /// Nothing to do until the next event.
    Wait,
    /// There is more to do, after others had their turn.
    Yield,
    Close,
}

impl Connection {
    /// `index`: where its worker has it.
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

    /// What it watches, if it does.
    pub fn watch(&self) -> Option<&Watch> {
        self.session.watch()
    }

    /// Whether it waits for flash or for memory.
    pub fn is_parked(&self) -> bool {
        self.wait.is_parked()
    }

    /// Whether it waits for memory, so that it is to be driven again after [`Connection::retry`].
    pub fn waits_for_memory(&self) -> bool {
        self.wait.waits_for_memory()
    }

    /// What waits for memory is tried again.
    pub fn retry(&mut self) {
        self.wait.retry();
    }

    /// Ends the wait of a delete for flash. True if there was one.
    pub fn abandon_delete_wait(&mut self) -> bool {
        self.wait.abandon_delete_wait()
    }

    /// `keep_reading`: even a short read is not to be taken for the last one.
    pub fn set_readable(&mut self, keep_reading: bool) {
        self.readable = true;
        self.keep_reading |= keep_reading;
    }

    /// Sends what is pending, executes what was read, and reads no more. True if all is sent.
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
            // A dump may go on for long: it is broken off.
            self.unprocessed = matches!(progress.stop, StopReason::OutputFull | StopReason::Parked);
            self.send(executor, &mut buffers.output)?;
        }
        self.wait.release_completed();
        Ok(false)
    }

    /// Does what can be done now. An error closes the connection, as `Close` does.
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
        // There may be something to tell, though nothing has arrived.
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
                // A client that always has something to say must not keep what it needs no more.
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
            // A read without a complete request, as of a large value, counts as well.
            requests += progress.requests.max(1);
            let turns = progress.stop == StopReason::Yield || requests >= requests_per_event;
            if turns && (self.unprocessed || self.readable) {
                executor.counters().yields.add(1);
                break self.park(buffers, have, Driven::Yield);
            }
        }
    }

    /// Reads once: `None` if there is nothing to read now, or others have their turn first; 0 at the end of the stream.
    fn read(&mut self, executor: &Executor, space: &mut [u8]) -> io::Result<Option<usize>> {
        let result = self.stream.read(space);
        if self.stream.is_handshaking() && matches!(&result, Ok(0)) | matches!(&result, Err(e) if is_final(e)) {
            executor.counters().tls_handshake_errors.add(1);
        }
        match result {
            Ok(count) => {
                // Less than was asked for means that a socket is empty: the next bytes bring an event.
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

    /// Sends `output`; what the socket does not take becomes the connection's own. True if all is sent.
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

    /// Keeps what was not consumed, and says what the connection waits for.
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

/// Whether a failed read is the end of the connection.
fn is_final(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
