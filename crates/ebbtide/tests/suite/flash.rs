//! Memory over a real file: evicted objects are found again, changed and deleted ones are not.

use crate::common::store;
use ebbtide::flash::{AdmissionOptions, AdmissionPolicy};
use ebbtide::memcached::{
    ByteSize, Cache, CacheBuilder, Clock, Error, FlashOptions, FlashPromotion, FlashStats, Lookup, Mode, PoolOptions,
    Stored, Ttl,
};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One of the policies, another one in another run.
fn some_promotion() -> FlashPromotion {
    let words = ["always", "second-hit", "never", "one-in:2"];
    let word = words[RandomState::new().hash_one("promotion") as usize % words.len()];
    println!("promotion {word}");
    word.parse().unwrap()
}

fn build(path: &Path, clock: Clock, promotion: FlashPromotion) -> Cache {
    // No object is dropped for being alone in its page.
    let options = FlashOptions { rewrite_threshold: 1, ..FlashOptions::default() };
    let builder = Cache::builder().memory(ByteSize::mib(6)).clock(clock).flash_promotion(promotion);
    builder.flash(path.join("flash"), ByteSize::mib(64)).flash_options(options).build().unwrap()
}

fn value(number: u32, version: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![number as u8; bytes];
    value[..8].copy_from_slice(&version.to_le_bytes());
    value
}

/// Lengths of small and large objects.
fn bytes_of(number: u32) -> usize {
    if number.is_multiple_of(50) { 9000 } else { 200 + number as usize % 300 }
}

fn get(cache: &Cache, key: &[u8]) -> Option<Vec<u8>> {
    cache.get(key).hit().map(|item| item.to_vec())
}

fn flash(cache: &Cache) -> FlashStats {
    cache.flash_stats().expect("there is flash")
}

#[test]
fn objects_beyond_memory_are_found_on_flash() {
    let folder = tempfile::tempdir().unwrap();
    let promotion = some_promotion();
    let cache = build(folder.path(), Clock::Manual, promotion);
    const OBJECTS: u32 = 25_000;
    for number in 0..OBJECTS {
        let (key, value) = (number.to_le_bytes(), value(number, 1, bytes_of(number)));
        cache.insert(&key, &value).flags(number).ttl(Ttl::seconds(1000)).apply().unwrap();
    }
    let in_memory = cache.stats().items;
    assert!(in_memory < u64::from(OBJECTS) * 3 / 4, "{in_memory} fit the memory");
    let (mut found, mut refused) = (0, 0);
    for number in 0..OBJECTS {
        // The device has taken all that waits for it then: on a slow one, promotions are refused for want of space.
        let now = flash(&cache).promotions_refused;
        if std::mem::replace(&mut refused, now) != now {
            cache.maintain(Duration::ZERO);
        }
        if let Lookup::Hit(item) = cache.get(&number.to_le_bytes()) {
            assert_eq!(item.to_vec(), value(number, 1, bytes_of(number)));
            assert_eq!(item.flags(), number);
            assert!(item.ttl().is_some_and(|left| left <= Duration::from_secs(1000)));
            found += 1;
        }
    }
    let stats = flash(&cache);
    assert!(found > OBJECTS / 100 * 98, "{found} of {OBJECTS} found; {stats:?}");
    assert!(stats.promoted + stats.served > 5000, "{stats:?}");
    assert!(stats.tier.hits_large > 100 && stats.tier.hits_small > 5000, "{stats:?}");
    match promotion {
        FlashPromotion::Always => {
            assert!(stats.served <= stats.promotions_refused && stats.served < stats.promoted / 4, "{stats:?}");
            assert!(stats.unchanged > 0, "what comes and goes unchanged is not written again");
        }
        // Each key was asked for once; a filter may take a few for others.
        _ => assert!(stats.promoted < stats.served / 10, "{stats:?}"),
    }
    let memory = cache.stats();
    assert_eq!(memory.memory_limit_bytes, 6 << 20);
    assert!(memory.memory_used_bytes <= 6 << 20, "{memory:?}");
    cache.verify();
    cache.maintain(Duration::from_secs(1001));
    assert!((0..OBJECTS).all(|number| get(&cache, &number.to_le_bytes()).is_none()), "nothing outlives its time");
    cache.verify();
}

/// A cache in which `key` is on flash only.
fn with_key_below(path: &Path, key: &[u8], text: &[u8]) -> Cache {
    let cache = build(path, Clock::Manual, FlashPromotion::Never);
    cache.insert(key, text).apply().unwrap();
    for number in 0..30_000u32 {
        cache.insert(&number.to_le_bytes(), &value(number, 1, 300)).apply().unwrap();
    }
    assert!(!cache.peek(key).is_hit(), "it was evicted");
    cache
}

