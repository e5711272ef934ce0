//! What the log writes. Little-endian; checksums are XXH3 (64 bits), with the identity of the log as their seed.
//!
//! ```text
//! region   | header 64 | object, at a multiple of 64 | object | ... | footer | to the end of a block
//!
//! header   magic u32 | version u32 | sequence u64 | identity u64 | region u32 | objects u32 | footer's offset u32
//!          | latest expiry u32 | lowest order u64 | checksum of the footer u64 | checksum of the 56 bytes before it u64
//! object   checksum of all that follows u64 | sequence u64 | order u64 | bytes of value here u32 | bytes of value in all u32
//!          | position u32 | expiry u32 | client flags u32 | part u16 | bytes of key u8 | attributes u8 | key | value
//! footer   per object: hash u64 | order u64 | position u32 | bytes u32 | expiry u32 | part u32
//! ```
//! - The sequence numbers the lives of all regions. It is in the region's header and in every object: what a region held in an
//!   earlier life, or what belongs elsewhere, does not pass.
//! - The order numbers the versions of all objects; of two versions of a key the later one has the higher number. A copy that
//!   reclaim makes keeps its order.
//! - A position counts units of 64 bytes from the begin of the region.
//! - An expiry is in seconds since 1970, 0 for never; the latest expiry of a region too.
//! - Part 0 is an object, or the first part of one that did not fit into a region. The others carry no key; their hash is made
//!   from the key's hash, the order and the number of the part.

use super::place::UNIT;
use crate::KeyHash;
use crate::stream::{Reader, Writer};
use twox_hash::XxHash3_64;

const MAGIC: u32 = u32::from_le_bytes(*b"EbLl");
const VERSION: u32 = 1;

pub const REGION_HEADER_BYTES: usize = 64;
pub const OBJECT_HEADER_BYTES: usize = 48;
pub const FOOTER_ENTRY_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 8;

const _: () = assert!(REGION_HEADER_BYTES.is_multiple_of(UNIT));

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
    pub part: u16,
    pub key_bytes: u8,
    pub attributes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FooterEntry {
    pub hash: KeyHash,
    pub order: u64,
    pub position: u32,
    pub bytes: u32,
    pub expiry: u32,
    pub part: u32,
}

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Another object, or another life of the region.
    Foreign,
    /// Damaged.
    Corrupt,
}

pub fn checksum(identity: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(identity, bytes)
}

/// The hash under which a part other than the first is found.
pub fn part_hash(hash: KeyHash, order: u64, part: u16) -> KeyHash {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&hash.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&order.to_le_bytes());
    bytes[16..].copy_from_slice(&part.to_le_bytes());
    KeyHash(XxHash3_64::oneshot(&bytes))
}

