//! What a session did with the bytes that it was given.

/// A value up to this size is waited for in the read buffer; a larger one that is not all there gets a buffer, or
/// segments, of its own.
pub const INLINE_VALUE_BYTES: usize = 8 << 10;

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
