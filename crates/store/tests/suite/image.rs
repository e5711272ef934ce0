//! A store that is loaded from its image equals the store that was saved, and continues like it.

mod live;

use ebbtide_store::{
    Change, Changed, Count, EngineMemory, Error, Extension, ImageError, Loaded, MetaFlags, MetaFlagsChange,
    MetaFlagsLookup, Mode, Options, Participant, Policy, Progress, Scan, SegmentBytes, Store, Ttl, Write,
};
use ebbtide_testkit::Random;
use std::collections::BTreeMap;
use std::sync::Arc;

const START_MS: u64 = 5_000_000;

fn options(policy: Policy) -> Options {
    Options { memory_bytes: 8 << 20, memory_bytes_max: Some(32 << 20), seed: 77, policy, ..Options::default() }
}

/// All that a client can tell of an entry.
#[derive(Debug, PartialEq)]
struct Entry {
    value: Vec<u8>,
    flags: u32,
    expiry_seconds: Option<u64>,
    token: u64,
    extension: Extension,
    frequency: u8,
}

fn entries(store: &Arc<Store>, participant: &Participant, now_ms: u64) -> BTreeMap<Vec<u8>, Entry> {
    let (mut found, mut scan) = (BTreeMap::new(), store.scan().unwrap());
    let visit = |scan: &mut Scan<_>, found: &mut BTreeMap<_, _>| {
        scan.advance(participant, now_ms, |scanned| {
            let item = scanned.item;
            let mut value = Vec::new();
            item.copy_to(&mut value);
            let (flags, expiry_seconds, token) = (item.flags().of_client(), item.expiry_seconds(), item.token());
            let extension = item.extension();
            let entry = Entry { value, flags, expiry_seconds, token, extension, frequency: scanned.frequency };
            found.insert(item.key().to_vec(), entry);
        })
    };
    while visit(&mut scan, &mut found) {}
    found
}

/// Random changes, and the time after them.
fn churn(store: &Store, participant: &Participant, random: &mut Random, mut now_ms: u64, steps: u32) -> u64 {
    for _ in 0..steps {
        now_ms += random.uniform(20);
        let key = (random.uniform(6000) as u32).to_le_bytes();
        let hash = store.hash(&key);
        let ttl = match random.uniform(5) {
            0 => Ttl::Never,
            1 => Ttl::Seconds(30),
            2 => Ttl::Seconds(600),
            3 => Ttl::Seconds(86_400),
            _ => Ttl::Until(now_ms / 1000 + random.between(1, 100_000)),
        };
        let value = match random.uniform(1000) {
            0 => random.bytes(300_000),
            1..300 => random.number().to_string().into_bytes(),
            _ => {
                let length = random.uniform(2500) as usize;
                random.bytes(length)
            }
        };
        let flags = if random.chance(30) { random.number() as u32 } else { 0 };
        let token = random.chance(5).then(|| random.between(1, 1 << 40));
        let kind = random.uniform(10);
        let once = || match kind {
            0..5 => {
                let write = Write { key: &key, hash, value: &value, flags: flags.into(), ttl, mode: Mode::Set, token };
                store.write(participant, &write, now_ms).map(drop)
            }
            5 => {
                let count = Count::plain(Change::Add(7));
                match store.change_number(participant, (&key, hash), &count, now_ms) {
                    Err(Error::NotNumeric) => Ok(()),
                    answer => answer.map(|_: Changed<_>| ()),
                }
            }
            6 => {
                store.delete(participant, &key, hash, now_ms);
                Ok(())
            }
            7 => {
                let lookup = MetaFlagsLookup { create: None, counts: true };
                let change = MetaFlagsChange { ttl: None, flags: MetaFlags::Stale { token: None } };
                store.update_meta_flags(participant, (&key, hash), lookup, now_ms, |_| Some(change)).map(drop)
            }
            _ => {
                store.get(participant, &key, hash, now_ms);
                Ok(())
            }
        };
        while let Err(error) = once() {
            match error {
                Error::NeedSegment => assert_ne!(store.evict(participant, now_ms), Progress::Stuck),
                Error::NeedSegments { count } => {
                    assert_ne!(store.evict_for(participant, now_ms, count), Progress::Stuck);
                }
                other => panic!("{other}"),
            }
        }
        store.maintain(participant, now_ms);
    }
    now_ms
}

