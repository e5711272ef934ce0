//! Models of compact tables: readers beside writers, tickets, and the walk of a resize.
//!
//! A set of a model is one line with two entries of 8 + 16 bytes, and each frame has one set.

use super::{CompactLookup, CompactMode, CompactSizes, CompactTable, CompactWrite};
use crate::engine_memory::EngineMemory;
use crate::epoch::Domain;
use crate::epoch::Participant;
use crate::evict::Progress;
use crate::frames::{FRAME_BYTES, Frames};
use crate::loom_tests::model;
use crate::ops::Stored;
use crate::ttl::Ttl;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

const KEY: &[u8] = b"a key  1";

struct Shared {
    table: CompactTable,
    memory: EngineMemory,
    database: AtomicU64,
}

fn shared(sets: u64) -> Arc<Shared> {
    let memory = EngineMemory {
        frames: Frames::reserve(3 * FRAME_BYTES).expect("a model needs no mapping"),
        domain: Domain::new(),
    };
    let sizes = CompactSizes { key_bytes: 8, value_bytes: 16, has_ttl: false };
    let fixed = CompactTable::min_bytes(sizes).expect("the entries fit") - FRAME_BYTES as u64;
    let table = CompactTable::build(sizes, fixed + sets * FRAME_BYTES as u64, 1, &memory).expect("there are frames");
    Arc::new(Shared { table, memory, database: AtomicU64::new(0) })
}

impl Shared {
    fn write(&self, participant: &Participant, key: &[u8], value: Option<u8>, mode: CompactMode) -> Stored {
        let value = value.map(|byte| [byte; 16]);
        let value = value.as_ref().map(|value| &value[..]);
        self.table.write(participant, &CompactWrite { key, value, ttl: Ttl::Never, mode }, 0).expect("the lengths fit")
    }

    fn get(&self, participant: &Participant, key: &[u8]) -> CompactLookup<u8> {
        self.table.get(participant, key, 0, |bytes| {
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a torn value: {bytes:?}");
            bytes[0]
        })
    }
}

#[test]
fn readers_see_the_old_or_new_entry() {
    model(2, || {
        let shared = shared(1);
        let participant = shared.memory.participate();
        shared.write(&participant, KEY, Some(1), CompactMode::Set);
        shared.write(&participant, b"a key  2", Some(7), CompactMode::Set);
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            other.write(&other.memory.participate(), KEY, Some(2), CompactMode::Set);
        });
        assert!([CompactLookup::Hit(1), CompactLookup::Hit(2)].contains(&shared.get(&participant, KEY)));
        writer.join().unwrap();
        assert_eq!(shared.get(&participant, KEY), CompactLookup::Hit(2));
        shared.table.verify();
    });
}

#[test]
fn a_promotion_changes_only_what_its_reader_saw() {
    model(2, || {
        let shared = shared(1);
        let participant = shared.memory.participate();
        shared.write(&participant, KEY, Some(1), CompactMode::Set);
        shared.write(&participant, b"a key  2", Some(2), CompactMode::Set);
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            other.write(&other.memory.participate(), b"a key  3", Some(3), CompactMode::Set);
        });
        // The key is the last one of its set: a hit moves it, unless the writer has evicted it.
        let found = shared.get(&participant, KEY);
        assert!([CompactLookup::Hit(1), CompactLookup::Miss].contains(&found));
        writer.join().unwrap();
        assert_eq!(shared.get(&participant, b"a key  3"), CompactLookup::Hit(3));
        shared.table.verify();
    });
}

#[test]
fn a_negative_never_outlives_an_insert() {
    model(2, || {
        let shared = shared(1);
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            let participant = other.memory.participate();
            other.database.store(1, Ordering::SeqCst);
            other.table.remove_negative(&participant, KEY, 0).expect("the length fits");
        });
        let participant = shared.memory.participate();
        let ticket = shared.table.ticket(&participant, KEY).expect("the length fits");
        if shared.database.load(Ordering::SeqCst) == 0 {
            shared.write(&participant, KEY, None, CompactMode::Since(ticket));
        }
        writer.join().unwrap();
        assert_eq!(shared.get(&participant, KEY), CompactLookup::Miss, "the object exists");
        shared.table.verify();
    });
}

#[test]
fn a_due_flush_loses_no_later_flush() {
    model(2, || {
        let shared = shared(1);
        let participant = shared.memory.participate();
        shared.table.flush(&participant, 0, 5);
        let other = Arc::clone(&shared);
        let reader = thread::spawn(move || {
            let participant = other.memory.participate();
            other.table.get(&participant, KEY, 5, |_| ());
        });
        shared.table.flush(&participant, 5, 5);
        reader.join().unwrap();
        shared.write(&participant, KEY, Some(1), CompactMode::Set);
        let found = shared.table.get(&participant, KEY, 10, |_| ());
        assert_eq!(found, CompactLookup::Miss, "the second flush is due");
        shared.table.verify();
    });
}

/// Resizes from `before` to `after` sets beside a reader and a writer of another key.
fn resize_beside(before: u64, after: u64) {
    model(1, move || {
        let shared = shared(before);
        let participant = shared.memory.participate();
        shared.write(&participant, KEY, Some(1), CompactMode::Set);
        let other = Arc::clone(&shared);
        let walker = thread::spawn(move || {
            let participant = other.memory.participate();
            let bytes = other.table.memory_bytes() - before * FRAME_BYTES as u64 + after * FRAME_BYTES as u64;
            other.table.resize(bytes).expect("a set is enough");
            while other.table.maintain(&participant, 0) == Progress::Working {}
        });
        assert_eq!(shared.get(&participant, KEY), CompactLookup::Hit(1), "the key is always there");
        shared.write(&participant, KEY, Some(2), CompactMode::Set);
        walker.join().unwrap();
        while shared.table.maintain(&participant, 0) == Progress::Working {}
        assert_eq!(shared.get(&participant, KEY), CompactLookup::Hit(2), "no older entry comes back");
        assert!(shared.table.resize_done());
        shared.table.verify();
    });
}

#[test]
fn a_key_is_found_while_its_table_grows() {
    resize_beside(1, 2);
}

#[test]
fn a_key_is_found_while_its_table_shrinks() {
    resize_beside(2, 1);
}