#[test]
fn operations_see_what_is_on_flash() {
    let folder = tempfile::tempdir().unwrap();
    let text: &[u8] = &[b'7'; 300];
    let fresh = |path: &Path| with_key_below(path, b"key", text);
    let cache = fresh(folder.path());
    assert_eq!(cache.insert(b"key", b"new").mode(Mode::Add).apply(), Ok(Stored::NotStored));
    assert_eq!(get(&cache, b"key"), Some(text.to_vec()));
    drop(cache);
    let cache = fresh(folder.path());
    assert_eq!(cache.insert(b"key", b"!").mode(Mode::Append).apply(), Ok(Stored::Stored));
    assert_eq!(get(&cache, b"key").unwrap(), [text, b"!"].concat());
    assert!(cache.delete(b"key"));
    assert_eq!(get(&cache, b"key"), None);
    drop(cache);
    let cache = fresh(folder.path());
    assert!(cache.touch(b"key", Ttl::seconds(5)).unwrap());
    cache.maintain(Duration::from_secs(5));
    assert_eq!(get(&cache, b"key"), None, "it got a shorter life");
    drop(cache);
    let cache = fresh(folder.path());
    assert!(cache.delete(b"key"), "it was on flash");
    assert_eq!((get(&cache, b"key"), cache.delete(b"key")), (None, false));
    drop(cache);
    let cache = fresh(folder.path());
    let cas = |token| cache.insert(b"key", b"new").mode(Mode::Cas(token)).apply();
    let item = cache.get(b"key").hit().unwrap();
    assert_eq!((item.to_vec(), item.key(), item.ttl()), (text.to_vec(), &b"key"[..], None));
    let (token, handle) = (item.cas(), item.to_handle().unwrap());
    drop(item);
    assert!(!cache.peek(b"key").is_hit(), "it stays on flash");
    assert_eq!((cas(token), cache.peek(b"key").is_hit()), (Ok(Stored::Exists), true), "a token of none");
    assert_eq!(handle.slice_at(0), text);
    let token = cache.get(b"key").hit().unwrap().cas();
    assert_eq!(cas(token), Ok(Stored::Stored));
    drop(cache);
    let cache = fresh(folder.path());
    let mut answers = Vec::new();
    cache.get_batch(&[b"key", b"nothing", b"key"], |_, lookup| answers.push(lookup.hit().map(|item| item.to_vec())));
    assert_eq!(answers, [Some(text.to_vec()), None, Some(text.to_vec())]);
    assert_eq!((flash(&cache).promoted, flash(&cache).served), (0, 2));
    let token = cache.get_with_token(b"key").hit().unwrap().cas();
    assert_eq!(cache.insert(b"key", b"new").mode(Mode::Cas(token)).apply(), Ok(Stored::Stored));
    cache.flush(Duration::ZERO);
    assert_eq!(get(&cache, b"key"), None);
    cache.verify();
}

#[test]
fn no_life_gets_longer_on_flash() {
    let folder = tempfile::tempdir().unwrap();
    let cache = build(folder.path(), Clock::Manual, some_promotion());
    for number in 0..25_000u32 {
        let ttl = Ttl::seconds(u32::MAX - number % 2 * (1 << 31));
        cache.insert(&number.to_le_bytes(), &value(number, 1, 300)).ttl(ttl).apply().unwrap();
    }
    for number in 0..25_000u32 {
        if let Lookup::Hit(item) = cache.get(&number.to_le_bytes()) {
            assert!(item.ttl().is_some(), "{number} was not to live for ever");
        }
    }
    assert!(flash(&cache).promoted + flash(&cache).served > 1000);
}

