//! The format of the log on the device. Little-endian; checksums are XXH3 (64 bits), with the identity of the log as
//! their seed.
//!
//! ```text
//! region   | header 64 | object, at a multiple of 64 | object | ... | footer | to the end of a block
//!
//! header   magic u32 | version u32 | sequence u64 | identity u64 | region u32 | objects u32 | footer's offset u32
//!          | latest expiry u32 | lowest order u64 | checksum of the footer u64 | checksum of the 56 bytes before u64
//! object   checksum u64 | sequence u64 | order u64 | bytes of value here u31 | annotated u1
//!          | bytes of value in all u32 | position u24 | bytes of key u8 | expiry u32 | client flags u32
//!          | part u16 | pool u16
//!          | key | of a value over 16 KiB: checksum of each block u64 ... | zeros to a multiple of 64 | value
//! footer   per object: hash u64 | order u64 | position u32 | bytes u32 | expiry u32 | part u16 | pool u16
//! ```
//! - The checksum of an object covers all that follows it, if its value here has at most 16 KiB. Of a longer value it
//!   covers all before the value, and each block of the value has its own checksum. So the front of a
//!   long object is verified without its value, and each block without the others.
//! - A block of a value has 4 KiB, as a block of the device: 0.2 % of a long value are checksums. The front of an
//!   object of 1 MiB (header, key, checksums, zeros) has at most 2.4 KiB.
//! - A value of 64 KiB or more begins at a multiple of 4 KiB of the region where the region has the space. Then a
//!   range of one block is read as one block of the device, after one block with the front.
//! - The pool is the number of an incarnation of a pool (`pools`). An object of another incarnation is another key.
//! - The sequence numbers the lives of all regions. The region's header and every object have it: objects of an earlier
//!   life, and misplaced ones, are refused.
//! - The order numbers the versions of all objects; of two versions of a key the later one has the higher number. A
//!   copy that reclaim makes keeps its order.
//! - Annotated is 1 if the client flags are an annotation of the cache, and not a client's; otherwise 0.
//! - A position counts units of 64 bytes from the begin of the region.
//! - The header has 48 bytes, so that a key of 16 bytes beside a value of 2 or 4 KiB begins no other unit.
//! - An expiry is in seconds since 1970, 0 for never; the latest expiry of a region too.
//! - Part 0 is an object, or the first part of one that did not fit into a region. The others carry no key; their hash
//!   is made from the key's hash, the order and the number of the part.

use super::address::UNIT;
use crate::FlashHash;
use crate::codec::{FieldReader, FieldWriter};
use crate::device::BLOCK;
use std::ops::Range;
use twox_hash::XxHash3_64;

const MAGIC: u32 = u32::from_le_bytes(*b"EbLl");
const VERSION: u32 = 5;

pub const REGION_HEADER_BYTES: usize = 64;
pub const OBJECT_HEADER_BYTES: usize = 48;
pub const FOOTER_ENTRY_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 8;
/// Longest value without a checksum for each of its blocks. A drive reads this length in about the time of one block.
pub const UNDIVIDED_VALUE_BYTES: usize = 16 << 10;
/// Bytes of a block of a value; the last block may be shorter.
const VALUE_BLOCK_BYTES: usize = 4 << 10;
/// A value of this length or more begins with a block of the device: the gap before it is on average 1/32 of the value,
/// or less.
pub const ALIGNED_VALUE_BYTES: usize = 64 << 10;

/// Set in the bytes of a value here if the client flags are an annotation.
const ANNOTATED: u32 = 1 << 31;
/// A word has the position in its lower bits, and the bytes of the key above.
const POSITION_BITS: u32 = 24;

