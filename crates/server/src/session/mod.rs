//! The protocol state of one connection: a session for each dialect turns input bytes into answers. Sessions do not use
//! sockets.

mod binary;
mod change_run;
mod login;
mod progress;
mod text;

use ebbtide_protocol::binary::REQUEST_MAGIC;

use crate::auth::Auth;
use crate::execute::Executor;
use crate::execute::binary::Sasl;
use crate::options::Protocol;
use crate::output::Output;
use crate::watch::Watch;

pub use progress::{SessionProgress, StopReason};

use binary::BinarySession;
use text::TextSession;

pub struct Session {
    state: SessionState,
    id: usize,
}

enum SessionState {
    /// No byte has arrived.
    Undecided,
    /// The text protocol before authentication.
    Login,
    Text(TextSession),
    Binary(Box<BinarySession>),
    /// A watcher: reads no commands.
    Watching(Watch),
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

    /// The events that the connection watches, if it is a watcher.
    pub fn watch(&self) -> Option<&Watch> {
        match &self.state {
            SessionState::Watching(watch) => Some(watch),
            _ => None,
        }
    }

    /// Executes the commands in `input` until none is complete or the output is full. The caller gives unconsumed bytes
    /// again, followed by newly arrived ones.
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