impl RegionHeader {
    pub fn encode(&self, identity: u64) -> [u8; REGION_HEADER_BYTES] {
        let mut bytes = [0; REGION_HEADER_BYTES];
        let mut writer = Writer { bytes: &mut bytes, at: 0 };
        writer.u32(MAGIC).u32(VERSION).u64(self.sequence).u64(identity).u32(self.region).u32(self.objects);
        writer.u32(self.footer_offset).u32(self.latest_expiry).u64(self.lowest_order).u64(self.footer_checksum);
        let sum = checksum(identity, &bytes[..REGION_HEADER_BYTES - CHECKSUM_BYTES]);
        bytes[REGION_HEADER_BYTES - CHECKSUM_BYTES..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None` if it is not a header of this log, for this region.
    pub fn decode(bytes: &[u8], identity: u64, region: u32) -> Option<Self> {
        let mut reader = Reader { bytes, at: 0 };
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
        OBJECT_HEADER_BYTES + usize::from(self.key_bytes) + self.value_bytes as usize
    }

    /// All but the checksum, which [`seal_object`] adds when the key and the value are there.
    pub fn encode(&self) -> [u8; OBJECT_HEADER_BYTES] {
        let mut bytes = [0; OBJECT_HEADER_BYTES];
        let mut writer = Writer { bytes: &mut bytes, at: CHECKSUM_BYTES };
        writer.u64(self.sequence).u64(self.order).u32(self.value_bytes).u32(self.total_bytes).u32(self.position);
        writer.u32(self.expiry).u32(self.client_flags);
        bytes[44..46].copy_from_slice(&self.part.to_le_bytes());
        bytes[46..].copy_from_slice(&[self.key_bytes, self.attributes]);
        bytes
    }

    /// What an object claims to be. Nothing is checked.
    ///
    /// # Panics
    ///
    /// Panics when there are fewer bytes than a header has.
    pub fn decode(bytes: &[u8]) -> Self {
        let mut reader = Reader { bytes, at: CHECKSUM_BYTES };
        Self {
            sequence: reader.u64(),
            order: reader.u64(),
            value_bytes: reader.u32(),
            total_bytes: reader.u32(),
            position: reader.u32(),
            expiry: reader.u32(),
            client_flags: reader.u32(),
            part: u16::from_le_bytes([bytes[44], bytes[45]]),
            key_bytes: bytes[46],
            attributes: bytes[47],
        }
    }

    /// The header of an object that must be the one written at this position in this life of a region, unharmed. `bytes`
    /// begins with it and may be longer.
    pub fn check(bytes: &[u8], identity: u64, sequence: u64, position: u32) -> Result<Self, Unfit> {
        if bytes.len() < OBJECT_HEADER_BYTES {
            return Err(Unfit::Foreign);
        }
        let header = Self::decode(bytes);
        if header.sequence != sequence || header.position != position || header.object_bytes() > bytes.len() {
            return Err(Unfit::Foreign);
        }
        let sum = checksum(identity, &bytes[CHECKSUM_BYTES..header.object_bytes()]);
        if bytes[..CHECKSUM_BYTES] == sum.to_le_bytes() { Ok(header) } else { Err(Unfit::Corrupt) }
    }
}

/// The checksum of an object whose other bytes are complete.
pub fn object_checksum(identity: u64, object: &[u8]) -> [u8; CHECKSUM_BYTES] {
    checksum(identity, &object[CHECKSUM_BYTES..]).to_le_bytes()
}

impl FooterEntry {
    pub fn encode(&self) -> [u8; FOOTER_ENTRY_BYTES] {
        let mut bytes = [0; FOOTER_ENTRY_BYTES];
        let mut writer = Writer { bytes: &mut bytes, at: 0 };
        writer.u64(self.hash.0).u64(self.order).u32(self.position).u32(self.bytes).u32(self.expiry).u32(self.part);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Self {
        let mut reader = Reader { bytes, at: 0 };
        Self {
            hash: KeyHash(reader.u64()),
            order: reader.u64(),
            position: reader.u32(),
            bytes: reader.u32(),
            expiry: reader.u32(),
            part: reader.u32(),
        }
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
        part: 2,
        key_bytes: 3,
        attributes: 9,
    };

    #[test]
    fn a_region_header_is_these_bytes() {
        let bytes = REGION.encode(0x1d);
        assert_eq!(
            hex(&bytes),
            "45624c6c01000000 0605040302010000 1d00000000000000 0700000003000000 4012000000d2496b \
             6300000000000000 edfe000000000000 9c9922006fcbfad2"
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
            "4ac900782713f047 0605040302010000 6400000000000000 0500000006000000 0100000000d2496b \
             cdab000002000309 6b657976616c7565"
        );
        let check = |bytes: &[u8]| ObjectHeader::check(bytes, 0x1d, OBJECT.sequence, 1);
        assert_eq!(check(&bytes), Ok(OBJECT));
        assert_eq!(check(&[&bytes[..], b"more"].concat()), Ok(OBJECT));
        assert_eq!(ObjectHeader::check(&bytes, 0x1d, OBJECT.sequence + 1, 1), Err(Unfit::Foreign));
        assert_eq!(ObjectHeader::check(&bytes, 0x1d, OBJECT.sequence, 2), Err(Unfit::Foreign));
        assert_eq!(ObjectHeader::check(&bytes, 0x1e, OBJECT.sequence, 1), Err(Unfit::Corrupt));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for length in 0..bytes.len() {
            assert_eq!(check(&bytes[..length]), Err(Unfit::Foreign));
        }
    }

    #[test]
    fn a_footer_entry_is_these_bytes() {
        let entry = FooterEntry { hash: KeyHash(0xa1), order: 100, position: 1, bytes: 56, expiry: 2, part: 3 };
        let bytes = entry.encode();
        assert_eq!(hex(&bytes), "a100000000000000 6400000000000000 0100000038000000 0200000003000000");
        assert_eq!(FooterEntry::decode(&bytes), entry);
    }

    #[test]
    fn parts_have_hashes_of_their_own() {
        assert_eq!(part_hash(KeyHash(1), 2, 3).0, 9_607_854_705_023_311_518);
        assert_ne!(part_hash(KeyHash(1), 2, 3), part_hash(KeyHash(1), 3, 3));
    }
}