/// An image, and the bytes of segments by their offset in the memory of the engine.
#[derive(Clone, Default, PartialEq)]
struct Image {
    stream: Vec<u8>,
    segments: BTreeMap<u64, Vec<u8>>,
}

fn image(store: &Store, participant: &Participant, now_ms: u64) -> Image {
    let mut image = Image::default();
    append_image(&mut image, store, participant, now_ms);
    image
}

fn append_image(image: &mut Image, store: &Store, participant: &Participant, now_ms: u64) {
    let Image { stream, segments } = image;
    let mut keep = |at: u64, bytes: &[u8]| {
        assert!(segments.insert(at, bytes.to_vec()).is_none(), "a place has one segment");
        Ok(())
    };
    store.save(participant, now_ms, stream, &mut keep).unwrap();
}

fn read_segment(image: &Image, at: u64, bytes: &mut [u8]) -> std::io::Result<()> {
    let segment = image.segments.get(&at).filter(|segment| segment.len() == bytes.len());
    bytes.copy_from_slice(segment.ok_or(std::io::ErrorKind::InvalidData)?);
    Ok(())
}

fn load(policy: Policy, image: &Image) -> Result<(Store, Loaded), ImageError> {
    let mut read = |at: u64, bytes: &mut [u8]| read_segment(image, at, bytes);
    Store::load(&options(policy), &mut &image.stream[..], SegmentBytes::Read(&mut read))
}

#[test]
fn a_loaded_store_is_the_saved_one() {
    let policies = [Policy::S3Fifo, Policy::Merge, Policy::MergeSketch, Policy::TwoQ, Policy::Lru];
    for (number, policy) in policies.into_iter().enumerate() {
        let mut random = Random::new(number as u64);
        let store = Arc::new(Store::new(options(policy)).unwrap());
        let participant = store.participate();
        let mut now_ms = churn(&store, &participant, &mut random, START_MS, 20_000);
        if number == 1 {
            store.resize(12 << 20).unwrap();
            now_ms = churn(&store, &participant, &mut random, now_ms, 10_000);
        }
        store.flush(now_ms, 400_000);
        let saved = image(&store, &participant, now_ms);
        let before = entries(&store, &participant, now_ms);
        assert!(before.len() > 1000 && before.values().any(|entry| entry.value.len() > 200_000));
        assert!(before.values().any(|entry| entry.extension.stale) && before.values().any(|entry| entry.frequency > 1));
        let (loaded, told) = load(policy, &saved).unwrap();
        let loaded = Arc::new(loaded);
        let reader = loaded.participate();
        assert_eq!(told.now_ms, now_ms);
        loaded.verify(&reader, now_ms);
        assert!(entries(&loaded, &reader, now_ms) == before, "seed {number}");
        assert_eq!(loaded.memory_bytes(), store.memory_bytes());
        let (old, new) = (store.stats(), loaded.stats());
        assert_eq!((new.evictions, new.stored_total, new.expired), (old.evictions, old.stored_total, old.expired));
        assert!(image(&loaded, &reader, now_ms) == saved, "an image of an image is the same");
        // It continues: writes, evictions, expiry, another restart, the pending flush.
        now_ms = churn(&loaded, &reader, &mut random, now_ms, 10_000);
        loaded.verify(&reader, now_ms);
        let saved = image(&loaded, &reader, now_ms);
        let (again, _) = load(policy, &saved).unwrap();
        let again = Arc::new(again);
        let reader = again.participate();
        while again.maintain(&reader, now_ms + 700_000) == Progress::Working {}
        assert_eq!(entries(&again, &reader, now_ms + 700_000).len(), 0, "flushed");
        again.verify(&reader, now_ms + 700_000);
    }
}

