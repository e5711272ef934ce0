//! Options of loads: stale values while one caller loads, negative results, and time to idle.

use ebbtide::loading::{LoadError, LoadOptions, Loaded};
use ebbtide::memcached::Mode;
use ebbtide::{ByteSize, Cache, CacheBuilder, Clock, Error, InsertOptions, Policy};
use std::cell::Cell;
use std::convert::Infallible;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn builder() -> CacheBuilder {
    Cache::builder().memory(ByteSize::mib(16)).clock(Clock::Manual)
}

fn load<'v>(cache: &Cache, options: LoadOptions, value: &'v str) -> Result<Option<String>, LoadError<&'v str>> {
    let loaded = cache.get_or_load("key", options, || match value {
        "none" => Ok(None),
        "error" => Err("no database"),
        value => Ok(Some(value)),
    })?;
    Ok(loaded.map(|value| String::from_utf8(value.to_vec()).unwrap()))
}

fn some(value: &str) -> Result<Option<String>, LoadError<&'static str>> {
    Ok(Some(value.to_owned()))
}

#[test]
fn a_stale_value_is_reloaded_by_one_caller() {
    let cache = builder().build().unwrap();
    let options = LoadOptions::new().ttl(MINUTE).stale_while_revalidate(HOUR);
    assert_eq!(load(&cache, options, "1"), some("1"));
    cache.maintain(Duration::from_secs(50));
    assert_eq!(load(&cache, options, "2"), some("1"), "it is fresh");
    cache.maintain(Duration::from_secs(70));
    assert_eq!(cache.get("key").unwrap(), "1", "lookups without a loader answer until the window ends");
    let (is_loading, may_end) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let leader = scope.spawn(|| {
            cache.get_or_load("key", options, || {
                is_loading.wait();
                may_end.wait();
                Ok::<_, Infallible>(Some("2"))
            })
        });
        is_loading.wait();
        assert_eq!(load(&cache, options, "3"), some("1"), "others do not wait");
        assert_eq!(cache.get_or_insert_with("key", || "3").unwrap(), "1");
        may_end.wait();
        assert_eq!(leader.join().unwrap().unwrap().unwrap(), "2");
    });
    assert_eq!(load(&cache, options, "3"), some("2"));
    assert_eq!((cache.stats().loads, cache.stats().failed_loads), (2, 0));
    // After the window it is absent.
    cache.maintain(2 * HOUR);
    assert!(cache.get("key").is_none());
    cache.verify();
}

#[test]
fn a_reload_never_replaces_a_newer_value() {
    type Change = dyn Fn(&Cache);
    let changes: [(&Change, Option<&str>); 4] = [
        (&|_| (), Some("loaded")),
        (&|cache| cache.insert("key", "newer").unwrap(), Some("newer")),
        (&|cache| assert!(cache.remove("key")), None),
        (&|cache| cache.invalidate_all(), None),
    ];
    for (number, (change, expected)) in changes.into_iter().enumerate() {
        let cache = builder().build().unwrap();
        let options = InsertOptions::new().ttl(MINUTE).stale_while_revalidate(HOUR);
        cache.insert_with("key", "old", options).unwrap();
        cache.maintain(2 * MINUTE);
        let value = cache.get_or_insert_with("key", || {
            change(&cache);
            Loaded::new("loaded").ttl(HOUR)
        });
        assert_eq!(value.unwrap(), "loaded", "change {number}");
        assert_eq!(cache.get("key").as_deref(), expected.map(str::as_bytes), "change {number}");
        cache.verify();
    }
}

/// A number changes its word in place: that is a change as any other.
#[test]
fn a_reload_does_not_replace_counted_numbers() {
    let cache = builder().build().unwrap();
    let options = InsertOptions::new().ttl(MINUTE).stale_while_revalidate(HOUR);
    cache.insert_with("key", "10", options).unwrap();
    assert_eq!(cache.increment("key", 1), Ok(Some(11)), "it is numeric from here on");
    cache.maintain(2 * MINUTE);
    let reloaded = cache.get_or_insert_with("key", || {
        assert_eq!(cache.increment("key", 1), Ok(Some(12)));
        "0"
    });
    assert_eq!(reloaded.unwrap(), "0");
    assert_eq!(cache.get("key").unwrap(), "12");
    cache.verify();
}

