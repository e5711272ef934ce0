//! The section of CAS tokens in the checkpoint of a clean stop: for each pool the tokens that the owner of the tier
//! keeps for it. The tier does not interpret them.
//!
//! ```text
//! checkpoint | small objects | large objects | free ...      | body, whole blocks | header, one block |
//!
//! header     magic u32 | version u32 | run u64 | pools u32, 0 u32 | 0 u64 | 0 u64 | bytes of the body u64
//!            | checksum of the body u64 | checksum of the 56 bytes before it u64
//! body       per pool: number u32 | tokens u32 | seed u64 | base u64 | limit u64        32 bytes
//!            then per token: hash of the key u64 | token u64                            16 bytes
//! ```
//! Little-endian. The header is in the last block of the checkpoint's area, and the body ends in front of it. Checksums
//! are XXH3 (64 bits) with the run number as seed; that of the body as `codec` computes it. The superblock of a clean
//! stop has the same run number, so a section is valid for one start, and one of another stop is invalid. If the
//! indexes leave too few bytes, pools are written without their tokens, or nothing is. Without a valid section a start
//! has no tokens.

use crate::Error;
use crate::checkpoint_header::{self, BYTES as HEADER_BYTES};
use crate::codec::{DeviceReader, DeviceWriter, FieldReader, FieldWriter};
use crate::device::{self, BLOCK, Buffer, Device};
use std::ops::Range;

const MAGIC: [u8; 4] = *b"EbTk";
const VERSION: u32 = 1;
/// The fields of a pool, and one of its tokens.
const POOL_BYTES: usize = 32;
const TOKEN_BYTES: usize = 16;

const _: () = assert!(HEADER_BYTES <= BLOCK);
const _: () = assert!(POOL_BYTES == 2 * size_of::<u32>() + 3 * size_of::<u64>());
const _: () = assert!(TOKEN_BYTES == 2 * size_of::<u64>());

/// The CAS tokens of a pool that a stop keeps for the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolTokens {
    /// The number of the pool's incarnation ([`crate::FlashPool::number`]).
    pub pool: u16,
    /// Seed of the hash of keys.
    pub seed: u64,
    /// The token of a bucket without a change.
    pub base: u64,
    /// No token that the pool has issued exceeds it, except tokens that clients gave.
    pub limit: u64,
    /// The hash of a key, and its token.
    pub tokens: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    pools: u32,
    body_bytes: u64,
    body_checksum: u64,
}

impl Header {
    fn encode(&self, run: u64) -> [u8; HEADER_BYTES] {
        checkpoint_header::encode(MAGIC, VERSION, run, |writer| {
            writer.u32(self.pools).u32(0).u64(0).u64(0).u64(self.body_bytes).u64(self.body_checksum);
        })
    }

    fn decode(bytes: &[u8], run: u64) -> Option<Self> {
        let mut reader = checkpoint_header::decode(bytes, MAGIC, VERSION, run)?;
        let pools = reader.u32();
        let _zeros = (reader.u32(), reader.u64(), reader.u64());
        Some(Self { pools, body_bytes: reader.u64(), body_checksum: reader.u64() })
    }
}

/// The block of the header, at the end of the area of a checkpoint.
fn header_offset(area: &Range<u64>) -> u64 {
    area.end - BLOCK as u64
}

/// The start of a body in front of the header; `None` if the area is too small.
fn body_offset(area: &Range<u64>, body_bytes: u64) -> Option<u64> {
    let start = header_offset(area).checked_sub(body_bytes.checked_next_multiple_of(BLOCK as u64)?)?;
    Some(start).filter(|start| *start >= area.start)
}