#[test]
fn stores_are_loaded_into_their_own_frames() {
    let memory = EngineMemory::reserve(64 << 20, 3).unwrap();
    let participant = memory.participate();
    let build = || Arc::new(Store::build(options(Policy::S3Fifo), &memory).unwrap());
    let (store, other) = (build(), build());
    let mut random = Random::new(11);
    let mut now_ms = START_MS;
    // Frames of both change hands: neither has its frames in order.
    for megabytes in [20, 6, 24, 10] {
        now_ms = churn(&store, &participant, &mut random, now_ms, 4000);
        churn(&other, &participant, &mut random, now_ms, 1000);
        for (store, megabytes) in [(&other, 30 - megabytes), (&store, megabytes), (&other, 30 - megabytes)] {
            store.resize(megabytes << 20).unwrap();
            while !store.resize_done() {
                store.maintain(&participant, now_ms);
            }
        }
    }
    let (before, beside) = (entries(&store, &participant, now_ms), entries(&other, &participant, now_ms));
    assert!(before.values().chain(beside.values()).any(|entry| entry.value.len() > 200_000));
    let mut saved = image(&store, &participant, now_ms);
    let length = saved.stream.len();
    append_image(&mut saved, &other, &participant, now_ms);
    assert!(memory.lent_bytes() > 25 << 20);

    let memory = EngineMemory::reserve(64 << 20, 3).unwrap();
    let participant = memory.participate();
    let load = |source: &mut &[u8]| {
        let mut read = |at: u64, bytes: &mut [u8]| read_segment(&saved, at, bytes);
        let bytes = SegmentBytes::Read(&mut read);
        Store::load_in(&options(Policy::S3Fifo), source, false, (bytes, &|work| work()), |_| Ok(memory.clone()))
            .map(|(store, _)| Arc::new(store))
    };
    let mut source = &saved.stream[..];
    let (store, other) = (load(&mut source).unwrap(), load(&mut source).unwrap());
    assert!(source.is_empty());
    let again = load(&mut &saved.stream[..]).err();
    assert!(matches!(again, Some(ImageError::Damaged(_))), "another store has the frames: {again:?}");
    let _new = Store::build(options(Policy::Lru), &memory).unwrap();
    assert!(entries(&store, &participant, now_ms) == before && entries(&other, &participant, now_ms) == beside);
    let later = churn(&store, &participant, &mut random, now_ms, 4000);
    [store, other].iter().for_each(|store| store.verify(&participant, later));

    let mut source = &saved.stream[..];
    Store::skip_image(&mut source).unwrap();
    assert_eq!(source.len(), saved.stream.len() - length);
    assert!(Store::skip_image(&mut &saved.stream[..length - 1]).is_err(), "it is cut short");
}

#[test]
fn items_expired_since_the_save_are_freed() {
    let store = Store::new(options(Policy::S3Fifo)).unwrap();
    let participant = store.participate();
    for number in 0..3000_u32 {
        let (key, ttl) = (number.to_le_bytes(), if number % 2 == 0 { Ttl::Seconds(60) } else { Ttl::Seconds(6000) });
        let write = Write {
            key: &key,
            hash: store.hash(&key),
            value: &[7; 900],
            flags: 0.into(),
            ttl,
            mode: Mode::Set,
            token: None,
        };
        store.write(&participant, &write, START_MS).unwrap();
    }
    let saved = image(&store, &participant, START_MS);
    let (loaded, _) = load(Policy::S3Fifo, &saved).unwrap();
    let loaded = Arc::new(loaded);
    let reader = loaded.participate();
    let later = START_MS + 61_000;
    while loaded.maintain(&reader, later) == Progress::Working {}
    assert_eq!((entries(&loaded, &reader, later).len(), loaded.stats().items), (1500, 1500));
    assert!(loaded.stats().segments_free > store.stats().segments_free);
    loaded.verify(&reader, later);
}