/// A caller that misses after a removal must not get a value that an earlier reload loaded.
#[test]
fn callers_after_a_removal_join_no_reload() {
    let cache = builder().build().unwrap();
    let options = InsertOptions::new().ttl(MINUTE).stale_while_revalidate(HOUR);
    cache.insert_with("key", "old", options).unwrap();
    cache.maintain(2 * MINUTE);
    let reloaded = cache.get_or_insert_with("key", || {
        assert!(cache.remove("key"));
        thread::scope(|scope| {
            let other = scope.spawn(|| cache.get_or_insert_with("key", || "after").unwrap());
            assert_eq!(other.join().unwrap(), "after");
        });
        "before"
    });
    assert_eq!(reloaded.unwrap(), "before");
    assert_eq!(cache.get("key").unwrap(), "after");
}

#[test]
fn a_reload_that_fails_leaves_the_stale_value() {
    let cache = builder().build().unwrap();
    let options = LoadOptions::new().ttl(MINUTE).stale_while_revalidate(HOUR).negative_ttl(HOUR);
    load(&cache, options, "1").unwrap();
    cache.maintain(2 * MINUTE);
    assert_eq!(load(&cache, options, "error"), Err(LoadError::Loader("no database")));
    assert_eq!(cache.get("key").unwrap(), "1");
    // A loader that asks for its own key gets the stale value, too.
    let nested = cache.get_or_insert_with("key", || cache.get_or_insert_with("key", || "never").unwrap());
    assert_eq!(nested.unwrap(), "1");
    // The answer that there is no value replaces it.
    cache.insert_with("key", "2", InsertOptions::new().ttl(MINUTE).stale_while_revalidate(HOUR)).unwrap();
    cache.maintain(10 * MINUTE);
    assert_eq!(load(&cache, LoadOptions::new(), "none"), Ok(None));
    assert!(cache.get("key").is_none());
    cache.verify();
}

#[test]
fn negative_results_answer_without_a_load() {
    let cache = builder().build().unwrap();
    let options = LoadOptions::new().negative_ttl(MINUTE);
    assert_eq!(load(&cache, LoadOptions::new(), "none"), Ok(None));
    assert_eq!(load(&cache, options, "none"), Ok(None), "nothing was remembered");
    assert_eq!(load(&cache, options, "1"), Ok(None), "it is remembered");
    let known = Error::KnownAbsent { key: "\"key\"".to_owned() };
    assert_eq!(cache.get_or_insert_with("key", || "1"), Err(known));
    cache.maintain(2 * MINUTE);
    assert_eq!(load(&cache, options, "error"), Err(LoadError::Loader("no database")));
    let known = LoadError::Cache(Error::KnownFailure { key: "\"key\"".to_owned() });
    assert_eq!(load(&cache, options, "1"), Err(known));
    cache.maintain(4 * MINUTE);
    assert_eq!(load(&cache, options, "1"), some("1"));
    cache.verify();
}

/// A remembered negative result is no value for anything but a loader.
#[test]
fn a_negative_result_is_absent_for_other_calls() {
    let cache = builder().build().unwrap();
    let remember = || {
        cache.remove("key");
        load(&cache, LoadOptions::new().negative_ttl(HOUR), "none").unwrap();
    };
    remember();
    assert!(cache.get("key").is_none() && cache.get_ref("key").is_none() && !cache.contains_key("key"));
    assert!(cache.with("key", |_| ()).is_none() && cache.get_many(&["key"])[0].is_none());
    assert_eq!((cache.iter().unwrap().count(), cache.increment("key", 1)), (0, Ok(None)));
    assert!(!cache.compare_and_swap("key", "", "1", InsertOptions::new()).unwrap());
    assert!(cache.insert_if_absent("key", "1", InsertOptions::new()).unwrap());
    assert_eq!(cache.get("key").unwrap(), "1");
    remember();
    assert_eq!(cache.increment_or_insert("key", 1, 7, InsertOptions::new()), Ok(7));
    assert_eq!(cache.increment_or_insert("key", 1, 7, InsertOptions::new()), Ok(8));
    remember();
    assert!(cache.take("key").unwrap().is_none());
    remember();
    cache.insert("key", "2").unwrap();
    assert_eq!(load(&cache, LoadOptions::new(), "3"), some("2"));
    cache.verify();
}

