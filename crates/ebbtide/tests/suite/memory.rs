//! One number for the memory: long values, refusals, handles and changes of the limit.

use crate::common::{at, read};
use ebbtide::memcached::{ByteSize, Cache, CacheBuilder, Clock, Error, Lookup, Mode, Policy, Stored, Ttl};
use ebbtide_testkit::Stamp;

fn builder(memory: ByteSize) -> CacheBuilder {
    Cache::builder().memory(memory).clock(Clock::Manual).seed(1)
}

fn set(cache: &Cache, key: &str, value: &[u8]) -> Result<Stored, Error> {
    cache.insert(key.as_bytes(), value).apply()
}

fn value_of(cache: &Cache, key: &str) -> Option<Vec<u8>> {
    cache.get(key.as_bytes()).hit().map(|item| item.to_vec())
}

fn fill(cache: &Cache) {
    for number in 0..cache.stats().memory_limit_bytes / 500 {
        set(cache, &format!("fill{number}"), &[1; 500]).unwrap();
    }
}

#[test]
fn the_longest_value_fits_every_memory() {
    for policy in Policy::ALL {
        for memory in [256, 300, 1000, 4096] {
            let memory = ByteSize::kib(memory);
            let longest = ByteSize::bytes(memory.as_bytes() / 2);
            let cache = builder(memory).max_value(longest).policy(policy).build().unwrap();
            fill(&cache);
            for version in 0..6 {
                let value = Stamp { key: 1, version }.value(longest.as_bytes() as usize);
                assert_eq!(set(&cache, "long", &value), Ok(Stored::Stored), "{memory}, {}", policy.name());
                assert_eq!(value_of(&cache, "long").as_deref(), Some(&*value), "{memory}, {}", policy.name());
            }
            let longer = vec![0; longest.as_bytes() as usize + 1];
            assert!(matches!(set(&cache, "long", &longer), Err(Error::ValueTooLarge { .. })));
            assert_eq!(value_of(&cache, "long"), None, "a set that fails leaves no old value");
            cache.verify();
        }
    }
}

#[test]
fn memory_too_small_for_values_is_refused() {
    let refusal = builder(ByteSize::mib(1)).max_value(ByteSize::mib(1)).build().err();
    assert!(matches!(refusal, Some(Error::Configuration { option: "max_value", .. })), "{refusal:?}");
    let refusal = builder(ByteSize::kib(100)).build().err();
    assert!(matches!(refusal, Some(Error::Configuration { option: "memory", .. })), "{refusal:?}");
}

#[test]
fn long_values_give_their_memory_back() {
    let cache = builder(ByteSize::mib(4)).segment_size(ByteSize::kib(4)).build().unwrap();
    set(&cache, "long", b"short").unwrap();
    let free = |cache: &Cache| {
        at(cache, 0);
        cache.stats().segments_free
    };
    let before = free(&cache);
    let mut upload = cache.upload(b"long", 500_000, 0, Ttl::Never, Mode::Set).unwrap();
    upload.write(&[2; 300_000]).unwrap();
    assert!(cache.stats().upload_bytes >= 490_000);
    assert!(cache.stats().segments_free < before);
    drop(upload);
    assert_eq!((free(&cache), cache.stats().upload_bytes), (before, 0), "a dropped upload");
    assert_eq!(value_of(&cache, "long").unwrap(), b"short");
    for _ in 0..50 {
        set(&cache, "long", &[3; 400_000]).unwrap();
    }
    // The segment of the head of each overwritten value stays while no writer needs it.
    let heads = 55;
    let bodies = 400_000 / cache.stats().segment_bytes;
    assert!(bodies > heads && before - free(&cache) <= bodies + heads, "overwritten bodies are free");
    assert!(cache.delete(b"long"));
    assert!(before - free(&cache) <= heads, "deleted bodies are free");
    set(&cache, "expiring", &[4; 400_000]).unwrap();
    assert!(cache.touch(b"expiring", Ttl::seconds(2)).unwrap());
    at(&cache, 5000);
    assert!(before - free(&cache) <= heads, "expired bodies are free");
    assert_eq!(cache.stats().evictions, 0);
    cache.verify();
}

