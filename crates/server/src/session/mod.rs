//! The protocol state of one connection: a session for each dialect that turns what has arrived into answers. None
//! knows a socket.

mod binary;
mod login;
mod text;

use ebbtide_protocol::binary::REQUEST_MAGIC;

use crate::auth::Auth;
use crate::execute::Executor;
use crate::execute::binary::Sasl;
use crate::options::Protocol;
use crate::output::Output;
use crate::watch::Watch;

use binary::BinarySession;
use text::TextSession;

/// A value up to this size is waited for in the read buffer; a larger one that is not all there gets a buffer, or
/// segments, of its own.
const INLINE_VALUE_BYTES: usize = 8 << 10;

pub struct Session {
    state: SessionState,
    id: usize,
}

enum SessionState {
    /// Nothing has arrived.
    Undecided,
    /// Text, of somebody who is not known yet.
    Login,
    Text(TextSession),
    Binary(Box<BinarySession>),
    /// Takes no commands any more.
    Watching(Watch),
}

/// Why processing stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// All is done that can be done before more bytes arrive.
    NeedInput,
    /// The output has to be sent first.
    OutputFull,
    /// Flash has to be read first, or memory is waited for; what was not executed is given again then.
    Parked,
    /// As `OutputFull`, and others have their turn before it goes on.
    Yield,
    /// The connection is to be closed once the output is sent.
    Close,
    /// As `Close`, because what has arrived is not the protocol.
    NotTheProtocol,
}

/// What one call of `process` did.
pub struct SessionProgress {
    pub consumed: usize,
    pub requests: usize,
    pub stop: StopReason,
}

impl Session {
    /// `id`: the connection's number in `stats conns`.
    pub fn new(id: usize) -> Self {
        Self { state: SessionState::Undecided, id }
    }

    /// True while the value of a storage command is being received.
    pub fn is_receiving(&self) -> bool {
        match &self.state {
            SessionState::Undecided | SessionState::Login | SessionState::Watching(_) => false,
            SessionState::Text(session) => session.is_receiving(),
            SessionState::Binary(session) => session.is_receiving(),
        }
    }

    /// What the connection watches, if it does.
    pub fn watch(&self) -> Option<&Watch> {
        match &self.state {
            SessionState::Watching(watch) => Some(watch),
            _ => None,
        }
    }

    /// Executes what is in `input`, until it has no complete command any more or the output is full. What was not
    /// consumed must be given again, followed by what has arrived since.
    pub fn process(&mut self, executor: &Executor, input: &[u8], output: &mut Output) -> SessionProgress {
        match &mut self.state {
            SessionState::Text(session) => {
                let mut progress = session.process(executor, input, output);
                if let Some(watch) = session.take_watch() {
                    self.state = SessionState::Watching(watch);
                    progress.consumed = input.len();
                }
                progress
            }
            SessionState::Watching(watch) => {
                watch.take(output.bytes());
                SessionProgress { consumed: input.len(), requests: 0, stop: StopReason::NeedInput }
            }
            SessionState::Binary(session) => session.process(executor, input, output),
            SessionState::Login => self.login(executor, input, output),
            SessionState::Undecided => match input.first() {
                Some(&first) => {
                    self.state = self.decide(executor, first);
                    self.process(executor, input, output)
                }
                None => SessionProgress { consumed: 0, requests: 0, stop: StopReason::NeedInput },
            },
        }
    }

    /// The session of a connection whose first byte is `first`.
    fn decide(&self, executor: &Executor, first: u8) -> SessionState {
        let options = executor.options();
        match (&options.auth, options.protocol) {
            (Some(Auth::Ascii(_)), _) => SessionState::Login,
            (Some(Auth::Sasl(_)), _) => self.binary(Sasl::Unknown),
            (None, Protocol::Binary) => self.binary(Sasl::NotSpoken),
            (None, Protocol::Auto) if first == REQUEST_MAGIC => self.binary(Sasl::NotSpoken),
            (None, Protocol::Auto | Protocol::Ascii) => SessionState::Text(TextSession::new(self.id)),
        }
    }

    fn binary(&self, sasl: Sasl) -> SessionState {
        SessionState::Binary(Box::new(BinarySession::new(self.id, sasl)))
    }

    fn login(&mut self, executor: &Executor, input: &[u8], output: &mut Output) -> SessionProgress {
        let (before, known) = login::process(executor, input, output);
        if !known {
            return before;
        }
        self.state = SessionState::Text(TextSession::new(self.id));
        let after = self.process(executor, &input[before.consumed..], output);
        SessionProgress {
            consumed: before.consumed + after.consumed,
            requests: before.requests + after.requests,
            stop: after.stop,
        }
    }
}