/// Every client flags that a kind of entries could be taken for, and the kinds themselves.
#[test]
fn a_structured_value_replaces_a_negative_result() {
    for answer in ["none", "error"] {
        let cache = builder().build().unwrap();
        let _ = load(&cache, LoadOptions::new().negative_ttl(MINUTE), answer);
        let map = cache.map::<String, u32>("key");
        assert_eq!(map.get(&"a".to_owned()), Ok(None), "{answer}");
        assert_eq!(map.remove(&"a".to_owned()), Ok(false), "{answer}");
        assert!(!matches!(load(&cache, LoadOptions::new(), "1"), Ok(Some(_))), "{answer}: it is still remembered");
        map.insert(&"a".to_owned(), &1).unwrap();
        assert_eq!(map.get(&"a".to_owned()), Ok(Some(1)), "{answer}");
        cache.maintain(2 * MINUTE);
        assert_eq!(map.get(&"a".to_owned()), Ok(Some(1)), "{answer}: it has no TTL of the negative result");
        cache.verify();
    }
}

#[test]
fn a_touch_does_not_extend_a_negative_result() {
    let cache = builder().build().unwrap();
    load(&cache, LoadOptions::new().negative_ttl(MINUTE), "none").unwrap();
    assert_eq!(cache.touch("key", HOUR), Ok(false));
    cache.maintain(2 * MINUTE);
    assert_eq!(load(&cache, LoadOptions::new(), "1"), some("1"));
}

/// The key has a value when the touch judges it, and a negative result when it would be changed.
#[test]
fn a_touch_changes_only_the_judged_entry() {
    for ttl in [HOUR, Duration::ZERO] {
        let cache = builder().build().unwrap();
        cache.insert("key", "1").unwrap();
        let judged = Cell::new(0);
        let touched = cache.memcached().touch_if(b"key", ttl.into(), |flags| {
            judged.set(judged.get() + 1);
            if judged.get() == 1 {
                thread::scope(|scope| {
                    scope.spawn(|| {
                        cache.remove("key");
                        load(&cache, LoadOptions::new().negative_ttl(MINUTE), "none").unwrap();
                    });
                });
            }
            (flags.to_annotation() == 0).then_some(flags)
        });
        assert_eq!((touched, judged.get()), (Ok(false), 2), "{ttl:?}");
        assert_eq!(load(&cache, LoadOptions::new(), "1"), Ok(None), "{ttl:?}: it is still remembered");
        cache.maintain(2 * MINUTE);
        assert_eq!(load(&cache, LoadOptions::new(), "1"), some("1"), "{ttl:?}");
        cache.verify();
    }
}

fn client_flags() -> impl Iterator<Item = u32> {
    let kinds = (0x01..=0x04).chain(0xE1..=0xE4).chain([0xFF]);
    kinds.flat_map(|kind| [kind, kind << 24, kind << 24 | 0x00AB_CDEF])
}

/// Values of both kinds of objects on flash.
const VALUE_BYTES: [usize; 2] = [100, 9000];

fn insert_with_all_flags(cache: &Cache) {
    for bytes in VALUE_BYTES {
        for flags in client_flags() {
            let key = format!("{flags:x} {bytes}");
            cache.memcached().insert(key.as_bytes(), &vec![7; bytes]).flags(flags).apply().unwrap();
        }
        let stale = InsertOptions::new().ttl(MINUTE).stale_while_revalidate(HOUR);
        cache.insert_with(format!("stale {bytes}"), vec![8; bytes], stale).unwrap();
    }
    cache.memcached().insert(b"e2000000 100", b"more").mode(Mode::Append).apply().unwrap();
    load(cache, LoadOptions::new().negative_ttl(HOUR), "none").unwrap();
}

/// Keys of entries that only fill the memory are numbers.
const FILLER_KEY_BYTES: usize = 4;

