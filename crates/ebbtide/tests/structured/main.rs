//! Structured values: their operations, refusals, and a life as other values have.

mod checker;

use ebbtide::memcached::{Mode, Stored};
use ebbtide::structured::Map;
use ebbtide::{ByteSize, Cache, Clock, Error, InsertOptions, Policy, PoolOptions};
use ebbtide_flash::device::MemoryDevice;
use ebbtide_testkit::Random;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

ebbtide::counters! {
    /// Fields that are changed together.
    struct Usage(7) { calls, bytes, refused }
}

ebbtide::counters! {
    struct Other(8) { calls, bytes, refused }
}

fn cache() -> Cache {
    Cache::builder().memory(ByteSize::mib(8)).clock(Clock::Manual).build().unwrap()
}

fn found<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::WrongStructure { found, .. }) => found,
        other => panic!("{other:?}"),
    }
}

#[test]
fn words_are_created_read_and_edited_together() {
    let cache = cache();
    let words = cache.words("k");
    assert_eq!((words.get(), words.edit(|_| ())), (Ok(None), Ok(None)));
    assert_eq!(words.create(&[1, 2], InsertOptions::new()), Ok(true));
    assert_eq!(words.create(&[9], InsertOptions::new()), Ok(false));
    assert_eq!(words.edit(|words| std::mem::replace(&mut words[1], 7)), Ok(Some(2)));
    assert_eq!(words.get(), Ok(Some(vec![1, 7])));
    assert_eq!(cache.words("new").edit_or_create(&[0; 64], InsertOptions::new(), |words| words.len()), Ok(64));
    for count in [0, 65] {
        let refused = cache.words("other").create(&vec![0; count], InsertOptions::new()).unwrap_err();
        assert_eq!(refused, Error::WordCount { count, limit: 64 });
        assert_eq!(refused.to_string(), format!("{count} words: a value has 1 to 64"));
        assert_eq!(cache.words("other").edit_or_create(&vec![0; count], InsertOptions::new(), |_| ()), Err(refused));
    }
    cache.verify();
}

#[test]
fn a_typed_handle_refuses_another_type() {
    let cache = cache();
    let usage = cache.typed_handle::<Usage>("client");
    let start = Usage::default();
    let calls = usage.edit_or_create(&start, InsertOptions::new(), |usage| {
        usage.calls += 1;
        usage.bytes += 500;
        usage.calls
    });
    assert_eq!(calls, Ok(1));
    assert_eq!(usage.get(), Ok(Some(Usage { calls: 1, bytes: 500, refused: 0 })));
    let other = found(cache.typed_handle::<Other>("client").get());
    assert_eq!(other, "words of type 7");
    assert_eq!(found(cache.words("client").edit(|_| ())), "words of type 7");
    assert_eq!(found(cache.map::<u8, u8>("client").insert(&1, &1)), "words");
    assert_eq!(usage.get().unwrap().unwrap().calls, 1, "a refused edit changes nothing");
}

#[test]
fn concurrent_edits_of_words_are_all_kept() {
    const THREADS: u64 = 4;
    const EDITS: u64 = 5000;
    let cache = cache();
    cache.words("k").create(&[0; 8], InsertOptions::new()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EDITS {
                    let edited = cache.words("k").edit(|words| words.iter_mut().for_each(|word| *word += 1));
                    assert_eq!(edited, Ok(Some(())));
                    let seen = cache.words("k").get().unwrap().unwrap();
                    assert!(seen.iter().all(|word| *word == seen[0]), "torn: {seen:?}");
                }
            });
        }
    });
    assert_eq!(cache.words("k").get(), Ok(Some(vec![THREADS * EDITS; 8])));
    cache.verify();
}

