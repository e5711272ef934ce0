//! Images of compact tables: saved and loaded, damaged, and beside reads of a table that has ended.

use super::*;
use crate::engine_memory::EngineMemory;
use crate::epoch::Participant;
use crate::evict::Progress;
use crate::frames::FRAME_BYTES;
use crate::image::{ImageError, SegmentBytes};
use crate::ops::Stored;
use crate::ttl::Ttl;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
const SIZES: CompactSizes = CompactSizes { key_bytes: 16, value_bytes: 12, has_ttl: true };
/// Bytes of the head of an image, and of a record behind it.
const HEAD_BYTES: usize = 124;
const RECORD_BYTES: usize = 16;

struct Client {
    table: CompactTable,
    participant: Participant,
    memory: EngineMemory,
}

fn client(memory_bytes: u64) -> Client {
    let memory = EngineMemory::reserve(64 * MIB, 2).unwrap();
    let table = CompactTable::build(SIZES, memory_bytes, 7, &memory).unwrap();
    Client { table, participant: memory.participate(), memory }
}

fn key(number: u64) -> [u8; 16] {
    (u128::from(number) << 64 | u128::from(number)).to_le_bytes()
}

impl Client {
    /// Every third entry is a negative result, every fifth one expires.
    fn fill(&self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let bytes = [number as u8; 12];
            let value = (!number.is_multiple_of(3)).then_some(&bytes[..]);
            let ttl = if number.is_multiple_of(5) { Ttl::Seconds(10) } else { Ttl::Never };
            let write = CompactWrite { key: &key(number), value, ttl, mode: CompactMode::Set };
            assert_eq!(self.table.write(&self.participant, &write, 0), Ok(Stored::Stored));
        }
    }

    fn get(&self, number: u64, now_ms: u64) -> CompactLookup<Vec<u8>> {
        self.table.get(&self.participant, &key(number), now_ms, <[u8]>::to_vec)
    }

    fn maintain(&self) {
        while self.table.maintain(&self.participant, 0) == Progress::Working {}
    }

    fn image(&self) -> Image {
        let Image { mut stream, mut frames } = Image::default();
        let mut keep = |at: u64, bytes: &[u8]| {
            assert!(frames.insert(at, bytes.to_vec()).is_none(), "a place has one frame");
            Ok(())
        };
        self.table.save(&mut stream, &mut keep).unwrap();
        Image { stream, frames }
    }
}

/// An image, and the bytes of frames by their offset in the memory of the engine.
#[derive(Clone, Debug, Default, PartialEq)]
struct Image {
    stream: Vec<u8>,
    frames: BTreeMap<u64, Vec<u8>>,
}

impl Image {
    fn load(&self) -> Result<Client, ImageError> {
        let memory = EngineMemory::reserve(64 * MIB, 2).unwrap();
        let mut read = |at: u64, bytes: &mut [u8]| {
            let frame = self.frames.get(&at).filter(|frame| frame.len() == bytes.len());
            bytes.copy_from_slice(frame.ok_or(std::io::ErrorKind::InvalidData)?);
            Ok(())
        };
        let bytes = SegmentBytes::Read(&mut read);
        let loaded = CompactTable::load(SIZES, &mut &self.stream[..], (bytes, &|work| work()), &memory)?;
        let (table, items) = loaded.expect("the lengths are those of the image");
        assert_eq!(items, table.stats().items);
        Ok(Client { table, participant: memory.participate(), memory })
    }

    fn make_checksums_right(&mut self) {
        let records = self.stream[HEAD_BYTES..].chunks_exact_mut(RECORD_BYTES);
        for (record, (at, bytes)) in records.zip(&self.frames) {
            let secrets = RapidSecrets::seed(at / FRAME_BYTES as u64);
            record[8..].copy_from_slice(&rapidhash_v3_inline::<true, false, false>(bytes, &secrets).to_le_bytes());
        }
    }
}

/// A generator of numbers.
fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |bound| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    }
}

