//! A cache that is closed beside other threads: each write is done and kept, or refused.

use crate::common::folders;
use ebbtide::PlainBytes;
use ebbtide::memcached::{
    ByteSize, Cache, CacheBuilder, Clock, Error, Handle, MemoryFileMode, MemoryStart, Mode, Stored, Ttl,
    is_memory_file_held,
};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const THREADS: u32 = 4;
/// Longer than a value in one segment.
const LONG_BYTES: usize = 200_000;

fn builder(path: &Path) -> CacheBuilder {
    Cache::builder().memory(ByteSize::mib(96)).memory_file(path)
}

/// Last acknowledged value of each key of a thread, `None` for absent.
type Known = HashMap<Vec<u8>, Option<Vec<u8>>>;

/// True for a refusal of a closed cache, the only one that may come.
fn is_closed<T: std::fmt::Debug>(outcome: &Result<T, Error>) -> bool {
    assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
    true
}

/// Changes the keys of one thread until the cache refuses it. Returns the acknowledged values.
fn change_until_closed(cache: &Cache, thread: u32, changes: &AtomicU32, stops: &AtomicBool) -> (Known, bool) {
    let mut known = Known::new();
    let counter = format!("{thread}:counter").into_bytes();
    // A thread may begin when the cache is closed already.
    match cache.insert(&counter, b"0").apply() {
        Ok(_) => known.insert(counter.clone(), Some(b"0".to_vec())),
        other => return (known, is_closed(&other)),
    };
    for round in 0_u32.. {
        if stops.load(Ordering::Relaxed) {
            return (known, false);
        }
        let key = format!("{thread}:{}", round.wrapping_mul(0x9E37_79B9) % 500).into_bytes();
        let length = if round.is_multiple_of(97) { LONG_BYTES } else { round as usize % 300 };
        let value: Vec<u8> = (0..length).map(|at| (at as u32 ^ round) as u8).collect();
        let refused = match round % 8 {
            5 => match cache.increment(&counter, 1) {
                Ok(Some(number)) => {
                    known.insert(counter.clone(), Some(number.to_string().into_bytes()));
                    false
                }
                other => is_closed(&other),
            },
            6 => {
                let was_there = known.get(&key).is_some_and(Option::is_some);
                match cache.delete(&key) {
                    true => known.insert(key, None).is_none(),
                    // A closed cache answers as if the key were absent.
                    false => was_there,
                }
            }
            7 => match cache.touch(&key, Ttl::Never) {
                Ok(_) => false,
                other => is_closed(&other),
            },
            _ => match cache.insert(&key, &value).apply() {
                Ok(Stored::Stored) => {
                    known.insert(key, Some(value));
                    false
                }
                other => is_closed(&other),
            },
        };
        if refused {
            return (known, true);
        }
        changes.fetch_add(1, Ordering::Relaxed);
    }
    unreachable!("the rounds do not end")
}

#[test]
fn acknowledged_writes_beside_a_close_are_kept() {
    for folder in [folders(), folders()].into_iter().flatten() {
        let path = folder.path().join("memory");
        let cache = builder(&path).build().unwrap();
        let (changes, stops) = (AtomicU32::new(0), AtomicBool::new(false));
        let known: Vec<(Known, bool)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (cache, changes, stops) = (&cache, &changes, &stops);
                    scope.spawn(move || change_until_closed(cache, thread, changes, stops))
                })
                .collect();
            let deadline = Instant::now() + Duration::from_secs(120);
            while changes.load(Ordering::Relaxed) < 20_000 {
                assert!(Instant::now() < deadline, "the writers do nothing");
                std::thread::sleep(Duration::from_millis(1));
            }
            cache.close().unwrap();
            stops.store(true, Ordering::Relaxed);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(cache.stats().evictions, 0, "the memory holds all");
        drop(cache);
        let cache = builder(&path).clock(Clock::Manual).build().unwrap();
        assert!(matches!(cache.memory_start(), Some(MemoryStart::Warm { .. })), "{:?}", cache.memory_start());
        cache.verify();
        let mut there = 0;
        for (key, value) in known.iter().flat_map(|(known, _)| known) {
            let found = cache.get(key).hit().map(|item| item.to_vec());
            assert!(found == *value, "{:?}", String::from_utf8_lossy(key));
            there += u64::from(value.is_some());
        }
        assert_eq!(cache.stats().items, there, "nothing else is there");
    }
}

fn holds_sevens(handle: &Handle) -> bool {
    let mut length = 0;
    while length < handle.len() {
        let slice = handle.slice_at(length);
        if slice.iter().any(|byte| *byte != 7) {
            return false;
        }
        length += slice.len();
    }
    length == LONG_BYTES
}

