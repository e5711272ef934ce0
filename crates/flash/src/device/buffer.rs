//! Memory for direct I/O: aligned to a block, and whole blocks long.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Bytes of a block: offsets, lengths and addresses of all transfers are multiples of it.
pub const BLOCK: usize = 4096;

/// Bytes of which a part of the first block's length is skipped, so that the rest is aligned. An allocator cuts aligned
/// memory out of a longer piece as well, but leaves the cut-off part as a hole that fits no later buffer, and writes
/// zeros to pages that the system had zeroed.
struct Blocks {
    bytes: Box<[u8]>,
    from: usize,
}

impl Blocks {
    fn zeroed(count: usize) -> Self {
        let bytes = vec![0; (count + 1) * BLOCK - 1].into_boxed_slice();
        let from = bytes.as_ptr().align_offset(BLOCK);
        Self { bytes, from }
    }
}

/// Whole, aligned blocks of bytes.
pub struct Buffer {
    blocks: Arc<Blocks>,
    /// Number of visible blocks.
    count: usize,
}

impl Buffer {
    /// At least `bytes` zeros.
    pub fn zeroed(bytes: usize) -> Self {
        let count = bytes.div_ceil(BLOCK);
        Self { blocks: Arc::new(Blocks::zeroed(count)), count }
    }

    /// Another reference to the blocks of the first `bytes`, so that a buffer can be read while it is being written.
    /// Neither of the two can be changed before the other one is dropped.
    ///
    /// # Panics
    ///
    /// Panics when the buffer has fewer bytes.
    pub fn share(&self, bytes: usize) -> Self {
        let count = bytes.div_ceil(BLOCK);
        assert!(count <= self.count, "{bytes} bytes of a buffer of {}", self.len());
        Self { blocks: Arc::clone(&self.blocks), count }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.blocks.bytes[self.blocks.from..][..self.count * BLOCK]
    }
}

impl DerefMut for Buffer {
    /// # Panics
    ///
    /// Panics when the buffer is shared.
    fn deref_mut(&mut self) -> &mut [u8] {
        let blocks = Arc::get_mut(&mut self.blocks).expect("a shared buffer does not change");
        &mut blocks.bytes[blocks.from..][..self.count * BLOCK]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer of {} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_whole() {
        for (bytes, whole) in [(0, 0), (1, BLOCK), (BLOCK, BLOCK), (BLOCK + 1, 2 * BLOCK)] {
            let buffer = Buffer::zeroed(bytes);
            assert_eq!(buffer.len(), whole);
            assert!(buffer.as_ptr().addr().is_multiple_of(BLOCK));
            assert!(buffer.iter().all(|&b| b == 0));
        }
    }

    #[test]
    fn a_share_is_the_same_memory() {
        let mut buffer = Buffer::zeroed(3 * BLOCK);
        buffer[5] = 7;
        let front = buffer.share(BLOCK + 1);
        assert_eq!((front.len(), front[5], front.as_ptr()), (2 * BLOCK, 7, buffer.as_ptr()));
        drop(front);
        buffer[5] = 8;
    }

    #[test]
    #[should_panic(expected = "does not change")]
    fn what_is_shared_does_not_change() {
        let mut buffer = Buffer::zeroed(BLOCK);
        let _front = buffer.share(BLOCK);
        buffer[0] = 1;
    }
}
