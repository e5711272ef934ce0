//! Resident memory: that of many small stores in one process agrees with their budgets, an empty large one has next to
//! none. A test program of its own, because it reads the memory of the whole process.

use ebbtide_store::{EngineMemory, Error, Mode, Options, Participant, Policy, Progress, Store, Ttl, Write};

const MIB: u64 = 1 << 20;
const STORES: u64 = 64;
const NOW_MS: u64 = 1000;

/// Bytes of the process that are resident, or `None` where the system does not say.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

fn fill(store: &Store, participant: &Participant) {
    let mut number = 0u64;
    while store.stats().evictions == 0 {
        for _ in 0..100 {
            number += 1;
            let key = number.to_le_bytes();
            let (hash, ttl) = (store.hash(&key), Ttl::Never);
            let write = Write { key: &key, hash, value: &[7; 400], flags: 0.into(), ttl, mode: Mode::Set, token: None };
            while let Err(error) = store.write(participant, &write, NOW_MS) {
                assert_eq!(error, Error::NeedSegment);
                assert_ne!(store.evict(participant, NOW_MS), Progress::Stuck);
            }
        }
    }
}

/// A server with much memory starts at once: none of it is touched ahead, nor the tables beside it.
fn empty_stores_touch_nothing() {
    for policy in Policy::ALL {
        let Some(before) = resident_bytes() else { return };
        let store = Store::new(Options { memory_bytes: 16 << 30, policy, ..Options::default() }).unwrap();
        let used = resident_bytes().expect("it was there before").saturating_sub(before);
        assert!(used <= 8 * MIB, "{policy:?}: {} KiB", used >> 10);
        drop(store);
    }
}

#[test]
fn resident_memory_is_what_is_used() {
    empty_stores_touch_nothing();
    // Small segments share pages.
    for segment_size in [4 << 10, 64 << 10] {
        stores_stay_within_their_budgets(segment_size);
    }
}

fn stores_stay_within_their_budgets(segment_size: u32) {
    let Some(before) = resident_bytes() else { return };
    let memory = EngineMemory::reserve(STORES * 5 * MIB, STORES as u32).unwrap();
    let participant = memory.participate();
    let build = |_| {
        let options = Options { memory_bytes: 5 * MIB, value_bytes_max: 64 << 10, writers: 2, ..Options::default() };
        Store::build(Options { segment_size: Some(segment_size), ..options }, &memory).unwrap()
    };
    let stores: Vec<_> = (0..STORES).map(build).collect();
    let within = |each: u64, what: &str| {
        let used = resident_bytes().expect("it was there before").saturating_sub(before);
        let allowed = STORES * each * 21 / 20 + 8 * MIB;
        assert!(used <= allowed, "{what}, segments of {segment_size}: {} of {} KiB", used >> 10, allowed >> 10);
    };
    stores.iter().for_each(|store| fill(store, &participant));
    within(5 * MIB, "full");
    for store in &stores {
        store.resize(3 * MIB).unwrap();
        while !store.resize_done() {
            store.maintain(&participant, NOW_MS);
        }
    }
    within(3 * MIB, "shrunk");
    for store in &stores {
        store.resize(5 * MIB).unwrap();
        fill(store, &participant);
        store.verify(&participant, NOW_MS);
    }
    within(5 * MIB, "grown again");
}