#[test]
fn a_closed_cache_refuses_changes_and_serves_reads() {
    for folder in folders() {
        let path = folder.path().join("memory");
        let cache = builder(&path).clock(Clock::Manual).build().unwrap();
        cache.insert(b"key", b"value").apply().unwrap();
        cache.insert(b"number", b"41").apply().unwrap();
        cache.insert(b"long", &[7; LONG_BYTES]).apply().unwrap();
        let handle = cache.get(b"long").hit().unwrap().to_handle().unwrap();
        let (clone, pool) = (cache.clone(), cache.pool("default").unwrap());
        let mut upload = cache.upload(b"upload", 300_000, 0, Ttl::Never, Mode::Set).unwrap();
        upload.write(&[1; 250_000]).unwrap();
        let scan = cache.scan().unwrap();
        let token = cache.get(b"key").hit().unwrap().cas();
        cache.close().unwrap();
        for pool in [&*cache, &*clone, &pool] {
            assert_eq!(pool.insert(b"key", b"other").apply(), Err(Error::Closed));
            assert_eq!(pool.insert(b"new", b"other").mode(Mode::Add).apply(), Err(Error::Closed));
            assert_eq!(pool.increment(b"number", 1), Err(Error::Closed));
            assert_eq!(pool.touch(b"key", Ttl::seconds(1)), Err(Error::Closed));
            assert_eq!(pool.get_and_touch(b"key", Ttl::seconds(1)).map(|_| ()), Err(Error::Closed));
            assert!(!pool.delete(b"key"));
            assert_eq!(pool.delete_if(b"key", token), Err(Error::Closed));
            pool.flush(Duration::ZERO);
            assert_eq!(pool.get(b"key").hit().unwrap().to_vec(), b"value");
        }
        assert_eq!(upload.write(&[1; 50_000]), Err(Error::Closed));
        assert_eq!(clone.resize(ByteSize::mib(32)), Err(Error::Closed));
        assert!(holds_sevens(&handle));
        // A saved file is free, though the cache lives. A mapped one is held by each handle.
        let is_mapped = cache.memory_file_mode() != Some(MemoryFileMode::Saved);
        let drop_all = || {
            let is_held = || assert_eq!(is_memory_file_held(&path), is_mapped);
            drop(cache);
            is_held();
            drop(clone);
            is_held();
            drop(pool);
            is_held();
            drop(upload);
            is_held();
            drop(scan);
            is_held();
            assert!(holds_sevens(&handle));
            drop(handle);
            assert!(!is_memory_file_held(&path));
        };
        let (mut held, start) = (Some(drop_all), || builder(&path).clock(Clock::Manual).build().unwrap());
        if is_mapped {
            held.take().unwrap()();
        }
        let next = start();
        assert!(matches!(next.memory_start(), Some(MemoryStart::Warm { objects: 3, .. })), "{:?}", next.memory_start());
        assert_eq!(next.get(b"long").hit().unwrap().to_vec(), [7; LONG_BYTES]);
        next.verify();
        drop(next);
        held.into_iter().for_each(|drop_all| drop_all());
    }
}

#[test]
fn a_closed_cache_keeps_what_is_removed() {
    for folder in folders() {
        let path = folder.path().join("memory");
        let open = || {
            let builder = ebbtide::Cache::builder().memory(ByteSize::mib(64)).clock(Clock::Manual);
            builder.memory_file(&path).build().unwrap()
        };
        let cache = open();
        cache.insert("key", "value").unwrap();
        let (typed, key) = (cache.typed_with::<String, String, _>(PlainBytes), "key".to_owned());
        cache.close().unwrap();
        assert!(!cache.remove("key") && !smol::block_on(cache.remove_async("key")));
        cache.invalidate_all();
        assert_eq!(typed.remove(&key), Err(Error::Closed));
        assert_eq!(smol::block_on(typed.remove_async(&key)), Err(Error::Closed));
        for key in ["key", "absent"] {
            assert!(matches!(cache.take(key), Err(Error::Closed)), "{key}");
        }
        drop((cache, typed));
        let cache = open();
        assert_eq!(cache.get("key").unwrap(), "value");
        assert_eq!(cache.typed_with::<String, String, _>(PlainBytes).remove(&key), Ok(true));
    }
}

#[test]
fn an_overlong_save_is_a_cold_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory");
    let build = |limit| builder(&path).clock(Clock::Manual).save_limit(limit).build().unwrap();
    let cache = build(Duration::from_secs(600));
    cache.insert(b"key", b"old").apply().unwrap();
    cache.close().unwrap();
    drop(cache);
    let cache = build(Duration::ZERO);
    assert_eq!(cache.get(b"key").hit().unwrap().to_vec(), b"old");
    cache.insert(b"key", b"new").apply().unwrap();
    let refusal = cache.close().unwrap_err().to_string();
    assert!(refusal.contains("time for the save") && refusal.contains(path.to_str().unwrap()), "{refusal}");
    drop(cache);
    let cache = build(Duration::from_secs(600));
    let start = cache.memory_start().unwrap().to_string();
    assert!(start.contains("starts empty") && start.contains("longer than the time for the save"), "{start}");
    assert!(!cache.get(b"key").is_hit());
}

#[test]
fn the_close_limit_sums_its_bounds() {
    let seconds = |builder: CacheBuilder| builder.close_limit().as_secs();
    let path = Path::new("/none");
    let waits = seconds(Cache::builder());
    assert_eq!(seconds(Cache::builder().memory_file(path).save_limit(Duration::from_secs(7))), waits + 7);
    let flash = |builder: CacheBuilder| builder.flash(path, ByteSize::mib(64)).flash_drain(Duration::from_secs(5));
    let with_drain = seconds(flash(Cache::builder()));
    assert!(with_drain > waits + 5);
    assert_eq!(seconds(flash(Cache::builder().memory_file(path))), with_drain - 5 + 60, "saved, not drained");
}
