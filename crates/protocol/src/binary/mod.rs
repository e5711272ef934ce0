//! The binary protocol, as memcached 1.6 still speaks it.
//!
//! | module | holds |
//! |---|---|
//! | `header` | the 24 bytes in front of every packet |
//! | `opcode` | the commands by their numbers, and which of them are quiet |
//! | `request` | one parsed packet, borrowed from the read buffer |
//! | `parser` | where packets begin and end, and which of them are malformed |
//! | `reply` | status codes with memcached's words, and the writers of answers |

mod header;
mod opcode;
mod parser;
pub mod reply;
mod request;

pub use header::{HEADER_BYTES, PacketHeader, REQUEST_MAGIC, RESPONSE_MAGIC};
pub use opcode::Opcode;
pub use parser::{After, BODY_LIMIT, MECHANISM_LIMIT, PacketStep, next};
pub use request::{BinaryCommand, Initial, PacketHead, Put, Touched};
