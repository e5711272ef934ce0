//! A stream in blocks with a checksum each.
//!
//! ```text
//! block     1 MiB less 8 of the stream, the last one shorter | XXH3-64 of them, seeded by the number of the block
//! ```
//! A reader gets no byte before its block has been checked.

use std::io::{self, Read, Write};
use twox_hash::XxHash3_64;

/// Bytes of the stream in a block.
const PAYLOAD_BYTES: usize = (1 << 20) - CHECKSUM_BYTES;
const CHECKSUM_BYTES: usize = size_of::<u64>();

pub(super) struct BlockWriter<W> {
    out: W,
    block: Vec<u8>,
    number: u64,
    bytes: u64,
}

impl<W: Write> BlockWriter<W> {
    pub fn new(out: W) -> Self {
        Self { out, block: Vec::with_capacity(PAYLOAD_BYTES + CHECKSUM_BYTES), number: 0, bytes: 0 }
    }

    fn write_block(&mut self) -> io::Result<()> {
        let checksum = XxHash3_64::oneshot_with_seed(self.number, &self.block);
        self.block.extend_from_slice(&checksum.to_le_bytes());
        self.out.write_all(&self.block)?;
        self.block.clear();
        self.number += 1;
        Ok(())
    }

    /// Writes the rest. Returns the bytes of the stream.
    pub fn finish(mut self) -> io::Result<u64> {
        if !self.block.is_empty() {
            self.write_block()?;
        }
        Ok(self.bytes)
    }
}

impl<W: Write> Write for BlockWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PAYLOAD_BYTES - self.block.len());
        self.block.extend_from_slice(&bytes[..taken]);
        self.bytes += taken as u64;
        if self.block.len() == PAYLOAD_BYTES {
            self.write_block()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) struct BlockReader<R> {
    input: R,
    block: Vec<u8>,
    at: usize,
    number: u64,
    /// Bytes of the stream behind this block.
    left: u64,
}

impl<R: Read> BlockReader<R> {
    /// Of a stream of `bytes` bytes.
    pub fn new(input: R, bytes: u64) -> Self {
        Self { input, block: Vec::new(), at: 0, number: 0, left: bytes }
    }

    fn read_block(&mut self) -> io::Result<()> {
        let length = self.left.min(PAYLOAD_BYTES as u64) as usize;
        self.block.resize(length + CHECKSUM_BYTES, 0);
        self.input.read_exact(&mut self.block)?;
        let (payload, checksum) = self.block.split_at(length);
        if XxHash3_64::oneshot_with_seed(self.number, payload).to_le_bytes() != checksum {
            let number = self.number;
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("block {number} has another checksum")));
        }
        self.block.truncate(length);
        self.at = 0;
        self.number += 1;
        self.left -= length as u64;
        Ok(())
    }
}

impl<R: Read> Read for BlockReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() && self.left > 0 {
            self.read_block()?;
        }
        let taken = out.len().min(self.block.len() - self.at);
        out[..taken].copy_from_slice(&self.block[self.at..][..taken]);
        self.at += taken;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_comes_back_and_no_other_byte() {
        for length in [0, 1, PAYLOAD_BYTES - 1, PAYLOAD_BYTES, PAYLOAD_BYTES + 1, 3 * PAYLOAD_BYTES + 77] {
            let stream: Vec<u8> = (0..length).map(|at| (at * 7 + at / 251) as u8).collect();
            let mut file = Vec::new();
            let mut writer = BlockWriter::new(&mut file);
            stream.chunks(100_001).for_each(|chunk| writer.write_all(chunk).unwrap());
            assert_eq!(writer.finish().unwrap(), length as u64);
            let read = |file: &[u8]| {
                let mut found = Vec::new();
                BlockReader::new(file, length as u64).read_to_end(&mut found).map(|_| found)
            };
            assert!(read(&file).unwrap() == stream, "{length} bytes");
            for at in (0..file.len()).step_by(file.len() / 9 + 1) {
                let mut damaged = file.clone();
                damaged[at] ^= 4;
                assert_eq!(read(&damaged).unwrap_err().kind(), io::ErrorKind::InvalidData, "{at} of {length}");
                assert_eq!(read(&file[..at]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            }
        }
    }
}