/// Bound on the time in which a stalled filesystem completes a transfer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Calls until the result is a success, or another error than those that a stalled filesystem causes.
fn try_again<T>(call: impl Fn() -> Result<T, Error>, is_expected: impl Fn(&Error) -> bool) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call() {
            Ok(result) => return result,
            Err(error) => assert!(is_expected(&error) && Instant::now() < deadline, "{error}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// An eviction waits for flash, and an insert waits for the eviction only for a limited time.
fn insert_when_possible(cache: &Cache, key: &[u8], options: InsertOptions) {
    try_again(|| cache.insert_with(key, [7; 900], options), |error| matches!(error, Error::OutOfMemory { .. }));
}

fn look_at_all_flags(cache: &Cache) {
    // Before a lookup brings an entry of flash to memory.
    let entries = cache.iter().unwrap().filter(|(key, _)| key.len() != FILLER_KEY_BYTES).count();
    assert_eq!(entries, VALUE_BYTES.len() * (client_flags().count() + 1), "a negative result is no entry");
    for bytes in VALUE_BYTES {
        for flags in client_flags() {
            let key = format!("{flags:x} {bytes}");
            let length = if key == "e2000000 100" { bytes + 4 } else { bytes };
            assert_eq!(cache.get(&key).map(|value| value.len()), Some(length), "{key}");
            assert!(cache.contains_key(&key) && !cache.insert_if_absent(&key, "", InsertOptions::new()).unwrap());
            let read = cache.memcached().get(key.as_bytes()).hit().map(|item| item.flags());
            assert_eq!(read, Some(flags), "{key}");
        }
        let read = cache.memcached().get(format!("stale {bytes}").as_bytes()).hit().map(|item| item.flags());
        assert_eq!(read, Some(0), "clients do not see what the library notes");
    }
    assert!(cache.get("key").is_none(), "a negative result is no value");
    VALUE_BYTES.into_iter().for_each(|bytes| assert_is_stale(cache, &format!("stale {bytes}")));
}

fn assert_is_stale(cache: &Cache, key: &str) {
    let loaded = cache.get_or_load(key, LoadOptions::new(), || Ok::<_, Infallible>(Some("new")));
    assert_eq!(loaded.unwrap().unwrap(), "new", "{key}: its TTL is over");
}

#[test]
fn client_flags_never_mark_a_special_entry() {
    let cache = builder().build().unwrap();
    insert_with_all_flags(&cache);
    cache.maintain(2 * MINUTE);
    look_at_all_flags(&cache);
    cache.verify();
}

#[test]
fn kinds_of_entries_survive_flash_and_restarts() {
    for has_memory_file in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let build = || {
            let builder = builder().flash(folder.path().join("flash"), ByteSize::mib(64));
            // Without it a stop writes the entries to flash.
            let memory_file = folder.path().join("memory");
            if has_memory_file { builder.memory_file(memory_file) } else { builder }.build()
        };
        let cache = build().unwrap();
        insert_with_all_flags(&cache);
        cache.close().unwrap();
        drop(cache);
        // A transfer that a stalled filesystem delays beyond the close would keep the file locked.
        let is_in_use = |error: &Error| error.to_string().contains("in use");
        let cache = try_again(build, is_in_use);
        cache.maintain(2 * MINUTE);
        look_at_all_flags(&cache);
        cache.verify();
    }
}

#[test]
fn kinds_of_entries_survive_evictions_to_flash() {
    for max_idle_seconds in [None, Some(30)] {
        let folder = tempfile::tempdir().unwrap();
        let memory = ByteSize::mib(if max_idle_seconds.is_some() { 64 } else { 6 });
        let builder = Cache::builder().memory(memory).clock(Clock::Manual).policy(Policy::Fifo);
        let builder = builder.engine(|engine| engine.flash_max_idle(max_idle_seconds));
        let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
        insert_with_all_flags(&cache);
        // Fillers have both TTLs of the entries: they fill the open segments of both.
        let stale = InsertOptions::new().ttl(MINUTE).stale_while_revalidate(HOUR);
        for number in 0..12_000_u32 {
            let options = if number % 2 == 0 { stale } else { InsertOptions::new() };
            insert_when_possible(&cache, &number.to_le_bytes(), options);
        }
        (0..40).for_each(|step| cache.maintain(Duration::from_secs(10 * step)));
        let keys = VALUE_BYTES.map(|bytes| format!("stale {bytes}"));
        assert!(keys.iter().all(|key| !cache.memcached().peek(key.as_bytes()).is_hit()), "they are on flash");
        look_at_all_flags(&cache);
        cache.verify();
    }
}

#[test]
fn kinds_of_entries_survive_changes_of_their_values() {
    let cache = builder().build().unwrap();
    let stale = InsertOptions::new().ttl(MINUTE).stale_while_revalidate(HOUR);
    let map = cache.map::<u8, u8>("map");
    map.insert(&1, &1).unwrap();
    let keys = ["appended", "long", "number", "map"];
    let values = [b"value".to_vec(), vec![7; 900_000], b"9".to_vec(), cache.get("map").unwrap().to_vec()];
    keys.iter().zip(&values).for_each(|(key, value)| cache.insert_with(key, value, stale).unwrap());
    for key in ["appended", "long"] {
        cache.memcached().insert(key.as_bytes(), b"more").mode(Mode::Append).apply().unwrap();
    }
    assert_eq!(cache.increment("number", 1), Ok(Some(10)));
    (0..100).for_each(|entry| map.insert(&entry, &1).unwrap());
    cache.maintain(2 * MINUTE);
    keys.into_iter().for_each(|key| assert_is_stale(&cache, key));
    cache.verify();
}

#[test]
fn a_used_entry_outlives_its_time_to_idle() {
    let cache = builder().time_to_idle(MINUTE).build().unwrap();
    for key in ["used", "looked at", "unused"] {
        cache.insert(key, "value").unwrap();
    }
    cache.insert_with("with a TTL", "value", InsertOptions::new().ttl(2 * MINUTE)).unwrap();
    for second in (40..400).step_by(40) {
        cache.maintain(Duration::from_secs(second));
        assert_eq!(cache.get("used").unwrap(), "value", "second {second}");
        assert_eq!(cache.with("looked at", |bytes| bytes.len()), Some(5), "second {second}");
        assert_eq!(cache.contains_key("with a TTL"), second < 120, "second {second}");
    }
    assert!(!cache.contains_key("unused"));
    cache.verify();
}

#[test]
fn a_touched_entry_has_its_own_ttl() {
    let cache = builder().time_to_idle(MINUTE).build().unwrap();
    for (key, ttl) in [("shorter", 10), ("longer", 100)] {
        cache.insert_with(key, "value", InsertOptions::new().cost(8.0)).unwrap();
        assert_eq!(cache.touch(key, Duration::from_secs(ttl)), Ok(true));
    }
    cache.insert("the same", "value").unwrap();
    assert_eq!(cache.touch("the same", MINUTE), Ok(true));
    for second in (5..200).step_by(5) {
        cache.maintain(Duration::from_secs(second));
        let is_present = ["shorter", "longer", "the same"].map(|key| cache.get(key).is_some());
        assert_eq!(is_present, [second < 10, second < 100, second < 60], "second {second}");
    }
    cache.verify();
}

/// Reads and edits are uses, also of values that are edited in place.
#[test]
fn uses_keep_structured_values_past_idle_time() {
    let cache = builder().time_to_idle(MINUTE).build().unwrap();
    let (options, with_ttl) = (InsertOptions::new(), InsertOptions::new().ttl(2 * MINUTE));
    let (read, edited, log) = (cache.words("read"), cache.words("edited"), cache.append_buffer("log"));
    let (unused, map, bounded) = (cache.words("unused"), cache.map::<u32, u32>("map"), cache.words("bounded"));
    [&read, &edited, &unused].iter().for_each(|words| assert!(words.create(&[0], options).unwrap()));
    assert!(bounded.create(&[0], with_ttl).unwrap());
    map.insert(&0, &0).unwrap();
    log.append("0").unwrap();
    for second in (40..400).step_by(40) {
        cache.maintain(Duration::from_secs(second));
        assert_eq!(read.get(), Ok(Some(vec![0])), "second {second}");
        assert_eq!(edited.edit(|words| words[0] += 1), Ok(Some(())), "second {second}");
        log.append("more").unwrap();
        assert_eq!(map.get(&0), Ok(Some(0)), "second {second}");
        assert_eq!(bounded.get().unwrap().is_some(), second < 120, "second {second}");
    }
    assert_eq!(edited.get(), Ok(Some(vec![9])));
    assert_eq!(log.records().unwrap().unwrap().iter().count(), 10);
    assert!(!cache.contains_key("unused"));
    cache.verify();
}

/// An entry with an annotation of the library (cost, time to idle) is edited in place, not copied.
#[test]
fn edits_of_noted_entries_are_in_place() {
    let cache = builder().time_to_idle(MINUTE).build().unwrap();
    let (words, log) = (cache.words("words"), cache.append_buffer("log"));
    words.create(&[0], InsertOptions::new().cost(8.0)).unwrap();
    log.append("0").unwrap();
    let stored = || cache.memcached().stats().stored_total;
    let before = stored();
    (0..10).for_each(|_| assert_eq!(words.edit(|words| words[0] += 1), Ok(Some(()))));
    (0..10).for_each(|_| log.append("1").unwrap());
    assert_eq!(stored(), before);
    cache.verify();
}

#[test]
fn a_structured_value_stays_after_its_ttl() {
    let cache = builder().build().unwrap();
    let options = InsertOptions::new().ttl(MINUTE).stale_while_revalidate(HOUR);
    for key in ["reloaded", "left"] {
        cache.map::<u8, u8>(key).insert_many([(&1, &1)], options).unwrap();
    }
    let get = |key: &str| cache.map::<u8, u8>(key).get(&1);
    cache.maintain(2 * MINUTE);
    assert_eq!((get("reloaded"), get("left")), (Ok(Some(1)), Ok(Some(1))));
    assert_is_stale(&cache, "reloaded");
    cache.maintain(HOUR + 2 * MINUTE);
    assert_eq!(get("left"), Ok(None));
    cache.verify();
}

/// A task's read of flash is a use, too.
#[test]
fn uses_keep_flash_entries_past_idle_time() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Cache::builder().memory(ByteSize::mib(6)).clock(Clock::Manual).policy(Policy::Fifo);
    let builder = builder.time_to_idle(HOUR).engine(|engine| engine.flash_demotion_wait(MINUTE));
    let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(64)).build().unwrap();
    let keys = ["thread", "task", "structured", "unused"];
    for key in keys {
        cache.append_buffer(key).append([7; 1000]).unwrap();
    }
    let fill = |from: u32| {
        for number in from..from + 12_000 {
            insert_when_possible(&cache, &number.to_le_bytes(), InsertOptions::new());
        }
        assert!(keys.iter().all(|key| !cache.memcached().peek(key.as_bytes()).is_hit()), "they are on flash");
    };
    fill(0);
    for minute in [40, 80] {
        cache.maintain(minute * MINUTE);
        assert!(cache.get("thread").is_some(), "minute {minute}");
        assert!(smol::block_on(cache.get_async("task")).is_some(), "minute {minute}");
        assert!(cache.append_buffer("structured").append("1").is_ok());
    }
    assert_eq!(cache.append_buffer("structured").records().unwrap().unwrap().iter().count(), 3);
    assert!(!cache.contains_key("unused"));
    cache.verify();
}

#[test]
fn an_infinite_stale_window_is_clamped() {
    let cache = builder().build().unwrap();
    let options = InsertOptions::new().ttl(MINUTE).stale_while_revalidate(Duration::MAX);
    cache.insert_with("key", "value", options).unwrap();
    cache.maintain(MINUTE + HOUR);
    assert_eq!(cache.get("key").unwrap(), "value", "stale");
    assert_eq!(load(&cache, LoadOptions::new(), "new").unwrap().as_deref(), Some("new"));
}

/// The end of a TTL is kept modulo 194 days: later than 97 days after it a value would look fresh again.
#[test]
fn values_stay_stale_until_a_long_window_ends() {
    let options = InsertOptions::new().ttl(MINUTE).stale_while_revalidate(365 * DAY);
    for days in [1, 90, 97, 98, 150, 200] {
        let cache = builder().build().unwrap();
        cache.insert_with("key", "old", options).unwrap();
        cache.maintain(days * DAY);
        assert_eq!(cache.get("key").is_some(), days <= 97, "day {days}");
        assert_eq!(load(&cache, LoadOptions::new(), "new"), some("new"), "day {days}");
        cache.verify();
    }
}