#[test]
fn a_loaded_table_is_the_saved_one() {
    let client = client(5 * MIB / 2);
    client.fill(0..80_000);
    (0..20_000).for_each(|number| drop(client.get(number * 4, 0)));
    client.table.flush(&client.participant, 0, 50_000);
    let saved = client.image();
    assert_eq!((saved.frames.len(), saved.stream.len()), (2, HEAD_BYTES + 2 * RECORD_BYTES));
    let loaded = saved.load().unwrap();
    loaded.table.verify();
    assert!(loaded.image() == saved, "an image of an image is the same");
    assert_eq!(loaded.table.stats(), client.table.stats());
    assert_eq!(loaded.table.memory_bytes(), 5 * MIB / 2);
    let stats = client.table.stats();
    assert!(stats.evictions > 0 && stats.negatives > 10_000 && stats.promotions > 0);
    for number in 0..80_000 {
        assert_eq!(loaded.get(number, 9_999), client.get(number, 9_999), "{number}");
        assert!(!number.is_multiple_of(5) || loaded.get(number, 10_000) == CompactLookup::Miss);
    }
    assert_eq!(
        (loaded.get(79_999, 49_999), loaded.get(79_999, 50_000)),
        (CompactLookup::Hit(vec![79_999_u64 as u8; 12]), CompactLookup::Miss,)
    );
    assert_eq!(loaded.table.stats().items, 0, "the flush that was to come has come");
    loaded.fill(0..1000);
    loaded.table.resize(9 * MIB).unwrap();
    loaded.maintain();
    loaded.table.verify();
    assert_eq!(loaded.table.stats().items, 1000);
}

#[test]
fn a_table_saved_mid_resize_resumes_it() {
    for (before, after) in [(3 * MIB / 2, 5 * MIB / 2), (5 * MIB / 2, 3 * MIB / 2)] {
        for slices in [0, 1, 2, 5, 9, 12, 15, 18, 21, 22, 23] {
            let client = client(before);
            client.fill(0..8000);
            client.table.resize(after).unwrap();
            (0..slices).for_each(|_| _ = client.table.maintain(&client.participant, 0));
            let items = client.table.stats().items;
            let loaded = client.image().load().unwrap();
            loaded.table.verify();
            assert_eq!((loaded.table.stats().items, loaded.table.memory_bytes()), (items, after));
            (0..8000).for_each(|number| assert_eq!(loaded.get(number, 0), client.get(number, 0), "{number}"));
            loaded.maintain();
            loaded.table.verify();
            assert!(loaded.table.resize_done() && loaded.table.held_bytes() <= after);
            assert!(loaded.memory.lent_bytes() <= after.next_multiple_of(FRAME_BYTES as u64));
        }
    }
}

#[test]
fn damaged_table_images_are_errors() {
    let client = client(MIB / 4);
    client.fill(0..3000);
    let saved = client.image();
    for length in 0..saved.stream.len() {
        let cut = Image { stream: saved.stream[..length].to_vec(), frames: saved.frames.clone() };
        assert!(matches!(cut.load(), Err(ImageError::Io(_))), "cut at {length}");
    }
    for at in 0..saved.stream.len() {
        for bit in [0, at % 8] {
            let mut image = saved.clone();
            image.stream[at] ^= 1 << bit;
            // Lengths: the pool is another one.
            if (12..24).contains(&at) {
                let memory = EngineMemory::reserve(64 * MIB, 1).unwrap();
                let source = &mut &image.stream[..];
                let loaded = CompactTable::load(SIZES, source, (SegmentBytes::InPlace, &|work| work()), &memory);
                assert!(matches!(loaded, Ok(None) | Err(ImageError::Damaged(_))), "byte {at}");
                assert!(loaded.is_err() || source.is_empty(), "the image is skipped");
                continue;
            }
            if let Ok(loaded) = image.load() {
                // The memory, another resize before or after its walk, the flush that was to come, counters.
                assert!((40..56).contains(&at) || (64..120).contains(&at), "byte {at}");
                loaded.table.verify();
            }
        }
    }
    let mut random = random(3);
    for _ in 0..60 {
        let mut image = saved.clone();
        let place = random(image.frames.len());
        let frame = image.frames.values_mut().nth(place).unwrap();
        let at = random(frame.len());
        frame[at] ^= 1 << random(8);
        assert!(matches!(image.load(), Err(ImageError::Damaged(_))));
    }
}

