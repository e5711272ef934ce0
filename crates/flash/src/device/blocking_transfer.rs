//! Transfers that the calling thread waits for.

use super::buffer::Buffer;
use super::health::Health;
use super::interface::{Device, Direction, OnTransfer, TransferRequest};
use crate::Error;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time between two checks whether the device has failed, while a thread waits for a read.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

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
    // A write is never abandoned: it could still overwrite later bytes at its offset.
    let gives_up =
        || direction == Direction::Read && device.monitor().observe(Instant::now(), Duration::ZERO) == Health::Failed;
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