const _: () = assert!(REGION_HEADER_BYTES.is_multiple_of(UNIT));
/// Bytes of a region of which an object's header can tell each position.
pub const REGION_BYTES_LIMIT: usize = UNIT << POSITION_BITS;
const _: () = assert!(REGION_BYTES_LIMIT < ANNOTATED as usize);
const _: () = assert!(VALUE_BLOCK_BYTES == BLOCK && UNDIVIDED_VALUE_BYTES < ALIGNED_VALUE_BYTES);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionHeader {
    pub sequence: u64,
    pub region: u32,
    pub objects: u32,
    /// Bytes from the begin of the region.
    pub footer_offset: u32,
    pub latest_expiry: u32,
    pub lowest_order: u64,
    pub footer_checksum: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectHeader {
    pub sequence: u64,
    pub order: u64,
    pub value_bytes: u32,
    pub total_bytes: u32,
    pub position: u32,
    pub expiry: u32,
    pub client_flags: u32,
    pub is_annotated: bool,
    pub part: u16,
    pub pool: u16,
    pub key_bytes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FooterEntry {
    pub hash: FlashHash,
    pub order: u64,
    pub position: u32,
    pub bytes: u32,
    pub expiry: u32,
    pub part: u16,
    pub pool: u16,
}

/// Why bytes are not the expected object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectMismatch {
    /// Another object, or another life of the region.
    Foreign,
    /// Damaged.
    Corrupt,
}

pub fn checksum(identity: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(identity, bytes)
}

/// Bytes of an object with a key and a value of these lengths.
pub fn object_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    front_bytes(key_bytes, value_bytes).saturating_add(value_bytes)
}

/// Bytes of the object before the value: header, key and checksums. Those with checksums of blocks are a multiple of a
/// unit, so that the value may begin with a block of the device.
pub fn front_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    let table = table_bytes(value_bytes);
    let front = OBJECT_HEADER_BYTES + key_bytes + table;
    if table == 0 { front } else { front.next_multiple_of(UNIT) }
}

/// Bytes of the checksums of a value's blocks.
fn table_bytes(value_bytes: usize) -> usize {
    if value_bytes <= UNDIVIDED_VALUE_BYTES { 0 } else { value_bytes.div_ceil(VALUE_BLOCK_BYTES) * CHECKSUM_BYTES }
}

/// The longest value of an object of at most `bytes` with a key of this length; 0 if not even an empty one fits.
pub fn value_bytes_in(key_bytes: usize, bytes: usize) -> usize {
    // A longer value makes a longer object.
    let (mut fits, mut exceeds) = (0, bytes + 1);
    while exceeds - fits > 1 {
        let middle = fits + (exceeds - fits) / 2;
        let is_fitting = object_bytes(key_bytes, middle) <= bytes;
        *if is_fitting { &mut fits } else { &mut exceeds } = middle;
    }
    fits
}

/// The hash under which a part other than the first is found.
pub fn part_hash(hash: FlashHash, order: u64, part: u16) -> FlashHash {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&hash.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&order.to_le_bytes());
    bytes[16..].copy_from_slice(&part.to_le_bytes());
    FlashHash(XxHash3_64::oneshot(&bytes))
}