#[test]
fn concurrent_changes_never_restore_an_old_value() {
    const KEYS: u32 = 30_000;
    let folder = tempfile::tempdir().unwrap();
    let cache = build(folder.path(), Clock::System, some_promotion());
    let min_versions: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for owner in 0..2u32 {
            let (cache, min_versions) = (&cache, &min_versions);
            scope.spawn(move || {
                let mut random = u64::from(owner) + 1;
                for step in 1..30_000u64 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let number = (random >> 33) as u32 % (KEYS / 2) * 2 + owner;
                    let key = number.to_le_bytes();
                    let newest = &min_versions[number as usize];
                    match random >> 60 {
                        0..9 => {
                            cache.insert(&key, &value(number, step, bytes_of(number))).apply().unwrap();
                            newest.store(step, Ordering::SeqCst);
                        }
                        9 => {
                            cache.delete(&key);
                            newest.store(step, Ordering::SeqCst);
                        }
                        10 if step % 1000 == 0 => cache.flush(Duration::ZERO),
                        _ => {
                            if let Some(found) = get(cache, &key) {
                                assert_eq!(found, value(number, newest.load(Ordering::SeqCst), bytes_of(number)));
                            }
                        }
                    }
                }
            });
        }
        let (cache, min_versions) = (&cache, &min_versions);
        scope.spawn(move || {
            for round in 0..20_000u32 {
                let number = round.wrapping_mul(2_654_435_761) % KEYS;
                let known = min_versions[number as usize].load(Ordering::SeqCst);
                if let Some(found) = get(cache, &number.to_le_bytes()) {
                    let version = u64::from_le_bytes(found[..8].try_into().unwrap());
                    assert!(version >= known, "key {number}: {version} after {known}");
                    assert_eq!(found, value(number, version, bytes_of(number)));
                }
            }
        });
    });
    let stats = flash(&cache);
    assert!(stats.promoted + stats.served > 0 && stats.tier.inserts > 100, "{stats:?}");
    cache.verify();
}

#[test]
fn what_cannot_be_flash_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |path: &Path, size| match Cache::builder().flash(path, size).build() {
        Err(Error::Configuration { option: "flash", value, reason }) => (value, reason),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{} was taken", path.display()),
    };
    let (value, reason) = refusal(folder.path(), ByteSize::mib(64));
    assert!(value.contains(folder.path().to_str().unwrap()) && reason.contains("directory"), "{value}: {reason}");
    let foreign = folder.path().join("letter");
    std::fs::write(&foreign, "Dear reader").unwrap();
    refusal(&foreign, ByteSize::mib(64));
    assert_eq!(std::fs::read(&foreign).unwrap(), b"Dear reader", "what is not ours stays");
    let file = folder.path().join("flash");
    let first = Cache::builder().flash(&file, ByteSize::mib(64)).build().unwrap();
    let (_, reason) = refusal(&file, ByteSize::mib(64));
    assert!(reason.contains("in use") || reason.contains("lock"), "{reason}");
    drop(first);
    // The background thread may hold the last reference.
    let mut reopened = (0..12_000).map_while(|_| {
        std::thread::sleep(Duration::from_millis(10));
        Cache::builder().flash(&file, ByteSize::mib(64)).build().err()
    });
    assert!(reopened.by_ref().count() < 12_000, "it is free again");
}

#[test]
fn a_refused_configuration_does_not_touch_flash() {
    let folder = tempfile::tempdir().unwrap();
    let builder = || Cache::builder().flash(folder.path().join("flash"), ByteSize::mib(64)).clock(Clock::Manual);
    assert!(matches!(builder().merge_run(1).build(), Err(Error::Configuration { option: "merge_run", .. })));
    builder().build().unwrap();
}

#[test]
fn admission_state_adds_to_the_flash_memory() {
    let folder = tempfile::tempdir().unwrap();
    let memory = ByteSize::mib(16);
    let check = |policy| {
        let admission = AdmissionOptions { policy, ..AdmissionOptions::default() };
        let options = FlashOptions { admission, ..FlashOptions::default() };
        let builder = Cache::builder()
            .memory(memory)
            .flash(folder.path().join("flash"), ByteSize::mib(64))
            .flash_options(options);
        builder.check_flash()
    };
    let of_flash = |policy| check(policy).unwrap().planned.as_bytes();
    let history = |keys_per_hour| of_flash(AdmissionPolicy::History { keys_per_hour, min_reads: 0.1 });
    let eighth = memory.as_bytes() / 8;
    assert_eq!(
        of_flash(AdmissionPolicy::All),
        eighth + eighth / 64,
        "and the hits on flash of the last turn of memory"
    );
    let (few, many) = (history(1 << 10), history(1 << 16));
    assert_eq!(many - few, 6 * ((1 << 16) - (1 << 10)) * 12 / 8);
    assert!((eighth + eighth / 64 + 1..memory.as_bytes() / 7).contains(&few), "{few}");
    for keys in [1 << 30, usize::MAX] {
        let refusal = check(AdmissionPolicy::RejectFirst { times: 1, keys }).unwrap_err().to_string();
        assert!(refusal.contains("admission"), "{refusal}");
    }
}

#[test]
fn discards_on_a_file_give_a_notice() {
    let folder = tempfile::tempdir().unwrap();
    let notices = |discard| {
        let options = FlashOptions { discard, ..FlashOptions::default() };
        let builder = Cache::builder().flash(folder.path().join("flash"), ByteSize::mib(64)).clock(Clock::Manual);
        flash(&builder.flash_options(options).build().unwrap()).notices
    };
    let told = |notices: &[String]| notices.iter().any(|notice| notice.contains("are not discarded"));
    assert!(!told(&notices(false)) && told(&notices(true)));
}

