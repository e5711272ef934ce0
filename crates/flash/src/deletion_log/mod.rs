//! The deletion log: objects that may still be on flash, but must not be found after a crash.
//!
//! ```text
//! file    | head: a block | ring of the small objects | ring of the large ones |      each ring of `blocks` blocks
//!
//! head    0       8         12       16    24     32         40
//!         | magic | version | blocks | run | next | checksum | ...
//!         512                1024               1536              2048
//!         | latest, checksum | latest, checksum | waits, checksum | buffer, checksum | zeros ...
//! ```
//! Little-endian. Checksums are XXH3 (64 bits); the head's is of the 32 bytes before it. `latest` is the latest time
//! passed to the tier, in seconds since 1970, with a checksum whose seed is the life of the large objects; the two
//! slots are written alternately, once a second. `waits` is 1, with such a checksum, while a flush is pending: a start
//! before the flush must not find the objects that it would remove. `buffer` is the run whose WAL buffer has the writes
//! that the file may lack, 0 for none; its checksum has no seed.
//!
//! The run ties the log to its flash: each start draws one, and a log is read only with a superblock of the same run.
//! ```text
//! head {old, 0} -> head {old, new} -> superblock new, durable -> head {new, 0} -> the tier is served
//! ```
//! While two runs are in the head, a superblock of either is accepted: a start that was killed between the writes has
//! removed nothing, and no later one has started. Afterwards the old run is refused, so an old flash file beside this
//! log, or an old log beside the current flash, is a cold start. Any other file that keeps the run must be written
//! between the superblock and the last write of the head.
//!
//! Only [`DeletionLog::invalidate`] makes a log invalid. It writes a mark to the WAL buffer, or without one it erases
//! the run in the head. If the file refuses both a record and the mark, the superblock is marked instead.
//!
//! A record is with the kernel when the call that appends it returns, in the file or in its WAL buffer (see
//! `wal_buffer` and `writer`). It survives the end of the process. It survives a power cut only after a stop of the
//! log; without a stop, a start after a power cut is empty. A ring that overwrites records keeps the highest of their
//! orders (see `record_ring`). The order of records has no meaning.

mod contents;
mod head;
mod log;
mod log_file;
mod record_ring;
#[cfg(test)]
mod tests;
mod wal_buffer;
mod writer;

pub(crate) use self::wal_buffer::remove_stale;
pub(crate) use contents::{Incarnations, LogContents, StoreKind, Unreadable};
pub(crate) use log::DeletionLog;
