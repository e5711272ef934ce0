//! Tests of compact tables: beside a map, full, resized, and with several threads.

use super::*;
use crate::engine_memory::EngineMemory;
use crate::epoch::Participant;
use crate::error::Error;
use crate::evict::Progress;
use crate::frames::FRAME_BYTES;
use crate::ops::Stored;
use crate::ttl::Ttl;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

const MIB: u64 = 1 << 20;

/// A table, with the participant of the thread that made it.
struct Client {
    table: CompactTable,
    participant: Participant,
    memory: EngineMemory,
}

fn client(key_bytes: usize, value_bytes: usize, has_ttl: bool, memory_bytes: u64) -> Client {
    let memory = EngineMemory::reserve(64 * MIB, 2).unwrap();
    let sizes = CompactSizes { key_bytes, value_bytes, has_ttl };
    let table = CompactTable::build(sizes, memory_bytes, 7, &memory).unwrap();
    Client { table, participant: memory.participate(), memory }
}

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    key[8..].copy_from_slice(&number.to_le_bytes());
    key
}

fn value(number: u64) -> [u8; 12] {
    let mut value = [0; 12];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value[8..].copy_from_slice(&(number as u32).to_le_bytes());
    value
}

impl Client {
    fn write(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        ttl: Ttl,
        mode: CompactMode,
        now_ms: u64,
    ) -> Result<Stored, Error> {
        self.table.write(&self.participant, &CompactWrite { key, value, ttl, mode }, now_ms)
    }

    fn set(&self, key: &[u8], value: &[u8]) {
        assert_eq!(self.write(key, Some(value), Ttl::Never, CompactMode::Set, 0), Ok(Stored::Stored));
    }

    fn set_negative(&self, key: &[u8]) {
        assert_eq!(self.write(key, None, Ttl::Never, CompactMode::Set, 0), Ok(Stored::Stored));
    }

    fn get(&self, key: &[u8]) -> CompactLookup<Vec<u8>> {
        self.table.get(&self.participant, key, 0, <[u8]>::to_vec)
    }

    fn resize(&self, memory_bytes: u64) {
        self.table.resize(memory_bytes).unwrap();
        while self.table.maintain(&self.participant, 0) == Progress::Working {}
        assert!(self.table.resize_done());
    }
}

#[test]
fn an_entry_is_a_value_or_negative() {
    let client = client(16, 12, false, MIB);
    assert_eq!(client.get(&key(1)), CompactLookup::Miss);
    client.set_negative(&key(1));
    assert_eq!(client.get(&key(1)), CompactLookup::Negative);
    client.set(&key(1), &value(5));
    assert_eq!(client.get(&key(1)), CompactLookup::Hit(value(5).to_vec()), "the object removes its negative");
    assert_eq!(client.table.remove_negative(&client.participant, &key(1), 0), Ok(false));
    assert_eq!(client.get(&key(1)), CompactLookup::Hit(value(5).to_vec()));
    client.set_negative(&key(1));
    assert_eq!(client.table.remove_negative(&client.participant, &key(1), 0), Ok(true));
    assert_eq!(client.get(&key(1)), CompactLookup::Miss);
    client.set(&key(1), &value(6));
    assert_eq!(client.table.remove(&client.participant, &key(1), 0), Ok(true));
    assert_eq!(client.table.remove(&client.participant, &key(1), 0), Ok(false));
    let stats = client.table.stats();
    assert_eq!((stats.items, stats.negatives, stats.stored_values, stats.stored_negatives), (0, 0, 2, 2));
    client.table.verify();
}

#[test]
fn add_and_replace_look_at_the_entry() {
    let client = client(16, 12, true, MIB);
    let write = |mode, now_ms| client.write(&key(1), Some(&value(1)), Ttl::Seconds(10), mode, now_ms).unwrap();
    assert_eq!(write(CompactMode::Replace, 0), Stored::NotStored);
    assert_eq!(write(CompactMode::Add, 0), Stored::Stored);
    assert_eq!(write(CompactMode::Add, 9_999), Stored::NotStored);
    assert_eq!(write(CompactMode::Replace, 9_999), Stored::Stored);
    assert_eq!(write(CompactMode::Replace, 20_000), Stored::NotStored, "it has expired");
    assert_eq!(write(CompactMode::Add, 20_000), Stored::Stored);
    client.table.verify();
}

