//! The image of a store, and that of a compact table (`table`): whatever headers, buckets and items it has, it is
//! refused, or it becomes a store that keeps every invariant and goes on.
//!
//! The input is a list of changes to a sound image, 6 bytes each. Checksums of segments are made right afterwards, so
//! that the checks behind them are reached:
//!
//! ```text
//! change    place u32, even: in segment records and buckets, odd: in the bytes of segments | operation u8 | operand u8
//! ```

use std::collections::BTreeMap;
use std::sync::OnceLock;

use ebbtide_store::{
    Change, Count, Error, ImageError, Mode, Options, Participant, Policy, Progress, SegmentBytes, Store, Ttl, Write,
};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};

const CHANGE_BYTES: usize = 6;
/// More changes hide each other.
const CHANGES_MAX: usize = 64;
const NOW_MS: u64 = 1_000_000;
const KEYS: u32 = 300;
const SEGMENT_SIZE: u32 = 4096;
const SEGMENT_BYTES: u32 = SEGMENT_SIZE + SEGMENT_SIZE / 64;
/// Bytes of a segment's record before its checksum.
const RECORD_BYTES: usize = 104;

/// An image, with its segments by their offset in the memory of the engine.
#[derive(Clone)]
struct Image {
    stream: Vec<u8>,
    segments: BTreeMap<u64, Vec<u8>>,
    /// Where in the stream the checksums of these segments are.
    checksums: Vec<usize>,
}

pub fn check(input: &[u8]) {
    static SOUND: OnceLock<Image> = OnceLock::new();
    let mut image = SOUND.get_or_init(sound).clone();
    let changes: Vec<&[u8]> = input.chunks_exact(CHANGE_BYTES).take(CHANGES_MAX).collect();
    crate::table::check(&changes);
    changes.iter().for_each(|change| image.change(change));
    image.make_checksums_right();
    let segments = &image.segments;
    let mut read = |at: u64, bytes: &mut [u8]| {
        let segment = segments.get(&at).filter(|segment| segment.len() >= bytes.len());
        bytes.copy_from_slice(&segment.ok_or(std::io::ErrorKind::UnexpectedEof)?[..bytes.len()]);
        Ok(())
    };
    match Store::load(&options(), &mut &image.stream[..], SegmentBytes::Read(&mut read)) {
        Ok((store, _)) => go_on(&store),
        Err(ImageError::Foreign(reason)) => panic!("the head was not changed: {reason}"),
        Err(_) => {}
    }
}

fn options() -> Options {
    Options {
        memory_bytes: 512 << 10,
        memory_bytes_max: Some(1 << 20),
        segment_size: Some(SEGMENT_SIZE),
        value_bytes_max: 64 << 10,
        policy: Policy::default(),
        seed: 5,
        writers: 1,
        ..Options::default()
    }
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Writes until there is memory. False if the value cannot be stored.
fn set(store: &Store, participant: &Participant, number: u32, value: &[u8], ttl: Ttl, now_ms: u64) -> bool {
    let key = key(number);
    let write = Write {
        key: &key,
        hash: store.hash(&key),
        value,
        flags: (number % 3).into(),
        ttl,
        mode: Mode::Set,
        token: None,
    };
    loop {
        let needed = match store.write(participant, &write, now_ms) {
            Ok(_) => return true,
            Err(Error::NeedSegment) => 1,
            Err(Error::NeedSegments { count }) => count,
            Err(_) => return false,
        };
        // Ends: an eviction that frees nothing is stuck.
        if store.evict_for(participant, now_ms, needed) == Progress::Stuck {
            return false;
        }
    }
}

fn sound() -> Image {
    let store = Store::new(options()).expect("the options are sound");
    let participant = store.participate();
    for number in 0..KEYS {
        let value = vec![number as u8; if number % 50 == 7 { 9000 } else { number as usize % 400 }];
        let ttl = match number % 4 {
            1 => Ttl::Seconds(60 + number),
            3 => Ttl::Until(NOW_MS / 1000 + u64::from(150 + number)),
            _ => Ttl::Never,
        };
        assert!(set(&store, &participant, number, &value, ttl, NOW_MS));
    }
    for number in 0..20 {
        assert!(set(&store, &participant, number, b"17", Ttl::Never, NOW_MS));
        let (key, count) = (key(number), Count::plain(Change::Add(1)));
        store.change_number(&participant, (&key, store.hash(&key)), &count, NOW_MS).expect("a number");
        store.delete(&participant, &key, store.hash(&key), NOW_MS);
    }
    let (mut stream, mut segments) = (Vec::new(), BTreeMap::new());
    let mut keep = |at: u64, bytes: &[u8]| {
        segments.insert(at, bytes.to_vec());
        Ok(())
    };
    store.save(&participant, NOW_MS, &mut stream, &mut keep).expect("memory takes all bytes");
    let place = |(at, bytes): (&u64, &Vec<u8>)| {
        let checksum = checksum(*at, bytes).to_le_bytes();
        stream.windows(checksum.len()).position(|window| window == checksum).expect("each segment has a record")
    };
    let checksums = segments.iter().map(place).collect();
    Image { stream, segments, checksums }
}

fn checksum(at: u64, bytes: &[u8]) -> u64 {
    let secrets = RapidSecrets::seed(at / u64::from(SEGMENT_BYTES) + 1);
    rapidhash_v3_inline::<true, false, false>(bytes, &secrets)
}

impl Image {
    fn change(&mut self, change: &[u8]) {
        let place = u32::from_le_bytes([change[0], change[1], change[2], change[3]]) as usize;
        let head = self.checksums.iter().min().expect("there are segments") - RECORD_BYTES;
        let byte = if place.is_multiple_of(2) {
            let length = self.stream.len() - head;
            &mut self.stream[head + place / 2 % length]
        } else {
            let count = self.segments.len();
            let segment = self.segments.values_mut().nth(place / 2 % count).expect("a remainder is less");
            let length = segment.len();
            &mut segment[place / 2 / count % length]
        };
        *byte = match change[4] % 3 {
            0 => *byte ^ change[5],
            1 => byte.wrapping_add(change[5]),
            _ => change[5],
        };
    }

    /// Gives the record that had the checksum of a segment that of its bytes now.
    fn make_checksums_right(&mut self) {
        for ((at, bytes), place) in self.segments.iter().zip(&self.checksums) {
            self.stream[*place..*place + 8].copy_from_slice(&checksum(*at, bytes).to_le_bytes());
        }
    }
}

/// Uses a store that was loaded.
fn go_on(store: &Store) {
    let participant = store.participate();
    store.verify(&participant, NOW_MS);
    for number in 0..KEYS {
        let key = key(number);
        if let Some(item) = store.get(&participant, &key, store.hash(&key), NOW_MS) {
            let mut value = Vec::new();
            item.copy_to(&mut value);
            assert_eq!(value.len(), item.len());
        }
    }
    for number in 0..KEYS {
        set(store, &participant, number * 2, &[7; 300], Ttl::Seconds(90), NOW_MS + 1);
        let key = key(number);
        store.delete(&participant, &key, store.hash(&key), NOW_MS + 1);
    }
    while store.maintain(&participant, NOW_MS + 200_000) == Progress::Working {}
    store.verify(&participant, NOW_MS + 200_000);
}
