//! A device in memory, for tests: a transfer is done when `submit` returns.

use crate::Error;
use crate::device::{BLOCK, Device, DeviceMonitor, Direction, TransferRequest};
use std::sync::Mutex;
use std::time::Instant;

pub struct MemoryDevice {
    bytes: Mutex<Vec<u8>>,
    account: DeviceMonitor,
}

impl MemoryDevice {
    /// Zeros.
    ///
    /// # Panics
    ///
    /// Panics when `capacity` is not a multiple of [`BLOCK`].
    pub fn new(capacity: usize) -> Self {
        assert!(capacity.is_multiple_of(BLOCK), "{capacity} bytes are not whole blocks");
        Self { bytes: Mutex::new(vec![0; capacity]), account: DeviceMonitor::new() }
    }
}

impl Device for MemoryDevice {
    fn capacity(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }

    fn submit(&self, mut request: TransferRequest) -> Result<(), TransferRequest> {
        request.check(self.capacity());
        let began = Instant::now();
        self.account.begin(began);
        let mut bytes = self.bytes.lock().unwrap();
        let place = &mut bytes[request.offset as usize..][..request.buffer.len()];
        match request.direction {
            Direction::Read => request.buffer.copy_from_slice(place),
            Direction::Write => place.copy_from_slice(&request.buffer),
        }
        drop(bytes);
        self.account.end(request.direction, request.buffer.len(), &Ok(()), began, Instant::now());
        request.finish(Ok(()));
        Ok(())
    }

    fn wait_for_slot(&self) {}

    fn sync(&self) -> Result<(), Error> {
        self.account.synced(true);
        Ok(())
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> Result<(), Error> {
        self.account.discarded(true);
        Ok(())
    }

    fn monitor(&self) -> &DeviceMonitor {
        &self.account
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Buffer, read, write};

    #[test]
    fn what_is_written_is_read() {
        let device = MemoryDevice::new(4 * BLOCK);
        let mut buffer = Buffer::zeroed(2 * BLOCK);
        buffer.fill(7);
        write(&device, BLOCK as u64, buffer).unwrap();
        let read = read(&device, 0, Buffer::zeroed(4 * BLOCK)).unwrap();
        assert!(read[BLOCK..3 * BLOCK].iter().all(|&b| b == 7));
        assert!(read[..BLOCK].iter().chain(&read[3 * BLOCK..]).all(|&b| b == 0));
    }

    #[test]
    #[should_panic(expected = "on a device of 4096 bytes")]
    fn nothing_reaches_beyond_the_capacity() {
        let _ = read(&MemoryDevice::new(BLOCK), 0, Buffer::zeroed(2 * BLOCK));
    }
}
