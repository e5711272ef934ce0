//! The interface of a device: the trait that files, memory and faulty devices implement, and the request of a transfer.

use super::blocking_ring::BlockingRing;
use super::buffer::{BLOCK, Buffer};
use super::drive::DriveLog;
use super::fiemap::UnwrittenRanges;
use super::stats::DeviceMonitor;
use super::thread_ring::ThreadRing;
use crate::Error;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

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
    fn monitor(&self) -> &DeviceMonitor;
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
pub(super) fn stopped() -> io::Error {
    io::Error::other("the device has stopped")
}
