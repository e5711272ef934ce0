//! Next action of a connection after a packet.

use super::put_body::PutBody;

pub enum PacketNext {
    Continue,
    /// The command was not executed: the connection waits for flash or memory.
    Parked,
    /// Receive this value before the next packet.
    Receive(PutBody),
    /// Discard this number of bytes of the stream.
    Skip(u32),
    /// Close once pending output is sent.
    Close,
}
