//! Memory that direct I/O takes: aligned to a block, and whole blocks long.

use bytemuck::{Pod, Zeroable};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Bytes of a block: offsets, lengths and addresses of all transfers are multiples of it.
pub const BLOCK: usize = 4096;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK]);

const _: () = assert!(size_of::<Block>() == BLOCK && align_of::<Block>() == BLOCK);

/// Whole, aligned blocks of bytes.
pub struct Buffer(Box<[Block]>);

impl Buffer {
    /// Zeros, at least so many bytes of them.
    pub fn zeroed(bytes: usize) -> Self {
        Self(bytemuck::zeroed_slice_box(bytes.div_ceil(BLOCK)))
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
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
}
