//! Stores that share address space and epochs: memory moves between them while they work, and is free again when one is
//! dropped.

use ebbtide_store::{EngineMemory, Error, Mode, Options, Participant, Progress, Store, Ttl, Write};
use ebbtide_testkit::Random;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const MIB: u64 = 1 << 20;
const FRAME: u64 = 2080 << 10;
const NOW_MS: u64 = 1000;

fn options(memory_bytes: u64) -> Options {
    Options { memory_bytes, value_bytes_max: 64 << 10, writers: 2, ..Options::default() }
}

fn write(store: &Store, participant: &Participant, key: &[u8], value: &[u8]) {
    let (hash, ttl) = (store.hash(key), Ttl::Never);
    let write = Write { key, hash, value, flags: 0.into(), ttl, mode: Mode::Set, token: None };
    loop {
        match store.write(participant, &write, NOW_MS) {
            Ok(_) => return,
            Err(Error::NeedSegment) => {
                if store.evict(participant, NOW_MS) != Progress::Ready {
                    std::thread::yield_now();
                }
            }
            Err(other) => panic!("{other}"),
        }
    }
}

fn read(store: &Store, participant: &Participant, key: &[u8]) -> Option<Vec<u8>> {
    let item = store.get(participant, key, store.hash(key), NOW_MS)?;
    let mut value = Vec::new();
    item.copy_to(&mut value);
    Some(value)
}

/// The value of a key: it says whose it is, so that bytes of another store are found out.
fn value(store: usize, key: u32) -> Vec<u8> {
    let unit = [store as u8, key as u8, (key >> 8) as u8, 0xA5];
    unit.repeat(50 + (key % 100) as usize)
}

fn settle(store: &Store, participant: &Participant) {
    while store.maintain(participant, NOW_MS) == Progress::Working {}
}

#[test]
fn memory_moves_between_stores_that_work() {
    const TOTAL: u64 = 48 * MIB;
    const STEP: u64 = 3 * MIB;
    let memory = EngineMemory::reserve(TOTAL, 2).unwrap();
    let stores = [0; 2].map(|_| Store::build(options(TOTAL / 2), &memory).unwrap());
    let (is_over, hits) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (memory, stores, is_over, hits) = (&memory, &stores, &is_over, &hits);
            scope.spawn(move || {
                let participant = memory.participate();
                let mut random = Random::new(thread);
                while !is_over.load(Ordering::Relaxed) {
                    let (at, key) = (random.uniform(2) as usize, random.uniform(60_000) as u32);
                    match read(&stores[at], &participant, &key.to_le_bytes()) {
                        Some(found) => {
                            assert_eq!(found, value(at, key));
                            hits.fetch_add(1, Ordering::Relaxed);
                        }
                        None => write(&stores[at], &participant, &key.to_le_bytes(), &value(at, key)),
                    }
                }
            });
        }
        let participant = memory.participate();
        let mut random = Random::new(7);
        for _ in 0..40 {
            let giver = random.uniform(2) as usize;
            let (from, to) = (&stores[giver], &stores[1 - giver]);
            if from.memory_bytes() < 8 * MIB + STEP {
                continue;
            }
            from.resize(from.memory_bytes() - STEP).unwrap();
            while !from.resize_done() {
                from.maintain(&participant, NOW_MS);
            }
            to.resize(to.memory_bytes() + STEP).unwrap();
            let seen = hits.load(Ordering::Relaxed);
            while hits.load(Ordering::Relaxed) < seen + 500 {
                std::thread::yield_now();
            }
            assert_eq!(stores.iter().map(Store::memory_bytes).sum::<u64>(), TOTAL);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let participant = memory.participate();
    for store in &stores {
        settle(store, &participant);
        store.verify(&participant, NOW_MS);
    }
}