/// Writes the section of a run into the free end of a checkpoint's area, without tokens where these have no space.
/// Waits for the device, and leaves it to the caller to sync. False if there is no pool, or no space for the limits.
pub(super) fn write(device: &dyn Device, area: &Range<u64>, run: u64, pools: &[PoolTokens]) -> Result<bool, Error> {
    let tokens: usize = pools.iter().map(|pool| pool.tokens.len()).sum();
    let body_bytes = (pools.len() * POOL_BYTES + tokens * TOKEN_BYTES) as u64;
    let Some(offset) = body_offset(area, body_bytes).filter(|_| !pools.is_empty()) else {
        // The next start gives later values higher tokens all the same.
        let limits: Vec<_> = pools.iter().map(|pool| PoolTokens { tokens: Vec::new(), ..*pool }).collect();
        return if tokens > 0 { write(device, area, run, &limits) } else { Ok(false) };
    };
    let mut device_writer = DeviceWriter::new(device, offset, run);
    for PoolTokens { pool, seed, base, limit, tokens } in pools {
        let mut fields = [0; POOL_BYTES];
        let mut writer = FieldWriter { bytes: &mut fields, at: 0 };
        writer.u32((*pool).into()).u32(tokens.len() as u32).u64(*seed).u64(*base).u64(*limit);
        device_writer.put(&fields)?;
        for (hash, token) in tokens {
            device_writer.put([hash.to_le_bytes(), token.to_le_bytes()].as_flattened())?;
        }
    }
    let (written, body_checksum) = device_writer.finish()?;
    assert_eq!(written, body_bytes, "the body has another length");
    let mut block = Buffer::zeroed(BLOCK);
    let header = Header { pools: pools.len() as u32, body_bytes, body_checksum };
    block[..HEADER_BYTES].copy_from_slice(&header.encode(run));
    device::write(device, header_offset(area), block).map(|_| true)
}

/// The section that this run left in a checkpoint's area; empty if there is no valid one. Waits for the device.
pub(super) fn read(device: &dyn Device, area: &Range<u64>, run: u64) -> Vec<PoolTokens> {
    read_valid(device, area, run).unwrap_or_default()
}

