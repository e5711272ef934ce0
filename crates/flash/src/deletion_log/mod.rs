//! The log of removals: what flash may still hold, and must not give out after a crash.
//!
//! ```text
//! file    | head: a block | ring of the small objects | ring of the large ones |      each ring of `blocks` blocks
//!
//! head    0       8         12       16    24     32         40
//!         | magic | version | blocks | run | next | checksum | ...
//!         512                1024               1536              2048
//!         | latest, checksum | latest, checksum | waits, checksum | front, checksum | zeros ...
//! ```
//! Little-endian. Checksums are XXH3 (64 bits); the head's is of the 32 bytes before it. `latest` is the latest time
//! that anyone has named, in seconds since 1970, with a checksum whose seed is the life of the large objects: written
//! once a second, in turns. `stalled_for` is 1 with such a checksum while a flush is to come: who starts before it came
//! must not find what it was to end. `wal_buffer` is the run whose front has what the file may lack, 0 for none; its
//! checksum has no seed.
//!
//! The run ties the log to its flash: each start draws one, and a log is read only with a superblock of the same run.
//! ```text
//! head {old, 0} -> head {old, new} -> superblock new, durable -> head {new, 0} -> the tier is served
//! ```
//! While two runs stand in the head, a superblock of either is accepted: a start that was killed between the writes has
//! removed nothing, and no later one has started. Afterwards the old one is refused, so an old flash file beside this
//! log, or an old log beside the current flash, is a cold start. Another keeper of the run is written between the
//! superblock and the last write of the head.
//!
//! The log is doubted in one way, [`DeletionLog::invalidate`]: the mark stands where the latest records go, in the
//! front, or without one in the head, whose run is erased. Only a file that refuses both a record and the mark leaves
//! it to the superblock.
//!
//! A record is with the system when the call that makes it returns, in the file or in its front (see `wal_buffer` and
//! `writer`): it outlives the process, but a power cut only when the log was stopped before, since nothing is found
//! after one without a stop. What the rings forget they say: see `ring`. The order of records means nothing.

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
