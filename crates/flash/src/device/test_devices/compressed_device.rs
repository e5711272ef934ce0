//! A device in memory that keeps its blocks compressed, for tests at capacities that no memory holds: a transfer is
//! done when `submit` returns.
//!
//! ```text
//! block   literal length u16 | literal | words of the run u16 | the word u64   repeated to the end of the block
//! ```
//! A run is one repeated word of 8 bytes, at any alignment. So values of one repeated word, and zeros, take a few
//! bytes; other bytes are stored literally.

use crate::Error;
use crate::device::{BLOCK, Device, DeviceMonitor, Direction, TransferRequest};
use std::sync::Mutex;
use std::time::Instant;

const WORD: usize = 8;
/// Minimum number of words in a run: its entry takes 12 bytes.
const RUN_MIN: usize = 4;

pub struct CompressedDevice {
    /// An empty block is zeros.
    blocks: Mutex<Vec<Box<[u8]>>>,
    account: DeviceMonitor,
}

impl CompressedDevice {
    /// Zeros.
    ///
    /// # Panics
    ///
    /// Panics when `capacity` is not a multiple of [`BLOCK`].
    pub fn new(capacity: u64) -> Self {
        assert!(capacity.is_multiple_of(BLOCK as u64), "{capacity} bytes are not whole blocks");
        let blocks = (0..capacity / BLOCK as u64).map(|_| Box::default()).collect();
        Self { blocks: Mutex::new(blocks), account: DeviceMonitor::new() }
    }

    /// Bytes that all blocks take.
    pub fn compressed_bytes(&self) -> u64 {
        self.blocks.lock().unwrap().iter().map(|block| block.len() as u64).sum()
    }
}

impl Device for CompressedDevice {
    fn capacity(&self) -> u64 {
        (self.blocks.lock().unwrap().len() * BLOCK) as u64
    }

    fn submit(&self, mut request: TransferRequest) -> Result<(), TransferRequest> {
        request.check(self.capacity());
        let began = Instant::now();
        self.account.begin(began);
        let mut blocks = self.blocks.lock().unwrap();
        let kept = blocks[request.offset as usize / BLOCK..].iter_mut();
        match request.direction {
            Direction::Read => request.buffer.chunks_mut(BLOCK).zip(kept).for_each(|(to, from)| expand(from, to)),
            Direction::Write => request.buffer.chunks(BLOCK).zip(kept).for_each(|(from, to)| *to = compress(from)),
        }
        drop(blocks);
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

fn word_at(bytes: &[u8], at: usize) -> [u8; WORD] {
    *bytes[at..].first_chunk().expect("a word lies in the block")
}

fn compress(block: &[u8]) -> Box<[u8]> {
    let mut out = Vec::new();
    let mut put = |literal: &[u8], words: usize, word: [u8; WORD]| {
        out.extend_from_slice(&(literal.len() as u16).to_le_bytes());
        out.extend_from_slice(literal);
        out.extend_from_slice(&(words as u16).to_le_bytes());
        out.extend_from_slice(&word);
    };
    let (mut literal, mut at) = (0, 0);
    while at + RUN_MIN * WORD <= block.len() {
        let word = word_at(block, at);
        let words = block[at..].chunks_exact(WORD).take_while(|next| **next == word).count();
        if words < RUN_MIN {
            at += 1;
            continue;
        }
        put(&block[literal..at], words, word);
        at += words * WORD;
        literal = at;
    }
    if literal < block.len() {
        put(&block[literal..], 0, [0; WORD]);
    }
    out.into_boxed_slice()
}

fn expand(mut kept: &[u8], block: &mut [u8]) {
    if kept.is_empty() {
        return block.fill(0);
    }
    let mut left = block;
    let number = |bytes: &[u8]| usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    while !kept.is_empty() {
        let (literal, rest) = kept[2..].split_at(number(kept));
        let (words, word) = (number(rest), &rest[2..][..WORD]);
        let (front, back) = left.split_at_mut(literal.len());
        front.copy_from_slice(literal);
        let (run, after) = back.split_at_mut(words * WORD);
        run.chunks_exact_mut(WORD).for_each(|chunk| chunk.copy_from_slice(word));
        (kept, left) = (&rest[2 + WORD..], after);
    }
    assert!(left.is_empty(), "a block is kept whole");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Buffer, read, write};
    use ebbtide_testkit::Random;

    #[test]
    fn blocks_of_runs_and_noise_come_back() {
        let mut random = Random::new(1);
        let device = CompressedDevice::new(1 << 20);
        for round in 0..200 {
            let mut block = Buffer::zeroed(BLOCK);
            let mut at = 0;
            while at < BLOCK {
                let bytes = (1 + random.uniform(700) as usize).min(BLOCK - at);
                let word = random.number().to_le_bytes();
                match random.uniform(3) {
                    0 => block[at..at + bytes].copy_from_slice(&random.bytes(bytes)),
                    1 => block[at..at + bytes].iter_mut().zip(word.iter().cycle()).for_each(|(to, from)| *to = *from),
                    _ => {}
                }
                at += bytes;
            }
            let written = block.to_vec();
            let offset = random.uniform(256) * BLOCK as u64;
            write(&device, offset, block).unwrap();
            let found = read(&device, offset, Buffer::zeroed(BLOCK)).unwrap();
            assert!(found[..] == written[..], "round {round}");
        }
        let zeros = CompressedDevice::new(1 << 20);
        assert!(read(&zeros, 0, Buffer::zeroed(1 << 20)).unwrap().iter().all(|byte| *byte == 0));
        assert_eq!(zeros.compressed_bytes(), 0);
    }

    #[test]
    fn a_repeated_pattern_compresses_to_few_bytes() {
        let mut block = Buffer::zeroed(BLOCK);
        block[100..4000].iter_mut().zip((1..=8).cycle()).for_each(|(to, from)| *to = from);
        let device = CompressedDevice::new(BLOCK as u64);
        write(&device, 0, block).unwrap();
        assert!(device.compressed_bytes() < 60, "{} bytes", device.compressed_bytes());
    }
}