#[test]
fn the_flash_index_takes_memory_as_needed() {
    let folder = tempfile::tempdir().unwrap();
    let total = 4 << 20;
    let build = |name: &str, flash_memory_bytes| {
        let options = FlashOptions { memory_bytes: flash_memory_bytes, ..FlashOptions::default() };
        let builder = Cache::builder().memory(ByteSize::bytes(total)).clock(Clock::Manual).flash_options(options);
        builder.flash(folder.path().join(name), ByteSize::mib(40)).build().unwrap()
    };
    let fill = |cache: &Cache| {
        for number in 0..200_000_u32 {
            store(cache, number, &[7; 60]);
            if number.is_multiple_of(1000) {
                let memory = cache.stats();
                assert_eq!(memory.memory_limit_bytes, total);
                assert!(memory.memory_used_bytes <= total, "{memory:?}");
            }
        }
        let tier = flash(cache).tier;
        let ended: u64 = tier.evictions.by_cause().iter().map(|cause| cause.1).sum();
        assert_eq!(tier.inserts, tier.objects + ended, "none is removed or overwritten: {:?}", tier.evictions);
        tier
    };
    let bound = fill(&build("bound", total / 8));
    let cache = build("flash", u64::MAX);
    let free = fill(&cache);
    assert!(bound.memory_bytes <= total / 8 && free.objects > 2 * bound.objects, "{bound:?} {free:?}");
    assert!(bound.evictions.memory > 10 * bound.evictions.space && free.evictions.memory == 0, "{bound:?} {free:?}");
    let refusal = cache.resize(ByteSize::mib(1)).unwrap_err().to_string();
    assert!(refusal.contains("memory = 1048576") && refusal.contains("for flash"), "{refusal}");
    cache.resize(ByteSize::bytes(2 * total)).unwrap();
    assert_eq!(cache.stats().memory_limit_bytes, 2 * total);
    cache.verify();
    drop(cache);
    let again = build("flash", u64::MAX);
    (1..50).for_each(|second| again.maintain(Duration::from_secs(second)));
    let found = flash(&again).tier.objects;
    assert!(found > free.objects / 100 * 99, "{found} after a start, {} before", free.objects);
    assert_eq!(again.stats().memory_limit_bytes, total);
}

/// The memory of the items of all pools, of a cache whose memory is `total`, and whose flash keeps to the rest.
fn items_bytes(cache: &Cache, total: u64) -> u64 {
    let stats = cache.stats();
    assert!(stats.memory_limit_bytes <= total && stats.memory_used_bytes <= total, "{stats:?}");
    let items = cache.pools().iter().map(|name| cache.pool(name).unwrap().stats().memory_limit_bytes).sum::<u64>();
    let flash = flash(cache);
    assert!(items + flash.memory_limit_bytes <= total, "{items} and {} bytes", flash.memory_limit_bytes);
    assert!(flash.tier.memory_bytes <= flash.memory_limit_bytes, "{} bytes", flash.tier.memory_bytes);
    items
}

#[test]
fn items_use_memory_the_flash_index_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let total = 16 << 20;
    let build = || {
        let builder = Cache::builder().memory(ByteSize::bytes(total)).clock(Clock::Manual);
        let builder = builder.flash(folder.path().join("flash"), ByteSize::mib(160));
        builder.memory_file(folder.path().join("memory")).build().unwrap()
    };
    let cache = build();
    let empty = items_bytes(&cache, total);
    assert!(empty > total / 100 * 89, "{empty} bytes while flash is empty");
    for number in 0..200_000_u32 {
        store(&cache, number, &[7; 300]);
        if number.is_multiple_of(1000) {
            items_bytes(&cache, total);
        }
    }
    let tier = flash(&cache).tier;
    let full = items_bytes(&cache, total);
    assert!(full < empty - total / 200, "{full} of {empty} bytes while flash has {} objects", tier.objects);
    assert!(tier.evictions.memory == 0 && tier.drops.memory == 0, "{:?} {:?}", tier.evictions, tier.drops);
    assert!(tier.small.page_objects + tier.small.log_objects > 0, "the capacity is split");
    cache.verify();
    // A start gives the items their part before it evicts any.
    let items = cache.stats().items;
    cache.close().unwrap();
    drop(cache);
    let again = build();
    let loaded = again.stats().items;
    assert!(loaded > items / 100 * 97, "{loaded} of {items} items");
    assert!(items_bytes(&again, total).abs_diff(full) < total / 50, "{} bytes", items_bytes(&again, total));
    // Objects that flash no longer finds need no memory.
    again.flush(Duration::ZERO);
    (1..50).for_each(|second| again.maintain(Duration::from_secs(second)));
    assert!(items_bytes(&again, total) > full, "{} bytes after a flush", items_bytes(&again, total));
    again.verify();
}