#[test]
fn wrong_lengths_and_ttls_are_refused() {
    let client = client(16, 12, false, MIB);
    let set = |key: &[u8], value: Option<&[u8]>, ttl| client.write(key, value, ttl, CompactMode::Set, 0);
    let key_error = Error::CompactLength { part: "key", bytes: 15, expected: 16 };
    assert_eq!(set(&[7; 15], None, Ttl::Never), Err(key_error.clone()));
    assert_eq!(client.table.remove(&client.participant, &[7; 15], 0), Err(key_error));
    let value_error = Error::CompactLength { part: "value", bytes: 13, expected: 12 };
    assert_eq!(set(&key(1), Some(&[0; 13]), Ttl::Never), Err(value_error.clone()));
    assert_eq!(value_error.to_string(), "the value has 13 bytes; those of this compact pool have 12");
    assert_eq!(set(&key(1), None, Ttl::Seconds(5)), Err(Error::CompactTtl));
    assert_eq!(client.get(&[7; 15]), CompactLookup::Miss);
    client.set(&key(1), &value(1));
    assert_eq!(set(&key(1), None, Ttl::Expired), Ok(Stored::Stored), "an expired entry replaces the present one");
    assert_eq!(client.get(&key(1)), CompactLookup::Miss);
}

#[test]
fn a_table_answers_as_a_map_or_misses() {
    for (seed, (key_bytes, value_bytes, has_ttl)) in
        [(16, 0, false), (16, 12, false), (9, 3, true), (1, 1, false)].into_iter().enumerate()
    {
        let client = client(
            key_bytes,
            value_bytes,
            has_ttl,
            CompactTable::min_bytes(CompactSizes { key_bytes, value_bytes, has_ttl }).unwrap() + 20_000,
        );
        let mut map: HashMap<Vec<u8>, Option<Vec<u8>>> = HashMap::new();
        let (mut state, mut found) = (seed as u64 + 1, 0);
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for step in 0..60_000 {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&random(6000).to_le_bytes());
            let key = &bytes[..key_bytes];
            match random(8) {
                0 => {
                    client.set_negative(key);
                    map.insert(key.to_vec(), None);
                }
                1 | 2 => {
                    let value = value(step)[..value_bytes].to_vec();
                    client.set(key, &value);
                    map.insert(key.to_vec(), Some(value));
                }
                3 => {
                    let removed = client.table.remove(&client.participant, key, 0).unwrap();
                    assert!(map.remove(key).is_some() || !removed, "step {step} of seed {seed}");
                }
                _ => match client.get(key) {
                    CompactLookup::Miss => drop(map.remove(key)),
                    CompactLookup::Negative => assert_eq!(map.get(key), Some(&None), "step {step} of seed {seed}"),
                    CompactLookup::Hit(value) => {
                        found += 1;
                        assert_eq!(map.get(key), Some(&Some(value)), "step {step} of seed {seed}");
                    }
                },
            }
        }
        assert!(found > 1000, "seed {seed} found {found}");
        client.table.verify();
    }
}

#[test]
fn ninety_percent_full_takes_few_bytes_beside_keys() {
    for key_bytes in [8, 16, 20, 32, 40] {
        let client = client(key_bytes, 0, false, 3 * MIB);
        let capacity = client.table.stats().capacity;
        let mut numbers = 0..u64::MAX;
        while client.table.stats().items * 10 < capacity * 9 {
            for number in numbers.by_ref().take(64) {
                let mut bytes = [0; 40];
                bytes[..8].copy_from_slice(&number.to_le_bytes());
                client.set_negative(&bytes[..key_bytes]);
            }
        }
        let (held, raw) = (client.table.held_bytes(), client.table.stats().items * key_bytes as u64);
        assert!(held * 100 <= raw * 115, "{held} bytes for {raw} bytes of keys of {key_bytes} bytes");
        assert!(client.memory.lent_bytes() <= held.next_multiple_of(FRAME_BYTES as u64), "no frame beside the budget");
        assert!(client.table.stats().memory_used_bytes <= held);
    }
}

#[test]
fn used_entries_stay_while_others_are_evicted() {
    let client = client(16, 12, false, 256 << 10);
    let capacity = client.table.stats().capacity;
    let hot: Vec<u64> = (0..capacity / 4).collect();
    hot.iter().for_each(|number| client.set(&key(*number), &value(*number)));
    for round in 0..20 {
        let cold = capacity + round * capacity / 8;
        (cold..cold + capacity / 8).for_each(|number| client.set(&key(number), &value(number)));
        hot.iter().for_each(|number| drop(client.get(&key(*number))));
    }
    let kept = hot.iter().filter(|number| client.get(&key(**number)) != CompactLookup::Miss).count();
    assert!(kept * 100 > hot.len() * 97, "{kept} of {} entries stay", hot.len());
    assert!(client.table.stats().evictions > capacity);
    client.table.verify();
}