#[test]
fn a_map_matches_a_plain_map() {
    let cache = cache();
    let map: Map<u16, Vec<u8>> = cache.map("k");
    let mut plain: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    let mut random = Random::new(7);
    assert_eq!((map.get(&1), map.remove(&1)), (Ok(None), Ok(false)));
    for step in 0..20_000 {
        let key = random.uniform(300) as u16;
        match random.uniform(10) {
            0..6 => {
                let value = random.bytes(step % 40);
                map.insert(&key, &value).unwrap();
                plain.insert(key, value);
            }
            6 => assert_eq!(map.remove(&key), Ok(plain.remove(&key).is_some())),
            7 if !plain.is_empty() => {
                let doubled = |value: Vec<u8>| [&value[..], b"+"].concat();
                let updated = map.update(&key, |old| (old.map(doubled), ()));
                assert_eq!(updated, Ok(Some(())));
                plain.entry(key).and_modify(|value| value.push(b'+'));
            }
            _ => assert_eq!(map.get(&key), Ok(plain.get(&key).cloned())),
        }
        if step % 1000 == 0 {
            let snapshot = map.snapshot().unwrap().unwrap();
            map.insert(&999, &vec![1]).unwrap();
            map.remove(&999).unwrap();
            assert!(snapshot.entries().unwrap().into_iter().eq(plain.clone()), "later edits do not change it");
            assert_eq!(snapshot.len(), Ok(plain.len()));
        }
    }
    cache.verify();
}

#[test]
fn edits_beyond_a_segment_are_refused() {
    let cache = cache();
    let map = cache.map::<u32, Vec<u8>>("k");
    let refused = (0..100_000).find_map(|key| map.insert(&key, &vec![7; 1000]).err().map(|error| (key, error)));
    let (key, error) = refused.expect("a map has at most a segment");
    assert!(matches!(error, Error::StructureTooLarge { length, limit } if length > limit), "{error}");
    assert_eq!((map.get(&0), map.get(&key)), (Ok(Some(vec![7; 1000])), Ok(None)), "nothing is lost");
    assert_eq!(map.remove(&0), Ok(true), "it becomes shorter");
    assert_eq!(map.insert(&key, &vec![7; 1000]), Ok(()));
    let long = "k".repeat(256);
    let error = cache.map::<String, u8>("l").insert(&long, &1);
    assert_eq!(error, Err(Error::KeyLength { length: 256, limit: 255 }));
    cache.verify();
}

#[test]
fn ranges_of_a_range_map_are_ordered() {
    let cache = cache();
    let map = cache.range_map::<i32, u8>("k");
    assert_eq!(map.range(..), Ok(vec![]));
    for key in [5, -3, 40, 0, -200, 7] {
        map.insert(&key, &(key as u8)).unwrap();
    }
    map.remove(&0).unwrap();
    let keys =
        |range: Result<Vec<(i32, u8)>, Error>| range.unwrap().into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(keys(map.range(..)), [-200, -3, 5, 7, 40]);
    assert_eq!(keys(map.range(-3..7)), [-3, 5]);
    assert_eq!(keys(map.range(-3..=7)), [-3, 5, 7]);
    assert_eq!(keys(map.range(8..)), [40]);
    let many: Vec<(i32, u8)> = (1000..2000).map(|key| (key, 1)).collect();
    map.insert_many(many.iter().map(|(key, value)| (key, value)), InsertOptions::new()).unwrap();
    assert_eq!(keys(map.range(1990..)), (1990..2000).collect::<Vec<_>>());
    assert_eq!(found(cache.map::<i32, u8>("k").get(&5)), "a range map");
}

#[test]
fn an_array_keeps_its_length() {
    let cache = cache();
    let array = cache.fixed_array::<u32>("k");
    assert_eq!((array.len(), array.get(0), array.set(0, &1)), (Ok(None), Ok(None), Ok(false)));
    array.create(&[0; 500], InsertOptions::new()).unwrap();
    for round in 1..=20 {
        for index in 0..500 {
            assert_eq!(array.update(index, |old| old + index as u32), Ok(Some(round * index as u32)));
        }
    }
    assert_eq!(array.elements().unwrap().unwrap(), (0..500).map(|index| 20 * index).collect::<Vec<_>>());
    assert_eq!(array.get(500), Err(Error::OutOfBounds { index: 500, length: 500 }));
    assert_eq!(array.set(500, &1), Err(Error::OutOfBounds { index: 500, length: 500 }));
    assert_eq!(found(cache.fixed_array::<u64>("k").get(0)), "a fixed array of u32");
    cache.verify();
}

#[test]
fn a_buffer_keeps_the_order_of_its_records() {
    let cache = cache();
    let buffer = cache.append_buffer("k");
    for number in 0..2000_u32 {
        buffer.append(number.to_le_bytes()).unwrap();
    }
    let records = buffer.records().unwrap().unwrap();
    assert_eq!(buffer.retain_last(10), Ok(1990));
    assert!(records.iter().eq((0..2000_u32).map(|number| number.to_le_bytes())), "the snapshot stays");
    let kept = buffer.records().unwrap().unwrap();
    assert!(kept.iter().eq((1990..2000_u32).map(|number| number.to_le_bytes())));
    cache.verify();
}