#[test]
fn another_memory_is_reached_after_the_start() {
    let store = Store::new(options(Policy::S3Fifo)).unwrap();
    let participant = store.participate();
    let now_ms = churn(&store, &participant, &mut Random::new(9), START_MS, 20_000);
    let saved = image(&store, &participant, now_ms);
    for memory in [4 << 20, 30 << 20] {
        let (loaded, _) = load(Policy::Lru, &saved).unwrap();
        let reader = loaded.participate();
        loaded.resize(memory).unwrap();
        while !loaded.resize_done() {
            loaded.maintain(&reader, now_ms);
        }
        churn(&loaded, &reader, &mut Random::new(3), now_ms, 3000);
        loaded.verify(&reader, now_ms + 100_000);
        assert_eq!(loaded.memory_bytes(), memory);
    }
}

#[test]
fn stores_load_with_another_writer_count() {
    let few = Options { writers: 1, ..options(Policy::S3Fifo) };
    let store = Arc::new(Store::new(few).unwrap());
    let participant = store.participate();
    let now_ms = churn(&store, &participant, &mut Random::new(12), START_MS, 5000);
    let before = entries(&store, &participant, now_ms);
    let image = image(&store, &participant, now_ms);
    for writers in [1, 7, 64] {
        let other = Options { writers, ..options(Policy::S3Fifo) };
        let bytes = SegmentBytes::Read(&mut |at, bytes| read_segment(&image, at, bytes));
        let loaded = Arc::new(Store::load(&other, &mut image.stream.as_slice(), bytes).unwrap().0);
        let reader = loaded.participate();
        assert_eq!(entries(&loaded, &reader, now_ms), before);
        loaded.resize(loaded.memory_bytes()).unwrap();
        let now_ms = churn(&loaded, &reader, &mut Random::new(4), now_ms, 3000);
        loaded.verify(&reader, now_ms);
    }
}

#[test]
fn a_small_stores_image_loads_into_larger_memory() {
    let small = Options { memory_bytes: 1 << 20, value_bytes_max: 1 << 19, ..options(Policy::S3Fifo) };
    let store = Arc::new(Store::new(small).unwrap());
    let participant = store.participate();
    let now_ms = churn(&store, &participant, &mut Random::new(11), START_MS, 500);
    let image = image(&store, &participant, now_ms);
    let large = Options { memory_bytes: 16 << 20, value_bytes_max: 4 << 20, ..options(Policy::S3Fifo) };
    let bytes = SegmentBytes::Read(&mut |at, bytes| read_segment(&image, at, bytes));
    let (loaded, _) = Store::load(&large, &mut image.stream.as_slice(), bytes).unwrap();
    loaded.resize(16 << 20).unwrap();
    let value = vec![7; 4 << 20];
    let write = Write {
        key: b"long",
        hash: loaded.hash(b"long"),
        value: &value,
        flags: 0.into(),
        ttl: Ttl::Never,
        mode: Mode::Set,
        token: None,
    };
    let participant = loaded.participate();
    loaded.write(&participant, &write, now_ms).unwrap();
    assert_eq!(loaded.options().value_bytes_max, 4 << 20);
    loaded.verify(&participant, now_ms);
}

#[test]
fn a_shrink_interrupted_by_a_stop_completes() {
    let store = Store::new(options(Policy::S3Fifo)).unwrap();
    let participant = store.participate();
    let now_ms = churn(&store, &participant, &mut Random::new(9), START_MS, 20_000);
    store.resize(4 << 20).unwrap();
    assert!(!store.resize_done());
    let (loaded, _) = load(Policy::S3Fifo, &image(&store, &participant, now_ms)).unwrap();
    let reader = loaded.participate();
    assert!(!loaded.resize_done());
    while !loaded.resize_done() {
        loaded.maintain(&reader, now_ms);
    }
    loaded.verify(&reader, now_ms);
    assert_eq!(loaded.memory_bytes(), 4 << 20);
}

