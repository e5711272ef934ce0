//! Devices: whole blocks of bytes at offsets, moved asynchronously.
//!
//! ```text
//! submit(Request) -> queue -> transfer -> done(Outcome)      exactly once for each request that was taken
//! ```
//!
//! A submit never waits for the device: a full queue gives the request back. A completion may run on any thread, also
//! before `submit` or `wait_for_slot` returns; so the caller must not hold a lock that the completion takes. It must
//! not block, so it may submit, but not wait for space.
//!
//! A device starts no thread. If it needs threads, its owner calls `serve` on [`Device::threads`] of them; until then
//! requests are accepted and wait.

//! | where | what |
//! |---|---|
//! | `disk` | the device of files and block devices |
//! | `path`, `label`, `open_error` | opening one path, its label, messages for the operator |
//! | `dry_run` | whether paths could be opened |
//! | `stripes` | several paths as one capacity |
//! | `transfer`, `queue` | a request in pieces, the bounded queue of them |
//! | `uring`, `thread_pool` | engines that serve the queue: io_uring, threads |
//! | `thread_ring`, `blocking_ring` | rings that threads have for their own reads: for good, or while they wait |
//! | `fiemap` | reserved but unwritten space of a file |
//! | `drive`, `amplification` | logs of NVMe drives; their estimated write amplification |
//! | `stats`, `histogram`, `health` | counters, latencies, health of the device |
//! | `memory_device`, `compressed_device`, `faults` | devices for tests |

mod amplification;
mod blocking_ring;
mod buffer;
mod compressed_device;
mod disk;
mod drive;
mod dry_run;
mod faults;
mod fiemap;
mod health;
mod histogram;
mod label;
mod memory_device;
mod open_error;
mod path;
mod queue;
mod stats;
mod stripes;
mod thread_pool;
mod thread_ring;
mod transfer;
mod uring;

pub use amplification::page_amplification;
pub use blocking_ring::BlockingRing;
pub use buffer::{BLOCK, Buffer};
pub use compressed_device::CompressedDevice;
pub use disk::{Disk, DiskOptions, Engine, OpenedDisk};
pub use drive::{DriveLog, NoDriveLog, drive_log_under};
pub(crate) use dry_run::check_beside;
pub use faults::{Delivery, Faults, FaultyDevice};
pub use fiemap::UnwrittenRanges;
pub use health::Health;
pub use histogram::LatencyHistogram;
pub use memory_device::MemoryDevice;
pub use open_error::{Notice, OpenError};
pub use path::{MIN_SINGLE_PATH_BYTES, MIN_STRIPED_PATH_BYTES, stores_nothing};
pub(crate) use path::{lock, unlock};
pub use stats::{DeviceMonitor, DeviceStats, LaneStats};
pub use stripes::STRIPE;
pub use thread_ring::ThreadRing;

use crate::Error;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time between two checks whether the device has failed, while a thread waits for a read.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A device of blocks of [`BLOCK`] bytes, which survive a restart if it supports that.
pub trait Device: Send + Sync {
    /// Capacity in bytes, a multiple of [`BLOCK`].
    fn capacity(&self) -> u64;

    /// Starts a transfer. Returns the request if the maximum number of transfers is pending.
    ///
    /// # Panics
    ///
    /// Panics when the request is empty, not aligned, or reaches beyond the capacity.
    fn submit(&self, request: TransferRequest) -> Result<(), TransferRequest>;

    /// Gives the calling thread a ring, which executes its requests of [`Device::submit_local`] until it is dropped.
    /// `None` if this is not supported, or the thread already has a ring.
    fn thread_ring(self: Arc<Self>) -> Option<ThreadRing> {
        None
    }

    /// Whether the calling thread has a ring for its requests of [`Device::submit_local`]: then it must not block on
    /// them.
    fn has_thread_ring(&self) -> bool {
        false
    }

    /// Gives the calling thread a ring, which executes its requests of [`Device::submit_local`] until it waits for
    /// them. `None` if this is not supported, or the thread already has a ring.
    fn blocking_ring(self: Arc<Self>) -> Option<BlockingRing> {
        None
    }

    /// As [`Device::submit`], on the calling thread's ring if it has one. So the thread must not wait for the request
    /// in another way.
    fn submit_local(&self, request: TransferRequest) -> Result<(), TransferRequest> {
        self.submit(request)
    }

    /// Waits until a submit may succeed again, or for a short while.
    fn wait_for_slot(&self);

    /// Returns when all writes that were completed before are durable.
    fn sync(&self) -> Result<(), Error>;

