//! The first block of the capacity: how the rest is divided, and which life of the device it is.
//!
//! ```text
//! 0      8        12            16        24    32        40        48             52           56        64
//! magic  version  region bytes  identity  life  capacity  boundary  segment bytes  log percent  checksum  zeros
//! ```
//! Little-endian. The checksum is XXH3 of the bytes before it. The identity is that of the device's label, so that a
//! superblock that was copied elsewhere is none. Segment bytes of 0 say that the capacity is not divided yet. The life is drawn whenever the tier starts empty: it is the seed of all checksums in
//! both stores, so nothing of an earlier life passes for an object.

use super::layout::Layout;
use crate::device::{BLOCK, Buffer};
use twox_hash::XxHash3_64;

const MAGIC: [u8; 8] = *b"ebbtidet";
const VERSION: u32 = 1;
const CHECKSUM: usize = 56;
const BYTES: usize = 64;

const _: () = assert!(CHECKSUM + size_of::<u64>() == BYTES && BYTES <= BLOCK);

pub(super) fn to_block(identity: u64, layout: &Layout) -> Buffer {
    let large = &layout.large_options;
    let small = layout
        .small_options
        .as_ref()
        .map_or((0, 0), |small| (small.segment_bytes as u32, u32::from(small.log_percent)));
    let mut block = Buffer::zeroed(BLOCK);
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        block[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&MAGIC);
    put(&VERSION.to_le_bytes());
    put(&(large.region_bytes as u32).to_le_bytes());
    put(&identity.to_le_bytes());
    put(&large.identity.to_le_bytes());
    put(&layout.capacity.to_le_bytes());
    put(&layout.boundary.to_le_bytes());
    put(&small.0.to_le_bytes());
    put(&small.1.to_le_bytes());
    let checksum = XxHash3_64::oneshot(&block[..CHECKSUM]);
    block[CHECKSUM..BYTES].copy_from_slice(&checksum.to_le_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TierOptions;

    #[test]
    fn the_format_never_changes() {
        let options = TierOptions { small_share: Some(0.5), ..TierOptions::default() };
        let layout = Layout::new(64 << 20, 0x0123_4567_89ab_cdef, 0, &options).unwrap();
        let block = to_block(0xfedc_ba98_7654_3210, &layout);
        let hex: String = block[..BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
        let golden = "656262746964657401000000000008001032547698badcfeefcdab89674523010000000400000000\
                      0000000200000000000004000a0000007abe6b4c5cfdb149";
        assert_eq!(hex, golden);
        assert!(block[BYTES..].iter().all(|&b| b == 0));
    }
}