#[test]
fn a_damaged_image_is_an_error() {
    let store = Store::new(options(Policy::S3Fifo)).unwrap();
    let participant = store.participate();
    let now_ms = churn(&store, &participant, &mut Random::new(5), START_MS, 3000);
    let saved = image(&store, &participant, now_ms);
    let mut random = Random::new(6);
    for _ in 0..40 {
        let length = random.uniform(saved.stream.len() as u64) as usize;
        let cut = Image { stream: saved.stream[..length].to_vec(), segments: saved.segments.clone() };
        assert!(matches!(load(Policy::S3Fifo, &cut), Err(ImageError::Io(_))), "cut at {length}");
    }
    let with = |at: usize, byte: u8| {
        let mut image = saved.clone();
        image.stream[at] ^= byte;
        load(Policy::S3Fifo, &image).map(drop)
    };
    assert!(matches!(with(0, 1), Err(ImageError::Foreign(_))), "another program");
    assert!(matches!(with(8, 2), Err(ImageError::Foreign(_))), "another format");
    assert!(matches!(with(17, 1), Err(ImageError::Foreign(_))), "another seed");
    let another_hash = ImageError::Foreign("another hash function was used".to_owned());
    assert_eq!(with(25, 1).unwrap_err().to_string(), another_hash.to_string());
    // Every bit of the head is checked, or harmless: no value causes a panic.
    for at in 0..400 {
        for bit in [1, 0x10, 0x80] {
            let _ = with(at, bit);
        }
    }
    // A segment that has changed is found.
    for _ in 0..40 {
        let mut image = saved.clone();
        let number = random.uniform(image.segments.len() as u64) as usize;
        let segment = image.segments.values_mut().nth(number).unwrap();
        let at = random.uniform(segment.len() as u64) as usize;
        segment[at] ^= 1 << random.uniform(8);
        assert!(matches!(load(Policy::S3Fifo, &image), Err(ImageError::Damaged(_))));
    }
}

/// The words of an image's buckets, and the bytes before them.
fn split_buckets(image: &Image, buckets: usize) -> (Vec<u8>, Vec<u64>) {
    let (head, words) = image.stream.split_at(image.stream.len() - 64 * buckets);
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    (head.to_vec(), words.chunks_exact(8).map(word).collect())
}

#[test]
fn an_index_that_names_no_items_is_refused() {
    let store = Store::new(options(Policy::S3Fifo)).unwrap();
    let participant = store.participate();
    let mut random = Random::new(12);
    let now_ms = churn(&store, &participant, &mut random, START_MS, 6000);
    let saved = image(&store, &participant, now_ms);
    let stats = store.stats();
    let buckets = (stats.items as f64 / stats.index_load / 7.0).round() as usize;
    let (head, sound) = split_buckets(&saved, buckets);
    let mut refused = 0;
    for number in 0..60 {
        let mut words = sound.clone();
        let used: Vec<_> = (0..words.len()).filter(|at| at % 8 != 0 && words[*at] != 0).collect();
        let free: Vec<_> = (0..words.len()).filter(|at| at % 8 != 0 && words[*at] == 0).collect();
        let mut any = |places: &[usize]| places[random.uniform(places.len() as u64) as usize];
        let (one, other, empty) = (any(&used), any(&used), any(&free));
        match number % 6 {
            // Another byte of the segment, another segment, another tag.
            0 => words[one] ^= 1 << (number % 15),
            1 => words[one] ^= 1 << (20 + number % 24),
            2 => words[one] ^= 1 << (52 + number % 12),
            // An item with two slots, in a bucket of its key or not; a slot in another bucket.
            3 => words[empty] = words[one],
            4 => words.swap(one, empty),
            _ => words[one] = words[other],
        }
        let stream = head.iter().copied().chain(words.iter().flat_map(|word| word.to_le_bytes())).collect();
        match load(Policy::S3Fifo, &Image { stream, segments: saved.segments.clone() }) {
            Err(ImageError::Damaged(_)) => refused += 1,
            Err(other) => panic!("change {number}: {other}"),
            // A slot that moved to the other bucket of its key, or was changed to itself.
            Ok((loaded, _)) => loaded.verify(&loaded.participate(), now_ms),
        }
    }
    assert!(refused >= 50, "{refused} of 60");
}