#[test]
fn expired_entries_are_absent_and_leave_first() {
    let client = client(
        16,
        0,
        true,
        CompactTable::min_bytes(CompactSizes { key_bytes: 16, value_bytes: 0, has_ttl: true }).unwrap(),
    );
    let set = |number, ttl, now_ms| client.write(&key(number), None, ttl, CompactMode::Set, now_ms).unwrap();
    let get = |number, now_ms| client.table.get(&client.participant, &key(number), now_ms, |_| ());
    set(0, Ttl::Seconds(5), 1_500);
    assert_eq!((get(0, 5_999), get(0, 6_000)), (CompactLookup::Negative, CompactLookup::Miss));
    assert_eq!(client.table.touch(&client.participant, &key(0), Ttl::Seconds(60), 5_000), Ok(true));
    assert_eq!((get(0, 64_999), get(0, 65_000)), (CompactLookup::Negative, CompactLookup::Miss));
    assert_eq!(client.table.touch(&client.participant, &key(0), Ttl::Never, 65_000), Ok(false));
    let capacity = client.table.stats().capacity;
    (0..8 * capacity).for_each(|number| _ = set(number, Ttl::Until(100), 70_000));
    let evictions = client.table.stats().evictions;
    // Half of the table is written anew: each set has expired entries for that.
    (0..capacity / 4).for_each(|number| _ = set(1 << 40 | number, Ttl::Never, 100_000));
    let stats = client.table.stats();
    assert_eq!(stats.evictions, evictions, "an expired entry leaves in place of another one");
    assert!(stats.expired > capacity / 8);
    client.table.verify();
}

#[test]
fn a_scheduled_flush_removes_all_entries() {
    let client = client(16, 0, false, MIB);
    (0..1000).for_each(|number| client.set_negative(&key(number)));
    client.table.flush(&client.participant, 0, 500);
    let get = |now_ms| client.table.get(&client.participant, &key(1), now_ms, |_| ());
    assert_eq!((get(499), get(500)), (CompactLookup::Negative, CompactLookup::Miss));
    client.set_negative(&key(1));
    assert_eq!(
        (get(501), client.table.stats().items, client.table.stats().flushed),
        (CompactLookup::Negative, 1, 1000)
    );
    client.table.flush(&client.participant, 501, 0);
    assert_eq!((get(501), client.table.stats().items), (CompactLookup::Miss, 0));
    client.table.verify();
}

#[test]
fn conditional_negatives_never_hide_an_object() {
    let client = client(16, 0, false, MIB);
    let ticket = || client.table.ticket(&client.participant, &key(1)).unwrap();
    let since = |ticket| client.write(&key(1), None, Ttl::Never, CompactMode::Since(ticket), 0).unwrap();
    assert_eq!(since(ticket()), Stored::Stored);
    let before = ticket();
    assert_eq!(client.table.remove_negative(&client.participant, &key(1), 0), Ok(true));
    assert_eq!(since(before), Stored::NotStored, "the object was inserted meanwhile");
    let before = ticket();
    assert_eq!(client.table.remove_negative(&client.participant, &key(1), 0), Ok(false));
    assert_eq!(since(before), Stored::NotStored, "also if there was no negative to remove");
    let before = ticket();
    client.resize(2 * MIB);
    assert_eq!(since(before), Stored::NotStored, "a resize moves keys");
    assert_eq!(client.get(&key(1)), CompactLookup::Miss);
}

#[test]
fn a_larger_table_keeps_all_entries() {
    let client = client(16, 12, false, 3 * MIB);
    let count = client.table.stats().capacity / 5;
    (0..count).for_each(|number| client.set(&key(number), &value(number)));
    let before = client.table.stats();
    for memory_bytes in [4 * MIB, 9 * MIB + 12_345, 40 * MIB] {
        client.resize(memory_bytes);
        client.table.verify();
        let stats = client.table.stats();
        assert_eq!((stats.items, stats.evictions), (before.items, before.evictions));
        assert!(client.table.held_bytes() <= memory_bytes && stats.capacity > before.capacity);
    }
    let kept =
        (0..count).filter(|number| client.get(&key(*number)) == CompactLookup::Hit(value(*number).to_vec())).count();
    assert_eq!(kept as u64, before.items);
}

#[test]
fn a_smaller_table_gives_its_frames_back() {
    let client = client(16, 12, false, 24 * MIB);
    let count = client.table.stats().capacity;
    (0..count).for_each(|number| client.set(&key(number), &value(number)));
    client.resize(5 * MIB);
    client.table.verify();
    let stats = client.table.stats();
    assert!(client.table.held_bytes() <= 5 * MIB && client.memory.lent_bytes() <= 3 * FRAME_BYTES as u64);
    assert!(stats.items > stats.capacity * 9 / 10, "{} of {}", stats.items, stats.capacity);
    for number in 0..count {
        let lookup = client.get(&key(number));
        assert!(lookup == CompactLookup::Miss || lookup == CompactLookup::Hit(value(number).to_vec()), "{number}");
    }
    client.resize(24 * MIB);
    client.resize(CompactTable::min_bytes(client.table.sizes()).unwrap());
    client.table.verify();
    assert!(client.table.resize(1000).unwrap_err().to_string().contains("needs at least"));
}

