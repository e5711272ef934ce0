//! The table of pools on the device: the incarnation of each name. It has two slots of nine blocks, written
//! alternately; the valid one with the higher sequence is current.
//!
//! ```text
//! 0       4         8      16         24     28        32         64      96
//! | magic | version | life | sequence | next | entries | checksum | entry | entry | ... | zeros
//!
//! entry   0      16       18      24
//!         | name | number | zeros | bytes of small objects |
//! ```
//! Little-endian. The field of the name is its XXH3 with the seeds 0 and 1: these 128 bits distinguish names of pools.
//! No incarnation of this life has or had `next` or a higher number. A running tier draws numbers below the `next` on
//! the device, so a start after a crash draws no number of an object on flash. The bytes of small objects are those at
//! a clean stop. The checksum is XXH3 of the 32 bytes before it and then of the entries, with the life of the large
//! objects as the first seed; so a table of an earlier life is invalid.

use crate::codec::{FieldReader, FieldWriter};
use crate::device::{BLOCK, Buffer, Device};
use crate::{Error, device};
use std::ops::Range;
use twox_hash::XxHash3_64;

const MAGIC: u32 = u32::from_le_bytes(*b"EbPt");
const VERSION: u32 = 1;
const CHECKSUM: usize = 32;
const ENTRIES: usize = 64;
const ENTRY: usize = 32;
const SLOT_BLOCKS: usize = 9;
const SLOT_BYTES: usize = SLOT_BLOCKS * BLOCK;
const SLOTS: u64 = 2;
/// Bytes of both slots.
pub(super) const BYTES: u64 = SLOTS * SLOT_BYTES as u64;
/// Maximum number of pools.
pub(super) const MAX_ENTRIES: usize = (SLOT_BYTES - ENTRIES) / ENTRY;

const _: () = assert!(MAX_ENTRIES >= 1024);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolEntry {
    pub name: u128,
    pub number: u16,
    pub small_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolTable {
    pub sequence: u64,
    pub next: u16,
    pub entries: Vec<PoolEntry>,
}

pub(super) fn hash_of_name(name: &str) -> u128 {
    let half = |seed| u128::from(XxHash3_64::oneshot_with_seed(seed, name.as_bytes()));
    half(0) | half(1) << 64
}

fn checksum(life: u64, bytes: &[u8], entries: usize) -> u64 {
    let of_head = XxHash3_64::oneshot_with_seed(life, &bytes[..CHECKSUM]);
    XxHash3_64::oneshot_with_seed(of_head, &bytes[ENTRIES..ENTRIES + entries * ENTRY])
}

impl PoolTable {
    pub fn encode(&self, life: u64) -> Buffer {
        assert!(self.entries.len() <= MAX_ENTRIES, "{} pools", self.entries.len());
        let mut slot = Buffer::zeroed(SLOT_BYTES);
        let mut writer = FieldWriter { bytes: &mut slot, at: 0 };
        writer.u32(MAGIC).u32(VERSION).u64(life).u64(self.sequence);
        writer.u32(self.next.into()).u32(self.entries.len() as u32);
        for (index, entry) in self.entries.iter().enumerate() {
            let mut writer = FieldWriter { bytes: &mut slot, at: ENTRIES + index * ENTRY };
            writer.u64(entry.name as u64).u64((entry.name >> 64) as u64);
            writer.u64(entry.number.into()).u64(entry.small_bytes);
        }
        let sum = checksum(life, &slot, self.entries.len());
        slot[CHECKSUM..CHECKSUM + 8].copy_from_slice(&sum.to_le_bytes());
        slot
    }

    /// `None` if the slot has no valid table of this life.
    pub fn decode(slot: &[u8], life: u64) -> Option<Self> {
        let mut reader = FieldReader { bytes: slot, at: 0 };
        let is_ours = reader.u32() == MAGIC && reader.u32() == VERSION && reader.u64() == life;
        let (sequence, next, count) = (reader.u64(), reader.u32(), reader.u32() as usize);
        if !is_ours || count > MAX_ENTRIES || reader.u64() != checksum(life, slot, count) {
            return None;
        }
        let entry = |index: usize| {
            let mut reader = FieldReader { bytes: slot, at: ENTRIES + index * ENTRY };
            let (low, high) = (reader.u64(), reader.u64());
            PoolEntry {
                name: u128::from(low) | u128::from(high) << 64,
                number: reader.u64() as u16,
                small_bytes: reader.u64(),
            }
        };
        Some(Self { sequence, next: u16::try_from(next).ok()?, entries: (0..count).map(entry).collect() })
    }

    /// Writes the slot of this sequence. Waits for the device.
    pub fn write(&self, device: &dyn Device, area: &Range<u64>, life: u64) -> Result<(), Error> {
        let offset = area.start + self.sequence % SLOTS * SLOT_BYTES as u64;
        device::write(device, offset, self.encode(life)).map(drop)
    }

    /// The latest table of this life. Waits for the device.
    pub fn read(device: &dyn Device, area: &Range<u64>, life: u64) -> Option<Self> {
        let slots = (0..SLOTS).filter_map(|slot| {
            let offset = area.start + slot * SLOT_BYTES as u64;
            let bytes = device::read(device, offset, Buffer::zeroed(SLOT_BYTES)).ok()?;
            Self::decode(&bytes, life)
        });
        slots.max_by_key(|table| table.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> PoolTable {
        let entry = |name: &str, number, small_bytes| PoolEntry { name: hash_of_name(name), number, small_bytes };
        let entries = vec![entry("default", 0, 0x0102_0304_0506), entry("users", 0x0807, 9)];
        PoolTable { sequence: 0x1112_1314_1516_1718, next: 0x2122, entries }
    }

    #[test]
    fn the_format_never_changes() {
        let slot = table().encode(0x1d);
        let hex: String = slot[..128].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
        assert!(slot[128..].iter().all(|&byte| byte == 0));
        assert_eq!(PoolTable::decode(&slot, 0x1d), Some(table()));
        assert_eq!(PoolTable::decode(&slot, 0x1e), None, "another life");
        for bit in (0..40 * 8).chain(64 * 8..128 * 8) {
            let mut damaged = slot[..].to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(PoolTable::decode(&damaged, 0x1d), None, "bit {bit}");
        }
    }

    const GOLDEN: &str = "45625074010000001d0000000000000018171615141312112221000002000000af642d69ab9fd8500000000000000000\
        000000000000000000000000000000001aac73944d965b6cac3cd6d446aab3d900000000000000000605040302010000\
        6936c8f757a2e84c3a3275387318b4f707080000000000000900000000000000";

    #[test]
    fn the_latest_slot_counts() {
        let device = crate::device::MemoryDevice::new(1 << 20);
        let area = 4096..4096 + BYTES;
        assert_eq!(PoolTable::read(&device, &area, 7), None);
        for sequence in 3..8 {
            PoolTable { sequence, ..table() }.write(&device, &area, 7).unwrap();
            assert_eq!(PoolTable::read(&device, &area, 7).unwrap().sequence, sequence);
        }
    }
}
