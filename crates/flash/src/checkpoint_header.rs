//! The first 64 bytes of a checkpoint, of either store. Little-endian.
//!
//! ```text
//! 0       4         8    16                      56
//! | magic | version | id | fields of the store   | checksum |
//! ```
//! The id is that of the store. The checksum is XXH3 of the 56 bytes before it, with the id as seed. A header that
//! differs in magic, version, id or checksum is invalid.

use crate::codec::{FieldReader, FieldWriter};
use std::time::Duration;
use twox_hash::XxHash3_64;

/// Default maximum wait of a checkpoint for pending work.
pub const MAX_CHECKPOINT_WAIT: Duration = Duration::from_secs(10);

/// Number of steps of a wait of `max`, at least one.
pub fn steps_in(max: Duration, step: Duration) -> u128 {
    (max.as_nanos() / step.as_nanos()).max(1)
}

pub(crate) const BYTES: usize = 64;
const CHECKSUM: usize = BYTES - 8;

/// A header with the fields that a store writes: 40 bytes.
pub(crate) fn encode(magic: [u8; 4], version: u32, id: u64, fields: impl FnOnce(&mut FieldWriter<'_>)) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let mut writer = FieldWriter { bytes: &mut bytes, at: 0 };
    writer.u32(u32::from_le_bytes(magic)).u32(version).u64(id);
    fields(&mut writer);
    assert_eq!(writer.at, CHECKSUM, "the fields have another length");
    let sum = XxHash3_64::oneshot_with_seed(id, &bytes[..CHECKSUM]);
    bytes[CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A reader of the fields of the store; `None` if the header is invalid.
pub(crate) fn decode(bytes: &[u8], magic: [u8; 4], version: u32, id: u64) -> Option<FieldReader<'_>> {
    let sum = XxHash3_64::oneshot_with_seed(id, &bytes[..CHECKSUM]);
    let mut reader = FieldReader { bytes, at: 0 };
    let is_ours = reader.u32() == u32::from_le_bytes(magic) && reader.u32() == version && reader.u64() == id;
    (is_ours && bytes[CHECKSUM..BYTES] == sum.to_le_bytes()).then_some(reader)
}