#[test]
fn a_smaller_table_drops_expired_entries_first() {
    let client = client(16, 0, true, 2 * MIB);
    let count = client.table.stats().capacity / 8;
    let set = |number, ttl| client.write(&key(number), None, ttl, CompactMode::Set, 0).unwrap();
    (0..count).for_each(|number| _ = set(number, Ttl::Never));
    // Written last, in front of their sets.
    (count..4 * count).for_each(|number| _ = set(number, Ttl::Seconds(10)));
    let before = client.table.stats();
    let present: Vec<u64> = (0..count).filter(|number| client.get(&key(*number)) != CompactLookup::Miss).collect();
    client.table.resize(MIB / 2).unwrap();
    while client.table.maintain(&client.participant, 10_000) == Progress::Working {}
    let stats = client.table.stats();
    let lost = present.iter().filter(|number| client.get(&key(**number)) == CompactLookup::Miss).count();
    assert!(lost * 50 < present.len(), "{lost} of {} left beside expired entries", present.len());
    assert_eq!(stats.evictions - before.evictions, lost as u64);
    assert_eq!(stats.expired - before.expired, before.items - present.len() as u64);
    client.table.verify();
}

#[test]
fn frames_wait_for_readers_of_the_former_shape() {
    let client = client(16, 0, false, 8 * MIB);
    let other = client.memory.participate();
    let pin = other.pin();
    client.table.resize(3 * MIB).unwrap();
    while client.table.maintain(&client.participant, 0) == Progress::Working {}
    assert!(!client.table.resize_done() && client.table.held_bytes() > 7 * MIB, "a reader may be in a frame");
    drop(pin);
    while client.table.maintain(&client.participant, 0) == Progress::Working {}
    assert!(client.table.resize_done() && client.table.held_bytes() <= 3 * MIB);
}

/// Each thread writes its own keys and knows their entries; all threads read all keys. The table changes its size.
#[test]
fn resizes_expose_no_torn_or_old_entry() {
    const THREADS: u64 = 3;
    const KEYS: u64 = 300;
    let client = client(16, 12, false, 4 * MIB);
    let (table, memory, stops) = (&client.table, &client.memory, &AtomicBool::new(false));
    let run = |thread: u64| {
        let participant = memory.participate();
        let write = |number, value: Option<&[u8]>| {
            let write = CompactWrite { key: &key(number), value, ttl: Ttl::Never, mode: CompactMode::Set };
            assert_eq!(table.write(&participant, &write, 0), Ok(Stored::Stored));
        };
        let get = |number| {
            table.get(&participant, &key(number), 0, |bytes| u64::from_le_bytes(bytes[..8].try_into().unwrap()))
        };
        for round in 0..90 {
            for number in (thread * KEYS..).take(KEYS as usize) {
                // The table is so large that sets are rarely full; an entry that is there is the last one.
                match round % 3 {
                    0 => {
                        write(number, Some(&value(round)));
                        assert!([CompactLookup::Hit(round), CompactLookup::Miss].contains(&get(number)));
                    }
                    1 => {
                        write(number, None);
                        assert!([CompactLookup::Negative, CompactLookup::Miss].contains(&get(number)));
                    }
                    _ => {
                        table.remove(&participant, &key(number), 0).unwrap();
                        assert_eq!(get(number), CompactLookup::Miss);
                    }
                }
                let other = (number * 7 + round) % (THREADS * KEYS);
                table.get(&participant, &key(other), 0, |bytes| {
                    assert_eq!(bytes[..4], bytes[8..], "a torn value");
                    assert_eq!(bytes[4..8], [0; 4], "a torn value");
                });
            }
        }
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        scope.spawn(move || {
            let participant = memory.participate();
            let sizes = [5 * MIB, 2 * MIB, 7 * MIB, 3 * MIB];
            for memory_bytes in sizes.iter().cycle() {
                table.resize(*memory_bytes).unwrap();
                while !stops.load(Ordering::Relaxed) && !table.resize_done() {
                    table.maintain(&participant, 0);
                }
                if stops.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stops.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.expect("a thread saw an older entry"));
    });
    while table.maintain(&client.participant, 0) == Progress::Working {}
    assert_eq!(table.stats().evictions, 0, "a table this large evicts nothing");
    table.verify();
}