#[test]
fn small_objects_fill_flash_with_growing_index() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Cache::builder().memory(ByteSize::mib(8)).clock(Clock::Manual);
    let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(80)).build().unwrap();
    for number in 0..300_000_u32 {
        store(&cache, number, &[7; 300]);
    }
    let tier = flash(&cache).tier;
    assert!(tier.objects * 300 > (80 << 20) / 100 * 82, "{} objects", tier.objects);
}

#[test]
fn all_pools_lend_memory_to_flash_index() {
    let folder = tempfile::tempdir().unwrap();
    let total = ByteSize::mib(8);
    let pools = ["default", "a", "b", "c"].map(|name| PoolOptions::named(name).max_value(ByteSize::kib(64)));
    let builder = Cache::builder().memory(total).clock(Clock::Manual).max_value(ByteSize::kib(64));
    let builder = pools.into_iter().fold(builder, CacheBuilder::pool);
    let cache = builder.flash(folder.path().join("flash"), ByteSize::mib(60)).build().unwrap();
    let pools = ["a", "b", "c"].map(|name| cache.pool(name).unwrap());
    for number in 0..400_000_u32 {
        store(&pools[number as usize % 3], number, &[7; 60]);
        if number.is_multiple_of(200) {
            cache.maintain(Duration::from_millis(u64::from(number) / 200));
        }
    }
    let (limit, used) = (cache.stats().memory_limit_bytes, cache.stats().memory_used_bytes);
    assert!(limit == total.as_bytes() && used <= limit, "{used} of {limit}");
    let items: u64 =
        ["default", "a", "b", "c"].map(|name| cache.pool(name).unwrap().stats().memory_limit_bytes).iter().sum();
    // A quarter at most: of the pool `default` alone that would be less than flash begins with.
    let of_flash = limit - items;
    assert!(of_flash > limit / 6 && of_flash <= limit / 4 + limit / 64, "flash has {of_flash} of {limit}");
    cache.verify();
}

/// Changes of the oldest value in memory, whose own evictions take it to flash.
#[test]
fn a_change_finds_what_its_own_evictions_demote() {
    type Change = dyn Fn(&Cache, &[u8]) -> Result<bool, Error>;
    fn stored(outcome: Result<Stored, Error>) -> Result<bool, Error> {
        outcome.map(|stored| stored == Stored::Stored)
    }
    let changes: [(&str, &Change); 4] = [
        ("touch", &|cache, key| cache.touch(key, Ttl::seconds(700))),
        ("append", &|cache, key| stored(cache.insert(key, &[1; 100]).mode(Mode::Append).apply())),
        ("replace", &|cache, key| stored(cache.insert(key, &[1; 8000]).mode(Mode::Replace).apply())),
        // A handle that does not wait has its caller promote the value.
        ("touch without waiting", &|cache, key| {
            let handle = cache.without_waiting();
            loop {
                match handle.touch(key, Ttl::seconds(700)) {
                    Err(Error::WouldWait { .. }) => drop(cache.get_with_token(key)),
                    touched => return touched,
                }
            }
        }),
    ];
    let outcomes = changes.map(|(name, change)| {
        let folder = tempfile::tempdir().unwrap();
        let cache = build(folder.path(), Clock::Manual, FlashPromotion::Never);
        let (mut oldest, mut wrong, mut evicting) = (0u32, 0, 0);
        for number in 0..2000u32 {
            cache.insert(&number.to_le_bytes(), &value(number, 1, 6000 + number as usize % 13 * 200)).apply().unwrap();
            if number < 800 {
                continue;
            }
            while !cache.peek(&oldest.to_le_bytes()).is_hit() {
                oldest += 1;
            }
            let before = cache.stats().displaced();
            let is_found = change(&cache, &oldest.to_le_bytes()).unwrap();
            evicting += u32::from(cache.stats().displaced() > before);
            wrong += u32::from(!is_found);
            oldest += 1;
        }
        cache.verify();
        (name, wrong, evicting)
    });
    let is_right = |outcome: &(&str, u32, u32)| outcome.1 == 0 && outcome.2 > 10;
    assert!(outcomes.iter().all(is_right), "changes that found no value, and that evicted: {outcomes:?}");
}