#[test]
fn values_grow_across_the_size_of_a_segment() {
    for (memory, is_full) in [(4096, false), (1024, true)] {
        let cache = builder(ByteSize::kib(memory)).max_value(ByteSize::kib(300)).build().unwrap();
        let segment = cache.stats().segment_bytes as usize;
        let mut expected = vec![0; segment - 2000];
        cache.insert(b"k", &expected).flags(77).ttl(Ttl::seconds(1000)).apply().unwrap();
        let mut round = 0;
        while expected.len() + 1000 < 300 << 10 {
            if is_full {
                fill(&cache);
                at(&cache, (round + 1) * 100);
                cache.insert(b"k", &expected).flags(77).ttl(Ttl::seconds(1000)).apply().unwrap();
            }
            let piece = vec![round as u8; if round < 8 { 700 } else { 30_000.min((300 << 10) - expected.len()) }];
            let mode = if round % 2 == 0 { Mode::Append } else { Mode::Prepend };
            assert_eq!(cache.insert(b"k", &piece).mode(mode).apply(), Ok(Stored::Stored), "round {round}");
            let place = if mode == Mode::Append { expected.len() } else { 0 };
            expected.splice(place..place, piece);
            let Lookup::Hit(item) = cache.get(b"k") else { panic!("round {round}: it is gone") };
            assert_eq!((item.to_vec() == expected, item.flags()), (true, 77), "round {round}");
            assert!(item.ttl().is_some_and(|ttl| ttl.as_secs() > 980), "it keeps its life");
            round += 1;
        }
        let refused = cache.insert(b"k", &vec![1; 300 << 10]).mode(Mode::Append).apply();
        assert!(matches!(refused, Err(Error::ValueTooLarge { .. })), "{refused:?}");
        assert_eq!(value_of(&cache, "k"), Some(expected), "an append that fails leaves the value");
        cache.verify();
    }
}

#[test]
fn a_full_cache_without_eviction_loses_nothing() {
    let cache = builder(ByteSize::mib(1)).evict(false).build().unwrap();
    let mut stored = 0;
    let refusal = loop {
        match set(&cache, &format!("key{stored}"), &Stamp { key: stored, version: 0 }.value(200)) {
            Ok(_) => stored += 1,
            Err(refusal) => break refusal,
        }
    };
    assert!(matches!(refusal, Error::OutOfMemory { .. }), "{refusal}");
    assert!(stored > 3000, "{stored} objects of 200 bytes fit 1 MiB");
    assert!(matches!(set(&cache, "key7", &[0; 3000]), Err(Error::OutOfMemory { .. })));
    assert_eq!(value_of(&cache, "key7"), None, "a set that fails leaves no old value");
    let missing = (0..stored).filter(|n| *n != 7 && value_of(&cache, &format!("key{n}")).is_none()).count();
    assert_eq!((missing, cache.stats().evictions), (0, 0));
    for number in (0..stored).filter(|number| number % 4 != 0) {
        cache.delete(format!("key{number}").as_bytes());
    }
    for number in 0..stored / 2 {
        set(&cache, &format!("new{number}"), &[1; 200]).expect("deleted objects make space");
    }
    for number in (0..stored).step_by(4) {
        let value = value_of(&cache, &format!("key{number}")).expect("what was not deleted is there");
        assert_eq!(Stamp::read(&value), Some(Stamp { key: number, version: 0 }));
    }
    assert_eq!(cache.stats().evictions, 0);
    cache.verify();
}

#[test]
fn a_handle_on_the_largest_value_succeeds() {
    let cache = builder(ByteSize::mib(4)).max_value(ByteSize::mib(2)).build().unwrap();
    let value = Stamp { key: 1, version: 1 }.value(2 << 20);
    set(&cache, "long", &value).unwrap();
    let Lookup::Hit(item) = cache.get(b"long") else { panic!("it was just set") };
    let handle = item.to_handle().expect("half of the memory may be held for one value");
    drop(item);
    assert_eq!(read(&handle), value);
    drop(handle);
    cache.verify();
}

#[test]
fn handles_pin_at_most_a_quarter() {
    let cache = builder(ByteSize::mib(1)).max_value(ByteSize::kib(64)).build().unwrap();
    let mut handles = Vec::new();
    let mut refusals = 0;
    for number in 0..400 {
        let value = Stamp { key: number, version: 1 }.value(9000);
        set(&cache, &format!("key{number}"), &value).expect("most of the memory is not held by handles");
        let Lookup::Hit(item) = cache.get(format!("key{number}").as_bytes()) else { panic!("it was just set") };
        match item.to_handle() {
            Ok(handle) => handles.push((handle, value)),
            Err(Error::PinnedLimit { .. }) => refusals += 1,
            Err(other) => panic!("{other}"),
        }
        assert!(cache.stats().pinned_bytes <= cache.stats().memory_limit_bytes / 4);
    }
    assert!(refusals > 300 && handles.len() > 10, "{} handles, {refusals} refusals", handles.len());
    for (handle, value) in &handles {
        assert_eq!(read(handle), *value, "what is held stays, evicted or not");
    }
    cache.verify();
    handles.clear();
    assert_eq!(cache.stats().pinned_bytes, 0);
    fill(&cache);
    cache.verify();
}