impl RegionHeader {
    pub fn encode(&self, identity: u64) -> [u8; REGION_HEADER_BYTES] {
        let mut bytes = [0; REGION_HEADER_BYTES];
        let mut writer = FieldWriter { bytes: &mut bytes, at: 0 };
        writer.u32(MAGIC).u32(VERSION).u64(self.sequence).u64(identity).u32(self.region).u32(self.objects);
        writer.u32(self.footer_offset).u32(self.latest_expiry).u64(self.lowest_order).u64(self.footer_checksum);
        let sum = checksum(identity, &bytes[..REGION_HEADER_BYTES - CHECKSUM_BYTES]);
        bytes[REGION_HEADER_BYTES - CHECKSUM_BYTES..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None` if it is not a header of this log, for this region.
    pub fn decode(bytes: &[u8], identity: u64, region: u32) -> Option<Self> {
        let mut reader = FieldReader { bytes, at: 0 };
        let is_ours = reader.u32() == MAGIC && reader.u32() == VERSION;
        let sequence = reader.u64();
        if !is_ours || reader.u64() != identity || reader.u32() != region {
            return None;
        }
        let header = Self {
            sequence,
            region,
            objects: reader.u32(),
            footer_offset: reader.u32(),
            latest_expiry: reader.u32(),
            lowest_order: reader.u64(),
            footer_checksum: reader.u64(),
        };
        let sum = checksum(identity, &bytes[..REGION_HEADER_BYTES - CHECKSUM_BYTES]);
        (reader.u64() == sum).then_some(header)
    }
}

impl ObjectHeader {
    /// Bytes of the whole object.
    pub fn object_bytes(&self) -> usize {
        object_bytes(self.key_bytes.into(), self.value_bytes as usize)
    }

    /// The range of the value in the object.
    pub fn value(&self) -> Range<usize> {
        self.object_bytes() - self.value_bytes as usize..self.object_bytes()
    }

    /// The range of the key in the object.
    pub fn key(&self) -> Range<usize> {
        OBJECT_HEADER_BYTES..OBJECT_HEADER_BYTES + usize::from(self.key_bytes)
    }

    /// The range of the checksums of the value's blocks, after the key.
    fn table(&self) -> Range<usize> {
        let begin = self.key().end;
        begin..begin + table_bytes(self.value_bytes as usize)
    }

    /// The blocks that hold a range of a value, as a range of the value. Only for a value with checksums of its blocks.
    pub fn blocks_of(&self, range: &Range<usize>) -> Range<usize> {
        let begin = range.start / VALUE_BLOCK_BYTES * VALUE_BLOCK_BYTES;
        begin..range.end.next_multiple_of(VALUE_BLOCK_BYTES).min(self.value_bytes as usize)
    }

    /// The checksums of blocks returned by [`ObjectHeader::blocks_of`], from the front of the object.
    pub fn sums_of<'a>(&self, front: &'a [u8], blocks: &Range<usize>) -> &'a [u8] {
        let sums = &front[self.table()];
        let number_of = |at: usize| at / VALUE_BLOCK_BYTES * CHECKSUM_BYTES;
        &sums[number_of(blocks.start)..number_of(blocks.end.next_multiple_of(VALUE_BLOCK_BYTES))]
    }

    /// The range that the checksum of the object covers.
    fn covered(&self) -> Range<usize> {
        let end = if self.table().is_empty() { self.object_bytes() } else { self.value().start };
        CHECKSUM_BYTES..end
    }

    /// The header without its checksum. [`object_checksum`] computes the checksum once the key and the value are in
    /// place.
    pub fn encode(&self) -> [u8; OBJECT_HEADER_BYTES] {
        let mut bytes = [0; OBJECT_HEADER_BYTES];
        let mut writer = FieldWriter { bytes: &mut bytes, at: CHECKSUM_BYTES };
        let value_bytes = self.value_bytes | if self.is_annotated { ANNOTATED } else { 0 };
        writer.u64(self.sequence).u64(self.order).u32(value_bytes).u32(self.total_bytes);
        writer.u32(self.position | u32::from(self.key_bytes) << POSITION_BITS);
        writer.u32(self.expiry).u32(self.client_flags).u32(u32::from(self.part) | u32::from(self.pool) << 16);
        bytes
    }

    /// Decodes a header without any check.
    ///
    /// # Panics
    ///
    /// Panics when there are fewer bytes than a header has.
    pub fn decode(bytes: &[u8]) -> Self {
        let mut reader = FieldReader { bytes, at: CHECKSUM_BYTES };
        let (sequence, order, value_bytes, total_bytes) = (reader.u64(), reader.u64(), reader.u32(), reader.u32());
        let (place, expiry, client_flags, number) = (reader.u32(), reader.u32(), reader.u32(), reader.u32());
        Self {
            sequence,
            order,
            value_bytes: value_bytes & !ANNOTATED,
            total_bytes,
            position: place & ((1 << POSITION_BITS) - 1),
            expiry,
            client_flags,
            is_annotated: value_bytes & ANNOTATED != 0,
            part: number as u16,
            pool: (number >> 16) as u16,
            key_bytes: (place >> POSITION_BITS) as u8,
        }
    }

    /// Decodes the header of an undamaged object that was written at this position in this life of a region. `bytes`
    /// begins with it and may be longer.
    pub fn check(bytes: &[u8], identity: u64, sequence: u64, position: u32) -> Result<Self, ObjectMismatch> {
        let header = Self::check_front(bytes, identity, sequence, position)?;
        let object = bytes.get(..header.object_bytes()).ok_or(ObjectMismatch::Foreign)?;
        let is_whole =
            header.table().is_empty() || are_blocks(identity, &object[header.value()], &object[header.table()]);
        if is_whole { Ok(header) } else { Err(ObjectMismatch::Corrupt) }
    }

    /// As [`ObjectHeader::check`], for the range that the object's checksum covers: a value with checksums of its
    /// blocks may be missing.
    pub fn check_front(bytes: &[u8], identity: u64, sequence: u64, position: u32) -> Result<Self, ObjectMismatch> {
        if bytes.len() < OBJECT_HEADER_BYTES {
            return Err(ObjectMismatch::Foreign);
        }
        let header = Self::decode(bytes);
        if header.sequence != sequence || header.position != position {
            return Err(ObjectMismatch::Foreign);
        }
        let covered = bytes.get(header.covered()).ok_or(ObjectMismatch::Foreign)?;
        if bytes[..CHECKSUM_BYTES] == checksum(identity, covered).to_le_bytes() {
            Ok(header)
        } else {
            Err(ObjectMismatch::Corrupt)
        }
    }
}

/// Whether blocks of a value have these checksums.
pub fn are_blocks(identity: u64, blocks: &[u8], sums: &[u8]) -> bool {
    let mut pairs = blocks.chunks(VALUE_BLOCK_BYTES).zip(sums.chunks_exact(CHECKSUM_BYTES));
    blocks.len().div_ceil(VALUE_BLOCK_BYTES) * CHECKSUM_BYTES == sums.len()
        && pairs.all(|(block, sum)| sum == checksum(identity, block).to_le_bytes())
}

/// The checksums of the blocks of a value, as stored before it; none for a short value.
pub fn block_checksums(identity: u64, value: &[u8]) -> Vec<u8> {
    let blocks = value.chunks(VALUE_BLOCK_BYTES).filter(|_| value.len() > UNDIVIDED_VALUE_BYTES);
    blocks.flat_map(|block| checksum(identity, block).to_le_bytes()).collect()
}

/// The checksum of an object, all other bytes of which are in place.
pub fn object_checksum(identity: u64, object: &[u8]) -> [u8; CHECKSUM_BYTES] {
    checksum(identity, &object[ObjectHeader::decode(object).covered()]).to_le_bytes()
}

impl FooterEntry {
    pub fn encode(&self) -> [u8; FOOTER_ENTRY_BYTES] {
        let mut bytes = [0; FOOTER_ENTRY_BYTES];
        let mut writer = FieldWriter { bytes: &mut bytes, at: 0 };
        writer.u64(self.hash.0).u64(self.order).u32(self.position).u32(self.bytes).u32(self.expiry);
        writer.u32(u32::from(self.part) | u32::from(self.pool) << 16);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Self {
        let mut reader = FieldReader { bytes, at: 0 };
        let mut entry = Self {
            hash: FlashHash(reader.u64()),
            order: reader.u64(),
            position: reader.u32(),
            bytes: reader.u32(),
            expiry: reader.u32(),
            part: 0,
            pool: 0,
        };
        let last = reader.u32();
        (entry.part, entry.pool) = (last as u16, (last >> 16) as u16);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        let digits = |chunk: &[u8]| chunk.iter().map(|b| format!("{b:02x}")).collect::<String>();
        bytes.chunks(8).map(digits).collect::<Vec<_>>().join(" ")
    }

    const REGION: RegionHeader = RegionHeader {
        sequence: 0x0102_0304_0506,
        region: 7,
        objects: 3,
        footer_offset: 0x1240,
        latest_expiry: 1_800_000_000,
        lowest_order: 99,
        footer_checksum: 0xfeed,
    };
    const OBJECT: ObjectHeader = ObjectHeader {
        sequence: 0x0102_0304_0506,
        order: 100,
        value_bytes: 5,
        total_bytes: 6,
        position: 1,
        expiry: 1_800_000_000,
        client_flags: 0xabcd,
        is_annotated: false,
        part: 2,
        pool: 0x0506,
        key_bytes: 3,
    };

    #[test]
    fn a_region_header_is_these_bytes() {
        let bytes = REGION.encode(0x1d);
        assert_eq!(
            hex(&bytes),
            "45624c6c05000000 0605040302010000 1d00000000000000 0700000003000000 4012000000d2496b \
             6300000000000000 edfe000000000000 46cf6f21aad9503f"
        );
        assert_eq!(RegionHeader::decode(&bytes, 0x1d, 7), Some(REGION));
        assert_eq!(RegionHeader::decode(&bytes, 0x1d, 8), None, "of another region");
        assert_eq!(RegionHeader::decode(&bytes, 0x1e, 7), None, "of another log");
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RegionHeader::decode(&damaged, 0x1d, 7), None, "bit {bit}");
        }
        assert_eq!(RegionHeader::decode(&[0; 64], 0, 0), None);
    }

    #[test]
    fn an_object_is_these_bytes() {
        let mut bytes = [&OBJECT.encode()[..], b"keyvalue"].concat();
        let sum = object_checksum(0x1d, &bytes);
        bytes[..8].copy_from_slice(&sum);
        assert_eq!(
            hex(&bytes),
            "f97383b4f55d3e2f 0605040302010000 6400000000000000 0500000006000000 0100000300d2496b \
             cdab000002000605 6b657976616c7565"
        );
        let annotated = ObjectHeader { is_annotated: true, ..OBJECT };
        assert_eq!(annotated.encode()[8..], [&OBJECT.encode()[8..27], &[0x80], &OBJECT.encode()[28..]].concat());
        assert_eq!(ObjectHeader::decode(&annotated.encode()), annotated);
        let check = |bytes: &[u8]| ObjectHeader::check(bytes, 0x1d, OBJECT.sequence, 1);
        assert_eq!(check(&bytes), Ok(OBJECT));
        assert_eq!(check(&[&bytes[..], b"more"].concat()), Ok(OBJECT));
        assert_eq!(ObjectHeader::check(&bytes, 0x1d, OBJECT.sequence + 1, 1), Err(ObjectMismatch::Foreign));
        assert_eq!(ObjectHeader::check(&bytes, 0x1d, OBJECT.sequence, 2), Err(ObjectMismatch::Foreign));
        assert_eq!(ObjectHeader::check(&bytes, 0x1e, OBJECT.sequence, 1), Err(ObjectMismatch::Corrupt));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for length in 0..bytes.len() {
            assert_eq!(check(&bytes[..length]), Err(ObjectMismatch::Foreign));
        }
    }

    /// A header for a value of this length, and its bytes in a region that is not sealed.
    fn long(value_bytes: usize) -> (ObjectHeader, Vec<u8>) {
        let header = ObjectHeader { value_bytes: value_bytes as u32, total_bytes: value_bytes as u32, ..OBJECT };
        let value: Vec<u8> = (0..value_bytes).map(|at| (at * 7 + at / 251) as u8).collect();
        let table = block_checksums(0x1d, &value);
        let zeros = vec![0; front_bytes(3, value_bytes) - OBJECT_HEADER_BYTES - 3 - table.len()];
        let mut bytes = [&header.encode()[..], b"key", &table, &zeros, &value].concat();
        let sum = object_checksum(0x1d, &bytes);
        bytes[..8].copy_from_slice(&sum);
        (header, bytes)
    }

    #[test]
    fn blocks_of_long_values_have_their_own_checksums() {
        let (short, one) = (UNDIVIDED_VALUE_BYTES, VALUE_BLOCK_BYTES);
        for (value_bytes, blocks) in [(short, 0), (short + 1, 5), (5 * one, 5), (5 * one + 1, 6), (256 * one, 256)] {
            let (header, bytes) = long(value_bytes);
            let front = if blocks == 0 { 51 } else { (51 + 8_usize * blocks).next_multiple_of(64) };
            assert_eq!((bytes.len(), header.object_bytes()), (front + value_bytes, bytes.len()));
            assert_eq!(header.value(), front..bytes.len());
            assert_eq!(ObjectHeader::check(&bytes, 0x1d, OBJECT.sequence, 1), Ok(header));
            let front = &bytes[..header.covered().end];
            assert_eq!(ObjectHeader::check_front(front, 0x1d, OBJECT.sequence, 1), Ok(header));
            let is_in_blocks = blocks > 0;
            for at in
                [0, 9, 27, 47, 49, header.value().start - 1, header.value().start, bytes.len() / 2, bytes.len() - 1]
            {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                let check = |check: fn(&[u8], u64, u64, u32) -> Result<ObjectHeader, ObjectMismatch>| {
                    check(&damaged, 0x1d, OBJECT.sequence, 1)
                };
                assert!(check(ObjectHeader::check).is_err(), "byte {at} of {value_bytes}");
                let is_value = at >= header.value().start;
                assert_eq!(check(ObjectHeader::check_front).is_ok(), is_in_blocks && is_value, "byte {at}");
            }
        }
        let (_, bytes) = long(short + 1);
        assert_eq!(hex(&bytes[48..67]), LONG);
    }

    const LONG: &str = "6b6579b989be329c 59a7c98fecb3fa08 db5418";

    #[test]
    fn blocks_of_a_range_have_their_checksums() {
        let one = VALUE_BLOCK_BYTES;
        let (header, bytes) = long(5 * one + 100);
        let value = &bytes[header.value()];
        let front = &bytes[..header.value().start];
        for (range, blocks) in [
            (0..1, 0..one),
            (one - 1..one + 1, 0..2 * one),
            (one..2 * one, one..2 * one),
            (5 * one + 50..5 * one + 60, 5 * one..5 * one + 100),
            (0..5 * one + 100, 0..5 * one + 100),
        ] {
            assert_eq!(header.blocks_of(&range), blocks, "{range:?}");
            let sums = header.sums_of(front, &blocks);
            let mut read = value[blocks.clone()].to_vec();
            assert!(are_blocks(0x1d, &read, sums), "{range:?}");
            assert!(!are_blocks(0x1d, &read[..read.len() - 1], sums) && !are_blocks(0x1d, &read, &sums[8..]));
            for at in [0, read.len() / 2, read.len() - 1] {
                read[at] ^= 1;
                assert!(!are_blocks(0x1d, &read, sums), "{range:?}, byte {at}");
                read[at] ^= 1;
            }
        }
    }

    #[test]
    fn a_value_fills_the_rest_of_a_region() {
        for bytes in (48..250).chain(16_400..16_700).chain(20_500..20_700).chain([1 << 20, 16 << 20]) {
            for key_bytes in [0, 8, 77] {
                let value = value_bytes_in(key_bytes, bytes);
                let takes = |value: usize| object_bytes(key_bytes, value);
                assert!(value == 0 || takes(value) <= bytes, "{value} of {bytes}");
                assert!(takes(value + 1) > bytes, "{value} of {bytes}");
            }
        }
    }

    #[test]
    fn a_footer_entry_is_these_bytes() {
        let entry =
            FooterEntry { hash: FlashHash(0xa1), order: 100, position: 1, bytes: 56, expiry: 2, part: 3, pool: 0x0405 };
        let bytes = entry.encode();
        assert_eq!(hex(&bytes), "a100000000000000 6400000000000000 0100000038000000 0200000003000504");
        assert_eq!(FooterEntry::decode(&bytes), entry);
    }

    #[test]
    fn parts_have_hashes_of_their_own() {
        assert_eq!(part_hash(FlashHash(1), 2, 3).0, 9_607_854_705_023_311_518);
        assert_ne!(part_hash(FlashHash(1), 2, 3), part_hash(FlashHash(1), 3, 3));
    }
}