/// Where a slot says that its item is: the segment, and the byte in it.
fn location(slot: u64) -> (u64, usize) {
    (((slot >> 21) & 0x7F_FFFF) - 1, (slot & 0x1F_FFFF) as usize)
}

/// The checksum of the bytes of a segment, counted from 0.
fn checksum(segment: u64, bytes: &[u8]) -> [u8; 8] {
    let secrets = rapidhash::v3::RapidSecrets::seed(segment + 1);
    rapidhash::v3::rapidhash_v3_inline::<true, false, false>(bytes, &secrets).to_le_bytes()
}

/// Where the record of a segment has its checksum.
fn checksum_place(head: &[u8], segment: u64, bytes: &[u8]) -> usize {
    let checksum = checksum(segment, bytes);
    head.windows(8).position(|window| window == checksum).expect("the record has the checksum")
}

/// Loads an image without any byte of its segments.
fn load_unread(stream: &[u8]) -> Result<(Store, Loaded), ImageError> {
    let reserve = |bytes| EngineMemory::reserve(bytes, 1);
    let bytes = (SegmentBytes::Unchanged, &(|work: &(dyn Fn() + Sync)| work()) as _);
    Store::load_in(&options(Policy::S3Fifo), &mut &stream[..], true, bytes, reserve)
}

#[test]
fn unchanged_segments_are_loaded_unread() {
    let store = Store::new(options(Policy::S3Fifo)).unwrap();
    let participant = store.participate();
    let mut random = Random::new(21);
    let now_ms = churn(&store, &participant, &mut random, START_MS, 20_000);
    let saved = image(&store, &participant, now_ms);
    // There is nothing in the memory of the loaded store that could be read.
    let (loaded, told) = load_unread(&saved.stream).unwrap();
    assert_eq!((told.items, told.now_ms), (store.stats().items, now_ms));
    let (before, after) = (store.segment_snapshot(now_ms), loaded.segment_snapshot(now_ms));
    assert_eq!((after.live_bytes, after.expired_bytes), (before.live_bytes, before.expired_bytes));
    let reserve = |bytes| EngineMemory::reserve(bytes, 1);
    let bytes = (SegmentBytes::InPlace, &(|work: &(dyn Fn() + Sync)| work()) as _);
    let read = Store::load_in(&options(Policy::S3Fifo), &mut &saved.stream[..], true, bytes, reserve).map(drop);
    assert!(matches!(read, Err(ImageError::Damaged(_))), "{read:?}");

    // No slot leads outside the bytes of the segments.
    let stats = store.stats();
    let buckets = (stats.items as f64 / stats.index_load / 7.0).round() as usize;
    let (head, sound) = split_buckets(&saved, buckets);
    let used: Vec<_> = (0..sound.len()).filter(|at| at % 8 != 0 && sound[*at] != 0).collect();
    let lengths: BTreeMap<_, _> = saved.segments.iter().map(|(at, bytes)| (at / stats.segment_bytes, bytes)).collect();
    for number in 0..200 {
        let mut words = sound.clone();
        let at = used[random.uniform(used.len() as u64) as usize];
        let (segment, _) = location(words[at]);
        let place = |segment: u64, offset: usize| (words[at] >> 44) << 44 | segment << 21 | offset as u64;
        words[at] = match number % 5 {
            // The end of the segment, the end of all addresses in it, no segment, one without memory, no slot.
            0 => place(segment + 1, lengths[&segment].len()),
            1 => place(segment + 1, 0x1F_FFFF),
            2 => place(0, 0) | 1 << 44,
            3 => place(0x7F_FFFF, 0),
            _ => 0,
        };
        let stream: Vec<_> = head.iter().copied().chain(words.iter().flat_map(|word| word.to_le_bytes())).collect();
        let refused = load_unread(&stream).map(drop);
        assert!(matches!(refused, Err(ImageError::Damaged(_))), "change {number}: {refused:?}");
    }
}

