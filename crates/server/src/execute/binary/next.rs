//! What a connection does after a packet.

use super::put_body::PutBody;

pub enum PacketNext {
    Continue,
    /// Nothing was done: flash has to be read first, or the connection waits for memory.
    Parked,
    /// Take this value off the stream before the next packet.
    Receive(PutBody),
    /// Read this number of bytes off the stream and drop them.
    Skip(u32),
    /// Close once pending output is sent.
    Close,
}
