//! The result of processing a session's input.

/// A value of up to this size is completed in the read buffer. A larger one that has not arrived as a whole gets its
/// own buffer or segments.
pub const INLINE_VALUE_BYTES: usize = 8 << 10;

/// Why processing stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// More bytes are needed.
    NeedInput,
    /// The output must be sent first.
    OutputFull,
    /// The connection waits for flash or memory. The command was not executed and is given again.
    Parked,
    /// As `OutputFull`, and other connections have their turn first.
    Yield,
    /// The connection is closed once its output is sent.
    Close,
    /// As `Close`, because the bytes are not of the protocol.
    NotTheProtocol,
}

/// The result of one call of `process`.
pub struct SessionProgress {
    pub consumed: usize,
    pub requests: usize,
    pub stop: StopReason,
}