/// Forges an image whose checksums are right: items of 4 bytes of key, and one value with bodies.
#[test]
fn images_with_duplicate_or_orphaned_parts_are_refused() {
    let store = Store::new(options(Policy::S3Fifo)).unwrap();
    let participant = store.participate();
    for number in 0..40_u32 {
        let (key, value) = (number.to_le_bytes(), vec![number as u8; if number == 7 { 200_000 } else { 20 }]);
        let (ttl, mode) = (Ttl::Never, Mode::Set);
        let write = Write { key: &key, hash: store.hash(&key), value: &value, flags: 0.into(), ttl, mode, token: None };
        store.write(&participant, &write, START_MS).unwrap();
    }
    let saved = image(&store, &participant, START_MS);
    let stats = store.stats();
    let buckets = (stats.items as f64 / stats.index_load / 7.0).round() as usize;
    let (head, sound) = split_buckets(&saved, buckets);
    let load_with = |words: &[u64], head: &[u8], segments: &BTreeMap<u64, Vec<u8>>| {
        let stream = head.iter().copied().chain(words.iter().flat_map(|word| word.to_le_bytes())).collect();
        load(Policy::S3Fifo, &Image { stream, segments: segments.clone() }).map(|(store, _)| store)
    };
    let damage = |loaded: Result<Store, ImageError>| match loaded {
        Err(ImageError::Damaged(damage)) => Some(damage),
        Err(other) => panic!("{other}"),
        Ok(store) => {
            store.verify(&store.participate(), START_MS);
            None
        }
    };
    let used: Vec<_> = (0..sound.len()).filter(|at| at % 8 != 0 && sound[*at] != 0).collect();
    assert_eq!(used.len(), 40);
    // Without its slot an item is not live, and its bodies have no owner.
    let without = |at: &usize| {
        let (mut words, mut head) = (sound.clone(), head.clone());
        let (segment, offset) = location(words[*at]);
        let bytes = &saved.segments[&(segment * stats.segment_bytes)];
        let key_and_value = 4 + (u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap()) >> 8);
        let record = checksum_place(&head, segment, bytes);
        let live_items = &mut head[record - 16..record];
        live_items[0] -= 1;
        let live_bytes = u32::from_le_bytes(live_items[4..8].try_into().unwrap()) - 5 - (key_and_value & 0xF_FFFF);
        live_items[4..8].copy_from_slice(&live_bytes.to_le_bytes());
        if bytes[offset + 5..offset + 9] == 7_u32.to_le_bytes() {
            live_items[8..].fill(0);
        }
        words[*at] = 0;
        damage(load_with(&words, &head, &saved.segments))
    };
    let told: Vec<_> = used.iter().filter_map(without).collect();
    assert_eq!(told, ["a segment belongs to no value"]);

    // An item gets the key of another one, and a slot beside that one's.
    let value_of = |at: usize| {
        let (segment, offset) = location(sound[at]);
        let bytes = saved.segments.iter().find(|(start, _)| **start / stats.segment_bytes == segment).unwrap().1;
        (segment, offset, bytes[offset + 5..offset + 9].to_vec())
    };
    let short: Vec<_> = used.into_iter().filter(|at| value_of(*at).2 != 7_u32.to_le_bytes()).collect();
    let (one, other) = (short[0], short[1]);
    let (key, (segment, offset, _)) = (value_of(one).2, value_of(other));
    let (mut words, mut head, mut segments) = (sound.clone(), head, saved.segments.clone());
    let bucket = one / 8 * 8;
    let empty = (bucket + 1..bucket + 8).find(|at| words[*at] == 0 || *at == other).unwrap();
    let slot = (words[other] & ((1 << 52) - 1)) | ((words[one] >> 52) << 52);
    words[other] = 0;
    words[empty] = slot;
    let bytes = segments.get_mut(&(segment * stats.segment_bytes)).unwrap();
    let at = checksum_place(&head, segment, bytes);
    bytes[offset + 5..offset + 9].copy_from_slice(&key);
    head[at..at + 8].copy_from_slice(&checksum(segment, bytes));
    assert_eq!(damage(load_with(&words, &head, &segments)).as_deref(), Some("a key is there twice"));
}