#[test]
fn a_borrowing_thread_gets_errors_when_full() {
    let cache = builder(ByteSize::kib(512)).build().unwrap();
    fill(&cache);
    set(&cache, "held", &[8; 1000]).unwrap();
    let Lookup::Hit(item) = cache.get(b"held") else { panic!("it was just set") };
    let mut refusals = 0;
    for number in 0..2000 {
        match set(&cache, &format!("more{number}"), &[9; 900]) {
            Ok(_) => {}
            Err(Error::OutOfMemory { .. }) => refusals += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refusals > 0, "it cannot evict while it borrows");
    assert_eq!(item.to_vec(), [8; 1000]);
    drop(item);
    set(&cache, "more", &[9; 900]).expect("the borrow is over");
    cache.verify();
}

#[test]
fn the_memory_shrinks_and_grows() {
    let cache = builder(ByteSize::mib(16)).max_value(ByteSize::kib(300)).build().unwrap();
    let value = |number: u64| Stamp { key: number, version: 3 }.value(100 + (number % 40) as usize * 20);
    let store = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            set(&cache, &format!("key{number}"), &value(number)).unwrap();
        }
    };
    for number in 0..10 {
        set(&cache, &format!("long{number}"), &Stamp { key: number, version: 4 }.value(200_000)).unwrap();
    }
    store(0..40_000);
    for mib in [8, 2, 3, 32, 5, 64, 16] {
        let memory = ByteSize::mib(mib);
        cache.resize(memory).unwrap();
        let stats = cache.stats();
        assert_eq!(stats.memory_limit_bytes, memory.as_bytes());
        assert!(stats.memory_used_bytes <= memory.as_bytes(), "{stats:?}");
        let found: Vec<u64> = (0..40_000).filter(|number| cache.contains(format!("key{number}").as_bytes())).collect();
        for number in &found {
            assert_eq!(value_of(&cache, &format!("key{number}")), Some(value(*number)), "items keep their values");
        }
        assert!(!found.is_empty() && stats.live_bytes > memory.as_bytes().min(2 << 20) / 2, "at {memory}: {stats:?}");
        cache.verify();
        store(0..40_000);
        cache.verify();
    }
    assert!(matches!(cache.resize(ByteSize::kib(500)), Err(Error::Configuration { option: "memory", .. })));
    assert!(matches!(cache.resize(ByteSize::gib(1 << 20)), Err(Error::Configuration { option: "memory", .. })));
}

#[test]
fn shrinking_to_sufficient_memory_loses_nothing() {
    let cache = builder(ByteSize::mib(32)).build().unwrap();
    for number in 0..8000 {
        set(&cache, &format!("key{number}"), &Stamp { key: number, version: 0 }.value(500)).unwrap();
    }
    cache.resize(ByteSize::mib(8)).unwrap();
    let stats = cache.stats();
    assert!(stats.memory_used_bytes <= 8 << 20);
    let found = (0..8000).filter(|number| cache.contains(format!("key{number}").as_bytes())).count();
    assert_eq!((found, stats.evictions), (8000, 0), "{stats:?}");
    cache.verify();
}

/// More threads than cores overwrite, read and delete long values, and hold some, while the memory changes: each value
/// is whole, and as new as the last write that was acknowledged.
#[test]
fn long_values_stay_whole_during_resizes() {
    const KEYS: u64 = 6;
    const MEMORIES: [u64; 6] = [8, 24, 12, 32, 16, 20];
    let cache = builder(ByteSize::mib(32)).max_value(ByteSize::kib(400)).build().unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = |thread: u64| {
            let name = |key: u64| format!("{thread}-{key}");
            let (mut round, mut held) = (0_u32, Vec::new());
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                round += 1;
                let key = u64::from(round) % KEYS;
                let value = Stamp { key, version: round.into() }.value(20_000 + (round as usize * 7919) % 300_000);
                set(&cache, &name(key), &value).unwrap();
                if round % 7 == 0 {
                    held.extend(cache.get(name(key).as_bytes()).hit().and_then(|item| item.to_handle().ok()));
                }
                if round % 40 == 0 {
                    held.clear();
                }
                for other in 0..KEYS {
                    let Some(found) = value_of(&cache, &name(other)) else { continue };
                    let stamp = Stamp::read(&found).expect("a value is whole");
                    assert!(stamp.key == other && u32::try_from(stamp.version).unwrap() + KEYS as u32 > round);
                }
                if round % 11 == 0 {
                    cache.delete(name(key).as_bytes());
                    assert_eq!(value_of(&cache, &name(key)), None);
                }
            }
        };
        let workers: Vec<_> = (0..4).map(|thread| scope.spawn(move || work(thread))).collect();
        for round in 0..60 {
            cache.resize(ByteSize::mib(MEMORIES[round % MEMORIES.len()])).unwrap();
            for number in 0..2000 {
                set(&cache, &format!("small{number}"), &[1; 900]).unwrap();
            }
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        workers.into_iter().for_each(|worker| worker.join().expect("it asserts nothing that is wrong"));
    });
    cache.verify();
}