    /// Discards these bytes: no read follows before they are written again. They may change.
    fn discard(&self, offset: u64, bytes: u64) -> Result<(), Error>;

    /// The blocks in this range whose space is reserved in a file but was never written: they are zeros. The answer may
    /// cover only the start of the range. `None` if this is not known. Only for bytes that are not being written.
    fn reserved(&self, _bytes: Range<u64>) -> Option<UnwrittenRanges> {
        None
    }

    /// Reads the logs of the drives; `None` if they provide none. Waits for the drives, at most for seconds.
    fn read_drive_logs(&self) -> Option<DriveLog> {
        None
    }

    /// Number of threads that must call [`Device::serve`].
    fn threads(&self) -> usize {
        0
    }

    /// Executes transfers and calls their completions until the device has stopped and none is pending.
    fn serve(&self) {}

    /// Ends [`Device::serve`] after the pending transfers. Later requests fail.
    fn stop(&self) {}

    /// Unlocks its files once it has stopped and no transfer is pending, so that others can open them while references
    /// to it remain.
    fn unlock(&self) {}

    /// Its counters and its health.
    fn account(&self) -> &DeviceMonitor;
}

impl fmt::Debug for dyn Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a device of {} bytes", self.capacity())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

/// A transfer of a whole buffer.
pub struct TransferRequest {
    pub direction: Direction,
    /// A multiple of [`BLOCK`].
    pub offset: u64,
    /// The bytes to write, or the buffer to fill.
    pub buffer: Buffer,
    pub done: OnTransfer,
}

/// Called once, when the transfer is over.
pub type OnTransfer = Box<dyn FnOnce(TransferOutcome) + Send>;

/// The outcome of a transfer, always with the buffer. After a failed read its bytes have no meaning.
pub struct TransferOutcome {
    pub buffer: Buffer,
    pub result: io::Result<()>,
}

impl TransferRequest {
    /// # Panics
    ///
    /// Panics when the request is empty, not aligned, or reaches beyond the capacity, which is a bug of the caller.
    pub(crate) fn check(&self, capacity: u64) {
        assert!(!self.buffer.is_empty(), "an empty transfer");
        assert!(self.offset.is_multiple_of(BLOCK as u64), "offset {} is not aligned", self.offset);
        let end = self.offset + self.buffer.len() as u64;
        assert!(end <= capacity, "a transfer up to {end} on a device of {capacity} bytes");
    }

    pub(crate) fn finish(self, result: io::Result<()>) {
        (self.done)(TransferOutcome { buffer: self.buffer, result });
    }
}

impl fmt::Debug for TransferRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} bytes at {}", self.direction, self.buffer.len(), self.offset)
    }
}

/// Why a request fails on a device that has stopped.
fn stopped() -> io::Error {
    io::Error::other("the device has stopped")
}

/// Reads and waits for it, until the device is judged to have failed. Only for a device that is served, or needs no
/// serving.
pub fn read(device: &dyn Device, offset: u64, buffer: Buffer) -> Result<Buffer, Error> {
    transfer(device, Direction::Read, offset, buffer)
}

/// Writes and waits for it. Only for a device that is served, or needs no serving.
pub fn write(device: &dyn Device, offset: u64, buffer: Buffer) -> Result<Buffer, Error> {
    transfer(device, Direction::Write, offset, buffer)
}

fn transfer(device: &dyn Device, direction: Direction, offset: u64, buffer: Buffer) -> Result<Buffer, Error> {
    let bytes = buffer.len();
    let operation = match direction {
        Direction::Read => "a read",
        Direction::Write => "a write",
    };
    let failed = |source| Error::Transfer { operation, offset, bytes, source };
    // A write is never given up: it could still overwrite later bytes at its offset.
    let gives_up =
        || direction == Direction::Read && device.account().observe(Instant::now(), Duration::ZERO) == Health::Failed;
    let (sender, receiver) = mpsc::sync_channel(1);
    let done: OnTransfer = Box::new(move |outcome| drop(sender.send(outcome)));
    let mut request = TransferRequest { direction, offset, buffer, done };
    while let Err(refused) = device.submit(request) {
        if gives_up() {
            return Err(failed(io::ErrorKind::TimedOut.into()));
        }
        device.wait_for_slot();
        request = refused;
    }
    let outcome = loop {
        match receiver.recv_timeout(LOOK_AGAIN) {
            Ok(outcome) => break outcome,
            Err(RecvTimeoutError::Timeout) if gives_up() => return Err(failed(io::ErrorKind::TimedOut.into())),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => unreachable!("every request is completed"),
        }
    };
    outcome.result.map_err(failed)?;
    Ok(outcome.buffer)
}
