//! Sequential numbers and bytes, in a slice of memory and in an area of a device.
//!
//! An area of a device is written in pieces of 1 MiB. Its checksum is XXH3 (64 bits) of each piece, with the checksum
//! so far as the seed.

use crate::Error;
use crate::device::{self, Buffer, Device};
use twox_hash::XxHash3_64;

/// Bytes of a transfer.
const PIECE_BYTES: usize = 1 << 20;

fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// Writes sequential numbers.
pub struct FieldWriter<'a> {
    pub bytes: &'a mut [u8],
    pub at: usize,
}

impl FieldWriter<'_> {
    pub fn u32(&mut self, number: u32) -> &mut Self {
        self.put(&number.to_le_bytes())
    }

    pub fn u64(&mut self, number: u64) -> &mut Self {
        self.put(&number.to_le_bytes())
    }

    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes[self.at..][..bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }
}

/// Reads sequential numbers.
pub struct FieldReader<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

impl FieldReader<'_> {
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let bytes = self.bytes[self.at..][..N].try_into().expect("as many bytes as were asked for");
        self.at += N;
        bytes
    }
}

/// Writes sequential bytes to a device.
pub struct DeviceWriter<'a> {
    device: &'a dyn Device,
    offset: u64,
    piece: Vec<u8>,
    bytes: u64,
    checksum: u64,
}

impl<'a> DeviceWriter<'a> {
    pub fn new(device: &'a dyn Device, offset: u64, seed: u64) -> Self {
        Self { device, offset, piece: Vec::with_capacity(PIECE_BYTES), bytes: 0, checksum: seed }
    }

    pub fn put(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES - self.piece.len()));
            self.piece.extend_from_slice(now);
            bytes = later;
            if self.piece.len() == PIECE_BYTES {
                self.write()?;
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), Error> {
        let mut buffer = Buffer::zeroed(self.piece.len());
        buffer[..self.piece.len()].copy_from_slice(&self.piece);
        self.checksum = checksum(self.checksum, &self.piece);
        device::write(self.device, self.offset + self.bytes, buffer)?;
        self.bytes += self.piece.len() as u64;
        self.piece.clear();
        Ok(())
    }

    /// Writes the last piece; returns the bytes written and their checksum.
    pub fn finish(mut self) -> Result<(u64, u64), Error> {
        if !self.piece.is_empty() {
            self.write()?;
        }
        Ok((self.bytes, self.checksum))
    }
}

/// Reads sequential bytes from a device.
pub struct DeviceReader<'a> {
    device: &'a dyn Device,
    offset: u64,
    left: u64,
    piece: Vec<u8>,
    at: usize,
    checksum: u64,
}

impl<'a> DeviceReader<'a> {
    pub fn new(device: &'a dyn Device, offset: u64, bytes: u64, seed: u64) -> Self {
        Self { device, offset, left: bytes, piece: Vec::new(), at: 0, checksum: seed }
    }

    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut taken = [0; N];
        self.fill(&mut taken)?;
        Some(taken)
    }

    pub fn fill(&mut self, bytes: &mut [u8]) -> Option<()> {
        let mut count = 0;
        while count < bytes.len() {
            if self.at == self.piece.len() {
                self.read()?;
            }
            let wanted = (bytes.len() - count).min(self.piece.len() - self.at);
            bytes[count..count + wanted].copy_from_slice(&self.piece[self.at..self.at + wanted]);
            self.at += wanted;
            count += wanted;
        }
        Some(())
    }

    fn read(&mut self) -> Option<()> {
        let bytes = self.left.min(PIECE_BYTES as u64) as usize;
        if bytes == 0 {
            return None;
        }
        let buffer = device::read(self.device, self.offset, Buffer::zeroed(bytes)).ok()?;
        self.piece = buffer[..bytes].to_vec();
        self.at = 0;
        self.checksum = checksum(self.checksum, &self.piece);
        self.offset += bytes as u64;
        self.left -= bytes as u64;
        Some(())
    }

    /// The checksum, if all bytes were taken.
    pub fn finish(self) -> Option<u64> {
        (self.left == 0 && self.at == self.piece.len()).then_some(self.checksum)
    }
}