#[test]
fn an_entry_costs_at_most_four_bytes() {
    let cache = cache();
    let map = cache.map::<u64, [u8; 16]>("map");
    let entries: Vec<(u64, [u8; 16])> = (0..1000).map(|key| (key, [7; 16])).collect();
    map.insert_many(entries.iter().map(|(key, value)| (key, value)), InsertOptions::new()).unwrap();
    let bytes = |key: &str| cache.get(key).unwrap().len();
    assert_eq!(bytes("map"), 20 + 1000 * (24 + 4));
    cache.fixed_array("array").create(&[7_u64; 1000], InsertOptions::new()).unwrap();
    assert_eq!(bytes("array"), 16 + 1000 * 8);
    (0..1000).for_each(|_| cache.append_buffer("buffer").append([7; 24]).unwrap());
    assert_eq!(bytes("buffer"), 4 + 1000 * (24 + 4));
}

#[test]
fn clients_get_the_bytes_and_cannot_damage_them() {
    let cache = cache();
    let map = cache.map::<u8, u8>("map");
    map.insert(&1, &2).unwrap();
    cache.words("words").create(&[1], InsertOptions::new()).unwrap();
    for key in ["map", "words"] {
        let (before, commands) = (cache.get(key).unwrap(), cache.memcached());
        assert_eq!(&before[..2], [0xEB, 0x7D], "a get answers the bytes");
        assert_eq!(cache.increment(key, 1), Err(Error::NotNumeric));
        for mode in [Mode::Append, Mode::Prepend] {
            let appended = commands.insert(key.as_bytes(), b"more").mode(mode).apply();
            assert_eq!(appended, Err(Error::Structured), "{key} {mode:?}");
        }
        assert_eq!(cache.get(key).unwrap(), before);
        // A set of the bytes stores the same value, which then is as structured as before.
        cache.insert("copy", &before).unwrap();
        assert_eq!(commands.insert(b"copy", b"more").mode(Mode::Append).apply(), Err(Error::Structured));
    }
    assert_eq!(cache.words("copy").edit(|words| words[0] += 1), Ok(Some(())));
    assert_eq!(cache.words("copy").get(), Ok(Some(vec![2])));
    cache.insert("text", "hello").unwrap();
    assert_eq!(found(cache.map::<u8, u8>("text").insert(&1, &1)), "plain bytes");
    assert_eq!(cache.memcached().insert(b"text", b"!").mode(Mode::Append).apply(), Ok(Stored::Stored));
    let long = vec![0xEB; 2 << 20];
    cache.memcached().insert(b"long", &long[..1 << 20]).apply().unwrap();
    assert_eq!(found(cache.map::<u8, u8>("long").insert(&1, &1)), "plain bytes");
    cache.verify();
}

#[test]
fn edits_change_the_token_and_keep_ttl() {
    let cache = cache();
    let map = cache.map::<u8, u8>("k");
    map.insert_many([(&1, &1)], InsertOptions::new().ttl(Duration::from_secs(100))).unwrap();
    let commands = cache.memcached();
    let token = commands.get(b"k").hit().unwrap().cas();
    map.insert(&2, &2).unwrap();
    assert_eq!(commands.insert(b"k", b"lost").mode(Mode::Cas(token)).apply(), Ok(Stored::Exists));
    let ttl = commands.get(b"k").hit().unwrap().ttl().unwrap();
    assert!(ttl <= Duration::from_secs(100) && ttl > Duration::from_secs(90), "{ttl:?}");
    assert_eq!(cache.touch("k", Duration::from_secs(1000)), Ok(true));
    map.insert(&3, &3).unwrap();
    assert_eq!(map.snapshot().unwrap().unwrap().entries(), Ok(vec![(1, 1), (2, 2), (3, 3)]));
    cache.maintain(Duration::from_secs(1001));
    assert_eq!(map.get(&1), Ok(None), "it has expired");
    cache.verify();
}