#[test]
fn a_store_grows_into_another_stores_memory() {
    let memory = EngineMemory::reserve(32 * MIB, 2).unwrap();
    let participant = memory.participate();
    let giver = Store::build(options(28 * MIB), &memory).unwrap();
    let taker = Store::build(options(4 * MIB), &memory).unwrap();
    for key in 0..60_000u32 {
        write(&giver, &participant, &key.to_le_bytes(), &value(0, key));
    }
    let lent = memory.lent_bytes();
    giver.resize(8 * MIB).unwrap();
    while !giver.resize_done() {
        giver.maintain(&participant, NOW_MS);
    }
    settle(&giver, &participant);
    assert!(memory.lent_bytes() + 18 * MIB <= lent, "{} of {lent} bytes are still lent", memory.lent_bytes());
    taker.resize(24 * MIB).unwrap();
    for key in 0..60_000u32 {
        write(&taker, &participant, &key.to_le_bytes(), &value(1, key));
    }
    let is_there = |at, store: &Store, key: u32| {
        let found = read(store, &participant, &key.to_le_bytes());
        assert!(found.as_ref().is_none_or(|found| *found == value(at, key)));
        found.is_some()
    };
    let kept = |at, store: &Store| (0..60_000).filter(|key| is_there(at, store, *key)).count();
    assert!(kept(1, &taker) > 2 * kept(0, &giver) && kept(0, &giver) > 1000);
    giver.verify(&participant, NOW_MS);
    taker.verify(&participant, NOW_MS);
}

#[test]
fn a_dropped_store_leaves_its_frames_to_others() {
    let memory = EngineMemory::reserve(16 * MIB, 1).unwrap();
    let participant = memory.participate();
    for round in 0..20 {
        let store = Store::build(options(16 * MIB), &memory).unwrap();
        for key in 0..5000u32 {
            write(&store, &participant, &key.to_le_bytes(), &value(round, key));
        }
        assert_eq!(read(&store, &participant, &7u32.to_le_bytes()), Some(value(round, 7)));
        store.verify(&participant, NOW_MS);
    }
    assert_eq!(memory.lent_bytes(), 0);
}

#[test]
fn a_store_without_address_space_is_refused() {
    let memory = EngineMemory::reserve(16 * MIB, 1).unwrap();
    let participant = memory.participate();
    let store = Store::build(options(16 * MIB), &memory).unwrap();
    let refused = Store::build(options(16 * MIB), &memory).err().expect("it does not fit").to_string();
    assert!(refused.contains("the address space that other stores leave holds"), "{refused}");
    let small = Store::build(options(4 * MIB), &memory).unwrap();
    let refused = small.resize(16 * MIB).unwrap_err().to_string();
    assert!(refused.contains("other stores leave"), "{refused}");
    settle(&small, &participant);
    assert_eq!(small.memory_bytes(), 4 * MIB);
    assert!(memory.lent_bytes() <= 20 * MIB + FRAME, "what was admitted for it went back");
    small.verify(&participant, NOW_MS);
    store.verify(&participant, NOW_MS);
}

/// One pin protects its thread's reads in every store; segments that one store retires wait for readers of another.
#[test]
fn one_participant_serves_all_stores() {
    let memory = EngineMemory::reserve(8 * MIB, 2).unwrap();
    let stores = [0; 2].map(|_| Store::build(options(4 * MIB), &memory).unwrap());
    let participant = memory.participate();
    for (at, store) in stores.iter().enumerate() {
        write(store, &participant, b"key", &value(at, 1));
    }
    let items: Vec<_> = stores
        .iter()
        .map(|store| store.get(&participant, b"key", store.hash(b"key"), NOW_MS).expect("it was written"))
        .collect();
    for (at, item) in items.iter().enumerate() {
        let mut bytes = Vec::new();
        item.copy_to(&mut bytes);
        assert_eq!(bytes, value(at, 1));
    }
    drop(items);
    stores.iter().for_each(|store| store.verify(&participant, NOW_MS));
}
