//! The protocol state of one connection: a session for each dialect that turns what has arrived into answers. None
//! knows a socket.

mod text;

use crate::execute::Executor;
use crate::output::Output;

use text::TextSession;

/// A value up to this size is waited for in the read buffer; a larger one that is not all there gets a buffer, or
/// segments, of its own.
const INLINE_VALUE_BYTES: usize = 8 << 10;

pub struct Session {
    dialect: Dialect,
}

enum Dialect {
    Text(TextSession),
}

/// Why processing stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// All is done that can be done before more bytes arrive.
    Starved,
    /// The output has to be sent first.
    Full,
    /// The connection is to be closed once the output is sent.
    Close,
}

/// What one call of `process` did.
pub struct Progress {
    pub consumed: usize,
    pub requests: usize,
    pub stopped: Stopped,
}

impl Session {
    /// `id`: the connection's number in `stats conns`.
    pub fn new(id: usize) -> Self {
        Self { dialect: Dialect::Text(TextSession::new(id)) }
    }

    /// True while the value of a storage command is being received.
    pub fn is_receiving(&self) -> bool {
        match &self.dialect {
            Dialect::Text(session) => session.is_receiving(),
        }
    }

    /// Executes what is in `input`, until it has no complete command any more or the output is full. What was not
    /// consumed must be given again, followed by what has arrived since.
    pub fn process(&mut self, executor: &Executor, input: &[u8], output: &mut Output) -> Progress {
        match &mut self.dialect {
            Dialect::Text(session) => session.process(executor, input, output),
        }
    }
}