#[test]
fn structured_values_survive_restarts_and_stay_editable() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| {
        let builder = Cache::builder().memory(ByteSize::mib(16)).clock(Clock::Manual).memory_file(path.join("memory"));
        builder.pool(PoolOptions::named("other")).build().unwrap()
    };
    for round in 0..3_u64 {
        let cache = open(folder.path());
        for pool in [cache.pool("default").unwrap(), cache.pool("other").unwrap()] {
            let (words, map) = (pool.words("words"), pool.map::<u64, u64>("map"));
            let present: Vec<(u64, u64)> = (0..round).map(|key| (key, key)).collect();
            if round > 0 {
                assert_eq!(words.get(), Ok(Some(vec![round, 2 * round])));
                assert_eq!(map.snapshot().unwrap().unwrap().entries(), Ok(present));
            }
            map.insert(&round, &round).unwrap();
            words.edit_or_create(&[0, 0], InsertOptions::new(), |words| (words[0] += 1, words[1] += 2)).unwrap();
        }
        cache.verify();
        cache.close().unwrap();
        assert_eq!(cache.map::<u64, u64>("map").insert(&9, &9), Err(Error::Closed));
    }
}

#[test]
fn values_are_demoted_promoted_and_edited_again() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let builder = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual).policy(Policy::Fifo);
    let cache = builder.engine(|engine| engine.flash_device(device)).build().unwrap();
    let map = cache.map::<u32, Vec<u8>>("map");
    for round in 0..4_u32 {
        let seen = map.snapshot().unwrap().map(|map| map.entries().unwrap());
        let expected: Vec<(u32, Vec<u8>)> = (0..round).map(|key| (key, vec![key as u8; 100])).collect();
        assert_eq!(seen.unwrap_or_default(), expected, "flash has taken it");
        map.insert(&round, &vec![round as u8; 100]).unwrap();
        let mut fillers = 0..100_000_u32;
        while cache.memcached().peek(b"map").is_hit() {
            let number = fillers.next().expect("the memory has turned over before");
            cache.insert(number.to_le_bytes(), [7; 900]).unwrap();
        }
    }
    cache.verify();
}

/// Each round of the outer edit would find its value changed by the inner one.
#[test]
fn an_edit_of_its_own_key_is_refused() {
    let cache = cache();
    let refused = |name: &str| Error::RecursiveEdit { key: format!("{name:?}") };
    let words = cache.words("w");
    words.create(&[1], InsertOptions::new()).unwrap();
    let mut rounds = 0;
    let inner = words.edit(|outer| {
        rounds += 1;
        outer[0] += 1;
        cache.words("w").edit(|inner| inner[0] += 1)
    });
    assert_eq!((inner, rounds, words.get()), (Ok(Some(Err(refused("w")))), 1, Ok(Some(vec![2]))));
    let map = cache.map::<u8, u8>("m");
    map.insert(&1, &1).unwrap();
    let inner = map.update(&1, |old| (old.map(|old| old + 1), map.insert(&2, &2)));
    assert_eq!((inner, map.get(&1), map.get(&2)), (Ok(Some(Err(refused("m")))), Ok(Some(2)), Ok(None)));
    let inner = map.update(&1, |old| (old, map.update(&1, |old| (old, ()))));
    assert_eq!(inner, Ok(Some(Err(refused("m")))));
    let deepest = words.edit(|_| map.update(&1, |old| (old, words.edit(|_| ()))).unwrap().unwrap());
    assert_eq!(deepest, Ok(Some(Err(refused("w")))), "through the edit of another key");
    cache.verify();
}

#[test]
fn edits_may_nest_on_other_keys() {
    let cache = Cache::builder().memory(ByteSize::mib(8)).pool(PoolOptions::named("other")).build().unwrap();
    let other = cache.pool("other").unwrap();
    let (words, map) = (cache.words("k"), cache.map::<u8, u8>("m"));
    words.create(&[1], InsertOptions::new()).unwrap();
    let edited = words.edit(|own| {
        own[0] += 1;
        map.insert(&1, &1).unwrap();
        other.words("k").edit_or_create(&[7], InsertOptions::new(), |_| ()).unwrap();
        std::thread::scope(|scope| scope.spawn(|| words.get()).join().unwrap()).unwrap()
    });
    assert_eq!((edited, words.get()), (Ok(Some(Some(vec![1]))), Ok(Some(vec![2]))));
    assert_eq!((map.get(&1), other.words("k").get()), (Ok(Some(1)), Ok(Some(vec![7]))));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| words.edit(|_| panic!("in the closure"))));
    assert!(panicked.is_err());
    assert_eq!(words.edit(|own| own[0]), Ok(Some(2)), "no edit decides after a panic");
    cache.verify();
}
