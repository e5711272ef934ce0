//! The image of a compact table: whatever sets and entries it has, it is refused, or it becomes a table that keeps
//! every invariant and goes on.
//!
//! The input is a list of changes as `image` has them, to the head, the records and the bytes of frames. Checksums of
//! frames are made right afterwards.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use ebbtide_store::{
    CompactMode, CompactSizes, CompactTable, CompactWrite, EngineMemory, FRAME_BYTES, Progress, SegmentBytes, Ttl,
};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};

const SIZES: CompactSizes = CompactSizes { key_bytes: 8, value_bytes: 5, has_ttl: true };
/// Bytes of an image before the records of its frames, and of a record.
const HEAD_BYTES: usize = 124;
const RECORD_BYTES: usize = 16;
/// Bytes of the head that say who wrote it: magic, version, lengths, seed, and the hash function.
const ORIGIN_BYTES: usize = 40;
const MEMORY_BYTES: u64 = 128 << 10;
const NOW_MS: u64 = 1_000_000;
const KEYS: u64 = 2000;

/// An image, with the bytes of its frames by their offset in the memory of the engine.
#[derive(Clone)]
struct Image {
    stream: Vec<u8>,
    frames: BTreeMap<u64, Vec<u8>>,
}

pub fn check(changes: &[&[u8]]) {
    static SOUND: OnceLock<Image> = OnceLock::new();
    let mut image = SOUND.get_or_init(sound).clone();
    changes.iter().for_each(|change| image.change(change));
    image.make_checksums_right();
    let memory = memory();
    let mut read = |at: u64, bytes: &mut [u8]| {
        let frame = image.frames.get(&at).filter(|frame| frame.len() >= bytes.len());
        bytes.copy_from_slice(&frame.ok_or(std::io::ErrorKind::UnexpectedEof)?[..bytes.len()]);
        Ok(())
    };
    let bytes = SegmentBytes::Read(&mut read);
    if let Ok(loaded) = CompactTable::load(SIZES, &mut &image.stream[..], (bytes, &|work| work()), &memory) {
        let (table, items) = loaded.expect("the lengths were not changed");
        assert_eq!(items, table.stats().items);
        go_on(&table, &memory);
    }
}

fn memory() -> EngineMemory {
    EngineMemory::reserve(4 << 20, 1).expect("there is address space")
}

fn set(table: &CompactTable, memory: &EngineMemory, number: u64, now_ms: u64) {
    let value = [number as u8; 5];
    let value = (!number.is_multiple_of(3)).then_some(&value[..]);
    let ttl = if number.is_multiple_of(2) { Ttl::Never } else { Ttl::Seconds(60) };
    let write = CompactWrite { key: &number.to_le_bytes(), value, ttl, mode: CompactMode::Set };
    table.write(&memory.participate(), &write, now_ms).expect("the lengths fit");
}

fn sound() -> Image {
    let memory = memory();
    let table = CompactTable::build(SIZES, MEMORY_BYTES, 5, &memory).expect("the options are sound");
    (0..KEYS).for_each(|number| set(&table, &memory, number, NOW_MS));
    let (mut stream, mut frames) = (Vec::new(), BTreeMap::new());
    let mut keep = |at: u64, bytes: &[u8]| {
        frames.insert(at, bytes.to_vec());
        Ok(())
    };
    table.save(&mut stream, &mut keep).expect("memory takes all bytes");
    Image { stream, frames }
}

impl Image {
    fn change(&mut self, change: &[u8]) {
        let place = u32::from_le_bytes([change[0], change[1], change[2], change[3]]) as usize;
        let byte = if place.is_multiple_of(2) {
            let length = self.stream.len() - ORIGIN_BYTES;
            &mut self.stream[ORIGIN_BYTES + place / 2 % length]
        } else {
            let count = self.frames.len();
            let frame = self.frames.values_mut().nth(place / 2 % count).expect("a remainder is less");
            let length = frame.len();
            &mut frame[place / 2 / count % length]
        };
        *byte = match change[4] % 3 {
            0 => *byte ^ change[5],
            1 => byte.wrapping_add(change[5]),
            _ => change[5],
        };
    }

    fn make_checksums_right(&mut self) {
        let records = self.stream[HEAD_BYTES..].chunks_exact_mut(RECORD_BYTES);
        for (record, (at, bytes)) in records.zip(&self.frames) {
            let secrets = RapidSecrets::seed(at / FRAME_BYTES as u64);
            let checksum = rapidhash_v3_inline::<true, false, false>(bytes, &secrets);
            record[8..].copy_from_slice(&checksum.to_le_bytes());
        }
    }
}

/// Uses a table that was loaded.
fn go_on(table: &CompactTable, memory: &EngineMemory) {
    let participant = memory.participate();
    table.verify();
    for number in 0..KEYS {
        table.get(&participant, &number.to_le_bytes(), NOW_MS, <[u8]>::len);
        set(table, memory, number * 2, NOW_MS);
    }
    while table.maintain(&participant, NOW_MS) == Progress::Working {}
    table.verify();
    table.resize(CompactTable::min_bytes(SIZES).expect("the lengths are sound")).expect("it is large enough");
    while table.maintain(&participant, NOW_MS) == Progress::Working {}
    table.verify();
}