/// An image that another build of the same format reads. A change of the number needs another format number.
#[test]
fn an_image_has_its_golden_bytes() {
    let options =
        Options { writers: 1, policy: Policy::Fifo, memory_bytes_max: Some(2 << 20), ..options(Policy::Fifo) };
    let store = Store::new(Options { memory_bytes: 1 << 20, value_bytes_max: 300_000, ..options }).unwrap();
    let participant = store.participate();
    for number in 0..200_u32 {
        let (key, value) = (number.to_le_bytes(), vec![number as u8; if number == 100 { 150_000 } else { 50 }]);
        let ttl = match number % 4 {
            1 => Ttl::Seconds(number),
            3 => Ttl::Until(START_MS / 1000 + u64::from(number * 1000)),
            _ => Ttl::Never,
        };
        let write = Write {
            key: &key,
            hash: store.hash(&key),
            value: &value,
            flags: number.into(),
            ttl,
            mode: Mode::Set,
            token: None,
        };
        store.write(&participant, &write, START_MS).unwrap();
    }
    let saved = image(&store, &participant, START_MS);
    let golden = |image: &Image| (image.stream.len(), fnv(image.segments.values().flatten().chain(&image.stream)));
    assert_eq!(golden(&saved), (6140, 385_767_509_385_318_069), "golden");
    assert_eq!(golden(&of_format_8(saved)), (6132, 4_861_164_686_194_327_752), "as builds with format 8 wrote it");
}

/// The same image in format 8, which has no count of demoted objects.
fn of_format_8(mut image: Image) -> Image {
    image.stream[8] = 8;
    image.stream.drain(224..232);
    image
}

fn fnv<'b>(bytes: impl Iterator<Item = &'b u8>) -> u64 {
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

/// As above, of what policies remember of evicted keys.
#[test]
fn histories_of_evicted_keys_are_golden() {
    let history = |policy| {
        let options = Options { writers: 1, memory_bytes_max: Some(1 << 20), ..options(policy) };
        let store = Store::new(Options { memory_bytes: 1 << 20, value_bytes_max: 300_000, ..options }).unwrap();
        let participant = store.participate();
        for number in 0..20_000_u32 {
            let key = number.to_le_bytes();
            let (hash, ttl, mode) = (store.hash(&key), Ttl::Never, Mode::Set);
            let write = Write { key: &key, hash, value: &[7; 100], flags: 0.into(), ttl, mode, token: None };
            while let Err(error) = store.write(&participant, &write, START_MS) {
                assert_eq!(error, Error::NeedSegment);
                assert_ne!(store.evict(&participant, START_MS), Progress::Stuck);
            }
        }
        let stream = image(&store, &participant, START_MS).stream;
        let words = history_words(&stream);
        assert!(words.chunks_exact(8).filter(|word| **word != [0; 8]).count() > words.len() / 16, "{policy:?}");
        (words.len(), fnv(words.iter()))
    };
    let golden =
        [(4120, 3_876_981_267_049_609_301), (4120, 1_375_198_126_096_856_703), (4104, 5_612_917_460_561_438_328)];
    assert_eq!([Policy::S3Fifo, Policy::TwoQ, Policy::MergeSketch].map(history), golden);
}

/// The words in the head of an image that follow the kind of the history and their number.
fn history_words(stream: &[u8]) -> &[u8] {
    let at = 8 + 2 * 4 + 5 * 8 + 2 * 4 + 3 * 8 + 2 * 4 + 3 * 8 + 14 * 8 + 4;
    let words = u32::from_le_bytes(stream[at..at + 4].try_into().unwrap()) as usize;
    &stream[at + 4..][..8 * words]
}
