//! The growth of the index: an insert replaces no neighbour while memory is free, however many threads insert and
//! wherever each of them is preempted.

use ebbtide_store::{Error, Mode, Options, Participant, Progress, Store, Ttl, Write};

const NOW_MS: u64 = 1000;

fn set(store: &Store, participant: &Participant, key: &[u8], value: &[u8]) -> Result<(), Error> {
    let (hash, ttl) = (store.hash(key), Ttl::Never);
    let write = Write { key, hash, value, flags: 0.into(), ttl, mode: Mode::Set, token: None };
    store.write(participant, &write, NOW_MS).map(drop)
}

/// Sets `keys` keys for each of `threads` threads at once, without maintenance.
fn fill(store: &Store, threads: u64, keys: u64) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let participant = store.participate();
                for number in 0..keys {
                    let key = (thread << 32 | number).to_le_bytes();
                    while set(store, &participant, &key, b"v").is_err() {
                        assert_ne!(store.evict(&participant, NOW_MS), Progress::Stuck);
                    }
                }
            });
        }
    });
}

fn missing(store: &Store, threads: u64, keys: u64) -> usize {
    let participant = store.participate();
    let all = (0..threads).flat_map(|thread| (0..keys).map(move |number| (thread << 32 | number).to_le_bytes()));
    all.filter(|key| store.get(&participant, key, store.hash(key), NOW_MS).is_none()).count()
}

/// Without evictions: when the index has no memory left, a key is refused and no other one is removed.
#[test]
fn a_full_store_without_evictions_keeps_all() {
    let options = Options { memory_bytes: 1 << 20, value_bytes_max: 1000, evicts: false, ..Options::default() };
    let store = Store::new(options).unwrap();
    let participant = store.participate();
    let try_set = |number: u64| loop {
        match set(&store, &participant, &number.to_le_bytes(), b"") {
            Ok(()) => break true,
            Err(Error::NeedSegment) if store.evict(&participant, NOW_MS) == Progress::Stuck => break false,
            Err(error) => assert_eq!(error, Error::NeedSegment),
        }
    };
    let stored = (0..).take_while(|number| try_set(*number)).count() as u64;
    let more = (stored..stored + 1000).filter(|number| try_set(*number)).count();
    let stats = store.stats();
    assert_eq!((missing(&store, 1, stored), stats.index_replaced), (0, 0), "{stats:?}");
    assert!(stored > 40_000 && more < 1000, "{stored} and {more}: {stats:?}");
    store.verify(&participant, NOW_MS);
}

#[test]
fn many_writers_lose_nothing_with_free_memory() {
    let (threads, keys) = (16, 40_000);
    let options = Options { memory_bytes: 256 << 20, writers: 16, ..Options::default() };
    let store = Store::new(options).unwrap();
    fill(&store, threads, keys);
    let stats = store.stats();
    assert_eq!((missing(&store, threads, keys), stats.index_replaced), (0, 0), "{stats:?}");
    assert!(stats.index_load > 0.8, "the index grows no more than it must: {stats:?}");
    store.verify(&store.participate(), NOW_MS);
}