fn read_valid(device: &dyn Device, area: &Range<u64>, run: u64) -> Option<Vec<PoolTokens>> {
    let block = device::read(device, header_offset(area), Buffer::zeroed(BLOCK)).ok()?;
    let header = Header::decode(&block[..HEADER_BYTES], run)?;
    let offset = body_offset(area, header.body_bytes)?;
    let mut device_reader = DeviceReader::new(device, offset, header.body_bytes, run);
    let mut pools = Vec::new();
    for _ in 0..header.pools {
        let fields: [u8; POOL_BYTES] = device_reader.take()?;
        let mut reader = FieldReader { bytes: &fields, at: 0 };
        let (pool, count) = (u16::try_from(reader.u32()).ok()?, reader.u32());
        let (seed, base, limit) = (reader.u64(), reader.u64(), reader.u64());
        let mut tokens = Vec::new();
        // The bytes that are left bound a damaged count.
        for _ in 0..count {
            let pair: [u8; TOKEN_BYTES] = device_reader.take()?;
            let mut reader = FieldReader { bytes: &pair, at: 0 };
            tokens.push((reader.u64(), reader.u64()));
        }
        pools.push(PoolTokens { pool, seed, base, limit, tokens });
    }
    (device_reader.finish()? == header.body_checksum).then_some(pools)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    const RUN: u64 = 0x1d;
    const AREA: Range<u64> = 8 * BLOCK as u64..16 * BLOCK as u64;

    fn pools() -> Vec<PoolTokens> {
        let tokens = vec![(0x1112_1314_1516_1718, 0x2122_2324_2526), (u64::MAX, 1)];
        let first = PoolTokens { pool: 0x0102, seed: 0x0304_0506_0708_090a, base: 77, limit: 0x3132_3334, tokens };
        let second = PoolTokens { pool: 9, seed: 10, base: 11, limit: 12, tokens: vec![(13, 14)] };
        vec![first, second]
    }

    fn read_block(device: &MemoryDevice, offset: u64) -> Vec<u8> {
        device::read(device, offset, Buffer::zeroed(BLOCK)).unwrap().to_vec()
    }

    #[test]
    fn the_section_is_these_bytes() {
        let device = MemoryDevice::new(1 << 20);
        assert!(write(&device, &AREA, RUN, &pools()).unwrap());
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
        let header = read_block(&device, AREA.end - BLOCK as u64);
        assert_eq!(hex(&header[..HEADER_BYTES]), HEADER);
        assert!(header[HEADER_BYTES..].iter().all(|byte| *byte == 0));
        let body = read_block(&device, AREA.end - 2 * BLOCK as u64);
        assert_eq!(hex(&body[..2 * POOL_BYTES + 3 * TOKEN_BYTES]), BODY);
        assert_eq!(read(&device, &AREA, RUN), pools());
    }

    const HEADER: &str = "4562546b01000000\
                          1d00000000000000\
                          0200000000000000\
                          0000000000000000\
                          0000000000000000\
                          7000000000000000\
                          58a9a6b79e0823d5\
                          bbd6fa7c9d75a40b";
    const BODY: &str = "0201000002000000\
                        0a09080706050403\
                        4d00000000000000\
                        3433323100000000\
                        1817161514131211\
                        2625242322210000\
                        ffffffffffffffff\
                        0100000000000000\
                        0900000001000000\
                        0a00000000000000\
                        0b00000000000000\
                        0c00000000000000\
                        0d00000000000000\
                        0e00000000000000";

    #[test]
    fn a_damaged_or_foreign_section_has_no_tokens() {
        let device = MemoryDevice::new(1 << 20);
        assert_eq!(read(&device, &AREA, RUN), [], "never written");
        assert!(write(&device, &AREA, RUN, &pools()).unwrap());
        assert_eq!(read(&device, &AREA, RUN + 1), [], "of another run");
        let used = [(1, HEADER_BYTES), (2, 2 * POOL_BYTES + 3 * TOKEN_BYTES)];
        for (from_end, bytes) in used {
            let offset = AREA.end - from_end * BLOCK as u64;
            let intact = read_block(&device, offset);
            for bit in 0..bytes * 8 {
                let mut damaged = Buffer::zeroed(BLOCK);
                damaged[..BLOCK].copy_from_slice(&intact);
                damaged[bit / 8] ^= 1 << (bit % 8);
                device::write(&device, offset, damaged).unwrap();
                assert_eq!(read(&device, &AREA, RUN), [], "bit {bit} of block {from_end} from the end");
            }
            let mut restored = Buffer::zeroed(BLOCK);
            restored[..BLOCK].copy_from_slice(&intact);
            device::write(&device, offset, restored).unwrap();
        }
        assert_eq!(read(&device, &AREA, RUN), pools());
    }

    #[test]
    fn limits_are_kept_where_tokens_have_no_space() {
        let device = MemoryDevice::new(1 << 20);
        // Two blocks, and one of the header.
        let count = (2 * BLOCK - POOL_BYTES) / TOKEN_BYTES;
        let tokens = (0..count as u64).map(|number| (number, number + 1)).collect();
        let full = vec![PoolTokens { pool: 1, seed: 2, base: 3, limit: 4, tokens }];
        // A pool without tokens has a limit.
        let limit = vec![PoolTokens { tokens: Vec::new(), ..full[0].clone() }];
        let area = |blocks: u64| AREA.end - blocks * BLOCK as u64..AREA.end;
        assert!(!write(&device, &area(1), RUN, &full).unwrap());
        assert_eq!(read(&device, &AREA, RUN), []);
        assert!(write(&device, &area(2), RUN, &full).unwrap());
        assert_eq!(read(&device, &area(2), RUN), limit);
        assert!(write(&device, &area(3), RUN, &full).unwrap());
        assert_eq!(read(&device, &area(3), RUN), full);
        assert!(write(&device, &AREA, RUN, &limit).unwrap());
        assert_eq!(read(&device, &AREA, RUN), limit);
        assert!(!write(&device, &AREA, RUN, &[]).unwrap());
    }
}
