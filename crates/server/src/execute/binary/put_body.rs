//! The value of a storage command that is being received.

use ebbtide_protocol::binary::{PacketHead, Put};

use crate::execute::value_reader::ValueReader;

/// A value that is being received.
pub struct PutBody {
    pub(super) value_reader: ValueReader,
    pub(super) key: Box<[u8]>,
    /// Its value is none.
    pub(super) put: Put<'static>,
    pub(super) head: PacketHead,
}

impl PutBody {
    /// Takes the bytes of the value off the front of `input`. Returns their number, and whether the value is complete.
    pub fn feed(&mut self, input: &[u8]) -> (usize, bool) {
        let count = self.value_reader.take(input);
        (count, self.value_reader.is_complete())
    }
}