#[test]
fn sets_that_contradict_themselves_are_refused() {
    let client = client(MIB / 4);
    client.fill(0..3000);
    let saved = client.image();
    let layout = layout::Layout::new(SIZES).unwrap();
    let (mut random, mut refused) = (random(4), 0);
    for number in 0..80 {
        let mut image = saved.clone();
        let frame = image.frames.values_mut().next_back().unwrap();
        // Control words of 400 sets that are in use, and these sets.
        let sets = layout.set_at(0);
        let at = if number % 2 == 0 { random(8 * 400) } else { sets + random(frame.len() - sets) };
        frame[at] ^= 1 << random(8);
        image.make_checksums_right();
        match image.load() {
            Err(ImageError::Damaged(_)) => refused += 1,
            Err(other) => panic!("{other}"),
            // A value, an expiry, a sequence, a bit of a negative result, or a byte that no entry has.
            Ok(loaded) => loaded.table.verify(),
        }
    }
    assert!((25..75).contains(&refused), "{refused} of 80");
    // Another set's entries, a set twice, and an entry behind the sets in use.
    let (one, other) = (layout.set_at(5), layout.set_at(6));
    let forged = |forge: &dyn Fn(&mut Vec<u8>)| {
        let mut image = saved.clone();
        forge(image.frames.values_mut().next_back().unwrap());
        image.make_checksums_right();
        match image.load() {
            Err(ImageError::Damaged(damage)) => damage,
            other => panic!("{:?}", other.map(drop)),
        }
    };
    let bytes = layout.entry_bytes;
    assert!(forged(&|frame| frame.copy_within(one..one + bytes, other)).contains("no set of its hash"));
    assert!(forged(&|frame| frame.copy_within(one..one + bytes, one + bytes)).contains("twice"));
    let last = layout.control_at(layout.sets_per_frame - 1);
    assert!(forged(&|frame| frame[last] |= 1 << 1).contains("counts other entries"));
    assert!(forged(&|frame| frame[layout.control_at(5)] |= 1).contains("locked"));
}

#[test]
fn reads_after_changes_are_refused_leave_the_image() {
    let client = client(MIB);
    client.fill(0..30_000);
    client.table.flush(&client.participant, 0, 1000);
    client.memory.domain.refuse_changes();
    assert!(!client.memory.domain.has_changes());
    let (saved, promotions) = (client.image(), client.table.stats().promotions);
    let hits = (0..30_000).filter(|number| client.get(*number, 999) != CompactLookup::Miss).count();
    assert!(hits > 20_000 && client.table.stats().promotions == promotions, "{hits}");
    assert!((0..30_000).all(|number| client.get(number, 1000) == CompactLookup::Miss), "flushed");
    assert!(client.image() == saved);
}

#[test]
fn frames_of_an_image_belong_to_one_table() {
    let client = client(3 * MIB);
    client.fill(0..1000);
    let saved = client.image();
    let mut image = saved.clone();
    let frame: [u8; 4] = image.stream[HEAD_BYTES..][..4].try_into().unwrap();
    image.stream[HEAD_BYTES + RECORD_BYTES..][..4].copy_from_slice(&frame);
    assert!(matches!(image.load(), Err(ImageError::Damaged(_))), "a frame twice");
    let first = saved.load().unwrap();
    let mut read = |_: u64, _: &mut [u8]| Ok(());
    let bytes = SegmentBytes::Read(&mut read);
    let loaded = CompactTable::load(SIZES, &mut &saved.stream[..], (bytes, &|work| work()), &first.memory);
    assert!(matches!(loaded, Err(ImageError::Damaged(_))), "another table has the frames");
    first.table.verify();
}

/// An image that another build of the same format reads. A change of the number needs another version.
#[test]
fn a_tables_image_has_golden_bytes() {
    let client = client(3 * MIB);
    client.fill(0..5000);
    let saved = client.image();
    let all = saved.frames.values().flatten().chain(&saved.stream);
    let fnv =
        all.fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3));
    assert_eq!(&saved.stream[..24], b"EBBTABLE\x02\0\0\0\x10\0\0\0\x0C\0\0\0\x01\0\0\0");
    assert_eq!((saved.stream.len(), fnv), (156, 17_561_675_790_641_027_634), "golden");
}
