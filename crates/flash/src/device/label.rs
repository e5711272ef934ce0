//! The first block of each path that belongs to a device. It marks the path as ours, and as a part of this device.
//!
//! ```text
//! 0       8        12     14     16        24     32      40        48
//! magic   version  index  parts  identity  bytes  stripe  checksum  zeros up to the end of the block
//! ```
//! Little-endian. The checksum is XXH3 of the bytes before it. The data of the device starts at [`DATA_START`].
//!
//! All parts of a device have one identity, drawn when they were labelled. Parts that do not belong together get new
//! labels with another identity, so that no state with the old identity is used with their bytes.

use super::{BLOCK, Buffer};
use twox_hash::XxHash3_64;

const MAGIC: [u8; 8] = *b"ebbtidef";
const VERSION: u32 = 1;
const CHECKSUM: usize = 40;

/// Offset of the first stripe of a part: usually a multiple of a drive's erase block and of an array's stripe.
pub(super) const DATA_START: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    /// Counts from 0, in the order in which the paths were given.
    pub index: u16,
    pub parts: u16,
    pub identity: u64,
    /// Bytes of the part, with its label.
    pub bytes: u64,
    pub stripe_bytes: u64,
}

/// The contents of the first block of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabelState {
    Label(Label),
    /// Ours, but damaged or of another version.
    Unreadable,
    Foreign,
}

impl Label {
    pub fn to_block(self) -> Buffer {
        let mut block = Buffer::zeroed(BLOCK);
        block[..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[12..14].copy_from_slice(&self.index.to_le_bytes());
        block[14..16].copy_from_slice(&self.parts.to_le_bytes());
        block[16..24].copy_from_slice(&self.identity.to_le_bytes());
        block[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        block[32..40].copy_from_slice(&self.stripe_bytes.to_le_bytes());
        let checksum = XxHash3_64::oneshot(&block[..CHECKSUM]);
        block[CHECKSUM..CHECKSUM + 8].copy_from_slice(&checksum.to_le_bytes());
        block
    }
}

impl LabelState {
    pub fn in_block(block: &[u8]) -> Self {
        let u16_at = |at: usize| u16::from_le_bytes(block[at..at + 2].try_into().expect("two bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        if block[..8] != MAGIC {
            return Self::Foreign;
        }
        let is_whole = u64_at(CHECKSUM) == XxHash3_64::oneshot(&block[..CHECKSUM]);
        if block[8..12] != VERSION.to_le_bytes() || !is_whole {
            return Self::Unreadable;
        }
        Self::Label(Label {
            index: u16_at(12),
            parts: u16_at(14),
            identity: u64_at(16),
            bytes: u64_at(24),
            stripe_bytes: u64_at(32),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: Label =
        Label { index: 1, parts: 2, identity: 0x0123_4567_89ab_cdef, bytes: 64 << 20, stripe_bytes: 16 << 20 };

    #[test]
    fn the_format_never_changes() {
        let golden = "65626274696465660100000001000200efcdab89674523010000000400000000000000010000000\
                      08af2d6c681d98cb4";
        let block = LABEL.to_block();
        let hex: String = block[..48].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden);
        assert!(block[48..].iter().all(|&b| b == 0));
    }

    #[test]
    fn a_label_with_a_flipped_bit_is_unreadable() {
        let mut block = LABEL.to_block();
        assert_eq!(LabelState::in_block(&block), LabelState::Label(LABEL));
        for bit in 0..48 * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            let expected = if bit < 64 { LabelState::Foreign } else { LabelState::Unreadable };
            assert_eq!(LabelState::in_block(&block), expected, "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(LabelState::in_block(&Buffer::zeroed(BLOCK)), LabelState::Foreign);
    }
}
